"""Garbage collection where a device only reads: it is asked like any other, and nobody answers it."""

from __future__ import annotations

from hybrisfs.members.roles import Role
from tests.gc.support import Collecting
from tests.gc.test_consent import advance, fleet, pack_of, retire
from tests.merge.fleet import NAMES, Fleet

__all__ = ["fleet"]


def make_reader(fleet: Fleet, by: int, number: int) -> None:
    """The device says so that has let it in."""
    fleet.tell_who_came_by_whom({number: by})
    fleet[by].rig.sharing.membership.set_role(NAMES[number], Role.READER)


def test_a_reader_is_asked_and_agrees(fleet: Fleet) -> None:
    make_reader(fleet, 0, 1)
    pack = retire(fleet)
    assert advance(fleet[0])
    assert not advance(fleet[0]), "the reader has yet to promise"
    fleet.send(0, 1)
    assert advance(fleet[1]) and advance(fleet[1])
    assert pack in fleet.clouds.packs
    fleet.send(1, 0)
    assert advance(fleet[0]) and advance(fleet[0])
    assert pack not in fleet.clouds.packs
    fleet.meet()
    assert fleet[0].registers() == fleet[1].registers()


def test_nobody_answers_what_a_device_had_proposed_before_it_only_read(fleet: Fleet) -> None:
    """It may have begun to delete that, for all that others know: they do without, as after a removal."""
    pack = retire(fleet)
    fleet.send(0, 1)
    advance(fleet[1])
    make_reader(fleet, 1, 0)
    assert not Collecting(fleet[1]).assembly.book().lists
    assert not advance(fleet[1])
    fleet.send(1, 0)
    assert not Collecting(fleet[0]).step()
    assert not Collecting(fleet[0]).assembly.may_propose
    assert pack_of(fleet[1], b"in another pack") == pack and pack in fleet.clouds.packs
    assert Collecting(fleet[1]).assembly.is_lowest and not Collecting(fleet[0]).assembly.is_lowest


def test_another_looks_after_what_a_reader_had_packed(fleet: Fleet) -> None:
    make_reader(fleet, 1, 0)
    fleet.send(1, 0)
    fleet[1].remove("apart")
    fleet[1].sign()
    assert Collecting(fleet[1]).look() == 1


def test_a_reader_has_nothing_deleted(fleet: Fleet) -> None:
    make_reader(fleet, 1, 0)
    fleet.send(1, 0)
    collector = Collecting(fleet[0])
    assert collector.find() is not None
    assert not collector.assembly.may_propose and collector.assembly.may_sign
