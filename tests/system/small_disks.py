"""Filesystems of a fixed small size, to be filled, taken away or cut off."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from types import TracebackType

import pytest

from tests.system.shell import run

__all__ = ["XfsDisk", "allowing_more", "memory_disk", "needs_root"]

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount a small disk")


@contextmanager
def memory_disk(where: Path, mebibytes: int) -> Iterator[Path]:
    """A tmpfs of that size, mounted at `where` while the block runs."""
    where.mkdir(parents=True)
    run("mount", "-t", "tmpfs", "-o", f"size={mebibytes}m", "tmpfs", where)
    try:
        yield where
    finally:
        run("umount", "--lazy", where)
        shutil.rmtree(where, ignore_errors=True)


def allowing_more(disk: Path) -> Iterator[int]:
    """The number of files that a memory disk can have: none more than it has at first, and each time one
    more."""
    for inodes in count(int(run("df", "--output=iused", disk).split()[-1])):
        run("mount", "-o", f"remount,nr_inodes={inodes}", disk)
        yield inodes


class XfsDisk:
    """An XFS filesystem in a file, which loses its power on demand.

    As a context manager it is mounted at `where` and removed in the end.
    """

    def __init__(self, where: Path, mebibytes: int) -> None:
        self.where = where
        self._image = where.with_name(where.name + ".image")
        self._mebibytes = mebibytes

    def __enter__(self) -> XfsDisk:
        self.where.mkdir(parents=True)
        with self._image.open("wb") as file:
            file.truncate(self._mebibytes << 20)
        run("mkfs.xfs", "-q", self._image)
        self.mount()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        subprocess.run(["umount", "--lazy", self.where], check=False, capture_output=True)
        self._image.unlink()

    def mount(self) -> None:
        # A loop device of its own each time: a mount namespace that somebody made meanwhile keeps a disk
        # without power mounted, and would lend it to whoever mounts the same device again.
        device = run("losetup", "--find", "--show", self._image).strip()
        try:
            run("mount", "-o", "nouuid", device, self.where)
        finally:
            run("losetup", "--detach", device)  # goes with its mount

    def cut_power(self) -> None:
        """Everything that was not synced is lost; whoever uses the disk gets errors from now on."""
        run("xfs_io", "-x", "-c", "shutdown", self.where)

    def restore_power(self) -> None:
        """Call when nobody uses the disk any more."""
        run("umount", self.where)
        self.mount()
