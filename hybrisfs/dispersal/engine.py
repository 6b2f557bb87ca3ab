"""The data plane of one volume: packs and small objects to and from its clouds, whatever f of them do."""

from __future__ import annotations

from collections.abc import Callable, Collection, Container, Iterable, Sequence
from functools import partial
from typing import Final, TypeVar

from hybrisfs.dispersal import probe as poll
from hybrisfs.dispersal import reader, writer
from hybrisfs.dispersal.chunks import ChunkReader, owed_share
from hybrisfs.dispersal.cloud import Cloud, CloudStatus
from hybrisfs.dispersal.clouds import Clouds
from hybrisfs.dispersal.errors import CloudsUnavailable, Finding
from hybrisfs.dispersal.pack import ChunkLocation, EncodedPack
from hybrisfs.dispersal.probe import Listing, Look, Marker, Owed, Polled, check, probe
from hybrisfs.dispersal.ranking import Offence, Timing
from hybrisfs.dispersal.reader import Read, Target
from hybrisfs.dispersal.seal import Sealer
from hybrisfs.dispersal.share import TableSealer, share_name
from hybrisfs.dispersal.traffic import CloudTraffic
from hybrisfs.dispersal.upkeep import Upkeep
from hybrisfs.dispersal.values import Values
from hybrisfs.dispersal.writer import PackTurns, Placement, Write
from hybrisfs.environment import Environment
from hybrisfs.topic import Topic
from sync.codec import Buffer

__all__ = ["ChunkLocation", "Cloud", "CloudStatus", "Engine", "Marker", "Placement", "Timing"]

T = TypeVar("T")

# Nobody waits for a single pack, and packs that share an uplink take longer the more there are of them: a
# copy for a secondary cloud would take still more of it.
_PACK_PATIENCE_FACTOR = 2.0
_CHUNK_TIMEOUT = 30.0  # seconds
_USUAL_OBJECT = 1 << 20  # bytes; limits are generous, and latencies are kept by size


class Engine:
    """Writes to the best clouds and reads from the best that have it. Notes how well each cloud does.

    Owns the stores of `clouds` and a few daemon threads per cloud; `close` ends both. All methods may be
    called from any thread and block the caller for a bounded time only, not counting that in which transfers
    are held back; `throttle` sets the bandwidth. `upkeep` is for scrub and repair,
    `values` for the values of the key-value face.
    """

    def __init__(
        self,
        clouds: Sequence[Cloud],
        f: int,
        sealer: Sealer,
        tables: TableSealer,
        *,
        timing: Timing | None = None,
        environment: Environment,
    ) -> None:
        self.environment: Final = environment
        self._f = f
        self._tables = tables
        self._timing = timing or environment.limits.of(Timing)
        self._heard = frozenset[int]()
        self.opened = Topic[[]]()
        """There is one cloud more. Told without locks."""
        self._clouds = Clouds(clouds, self._timing, environment)
        self.throttle = self._clouds.throttle
        self._chunks = ChunkReader(self._clouds, sealer, tables)
        self.upkeep = Upkeep(self._clouds, tables, self._timing.get, self._timing.put)
        self.values = Values(self._clouds, self._timing.put)
        self._turns = PackTurns(environment)

    def put_pack(
        self, pack: EncodedPack, held: dict[int, int] | None = None, among: Collection[int] | None = None
    ) -> Placement:
        """Store all shares, each on a cloud of its own; return the cloud of each share.

        *held*: the clouds that have acknowledged shares before, by share. These are not put again. It is
        added to, also when this fails. *among*: the clouds that may be chosen, if not all.
        Blocks while those under way keep the lines busy. Raises CloudsUnavailable.
        """
        write = Write(
            what=f"pack {pack.pack_id.hex()[:16]}",
            n=pack.n,
            size=len(pack.shares[0]),
            name=partial(share_name, pack.pack_id),
            data=pack.shares.__getitem__,
            patience_factor=_PACK_PATIENCE_FACTOR,
        )
        with self._turns.turn(write.size):
            return writer.put(self._clouds, write, self._timing.put, held, among)

    def find_held(self, pack: EncodedPack) -> dict[int, int]:
        """Look which shares of a pack clouds in use have already: the cloud of each, as `put_pack` takes it.

        The ends of the shares are compared. Nothing is held against any cloud.
        """
        held: dict[int, int] = {}
        for index, share in enumerate(pack.shares):
            name = share_name(pack.pack_id, index)
            others = (cloud for cloud in self.in_use if cloud not in held.values())
            found = next((cloud for cloud in others if self.upkeep.shows(cloud, name, share)), None)
            if found is not None:
                held[index] = found
        return held

    def put_object(self, name: str, data: Buffer, copies: int) -> Placement:
        """Store copies of a small object; return the clouds that have one. Raises CloudsUnavailable."""
        write = Write(name, copies, len(data), lambda _: name, lambda _: data, fungible=True)
        return writer.put(self._clouds, write, self._timing.put)

    def put_everywhere(self, name: str, data: Buffer, clouds: Container[int] | None = None) -> Placement:
        """Store a small object on all clouds in use, or those of *clouds*; return those that were quick to
        acknowledge it.

        Slow clouds may still get it afterwards. Raises CloudsUnavailable when they are fewer than f+1.
        """
        return writer.broadcast(self._clouds, name, data, self._f + 1, self._timing.put, clouds)

    def get_object(
        self,
        name: str,
        limit: int,
        verify: Callable[[bytes], T],
        placement: Sequence[int] | None = None,
        *,
        older: bool = True,
    ) -> T:
        """Return what `verify` makes of the first copy that it accepts.

        `verify` raises ValueError or IntegrityError for a wrong copy of at most `limit` bytes; its cloud is
        lying then, as is a cloud of `placement`, those known to have acknowledged a copy, that has none. It
        raises EarlierVersionError for what was right once: a cloud may get the last version late.
        `older`: whether a version that was deleted or overwritten will do when there is no other; for what
        tells by being the present one it does not.
        Raises ObjectMissing or CloudsUnavailable.
        """
        owed = () if placement is None else placement
        others = [port.number for port in self._clouds if port.number not in owed]
        targets = [Target(n, name, n in owed) for n in (*owed, *others)]
        read = Read(
            what=name,
            k=1,
            targets=targets,
            size=min(limit, _USUAL_OBJECT),
            fetch=lambda store, name: store.get(name, limit=limit),
            rebuild=lambda parts: verify(next(iter(parts.values()))),
            recheck=lambda _: (limit, verify),
            failure=CloudsUnavailable,
            absent=len(self._clouds) - self._f,
            older=older,
            rounds=2 if owed else 0,  # what nobody acknowledged may well not be there: do not insist
        )
        return reader.get(self._clouds, read, self._timing.get)

    def poll_objects(self, looks: Sequence[Look], *, limit: int, timeout: float) -> dict[Look, Polled]:
        """Look at objects that may have changed, each of at most `limit` bytes; see `probe.poll`."""
        return poll.poll(self._clouds, looks, limit, timeout)

    def list_objects(self, prefix: str, *, most: int, timeout: float) -> Listing:
        """Return the names that begin with `prefix`, at most `most` per cloud; see `probe.list_names`."""
        return poll.list_names(self._clouds, prefix, most, len(self._clouds) - self._f, timeout)

    def accuse(
        self, cloud: int, name: str, reason: str, limit: int, recheck: Callable[[bytes], object]
    ) -> None:
        """Take note that what the cloud returned for `name` is a lie, which only the caller can tell.

        The cloud counts as lying until `recheck` accepts the object as it is then (see `Offence`).
        """
        if cloud in self._clouds:
            self._clouds[cloud].lied(name, Offence(f"{name} {reason}", limit, recheck))

    @property
    def clouds(self) -> Clouds:
        """What other protocols than those of this package ask; and which clouds are retired or renamed."""
        return self._clouds

    @property
    def numbers(self) -> tuple[int, ...]:
        """The numbers of the volume's clouds."""
        return tuple(port.number for port in self._clouds if port.number not in self._heard)

    @property
    def heard(self) -> frozenset[int]:
        """The numbers of the clouds that are only read, as nobody knows yet that they are the volume's."""
        return self._heard

    @property
    def followed(self) -> tuple[int, ...]:
        """The numbers of the clouds on which other devices are looked for: those in use, and those only heard
        of, where the log may be that says whether they are the volume's."""
        return (*self.in_use, *sorted(self._heard))

    @property
    def in_use(self) -> tuple[int, ...]:
        """The numbers of the clouds that something new may go to."""
        return tuple(number for number in self.numbers if self._clouds.takes_writes(number))

    @property
    def f(self) -> int:
        """How many clouds may be faulty."""
        return self._f

    def add_cloud(self, cloud: Cloud) -> None:
        """Use one more cloud. ValueError when there is one with this number."""
        self._clouds.add(cloud)
        self.opened()

    def arrange(self, closed_to_writes: Iterable[int], f: int, heard: Iterable[int] = ()) -> None:
        """From now on these clouds get nothing new, and `f` clouds may be faulty. Those that are only *heard*
        of are read and not written to."""
        self._heard = frozenset(heard)
        self._clouds.close_to_writes(self._heard.union(closed_to_writes))
        self._f = f

    def get_chunks(
        self, locations: Sequence[ChunkLocation], *, timeout: float = _CHUNK_TIMEOUT
    ) -> list[bytes]:
        """Return the plaintexts of chunks of one pack, with one ranged request per run of neighbours.

        Raises ChunkUnavailable when a run cannot be read as a whole, at the latest when nothing of it has
        moved for `timeout` seconds; single chunks of it may still be readable by a call of their own.
        """
        return self._chunks.get_chunks(locations, timeout)

    def find_shares(self, pack_id: bytes, n: int) -> tuple[int, ...]:
        """See `Upkeep.find_shares`."""
        return self.upkeep.find_shares(pack_id, n)

    def check_share(self, cloud: int, pack_id: bytes, index: int) -> str | None:
        """Read and verify a whole share; return what is wrong with it in a sentence, or None."""
        if cloud not in self._clouds:
            return _unconfigured(share_name(pack_id, index), cloud)
        owed = owed_share(self._clouds, cloud, self._tables, pack_id, index)
        return _what(check(self._clouds, owed, self._timing.get))

    def check_object(
        self, cloud: int, name: str, limit: int, verify: Callable[[bytes], object]
    ) -> str | None:
        """Like `get_object` for one cloud that acknowledged the object; return what is wrong, or None."""
        if cloud not in self._clouds:
            return _unconfigured(name, cloud)
        owed = Owed(self._clouds[cloud], name, limit, verify)
        return _what(check(self._clouds, owed, self._timing.get))

    def probe(self, marker: Marker, *, everyone: bool = False) -> None:
        """Look again at the clouds that are not well, as far as they are due: call it every few seconds.

        It reads some of the objects that they had lost or altered, and `marker`; with `everyone` it reads the
        marker from all clouds, to find out about those that nothing else is asked of.
        """
        probe(self._clouds, marker, everyone, self._timing.get)

    def health(self) -> list[CloudStatus]:
        """Return the state of every cloud."""
        return self._clouds.status()

    def traffic(self) -> list[CloudTraffic]:
        """Return what was counted of every cloud, and what is under way there."""
        return [
            CloudTraffic(
                port.number,
                port.name,
                port.status().state,
                port.traffic.counters(),
                port.traffic.transfers(),
            )
            for port in self._clouds
        ]

    def close(self) -> None:
        """End all threads and close the stores. Calls that hang are abandoned."""
        self._clouds.close(self._timing.close)
        self._chunks.close()


def _what(finding: Finding | None) -> str | None:
    return None if finding is None else finding.what


def _unconfigured(name: str, cloud: int) -> str:
    return f"{name}: cloud {cloud} is no longer configured"
