"""HybrisFS in Nautilus, Nemo and Caja: an emblem for the state of each file, and a menu.

One file for the three: it lies in the folder of extensions of each, and speaks to the one whose folder it is.
Files of other file systems are left alone: they have no attribute `user.hybrisfs.state`.

A change of state raises no event that a file manager could hear of, so files that were shown are looked at
again now and then, a few at a time, as long as the file manager keeps them in memory.
"""

import contextlib
import itertools
import os
import re
from pathlib import Path

import gi

_MANAGERS = {
    "nautilus-python": ("Nautilus", ("4.1", "4.0", "3.0")),
    "nemo-python": ("Nemo", ("3.0",)),
    "caja-python": ("Caja", ("2.0",)),
}
_STATE = "user.hybrisfs.state"
_EMBLEMS = {
    "durable": "emblem-hybrisfs-safe",
    "local": "emblem-hybrisfs-uploading",
    "uploading": "emblem-hybrisfs-uploading",
    "cloud-only": "emblem-hybrisfs-cloud-only",
    "conflict": "emblem-hybrisfs-conflict",
}
_STATES = {
    "durable": "On the clouds and on this machine",
    "local": "Only on this machine yet",
    "uploading": "On the way to the clouds",
    "cloud-only": "On the clouds; fetched when it is opened",
    "conflict": "Changed on two machines at once",
}
_SETTLED = ("durable", "cloud-only")  # until somebody does something
_MOST_PATHS = 1000  # of one command
_LOOK_EVERY = 3  # seconds
_LOOK_AT = 20  # files of either kind, each time
_MOST_SHOWN = 2000  # files that are kept in mind


def _manager():
    name, versions = _MANAGERS[Path(__file__).resolve().parent.parent.name]
    for version in versions:
        try:
            gi.require_version(name, version)
        except ValueError:
            continue
        break
    return getattr(__import__("gi.repository", fromlist=[name]), name)


Manager = _manager()
from gi.repository import Gio, GLib, GObject  # noqa: E402 - after the version of the other is chosen


def _path(file):
    location = file.get_location() if file.get_uri_scheme() == "file" else None
    return location.get_path() if location is not None else None


def _unescaped(field):
    """A field of mountinfo: blanks and backslashes are octal numbers there."""
    return re.sub(r"\\([0-7]{3})", lambda found: chr(int(found[1], 8)), field)


def _mounted(path):
    """Whether a file or folder is in a mounted volume."""
    try:
        while not os.path.ismount(path):
            path = str(Path(path).parent)
        with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as mounts:
            return any(_unescaped(line.split()[4]) == path and " - fuse.hybrisfs " in line for line in mounts)
    except OSError:
        return False


def _state(path):
    """The state of a file in a volume; None for anything else."""
    try:
        state = os.getxattr(path, _STATE).decode("ascii", "replace")
    except OSError:
        return None
    return state if state in _EMBLEMS else None


class _Shown:
    """The files that were given an emblem, and are told to ask for another one when their state changes."""

    def __init__(self):
        self._moving, self._settled = {}, {}  # path: weak reference, state; those to look at next are first
        self._timer = None

    def add(self, file, path, state):
        """Keep a file in mind, with the state that it is shown with."""
        for files in (self._moving, self._settled):
            files.pop(path, None)
        files = self._settled if state in _SETTLED else self._moving
        files[path] = (file.weak_ref(), state)
        if len(files) > _MOST_SHOWN:
            del files[next(iter(files))]
        if self._timer is None:
            self._timer = GLib.timeout_add_seconds(_LOOK_EVERY, self.look)

    def look(self):
        """Look at the next few of either kind; returns whether to come back."""
        for files in (self._moving, self._settled):
            for path in list(itertools.islice(files, _LOOK_AT)):
                reference, state = files.pop(path)
                file = reference()
                if file is None or file.is_gone():
                    continue
                files[path] = (reference, state)
                if _state(path) != state:
                    file.invalidate_extension_info()
        if self._moving or self._settled:
            return True
        self._timer = None
        return False


class HybrisFS(GObject.GObject, Manager.InfoProvider, Manager.MenuProvider):
    """What a file manager asks of an extension."""

    def __init__(self):
        super().__init__()
        self._shown = _Shown()

    def update_file_info(self, file):
        """Give a file its emblem."""
        path = _path(file)
        if path is None or file.is_directory():
            return
        state = _state(path)
        if state is not None:
            file.add_emblem(_EMBLEMS[state])
            self._shown.add(file, path, state)

    def get_file_items(self, *arguments):
        """The menu of files that are chosen; older file managers give their window before these."""
        return self._menu([_path(file) for file in arguments[-1]])

    def get_background_items(self, *arguments):
        """The menu of the folder that is shown."""
        return self._menu([_path(arguments[-1])])

    def _menu(self, paths):
        if not paths or len(paths) > _MOST_PATHS or None in paths or not _mounted(paths[0]):
            return []
        top = Manager.MenuItem(name="HybrisFS::Menu", label="HybrisFS", tip="")
        menu = Manager.Menu()
        top.set_submenu(menu)
        state = _state(paths[0]) if len(paths) == 1 else None
        if state is not None:
            item = Manager.MenuItem(name="HybrisFS::State", label=_STATES[state], tip="")
            item.set_property("sensitive", False)
            menu.append_item(item)
        for name, label, command in _entries(paths, state):
            item = Manager.MenuItem(name=f"HybrisFS::{name}", label=label, tip="")
            item.connect("activate", self._run, command)
            menu.append_item(item)
        return [top]

    def _run(self, _item, command):
        try:
            flags = Gio.SubprocessFlags.STDOUT_SILENCE | Gio.SubprocessFlags.STDERR_PIPE
            Gio.Subprocess.new(command, flags).communicate_utf8_async(None, None, _ended)
        except GLib.Error as error:
            _notify(error.message)


def _entries(paths, state):
    """The name, the label and the command of each entry of the menu."""
    yield "Pin", "Keep on this machine", ("hybrisfs", "pin", "--", *paths)
    yield "Unpin", "Do not keep on this machine", ("hybrisfs", "unpin", "--", *paths)
    yield "Evict", "Free the disk", ("hybrisfs", "evict", "--", *paths)
    if state is not None:
        yield "Versions", "Versions ...", ("hybrisfs", "ui", "--", *paths)
    yield "Conflicts", "Conflicts ...", ("hybrisfs", "ui", "--section", "conflicts", "--", paths[0])
    yield "Page", "Clouds, machines, costs ...", ("hybrisfs", "ui", "--section", "overview", "--", paths[0])


def _ended(process, result):
    """A command has ended. What it complains of is shown."""
    try:
        _, _, complaint = process.communicate_utf8_finish(result)
    except GLib.Error as error:
        complaint = error.message
    if not process.get_successful():
        _notify(complaint)


def _notify(text):
    words = ("HybrisFS", 0, "hybrisfs", "HybrisFS", GLib.markup_escape_text(text), [], {}, -1)
    with contextlib.suppress(GLib.Error):  # there is no session bus
        Gio.bus_get_sync(Gio.BusType.SESSION).call(
            "org.freedesktop.Notifications",
            "/org/freedesktop/Notifications",
            "org.freedesktop.Notifications",
            "Notify",
            GLib.Variant("(susssasa{sv}i)", words),
            None,
            Gio.DBusCallFlags.NONE,
            -1,
            None,
            None,
        )
