"""The processes that keep a mount busy: those with an open file, a working directory or a mapping in it
(proc(5)).

Only links are read and nothing in the mount is touched: the kernel would have to ask this very daemon. Of
processes of other users only root learns anything.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from hybrisfs.shown import shown

__all__ = ["Holder", "describe_holders", "find_holders"]

_PROC: Final = Path("/proc")
_SHOWN: Final = 5


@dataclass(frozen=True, slots=True)
class Holder:
    """A process and one path of the mount that it uses."""

    pid: int
    program: str
    path: str


def find_holders(directory: Path, proc: Path = _PROC) -> list[Holder]:
    """The processes that use what is mounted at *directory* (an absolute path), by their number."""
    pids = sorted(int(entry.name) for entry in proc.iterdir() if entry.name.isdigit())
    found = (_holder(proc / str(pid), pid, os.fspath(directory)) for pid in pids)
    return [holder for holder in found if holder is not None]


def describe_holders(holders: Sequence[Holder]) -> str:
    """For a sentence: "vim (process 12) uses /home/a/HybrisFS/x, ..."; "" when there are none."""
    named = [f"{shown(one.program)} (process {one.pid}) uses {shown(one.path)}" for one in holders[:_SHOWN]]
    more = len(holders) - _SHOWN
    return ", ".join(named) + (f", and {more} more" if more > 0 else "")


def _holder(process: Path, pid: int, directory: str) -> Holder | None:
    try:
        path = next((used for used in _used(process) if used == directory or _below(used, directory)), None)
        if path is None:
            return None
        program = (process / "comm").read_text(errors="replace").rstrip("\n")
    except OSError:  # it has ended, or is another user's
        return None
    return Holder(pid, program, path)


def _below(path: str, directory: str) -> bool:
    return path.startswith(directory.rstrip("/") + "/")


def _used(process: Path) -> Iterator[str]:
    """Paths, as this process would name them; those of deleted files end in " (deleted)"."""
    for name in ("cwd", "root", "exe"):
        try:
            yield os.readlink(process / name)  # noqa: PTH115 - a Path would lose what is no path
        except FileNotFoundError:  # a thread of the kernel
            continue
    for descriptor in (process / "fd").iterdir():
        try:
            yield os.readlink(descriptor)  # noqa: PTH115
        except FileNotFoundError:  # closed since
            continue
    with (process / "maps").open(errors="surrogateescape") as lines:
        for line in lines:
            fields = line.rstrip("\n").split(maxsplit=5)
            if len(fields) == 6:
                yield fields[5]
