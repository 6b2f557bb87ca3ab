"""Changes on their way to the clouds: unsigned, signed, shipped."""

from __future__ import annotations

import pytest

from hybrisfs.registers.tree import attr_key, content_key, pack_key, place_key
from tests.tree.rig import Rig

NODE, OTHER = b"\x07" * 16, b"\x08" * 16


@pytest.fixture
def empty(rig: Rig) -> Rig:
    """What the root has to tell is shipped."""
    rig.fs.flush(rig.tx)
    rig.tx.pending.drop([key for key, _, _ in rig.tx.pending.unsigned()])
    return rig


def test_a_change_is_unsigned_until_an_update_holds_it(empty: Rig) -> None:
    pending = empty.tx.pending
    pending.put([(b"one", 7, 21), (b"two", 7, 22), (b"three", 8, 23)], 23)
    assert pending.newest() == 23
    pending.sign(5, [(b"one", 21), (b"two", 20)])  # two has changed again since
    assert sorted(pending.unsigned()) == [(b"three", 8, 23), (b"two", 7, 22)]
    assert pending.count_nodes() == 2
    pending.put([(b"one", 7, 24)], 24)
    assert (b"one", 7, 24) in pending.unsigned()
    pending.drop([b"one", b"three"])
    assert pending.unsigned() == [(b"two", 7, 22)] and pending.count_nodes() == 1


def test_a_change_is_pending_until_the_clouds_hold_its_update(empty: Rig) -> None:
    pending = empty.tx.pending
    pending.put([(b"one", 7, 21), (b"two", 8, 22), (b"of no node", 0, 23)], 23)
    pending.sign(5, [(b"one", 21)])
    pending.sign(6, [(b"two", 22), (b"of no node", 23)])
    pending.ship(5)
    assert empty.db.rows.shipped_clock() == 5 and pending.count_nodes() == 1
    pending.ship(6)
    assert pending.count_nodes() == 0


@pytest.mark.parametrize("key", [attr_key(NODE), content_key(NODE), place_key(NODE, 0), place_key(NODE, 9)])
def test_what_is_pending_of_a_node(empty: Rig, key: bytes) -> None:
    pending = empty.tx.pending
    pending.put([(key, 7, 21), (pack_key(OTHER * 2), 0, 22)], 22)
    assert pending.is_node_pending(NODE) and not pending.is_node_pending(OTHER)
    assert pending.packs() == {pack_key(OTHER * 2)}
    pending.sign(5, [(key, 21)])
    assert pending.is_node_pending(NODE)
    pending.ship(5)
    assert not pending.is_node_pending(NODE)


def test_what_is_held_is_not_for_the_clouds(empty: Rig) -> None:
    pending, held = empty.tx.pending, empty.tx.held
    key = attr_key(NODE)
    held.hold(1, key, 1)
    pending.put([(key, 7, 21)], 21)
    assert held.keys_held() == {key}
    assert not pending.is_node_pending(NODE) and pending.count_nodes() == 0
    held.let_go([key])
    assert held.keys_held() == set()
    assert pending.is_node_pending(NODE) and pending.count_nodes() == 1
