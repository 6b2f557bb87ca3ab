"""The mirrors of a volume: which there are, their threads, and importing folders.

state/volumes/NAME/mirrors/ID.db is the record of one (`mirror.agreed`); it is a mirror as long as that is
there.
"""

from __future__ import annotations

import contextlib
import logging
import os
import threading
from collections.abc import Iterable, Sequence
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Final

import msgspec

from hybrisfs.api.mirrors import Imported, Mirror
from hybrisfs.chunk_namer import ChunkNamer
from hybrisfs.environment import make_directory, sync_directory
from hybrisfs.errors import HybrisError, UsageError
from hybrisfs.mirror.agreed import AgreedTable, Settings
from hybrisfs.mirror.ignore import Ignored, remove_marker, write_marker
from hybrisfs.parts import Ground, Reading
from hybrisfs.state.chunk_states import ChunkRef
from hybrisfs.state.schema import ROOT_INO
from hybrisfs.state.state import Transaction
from hybrisfs.tree.inodes import Inode
from hybrisfs.tree.unseen import Change
from hybrisfs.volume.mounting import Mounting

if TYPE_CHECKING:  # few volumes have mirrors, and what these need makes the start of all take longer
    from hybrisfs.mirror.importer import Step
    from hybrisfs.mirror.volume_side import VolumeSide
    from hybrisfs.mirror.worker import Worker

__all__ = ["Mirrors"]

log = logging.getLogger(__name__)

_FOLDER: Final = "mirrors"


class Mirrors:
    """All mirrors of one volume. Thread-safe. Each has a thread, from `start` or `add` on."""

    def __init__(self, ground: Ground, reading: Reading, mounting: Mounting) -> None:
        self._ground = ground
        self._environment = ground.fs.environment
        self._sharing = ground.sharing
        self._mounting = mounting
        self._around = _Surroundings(ground, reading, mounting)
        self._folder = ground.folder / _FOLDER
        ground.fs.shown.listen(self._changed)
        self._lock = threading.Lock()
        self._workers: dict[str, Worker] = {}
        self._broken: dict[str, str] = {}

    def start(self) -> None:
        """Go on with the mirrors that there are."""
        for path in sorted(self._folder.glob("*.db")):
            try:
                self._begin(AgreedTable.open(path))
            except HybrisError as error:
                log.error("volume %s: %s", self._ground.name, error)
                self._broken[path.stem] = str(error)

    def stop(self) -> None:
        """End all threads; the mirrors stay."""
        with self._lock:
            workers, self._workers = self._workers, {}
        for worker in workers.values():
            self._end(worker)

    def _changed(self, changes: Iterable[Change]) -> None:
        workers = list(self._workers.values())
        for change in changes:
            for worker in workers:
                worker.noticed(change.ino)

    def _begin(self, table: AgreedTable) -> None:
        from hybrisfs.mirror.worker import Worker

        worker = Worker(table, self._around, self._environment)
        with self._lock:
            self._workers[table.settings.id] = worker
        self._ground.fs.changes.marked.listen(worker.noticed)
        worker.start()

    def _end(self, worker: Worker) -> None:
        self._ground.fs.changes.marked.ignore(worker.noticed)
        worker.stop()

    # -- what people ask -------------------------------------------------------------------------

    def all(self) -> list[Mirror]:
        """What is known of each."""
        found = [_described(worker) for worker in list(self._workers.values())]
        return sorted(found, key=lambda one: one.directory)

    @property
    def broken(self) -> list[str]:
        """What keeps mirrors from being used at all."""
        return list(self._broken.values())

    @property
    def directories(self) -> list[Path]:
        """The folders on the disk that are mirrored."""
        return [worker.settings.directory for worker in list(self._workers.values())]

    def add(self, directory: Path, at: PurePath, ignore: Sequence[str]) -> Mirror:
        """Keep *directory*, which must overlap with nothing, equal to the folder *at* of the volume. The
        folder is made if there is none. Raises HybrisError, OSError."""
        Ignored(ignore)
        mirror = self._environment.random_bytes(16).hex()
        with self._ground.fs.state.transaction() as tx:
            self._require_apart(at)
            root = self._make(tx, at)
        self._ground.committer.commit_now()
        make_directory(self._folder, self._environment)
        write_marker(directory, mirror, self._environment)
        made = self._folder / f"{mirror}.new"
        AgreedTable.create(made, Settings(mirror, directory, str(at), root.id, tuple(ignore))).close()
        made.rename(self._folder / f"{mirror}.db")
        sync_directory(self._folder, self._environment)
        self._begin(AgreedTable.open(self._folder / f"{mirror}.db"))
        log.info("volume %s: %s is a mirror of the folder %s", self._ground.name, directory, at)
        return _described(self._workers[mirror])

    def _require_apart(self, at: PurePath) -> None:
        """Raise UsageError when another mirror is of that folder of the volume, or one above or below it."""
        for worker in self._workers.values():
            other = PurePath(worker.settings.at)
            if at == other or at in other.parents or other in at.parents:
                raise UsageError(
                    f"the folder {at} of the volume overlaps with the mirror of {worker.settings.directory}"
                )

    def _make(self, tx: Transaction, at: PurePath) -> Inode:
        """A folder of the volume in which this device may change something, made if there is none."""
        fs, may = self._ground.fs, self._sharing.shared_folders
        inode = fs.get(tx, ROOT_INO)
        for part in at.parts:
            name = os.fsencode(part)
            found = fs.lookup(tx, inode.ino, name)
            if found is None:
                may.require_entry(tx, inode)
                found = fs.make(tx, inode.ino, name, 0o40755, os.getuid(), os.getgid())
                self._mounting.notify([Change(inode.ino, name), Change(inode.ino)])
            if not found.is_directory:
                raise UsageError(f"{at} is not a folder of the volume")
            inode = found
        may.require_entry(tx, inode)
        return inode

    def remove(self, directory: Path) -> Mirror:
        """End a mirror. Nothing is removed on either side."""
        worker = self._of(directory)
        facts = _described(worker)
        self._end(worker)
        mirror = worker.settings.id
        with self._lock:
            self._workers.pop(mirror, None)
        for path in self._folder.glob(f"{mirror}.db*"):
            path.unlink()
        sync_directory(self._folder, self._environment)
        with contextlib.suppress(OSError):  # its disk may be away, or read-only
            remove_marker(directory, mirror)
        self._around.side(worker.settings.root, Ignored(())).forget_generation(mirror)
        return facts

    def decide(self, directory: Path, *, accept: bool) -> Mirror:
        """Let a mass deletion happen, or put back what was deleted. Raises UsageError when none waits."""
        worker = self._of(directory)
        facts = _described(worker)
        if not facts.held_back:
            raise UsageError(f"no deletion in the mirror of {directory} waits for anybody")
        worker.decide(accept=accept)
        return facts

    def _of(self, directory: Path) -> Worker:
        for worker in list(self._workers.values()):
            if worker.settings.directory == directory:
                return worker
        raise UsageError(f"{directory} is not mirrored", "", "hybrisfs mirror list shows what is.")

    def bring_in(
        self, directory: Path, into: PurePath, step: Step, *, dry_run: bool, replace: bool
    ) -> Imported:
        """Copy *directory* into the folder *into* of the volume. See `mirror.importer`."""
        from hybrisfs.mirror.folder import Care, Folder
        from hybrisfs.mirror.importer import Importer

        source = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            around, ignored = self._around, Ignored(())
            with self._ground.fs.state.transaction() as tx:
                root = self._find(tx, into) if dry_run else self._make(tx, into).id
            folder = Folder(
                source,
                ignored,
                around.namer,
                Care(),
                self._environment,
                tidies=False,
            )
            target = around.side(root, ignored)
            committer = self._ground.committer
            report = Importer(folder, target, committer, step, dry_run=dry_run, replace=replace).run()
        finally:
            os.close(source)
        told = {"name": self._ground.name, "into": str(into), "dry_run": dry_run, **report.as_dict()}
        return msgspec.convert(told, Imported)

    def _find(self, tx: Transaction, path: PurePath) -> bytes:
        """The id of the node at a path; of none, when there is none."""
        inode = self._ground.fs.locate(tx, map(os.fsencode, path.parts))
        return inode.id if inode is not None else b"\xff"


class _Surroundings:
    """What mirrors see of the volume; see `worker.Surroundings` and `volume_side.Host`."""

    def __init__(
        self,
        ground: Ground,
        reading: Reading,
        mounting: Mounting,
    ) -> None:
        self._ground = ground
        self._sharing = ground.sharing
        self._reading = reading
        self._mounting = mounting

    def side(self, root: bytes, ignored: Ignored) -> VolumeSide:
        from hybrisfs.mirror.volume_side import VolumeSide

        ground = self._ground
        return VolumeSide(ground.fs, self, root, ignored)

    @property
    def namer(self) -> ChunkNamer:
        return self._ground.sealer

    def notify(self, changes: Sequence[Change]) -> None:
        self._mounting.notify(changes)

    def device_name(self) -> str:
        return self._sharing.membership.own_name

    def hindrance(self) -> str | None:
        awaited_log = self._sharing.awaits_own_log
        return "the volume was rebuilt, and waits for its log from the clouds" if awaited_log else None

    def commit(self) -> None:
        self._ground.committer.commit_now()

    def deletion_share(self) -> float:
        return self._ground.config.deletion_share

    def fetch(self, chunks: list[ChunkRef]) -> object:
        return self._reading.fetcher.fetch(chunks)

    def wait_for_room(self, length: int) -> bool:
        return self._reading.room.wait_for_room(length)


def _described(worker: Worker) -> Mirror:
    return msgspec.convert(worker.facts(), Mirror)
