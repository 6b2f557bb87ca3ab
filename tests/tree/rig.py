"""A file system with its pipeline, driven by hand: no threads, no network, clouds in a dictionary.

`Rig` is one volume's life on one disk; `reopen` is a clean restart, `crashed` what SIGKILL leaves and
`powerless` what a power cut leaves.
"""

from __future__ import annotations

import os
import shutil
import stat
import tempfile
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import Executor, Future
from contextlib import nullcontext
from functools import cache
from pathlib import Path
from typing import Any, Final

from msgspec.structs import replace

from hybrisfs.chunk_namer import ChunkNamer
from hybrisfs.dispersal.erasure import fragment_length, join
from hybrisfs.dispersal.errors import ChunkUnavailable, CloudsUnavailable, IntegrityError
from hybrisfs.dispersal.pack import ChunkLocation, EncodedPack, Redundancy
from hybrisfs.dispersal.seal import Sealer
from hybrisfs.dispersal.share import TableSealer
from hybrisfs.environment import SYSTEM, Environment
from hybrisfs.exchange.peering import Links
from hybrisfs.keyring import KeyRing
from hybrisfs.keys import EpochKeys, SharedKeys, VolumeKeys
from hybrisfs.local_parts import open_local_parts
from hybrisfs.parts import open_publishing, open_reading
from hybrisfs.read.fetch import FetchLimits
from hybrisfs.settings.config import DEFAULT_DELETION_SHARE
from hybrisfs.sharing.sharing import AwaitedLog
from hybrisfs.state.database import Database
from hybrisfs.state.journal import RESERVE, Journal, JournalLimits
from hybrisfs.state.schema import ROOT_INO
from hybrisfs.topic import Topic
from hybrisfs.tree.content import Missing
from hybrisfs.tree.inodes import Inode
from hybrisfs.tree.unseen import Change
from hybrisfs.write.chunk import Chunker
from hybrisfs.write.cut import FileSnapshot
from hybrisfs.write.layout import ChunkLimits
from hybrisfs.write.pack import PackMaker
from sync import FIRST_EPOCH, DeviceKey, OneKey
from sync.codec import Buffer
from tests.state.disk import ForgetfulDisk
from tests.surroundings import Surroundings, also
from tests.sync.support import VOLUME

__all__ = [
    "DEVICE",
    "SEALER",
    "SEGMENT_KEYS",
    "SMALL_BLOCKS",
    "SMALL_SEGMENT",
    "TABLES",
    "VOLUME",
    "AskDevices",
    "AskedLinks",
    "FakeClouds",
    "InlineExecutor",
    "Rig",
    "small_chunks",
]

DEVICE: Final = DeviceKey.from_seed(b"\x07" * 32)
OWNER = (os.getuid(), os.getgid()) if os.getuid() else (1000, 1000)
"""Of what programs make: an ordinary user can use it in a mount, and root may everything."""
SEALER: Final = Sealer(OneKey(b"d" * 32), b"i" * 32)
TABLES: Final = TableSealer(OneKey(b"t" * 32))
_SECRETS: Final = SharedKeys(b"i" * 32, (EpochKeys(FIRST_EPOCH, 0, b"d" * 32, b"m" * 32),))
SEGMENT_KEYS: Final = OneKey(_SECRETS.epochs[0].segments)
_BUDGET: Final = 64 << 20
SMALL_SEGMENT: Final = 64 << 10
"""Bytes of a segment of the journal, of which tests have many with little data."""


def small_chunks(size: int = 4096) -> ChunkLimits:
    """Chunks of *size* bytes, and content lists that need pages soon: limits are met with little data."""
    return ChunkLimits(
        size, block=max(size // 256, 1), small=size // 32, parts=8, direct_runs=4, runs_per_page=3
    )


SMALL_BLOCKS: Final = JournalLimits(block=8)
"""A disk that gives and takes back a few bytes at a time."""


@cache
def _new_database(volume: bytes) -> bytes:
    with tempfile.TemporaryDirectory(prefix="hybrisfs-rig-") as directory:
        path = Path(directory) / "volume.db"
        Database.create(path, volume)
        return path.read_bytes()


def _nothing() -> None:
    """Nothing is left to be done."""


def _nothing_else(_: object) -> None:
    """As usual."""


class InlineExecutor(Executor):
    """Runs what is submitted at once, in the caller's thread."""

    def submit(self, function: Callable[..., object], /, *arguments: object, **named: object) -> Future[Any]:
        future: Future[Any] = Future()
        future.set_result(function(*arguments, **named))
        return future


class FakeClouds:
    """All clouds of a volume: packs by id. Nothing is lost, but they may be `down`."""

    def __init__(self, clouds: int = 3) -> None:
        self.packs: dict[bytes, EncodedPack] = {}
        self.down = False
        self.puts = 0
        self.gets: list[list[bytes]] = []
        self.before_get: Callable[[Sequence[ChunkLocation]], object] = _nothing_else
        """Called before they look for chunks: it may wait, fail, or take them `down`."""
        self.before_put: Callable[[EncodedPack], object] = _nothing_else
        """Called before they take a pack, likewise, ..."""
        self.after_put: Callable[[EncodedPack], object] = _nothing_else
        """... and when they have it."""
        self.opened = Topic[[]]()
        self.numbers = range(clouds)

    def find_held(self, pack: EncodedPack) -> dict[int, int]:
        return {}

    def put_pack(
        self, pack: EncodedPack, held: dict[int, int] | None = None, among: Collection[int] | None = None
    ) -> tuple[int, ...]:
        self.before_put(pack)
        if self.down:
            raise CloudsUnavailable("pack", {})
        self.puts += 1
        self.packs[pack.pack_id] = pack
        self.after_put(pack)
        return tuple(range(pack.n))

    def get_chunks(self, locations: Sequence[ChunkLocation]) -> list[bytes]:
        self.before_get(locations)
        self.gets.append([location.chunk_id for location in locations])
        if self.down:
            raise ChunkUnavailable("chunk", {})
        try:
            return [self.open(location) for location in locations]
        except (KeyError, IntegrityError, ValueError) as error:
            raise ChunkUnavailable("chunk", {}) from error

    def can_upload(self) -> bool:
        return not self.down

    def copies(self) -> int:
        return 1

    def find_shares(self, pack: bytes, n: int) -> tuple[int, ...]:
        """The clouds that have the shares of a pack of *n*; none when it is not there."""
        return tuple(range(n)) if pack in self.packs and not self.down else ()

    def open(self, at: ChunkLocation) -> bytes:
        """The bytes of a chunk, whatever the weather. Raises KeyError, ValueError and IntegrityError when it
        is not there: share i of a pack is on cloud i."""
        pack = self.packs[at.pack_id]
        length = fragment_length(at.k, at.sealed_length)
        found = [i for i in range(min(at.n, pack.n)) if at.placement[i] == i][: at.k]
        if (at.k, len(found)) != (pack.k, at.k):
            raise KeyError("too few shares are where they are looked for")
        fragments = {i: pack.shares[i][at.offset : at.offset + length] for i in found}
        return SEALER.open(at.chunk_id, join(at.k, at.n, fragments, at.sealed_length), at.length)


class _Namer(ChunkNamer):
    """Keeps what it names for those who check what was published."""

    def __init__(self, plaintexts: dict[bytes, bytes]) -> None:
        super().__init__(_SECRETS.dedup)
        self._plaintexts = plaintexts
        self.before: Callable[[], object] = _nothing
        """Called before a chunk gets its name."""

    def chunk_id(self, plaintext: Buffer) -> bytes:
        self.before()
        identity = super().chunk_id(plaintext)
        self._plaintexts[identity] = bytes(plaintext)
        return identity


class _Chunker(Chunker):
    """Lets a test do something while files are cut into chunks."""

    before: Callable[[FileSnapshot], object] = staticmethod(_nothing_else)
    """Called before a file is cut into chunks, ..."""
    after: Callable[[FileSnapshot], object] = staticmethod(_nothing_else)
    """... and when it is."""

    def chunk(self, snapshot: FileSnapshot) -> bytes:
        self.before(snapshot)
        value = super().chunk(snapshot)
        self.after(snapshot)
        return value

    def chunk_group(self, group: Sequence[FileSnapshot]) -> list[bytes]:
        try:
            for snapshot in group:
                self.before(snapshot)
        except ChunkUnavailable as error:  # then its group is cut one by one
            raise OSError from error
        values = super().chunk_group(group)
        for snapshot in group:
            self.after(snapshot)
        return values


class _Journal(Journal):
    """A journal on a disk that a test may fill and break."""

    free: int | None = None
    """Bytes that the disk can take beyond the reserve; None: as it is."""
    before_read: Callable[[int], object] = staticmethod(_nothing_else)
    """Called before so many bytes are read."""

    def free_bytes(self, reserve: int = RESERVE) -> int:
        return super().free_bytes(reserve) if self.free is None else self.free

    def read(self, segment: int, position: int, length: int) -> bytes | None:
        self.before_read(length)
        return super().read(segment, position, length)


class _Database(Database):
    """Tells a test of its commits."""

    before_commit: Callable[[], object] = staticmethod(_nothing)
    after_commit: Callable[[], object] = staticmethod(_nothing)
    after_durable: Callable[[], object] = staticmethod(_nothing)
    """Called when what has been committed is safe from a power cut."""

    def commit(self) -> None:
        self.before_commit()
        super().commit()
        self.after_commit()

    def make_durable(self) -> None:
        super().make_durable()
        self.after_durable()


AskDevices = Callable[[Sequence[bytes], float], Sequence[bytes | None]]


def _no_device_has_any(identities: Sequence[bytes], _: float) -> Sequence[bytes | None]:
    return [None] * len(identities)


class AskedLinks(Links):
    """Links to devices that answer as a test says."""

    def __init__(self) -> None:
        super().__init__()
        self.ask: AskDevices = _no_device_has_any

    def fetch_chunks(self, identities: Sequence[bytes], patience: float) -> Sequence[bytes | None]:
        return self.ask(identities, patience)


class Rig:
    """One volume in *directory*, open. Its parts are public: tests call them as the daemon's threads do.

    `tx` is its open transaction, without the lock: it has no threads.

    It takes from its surroundings what *environment* says; tests may change that by `around`, which restarts
    keep.
    """

    def __init__(
        self,
        directory: Path | None = None,
        clouds: FakeClouds | None = None,
        *,
        budget: int = _BUDGET,
        segment_size: int = SMALL_SEGMENT,
        environment: Environment = SYSTEM,
        around: Surroundings | None = None,
        plaintexts: dict[bytes, bytes] | None = None,
        device: DeviceKey = DEVICE,
        volume: bytes = VOLUME,
        sealer: Sealer = SEALER,
    ) -> None:
        self.directory = directory or Path(tempfile.mkdtemp(prefix="hybrisfs-rig-"))
        self.directory.mkdir(exist_ok=True)
        self.clouds = clouds or FakeClouds()
        self.plaintexts: dict[bytes, bytes] = {} if plaintexts is None else plaintexts
        self._options: dict[str, Any] = {
            "budget": budget,
            "segment_size": segment_size,
            "device": device,
        }
        database = self.directory / "volume.db"
        if not database.exists():
            database.write_bytes(_new_database(volume))
        self.around = around or Surroundings(environment)
        environment = self.around.environment
        small = replace(environment.limits.of(JournalLimits), segment_size=segment_size)
        at_once = replace(environment.limits.of(FetchLimits), runs_ahead=0)  # nothing in the background
        self.environment = environment = also(environment, small, at_once)
        self.db = _Database(database, environment)
        self.journal = _Journal(self.directory / "journal", environment, budget=budget)
        self.namer = _Namer(self.plaintexts)
        self.ring = KeyRing(VolumeKeys(_SECRETS, device), environment=environment)
        awaited_log = AwaitedLog(self.directory, environment)
        self.local = local = open_local_parts(
            self.db,
            self.journal,
            self.namer,
            self.ring,
            OWNER,
            awaited_log,
            DEFAULT_DELETION_SHARE,
            lambda _: nullcontext(),
        )
        self.fs, self.signals, self.state = local.fs, local.signals, local.fs.state
        self.sharing, self.committer = local.sharing, local.committer
        with self.state.transaction() as self.tx:
            self.updates = self.tx.updates
            self.registers = self.tx.registers
            self.members = self.tx.members
        self.shown: list[Change] = []
        self.fs.shown.listen(self.shown.extend)
        self.links = AskedLinks()
        self.reading = open_reading(local, self.clouds, self.clouds, self.links)
        self.fetcher, self.room = self.reading.fetcher, self.reading.room
        self.chunker = _Chunker(self.fs, self.fetcher)
        self.packs = PackMaker(sealer, TABLES, Redundancy(1, 2), self.clouds)
        inline = InlineExecutor()
        publishing = open_publishing(local, self.chunker, self.fetcher, self.packs, lambda _: inline)
        self.publisher, self.packer = publishing.publisher, publishing.packer
        self.deferred_packer = publishing.deferred_packer

    # -- programs --------------------------------------------------------------------------------

    def make(self, name: bytes, data: bytes = b"", parent: int = ROOT_INO) -> Inode:
        """A closed file with this content."""
        with self.fs.state.transaction() as tx:
            inode, handle = self.fs.create(tx, parent, name, 0o644, *OWNER, os.O_RDWR)
            if data:
                self.fs.write(tx, inode, 0, data)
            self.fs.release(tx, handle)
        return inode

    def mkdir(self, name: bytes, parent: int = ROOT_INO) -> int:
        with self.fs.state.transaction() as tx:
            return self.fs.make(tx, parent, name, stat.S_IFDIR | 0o755, *OWNER).ino

    def find(self, name: bytes, parent: int = ROOT_INO) -> Inode:
        inode = self.fs.lookup(self.tx, parent, name)
        assert inode is not None, f"{name!r} is gone"
        return inode

    def read(self, inode: Inode, offset: int = 0, size: int = 1 << 40) -> bytes:
        """What a program reads, with chunks fetched that are not here."""
        for _ in range(1000):
            with self.fs.state.transaction() as tx:
                data = self.fs.read(tx, inode, offset, size)
            if not isinstance(data, Missing):
                return data
            self.fetcher.fetch(data.chunks)
        raise AssertionError("a read never ends")

    # -- the threads of the daemon ---------------------------------------------------------------

    def publish(self, *, everything: bool = False) -> bool:
        """One round of the publisher."""
        if not everything:
            return self.publisher.publish_round()
        self.signals.begin_flush()
        try:
            return self.publisher.publish_round()
        finally:
            self.signals.end_flush()

    def pack(self, *, deferred: bool = True) -> None:
        """Upload all chunks that wait, or all but those for which nothing waits."""
        self.signals.begin_flush()
        try:
            self.packer.pack_round()
            if deferred:
                self.deferred_packer.pack_round()
        finally:
            self.signals.end_flush()

    def unpacked(self) -> int:
        count: int = self.db.rows.execute("SELECT count(*) FROM chunk WHERE pack IS NULL").fetchone()[0]
        return count

    def commit(self) -> None:
        self.committer.commit_now()

    # -- the end, and what comes after it --------------------------------------------------------

    def close(self) -> None:
        """Stop in an orderly way."""
        self.signals.stop()
        self.sharing.close()
        self.commit()
        self.journal.close()
        self.db.close()

    def reopen(self) -> Rig:
        """A clean restart."""
        self.close()
        return self._successor(self.directory)

    def crashed(self, before_leaving: Callable[[], None] = _nothing, *, leave: bool = True) -> Rig:
        """The volume as it comes back after SIGKILL at this moment; with *leave*, this rig ends here."""
        copy = Path(tempfile.mkdtemp(prefix="hybrisfs-rig-"))
        for path in self.directory.glob("volume.db*"):
            if not path.name.endswith("-shm"):
                shutil.copy(path, copy)
        for folder in ("journal", "checkpoints"):
            if (self.directory / folder).exists():
                shutil.copytree(self.directory / folder, copy / folder)
        before_leaving()
        if leave:
            self.abandon()
        return self._successor(copy)

    def powerless(self, disk: ForgetfulDisk, before_leaving: Callable[[], None] = _nothing) -> Rig:
        """The volume as it comes back after a power cut, according to *disk*; like `crashed`."""
        copy = Path(tempfile.mkdtemp(prefix="hybrisfs-rig-"))
        disk.image(copy)
        before_leaving()
        self.abandon()
        return self._successor(copy)

    def _successor(self, directory: Path) -> Rig:
        return Rig(directory, self.clouds, plaintexts=self.plaintexts, around=self.around, **self._options)

    def abandon(self) -> None:
        """Let go of everything without a commit."""
        self.signals.stop()
        self.sharing.close()
        self.db.abandon()
        self.discard()

    def discard(self) -> None:
        """Delete the disk."""
        shutil.rmtree(self.directory, ignore_errors=True)
