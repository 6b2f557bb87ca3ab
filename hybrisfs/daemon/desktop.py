"""Notifications on the desktop (org.freedesktop.Notifications 1.2), over the session's D-Bus.

Without a session bus, or without anybody who shows notifications, nothing is shown. A click on one, its
"default" action, opens the dashboard; who cannot tell us of clicks is not asked to.
"""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeAlias

from jeepney import DBusAddress, HeaderFields, MatchRule, Message, MessageType, new_method_call
from jeepney.bus_messages import message_bus
from jeepney.io.blocking import DBusConnection, open_dbus_connection

from hybrisfs.environment import Environment
from hybrisfs.events.event import Action, Show
from hybrisfs.home import Home, has_screen, service_manager_socket, session_bus
from hybrisfs.polling import readable

__all__ = ["Desktop", "OpenPage", "PageOpener"]

log = logging.getLogger(__name__)

OpenPage: TypeAlias = Callable[[str, str, str | None], None]
"""Shows a section of the dashboard: the volume, the section, and a token of XDG activation."""

_NOTIFICATIONS: Final = DBusAddress(
    "/org/freedesktop/Notifications",
    bus_name="org.freedesktop.Notifications",
    interface="org.freedesktop.Notifications",
)
_PATIENCE: Final = 2.0  # seconds
_NO_TIMEOUT: Final = 0
_MARKUP: Final = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;"})
_CLICK: Final = ("default", "Open")
_SIGNALS: Final = MatchRule(
    type="signal", interface=_NOTIFICATIONS.interface, path=_NOTIFICATIONS.object_path
)
_MOST_SIGNALS: Final = 100  # kept until somebody waits


class _Shown(NamedTuple):
    server: str  # its name on the bus: another one may give the same number to something else
    number: int
    section: str


class Desktop:
    """Shows and withdraws what one thread tells it to, and hears of clicks while that thread waits."""

    def __init__(self, open_page: OpenPage) -> None:
        self._open_page = open_page
        self._bus: DBusConnection | None = None
        self._signals: deque[Message] = deque(maxlen=_MOST_SIGNALS)
        self._shown: dict[tuple[str, str], _Shown] = {}
        self._tokens: dict[tuple[str, int], str] = {}
        self._waker: int | None = os.eventfd(0)

    def carry_out(self, volume: str, action: Action) -> None:
        """Show or withdraw a notification about a volume. Never raises: it is a courtesy."""
        try:
            if isinstance(action, Show):
                self._show(volume, action)
            else:
                self._withdraw(volume, action.topic)
        except Exception as error:  # noqa: BLE001 - whatever a bus says wrongly, it is no reason to stop
            log.debug("nothing can be shown on the desktop: %s", error)
            self._leave()

    def wait(self, seconds: float) -> None:
        """Wait, at most until `wake` or `close`; when a person clicks on a notification, open the page."""
        deadline = time.monotonic() + seconds
        while self._waker is not None and (left := deadline - time.monotonic()) > 0:
            self._hear()
            sources = [self._waker, *([] if self._bus is None else [self._bus.sock])]
            if self._waker in readable(sources, left):
                os.eventfd_read(self._waker)
                return

    def wake(self) -> None:
        """End the present or the next `wait`. For any thread, until `close`."""
        if self._waker is not None:
            os.eventfd_write(self._waker, 1)

    def close(self) -> None:
        """Leave the bus. What is shown stays. Idempotent."""
        self._leave()
        if self._waker is not None:
            os.close(self._waker)
            self._waker = None

    def _leave(self) -> None:
        if self._bus is not None:
            self._bus.close()
            self._bus = None
            self._signals.clear()
            self._tokens.clear()

    def _show(self, volume: str, action: Show) -> None:
        key = (volume, action.topic)
        hints = {"desktop-entry": ("s", "hybrisfs"), "urgency": ("y", 1)}
        text = action.text.translate(_MARKUP)
        before = self._shown.get(key)
        answer = self._ask(new_method_call(_NOTIFICATIONS, "GetCapabilities"))
        # A server that knows no actions may show a window instead, which wants an answer at once.
        actions = _CLICK if answer is not None and "actions" in answer.body[0] else ()
        what: tuple[object, ...] = (
            "HybrisFS",
            0 if before is None else before.number,
            "hybrisfs",
            f"HybrisFS: {volume}",
            text,
            list(actions),
            hints,
        )
        answer = self._ask(new_method_call(_NOTIFICATIONS, "Notify", "susssasa{sv}i", (*what, _NO_TIMEOUT)))
        if answer is not None:
            self._shown[key] = _Shown(_sender(answer), answer.body[0], action.section)

    def _withdraw(self, volume: str, topic: str) -> None:
        shown = self._shown.pop((volume, topic), None)
        if shown is not None:
            self._ask(new_method_call(_NOTIFICATIONS, "CloseNotification", "u", (shown.number,)))

    def _hear(self) -> None:
        """Take in what the bus has sent, without waiting for more. Never raises."""
        try:
            while self._bus is not None:
                try:
                    self._bus.recv_messages(timeout=0)
                except TimeoutError:
                    break
            while self._signals:
                self._take(self._signals.popleft())
        except Exception as error:  # noqa: BLE001 - whatever a bus says wrongly, it is no reason to stop
            log.debug("the desktop cannot be listened to: %s", error)
            self._leave()

    def _take(self, signal: Message) -> None:
        if signal.header.fields.get(HeaderFields.signature) != "us":
            return
        name, source = signal.header.fields[HeaderFields.member], (_sender(signal), signal.body[0])
        clicked = next((key for key, shown in self._shown.items() if shown[:2] == source), None)
        if clicked is None:
            return
        if name == "ActivationToken":
            self._tokens[source] = signal.body[1]
        elif name == "ActionInvoked":
            self._open_page(clicked[0], self._shown[clicked].section, self._tokens.pop(source, None))

    def _ask(self, message: Message) -> Message | None:
        if self._bus is None:
            self._bus = open_dbus_connection(session_bus())
            self._bus.filter(_SIGNALS, queue=self._signals)
            self._bus.send_and_get_reply(message_bus.AddMatch(_SIGNALS), timeout=_PATIENCE)
        answer = self._bus.send_and_get_reply(message, timeout=_PATIENCE)
        if answer.header.message_type is not MessageType.method_return:
            log.debug("the desktop refuses: %s", answer.body)
            return None
        return answer


def _sender(message: Message) -> str:
    name: Any = message.header.fields.get(HeaderFields.sender, "")
    return str(name)


# -- opens the dashboard in the browser when a person has clicked on a notification ---------------------
# The daemon may be older than the session that shows the notification: then it knows nothing of its screen.
# And what a service has started ends with it, a browser, too. So the user's systemd starts the page, in the
# environment that the session has given it; where there is no systemd, or a terminal of the session has
# started the daemon, the page is a process of the daemon's own.


_BROWSER_PATIENCE: Final = 10.0  # seconds
_PACKAGES: Final = Path(__file__).resolve().parents[2]
# The page's process ends before the browser that it may have started.
_SYSTEMD_RUN: Final = (
    *("systemd-run", "--user", "--quiet", "--collect", "--slice=app.slice"),
    *("--property=KillMode=process", "--property=StandardOutput=null", f"--working-directory={_PACKAGES}"),
)


class PageOpener:
    """For one thread."""

    def __init__(self, home: Home, environment: Environment) -> None:
        self._home = home
        self._start = environment.start
        self._children: list[subprocess.Popen[bytes]] = []

    def open(self, volume: str, section: str, token: str | None) -> None:
        """Show a section of the dashboard (`hybrisfs ui`). *token* lets the browser come to the front
        (XDG activation). A failure is logged."""
        page = (sys.executable, "-m", "cli.main", "ui", "--volume", volume, "--section", section)
        activation = {} if token is None else {"XDG_ACTIVATION_TOKEN": token, "DESKTOP_STARTUP_ID": token}
        ours = service_manager_socket() is None and has_screen()
        if ours or not _by_systemd(page, {**self._home.variables(), **activation}):
            try:
                self._as_a_child(page, {**self._home.environment(), **activation})
            except OSError as error:
                log.warning("the dashboard cannot be opened: %s", error)

    def reap(self) -> None:
        """Take note of pages that have ended; nothing is left of them then."""
        self._children = [child for child in self._children if child.poll() is None]

    def _as_a_child(self, page: tuple[str, ...], environment: dict[str, str]) -> None:
        child = self._start(
            page,
            cwd=_PACKAGES,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        self._children.append(child)


def _by_systemd(page: tuple[str, ...], environment: dict[str, str]) -> bool:
    """Whether systemd has started it."""
    variables = [f"--setenv={name}={value}" for name, value in environment.items()]
    try:
        done = subprocess.run(
            [*_SYSTEMD_RUN, *variables, "--", *page],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_BROWSER_PATIENCE,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        log.debug("systemd cannot open the dashboard: %s", error)
        return False
    if done.returncode:
        log.debug("systemd cannot open the dashboard: %s", done.stderr.decode(errors="replace").strip())
    return done.returncode == 0
