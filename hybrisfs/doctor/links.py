"""The ports on which other devices may call this one."""

from __future__ import annotations

import errno
import socket
from collections.abc import Iterator, Mapping

from hybrisfs.doctor.finding import Finding, ok, warn

__all__ = ["examine_links"]


def examine_links(ports: Mapping[str, int], *, daemon_runs: bool) -> Iterator[Finding]:
    """*ports*: those that `volume.json` names, 0 for any; by volume."""
    for name, number in ports.items():
        if number:
            yield port(name, number, daemon_runs=daemon_runs)


def port(name: str, number: int, *, daemon_runs: bool) -> Finding:
    """While the daemon runs it holds the port itself."""
    check = f"port of {name}"
    try:
        with socket.create_server(("", number)):
            free = True
    except OSError as error:
        if error.errno == errno.EACCES:
            return warn(
                check, f"port {number} is reserved for root", "Choose one above 1023 in volume.json (links)."
            )
        free = False
    if free and daemon_runs:
        return warn(
            check,
            f"nobody listens on port {number}",
            "The log says why; other machines cannot call this one.",
        )
    if not free and not daemon_runs:
        return warn(
            check,
            f"port {number} is taken by another program",
            f"Run ss -ltnp 'sport = :{number}' to see by which; or choose another in volume.json (links).",
        )
    return ok(check, f"port {number} {'is free' if free else 'is listened on'}")
