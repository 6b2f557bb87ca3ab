"""Fetching chunks that this device does not hold, and keeping them as cache.

Only what is asked for is fetched, with two exceptions that save time: the neighbours of a small chunk, which
stand beside it in its pack because they were written together; and what follows when a file is being read
from front to back, or one small file after the other in the order in which they were made. Then some runs of
chunks are always fetched ahead of the reader, side by side, so that each cloud that holds some of them is at
work (`dispersal.ranking`). How many there are is bounded, and so is what they hold in memory.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import Final, Protocol

from msgspec import Struct

from hybrisfs.bounded import in_groups
from hybrisfs.dispersal.errors import ChunkUnavailable
from hybrisfs.dispersal.pack import ChunkLocation, PackClouds
from hybrisfs.dispersal.seal import MAX_SEALED
from hybrisfs.merge.cloud_records import CloudState, read_clouds
from hybrisfs.read.ahead import AROUND, Readers, Stream
from hybrisfs.stages import Signals
from hybrisfs.state.chunk_states import ELSEWHERE, MAX_CHUNK, ChunkRef
from hybrisfs.state.file_chunks import chunks_after, of_small_files
from hybrisfs.state.packs import neighbours
from hybrisfs.state.state import Transaction
from hybrisfs.topic import Topic
from hybrisfs.tree.filesystem import FileSystem

__all__ = ["FetchLimits", "Fetcher", "asked_at_once"]

log = logging.getLogger(__name__)

_NEIGHBOURS: Final = 64
_IN_A_ROW: Final = 512  # chunks of one run ahead of a reader
_AHEAD_CHUNKS: Final = 32  # of a file, among which something is looked for that is not here
_THREADS: Final = 8
_DEVICE_SECONDS: Final = 5.0  # that other devices may be silent when they are asked for chunks
_PEEKED_BYTES: Final = 8 << 20
_REFUTED: Final = 3  # chunks that are not in a pack: its other ones are not looked for there


class LinkedDevices(Protocol):
    """The devices that this one is linked with."""

    def fetch_chunks(self, identities: Sequence[bytes], patience: float) -> Sequence[bytes | None]:
        """Chunks by their ids, or None where no device has it; they may be silent for so many seconds."""


class _Run(Struct, frozen=True, eq=False):
    """Chunks of one pack that are fetched together, the wanted one first, and the requests that wait."""

    chunks: list[ChunkRef]
    futures: dict[int, Future[bytes]]
    stream: Stream | None
    ahead: bool = False


class FetchLimits(Struct, frozen=True):
    """See `hybrisfs.environment.Limits`."""

    near_bytes: int = 256 << 10
    """Of neighbours that come along with a chunk."""
    ahead_bytes: int = 2 * MAX_SEALED
    """Of one run that is fetched ahead of a sequential reader."""
    runs_ahead: int = 6
    """Runs that are fetched ahead of each reader, in the background."""
    asked_bytes: int = 1 << 20
    """One thread asks other devices for so many at once, so that other threads get through."""
    located_within: float = 20.0
    """Seconds to wait for a chunk whose place is unknown, or whose clouds are not open yet."""


class Fetcher:
    """Brings chunks, from the clouds and from other devices."""

    def __init__(
        self,
        fs: FileSystem,
        clouds: PackClouds,
        signals: Signals,
        devices: LinkedDevices,
    ) -> None:
        """While transfers are paused, only chunks that a caller asks for are fetched."""
        self.limits = fs.environment.limits.of(FetchLimits)
        """They may be others at any moment."""
        self._fs = fs
        self._monotonic = fs.environment.monotonic
        self._time_ns = fs.environment.time_ns
        self._wait = fs.environment.wait
        self._clouds = clouds
        self._signals = signals
        self._devices = devices
        self._closing = False
        self._guard = threading.Lock()
        self._under_way: dict[int, Future[bytes]] = {}
        self._readers = Readers()
        self._news = threading.Condition()
        self._told = 0  # times that it became known where a chunk is, or that a cloud was opened
        self._pool = ThreadPoolExecutor(_THREADS, thread_name_prefix="fetch")
        self.unavailable = Topic[[ChunkRef]]()
        """A chunk cannot be had."""
        with fs.state.transaction() as tx:
            tx.chunks.located.listen(self._note_news)
        clouds.opened.listen(self._note_news)

    def close(self) -> None:
        """End all waits for the places of chunks, and begin nothing more in the background."""
        with self._news:
            self._closing = True
            self._news.notify_all()

    def join(self) -> None:
        """Wait for what is under way in the background; the clouds have been closed."""
        self._pool.shutdown()

    def fetch(self, chunks: Sequence[ChunkRef]) -> dict[int, bytes]:
        """The bytes of *chunks* by number; called without the volume's lock. Raises ChunkUnavailable."""
        waiting: dict[int, Future[bytes]] = {}
        first: _Run | None = None
        try:
            for ref in chunks:
                waiting[ref.number], run = self._begin(ref)
                self._fs.content.was_read(ref.number)
                if run is not None and run.stream is not None and self.limits.runs_ahead:
                    self._submit(partial(self._extend, run.stream))
                if first is None:
                    first = run  # for this thread
                elif run is not None and not self._submit(partial(self._carry_out, run)):
                    self._carry_out(run)
        finally:
            if first is not None:
                self._carry_out(first)
        return {ref.number: self._await(ref, waiting[ref.number]) for ref in chunks}

    def fetch_one(self, ref: ChunkRef) -> bytes:
        """The bytes of one chunk, for callers that hold up the updates of other devices, so that no update
        can name its place during the call. Raises ChunkUnavailable."""
        if ref.is_on_clouds:
            future, run = self._begin(ref)
            if run is not None:
                self._carry_out(run)
            return self._await(ref, future)
        data = self._ask([ref]).get(ref.number)
        if data is None:
            raise ChunkUnavailable(f"chunk {ref.id.hex()[:16]}", {})
        with self._fs.state.transaction() as tx:
            tx.chunks.keep(ref.number, data)
        return data

    def peek(self, refs: Sequence[ChunkRef]) -> list[bytes]:
        """The bytes of chunks of one pack, from this disk or the clouds; nothing is kept here for that.
        Called without the volume's lock. Raises ChunkUnavailable."""
        with self._fs.state.transaction() as tx:
            found = {ref.number: data for ref in refs if (data := tx.chunks.read_whole(ref)) is not None}
        missing = [ref for ref in refs if ref.number not in found]
        for some in in_groups(missing, lambda ref: ref.sealed or 0, _PEEKED_BYTES):
            found |= {ref.number: data for ref, data in zip(some, self._get(some), strict=True)}
        return [found[ref.number] for ref in refs]

    def fetch_from_devices(self, refs: Sequence[ChunkRef]) -> int:
        """Bring those of the chunks that are neither here nor under way, as far as other devices have them.

        Returns how many came; called without the volume's lock.
        """
        with self._fs.state.transaction() as tx:
            missing = tx.chunks.missing([ref.number for ref in refs])
            with self._guard:
                run = [ref for ref in missing if ref.number not in self._under_way]
                futures: dict[int, Future[bytes]] = {ref.number: Future() for ref in run}
                self._under_way.update(futures)
        found: dict[int, bytes] = {}
        try:
            found = self._ask(run)
            with self._fs.state.transaction() as tx:
                tx.chunks.keep_all(found)
        finally:
            with self._guard:
                for number in futures:
                    del self._under_way[number]
            for number, future in futures.items():
                if number in found:
                    future.set_result(found[number])
                else:
                    future.cancel()  # who waits for it has it fetched otherwise
        return len(found)

    def _await(self, ref: ChunkRef, future: Future[bytes]) -> bytes:
        while True:
            try:
                return future.result()
            except CancelledError:  # it went along with one that cannot be had
                future, run = self._begin(ref, alone=True)
                if run is not None:
                    self._carry_out(run)

    def _begin(
        self, ref: ChunkRef, *, alone: bool = False, ahead: Stream | None = None
    ) -> tuple[Future[bytes], _Run | None]:
        """The future of the bytes, and the run that brings them, unless one is under way.

        `ahead`: of the reader of this stream. Otherwise the run has a stream when it turns out to be read in
        order.
        """
        # Under the volume's lock nothing arrives: each chunk is either here, or under way, or to be fetched.
        with self._fs.state.transaction() as tx:
            with self._guard:
                waiting = self._under_way.get(ref.number)
            if waiting is not None:
                return waiting, None
            now = tx.chunks.get(ref.number)
            data = tx.chunks.read_whole(now)
            if data is not None:  # it came between the caller's look and now
                tx.chunks.keep(ref.number, data)
                here: Future[bytes] = Future()
                here.set_result(data)
                return here, None
            chunks, stream = ([now], None) if alone else self._plan(tx, now, ahead)
            with self._guard:
                chunks = [one for one in chunks if one.number not in self._under_way]
                futures: dict[int, Future[bytes]] = {one.number: Future() for one in chunks}
                run = _Run(chunks, futures, stream, ahead is not None)
                self._under_way.update(futures)
                if not alone:
                    self._readers.begun([*futures], stream, ahead=run.ahead)
            return futures[ref.number], run

    def _submit(self, work: Callable[[], None]) -> bool:
        """Have it done in the background; False when nothing is any more."""
        try:
            self._pool.submit(work)
        except RuntimeError:
            return False
        return True

    def _carry_out(self, run: _Run) -> None:
        try:
            self._bring(run.chunks, run.futures)
        finally:
            with self._guard:
                if run.ahead:
                    self._readers.ended()
                for number in run.futures:
                    del self._under_way[number]

    def _plan(
        self, tx: Transaction, ref: ChunkRef, ahead: Stream | None
    ) -> tuple[list[ChunkRef], Stream | None]:
        """The chunk and the neighbours worth taking along, and whose reading in order that is."""
        if self._signals.transfers_paused or not ref.is_on_clouds:
            return [ref], None
        stream = ahead
        if ahead is None:
            whole = _is_small_file(tx, ref)
            with self._guard:
                stream = self._readers.wanted(ref.number, whole=whole)
                forgotten = self._readers.forgotten()
            self._fs.content.await_no_longer(forgotten)
        budget = self.limits.near_bytes if stream is None else self.limits.ahead_bytes
        run = [ref]
        size = ref.sealed or 0
        for neighbour in _worth_it(tx, ref, stream, is_ahead=ahead is not None):
            size += neighbour.sealed or 0
            if size > budget:
                break
            run.append(neighbour)
        return run, stream

    # -- ahead of those who read in order ------------------------------------------------------------

    def _reached(self, stream: Stream, number: int) -> None:
        """A milestone is being read. The volume's lock may be held."""
        with self._guard:
            passed = self._readers.reached(stream, number)
        if passed is not None:
            self._fs.content.await_no_longer(passed)
            self._submit(partial(self._extend, stream))

    def _extend(self, stream: Stream) -> None:
        """Begin what follows, until enough is ahead of the reader."""
        with self._guard:
            if stream.extending:
                return  # another thread sees to it
            stream.extending = True
        while self._wants_more(stream):
            following = self._following(stream)
            try:
                run = None if following is None else self._begin(following, ahead=stream)[1]
            except OSError:  # dropped in between
                following = run = None
            with self._guard:
                if following is None:
                    stream.extending = False
                    return
                if run is None:  # somebody else wants it, too
                    stream.last = following.number
            if run is not None:
                note = partial(self._reached, stream, following.number)
                self._fs.content.await_reading(following.number, note)
                if not self._submit(partial(self._carry_out, run)):
                    self._carry_out(run)

    def _wants_more(self, stream: Stream) -> bool:
        """Whether to begin one run more; when not, the next milestone asks again."""
        with self._guard:
            stream.extending = (
                not self._closing
                and not self._signals.transfers_paused
                and self._readers.wants_more(stream, self.limits.runs_ahead)
            )
            return stream.extending

    def _following(self, stream: Stream) -> ChunkRef | None:
        """What to fetch next: the next chunk of the file that is on the clouds and not here, or the one that
        was made next."""
        with self._fs.state.transaction() as tx:
            last = tx.chunks.get_if_known(stream.last)
            if last is None:
                return None
            found = chunks_after(tx, last.number, _AHEAD_CHUNKS)
            if stream.across and not found:
                found = of_small_files(tx, neighbours(tx, last, _IN_A_ROW), MAX_CHUNK)
                if not found and (behind := tx.chunks.get_if_known(last.number + 1)) is not None:
                    found = of_small_files(tx, [behind], MAX_CHUNK)
        return next((one for one in found if not one.is_here and one.is_on_clouds), None)

    def _bring(self, run: list[ChunkRef], futures: dict[int, Future[bytes]]) -> None:
        try:
            found, packs = self._obtain(run)
            with self._fs.state.transaction() as tx:
                tx.chunks.keep_all({ref.number: data for ref, data in zip(run, found, strict=True)})
                tx.packs.were_read(packs, self._time_ns())
        except ChunkUnavailable as error:
            wanted, neighbours = run[:1], run[1:]
            for ref in neighbours:
                with self._guard:
                    del self._under_way[ref.number]
                futures.pop(ref.number).cancel()
            if neighbours:  # one of them may be the reason
                self._bring(wanted, futures)
                return
            log.warning("%s", error)
            self.unavailable(wanted[0])
            futures[wanted[0].number].set_exception(error)
            return
        except BaseException as error:
            for future in futures.values():
                if not future.done():
                    future.set_exception(error)
            raise
        for ref, data in zip(run, found, strict=True):
            futures[ref.number].set_result(data)

    def _obtain(self, run: list[ChunkRef]) -> tuple[list[bytes], set[int]]:
        """The chunks from other devices, where one is linked, and else from the clouds; and the numbers of
        the packs that they were in there."""
        got = self._ask(run)
        rest = [self._located(ref) for ref in run if ref.number not in got]
        if rest:
            found = self._get(rest)
            got.update(zip((ref.number for ref in rest), found, strict=True))
        return [got[ref.number] for ref in run], {ref.pack for ref in rest if ref.pack}

    def _ask(self, run: Sequence[ChunkRef]) -> dict[int, bytes]:
        """The chunks that other devices have, by number."""
        got: dict[int, bytes] = {}
        for refs in asked_at_once(run, self.limits.asked_bytes):
            answers = self._devices.fetch_chunks([ref.id for ref in refs], _DEVICE_SECONDS)
            found = {ref.number: data for ref, data in zip(refs, answers, strict=True) if data is not None}
            if not found:
                break  # there is no link, or nobody has what was written then
            got |= found
        return got

    def _get(self, run: list[ChunkRef]) -> list[bytes]:
        """The chunks from the clouds. When they are not at their places, these are looked up again: a cloud
        may have been emptied, or is being opened. A single chunk is searched for in all possible places.
        Raises ChunkUnavailable."""
        before = self._locations(run), set(self._clouds.numbers)
        try:
            return self._get_there(run)
        except ChunkUnavailable as error:
            with self._fs.state.transaction() as tx:
                now = [tx.chunks.get(ref.number) for ref in run]
            if now[0].pack and len({ref.pack for ref in now}) == 1:
                with suppress(ChunkUnavailable):
                    if self._once_open(now) != before:
                        return self._get_there(now)
            found = self._get_elsewhere(run[0]) if len(run) == 1 else None
            if found is None:
                raise error from None
            return [found]

    def _once_open(self, refs: list[ChunkRef]) -> tuple[list[ChunkLocation], set[int]]:
        """The places of chunks and the open clouds, once the clouds of the chunks are open: one update may
        name both a cloud and a pack on it, and the cloud opens a moment later."""
        give_up = self._monotonic() + self.limits.located_within
        while True:
            with self._news:
                told = self._told
            locations, opened = self._locations(refs), set(self._clouds.numbers)
            awaited = {cloud for one in locations for cloud in one.placement} - opened
            if not self._uses_any(awaited) or not self._has_news(told, give_up):
                return locations, opened

    def _uses_any(self, clouds: Container[int]) -> bool:
        """Whether one of these clouds is the volume's by now."""
        with self._fs.state.transaction() as tx:
            records = read_clouds(tx.registers)
        wanted = (CloudState.ACTIVE, CloudState.DRAINING)
        return any(number in clouds and record.state in wanted for number, (record, _) in records.items())

    def _get_there(self, refs: list[ChunkRef]) -> list[bytes]:
        """The chunks from the one pack that *refs* name, from which they are read from now on. It need not be
        the pack of their rows. Raises ChunkUnavailable."""
        locations = self._locations(refs)
        if not locations[0].n:
            raise ChunkUnavailable(f"chunk {refs[0].id.hex()[:16]}: its pack has just ended", {})
        found = self._clouds.get_chunks(locations)
        with self._fs.state.transaction() as tx:
            tx.chunks.read_at(refs)
        return found

    def _get_elsewhere(self, ref: ChunkRef) -> bytes | None:
        """The chunk from another place than *ref* names: from other packs that members name, or from clouds
        that no placement names. None when none of them has it."""
        with self._fs.state.transaction() as tx:
            places = tx.chunks.places(ref)
        for place in places:
            if place.pack != ref.pack:
                with suppress(ChunkUnavailable):
                    found = self._get_there([place])[0]
                    self._turn_from(ref)
                    return found
        for place in places:
            (location,) = self._locations([place])
            placement = () if location.owed else tuple(self._clouds.find_shares(location.pack_id, location.n))
            if placement and placement != location.placement:
                with suppress(ChunkUnavailable):
                    return self._clouds.get_chunks([location._replace(placement=placement)])[0]
        return None

    def _turn_from(self, ref: ChunkRef) -> None:
        """A chunk is not in the pack that is said to hold it: search for the other chunks of the pack
        elsewhere first."""
        if ref.pack and not ref.proven:
            with self._fs.state.transaction() as tx:
                tx.chunks.rely_on_spares(ref.pack, gone=True)

    def prove(self, numbers: Iterable[int]) -> None:
        """Verify that chunks, here or not, are on the clouds where members say. A chunk is read from now on
        where this succeeds. Packs that may go soon do not count. Called without the volume's lock."""
        waiting: dict[int, list[ChunkRef]] = {}
        with self._fs.state.transaction() as tx:
            for number in numbers if not self._signals.transfers_paused else ():
                for place in self._places(tx, number)[:1]:
                    if not (place.proven and tx.chunks.get(number).pack == place.pack):
                        waiting.setdefault(place.pack or ELSEWHERE, []).append(place)
        for refs in waiting.values():
            failures = 0
            for some in in_groups(refs, lambda ref: ref.sealed or 0, self.limits.ahead_bytes):
                if self._closing or self._is_there(some):
                    continue
                for ref in some:
                    if failures < _REFUTED:
                        failures += not self._is_anywhere(ref.number)

    def _places(self, tx: Transaction, number: int) -> list[ChunkRef]:
        """Where a chunk is said to be, in packs that are to stay."""
        chunks = tx.chunks
        try:
            places = chunks.places(chunks.get(number))
        except OSError:
            return []  # dropped in between
        return [one for one in places if chunks.may_rely_on(one.pack)]

    def _is_there(self, refs: list[ChunkRef]) -> bool:
        try:
            self._get_there(refs)
        except ChunkUnavailable:
            return False
        return True

    def _is_anywhere(self, number: int) -> bool:
        with self._fs.state.transaction() as tx:
            places = self._places(tx, number)
        return any(self._is_there([place]) for place in places)

    def _located(self, ref: ChunkRef) -> ChunkRef:
        """The chunk, once its place on the clouds is known: another device may have made it just now. A chunk
        that the clouds had lost is searched for at its old place."""
        if not ref.is_on_clouds:
            with self._fs.state.transaction() as tx:
                ref = next(iter(tx.chunks.places(ref)), ref)
        give_up = self._monotonic() + self.limits.located_within
        while not ref.is_on_clouds:
            with self._news:
                told = self._told
            with self._fs.state.transaction() as tx:
                ref = tx.chunks.get(ref.number)
            if ref.is_on_clouds:
                break
            if not self._has_news(told, give_up):
                raise ChunkUnavailable(f"chunk {ref.id.hex()[:16]}", {})
        return ref

    def _has_news(self, told: int, give_up: float) -> bool:
        """Whether there is more news than *told*; waits for it until then."""
        with self._news:
            while self._told == told and not self._closing and (left := give_up - self._monotonic()) > 0:
                self._wait(self._news, lambda: self._told != told or self._closing, left)
            return self._told != told and not self._closing

    def _note_news(self) -> None:
        """The place of a chunk has become known, or a cloud was opened. The volume's lock may be held."""
        with self._news:
            self._told += 1
            self._news.notify_all()

    def _locations(self, run: list[ChunkRef]) -> list[ChunkLocation]:
        with self._fs.state.transaction() as tx:
            pack = tx.packs.of_chunk(run[0])
        return [
            ChunkLocation(
                pack_id=pack.id,
                k=pack.k,
                n=pack.n,
                placement=tuple(pack.placement),
                chunk_id=ref.id,
                length=ref.length,
                offset=ref.offset or 0,
                sealed_length=ref.sealed or 0,
                owed=pack.proven,
            )
            for ref in run
        ]


def asked_at_once(refs: Iterable[ChunkRef], size: int) -> Iterator[list[ChunkRef]]:
    """The chunks in groups of at most *size* bytes: see `FetchLimits.asked_bytes`."""
    return in_groups(refs, lambda ref: ref.length or MAX_CHUNK, size)  # 0: it is not known yet


def _worth_it(tx: Transaction, ref: ChunkRef, stream: Stream | None, *, is_ahead: bool) -> Iterator[ChunkRef]:
    """The neighbours to take along, the likeliest first. Parts of large files are not among them for a reader
    of one small file after the other."""
    found = neighbours(tx, ref, _IN_A_ROW if is_ahead else _NEIGHBOURS if stream is None else AROUND)
    if stream is None or not stream.across:
        yield from found
        return
    yield from of_small_files(tx, found, MAX_CHUNK)
    if not is_ahead:
        before = neighbours(tx, ref._replace(number=max(0, ref.number - AROUND)), AROUND)
        yield from of_small_files(tx, [one for one in before if one.number < ref.number], MAX_CHUNK)


def _is_small_file(tx: Transaction, ref: ChunkRef) -> bool:
    """Whether the chunk is all of a file: no other stands behind it there, nor the one made before it in
    front of it."""
    before = chunks_after(tx, ref.number - 1, 1)
    return (
        bool(of_small_files(tx, [ref], MAX_CHUNK))
        and not chunks_after(tx, ref.number, 1)
        and all(one.number != ref.number for one in before)
    )
