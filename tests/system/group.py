"""Three devices of one volume, each with a network of its own."""

from __future__ import annotations

import shutil
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.system.device import Device
from tests.system.network import Network
from tests.system.pairing import pair, this_device

__all__ = ["Group", "make_group"]


class Group(NamedTuple):
    """Alice's, Bob's and Carol's device at one switch, over clouds that all of them reach."""

    network: Network
    a: Device
    b: Device
    c: Device

    @property
    def devices(self) -> tuple[Device, Device, Device]:
        return self.a, self.b, self.c

    @property
    def clouds(self) -> list[Path]:
        return self.a.clouds


def make_group(folders: pytest.TempPathFactory, stack: ExitStack) -> Group:
    """Make the devices, pair and mount them; *stack* takes everything down again."""
    network = stack.enter_context(Network())
    devices = []
    for name in ("a", "b", "c"):
        root = folders.mktemp(name)
        stack.callback(shutil.rmtree, root, ignore_errors=True)
        devices.append(stack.enter_context(Device(root, run_as=network.add(name))))
    group = Group(network, *devices)
    group.a.create(3).mount()
    group.a.run("device", "rename", str(this_device(group.a)["name"]), "alice")
    for device, name in ((group.b, "bob"), (group.c, "carol")):
        pair(group.a, device, name)
        device.mount()
    return group
