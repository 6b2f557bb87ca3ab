"""What a device signed that none may is kept, spread to all, shown and proven."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from hybrisfs.api.devices import Charge
from hybrisfs.errors import UsageError
from hybrisfs.registers.node_id import ROOT_ID
from hybrisfs.registers.tree import attr_key, place_key
from hybrisfs.sharing.misconduct import Misconduct
from tests.merge.fleet import Device, Fleet

NOW = 1_700_000_000 * 10**9
HOUR = 3600 * 10**9


@pytest.fixture
def fleet() -> Iterator[Fleet]:
    one = Fleet(3)
    one[0].write("file", b"content")
    one.meet()
    yield one
    one.discard()


def misconduct(device: Device) -> Misconduct:
    return device.rig.sharing.misconduct


def shown(device: Device, other: Device) -> list[Charge]:
    """What `device list` says of another device."""
    [facts] = [one for one in device.rig.sharing.devices() if one.id == other.key.device_id.hex()]
    return facts.charges


def test_nothing_is_said_of_who_did_nothing(fleet: Fleet) -> None:
    for device in fleet.devices:
        assert not misconduct(device).look_after()
        assert all(not shown(device, other) for other in fleet.devices)
    with pytest.raises(UsageError, match="nothing is proven against cyd"):
        misconduct(fleet[0]).proof(fleet[2].key.device_id)


def test_what_breaks_a_rule_convicts(fleet: Fleet) -> None:
    honest, late, liar = fleet.devices
    liar.rig.updates.sign([(attr_key(ROOT_ID), b"nonsense")], NOW, 0)
    honest.receive(liar.log())
    assert misconduct(honest).look_after()
    assert not misconduct(honest).look_after()
    late.receive(honest.log())
    assert not misconduct(late).look_after(), "it is proven already"
    for device in (honest, late):
        [charge] = shown(device, liar)
        assert charge.kind == "offence"
        assert charge.at == NOW / 1e9
        proof = misconduct(device).proof(liar.key.device_id)
        assert misconduct(late).check(proof)[1] == "cyd"
    assert honest.read("file") == b"content"


def test_a_proof_outlives_a_restart(fleet: Fleet) -> None:
    honest, _, liar = fleet.devices
    liar.rig.updates.sign([(place_key(liar.at("file").id, 0), b"")], NOW, 0)
    honest.receive(liar.log())
    assert misconduct(honest).look_after()
    honest.rig.commit()
    honest.rig = honest.rig.reopen()
    assert [charge.kind for charge in shown(honest, liar)] == ["offence"]


def test_a_fork_is_proven_and_explained_when_both_branches_go_on_together(fleet: Fleet) -> None:
    honest, late, other = fleet.devices
    backup = other.saved()
    other.write("lost", b"before")
    fleet.send(2, 0)
    other.restore(backup)
    other.write("new", b"after")
    fleet.send(2, 0)
    assert misconduct(honest).look_after()
    fleet.send(0, 1)
    for device in (honest, late):
        assert [charge.kind for charge in shown(device, other)] == ["fork"]
        assert not device.rig.updates.has_rejoined(other.key.device_id)
    other.receive(honest.log())
    other.write("later", b"knowing both")
    fleet.send(2, 0)
    assert honest.rig.updates.has_rejoined(other.key.device_id)
    assert honest.names() == ["file", "later", "lost", "new"]


@pytest.mark.parametrize("rejoins", [False, True])
def test_a_fork_that_no_backup_explains_is_answered_when_it_has_had_its_time(
    fleet: Fleet, *, rejoins: bool
) -> None:
    honest, _, other = fleet.devices
    backup = other.saved()
    other.write("lost", b"before")
    fleet.send(2, 0)
    other.restore(backup)
    other.write("new", b"after")
    fleet.send(2, 0)
    trials = honest.rig.sharing.trials
    trials.adopt(72, evicts=True)
    assert misconduct(honest).look_after()
    assert not trials.look_after(NOW)
    assert not trials.look_after(NOW + 23 * HOUR)
    if rejoins:
        other.receive(honest.log())
        other.write("later", b"knowing both")
        fleet.send(2, 0)
    assert trials.look_after(NOW + 25 * HOUR) != rejoins
    listed = other.key.device_id in honest.rig.sharing.current_members()
    assert listed == rejoins
    assert not trials.look_after(NOW + 200 * HOUR), "a person confirms"


def test_a_device_does_not_accuse_itself(fleet: Fleet) -> None:
    _, _, other = fleet.devices
    backup = other.saved()
    other.write("lost", b"before")
    fleet.send(2, 0)
    other.restore(backup)
    other.write("new", b"after")
    other.sign()
    other.receive(fleet[0].log())
    assert other.rig.updates.forks()
    assert not misconduct(other).look_after()


def test_nothing_can_be_made_of_a_file_that_is_no_proof(fleet: Fleet) -> None:
    with pytest.raises(UsageError, match="proves nothing"):
        misconduct(fleet[0]).check(b"HFEV nonsense")
