"""Devices find each other, whoever let them in, and where nobody announces anything."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterable
from functools import partial
from typing import Any

from tests.system.conftest import MakeDevice
from tests.system.deadline import until
from tests.system.device import Device
from tests.system.group import Group
from tests.system.pairing import device_list, pair, same_trees


def _linked(devices: Iterable[Device]) -> bool:
    return all(one["this"] or one.get("linked") for device in devices for one in device_list(device))


def configure(device: Device, **links: Any) -> None:
    """Set `links` in the volume's `volume.json`, as README says; the daemon does not run."""
    path = device.home / "config" / "volumes" / device.volume / "volume.json"
    entries = json.loads(path.read_text())
    entries["links"] = links
    path.write_text(json.dumps(entries))


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def test_everybody_is_linked_with_everybody(group: Group) -> None:
    """Bob and Carol, too, who were let in by Alice one after the other."""
    until(partial(_linked, group.devices), "all devices to be linked", 20)


def test_a_link_through_which_nothing_comes_is_noticed_within_two_minutes(group: Group) -> None:
    """Carol's packets get lost; nobody closes a connection, and no cable is out."""
    a, b, c = group.devices
    until(partial(_linked, group.devices), "all devices to be linked", 20)
    assert a.run("device", "list").count("linked") == 2
    group.network.swallow("c")
    until(lambda: a.run("device", "list").count("linked") == 1, "Alice to notice it", 120)
    until(lambda: "linked" not in c.run("device", "list"), "Carol to notice it", 120)
    (c.mountpoint / "through").write_text("the clouds")
    same_trees((a, b, c))
    group.network.deliver("c")
    until(partial(_linked, group.devices), "all devices to be linked again", 120)


def test_an_address_in_the_configuration_is_enough(make_device: MakeDevice) -> None:
    """Nothing is announced, and only Bob is told where Alice listens."""
    alice, bob = make_device("alice"), make_device("bob")
    alice.create(3)
    pair(alice, bob, "bob")
    alice.stop()
    bob.stop()
    port = _free_port()
    configure(alice, port=port, addresses=[], discover=False)
    configure(bob, port=0, addresses=[f"127.0.0.1:{port}"], discover=False)
    alice.mount()
    bob.mount()
    until(partial(_linked, (alice, bob)), "the devices to be linked", 30)

    (alice.mountpoint / "note").write_text("over the link")

    same_trees((alice, bob))
