"""The snapshots that this device keeps as files, by the names of their slices.

A snapshot is the file `checkpoints/<hash, hex>.snapshot` below the volume's state folder, its hints are
`<hash, hex>.hints`: their slices, one after the other. What was lost or altered is found out when it is read,
for slices are named by their content; then the checkpoint is fetched, or stated again, as if it were not
here.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Final

from hybrisfs.dispersal.seal import Sealer
from hybrisfs.environment import Environment, sync_directory
from hybrisfs.state.checkpoints import StoredSnapshot
from sync import Buffer, DecodeError
from sync.checkpoint import Slice

__all__ = ["LocalSnapshots"]

_SNAPSHOT: Final = ".snapshot"
_HINTS: Final = ".hints"


class LocalSnapshots:
    """One folder. Thread-safe, as files are written whole and never changed."""

    def __init__(self, directory: Path, sealer: Sealer, environment: Environment) -> None:
        self._directory = directory
        self.environment: Final = environment
        self._fsync = environment.fsync
        self._sealer = sealer

    def name_of(self, part: Buffer) -> bytes:
        """The name of a root or slice, by its content."""
        return self._sealer.chunk_id(part)

    def put(
        self, pieces: Iterable[bytes], hints: Iterable[bytes], finish: Callable[[], bytes]
    ) -> StoredSnapshot:
        """Write a snapshot; *finish* returns its hash after the last piece. Raises OSError."""
        self._directory.mkdir(mode=0o700, exist_ok=True)
        with contextlib.ExitStack() as undo:
            paths: list[str] = []
            written: list[tuple[Slice, ...]] = []
            for content in (pieces, hints):
                handle, path = tempfile.mkstemp(dir=self._directory, suffix=".part")
                paths.append(path)
                undo.callback(Path(path).unlink, missing_ok=True)
                with os.fdopen(handle, "wb") as file:
                    written.append(tuple(self._write(file.write, content)))
                    file.flush()
                    self._fsync(file.fileno())
            snapshot = finish()
            for path, suffix in zip(paths, (_SNAPSHOT, _HINTS), strict=True):
                Path(path).replace(self._path(snapshot, suffix))
            undo.pop_all()
        sync_directory(self._directory, self.environment)
        return StoredSnapshot(snapshot, *written)

    def _write(self, write: Callable[[bytes], object], pieces: Iterable[bytes]) -> Iterator[Slice]:
        for piece in pieces:
            write(piece)
            yield Slice(self.name_of(piece), len(piece))

    def _path(self, snapshot: bytes, suffix: str) -> Path:
        return self._directory / f"{snapshot.hex()}{suffix}"

    def pieces(self, stored: StoredSnapshot) -> Iterator[bytes]:
        """The slices of a snapshot. Raises DecodeError when one is damaged, OSError when it is not there."""
        return self._read(self._path(stored.snapshot, _SNAPSHOT), stored.slices)

    def hints(self, stored: StoredSnapshot) -> Iterator[bytes]:
        """The slices of its hints. Raises like `pieces`."""
        return self._read(self._path(stored.snapshot, _HINTS), stored.hints)

    def _read(self, path: Path, slices: Iterable[Slice]) -> Iterator[bytes]:
        with path.open("rb") as file:
            for one in slices:
                piece = file.read(one.length)
                if self.name_of(piece) != one.name:
                    raise DecodeError(f"{path} is damaged")
                yield piece

    def find(self, stored: StoredSnapshot, name: bytes) -> bytes | None:
        """The slice of that name, None when this is not one of the checkpoint's, or is not here any more."""
        for slices, suffix in ((stored.slices, _SNAPSHOT), (stored.hints, _HINTS)):
            position = 0
            for one in slices:
                if one.name == name:
                    return self._at(self._path(stored.snapshot, suffix), position, one)
                position += one.length
        return None

    def _at(self, path: Path, position: int, wanted: Slice) -> bytes | None:
        try:
            with path.open("rb") as file:
                file.seek(position)
                piece = file.read(wanted.length)
        except OSError:
            return None
        return piece if self.name_of(piece) == wanted.name else None

    def keep_only(self, snapshots: Iterable[bytes]) -> None:
        """Remove all other files, and what a crash has left."""
        wanted = {snapshot.hex() for snapshot in snapshots}
        for path in self._directory.glob("*"):
            if path.stem not in wanted:
                path.unlink(missing_ok=True)
