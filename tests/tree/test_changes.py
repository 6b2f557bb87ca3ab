"""The set of changes that are still to be signed, and what waits for it."""

from __future__ import annotations

from hybrisfs.tree.changes import Changes
from tests.tree.rig import Rig


def changes_of(rig: Rig) -> Changes:
    """Those that a daemon finds which starts now."""
    return Changes(rig.tx)


def test_signing_takes_only_what_was_cut(rig: Rig) -> None:
    changes = changes_of(rig)
    changes.mark(b"one", 1)
    changes.mark(b"two", 2)
    cut = {key: seq for key, (_, seq) in changes.unsigned.items()}
    changes.begin_cut(set(cut), changes.seq)
    changes.mark(b"two", 2)
    changes.signed(rig.tx, cut, 7)
    changes.end_cut()
    assert set(changes.unsigned) == {b"two"}
    assert changes_of(rig).unsigned == changes.unsigned
    assert changes.pending_nodes(rig.tx) == 2
    rig.tx.pending.ship(7)
    assert changes.pending_nodes(rig.tx) == 1
    assert rig.db.rows.shipped_clock() == 7


def test_a_change_made_over_and_over_counts_as_old_until_it_is_signed(rig: Rig) -> None:
    """Who waits for what was written before must not be told it is done by a newer change of the same."""
    changes = changes_of(rig)
    changes.mark(b"log", 1)
    target = changes.seq
    changes.mark(b"log", 1)
    assert changes.unsigned_up_to(target)
    cut = {key: seq for key, (_, seq) in changes.unsigned.items()}
    changes.mark(b"log", 1)
    changes.signed(rig.tx, cut, 1)
    assert not changes.unsigned_up_to(target)
    assert b"log" in changes.unsigned


def test_a_change_made_during_a_cut_is_not_taken_for_a_later_one(rig: Rig) -> None:
    changes = changes_of(rig)
    changes.mark(b"log", 1)
    cut = {key: seq for key, (_, seq) in changes.unsigned.items()}
    changes.mark(b"log", 1)
    target = changes.seq
    changes.mark(b"log", 1)
    changes.signed(rig.tx, cut, 1)
    assert changes.unsigned_up_to(target)
    changes.drop(b"log")
    assert not changes.unsigned_up_to(target)


def test_nobody_need_hear_of_what_nobody_knows(rig: Rig) -> None:
    changes = changes_of(rig)
    for key in (b"unknown", b"known", b"being signed"):
        changes.mark(key, 1)
    changes.begin_cut({b"being signed"}, changes.seq)
    changes.retire(b"unknown", 1, stamp=0)
    changes.retire(b"known", 1, stamp=5 << 16)
    changes.retire(b"being signed", 1, stamp=0)
    assert set(changes.unsigned) == {b"known", b"being signed"}
    changes.flush(rig.tx)
    assert set(changes_of(rig).unsigned) == {b"known", b"being signed"}


def test_the_first_change_after_a_cut_is_announced(rig: Rig) -> None:
    changes = changes_of(rig)
    calls = []
    changes.begun.listen(lambda: calls.append(changes.seq))
    changes.mark(b"a", 1)
    changes.mark(b"b", 1)
    assert len(calls) == 1
    changes.begin_cut({b"a", b"b"}, changes.seq)
    changes.mark(b"a", 1)
    assert len(calls) == 2
