"""Devices find each other, whoever let them in."""

from __future__ import annotations

from functools import partial

from tests.system.deadline import until
from tests.system.group import Group
from tests.system.pairing import device_list


def _linked(group: Group) -> bool:
    return all(one["this"] or one.get("linked") for device in group.devices for one in device_list(device))


def test_everybody_is_linked_with_everybody(group: Group) -> None:
    """Bob and Carol, too, who were let in by Alice one after the other."""
    until(partial(_linked, group), "all devices to be linked", 20)
