"""A disk that takes note of every change: a filesystem in memory, served by a process of its own.

`python -m tests.crash.recorder DIRECTORY TRACE` serves until its standard input ends. What is recorded is
what reaches a disk, whoever does it: our own files, SQLite's, and those of clouds that are folders. Nothing
in the program that is recorded needs to know.
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import threading
from pathlib import Path
from types import TracebackType
from typing import Final

from hybrisfs import fuse
from hybrisfs.fuse import Entry, Request, records
from tests.crash.trace import Data, Made, Mark, Named, Resized, Step, Synced, Unnamed
from tests.fuse.memory_fs import MemoryFS, Node

__all__ = ["RecordedDisk"]

_ROOT: Final = Path(__file__).parents[2]
_MARK: Final = b"user.mark"
_READY: Final = "mounted"


class _RecordingFS(MemoryFS):
    def __init__(self, trace: Path) -> None:
        super().__init__()
        self._trace = trace.open("wb")

    def _note(self, step: Step) -> None:
        pickle.dump(step, self._trace)

    def destroy(self) -> None:
        self._trace.close()

    def add(self, request: Request, parent: int, name: bytes, mode: int) -> Node:
        node = super().add(request, parent, name, mode)
        self._note(Made(node.ino, node.is_directory))
        self._note(Named(parent, name, node.ino))
        return node

    def remove(self, parent: int, name: bytes) -> None:
        super().remove(parent, name)
        self._note(Unnamed(parent, name))

    def link(self, request: Request, ino: int, new_parent: int, new_name: bytes) -> Entry:
        entry = super().link(request, ino, new_parent, new_name)
        self._note(Named(new_parent, new_name, ino))
        return entry

    def rename(
        self, request: Request, parent: int, name: bytes, new_parent: int, new_name: bytes, flags: int
    ) -> None:
        node = self.child(parent, name)
        if flags & records.RENAME_EXCHANGE:
            raise NotImplementedError("nobody exchanges names on this disk")
        # What is replaced loses its name in the same step.
        there = self.nodes[new_parent].children.get(new_name)
        if there is not None and not flags & records.RENAME_NOREPLACE:
            super().remove(new_parent, new_name)
        super().rename(request, parent, name, new_parent, new_name, flags)
        self._note(Named(new_parent, new_name, node.ino, (parent, name)))

    def resize(self, node: Node, size: int) -> None:
        super().resize(node, size)
        self._note(Resized(node.ino, size))

    def write(self, request: Request, ino: int, fh: int, offset: int, data: memoryview, kill: bool) -> int:
        node = self.nodes[fh]
        if offset > len(node.data):
            super().resize(node, offset)
        node.data[offset : offset + len(data)] = data
        node.touch()
        self._note(Data(fh, offset, bytes(data)))
        return len(data)

    def fsync(self, request: Request, ino: int, fh: int, datasync: bool) -> None:
        self._note(Synced(ino))

    def fsyncdir(self, request: Request, ino: int, fh: int, datasync: bool) -> None:
        self._note(Synced(ino))

    def setxattr(self, request: Request, ino: int, name: bytes, value: bytes, flags: int) -> None:
        if name == _MARK:
            self._note(Mark(value.decode()))
        else:
            super().setxattr(request, ino, name, value, flags)

    def fallocate(self, request: Request, ino: int, fh: int, offset: int, length: int, mode: int) -> None:
        if mode & records.FALLOC_FL_PUNCH_HOLE:
            end = min(offset + length, len(self.nodes[fh].data))
            self.write(request, ino, fh, offset, memoryview(bytes(max(0, end - offset))), False)
        else:
            super().fallocate(request, ino, fh, offset, length, mode)


class RecordedDisk:
    """A recorded disk, mounted at *where* while the block runs; its trace is complete afterwards."""

    def __init__(self, where: Path, trace: Path) -> None:
        self.where = where
        self.trace = trace

    def __enter__(self) -> RecordedDisk:
        self.where.mkdir(parents=True)
        self._server = subprocess.Popen(
            [sys.executable, "-m", __name__, os.fspath(self.where), os.fspath(self.trace)],
            cwd=_ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._server.stdout is not None
        if self._server.stdout.readline().strip() != _READY:
            self._server.kill()
            self._server.wait()
            raise RuntimeError(f"nothing could be mounted at {self.where}")
        return self

    def mark(self, text: str) -> None:
        """Put a word into the trace: all that was done before it comes before it there."""
        os.setxattr(self.where, _MARK, text.encode())

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.communicate()
        self.where.rmdir()


def main() -> None:
    session = fuse.MountedSession(_RecordingFS(Path(sys.argv[2])), Path(sys.argv[1]), ["fsname=recorded"])
    session.mount()
    loop = threading.Thread(target=session.run)
    loop.start()
    print(_READY, flush=True)
    try:
        sys.stdin.read()
    finally:
        session.unmount(lazy=True)
        loop.join()
        session.close()


if __name__ == "__main__":
    main()
