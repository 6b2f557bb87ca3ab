"""The history hash covers every stamp and every update hash it is made of."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from sync.update import history_hash
from tests.sync.support import KEYS, Device, clocks, ids

newest = st.lists(st.tuples(ids, clocks, st.binary(min_size=32, max_size=32)), max_size=6, unique=True)


@given(newest, newest)
def test_different_histories_hash_differently(
    one: list[tuple[bytes, int, bytes]], two: list[tuple[bytes, int, bytes]]
) -> None:
    assert (history_hash(one) == history_hash(two)) == (sorted(one) == sorted(two))
    assert history_hash(one) == history_hash(reversed(one))


def test_a_change_deep_in_the_past_changes_the_hash() -> None:
    """By recursion: two logs of equal vectors that differ in their oldest update only."""
    logs = []
    for value in (b"1", b"2"):
        writer, relay = Device(KEYS[0]), Device(KEYS[1])
        writer.write((b"key", value))
        relay.receive_all(writer.order)
        relay.write()
        writer.receive_all(relay.order[1:])
        writer.write()
        logs.append(writer.state)
    assert logs[0].vector == logs[1].vector
    assert logs[0].history() != logs[1].history()
