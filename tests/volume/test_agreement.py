"""Devices with equal logs have equal state hashes, and know when theirs is out of date."""

from __future__ import annotations

from hybrisfs.environment import Environment
from tests.merge.fleet import Fleet


def test_equal_logs_give_equal_hashes() -> None:
    fleet = Fleet(2)
    fleet[0].mkdir("folder")
    fleet[0].write("folder/file", b"content")
    fleet[1].write("other", b"x")
    fleet.meet()
    agreements = [device.rig.sharing.agreement for device in fleet.devices]
    for device in fleet.devices:
        assert device.rig.sharing.agreement.current(device.rig.tx) is None
        device.rig.sharing.agreement.compute()
    assert agreements[0].current(fleet[0].rig.tx) is not None
    assert agreements[0].current(fleet[0].rig.tx) == agreements[1].current(fleet[1].rig.tx)
    fleet[0].write("folder/file", b"changed")
    fleet[0].sign()
    assert agreements[0].current(fleet[0].rig.tx) is None
    agreements[0].compute()
    assert agreements[0].current(fleet[0].rig.tx) not in (None, agreements[1].current(fleet[1].rig.tx))
    fleet.discard()


def test_it_is_computed_when_things_are_quiet() -> None:
    now = 1000.0
    fleet = Fleet(2, environment=lambda _: Environment(monotonic=lambda: now))
    fleet[0].write("file", b"x")
    fleet.meet()
    agreement, tx = fleet[0].rig.sharing.agreement, fleet[0].rig.tx
    agreement.refresh(last_change=now - 1)
    assert agreement.current(tx) is None
    agreement.refresh(last_change=now - 60)
    assert agreement.current(tx) is not None
    fleet.discard()
