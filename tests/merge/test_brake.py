"""Mass deletion by another device waits for a person here; everything else goes on."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from hybrisfs.errors import UsageError
from hybrisfs.merge.brake import Brake, removals
from sync import decode_signed
from tests.merge.fleet import Fleet

FILES = 200


@pytest.fixture
def fleet() -> Iterator[Fleet]:
    fleet = Fleet(2)
    for number in range(FILES):
        fleet[0].write(f"file {number}", b"%d" % number)
    fleet.meet()
    yield fleet
    fleet.discard()


def _delete(fleet: Fleet, first: int, last: int) -> None:
    for number in range(first, last):
        fleet[0].remove(f"file {number}")
    fleet[0].sign()


def test_it_waits_and_is_accepted(fleet: Fleet) -> None:
    _delete(fleet, 0, 150)
    fleet[0].write("later", b"depends on it")
    fleet.send(0, 1)
    assert len(fleet[1].names()) == FILES
    sharing = fleet[1].rig.sharing
    [waiting] = sharing.deletions.all()
    assert (waiting["names"], waiting["of"]) == (150, FILES)
    with pytest.raises(UsageError):
        sharing.deletions.accept("beef")
    sharing.deletions.accept(str(waiting["id"]))
    assert sharing.deletions.all() == []
    assert len(fleet[1].names()) == FILES - 150 + 1
    fleet.meet()
    assert fleet[0].tree() == fleet[1].tree()


def test_it_is_undone_everywhere(fleet: Fleet) -> None:
    before = fleet[0].tree()
    _delete(fleet, 0, 40)  # in several updates: what counts is the sum
    fleet.send(0, 1)
    assert len(fleet[1].names()) == FILES - 40
    _delete(fleet, 40, 100)
    fleet.send(0, 1)
    assert len(fleet[1].names()) == FILES - 40
    [waiting] = fleet[1].rig.sharing.deletions.all()
    assert waiting["names"] == 100
    fleet[1].rig.sharing.deletions.undo(str(waiting["id"]))
    fleet.meet()
    assert fleet[0].tree() == fleet[1].tree() == before


def test_few_deletions_pass(fleet: Fleet) -> None:
    _delete(fleet, 0, 50)
    fleet.send(0, 1)
    assert len(fleet[1].names()) == FILES - 50
    assert fleet[1].rig.sharing.deletions.all() == []


def test_what_nobody_here_has_seen_is_not_counted(fleet: Fleet) -> None:
    for number in range(2 * FILES):
        fleet[0].write(f"scratch {number}", b"%d" % number)
    fleet[0].sign()
    for number in range(2 * FILES):
        fleet[0].remove(f"scratch {number}")
    fleet[0].sign()
    fleet.send(0, 1)
    assert fleet[1].rig.sharing.deletions.all() == []
    assert fleet[0].tree() == fleet[1].tree()


def test_nothing_ever_waits_when_all_may_be_removed(fleet: Fleet) -> None:
    _delete(fleet, 0, FILES)
    update = decode_signed(fleet[0].log()[-1])
    found = removals(update.writes)
    assert len(found) == FILES
    assert Brake(0.99).holds(update, found, FILES, 0.0)
    assert not Brake(1.0).holds(update, found, FILES, 0.0)
    assert not Brake(1.0).holds(update, found, FILES // 2, 0.0), "whatever was counted"


def test_what_is_no_longer_too_much_waits_no_more(fleet: Fleet) -> None:
    _delete(fleet, 0, 150)
    fleet.send(0, 1)
    deletions = fleet[1].rig.sharing.deletions
    [waiting] = deletions.all()
    for number in range(2 * FILES):
        fleet[1].write(f"other {number}", b"%d" % number)
    fleet.send(0, 1)
    assert len(fleet[1].names()) == 3 * FILES - 150
    assert deletions.all() == []
    with pytest.raises(UsageError):
        deletions.accept(str(waiting["id"]))


def test_own_deletions_never_wait(fleet: Fleet) -> None:
    _delete(fleet, 0, FILES)
    fleet[0].receive(fleet[0].log())
    assert fleet[0].rig.sharing.deletions.all() == []
