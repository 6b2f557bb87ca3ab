"""Letting another machine into a volume, by the command line alone."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.system.clouds import away
from tests.system.conftest import MakeDevice
from tests.system.deadline import until
from tests.system.device import Device
from tests.system.network import Network
from tests.system.pairing import Inviting, device_list, names, pair, same_trees
from tests.system.trees import make_tree, snapshot


@pytest.fixture(scope="module")
def inviter(shared_device: Device) -> Device:
    """A device with a volume that holds something, all of it on the clouds."""
    make_tree(shared_device.mountpoint / "tree", seed=4, files=30)
    shared_device.sync()
    return shared_device


@pytest.fixture(scope="module", autouse=True)
def expiring(inviter: Device) -> Iterator[Inviting]:
    """An invitation that nobody takes up; it is begun early so that no test waits until it expires."""
    with Inviting(inviter, "vol", "--valid", "10") as inviting:
        yield inviting


@pytest.fixture
def joiner(make_device: MakeDevice) -> Device:
    """A device that has nothing yet."""
    return make_device("joiner")


@pytest.fixture
def unplugged(make_device: MakeDevice) -> Iterator[Device]:
    """A device that has nothing yet, not even a network."""
    with Network() as network:
        prefix = network.add("joiner")
        network.cut()
        device = make_device("joiner", run_as=prefix)
        yield device
        device.close()


def _volumes(device: Device) -> list[str]:
    return [one["name"] for one in json.loads(device.run("volume", "list", "--json"))["volumes"]]


def _state(device: Device) -> set[Path]:
    """What is kept of volumes, beside the daemon's own files."""
    folders = (device.home / "state" / "volumes", device.home / "config")
    return {path for folder in folders for path in folder.rglob("*")}


def _fails(device: Device, code: str, *options: str) -> str:
    """Joining fails with a sentence, not with a bug, and changes nothing here; returns what is said."""
    before = _state(device)
    done = device.attempt("device", "join", code, "--yes", *options)
    assert done.returncode in (1, 2), done.stdout + done.stderr
    assert _state(device) == before
    assert "Traceback" not in done.stderr
    return " ".join(done.stderr.split())


def test_both_sides_show_one_comparison_string_and_the_volume_comes(inviter: Device, joiner: Device) -> None:
    with Inviting(inviter, "vol") as inviting:
        process = joiner.start("device", "join", inviting.code, "--name", "laptop", "--json", "--yes")
        shown, admitted = inviting.result()
        out, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    compared, joined = _two_objects(out)
    assert compared["comparison"] == shown
    assert admitted["device"] == "laptop"
    assert joined["volume"]["name"] == "vol"
    joiner.mount()
    same_trees([inviter, joiner])
    assert {"laptop"} < names(joiner) == names(inviter)
    [this] = [one for one in device_list(joiner) if one["this"]]
    assert (this["name"], this["id"]) == ("laptop", admitted["id"])


def test_a_reader_has_all_files_and_changes_none(inviter: Device, joiner: Device) -> None:
    with Inviting(inviter, "vol", "--role", "reader") as inviting:
        joiner.run("device", "join", inviting.code, "--name", "nas", "--yes")
        inviting.result()
    joiner.mount()
    same_trees([inviter, joiner])
    with pytest.raises(OSError, match="Read-only file system"):
        (joiner.mountpoint / "new").write_text("mine")
    assert "only reads the volume" in joiner.run("status")
    assert "only reads" in inviter.run("device", "list")
    refused = joiner.attempt("device", "role", names_of_others(joiner)[0], "reader")
    assert refused.returncode == 1 and "only reads" in refused.stderr
    inviter.run("device", "role", "nas", "full")
    until(lambda: "only reads" not in joiner.run("status"), "the reader to become a full member")
    (joiner.mountpoint / "new").write_text("ours")
    joiner.sync()
    same_trees([inviter, joiner])
    (joiner.mountpoint / "new").unlink()
    joiner.sync()
    same_trees([inviter, joiner])


def names_of_others(device: Device) -> list[str]:
    return [str(one["id"]) for one in device_list(device) if not one["this"]]


def _two_objects(text: str) -> tuple[dict[str, str], dict[str, dict[str, str]]]:
    decoder = json.JSONDecoder()
    first, end = decoder.raw_decode(text)
    return first, json.loads(text[end:])


def test_joining_deletes_nothing_and_a_volume_of_the_same_name_stays(
    inviter: Device, make_device: MakeDevice
) -> None:
    joiner = make_device("joiner").create(3).mount()
    make_tree(joiner.mountpoint / "own", seed=5, files=10)
    own, theirs = snapshot(joiner.mountpoint), snapshot(inviter.mountpoint)
    members = names(inviter)
    with Inviting(inviter, "vol") as inviting:
        said = _fails(joiner, inviting.code, "--as", "vol")
        assert "--as" in said
    assert names(inviter) == members
    assert snapshot(joiner.mountpoint) == own

    with Inviting(inviter, "vol") as inviting:
        joiner.run("device", "join", inviting.code, "--name", "second", "--as", "shared", "--yes")
        inviting.result()
    assert snapshot(joiner.mountpoint) == own
    other = joiner.root / "other"
    joiner.run("mount", "shared", str(other))
    until(lambda: snapshot(other) == theirs, "the volume to arrive")
    assert snapshot(joiner.mountpoint) == own
    assert snapshot(inviter.mountpoint) == theirs
    joiner.run("umount", "shared")


def test_a_name_that_is_taken_is_noticed_before_anybody_is_let_in(
    inviter: Device, make_device: MakeDevice
) -> None:
    joiner = make_device("joiner").create(3)
    members = names(inviter)
    with Inviting(inviter, "vol") as inviting:
        assert "--as" in _fails(joiner, inviting.code)
        inviting.failure()
    assert names(inviter) == members


def test_a_device_that_has_the_volume_is_not_let_in_again(inviter: Device, joiner: Device) -> None:
    pair(inviter, joiner, "twice")
    members = sorted(one["id"] for one in device_list(inviter))
    with Inviting(inviter, "vol") as inviting:
        said = _fails(joiner, inviting.code, "--as", "again")
        assert "already" in said
        inviting.failure()
    assert sorted(one["id"] for one in device_list(inviter)) == members


@pytest.mark.parametrize(
    "code",
    [
        pytest.param("", id="nothing"),
        pytest.param("hello", id="no code"),
        pytest.param("hfs1-", id="only the beginning"),
        pytest.param("hfs9-abcdefgh", id="another version"),
        pytest.param("hfs1-" + "a" * 5000, id="too long"),
        pytest.param("hfs1-\N{LATIN SMALL LETTER E WITH ACUTE}a", id="not ASCII"),
    ],
)
def test_what_is_no_code_is_refused(joiner: Device, code: str) -> None:
    assert "code" in _fails(joiner, code)
    assert _volumes(joiner) == []


def test_a_mistyped_code_is_refused_and_the_right_one_still_works(inviter: Device, joiner: Device) -> None:
    with Inviting(inviter, "vol") as inviting:
        code = inviting.code
        wrong = code[:40] + ("a" if code[40] != "a" else "b") + code[41:]
        assert "mistyped" in _fails(joiner, wrong)
        assert "mistyped" in _fails(joiner, code[:-3])
        shouted = f" {code[:30].upper()}\n{code[30:].upper()} "
        joiner.run("device", "join", shouted, "--name", "shouter", "--yes")
        inviting.result()
    assert _volumes(joiner) == ["vol"]


def test_a_used_code_is_refused(inviter: Device, joiner: Device, make_device: MakeDevice) -> None:
    with Inviting(inviter, "vol") as inviting:
        joiner.run("device", "join", inviting.code, "--name", "first", "--yes")
        inviting.result()
    members = names(inviter)
    third = make_device("third")
    assert "used" in _fails(third, inviting.code)
    assert _volumes(third) == []
    assert names(inviter) == members


def test_an_expired_code_is_refused(inviter: Device, joiner: Device, expiring: Inviting) -> None:
    assert "expired" in expiring.failure().stderr
    members = names(inviter)
    assert "expired" in _fails(joiner, expiring.code)
    assert names(inviter) == members


def test_a_withdrawn_code_is_refused(inviter: Device, joiner: Device) -> None:
    members = names(inviter)
    with Inviting(inviter, "vol") as inviting:
        assert inviting.interrupt(signal.SIGINT).returncode == 130
    assert "withdrew" in _fails(joiner, inviting.code)
    assert names(inviter) == members


def test_an_unknown_volume_cannot_be_invited_to(inviter: Device) -> None:
    done = inviter.attempt("device", "invite", "nowhere", "--json", "--yes")
    assert done.returncode == 4
    assert "nowhere" in done.stderr


def test_a_new_name_of_a_device_reaches_the_others(inviter: Device, joiner: Device) -> None:
    pair(inviter, joiner, "old name")
    inviter.run("device", "rename", "old name", "new name", "--volume", "vol")
    until(lambda: "new name" in names(joiner), "the joiner to hear of its new name")
    assert "old name" not in names(joiner) | names(inviter)
    done = inviter.attempt("device", "rename", "old name", "other")
    assert done.returncode == 2
    assert "new name" in done.stderr


def test_pairing_through_the_clouds_alone(inviter: Device, unplugged: Device) -> None:
    pair(inviter, unplugged, "far")
    unplugged.mount()
    same_trees([inviter, unplugged])


def test_pairing_with_all_clouds_gone(inviter: Device, joiner: Device) -> None:
    with away(*inviter.clouds):
        pair(inviter, joiner, "near")
        joiner.mount()
        same_trees([inviter, joiner])
