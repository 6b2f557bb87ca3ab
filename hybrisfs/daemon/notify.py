"""Telling systemd how the service is doing: the datagrams of sd_notify(3), without its library."""

from __future__ import annotations

import logging
import socket

from hybrisfs.home import service_manager_socket

__all__ = ["notify"]

log = logging.getLogger(__name__)


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
