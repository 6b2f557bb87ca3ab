"""What updates say of packs: where they are, that they have ended, that others took their place.

The registers of packs are not kept as such; they become rows of `pack`, `chunk` and `spare`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import partial
from itertools import groupby
from typing import NamedTuple

from hybrisfs.merge.origins import LogOrigins
from hybrisfs.registers.tree import PackRecord, Rewritten, pack_key
from hybrisfs.registers.values import Stamp
from hybrisfs.state.file_chunks import shown_only_by
from hybrisfs.state.state import Transaction
from hybrisfs.tree.filesystem import FileSystem
from sync import DecodeError

__all__ = ["Packs", "Placement"]


class Placement(NamedTuple):
    """What an update says of a pack: the value of its register, None when it has ended.

    *hearsay*: no device known here has signed it, or whether all had agreed is unknown.
    """

    pack: bytes
    value: bytes | None
    stamp: Stamp
    hearsay: bool = False


class Packs:
    """Takes in what other devices say of packs."""

    def __init__(self, fs: FileSystem) -> None:
        self._fs = fs

    def take(self, tx: Transaction, placements: Sequence[Placement]) -> None:
        """Note where other devices say that they have put or moved chunks, unless something later is known,
        and which packs have ended for good. In the order given; malformed values are skipped. A
        place stays a member's claim until it is proven: see `ChunkStore.packed_elsewhere`."""
        named = {one.pack for one in placements}
        known = set(tx.packs.numbers(named))
        new: dict[bytes, tuple[PackRecord, Placement]] = {}
        for one in placements:
            record = _decoded(one.value)
            if one.value is not None and record is None:
                continue
            if record is not None and one.pack not in known:
                known.add(one.pack)
                new[one.pack] = record, one
                continue
            self._take_new(tx, new)
            new.clear()
            if record is not None:
                self._take_again(tx, record, one)
            elif one.hearsay:
                tx.chunks.doubt_pack(one.pack, one.stamp.clock, one.stamp.branch)
            else:
                tx.chunks.end_pack(one.pack, one.stamp.clock, one.stamp.branch)
            known.add(one.pack)
        self._take_new(tx, new)

    def _take_new(self, tx: Transaction, records: Mapping[bytes, tuple[PackRecord, Placement]]) -> None:
        """Packs that are not known yet."""
        numbers = tx.packs.learn([(pack, record, one.stamp) for pack, (record, one) in records.items()])
        for (hearsay, writer), some in groupby(records.items(), key=_said_by):
            tx.chunks.packed_elsewhere(
                [(numbers[pack], record.chunks) for pack, (record, _) in some],
                hearsay=hearsay,
                vouched=partial(self._made_by, tx, writer),
            )

    def _made_by(self, tx: Transaction, writer: bytes, chunks: Collection[int]) -> set[int]:
        """The chunks that only files written by the device of this branch show."""
        self._fs.flush(tx)
        return shown_only_by(tx, writer, chunks)

    def _take_again(self, tx: Transaction, record: PackRecord, one: Placement) -> None:
        """Take in a pack that is known already or was said to be gone. The id of a pack fixes its code: an
        update that says otherwise is wrong. The word of a contributor counts as long as no other device names
        the pack."""
        packs, overrules = tx.packs, False
        if LogOrigins(tx).is_contributed(one.stamp):
            if not packs.is_named_by(one.pack, one.stamp.branch):
                return
        else:
            overrules = self._is_only_contributed(tx, one.pack)
        number = packs.learn_again(one.pack, record, one.stamp, overrules=overrules)
        if number is not None:
            tx.chunks.packed_elsewhere(
                [(number, record.chunks)],
                hearsay=one.hearsay,
                vouched=partial(self._made_by, tx, one.stamp.branch),
            )

    def _is_only_contributed(self, tx: Transaction, pack: bytes) -> bool:
        found = tx.packs.find(pack)
        return found is not None and LogOrigins(tx).is_contributed(found.stamp)

    def rewrite(
        self, tx: Transaction, pack: bytes, value: bytes | None, writes: Mapping[bytes, bytes | None]
    ) -> None:
        """Read the chunks of a pack from now on from the packs that the same update, with all its *writes*,
        names. The pack stays needed until the chunks have been read there once."""
        former = tx.packs.find(pack)
        if former is None:
            return
        try:
            into = Rewritten.decode(value or b"").packs
            records = {one: PackRecord.decode(writes.get(pack_key(one)) or b"") for one in into}
        except DecodeError:
            return
        chunks, numbers = tx.chunks, tx.packs.numbers(records)
        for one in (one for one in records if one in numbers):
            for chunk in records[one].chunks:
                chunks.repacked(
                    chunk.id, former.number, numbers[one], chunk.offset, chunk.sealed, proven=False
                )


def _said_by(item: tuple[bytes, tuple[PackRecord, Placement]]) -> tuple[bool, bytes]:
    return item[1][1].hearsay, item[1][1].stamp.branch


def _decoded(value: bytes | None) -> PackRecord | None:
    try:
        return None if value is None else PackRecord.decode(value)
    except DecodeError:
        return None
