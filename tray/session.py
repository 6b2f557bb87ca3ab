"""The process of the icon: what it shows follows the daemon, and what a person chooses is run.

It looks at the file that the daemon writes for panels, and asks the daemon nothing: it starts none, and costs
it nothing. Commands are processes of their own; what one has to say is shown as a notification.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

from jeepney import DBusAddress, new_method_call
from jeepney.io.blocking import DBusConnection, open_dbus_connection
from jeepney.wrappers import DBusErrorResponse

from hybrisfs.client import HybrisError, autostart_folder, clean, panel_file, session_bus, volume_names
from hybrisfs.environment import SYSTEM, make_directory, replace_file
from tray.item import Click, TrayItem
from tray.menu import HIDE, Look, look, read_panels

__all__ = ["serve", "set_autostart"]

ICONS: Final = Path(__file__).parent / "icons"
_EVERY: Final = 2.0  # seconds between two looks at what the daemon says
_LONGEST: Final = 2000  # bytes of a notification
_NOTIFICATIONS: Final = DBusAddress(
    "/org/freedesktop/Notifications",
    bus_name="org.freedesktop.Notifications",
    interface="org.freedesktop.Notifications",
)
_MARKUP: Final = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;"})


def serve() -> bool:
    """Show the icon until the session ends or a person hides it; False when there is one already.

    Raises HybrisError when there is no session bus.
    """
    try:
        bus = open_dbus_connection(session_bus())
    except (OSError, KeyError, ValueError) as error:
        raise HybrisError(
            "there is no desktop to show an icon on", f"its D-Bus cannot be reached: {_why(error)}", _ADVICE
        ) from error
    with bus:
        try:
            return _Session(bus).run()
        except (OSError, DBusErrorResponse):
            return True  # the session has ended


def _why(error: Exception) -> str:
    return (error.strerror if isinstance(error, OSError) else None) or str(error)


_ADVICE: Final = "Run this in a terminal of the desktop, or have the desktop start it: --autostart."


def set_autostart(*, wanted: bool) -> Path:
    """Have the desktop start this with each session of the user, or not, whatever is usual on this machine;
    return the file that says so. Raises OSError."""
    path = autostart_folder() / "hybrisfs-tray.desktop"
    make_directory(path.parent, SYSTEM)
    text = _ENTRY.format(" ".join(map(_word, _OURS)), "false" if wanted else "true")
    replace_file(path, text.encode(), SYSTEM)
    return path


# https://specifications.freedesktop.org/autostart-spec
_ENTRY: Final = """\
[Desktop Entry]
Type=Application
Name=HybrisFS in the panel
Exec={} tray
Icon=hybrisfs
Hidden={}
"""
_OURS: Final = (sys.executable, "-P", "-m", "cli.main")


def _word(text: str) -> str:
    """A word of Exec in a desktop entry, which is quoted twice: as a string, and for the command."""
    quoted = re.sub(r'(["`$\\])', r"\\\1", text.replace("%", "%%"))
    return '"' + quoted.replace("\\", "\\\\") + '"'


class _Session:
    def __init__(self, bus: DBusConnection) -> None:
        self._bus = bus
        self._commands: list[_Command] = []

    def run(self) -> bool:
        item = TrayItem(self._bus, str(ICONS), _look())
        if not item.take_place():
            return False
        while True:
            for click in item.wait(_EVERY):
                if click.command == HIDE:
                    return True
                self._run(click)
            self._reap()
            item.show(_look())

    def _run(self, click: Click) -> None:
        try:
            self._commands.append(_Command(click))
        except OSError as error:
            self._notify(f"{click.command[0]} cannot be started: {error.strerror}")

    def _reap(self) -> None:
        for command in [one for one in self._commands if one.has_ended()]:
            self._commands.remove(command)
            said = command.said()
            if said:
                self._notify(said)

    def _notify(self, text: str) -> None:
        said = text.translate(_MARKUP)
        words: tuple[object, ...] = ("HybrisFS", 0, "hybrisfs", "HybrisFS", said, [], {}, -1)
        self._bus.send(new_method_call(_NOTIFICATIONS, "Notify", "susssasa{sv}i", words))


class _Command:
    """One that a person has chosen. Raises OSError when it cannot be started."""

    def __init__(self, click: Click) -> None:
        program, *arguments = click.command
        ours = program == "hybrisfs"
        words = [*_OURS, *arguments] if ours else [program, *arguments]
        variables = ("XDG_ACTIVATION_TOKEN", "DESKTOP_STARTUP_ID") if click.token else ()
        activated = ("env", *(f"{name}={click.token}" for name in variables))
        # What ui prints is a link, which nobody else may see.
        says = ours and arguments[0] != "ui"
        self._said, self._complaint = tempfile.TemporaryFile(), tempfile.TemporaryFile()  # noqa: SIM115
        self._child = subprocess.Popen(
            [*activated, *words],
            stdin=subprocess.DEVNULL,
            stdout=self._said if says else subprocess.DEVNULL,
            stderr=self._complaint,
            start_new_session=True,
        )

    def has_ended(self) -> bool:
        return self._child.poll() is not None

    def said(self) -> str:
        """What it answered, or complained of; nothing when it did what it should without a word."""
        with self._said, self._complaint:
            told = self._complaint if self._child.returncode else self._said
            told.seek(0)
            return clean(told.read(_LONGEST).decode("utf-8", "replace").strip())


def _look() -> Look:
    return look(read_panels(panel_file()), has_volumes=bool(volume_names()))
