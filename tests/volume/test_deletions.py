"""What another device takes away in mass waits for a person, on real volumes that meet through clouds."""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from msgspec.structs import replace

from hybrisfs.api.decisions import Deletion
from hybrisfs.registers.node_id import ROOT_ID, new_node_id
from hybrisfs.registers.tree import Attr, Content, Place, attr_key, content_key, place_key
from hybrisfs.settings.config import VolumeConfig
from hybrisfs.sharing.agreement import state_hash
from hybrisfs.state.schema import ROOT_INO
from sync.update import Write
from tests.tree.unlocked import unlocked
from tests.volume.device import ALONE, NAME, PATIENCE, Device, Second

FILES = 80
CONTENT = b"what the victim has written " * 10


@pytest.fixture
def devices(tmp_path: Path) -> Iterator[tuple[Device, Device]]:
    """One that has made files, and another member, which has seen them."""
    with ExitStack() as stack:
        victim = Device(tmp_path / "victim")
        stack.callback(victim.close)
        alone(victim)
        for number in range(FILES):
            victim.write(f"file {number}", CONTENT + b"%d" % number)
        mallory = Second(tmp_path / "mallory", victim)
        stack.callback(mallory.close)
        victim.sync()
        wait(lambda: len(names(mallory)) == FILES)
        yield victim, mallory


def alone(device: Device) -> None:
    device.close()
    replace(VolumeConfig.load(device.home, NAME), links=ALONE).save(device.home)
    device.reopen()


def wait(until: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not until():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def names(device: Device) -> set[str]:
    with device.volume.fs.state.transaction() as tx:
        return {name.decode() for _, name, _ in device.volume.fs.names.list(tx, ROOT_INO, 0, 10_000)}


def remove(device: Device, *files: str) -> None:
    for file in files:
        with device.volume.fs.state.transaction() as tx:
            device.volume.fs.unlink(tx, ROOT_INO, file.encode())


def clock(device: Device) -> int:
    with device.volume.fs.state.transaction():
        tip = unlocked(device.volume.fs).updates.own_tip()
        return tip.clock if tip is not None else 0


def meet(device: Device, author: Device) -> None:
    """Wait until the device has all that its author has signed."""
    author.sync()
    tip = unlocked(author.volume.fs).updates.own_tip()
    assert tip is not None

    def has_it() -> bool:
        with device.volume.fs.state.transaction():
            return unlocked(device.volume.fs).updates.state.vector[tip.branch] >= tip.clock

    wait(has_it)


def lie(mallory: Device, victim: Device, writes: list[Write]) -> None:
    with mallory.volume.fs.state.transaction():
        unlocked(mallory.volume.fs).updates.sign(writes, time.time_ns(), 0)
    mallory.write("besides", b"and all else is shown")
    meet(victim, mallory)
    wait(lambda: "besides" in names(victim))


def identities(device: Device) -> list[bytes]:
    with device.volume.fs.state.transaction() as tx:
        found = [device.volume.fs.lookup(tx, ROOT_INO, b"file %d" % number) for number in range(FILES)]
        return [inode.id for inode in found if inode is not None]


def waiting(device: Device) -> list[Deletion]:
    return device.volume.deletions()


def everything(device: Device) -> dict[str, bytes]:
    return {name: device.read(name) for name in names(device) if name.startswith("file")}


def _ways(nodes: list[bytes]) -> dict[str, list[Write]]:
    folder = new_node_id(stat.S_IFDIR, time.time_ns())
    empty, hidden = Content(0, 0, ()).encode(), Place(ROOT_ID, b"hidden").left().encode()
    attr = Attr(stat.S_IFDIR | 0o755, 1, 1, 0, 0).encode()
    named = list(enumerate(nodes))
    return {
        "tombstones of places": [(place_key(node, 0), None) for node in nodes],
        "bad places": [(place_key(node, 0), b"nonsense") for node in nodes],
        "tombstones of attributes": [(attr_key(node), None) for node in nodes],
        "empty": [(content_key(node), empty) for node in nodes],
        "hide": [
            (place_key(folder, 0), hidden),
            (attr_key(folder), attr),
            *((place_key(node, 0), Place(folder, b"%d" % n).left().encode()) for n, node in named),
        ],
        "removed": [
            (place_key(node, 0), Place(ROOT_ID, b"file %d" % n).left().encode()) for n, node in named
        ],
    }


@pytest.mark.parametrize("way", sorted(_ways([])))
def test_nothing_is_lost_by_any_register(devices: tuple[Device, Device], way: str) -> None:
    victim, mallory = devices
    before = everything(victim)
    lie(mallory, victim, _ways(identities(victim))[way])
    assert everything(victim) == before
    if way in ("removed", "hide", "empty"):
        [one] = waiting(victim)
        assert (one.device, one.names, one.of) == ("second", FILES, FILES)
        warnings = victim.volume.status().warnings
        assert [text for text in warnings if "deletes" in text]
        victim.volume.decide_deletion(one.id, undo=True)
    assert waiting(victim) == []
    meet(mallory, victim)
    assert everything(victim) == everything(mallory) == before
    assert victim.fsck(clouds=True).problems == []


def test_the_view_is_sound_while_it_waits_and_content_is_kept(devices: tuple[Device, Device]) -> None:
    victim, mallory = devices
    before = everything(victim)
    remove(mallory, *sorted(names(mallory))[: FILES - 10])
    meet(victim, mallory)
    wait(lambda: bool(waiting(victim)))
    victim.sync()
    assert victim.fsck(clouds=True).problems == []
    assert victim.volume.status().pending_files == 0
    victim.reopen()
    assert everything(victim) == before
    assert len(waiting(victim)) == 1
    with victim.volume.fs.state.transaction(), mallory.volume.fs.state.transaction():
        assert state_hash(unlocked(victim.volume.fs)) == state_hash(unlocked(mallory.volume.fs))
    victim.volume.decide_deletion(waiting(victim)[0].id, undo=False)
    assert len(names(victim)) == 10
    assert victim.fsck(clouds=True).problems == []


def test_who_joins_is_not_asked_about_what_was_gone_before(
    devices: tuple[Device, Device], tmp_path: Path
) -> None:
    victim, mallory = devices
    victim.volume.sharing.brake.share = 1.0
    remove(mallory, *(f"file {number}" for number in range(FILES)))
    mallory.write("news", b"is shown")
    meet(victim, mallory)
    wait(lambda: names(victim) == {"news"})
    third = Second(tmp_path / "third", victim)
    try:
        wait(lambda: names(third) == {"news"})
        assert waiting(third) == []
        assert waiting(victim) == []
    finally:
        third.close()


def test_who_comes_back_is_not_asked_about_what_it_never_saw(devices: tuple[Device, Device]) -> None:
    victim, mallory = devices
    mallory.close()
    for number in range(3 * FILES):
        victim.write(f"scratch {number}", b"%d" % number)
    victim.sync()
    remove(victim, *(f"scratch {number}" for number in range(3 * FILES)))
    victim.write("news", b"is shown")
    victim.sync()
    mallory.reopen()
    wait(lambda: "news" in names(mallory))
    assert waiting(mallory) == []
    assert names(mallory) == names(victim)


def test_what_is_made_and_removed_within_minutes_waits_for_nobody(devices: tuple[Device, Device]) -> None:
    """As by `git gc`, when the other machine has shown it meanwhile."""
    victim, mallory = devices
    scratch = [f"scratch {number}" for number in range(3 * FILES)]
    for name in scratch:
        mallory.write(name, name.encode())
    meet(victim, mallory)
    wait(lambda: len(names(victim)) == 4 * FILES)
    remove(mallory, *scratch)
    mallory.write("packed", b"instead")
    meet(victim, mallory)
    wait(lambda: names(victim) == names(mallory))
    assert waiting(victim) == []


def test_what_nobody_has_signed_counts_for_nobody(devices: tuple[Device, Device]) -> None:
    victim, mallory = devices
    lies = _ways(identities(victim))["removed"]
    with mallory.volume.fs.state.transaction():
        update = unlocked(mallory.volume.fs).updates.sign(lies, time.time_ns(), 0)
    signature = update.header.data[-64:]
    victim.volume.sharing.receive(
        [update.data.replace(signature, signature[:-1] + bytes((signature[-1] ^ 1,)))]
    )
    assert waiting(victim) == []
    assert len(names(victim)) == FILES


@pytest.mark.parametrize("way", ["empty", "hide", "removed"])
def test_what_vanished_and_was_accepted_is_found_among_versions(
    devices: tuple[Device, Device], way: str
) -> None:
    victim, mallory = devices
    before = everything(victim)
    lie(mallory, victim, _ways(identities(victim))[way])
    victim.volume.decide_deletion(waiting(victim)[0].id, undo=False)
    found = victim.volume.versions.removed("").removed
    size = {one.path: one.size for one in found}
    assert size == {name: len(content) for name, content in before.items()}
    assert {one.kind for one in found} == {"emptied" if way == "empty" else "file"}
    assert {one.device for one in found} == {"second"}
    victim.volume.versions.restore("file 7", None, None, None)
    assert victim.read("file 7") == before["file 7"]


# -- what is overwritten ---------------------------------------------------------------------------


def aged(victim: Device, mallory: Device) -> None:
    """A day passes for both."""
    for device in (victim, mallory):
        device.around.ahead_ns += 86_400 * 10**9


def overwrite(mallory: Device, content: Callable[[int], bytes]) -> None:
    for number in range(FILES):
        mallory.write(f"file {number}", content(number))
    mallory.write("besides", b"and all else is shown")


def test_what_is_encrypted_waits_and_comes_back(devices: tuple[Device, Device]) -> None:
    victim, mallory = devices
    before = everything(victim)
    aged(victim, mallory)
    overwrite(mallory, lambda number: os.urandom(len(CONTENT)))
    meet(victim, mallory)
    wait(lambda: [one.examined for one in waiting(victim)] == [True])
    [one] = waiting(victim)
    assert (one.device, one.overwrites) == ("second", True)
    assert FILES - 50 <= one.names <= FILES
    assert [text for text in victim.volume.status().warnings if "overwrites" in text]
    held = victim.volume.held_files(one.id)
    assert held.count == one.names
    assert {file.change for file in held.files} == {"overwritten"}
    assert victim.read("besides") == b"and all else is shown"
    assert all(victim.read(file.path) == before[file.path] for file in held.files)
    victim.volume.decide_deletion(one.id, undo=True)
    meet(mallory, victim)
    assert everything(victim) == everything(mallory) == before
    assert victim.fsck(clouds=True).problems == []
    encrypted = victim.volume.versions.all("file 7").versions
    assert len(encrypted) == 3, "what it was, what it was encrypted to, and what it is again"


def test_what_is_edited_in_mass_is_shown(devices: tuple[Device, Device]) -> None:
    victim, mallory = devices
    aged(victim, mallory)
    overwrite(mallory, lambda number: CONTENT + b"edited, and longer than it was %d" % number)
    meet(victim, mallory)
    wait(lambda: waiting(victim) == [])
    wait(lambda: everything(victim) == everything(mallory))
    assert victim.volume.status().warnings == []
