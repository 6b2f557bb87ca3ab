"""A volume without a mount, and folders on the disk that mirror folders of it."""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path, PurePath
from typing import Final, TypeVar

from hybrisfs.api.mirrors import Mirror
from hybrisfs.chunk_namer import ChunkNamer
from hybrisfs.environment import SYSTEM
from hybrisfs.mirror.agreed import AgreedTable, Settings
from hybrisfs.mirror.file_access import DISK, Disk
from hybrisfs.mirror.folder import Care, Folder
from hybrisfs.mirror.ignore import Ignored, write_marker
from hybrisfs.mirror.volume_side import VolumeSide
from hybrisfs.mirror.worker import MirrorLimits, Worker
from hybrisfs.state.chunk_states import ChunkRef
from hybrisfs.state.file_chunks import whereabouts
from hybrisfs.state.schema import ROOT_INO
from hybrisfs.tree.inodes import Inode
from hybrisfs.tree.unseen import Change
from tests.surroundings import limited
from tests.volume.device import Device

__all__ = ["QUICK", "Mirrored", "OneWorker", "opened_folder", "until"]

_PATIENCE: Final = 60.0
QUICK: Final = MirrorLimits(quiet=0.1, gather=0.05, again=0.1, away=0.2, broken=0.5, unwatched=0.3)
"""Sooner than in real life."""

S = TypeVar("S", bound=VolumeSide)


def until(holds: Callable[[], object], what: str) -> None:
    """Wait until something holds."""
    deadline = time.monotonic() + _PATIENCE
    while not holds():
        assert time.monotonic() < deadline, f"waited in vain for {what}"
        time.sleep(0.02)


class _Numbered(Care):
    def conflict_name(self, name: bytes, number: int) -> bytes:
        return name + b" (conflict %d)" % number


@contextmanager
def opened_folder(
    directory: Path, namer: ChunkNamer, disk: Disk = DISK, *, tidies: bool = True
) -> Iterator[Folder]:
    """A folder on the disk as one side, in which all is at rest."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield Folder(
            descriptor,
            Ignored(()),
            namer,
            _Numbered(),
            SYSTEM,
            tidies=tidies,
            disk=disk,
        )
    finally:
        os.close(descriptor)


class Mirrored:
    """The folder `plain` of a volume, and *directory*, which is to be equal to it."""

    def __init__(self, device: Device, directory: Path) -> None:
        self.device = device
        self.directory = directory

    def add(self, *ignore: str) -> None:
        self.device.volume.mirrors.add(self.directory, PurePath("plain"), ignore)

    def facts(self) -> Mirror:
        [facts] = self.device.volume.mirrors.all()
        return facts

    # -- the volume --------------------------------------------------------------------------------

    def find(self, path: str) -> Inode | None:
        fs = self.device.volume.fs
        with fs.state.transaction() as tx:
            inode: Inode | None = fs.get(tx, ROOT_INO)
            for name in ["plain", *path.split("/")] if path else ["plain"]:
                inode = fs.lookup(tx, inode.ino, os.fsencode(name)) if inode is not None else None
            return inode

    def node(self, path: str) -> Inode:
        inode = self.find(path)
        assert inode is not None, f"the volume has no {path}"
        return inode

    def put(self, path: str, content: bytes, mode: int = 0o644) -> None:
        """Write a file of the volume, as a program would through a mount."""
        fs, (folder, _, name) = self.device.volume.fs, path.rpartition("/")
        with fs.state.transaction() as tx:
            parent, inode = self.node(folder), self.find(path)
            if inode is None:
                inode, handle = fs.create(tx, parent.ino, os.fsencode(name), mode, 0, 0, os.O_WRONLY)
            else:
                handle = fs.open(tx, inode.ino, os.O_WRONLY | os.O_TRUNC)
            fs.write(tx, inode, 0, content)
            fs.release(tx, handle)

    def make(self, path: str) -> None:
        fs, (folder, _, name) = self.device.volume.fs, path.rpartition("/")
        with fs.state.transaction() as tx:
            parent = fs.get(tx, ROOT_INO) if not path else self.node(folder)
            fs.make(tx, parent.ino, os.fsencode(name or "plain"), stat.S_IFDIR | 0o755, 0, 0)

    def delete(self, path: str) -> None:
        fs, (folder, _, name) = self.device.volume.fs, path.rpartition("/")
        with fs.state.transaction() as tx:
            fs.unlink(tx, self.node(folder).ino, os.fsencode(name))

    def names(self, path: str = "") -> set[str]:
        fs = self.device.volume.fs
        with fs.state.transaction() as tx:
            return {os.fsdecode(name) for _, name, _ in fs.names.list(tx, self.node(path).ino, 0, 1 << 20)}

    def content(self, path: str) -> bytes:
        fs = self.device.volume.fs
        while True:
            with fs.state.transaction() as tx:
                inode = self.node(path)
                data = fs.read(tx, inode, 0, inode.size)
            if isinstance(data, bytes):
                return data
            self.device.volume.fetcher.fetch(data.chunks)

    def is_here(self, path: str) -> bool:
        """Whether all bytes of a file of the volume are on this device's disk."""
        with self.device.volume.fs.state.transaction() as tx:
            return not whereabouts(tx, self.node(path).ino).absent

    def evict(self) -> None:
        """Bring all to the clouds, and forget what is here of it."""
        self.device.sync()
        self.device.volume.drop_cache()

    # -- both --------------------------------------------------------------------------------------

    def here(self, path: str = "") -> set[str]:
        """What the folder on the disk shows."""
        return {
            one.name
            for one in (self.directory / path).iterdir()
            if not one.name.startswith(".hybrisfs-mirror")
        }

    def tree(self) -> dict[str, tuple[int, bytes]]:
        """All that is on the disk: mode and content by path."""
        found = {}
        for path in sorted(self.directory.rglob("*")):
            name = str(path.relative_to(self.directory))
            status = path.lstat()
            if not name.startswith(".hybrisfs-mirror"):
                content = path.read_bytes() if stat.S_ISREG(status.st_mode) else b""
                found[name] = status.st_mode, os.fsencode(path.readlink()) if path.is_symlink() else content
        return found

    def volume_tree(self) -> dict[str, tuple[int, bytes]]:
        found: dict[str, tuple[int, bytes]] = {}
        waiting = [""]
        while waiting:
            folder = waiting.pop()
            for name in self.names(folder):
                path = f"{folder}/{name}" if folder else name
                inode = self.node(path)
                if inode.is_directory:
                    waiting.append(path)
                found[path] = inode.mode, inode.target or (self.content(path) if inode.is_file else b"")
        return found

    def equal(self) -> bool:
        """Whether both show the same, and the mirror is at rest."""
        try:
            return self.facts().state == "watching" and self.tree() == self.volume_tree()
        except (OSError, AssertionError):  # something changed while it was looked at
            return False

    def settle(self) -> None:
        until(self.equal, f"both to be equal: {self.facts()}")

    # -- parts of a mirror -------------------------------------------------------------------------

    def side(self, kind: type[S], root: bytes | None = None) -> S:
        """The folder of the volume as one side."""
        volume, root = self.device.volume, root or self.node("").id
        return kind(volume.fs, self, root, Ignored(()))

    def fetch(self, chunks: list[ChunkRef]) -> object:
        return self.device.volume.fetcher.fetch(chunks)

    def wait_for_room(self, length: int) -> bool:
        return self.device.volume.room.wait_for_room(length)

    def notify(self, changes: Sequence[Change]) -> None:
        """Nothing is mounted."""


class OneWorker:
    """What one worker of a mirror needs, where a test does something right before each look."""

    def __init__(self, mirrored: Mirrored) -> None:
        self._mirrored = mirrored
        self.before_looks: Callable[[], object] = lambda: None

    @contextmanager
    def running(self) -> Iterator[Worker]:
        """Let it work on the folder `plain`, which is made, until the end of the block."""
        mirrored, number = self._mirrored, "0" * 32
        mirrored.make("")
        write_marker(mirrored.directory, number, SYSTEM)
        record = mirrored.directory.with_name("record.db")
        settings = Settings(number, mirrored.directory, "plain", mirrored.node("").id)
        AgreedTable.create(record, settings).close()
        worker = Worker(AgreedTable.open(record), self, limited(QUICK))
        worker.start()
        try:
            yield worker
        finally:
            worker.stop()

    # -- for the worker ----------------------------------------------------------------------------

    def side(self, root: bytes, ignored: Ignored) -> VolumeSide:
        return self._mirrored.side(VolumeSide, root)

    @property
    def namer(self) -> ChunkNamer:
        return self._mirrored.device.volume.sealer

    def device_name(self) -> str:
        self.before_looks()
        return "this"

    def hindrance(self) -> str | None:
        return None

    def commit(self) -> None:
        self._mirrored.device.volume.committer.commit_now()

    def deletion_share(self) -> float:
        return 1.0
