"""Several devices of one volume, driven by hand: tests say what is signed, and handed to whom."""

from __future__ import annotations

import os
import shutil
import stat
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from hybrisfs.environment import SYSTEM, Environment
from hybrisfs.members.lineage import came_by, let_in
from hybrisfs.members.members import Member
from hybrisfs.registers.values import Value
from hybrisfs.state.chunk_states import ELSEWHERE
from hybrisfs.state.schema import ROOT_INO
from hybrisfs.tree.content import Missing
from hybrisfs.tree.inodes import Inode
from sync import DeviceKey, Write
from tests.tree.rig import OWNER, SMALL_SEGMENT, VOLUME, FakeClouds, Rig
from tests.tree.unlocked import unlocked

__all__ = ["LARGEST", "NAMES", "Device", "Entry", "Fleet", "NotHereError", "member_of"]

NAMES: Final = ("ada", "bob", "cyd", "dan", "eve", "fay", "gus", "hal")


@dataclass(frozen=True, slots=True)
class Entry:
    """What a program sees under one path."""

    kind: int
    content: bytes
    nlink: int


LARGEST: Final = 1 << 26
"""Bytes of a file that is read at once."""


class NotHereError(Exception):
    """The bytes of a chunk cannot be had yet: nobody has told where it is."""


def name_of(number: int) -> str:
    """What the device with this number is called."""
    return NAMES[number] if number < len(NAMES) else f"device {number}"


def member_of(number: int) -> Member:
    """The device of that number, as others know it."""
    return Member(_key(number).public, name_of(number))


def _key(number: int) -> DeviceKey:
    return DeviceKey.from_seed(bytes([number + 1]) * 32)


class Device:
    """One device: paths instead of inodes."""

    def __init__(
        self,
        number: int,
        clouds: FakeClouds,
        plaintexts: dict[bytes, bytes],
        environment: Environment = SYSTEM,
        volume: bytes = VOLUME,
        segment_size: int = SMALL_SEGMENT,
    ) -> None:
        self.key = _key(number)
        self.name = name_of(number)
        self.rig = Rig(
            clouds=clouds,
            plaintexts=plaintexts,
            device=self.key,
            environment=environment,
            volume=volume,
            segment_size=segment_size,
        )
        self.holds_uploads = False
        """Whether chunks wait here, while updates reach those who are linked."""

    @property
    def member(self) -> Member:
        return Member(self.key.public, self.name)

    # -- programs --------------------------------------------------------------------------------

    def at(self, path: str) -> Inode:
        """The node at a path; "" is the root."""
        inode = self.rig.fs.get(self.rig.tx, ROOT_INO)
        for name in os.fsencode(path).split(b"/") if path else ():
            inode = self.rig.find(name, inode.ino)
        return inode

    def where(self, path: str) -> tuple[int, bytes]:
        """The inode of the directory, and the name in it."""
        folder, _, name = path.rpartition("/")
        return self.at(folder).ino, os.fsencode(name)

    def write(self, path: str, content: bytes) -> None:
        """Replace the content of a file, made when there is none."""
        fs = self.rig.fs
        parent, name = self.where(path)
        inode = fs.lookup(unlocked(fs), parent, name)
        if inode is None:
            self.rig.make(name, content, parent)
            return
        self.content(inode)
        handle = fs.open(unlocked(fs), inode.ino, os.O_WRONLY | os.O_TRUNC)
        fs.write(unlocked(fs), inode, 0, content)
        fs.release(unlocked(fs), handle)

    def mkdir(self, path: str) -> None:
        parent, name = self.where(path)
        self.rig.fs.make(self.rig.tx, parent, name, stat.S_IFDIR | 0o755, *OWNER)

    def move(self, path: str, to: str) -> None:
        self.rig.fs.rename(self.rig.tx, *self.where(path), *self.where(to), 0)

    def remove(self, path: str) -> None:
        parent, name = self.where(path)
        if self.at(path).is_directory:
            self.rig.fs.rmdir(self.rig.tx, parent, name)
        else:
            self.rig.fs.unlink(self.rig.tx, parent, name)

    def link(self, path: str, to: str) -> None:
        self.rig.fs.link(self.rig.tx, self.at(path).ino, *self.where(to))

    def read(self, path: str) -> bytes:
        return self.content(self.at(path))

    def content(self, inode: Inode) -> bytes:
        """All bytes of a file, its list of chunks brought first. Raises NotHereError, also for a file that is
        too large to be read at once."""
        fs = self.rig.fs
        if not inode.is_file:
            return inode.target or b""
        if inode.size > LARGEST:
            raise NotHereError
        while (lacking := fs.received.lacking(unlocked(fs), inode)) is not None:
            self._bring(lacking)
        while isinstance(found := fs.read(unlocked(fs), inode, 0, inode.size), Missing):
            self._bring(found)
        return found

    def _bring(self, missing: Missing) -> None:
        if any(ref.pack == ELSEWHERE for ref in missing.chunks):
            raise NotHereError
        self.rig.fetcher.fetch(missing.chunks)

    def walk(self) -> dict[str, Inode]:
        """Everything there is, by path."""
        found: dict[str, Inode] = {}
        waiting = [("", ROOT_INO)]
        while waiting:
            path, ino = waiting.pop()
            for _, name, inode in self.rig.fs.names.list(self.rig.tx, ino, 0, 10_000):
                where = f"{path}/{os.fsdecode(name)}".lstrip("/")
                assert where not in found
                found[where] = inode
                if inode.is_directory:
                    waiting.append((where, inode.ino))
        return found

    def tree(self) -> dict[str, Entry]:
        """Everything there is, by path."""
        return {
            path: Entry(stat.S_IFMT(inode.mode), self.content(inode), inode.nlink)
            for path, inode in self.walk().items()
        }

    def names(self) -> list[str]:
        return sorted(self.walk())

    # -- updates ---------------------------------------------------------------------------------

    def sign(self, *, everything: bool = True) -> None:
        """Sign what has changed, and bring its chunks to the clouds. Unless *everything* is wanted, files
        that programs have open may be held back, and chunks for which nothing waits."""
        while self.rig.publish(everything=everything):
            pass
        if not self.holds_uploads:
            self.rig.pack(deferred=everything)

    def log(self) -> list[bytes]:
        """All accepted updates but for bare ones, causes first."""
        rows = self.rig.db.rows.execute("SELECT bytes FROM log WHERE bytes IS NOT NULL ORDER BY number")
        return [row[0] for row in rows]

    def bare(self) -> set[bytes]:
        """The hashes of updates that this device knows through a checkpoint only."""
        rows = self.rig.db.rows.execute("SELECT hash FROM log WHERE bytes IS NULL")
        return {row[0] for row in rows}

    def knows(self) -> set[bytes]:
        """The hashes of all accepted updates."""
        return {row[0] for row in self.rig.db.rows.execute("SELECT hash FROM log")}

    def receive(self, updates: Sequence[bytes]) -> bool:
        return self.rig.sharing.receiver.receive(updates)

    def registers(self) -> dict[bytes, list[Value]]:
        """The signed values of all registers, of kinds that this program does not know, too; in the order of
        their stamps."""
        found = [self.rig.tx.registers.with_prefix(bytes((letter,))) for letter in range(256)]
        return {
            key: sorted(values, key=lambda one: one.stamp) for some in found for key, values in some.items()
        }

    # -- the disk --------------------------------------------------------------------------------

    def saved(self) -> Path:
        """A backup of the disk as it is now."""
        self.rig.commit()
        place = Path(tempfile.mkdtemp(prefix="hybrisfs-backup-"))
        shutil.copytree(self.rig.directory, place, dirs_exist_ok=True, ignore=shutil.ignore_patterns("*-shm"))
        return place

    def restore(self, backup: Path) -> None:
        """Go on from a backup, which stays."""
        place = Path(tempfile.mkdtemp(prefix="hybrisfs-rig-"))
        shutil.copytree(backup, place, dirs_exist_ok=True)
        rig = self.rig
        rig.abandon()
        self.rig = Rig(place, rig.clouds, plaintexts=rig.plaintexts, device=self.key, around=rig.around)


class Fleet:
    """Devices that know each other, and *guests* that are driven by others; `clouds` holds their packs.
    *environment*: of each device, by its number. *segment_size*: bytes of a segment of their journals."""

    def __init__(
        self,
        count: int,
        guests: Sequence[Member] = (),
        environment: Callable[[int], Environment] = lambda _: SYSTEM,
        volume: bytes = VOLUME,
        segment_size: int = SMALL_SEGMENT,
    ) -> None:
        self.clouds = FakeClouds()
        plaintexts: dict[bytes, bytes] = {}
        self.devices = [
            Device(number, self.clouds, plaintexts, environment(number), volume, segment_size)
            for number in range(count)
        ]
        for device in self.devices:
            with device.rig.fs.state.transaction():
                device.rig.tx.members.admit([*(one.member for one in self.devices), *guests])
                device.rig.updates.set_members(device.rig.tx.members.keys())
            device.rig.commit()

    def __getitem__(self, number: int) -> Device:
        return self.devices[number]

    def tell_who_came_by_whom(self, let_in_by: Mapping[int, int] | None = None) -> None:
        """Devices say by which one they came, one after the other, and that one says so, too: the keys and
        values of *let_in_by*, by default all others by the first. Those that are not named hear nothing."""
        if let_in_by is None:
            let_in_by = dict.fromkeys(range(1, len(self.devices)), 0)
        named = dict.fromkeys((*let_in_by.values(), *let_in_by))

        def sign(number: int, write: Write) -> None:
            device = self[number]
            with device.rig.fs.state.transaction():
                device.rig.sharing.signer.sign(device.rig.tx, [write], 0)
                device.rig.tx.members.words_changed()
            for other in named:
                self[other].receive(device.log())

        for number in named.keys() - let_in_by.keys():
            sign(number, came_by(self[number].member.device, None))
        for number, inviter in let_in_by.items():
            ids = self[number].member.device, self[inviter].member.device
            sign(inviter, let_in(*ids))
            sign(number, came_by(*ids))
        for number in named:  # what others have heard of is never forgotten
            self[number].rig.commit()

    def sign(self) -> None:
        for device in self.devices:
            device.sign()

    def send(self, sender: int, receiver: int) -> None:
        """Hand all that the one has signed or accepted to the other, packs first."""
        self.devices[sender].sign()
        self.devices[receiver].receive(self.devices[sender].log())

    def meet(self) -> None:
        """All devices sign, and hear of all that there is."""
        for device in self.devices:
            device.sign()
        logs = [device.log() for device in self.devices]
        for device in self.devices:
            for log in logs:
                device.receive(log)

    def discard(self) -> None:
        for device in self.devices:
            device.rig.abandon()
