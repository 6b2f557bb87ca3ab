"""Machines that leave a volume, and volumes that are deleted, by the command alone."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.system.clouds import away, objects
from tests.system.deadline import until
from tests.system.device import Device, is_mounted
from tests.system.group import Group, make_group
from tests.system.pairing import all_sound, names, pair, same_trees

MakeDevice = Callable[..., Device]

PENDING = random.Random(1).randbytes(100_000)


@pytest.fixture
def trio(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Group]:
    with ExitStack() as stack:
        yield make_group(tmp_path_factory, stack)


def _left_of(device: Device, volume: str) -> list[Path]:
    """What the machine has of a volume of that name."""
    folders = [device.home / "config" / "volumes", device.home / "state" / "volumes"]
    return [path for folder in folders for path in folder.iterdir() if volume in path.name]


def test_one_leaves_and_the_others_go_on(trio: Group) -> None:
    a, b, c = trio.devices
    (c.mountpoint / "of carol").write_text("written by the one that leaves")
    (c.mountpoint / "large").write_bytes(bytes(range(256)) * 8192)
    facts = json.loads(c.run("volume", "leave", c.volume, "--json"))
    assert facts["told"] and sorted(facts["others"]) == ["alice", "bob"]
    assert (facts["lost_files"], facts["lost_bytes"]) == (0, 0)
    assert not is_mounted(c.mountpoint) and not _left_of(c, c.volume)
    assert c.attempt("status", c.volume).returncode == 4
    for device in (a, b):
        until(lambda device=device: names(device) == {"alice", "bob"}, "the others to see that carol is gone")  # type: ignore[misc]
    assert "carol" in a.run("device", "list") and "has left the volume" in a.run("device", "list")
    (a.mountpoint / "after").write_text("written when carol was gone")
    tree = same_trees([a, b])
    assert {b"of carol", b"large", b"after"} <= tree.keys()
    for device in (a, b):
        device.forget()
        assert (device.mountpoint / "of carol").read_text() == "written by the one that leaves"
        assert (device.mountpoint / "large").read_bytes() == bytes(range(256)) * 8192
    all_sound([a, b])
    pair(a, c, "carol again")
    c.mount()
    assert same_trees(trio.devices)


def test_what_is_here_only_keeps_a_machine_from_leaving(trio: Group) -> None:
    a, b, c = trio.devices
    same_trees(trio.devices)
    trio.network.cut("c")
    with away(*trio.clouds):
        (c.mountpoint / "pending").write_bytes(PENDING)
        done = c.attempt("volume", "leave", c.volume)
        assert done.returncode == 1 and "100,000 bytes would be lost" in done.stderr
        assert "amber (down)" in done.stderr and "--force" in done.stderr
        assert (c.mountpoint / "pending").read_bytes() == PENDING
        forced = c.run("volume", "leave", c.volume, "--force")
        assert "Lost is what no cloud had" in forced and "hybrisfs device remove there" in forced
        assert not is_mounted(c.mountpoint) and not _left_of(c, c.volume)
    trio.network.heal("c")
    a.run("device", "remove", "carol", "--yes")
    until(lambda: names(b) == {"alice", "bob"}, "bob to hear of it")
    assert b"pending" not in same_trees([a, b])


def test_the_last_machine_is_asked_for_more(make_device: MakeDevice) -> None:
    device = make_device().create(3).mount()
    (device.mountpoint / "file").write_text("content")
    refused = device.attempt("volume", "leave", device.volume)
    assert refused.returncode == 2 and "recovery kit" in refused.stderr and is_mounted(device.mountpoint)
    kit = json.loads(device.run("recovery", "make", device.volume, "--json"))
    device.run("volume", "leave", device.volume, "--last")
    assert not _left_of(device, device.volume)
    words = [word for cloud in device.clouds for word in ("--cloud", cloud.as_uri())]
    passphrase = device.root / "passphrase"
    passphrase.write_text(f"{kit['passphrase']}\n")
    device.run("recover", *words, "--passphrase-file", str(passphrase), "--as", "back")
    device.run("mount", "back", str(device.mountpoint))
    until((device.mountpoint / "file").exists, "the file to come back")
    assert (device.mountpoint / "file").read_text() == "content"


def test_a_deleted_volume_leaves_what_is_not_its_own(trio: Group) -> None:
    a, b, c = trio.devices
    same_trees(trio.devices)
    (c.mountpoint / "unread").write_bytes(PENDING)
    same_trees(trio.devices)
    c.sync()
    foreign = [
        trio.clouds[0] / "notes.txt",
        trio.clouds[1] / "packs" / "ab" / "mine",
        trio.clouds[1] / "heads.txt",
    ]
    for path in foreign:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("not the volume's")
    wrong = a.attempt("volume", "delete", a.volume, "--confirm", "other")
    assert wrong.returncode == 2 and "is not the name" in wrong.stderr
    assert a.attempt("volume", "delete", a.volume).returncode == 2, "nobody is there to type it"
    assert objects(trio.clouds[0])
    with away(trio.clouds[2]):
        first = a.attempt("volume", "delete", a.volume, "--confirm", a.volume)
        assert first.returncode == 1, first.stdout
        assert "2 other machines use it" in first.stderr and "bob" in first.stderr
        assert "cedar: 0 objects (0 bytes) deleted; not all: folder" in first.stdout
        assert not is_mounted(a.mountpoint) and _left_of(a, a.volume)
        assert "is being deleted" in a.attempt("status").stdout
    assert objects(trio.clouds[2]), "it was away"
    again = a.run("volume", "delete", a.volume, "--confirm", a.volume)
    assert "Nothing of vol is on this machine any more." in again
    assert not _left_of(a, a.volume)
    assert sorted(path for cloud in trio.clouds[:2] for path in objects(cloud)) == sorted(foreign)
    assert not trio.clouds[2].exists(), "an empty folder goes, too"
    until(lambda: "no cloud has this volume now" in b.run("status"), "bob to say so")
    assert (c.mountpoint / "unread").read_bytes() == PENDING
    (b.mountpoint / "later").write_text("for nobody")
    assert b.attempt("sync", b.volume, "--wait", "--timeout", "3").returncode == 3
    assert sorted(path for cloud in trio.clouds[:2] for path in objects(cloud)) == sorted(foreign)
    b.run("volume", "leave", b.volume, "--force")
    assert not _left_of(b, b.volume)


def test_a_volume_is_renamed_while_it_is_mounted(make_device: MakeDevice) -> None:
    device = make_device().create(3).mount()
    (device.mountpoint / "file").write_text("content")
    with (device.mountpoint / "file").open():
        busy = device.attempt("volume", "rename", device.volume, "pictures")
        assert busy.returncode == 1 and is_mounted(device.mountpoint)
    done = device.run("volume", "rename", device.volume, "pictures")
    assert done == f"vol is called pictures now, and is mounted at {device.mountpoint}.\n"
    assert (device.mountpoint / "file").read_text() == "content" and not _left_of(device, "vol")
    device.volume = "pictures"
    device.stop()
    device.status()
    until(lambda: is_mounted(device.mountpoint), "the daemon to mount it by its new name")
    assert (device.mountpoint / "file").read_text() == "content"
    assert device.attempt("volume", "rename", "pictures", "a/b").returncode == 2
    assert device.attempt("volume", "rename", "pictures", "pictures").returncode == 2
