"""The states of a chunk: what its row says, what follows from it, and which call moves it to which state.

Rules:

1. Bytes that no cloud is known to have are never evicted. So a chunk in a *dirty* state keeps its
   journal segment dirty (`Journal.dirty_pieces`), from the statement that brings it into the state to the one
   that ends it.
2. Only what is `CACHED` may be evicted: a cloud is known to have it.
3. A chunk is here, or has a pack. A row that says neither is damage, which `hybrisfs fsck` finds.
4. A member's word about a place is believed where nothing is lost by it (`chunk_places`). Else the place is a
   *spare*: one more to look at.
5. A number is never used again, so that an upload that ends late is not booked for another chunk.

What a row says (`pack` 0 is `ELSEWHERE`; *aside*: a row of `spare` for the chunk has `lost` set):

state       segment  pack  aside  what it means                                       its bytes here
UNKNOWN     no row                unknown to this device, or dropped                  none
PENDING     set      NULL         this device brings it to the clouds                 dirty
UNPLACED    set      0     no     its maker brings it, and has yet to say where       dirty
SET_ASIDE   set      0     yes    the clouds have lost its pack, and get it again     dirty
CACHED      set      > 0          here and on the clouds                              may be evicted
AWAITED     NULL     0     no     its maker has it, and has yet to say where          none
LOST        NULL     0     yes    the clouds have lost its pack; others may have it   none
CLOUD_ONLY  NULL     > 0          on the clouds                                       none

What moves it is in `MOVES`. What is known of a chunk besides outlives its state, or holds for a moment only:

proven      (column) this device has put the chunk into its pack, or read it there
spare       (table) further packs that are said to have it; each may be proven, too
condemned   (`ChunkStore.condemned`) packs that may be deleted: nothing new relies on them
doubted     (`ChunkStore.doubted`) packs that may be gone: nothing new relies on them either
deferred    (`ChunkStore.deferred`) PENDING, and nothing waits for it on its way to the clouds
taken over  (`ChunkStore.taken_over`) PENDING, and its turn to be packed may be over
lost        (`ChunkStore.lost`) PENDING, and damaged on this disk: nothing waits for it
soon named  (`ChunkStore.soon_named`) a file is about to name it: it is not dropped
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Final, NamedTuple

__all__ = [
    "CHUNK_COLUMNS",
    "ELSEWHERE",
    "EVICTABLE",
    "IS_ASIDE",
    "IS_SHOWN",
    "MAX_CHUNK",
    "MOVES",
    "ONLY_HERE",
    "ON_CLOUDS",
    "PASSING_OVER",
    "PENDING",
    "SET_ASIDE",
    "ChunkRef",
    "ChunkState",
    "CutRow",
    "ForbiddenMoveError",
    "state_of",
]

MAX_CHUNK: Final = 1 << 20
ELSEWHERE: Final = 0  # the pack of a chunk of which it is not known here where on the clouds it is
IS_ASIDE: Final = "EXISTS (SELECT 1 FROM spare a WHERE a.chunk = c.number AND a.lost)"
"""Of a row `c` of `chunk`: the clouds have lost its pack."""


class ChunkState(Enum):
    """See the table above. The value is what a row `c` of `chunk` says, in SQL."""

    UNKNOWN = "FALSE"
    PENDING = "c.segment IS NOT NULL AND c.pack IS NULL"
    UNPLACED = f"c.segment IS NOT NULL AND c.pack = {ELSEWHERE} AND NOT {IS_ASIDE}"
    SET_ASIDE = f"c.segment IS NOT NULL AND c.pack = {ELSEWHERE} AND {IS_ASIDE}"
    CACHED = "c.segment IS NOT NULL AND c.pack > 0"
    AWAITED = f"c.segment IS NULL AND c.pack = {ELSEWHERE} AND NOT {IS_ASIDE}"
    LOST = f"c.segment IS NULL AND c.pack = {ELSEWHERE} AND {IS_ASIDE}"
    CLOUD_ONLY = "c.segment IS NULL AND c.pack > 0"

    @property
    def is_here(self) -> bool:
        """Whether this disk has its bytes."""
        return self in (PENDING, UNPLACED, SET_ASIDE, CACHED)

    @property
    def is_on_clouds(self) -> bool:
        """Whether a cloud is known to have it."""
        return self in (CACHED, CLOUD_ONLY)

    @property
    def is_dirty(self) -> bool:
        """Whether its bytes are here and, as far as this device knows, on no cloud."""
        return self.is_here and not self.is_on_clouds

    @property
    def is_evictable(self) -> bool:
        """Whether its bytes may go from this disk."""
        return self.is_here and self.is_on_clouds


UNKNOWN, PENDING, UNPLACED, SET_ASIDE, CACHED, AWAITED, LOST, CLOUD_ONLY = ChunkState

MOVES: Final[Mapping[ChunkState, Mapping[str, set[ChunkState]]]] = {
    UNKNOWN: {
        "add": {PENDING},  # bytes that a file of ours names have been cut into a chunk
        "known": {AWAITED},  # another device's update names it
        "packed": {UNKNOWN},  # it was dropped while it was under way
        "packed_elsewhere": {CLOUD_ONLY},  # a member says that it has put it there
    },
    PENDING: {
        "add": {PENDING},  # equal bytes: those take the place of damaged ones
        "known": {PENDING},
        "take_over": {PENDING},  # its turn to be packed comes again
        "packed": {CACHED},
        "packed_elsewhere": {PENDING},  # a spare: this device reads it there before it relies on that
        "rely_on_spare": {CACHED},  # it has been read there
        "drop_unwanted": {PENDING, CLOUD_ONLY, UNKNOWN},  # shown; not shown, and a member says where; else
    },
    UNPLACED: {
        "add": {PENDING},  # a file of ours names it: its maker is not relied on
        "known": {UNPLACED},
        "take_over": {PENDING},  # its maker stays away, and this device has it
        "packed": {CACHED},
        "packed_elsewhere": {UNPLACED, CACHED},  # a spare; believed where no other device loses by it
        "rely_on_spare": {CACHED},
        "drop_unwanted": {UNPLACED, AWAITED},  # shown; not shown
        "damaged": {AWAITED},
    },
    SET_ASIDE: {
        "add": {PENDING},
        "known": {SET_ASIDE},
        "take_over": {PENDING},
        "packed": {CACHED},  # into another pack
        "packed_elsewhere": {SET_ASIDE},  # no claim is believed once the clouds have lost it
        "rely_on_spare": {CACHED},
        "take_back": {SET_ASIDE, CACHED},  # its pack is there after all; and it has been read there
        "end_pack": {SET_ASIDE, UNPLACED},  # the lost pack is not a place to look any more
        "drop_unwanted": {SET_ASIDE, LOST},
        "damaged": {LOST},
    },
    CACHED: {
        "add": {CACHED, PENDING},  # proven, in a pack that stays; else it goes to the clouds again
        "known": {CACHED},
        "packed": {CACHED},  # the pack that it was in becomes a spare
        "packed_elsewhere": {CACHED},
        "repacked": {CACHED},
        "rely_on_spare": {CACHED},
        "rely_on_spares": {CACHED},
        "set_aside": {SET_ASIDE, CACHED},  # no other pack has it; another one has
        "end_pack": {CACHED, PENDING, UNKNOWN},  # another pack has it; it is shown; it is not
        "forget": {CLOUD_ONLY},
        "forget_local": {CLOUD_ONLY},
        "forget_clean": {CACHED, CLOUD_ONLY},  # spared because of a pin; else
        "damaged": {CLOUD_ONLY},
    },
    AWAITED: {
        "add": {PENDING},
        "known": {AWAITED},
        "keep_all": {UNPLACED},  # a linked device has sent it
        "packed": {CLOUD_ONLY},
        "packed_elsewhere": {CLOUD_ONLY},
        "rely_on_spare": {CLOUD_ONLY},
    },
    LOST: {
        "add": {PENDING},
        "known": {LOST},
        "keep_all": {SET_ASIDE},  # a linked device has sent it
        "packed": {CLOUD_ONLY},
        "packed_elsewhere": {CLOUD_ONLY},
        "rely_on_spare": {CLOUD_ONLY},
        "take_back": {CLOUD_ONLY},
        "end_pack": {LOST, AWAITED},
    },
    CLOUD_ONLY: {
        "add": {CACHED, PENDING},
        "known": {CLOUD_ONLY},
        "keep_all": {CACHED},  # it was fetched
        "packed": {CLOUD_ONLY},
        "packed_elsewhere": {CLOUD_ONLY},
        "repacked": {CLOUD_ONLY},
        "rely_on_spare": {CLOUD_ONLY},
        "rely_on_spares": {CLOUD_ONLY},
        "set_aside": {LOST, CLOUD_ONLY},
        "end_pack": {CLOUD_ONLY, AWAITED, LOST, UNKNOWN},  # LOST: it was in a lost pack before
    },
}
"""To which states a call of `ChunkStore` may bring a chunk, by the state in which it finds it. *damaged* is
what `read` finds out. Where a call is not listed, `PASSING_OVER` ones leave the chunk as it is; the others
raise `ForbiddenMoveError` or OSError, and change nothing."""
PASSING_OVER: Final = frozenset(
    {
        "end_pack",
        "drop_unwanted",
        "forget",
        "forget_clean",
        "keep_all",
        "rely_on_spares",
        "repacked",
        "set_aside",
        "take_back",
    }
)


class ForbiddenMoveError(RuntimeError):
    """A call that is not for chunks in this state: a defect of this program."""

    def __init__(self, call: str, number: int) -> None:
        """*number*: of the chunk, or of a segment of chunks."""
        super().__init__(f"{call} is not for {number} as it is now")


def state_of(segment: int | None, pack: int | None, aside: bool = False) -> ChunkState:
    """The state of a chunk with such a row. Raises ValueError when the row breaks rule 3."""
    if pack is None and segment is None:
        raise ValueError("a chunk that is nowhere")
    if pack is None:
        return PENDING
    if pack != ELSEWHERE:
        return CLOUD_ONLY if segment is None else CACHED
    if segment is None:
        return LOST if aside else AWAITED
    return SET_ASIDE if aside else UNPLACED


ON_CLOUDS: Final = "pack > 0"  # as in the index `chunk_of_pack`
EVICTABLE: Final = " OR ".join(f"({state.value})" for state in ChunkState if state.is_evictable)
"""Of a row `c` of `chunk`."""
ONLY_HERE: Final = (
    "segment IS NOT NULL AND number IN "
    "(SELECT number FROM chunk WHERE pack IS NULL UNION ALL "
    f"SELECT number FROM chunk WHERE pack = {ELSEWHERE})"
)
"""Of a row of `chunk`: `ChunkState.is_dirty`. Like this, SQLite goes by the indexes of what is on no cloud,
and not by the one of all that is cached."""
IS_SHOWN: Final = (
    "(EXISTS (SELECT 1 FROM file_chunk f WHERE f.chunk = c.number) "
    "OR EXISTS (SELECT 1 FROM content_page g WHERE g.chunk = c.number))"
)
"""Of a row `c` of `chunk`: a file shows it, or its list of chunks is in it."""
CHUNK_COLUMNS: Final = "c.number, c.id, c.length, c.segment, c.position, c.pack, c.offset, c.sealed, c.proven"
"""Of a row `c` of `chunk`: what a `ChunkRef` is made of."""


class ChunkRef(NamedTuple):
    """A row of `chunk`."""

    number: int
    id: bytes
    length: int
    segment: int | None
    position: int | None
    pack: int | None
    offset: int | None
    sealed: int | None
    proven: int = 0

    @property
    def is_here(self) -> bool:
        """Whether this disk has its bytes."""
        return self.segment is not None

    @property
    def is_on_clouds(self) -> bool:
        """Whether a cloud is known to have it."""
        return bool(self.pack)

    @property
    def is_elsewhere(self) -> bool:
        """Whether other devices see to it, and it is not known where on the clouds it is."""
        return self.pack == ELSEWHERE


class CutRow(NamedTuple):
    """A chunk just cut: its id, where its bytes lie in the journal, and the hashes of its pieces
    (`hybrisfs.state.pieces`), if it has any."""

    id: bytes
    length: int
    segment: int
    position: int
    pieces: bytes = b""
