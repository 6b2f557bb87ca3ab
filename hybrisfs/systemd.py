"""What a service and systemd tell each other: sd_notify(3), sd_listen_fds(3), sd-daemon(3); no library."""

from __future__ import annotations

import contextlib
import logging
import os
import socket
from pathlib import Path
from typing import Final

from hybrisfs.home import service_manager_socket, take_listening_sockets

__all__ = ["JournalFormatter", "inherited_listener", "notify"]

log = logging.getLogger(__name__)

_FIRST_SOCKET: Final = 3
_PRIORITIES: Final = ((logging.CRITICAL, 2), (logging.ERROR, 3), (logging.WARNING, 4), (logging.INFO, 6))
_DEBUG: Final = 7


def notify(state: str) -> None:
    """Send assignments such as "READY=1" to the service manager; does nothing where there is none."""
    address = service_manager_socket()
    if address is None:
        return
    if address.startswith("@"):
        address = "\0" + address[1:]  # Linux's abstract namespace
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as manager:
            manager.sendto(state.encode(), address)
    except OSError as error:
        log.warning("cannot tell systemd %s: %s", state, error)


def inherited_listener(path: Path) -> socket.socket | None:
    """The socket on which systemd has listened at *path* for us; None when it has not.

    Others that it handed us are closed.
    """
    found: socket.socket | None = None
    for descriptor in range(_FIRST_SOCKET, _FIRST_SOCKET + take_listening_sockets()):
        os.set_inheritable(descriptor, False)
        with contextlib.ExitStack() as undo:
            undo.callback(os.close, descriptor)
            given = socket.socket(fileno=os.dup(descriptor))
            if given.family == socket.AF_UNIX and given.getsockname() == os.fspath(path) and found is None:
                found = given
            else:
                log.warning("systemd handed us the socket %r, which is not %s", given.getsockname(), path)
                given.close()
    return found


class JournalFormatter(logging.Formatter):
    """Every line begins with its priority, as <3> for an error; the journal itself knows time and process."""

    def __init__(self) -> None:
        super().__init__("%(name)s: %(message)s")

    def format(self, record: logging.LogRecord) -> str:
        priority = next((number for level, number in _PRIORITIES if record.levelno >= level), _DEBUG)
        return "\n".join(f"<{priority}>{line}" for line in super().format(record).splitlines())
