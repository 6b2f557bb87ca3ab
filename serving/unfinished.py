"""What is in the making in the served folder: removed later when the process that makes it dies."""

from __future__ import annotations

import contextlib
import json
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import Final

__all__ = ["TEMPORARY", "Unfinished"]

TEMPORARY: Final = ".hybrisfs-serve-"
"""What the names of files in the making begin with."""

_NOTE: Final = "making-"
_LARGEST: Final = 1 << 16  # bytes of a note


class Unfinished:
    """Notes of such names, one file for each, in a folder that only this process uses. Thread-safe."""

    def __init__(self, notes: Path) -> None:
        self._notes = notes

    def begin(self, folder: tuple[str, ...]) -> str:
        """Note a new temporary name in a folder of the volume; return the name. Raises OSError."""
        name = TEMPORARY + secrets.token_hex(8)
        self._path(name).write_text(json.dumps([*folder, name]))
        return name

    def end(self, name: str) -> None:
        """It is gone, or has become something."""
        self._path(name).unlink(missing_ok=True)

    def left(self) -> Iterator[tuple[str, ...]]:
        """Paths in the volume of what an earlier process has left; each is forgotten afterwards."""
        for note in sorted(self._notes.glob(f"{_NOTE}*")):
            with contextlib.suppress(ValueError):
                path = json.loads(note.read_bytes()[:_LARGEST])
                is_path = isinstance(path, list) and path and all(isinstance(name, str) for name in path)
                if is_path and path[-1].startswith(TEMPORARY):
                    yield tuple(path)
            note.unlink(missing_ok=True)

    def _path(self, name: str) -> Path:
        return self._notes / f"{_NOTE}{name.removeprefix(TEMPORARY)}"
