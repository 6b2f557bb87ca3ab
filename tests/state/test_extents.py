"""The extent map against a list that says of every byte where it is staged."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from hybrisfs.state.extents import ZEROS, ExtentMap

_SIZE = 40
ranges = st.tuples(st.integers(0, _SIZE - 1), st.integers(1, _SIZE)).map(
    lambda pair: (pair[0], min(pair[0] + pair[1], _SIZE))
)
operations = st.lists(
    st.one_of(
        st.tuples(st.just("write"), ranges, st.integers(ZEROS, 2)),
        st.tuples(st.just("append"), ranges, st.integers(1, 2)),
        st.tuples(st.just("truncate"), ranges, st.just(0)),
        st.tuples(st.just("snapshot"), ranges, st.just(0)),
        st.tuples(st.just("settle"), ranges, st.just(0)),
        st.tuples(st.just("flush"), ranges, st.just(0)),
    ),
    max_size=30,
)
Byte = tuple[int, int, int]  # segment, position, epoch


class Model:
    """Where each byte of a file is, and the rows of a database that follows `take_changes`."""

    def __init__(self) -> None:
        self.dirty_pieces: Counter[int] = Counter()
        self.map = ExtentMap(self.dirty_pieces)
        self.bytes: list[Byte | None] = [None] * _SIZE
        self.rows: dict[int, tuple[int, int, int]] = {}
        self.end_of_segment: Counter[int] = Counter()
        self.snapshots: list[int] = []

    def apply(self, action: str, start: int, end: int, segment: int) -> None:
        if action in ("write", "append"):
            if action == "append":
                start, end = (at := max((x.end for x in self.map), default=0)), at + end - start
                if end > _SIZE:
                    return
            position = self.end_of_segment[segment]
            self.end_of_segment[segment] += end - start
            self.map.write(start, end, segment, 0 if segment == ZEROS else position)
            for at in range(start, end):
                self.bytes[at] = (
                    segment,
                    0 if segment == ZEROS else position + at - start,
                    self.map.epoch,
                )
        elif action == "truncate":
            self.map.truncate(start)
            self.bytes[start:] = [None] * (_SIZE - start)
        elif action == "snapshot":
            self.snapshots.append(self.map.epoch)
            assert self.map.snapshot() == list(self.map)
        elif action == "settle" and self.snapshots:
            last = self.snapshots.pop()
            self.map.drop_epochs(last)
            self.bytes = [one if one and one[2] > last else None for one in self.bytes]
        else:
            gone, come = self.map.take_changes()
            for at in gone:
                self.rows.pop(at, None)
            for one in come:
                self.rows[one.start] = one.end, one.segment, one.position


@given(operations)
def test_every_byte_is_where_it_was_put_last(steps: list[tuple[str, tuple[int, int], int]]) -> None:
    model = Model()
    for action, (start, end), segment in steps:
        model.apply(action, start, end, segment)
        items = list(model.map)
        assert all(one.end <= other.start for one, other in pairwise(items))
        found: list[Byte | None] = [None] * _SIZE
        for item in items:
            for at in range(item.start, item.end):
                position = 0 if item.segment == ZEROS else item.position + at - item.start
                found[at] = item.segment, position, item.epoch
        assert found == model.bytes
        assert +model.dirty_pieces == Counter(item.segment for item in items if item.segment != ZEROS)


@given(operations, ranges)
def test_pieces_cover_a_range(steps: list[tuple[str, tuple[int, int], int]], wanted: tuple[int, int]) -> None:
    model = Model()
    for action, (start, end), segment in steps:
        model.apply(action, start, end, segment)
    at = wanted[0]
    for piece in model.map.pieces(*wanted):
        assert piece.start == at < piece.end
        for offset in range(piece.start, piece.end):
            one = model.bytes[offset]
            assert (one is None) == (piece.segment is None)
            if one is not None and one[0] != ZEROS:
                assert (piece.segment, piece.position + offset - piece.start) == one[:2]
        at = piece.end
    assert at == wanted[1]


@given(operations, ranges)
def test_only_bytes_of_this_epoch_are_overwritten_in_place(
    steps: list[tuple[str, tuple[int, int], int]], wanted: tuple[int, int]
) -> None:
    model = Model()
    for action, (start, end), segment in steps:
        model.apply(action, start, end, segment)
    spot = model.map.in_place(*wanted)
    if spot is not None:
        expected = [(spot[0], spot[1] + n, model.map.epoch) for n in range(wanted[1] - wanted[0])]
        assert model.bytes[wanted[0] : wanted[1]] == expected


@given(operations)
def test_the_database_can_follow(steps: list[tuple[str, tuple[int, int], int]]) -> None:
    model = Model()
    for action, (start, end), segment in steps:
        model.apply(action, start, end, segment)
    model.apply("flush", 0, 1, 0)
    assert model.rows == {one.start: (one.end, one.segment, one.position) for one in model.map}
    assert model.map.take_changes() == ([], [])


def test_what_was_loaded_is_never_overwritten_in_place() -> None:
    pieces: Counter[int] = Counter()
    loaded = ExtentMap(pieces, [(0, 10, 1, 0)])
    assert loaded.in_place(2, 4) is None
    loaded.write(2, 4, 2, 0)
    assert loaded.in_place(2, 4) == (2, 0)
    loaded.drop_epochs(loaded.epoch)
    assert len(loaded) == 0
