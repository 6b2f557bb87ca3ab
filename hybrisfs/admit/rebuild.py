"""Rebuilding a volume's database from the keys, the log on the clouds, and the damaged one, as far as it can
be read.

The new database knows nothing but the volume's id and its members; all else comes with the log when the
volume is opened next. Until this device has its own log back, as far as the clouds and other devices have it,
it must sign nothing: a second update with the same predecessor would make a fork (Depot 4.3). The folder
`rebuilding` in the volume's state says so.

Files that no cloud has yet are written again, below a folder of their own, from the bytes in the old journal.
Chunks of these that are not there are named only: they come from where the log says that they are.

Everything is made in `rebuilding` first, then the old files are set aside and the new ones put in their
place:

killed                                  on disk                                 the next rebuild
while the new ones are made             the damaged volume, `rebuilding`        begins again
                                        without `complete`
while they change places                no `volume.db`, so that nothing can     goes on with that
                                        be opened; `complete`
before the log has come back            the new files, `rebuilding/complete`    is not needed: opening goes on
"""

from __future__ import annotations

import os
import shutil
import stat
import time
from collections.abc import Callable, Iterable
from contextlib import closing
from itertools import chain, count
from pathlib import Path, PurePosixPath
from typing import Final

from hybrisfs.admit.create import DATABASE_FILE, JOURNAL_FOLDER, KEYS_FILE
from hybrisfs.admit.damaged_database import DamagedDatabase, StagedFile
from hybrisfs.api.volumes import Rebuilt
from hybrisfs.chunk_namer import ChunkNamer
from hybrisfs.environment import SYSTEM, make_directory, sync_directory
from hybrisfs.home import Home
from hybrisfs.keys import VolumeKeys
from hybrisfs.members.member_table import MemberTable
from hybrisfs.members.members import Member
from hybrisfs.registers.node_id import ROOT_ID
from hybrisfs.registers.tree import attr_key
from hybrisfs.settings.config import VolumeConfig
from hybrisfs.sharing.sharing import REBUILDING_FOLDER
from hybrisfs.state.damaged import UnreadablePartError
from hybrisfs.state.database import Database, lock_exclusively
from hybrisfs.state.journal import Journal
from hybrisfs.state.schema import ROOT_INO
from hybrisfs.state.state import State, Transaction
from hybrisfs.tree.filesystem import FileSystem
from hybrisfs.tree.inodes import Inode

__all__ = ["Rebuilt", "rebuild_volume"]

_COMPLETE: Final = "complete"
_FOLDER_MODE: Final = stat.S_IFDIR | 0o700
_WITH_DATABASE: Final = (
    DATABASE_FILE,
    f"{DATABASE_FILE}-wal",
    f"{DATABASE_FILE}-shm",
    f"{DATABASE_FILE}-redo",
    JOURNAL_FOLDER,
)


def rebuild_volume(home: Home, name: str, step: Callable[[str, int, int], None]) -> Rebuilt:
    """Put a new database and journal in the place of damaged ones. The volume is closed.

    *step* gets the stage, how much of it is done and how much there is. Raises HybrisError, OSError.
    """
    config, state = VolumeConfig.load(home, name), home.volume_state(name)
    lock = lock_exclusively(state)
    try:
        keys = VolumeKeys.load(state / KEYS_FILE)
        report = Rebuilt("", [], [])
        new = state / REBUILDING_FOLDER
        if not ((new / _COMPLETE).exists() and (new / DATABASE_FILE).exists()):
            _make_again(state, config, keys, report, step)
        report.set_aside = str(_change_places(state))
    finally:
        os.close(lock)
    return report


def _make_again(
    state: Path,
    config: VolumeConfig,
    keys: VolumeKeys,
    report: Rebuilt,
    step: Callable[[str, int, int], None],
) -> None:
    folder = state / REBUILDING_FOLDER
    make_directory(folder, SYSTEM)
    _empty(folder)
    namer = ChunkNamer(keys.dedup)
    Database.create(folder / DATABASE_FILE, config.id)
    with closing(DamagedDatabase(state / DATABASE_FILE, state / JOURNAL_FOLDER, namer)) as old:
        database = Database(folder / DATABASE_FILE, SYSTEM)
        try:
            members = {one.device: one for one in old.members()}
            members.setdefault(keys.device.device_id, Member(keys.device.public, ""))
            MemberTable(database.rows).introduce(members.values())
            database.rows.set_meta("inviter", old.inviter())
            journal = Journal(folder / JOURNAL_FOLDER, budget=config.cache_bytes, environment=SYSTEM)
            volume = State(database, journal, namer, keys.device)
            with volume.transaction() as tx:
                fs = FileSystem(tx, volume, owner=(os.getuid(), os.getgid()))
            _recover(old, fs, report, step)
            journal.sync()
            with volume.transaction() as tx:
                fs.commit(tx)
            journal.close()
        finally:
            database.close()
    (folder / _COMPLETE).touch(mode=0o600)
    sync_directory(folder, SYSTEM)


def _empty(folder: Path) -> None:
    """The folder itself stays: it says that nothing must be signed."""
    (folder / _COMPLETE).unlink(missing_ok=True)
    sync_directory(folder, SYSTEM)
    for path in folder.iterdir():
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink()


def _recover(
    old: DamagedDatabase, fs: FileSystem, report: Rebuilt, step: Callable[[str, int, int], None]
) -> None:
    files = list(old.staged_files())
    target = _RecoveredFiles(fs, PurePosixPath(time.strftime("recovered %Y-%m-%d %H.%M.%S")))
    for done, file in enumerate(files):
        step("files", done, len(files))
        try:
            rest = old.rest(file)
        except UnreadablePartError:
            report.lost.append(str(file.path))
            continue
        report.recovered.append(str(target.add(file, rest, old.pieces(file))))
    step("files", len(files), len(files))
    fs.changes.drop(attr_key(ROOT_ID))  # the log knows better


def _change_places(state: Path) -> Path:
    """Set the old files aside and put the new ones in their place; where the old ones are.

    The old database goes first and the new one comes last: in between there is none that could be opened.
    """
    aside = _free_folder(state)
    make_directory(aside, SYSTEM)
    new = state / REBUILDING_FOLDER
    for name in _WITH_DATABASE:
        if (state / name).exists() and (name != JOURNAL_FOLDER or (new / name).exists()):
            (state / name).rename(aside / name)
            sync_directory(state, SYSTEM)
    if (new / JOURNAL_FOLDER).exists():
        (new / JOURNAL_FOLDER).rename(state / JOURNAL_FOLDER)
        sync_directory(state, SYSTEM)
    (new / DATABASE_FILE).rename(state / DATABASE_FILE)
    for folder in (new, aside, state):
        sync_directory(folder, SYSTEM)
    return aside


def _free_folder(state: Path) -> Path:
    """Where the old files go: no folder that has those of an earlier rebuild."""
    first = state / time.strftime("damaged-%Y%m%dT%H%M%S")
    numbered = (first.with_name(f"{first.name}-{number}") for number in count(2))
    return next(path for path in chain([first], numbered) if not path.exists())


class _RecoveredFiles:
    """Files that were found in the remains, put into a folder of the new volume.

    Writes into *folder*, below the root of *fs*; it is made with the first file. Nobody else uses *fs*.
    """

    def __init__(self, fs: FileSystem, folder: PurePosixPath) -> None:
        self._fs = fs
        self._folder = folder
        self._owner = os.getuid(), os.getgid()

    def add(self, file: StagedFile, rest: bytes, pieces: Iterable[tuple[int, bytes]]) -> PurePosixPath:
        """A file at its path below the folder, or beside it when the name is taken; where it is. What no
        piece (offset, bytes) covers is as in the content *rest*. Raises OSError."""
        path, size = file.path, file.size
        with self._fs.state.transaction() as tx:
            parent = self._fs.get(tx, ROOT_INO)
            for name in (self._folder / path).parts[:-1]:
                parent = self._directory(tx, parent, os.fsencode(name))
            name = path.name
            while self._fs.lookup(tx, parent.ino, os.fsencode(name)) is not None:
                name = f"{name}~"
            inode, handle = self._fs.create(
                tx, parent.ino, os.fsencode(name), file.mode, *self._owner, os.O_WRONLY
            )
            self._fs.received.show(tx, inode, rest)
            self._fs.truncate(tx, inode, size)
            for offset, data in pieces:
                self._fs.write(tx, inode, offset, data[: max(0, size - offset)])
            self._fs.release(tx, handle)
        return self._folder / path.parent / name

    def _directory(self, tx: Transaction, parent: Inode, name: bytes) -> Inode:
        found = self._fs.lookup(tx, parent.ino, name)
        while found is not None and not found.is_directory:
            name += b"~"
            found = self._fs.lookup(tx, parent.ino, name)
        return found or self._fs.make(tx, parent.ino, name, _FOLDER_MODE, *self._owner)
