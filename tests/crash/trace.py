"""What a recording of a disk consists of: every change of it, in the order in which it happened.

Nodes are named by numbers; 1 is the root. A trace is a file of pickled steps, one after the other: it is
written and read by the same program, minutes apart.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple, TypeAlias

__all__ = ["Data", "Made", "Mark", "Named", "Resized", "Step", "Synced", "Unnamed", "read_trace"]


class Made(NamedTuple):
    """A file or folder comes into being, without a name yet."""

    node: int
    is_folder: bool


class Named(NamedTuple):
    """A name leads to the node from now on, and no longer to what it led to. With *old* (folder, name) the
    node was moved: both happens, or neither."""

    folder: int
    name: bytes
    node: int
    old: tuple[int, bytes] | None = None


class Unnamed(NamedTuple):
    """A name is gone."""

    folder: int
    name: bytes


class Data(NamedTuple):
    """Bytes were written."""

    node: int
    offset: int
    bytes: bytes


class Resized(NamedTuple):
    """The file has this size now: cut off, or continued by zeros."""

    node: int
    size: int


class Synced(NamedTuple):
    """All that was done to the file or folder before is on the medium."""

    node: int


class Mark(NamedTuple):
    """Who uses the disk says how far he is."""

    text: str


Step: TypeAlias = Made | Named | Unnamed | Data | Resized | Synced | Mark


def read_trace(path: Path) -> Iterator[Step]:
    """The steps of a trace."""
    with path.open("rb") as file:
        while True:
            try:
                step: Step = pickle.load(file)
            except EOFError:
                return
            yield step
