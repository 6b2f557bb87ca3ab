"""What garbage collection has found, and what is to be deleted."""

from __future__ import annotations

from hybrisfs.registers.values import Stamp
from hybrisfs.state.disposals import DeletionCandidate, Disposal, ShareOnCloud
from tests.tree.rig import Rig

FIRST, SECOND = b"\x01" * 32, b"\x02" * 32


def test_shares_are_deleted_once_the_clouds_hold_the_update_that_says_so(rig: Rig) -> None:
    disposals = rig.tx.disposals
    rig.db.rows.set_meta("published", 4)
    disposals.add(FIRST, 3, {1: 10, 2: 0}, 4)
    disposals.add(SECOND, 2, {1: 5}, 5)
    assert disposals.counts() == {1: 2, 2: 1} and disposals.total() == (2, 15)
    assert disposals.due_clouds() == {1, 2}
    assert disposals.due(1, 10) == [Disposal(FIRST, 3, 10)]
    rig.db.rows.set_meta("published", 5)
    assert [one.pack for one in disposals.due(1, 10)] == [FIRST, SECOND]
    assert [one.pack for one in disposals.due(1, 1)] == [FIRST]
    disposals.done(1, [FIRST])
    assert disposals.counts() == {1: 1, 2: 1}
    disposals.forget(2)
    assert disposals.counts() == {1: 1}


def test_what_others_have_deleted_is_forgotten(rig: Rig) -> None:
    disposals = rig.tx.disposals
    disposals.add(FIRST, 3, {1: 10, 2: 10}, 0)
    disposals.add(SECOND, 3, {1: 10}, 0)
    disposals.done_but(1, {SECOND})
    assert disposals.due(1, 10) == [Disposal(SECOND, 3, 10)] and disposals.counts() == {1: 1, 2: 1}


def test_leftovers_do_not_replace_what_is_to_be_deleted_already(rig: Rig) -> None:
    disposals = rig.tx.disposals
    disposals.add(FIRST, 3, {1: 10}, 0)
    disposals.add_leftovers([ShareOnCloud(1, FIRST, 0), ShareOnCloud(2, FIRST, 1)], 32)
    assert disposals.due(1, 10) == [Disposal(FIRST, 3, 10)]
    assert disposals.due(2, 10) == [Disposal(FIRST, 32, 0)]


def test_a_look_replaces_what_the_last_one_found(rig: Rig) -> None:
    idle, unnamed = rig.tx.deletion_candidates, rig.tx.orphans
    number = rig.tx.packs.put(FIRST, 1, 2, b"\x01\x02", Stamp(1, bytes(16)))
    idle.replace([DeletionCandidate(number + 1, 5, 1), DeletionCandidate(number, 7, 2)])
    idle.replace([DeletionCandidate(number, 7, 2)])
    idle.emptied([number])
    assert idle.all() == {number: DeletionCandidate(number, 0, 2)}
    idle.put_off([FIRST, SECOND], 9)
    assert idle.all() == {number: DeletionCandidate(number, 0, 9)}
    unnamed.replace({ShareOnCloud(1, FIRST, 0): 3})
    unnamed.replace({ShareOnCloud(1, FIRST, 1): 4})
    assert unnamed.all() == {ShareOnCloud(1, FIRST, 1): 4}
