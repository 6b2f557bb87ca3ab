"""Changes files with set-id bits and capabilities in every way, and tells what becomes of them.

Root makes the files with `prepare`. The other user then runs `python -m tests.system.changing_programs
FOLDER`, which changes them in the order of `cases`.
"""

from __future__ import annotations

import errno
import json
import mmap
import os
import stat
import sys
from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path
from typing import Final, NamedTuple

__all__ = ["CAPABILITY", "RAW_CAPABILITY", "Case", "cases", "prepare"]

_MODES: Final = (0o4777, 0o6777, 0o2666, 0o6766, 0o666)
CAPABILITY: Final = "security.capability"
RAW_CAPABILITY: Final = bytes.fromhex(
    "0100000201000000000000000000000000000000"
)  # CAP_CHOWN, as setcap(8) writes it
_SIZE: Final = 8192


class Case(NamedTuple):
    """A file, and the call that changes it."""

    call: str
    mode: int
    owner: int
    group: int
    has_capability: bool


def cases(user: int, group: int) -> Iterator[Case]:
    """For a user that is to change files, one of whose groups this is."""
    mine = (user, 0) if user else (0, 1)
    for call, mode, owner, of, has in product(_CALLS, _MODES, mine, (user, group, 7), (False, True)):
        if call != "chown nothing" or owner == user != 0:  # root keeps the bits here: docs/posix.md
            yield Case(call, mode, owner, of, has)


def prepare(folder: Path, wanted: list[Case]) -> None:
    for number, case in enumerate(wanted):
        path = folder / str(number)
        path.write_bytes(bytes(_SIZE))
        os.chown(path, case.owner, case.group)
        path.chmod(case.mode)
        if case.has_capability:
            os.setxattr(path, CAPABILITY, RAW_CAPABILITY)


def _opened(change: Callable[[int], object], flags: int = os.O_WRONLY) -> Callable[[Path], None]:
    def call(path: Path) -> None:
        descriptor = os.open(path, flags)
        try:
            change(descriptor)
        finally:
            os.close(descriptor)

    return call


def _write_page(descriptor: int) -> None:
    with mmap.mmap(-1, 4096) as page:  # O_DIRECT wants it aligned
        os.write(descriptor, page)


def _send(descriptor: int) -> None:
    with Path(sys.executable).open("rb") as source:
        os.sendfile(descriptor, source.fileno(), 0, 100)


_CALLS: Final[dict[str, Callable[[Path], object]]] = {
    "write": _opened(lambda descriptor: os.write(descriptor, b"x")),
    "write directly": _opened(_write_page, os.O_WRONLY | os.O_DIRECT),
    "write nothing": _opened(lambda descriptor: os.write(descriptor, b"")),
    "sendfile": _opened(_send),
    "open with O_TRUNC": _opened(os.fsync, os.O_WRONLY | os.O_TRUNC),
    "truncate": lambda path: os.truncate(path, 10),
    "ftruncate": _opened(lambda descriptor: os.ftruncate(descriptor, 10)),
    "fallocate": _opened(lambda descriptor: os.posix_fallocate(descriptor, 0, _SIZE + 1)),
    "chown": lambda path: os.chown(path, path.stat().st_uid, -1),
    "chgrp": lambda path: os.chown(path, -1, os.getegid()),
    "chown nothing": lambda path: os.chown(path, -1, -1),
    "utime": os.utime,
    "chmod": lambda path: path.chmod(path.stat().st_mode),
}


def _seen(path: Path) -> tuple[int, bool]:
    return stat.S_IMODE(path.stat().st_mode), CAPABILITY in os.listxattr(path)


def _change(call: str, path: Path) -> str:
    try:
        _CALLS[call](path)
    except OSError as error:
        return errno.errorcode[error.errno or 0]
    return ""


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    calls = json.load(sys.stdin)
    outcomes = [(_change(call, folder / str(number)), number) for number, call in enumerate(calls)]
    json.dump([(error, *_seen(folder / str(number))) for error, number in outcomes], sys.stdout)
