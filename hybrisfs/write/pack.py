"""The packers: they seal chunks that no cloud has, gather them into packs, and have the packs dispersed.

There are two: one for deferred chunks (`ChunkLimits.deferred`), one for all else, so that small changes never
wait behind large files.

A pack is sent when it is full, when its first chunk has waited `linger_seconds`, or when a caller flushes.
Chunks keep their journal segment dirty until the pack's placement is in the database, so a crash at any point
costs at most the upload of what no cloud had in full.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import Executor
from typing import Final

from msgspec import Struct

from hybrisfs.bounded import in_groups
from hybrisfs.dispersal.errors import CloudsUnavailable
from hybrisfs.dispersal.pack import PACK_TARGET, EncodedPack, PackBuilder, PackClouds, Redundancy, choose_code
from hybrisfs.dispersal.seal import Sealer
from hybrisfs.dispersal.share import TableSealer
from hybrisfs.members.minutes import bans_orphan, bans_place, bans_strays_of
from hybrisfs.merge.signing import Signer
from hybrisfs.read.fetch import Fetcher
from hybrisfs.registers.tree import PackedChunk, PackRecord, pack_key
from hybrisfs.stages import IDLE, Pause, Signals
from hybrisfs.state.chunk_states import ChunkRef
from hybrisfs.state.state import Transaction
from hybrisfs.state.unplaced import PendingRow, pending_after, pending_row
from hybrisfs.tree.filesystem import FileSystem
from sync import Write

__all__ = [
    "DEFERRED_IN_FLIGHT",
    "IN_FLIGHT",
    "PackLimits",
    "PackMaker",
    "Packer",
    "Packing",
    "is_ending",
    "record_pack",
    "record_packs",
    "place_chunks",
]

log = logging.getLogger(__name__)

IN_FLIGHT: Final = 3
"""Packs that are sent at a time, ..."""
DEFERRED_IN_FLIGHT: Final = 2
"""... and packs of deferred chunks beside them."""
_BATCH: Final = 256
_UNTIL_WOKEN: Final = Pause(60.0)
_SEALED_AT_ONCE: Final = 512 << 10  # bytes of chunks: much of the machine's caches, and some milliseconds
_WORTH_FINDING: Final = 1 << 20  # bytes of a share that may be on a cloud already


class PackLimits(Struct, frozen=True):
    """See `hybrisfs.environment.Limits`."""

    linger_seconds: float = 3.0
    """How long the first chunk of a pack waits for others, ..."""
    awaited_seconds: float = 0.5
    """... when another device hears of changes through the clouds alone."""
    target_bytes: int = PACK_TARGET
    """Of sealed chunks that make a pack full."""
    first_retry: float = 1.0
    """Seconds after which a pack that the clouds did not take is put again, and then twice as many, ..."""
    last_retry: float = 30.0
    """... up to these."""


class Packing:
    """What packs chunks that are stored: it fetches them, has packs made, and signs where the chunks are."""

    def __init__(
        self, fs: FileSystem, signer: Signer, signals: Signals, maker: PackMaker, fetcher: Fetcher
    ) -> None:
        self._fs = fs
        self._signer = signer
        self._signals = signals
        self._maker = maker
        self._fetcher = fetcher


class Packer(Packing):
    """A stage that seals, and a few threads that wait for clouds."""

    def __init__(
        self,
        fs: FileSystem,
        signer: Signer,
        signals: Signals,
        maker: PackMaker,
        fetcher: Fetcher,
        uploaders: Executor,
        *,
        deferred: bool = False,
    ) -> None:
        """*uploaders*: they send packs, up to `IN_FLIGHT` or `DEFERRED_IN_FLIGHT` at a time, and end with the
        packer. *deferred*: it packs deferred chunks, otherwise all else."""
        super().__init__(fs, signer, signals, maker, fetcher)
        self._deferred = deferred
        self.limits = fs.environment.limits.of(PackLimits)
        """They may be others at any moment."""
        self._monotonic = fs.environment.monotonic
        self._trim = fs.environment.trim
        self._slots = threading.Semaphore(DEFERRED_IN_FLIGHT if deferred else IN_FLIGHT)
        self._uploaders = uploaders
        self._cursor = 0
        self._skipped: set[int] = set()  # chunks that were lost when their turn came
        self._builder: PackBuilder | None = None
        self._numbers: dict[bytes, int] = {}
        self._begun = 0.0
        self._to_find = IN_FLIGHT  # packs that may have been under way when the daemon ended

    def step(self) -> Pause:
        """Pack what waits."""
        try:
            self.pack_round()
        except Exception:
            self._cursor = 0  # what this round had in hand is looked for again
            raise
        return IDLE if not self._deferred or self._builder is not None else _UNTIL_WOKEN

    def finish(self) -> None:
        """Wait for the clouds no longer."""
        self._uploaders.shutdown(wait=True, cancel_futures=True)

    def pack_round(self) -> None:
        """Pack the waiting chunks; those that do not fill a pack stay for a while unless a caller flushes."""
        with self._fs.state.transaction() as tx:
            if not self._signer.may_contribute(tx):
                return
        self._take_pending()
        if self._builder is not None and self._due():
            self._send()

    def _due(self) -> bool:
        linger = self.limits.awaited_seconds if self._signals.awaited else self.limits.linger_seconds
        return self._signals.flushing or self._monotonic() - self._begun >= linger

    def _take_pending(self) -> None:
        self._take_healed()
        while not self._signals.stopping:
            with self._fs.state.transaction() as tx:
                rows = pending_after(tx, self._cursor, _BATCH)
                mine = [row for row in rows if (row[0] in tx.chunks.deferred) == self._deferred]
                tx.chunks.taken_over.difference_update(row[0] for row in mine)
            last = rows[-1][0] if rows else self._cursor
            self._add_all(self._unclaimed(mine))
            self._cursor = max(self._cursor, last)
            if len(rows) < _BATCH:
                return

    def _take_healed(self) -> None:
        """Chunks whose turn has passed: lost ones that were written again, and chunks of other devices that
        we made, too."""
        with self._fs.state.transaction() as tx:
            taken_over = set[int]()
            if not self._deferred:
                taken_over = {number for number in tx.chunks.taken_over if number <= self._cursor}
                tx.chunks.taken_over.clear()
            healed = (self._skipped - tx.chunks.lost) | taken_over
            found = [pending_row(tx, number) for number in sorted(healed)]
        self._skipped -= healed
        self._add_all(self._unclaimed([row for row in found if row is not None]))

    def _unclaimed(self, rows: list[PendingRow]) -> list[PendingRow]:
        """The chunks that are not on the clouds already. If another device claims to have put some there, the
        claim is verified first, which costs less than another upload."""
        with self._fs.state.transaction() as tx:
            claimed = [row[0] for row in rows if tx.chunks.is_claimed(row[0])]
        if not claimed or not self._signals.wait_until_free():
            return rows
        self._fetcher.prove(claimed)
        with self._fs.state.transaction() as tx:
            there = {number for number in claimed if tx.chunks.is_on_clouds(number)}
        if there:
            self._signals.packed()
        return [row for row in rows if row[0] not in there]

    def _read(self, rows: Sequence[PendingRow]) -> list[bytes | None]:
        """The bytes of chunks; None of one that is damaged."""
        try:
            found = self._fs.journal.read_all((row[3], row[4], row[2]) for row in rows)
        except OSError as error:
            if len(rows) > 1:
                return [data for row in rows for data in self._read([row])]
            log.error("segment %d of the journal cannot be read: %s", rows[0][3], error)
            return [None]
        chunk_id = self._maker.sealer.chunk_id
        return [
            data if data is not None and chunk_id(data) == row[1] else None
            for row, data in zip(rows, found, strict=True)
        ]

    def _skip(self, row: PendingRow) -> None:
        """A chunk could not be read: it is lost, unless it has been dropped or written again since."""
        number, identity, *_ = row
        with self._fs.state.transaction() as tx:
            now = pending_row(tx, number)
            if now is None:
                return
            self._skipped.add(number)
            if now[3:] != row[3:]:
                return
            tx.chunks.lost.add(number)
        log.error("chunk %s is damaged on this disk and on no cloud yet: its file is lost", identity.hex())
        self._signals.packed()

    def _add_all(self, rows: Iterable[PendingRow]) -> None:
        for group in in_groups(rows, lambda row: row[2], _SEALED_AT_ONCE):
            new = [row for row in group if row[1] not in self._numbers]
            # Of the others one was taken over once more, or dropped and written again while it waits here.
            self._numbers.update((row[1], row[0]) for row in group if row[1] in self._numbers)
            here: list[tuple[PendingRow, bytes]] = []
            for row, data in zip(new, self._read(new), strict=True):
                if data is None:
                    self._skip(row)
                else:
                    here.append((row, data))
            sealed = self._maker.sealer.seal_all([(row[1], data) for row, data in here])
            for (row, _), one in zip(here, sealed, strict=True):
                self._add(row, one)
            self._cursor = max(self._cursor, group[-1][0])

    def _add(self, row: PendingRow, sealed: bytes) -> None:
        number, identity, length, _, _ = row
        if self._builder is not None and not self._maker.fits(self._builder, len(sealed)):
            self._send()
        if self._builder is None:
            self._builder = self._maker.builder()
            self._begun = self._monotonic()
        self._builder.add(identity, length, sealed)
        self._numbers[identity] = number
        if self._builder.sealed_size >= self.limits.target_bytes:
            self._send()

    def _send(self) -> None:
        """Hand the pack to the uploaders; wait while they are all busy, so that memory stays bounded."""
        builder, numbers = self._builder, self._numbers
        self._builder, self._numbers = None, {}
        assert builder is not None
        while not self._slots.acquire(timeout=0.5):
            if self._signals.stopping:
                return
        self._uploaders.submit(self._upload, self._maker.finish(self._fs, builder), numbers)

    def _upload(self, pack: EncodedPack, numbers: dict[bytes, int]) -> None:
        try:
            placement = self._disperse_patiently(pack)
            if placement is not None:
                self._record(pack, placement, numbers)
        except Exception:
            log.exception("pack %s could not be recorded; its chunks are packed again", pack.pack_id.hex())
            self._pack_again(numbers)
        finally:
            self._slots.release()
            if self._builder is None:  # the last one, for now
                self._trim()

    def _disperse_patiently(self, pack: EncodedPack) -> bytes | None:
        delay = self.limits.first_retry
        # What some clouds took counts when others are away.
        held = self._find_held(pack) if self._signals.wait_until_free() else {}
        while self._signals.wait_until_free():
            try:
                return self._maker.disperse(pack, held)
            except CloudsUnavailable as error:
                log.warning("pack %s waits for the clouds: %s", pack.pack_id.hex()[:16], error)
            if not self._signals.wait_to_retry(delay):
                break
            delay = min(delay * 2, self.limits.last_retry)
        return None

    def _find_held(self, pack: EncodedPack) -> dict[int, int]:
        """What clouds have of the pack, if it may have been under way when the daemon ended."""
        if not self._to_find or len(pack.shares[0]) < _WORTH_FINDING:
            return {}
        self._to_find -= 1
        return self._maker.find_held(pack)

    def _record(self, pack: EncodedPack, placement: bytes, numbers: dict[bytes, int]) -> None:
        """Note where the chunks are. They are packed again if the pack may be deleted already."""
        if not record_pack(self._fs, self._signer, pack, placement, numbers):
            self._pack_again(numbers)
        self._signals.packed()

    def _pack_again(self, numbers: dict[bytes, int]) -> None:
        with self._fs.state.transaction() as tx:
            tx.chunks.taken_over.update(numbers.values())
        self._signals.chunks_made()


# -- packs under way to the clouds: how they are made, and the record of where they came to be ----------
# Equal chunks in equal order make equal packs. A pack that has ended, or is about to, may be
# deleted from a cloud at any time later: so no other pack ever gets its name.


_FILLER = 16  # random bytes that make a pack another one


def is_ending(fs: FileSystem, pack: bytes) -> bool:
    """Whether the pack has ended or may end soon: no share of it is to be put or moved anywhere."""
    with fs.state.transaction() as tx:
        found = tx.packs.find(pack)
        if found is None:
            return bans_orphan(tx, pack)
        return not found.n or found.number in tx.chunks.condemned


class PackMaker:
    """Makes the packs of a volume and brings them to the clouds; shared by all who pack chunks."""

    def __init__(
        self,
        sealer: Sealer,
        tables: TableSealer,
        redundancy: Redundancy,
        clouds: PackClouds,
    ) -> None:
        self.sealer = sealer
        self._tables = tables
        self._clouds = clouds
        self.redundancy = redundancy
        """How packs are written from now on: it may be set at any time."""

    def builder(self) -> PackBuilder:
        return PackBuilder(self._tables)

    def fits(self, builder: PackBuilder, sealed: int, code: Redundancy | None = None) -> bool:
        """Whether a chunk of so many sealed bytes can be added, to a pack with *code* if it is given."""
        return builder.fits(sealed, sum(code or self.redundancy))

    def finish(self, fs: FileSystem, builder: PackBuilder, code: Redundancy | None = None) -> EncodedPack:
        """Encode what was gathered, as a pack with a name that may be used: with *code*, or as new packs
        are."""
        if code is None:
            k, n = choose_code(builder.sealed_size, *self.redundancy)
        else:
            k, n = code.k, code.f + code.k
        pack = builder.finish(k, n)
        while self._is_taken(fs, pack.pack_id):
            filler = fs.environment.random_bytes(_FILLER)
            identity = self.sealer.chunk_id(filler)
            builder.add(identity, len(filler), self.sealer.seal(identity, filler))
            pack = builder.finish(k, n)
        return pack

    def encode(
        self, fs: FileSystem, chunks: Iterable[tuple[ChunkRef, bytes]], code: Redundancy | None = None
    ) -> list[EncodedPack]:
        """Seal chunks, and encode them as as few packs as hold them; *code*: see `finish`."""
        builders: list[PackBuilder] = []
        for ref, data in chunks:
            sealed = self.sealer.seal(ref.id, data)
            if not builders or not self.fits(builders[-1], len(sealed), code):
                builders.append(self.builder())
            builders[-1].add(ref.id, ref.length, sealed)
        return [self.finish(fs, one, code) for one in builders]

    @staticmethod
    def _is_taken(fs: FileSystem, pack: bytes) -> bool:
        with fs.state.transaction() as tx:
            found = tx.packs.find(pack)
            is_doubted = found is not None and found.doubted
            return is_ending(fs, pack) or is_doubted or bans_strays_of(tx, pack)

    def find_held(self, pack: EncodedPack) -> dict[int, int]:
        """The clouds that have shares of the pack already, by share. Equal chunks make equal packs, so a pack
        that was under way when the daemon ended may have some."""
        return self._clouds.find_held(pack)

    def disperse(
        self,
        pack: EncodedPack,
        held: dict[int, int] | None = None,
        among: Collection[int] | None = None,
    ) -> bytes:
        """Put a pack on f+k clouds; its placement. Raises CloudsUnavailable. *held*: the clouds that have
        acknowledged shares before, by share; it is added to. *among*: the clouds that may be chosen, if not
        all."""
        return bytes(self._clouds.put_pack(pack, held, among))


def record_pack(
    fs: FileSystem, signer: Signer, pack: EncodedPack, placement: bytes, numbers: Mapping[bytes, int]
) -> bool:
    """Note where the chunks are; see `record_packs`. *numbers*: of the chunks by their ids."""
    return record_packs(fs, signer, [(pack, placement)], place_chunks(fs, numbers))


def place_chunks(
    fs: FileSystem, numbers: Mapping[bytes, int]
) -> Callable[[Transaction, int, Sequence[PackedChunk]], None]:
    """A function that makes a given pack the place where chunks with these *numbers* (by id) are read."""

    def place(tx: Transaction, number: int, chunks: Sequence[PackedChunk]) -> None:
        others = []
        for chunk in chunks:
            mine = numbers.get(chunk.id)
            if mine is None or not tx.chunks.packed(mine, number, chunk.offset, chunk.sealed):
                others.append(chunk)
        # Fillers, and chunks that have been dropped here since; but another device may come to name them.
        tx.chunks.packed_elsewhere([(number, others)])

    return place


def record_packs(
    fs: FileSystem,
    signer: Signer,
    placed: Sequence[tuple[EncodedPack, bytes]],
    place: Callable[[Transaction, int, Sequence[PackedChunk]], None],
    more: Sequence[Write] = (),
) -> bool:
    """Note where packs are, in the view and in one signed update of their registers and *more*.

    *place* gets each pack's number and chunks. False, and nothing is noted, when one of the packs is about
    to end, or this device was removed during the upload. Raises HybrisError, and nothing is noted, when this
    device may not sign the placement for another reason.
    """
    seqs: dict[bytes, int] = {}
    contents = [
        [PackedChunk(one.chunk_id, one.offset, one.sealed_length, one.length) for one in pack.entries]
        for pack, _ in placed
    ]
    writes: list[Write] = [
        (pack_key(pack.pack_id), PackRecord(pack.k, pack.n, placement, chunks).encode())
        for (pack, placement), chunks in zip(placed, contents, strict=True)
    ]
    with fs.state.transaction() as tx:
        if not signer.may_contribute(tx):
            return False
        if any(is_ending(fs, pack.pack_id) or bans_place(tx, pack.pack_id, at) for pack, at in placed):
            return False
        # Before anything here relies on the packs: that may be refused.
        stamp = signer.sign(tx, [*writes, *more], 0)
        for key, _ in writes:
            fs.changes.mark(key, 0)
            seqs[key] = fs.changes.seq
        for (pack, placement), chunks in zip(placed, contents, strict=True):
            place(tx, tx.packs.put(pack.pack_id, pack.k, pack.n, placement, stamp), chunks)
        fs.changes.signed(tx, seqs, stamp.clock)
    return True
