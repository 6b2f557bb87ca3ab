"""The table of the states of chunks and the SQL that moves them say the same."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from itertools import combinations
from pathlib import Path

import pytest

from hybrisfs.environment import SYSTEM
from hybrisfs.registers.tree import PackedChunk
from hybrisfs.state.chunk_states import (
    AWAITED,
    CACHED,
    CLOUD_ONLY,
    EVICTABLE,
    LOST,
    MOVES,
    ON_CLOUDS,
    ONLY_HERE,
    PASSING_OVER,
    PENDING,
    SET_ASIDE,
    UNKNOWN,
    UNPLACED,
    ChunkState,
    CutRow,
    ForbiddenMoveError,
    state_of,
)
from hybrisfs.state.chunks import ChunkStore
from hybrisfs.state.database import Database
from hybrisfs.state.journal import Journal, JournalLimits
from tests.surroundings import limited
from tests.tree.rig import SEALER, VOLUME

CONTENT = b"a chunk of some bytes"
ID = SEALER.chunk_id(CONTENT)
# Packs: the one that the chunk is in, and others.
HERE, THERE, LOST_BEFORE = 1, 2, 3


class Store:
    """Chunks in a database and a journal of their own, and the one chunk that is looked at."""

    def __init__(self, directory: Path, new: bytes) -> None:
        (directory / "volume.db").write_bytes(new)
        self.db = Database(directory / "volume.db", SYSTEM)
        self.journal = Journal(
            directory / "journal", limited(JournalLimits(segment_size=4096)), budget=1 << 20
        )
        self.chunks = ChunkStore(self.db.rows, self.journal, SEALER)
        self.number = 1
        self.pinned: set[int] = set()
        self.db.rows.executemany(
            "INSERT INTO pack (number, id, k, n, placement) VALUES (?, ?, 1, 1, x'00')",
            [(pack, bytes([pack])) for pack in (HERE, THERE, LOST_BEFORE)],
        )

    def close(self) -> None:
        self.journal.close()
        self.db.close()

    @property
    def state(self) -> ChunkState:
        return self.chunks.state(self.number)

    @property
    def segment(self) -> int:
        segment = self.chunks.get(self.number).segment
        assert segment is not None
        return segment

    def cut(self) -> None:
        self.chunks.add(CutRow(ID, len(CONTENT), *self.journal.append(CONTENT)))

    def said_to_be(self, pack: int) -> None:
        self.chunks.packed_elsewhere([(pack, [PackedChunk(ID, 0, 9, len(CONTENT))])])

    def note_spare(self, pack: int, *, proven: bool = False, lost: bool = False) -> None:
        self.db.rows.execute(
            "INSERT OR IGNORE INTO spare (pack, chunk, offset, sealed, proven, lost) "
            "SELECT ?, number, 0, 9, ?, ? FROM chunk",
            (pack, proven, lost),
        )


def _cached(store: Store) -> None:
    store.cut()
    store.chunks.packed(store.number, HERE, 0, 9)


def _unplaced(store: Store) -> None:
    store.chunks.known({ID: len(CONTENT)})
    store.chunks.keep(store.number, CONTENT)


def _set_aside(store: Store) -> None:
    _cached(store)
    store.chunks.set_aside(HERE)


def _lost(store: Store) -> None:
    store.said_to_be(HERE)
    store.chunks.set_aside(HERE)


MAKE: dict[ChunkState, Callable[[Store], object]] = {
    UNKNOWN: lambda store: None,
    PENDING: Store.cut,
    UNPLACED: _unplaced,
    SET_ASIDE: _set_aside,
    CACHED: _cached,
    AWAITED: lambda store: store.chunks.known({ID: len(CONTENT)}),
    LOST: _lost,
    CLOUD_ONLY: lambda store: store.said_to_be(HERE),
}


def _spoil(store: Store) -> None:
    path = store.journal.directory / f"{store.segment:08d}.segment"
    path.write_bytes(bytes(path.stat().st_size))
    store.chunks._recent.clear()
    store.chunks._verified.clear()
    store.chunks.read(store.chunks.get(store.number), 0, len(CONTENT))


def _rely_on_spare(store: Store) -> None:
    store.note_spare(THERE)
    store.chunks.rely_on_spare(store.number, THERE)


CALLS: dict[str, Callable[[Store], object]] = {
    "add": Store.cut,
    "known": lambda store: store.chunks.known({ID: len(CONTENT)}),
    "take_over": lambda store: store.chunks.take_over(store.number),
    "keep_all": lambda store: store.chunks.keep_all({store.number: CONTENT}),
    "packed": lambda store: store.chunks.packed(store.number, THERE, 0, 9),
    "packed_elsewhere": lambda store: store.said_to_be(THERE),
    "repacked": lambda store: store.chunks.repacked(ID, HERE, THERE, 0, 9),
    "rely_on_spare": _rely_on_spare,
    "rely_on_spares": lambda store: store.chunks.rely_on_spares(HERE, gone=True),
    "set_aside": lambda store: store.chunks.set_aside(HERE),
    "take_back": lambda store: store.chunks.take_back(HERE),
    "end_pack": lambda store: store.chunks.end_pack(bytes([HERE]), 1, b"branch"),
    "forget": lambda store: store.chunks.forget([store.number]),
    "forget_local": lambda store: store.chunks.forget_local([store.segment]),
    "forget_clean": lambda store: store.chunks.forget_clean(store.segment, store.pinned),
    "drop_unwanted": lambda store: store.chunks.drop_unwanted(),
    "damaged": _spoil,
}
OF_WHAT_IS_HERE = ("forget_local", "forget_clean", "damaged")


def _show(store: Store) -> None:
    store.db.rows.execute("INSERT INTO file_chunk (ino, offset, length, chunk) VALUES (7, 0, 1, 1)")


def _prove(store: Store, proven: bool) -> None:
    store.db.rows.execute("UPDATE spare SET proven = ?", (proven,))
    store.db.rows.execute("UPDATE chunk SET proven = ? WHERE pack > 0", (proven,))


def _lose_before(store: Store) -> None:
    """Nobody is to look in that pack any more."""
    store.note_spare(LOST_BEFORE, lost=True)
    store.db.rows.execute("UPDATE pack SET doubted = 1 WHERE number = ?", (LOST_BEFORE,))


# What a call may find besides the state.
CIRCUMSTANCES: dict[str, Callable[[Store], object]] = {
    "a file shows it": _show,
    "another pack has it": lambda store: store.note_spare(THERE, proven=True),
    "another pack is said to have it": lambda store: store.note_spare(THERE),
    "a pack with it was lost before": _lose_before,
    "its pack is condemned": lambda store: store.chunks.condemned.add([HERE]),
    "its place is a claim": lambda store: _prove(store, False),
    "its place is proven": lambda store: _prove(store, True),
    "a pinned file shows it": lambda store: store.pinned.add(store.number),
}


@pytest.fixture(scope="module")
def new_store() -> Iterator[Callable[[], Store]]:
    with ExitStack() as end:
        root = Path(end.enter_context(tempfile.TemporaryDirectory(prefix="hybrisfs-chunks-")))
        Database.create(root / "new.db", VOLUME)
        new = (root / "new.db").read_bytes()

        def make() -> Store:
            directory = Path(tempfile.mkdtemp(dir=root))
            return Store(directory, new)

        yield make


def stores(new_store: Callable[[], Store], state: ChunkState) -> Iterator[Store]:
    """The chunk in this state, in all circumstances, and in each two of them."""
    for some in ((), *((one,) for one in CIRCUMSTANCES), *combinations(CIRCUMSTANCES, 2)):
        store = new_store()
        MAKE[state](store)
        store.chunks.soon_named.clear()
        assert store.state is state
        for one in some:
            CIRCUMSTANCES[one](store)
        if store.state is state:
            yield store
        store.close()


def check(store: Store, state: ChunkState) -> None:
    """The row, and what the journal keeps for it, are those of the state."""
    found = {
        one: store.db.rows.execute(f"SELECT count(*) FROM chunk c WHERE {one.value}").fetchone()[0]
        for one in ChunkState
    }
    assert {one for one, count in found.items() if count} == {state} - {UNKNOWN}
    for condition, holds in (
        (ONLY_HERE, state.is_dirty),
        (EVICTABLE, state.is_evictable),
        (ON_CLOUDS, state.is_on_clouds),
        ("segment IS NOT NULL", state.is_here),
    ):
        (count,) = store.db.rows.execute(f"SELECT count(*) FROM chunk c WHERE {condition}").fetchone()
        assert bool(count) is holds, condition
    pins = {segment: count for segment, count in store.journal.dirty_pieces.items() if count}
    assert pins == ({store.segment: 1} if state.is_dirty else {})


@pytest.mark.parametrize("state", ChunkState)
def test_a_row_says_its_state(state: ChunkState, new_store: Callable[[], Store]) -> None:
    store = new_store()
    MAKE[state](store)
    assert store.state is state
    check(store, state)
    store.close()


def test_a_row_that_says_nothing_is_no_state() -> None:
    with pytest.raises(ValueError, match="nowhere"):
        state_of(None, None, False)


def test_only_what_the_clouds_have_may_be_evicted() -> None:
    assert {state for state in ChunkState if state.is_evictable} == {CACHED}
    assert {state for state in ChunkState if state.is_dirty} == {PENDING, UNPLACED, SET_ASIDE}
    for call in ("forget", "forget_local", "forget_clean"):
        assert {state for state in ChunkState if call in MOVES[state]} == {CACHED}


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("state", ChunkState)
def test_a_call_brings_a_chunk_where_the_table_says(
    state: ChunkState, call: str, new_store: Callable[[], Store]
) -> None:
    if not state.is_here and call in OF_WHAT_IS_HERE:
        assert call not in MOVES[state]
        return
    reached = set()
    for store in stores(new_store, state):
        if call in MOVES[state]:
            CALLS[call](store)
            reached.add(store.state)
        elif call in PASSING_OVER:
            CALLS[call](store)
            assert store.state is state
        else:
            with pytest.raises((ForbiddenMoveError, OSError)):
                CALLS[call](store)
            assert store.state is state
        check(store, store.state)
    assert reached == MOVES[state].get(call, set())


def test_the_table_names_all_calls() -> None:
    named = {call for moves in MOVES.values() for call in moves}
    assert named == CALLS.keys() and named >= PASSING_OVER
    assert named - {"damaged"} <= {*dir(ChunkStore)}
