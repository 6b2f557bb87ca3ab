"""The history hash covers every stamp and every update hash it is made of."""

from __future__ import annotations

from hypothesis import assume, given
from hypothesis import strategies as st

from sync.history import history_hash
from sync.vector import VersionVector
from tests.sync.support import KEYS, Device, vectors


def filled(byte: int) -> bytes:
    return bytes([byte]) * 32


@given(vectors, vectors)
def test_different_vectors_hash_differently(one: VersionVector, two: VersionVector) -> None:
    assume(one != two)
    same = filled(1)
    assert history_hash(one, lambda w, c: same) != history_hash(two, lambda w, c: same)


@given(vectors, st.data())
def test_every_update_hash_counts(vector: VersionVector, data: st.DataObject) -> None:
    assume(len(vector))
    changed = data.draw(st.sampled_from(sorted(vector.items())))
    plain = history_hash(vector, lambda w, c: filled(1))
    assert history_hash(vector, lambda w, c: filled(1 + ((w, c) == changed))) != plain
    assert history_hash(vector, lambda w, c: filled(1)) == plain


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
