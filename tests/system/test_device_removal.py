"""A device is removed from the volume: nothing that was written before is lost, nothing after reaches it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from hybrisfs.environment import SYSTEM
from hybrisfs.keyring import KeyRing
from hybrisfs.keys import VolumeKeys
from sync import UnknownEpochError, decode_segment
from tests.system.clouds import away, objects
from tests.system.deadline import until
from tests.system.device import CommandFailedError, Device
from tests.system.group import Group, make_group
from tests.system.pairing import all_sound, names, pair, same_trees


@pytest.fixture
def group(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Group]:
    with ExitStack() as stack:
        yield make_group(tmp_path_factory, stack)


def _keys(device: Device) -> VolumeKeys:
    return VolumeKeys.load(device.home / "state" / "volumes" / device.volume / "keys.json")


def _unreadable(clouds: list[Path], keys: VolumeKeys, volume: bytes) -> set[str]:
    """The names of the log segments on these clouds that do not open with the keys."""
    ring, found = KeyRing(keys, environment=SYSTEM), set()
    for cloud in clouds:
        for path in objects(cloud):
            name = str(path.relative_to(cloud))
            if name.startswith("log/"):
                try:
                    decode_segment(path.read_bytes(), name, volume, ring.segments)
                except UnknownEpochError:
                    found.add(name)
    return found


def test_a_removed_device_reads_and_writes_nothing_more(group: Group) -> None:
    a, b, c = group.devices
    (a.mountpoint / "before").write_text("all three have this")
    same_trees(group.devices)
    config = json.loads((a.home / "config" / "volumes" / a.volume / "volume.json").read_text())
    volume = bytes.fromhex(config["id"])
    group.network.cut("c")
    with away(*group.clouds):
        (c.mountpoint / "of carol, too late").write_text("nobody heard of this in time")
        removed = json.loads(a.run("device", "remove", "carol", "--json"))
        assert removed["device"] == "carol"
        assert len(removed["clouds"]) == 3
        assert names(a) == {"alice", "bob"}
        until(lambda: names(b) == {"alice", "bob"}, "bob to hear that carol was removed")
    group.network.heal("c")
    (a.mountpoint / "after").write_text("only alice and bob have this")
    (b.mountpoint / "after, too").write_text("and this")
    tree = same_trees([a, b])
    assert {b"before", b"after", b"after, too"} <= tree.keys()
    for device in (a, b):
        device.sync()
    sealed_away = _unreadable(group.clouds, _keys(c), volume)
    # What Carol wrote while she belonged to the volume may be brought there, too, by one of the others.
    authors = {name.split("/")[1] for name in sealed_away}
    members = {one["id"] for one in json.loads(a.run("device", "list", "--json"))["devices"]}
    assert members <= authors <= members | {_keys(c).device.device_id.hex()}
    assert not _unreadable(group.clouds, _keys(b), volume)
    until(lambda: "removed" in c.run("status"), "carol to be told")
    assert b"of carol, too late" not in same_trees([a, b])
    assert not (c.mountpoint / "after").exists()
    with pytest.raises(CommandFailedError, match="is not a machine"):
        a.run("device", "remove", "carol")
    # Everything is still to be had, from the clouds alone, and by a device that comes later.
    b.cache_drop()
    assert (b.mountpoint / "after").read_text() == "only alice and bob have this"
    assert (b.mountpoint / "before").read_text() == "all three have this"
    for device in (a, b):
        device.stop()
        device.mount()
    (b.mountpoint / "after the start").write_text("with the new keys")
    same_trees([a, b])
    all_sound([a, b])


def test_what_a_member_saw_of_a_removed_device_all_see(group: Group) -> None:
    a, b, c = group.devices
    (a.mountpoint / "before").write_text("all three have this")
    same_trees(group.devices)
    with away(*group.clouds):
        group.network.cut("a")
        (c.mountpoint / "of carol").write_text("bob alone hears of this, directly")
        until((b.mountpoint / "of carol").exists, "bob to hear of it")
        assert (b.mountpoint / "of carol").read_text() == "bob alone hears of this, directly"
        assert not (a.mountpoint / "of carol").exists()
        a.run("device", "remove", "carol")
        group.network.cut("c")
        group.network.heal("a")
        until(lambda: names(b) == {"alice", "bob"}, "bob to hear that carol was removed")
        tree = same_trees([a, b])
    assert b"of carol" in tree
    assert (a.mountpoint / "of carol").read_text() == "bob alone hears of this, directly"
    group.network.heal("c")
    all_sound([a, b])


def test_a_device_can_come_after_another_was_removed(
    group: Group, tmp_path_factory: pytest.TempPathFactory
) -> None:
    _, b, c = group.devices
    (c.mountpoint / "of carol").write_text("written when she belonged to it")
    same_trees(group.devices)
    b.run("device", "remove", "alice", "--yes")
    until(lambda: names(c) == {"bob", "carol"}, "carol to hear that alice was removed")
    (c.mountpoint / "later").write_text("with the new keys")
    same_trees([b, c])
    c.sync()
    with ExitStack() as stack:
        d = stack.enter_context(Device(tmp_path_factory.mktemp("d"), run_as=group.network.add("d")))
        pair(c, d, "dave")
        d.mount()
        tree = same_trees([b, c, d])
        assert {b"of carol", b"later"} <= tree.keys()
        assert names(d) == {"bob", "carol", "dave"}
        (d.mountpoint / "of dave").write_text("for bob and carol")
        same_trees([b, c, d])
        all_sound([b, c, d])
