"""What only machines hold is kept and never called safe; who was removed from the volume is told so first."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from tests.system.clouds import away
from tests.system.deadline import until
from tests.system.device import Device
from tests.system.group import Group, make_group

CONTENT = os.urandom(700_000)
STATE = "user.hybrisfs.state"


@pytest.fixture
def group(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Group]:
    with ExitStack() as stack:
        yield make_group(tmp_path_factory, stack)


def first_line(device: Device) -> str:
    """The sentence below the name of the volume."""
    return device.run("status").splitlines()[1]


def state(device: Device, name: str) -> str:
    return os.getxattr(device.mountpoint / name, STATE).decode()


def test_what_only_machines_hold_is_kept_counted_and_brought_to_the_clouds(group: Group) -> None:
    a, b, c = group.devices
    (a.mountpoint / "before").write_text("all have this")
    until(lambda: (b.mountpoint / "before").exists(), "bob to hear of it")
    for device in group.devices:
        device.sync()
    group.network.cut("c")
    with away(*group.clouds):
        (a.mountpoint / "only").write_bytes(CONTENT)
        (a.mountpoint / "unread").write_bytes(CONTENT[::-1])
        until(lambda: (b.mountpoint / "unread").exists(), "bob to hear of it")
        assert (b.mountpoint / "only").read_bytes() == CONTENT
        sentence = first_line(b)
        assert (
            "2 files (1.4 MB) are on your machines only: alice has yet to put them on the clouds." in sentence
        )
        assert "Everything" not in sentence
        done = b.attempt("sync", "--wait", "--timeout", "2")
        assert done.returncode == 3 and "are on your machines only" in done.stderr
        assert (state(b, "only"), state(b, "unread")) == ("uploading", "uploading")
        b.cache_drop()
        b.run("evict", str(b.mountpoint / "only"))
        assert state(b, "only") == "uploading"
        b.stop()
        b.mount()
        b.cache_drop()
        group.network.cut("a")
        a.kill()  # stolen
        assert (b.mountpoint / "only").read_bytes() == CONTENT
    (b.mountpoint / "unread").unlink()
    b.sync()
    assert "Everything is safe" in first_line(b)
    assert state(b, "only") == "durable"
    b.cache_drop()
    assert state(b, "only") == "cloud-only"
    assert (b.mountpoint / "only").read_bytes() == CONTENT
    # Who hears of it through the clouds alone can read it, too.
    group.network.cut("b")
    until((c.mountpoint / "only").exists, "carol to hear of it")
    assert (c.mountpoint / "only").read_bytes() == CONTENT
    assert not (c.mountpoint / "unread").exists()


def test_a_removed_device_that_learns_it_from_the_clouds_alone_says_so_first(group: Group) -> None:
    a, b, c = group.devices
    (a.mountpoint / "before").write_text("all have this")
    until(lambda: (c.mountpoint / "before").exists(), "carol to hear of it")
    group.network.cut()
    a.run("device", "remove", "carol")
    (a.mountpoint / "after").write_text("carol cannot read this")
    a.sync()
    (c.mountpoint / "of carol").write_text("nobody gets this")
    done = c.attempt("sync", "--wait", "--timeout", "30")
    assert done.returncode not in (0, None)
    assert "removed from the volume" in done.stderr and "reaches no other machine" in done.stderr
    assert "This machine was removed from the volume" in first_line(c)
    assert "Everything is safe" not in c.run("status")
    assert c.status()["removed"] is True

    def panel() -> str:
        volumes = json.loads((c.home / "runtime" / "status.json").read_text())["volumes"]
        return " ".join(f"{volume['state']}: {volume['text']}" for volume in volumes)

    until(lambda: panel().startswith("trouble: this machine was removed"), "the panel to tell it")
    assert "removed" not in first_line(b)
