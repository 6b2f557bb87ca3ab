"""A device that only reads: nothing that it signs changes anything, nothing can be changed on it, and what
it had done before it was told so is kept."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path, PurePath
from typing import Final, TypeVar

import pytest
from msgspec import structs

from hybrisfs.admit.join import join_volume, make_grant
from hybrisfs.api.devices import Device as DeviceFacts
from hybrisfs.doctor.examination import examine_roles
from hybrisfs.environment import SYSTEM
from hybrisfs.errors import HybrisError, UsageError
from hybrisfs.home import Home
from hybrisfs.members.members import Member, member_key
from hybrisfs.members.roles import Role
from hybrisfs.merge.cloud_records import CloudRecord, entries_of
from hybrisfs.pairing.messages import Peer
from hybrisfs.pairing.session import Joined
from hybrisfs.registers.tree import Content, Place, content_key, place_key
from hybrisfs.state.schema import ROOT_INO
from hybrisfs.volume.volume import Volume
from sync import DeviceKey
from sync.update import Write
from tests.system.deadline import until
from tests.tree.unlocked import unlocked
from tests.volume.device import ALONE, NAME, Device, Second

D = TypeVar("D", bound=Device)


class Reader(Second):
    """A device that was let in to read only."""

    def __init__(self, root: Path, first: Device) -> None:
        self.home = Home.below(root / "home")
        self.clouds = first.clouds
        self.home.prepare()
        key, volume = DeviceKey.generate(), first.volume
        members = volume.sharing.current_members()
        grant = make_grant(volume.config, volume.ring.keys, members, None, reader=True)
        volume.sharing.membership.admit(Member(key.public, "nas"), role=Role.READER)
        joined = Joined(grant, Peer(volume.ring.keys.device.public, "first"))
        structs.replace(join_volume(self.home, None, key, "nas", joined), links=ALONE).save(self.home)
        self.volume = Volume.open(self.home, NAME, SYSTEM)
        self._open = True


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as one:
        yield one


def opened(stack: ExitStack, device: D) -> D:
    stack.callback(device.close)
    return device


def shows(device: Device, name: str) -> bool:
    device.volume.signals.look_around()
    with device.volume.fs.state.transaction() as tx:
        return device.volume.fs.lookup(tx, ROOT_INO, name.encode()) is not None


def is_reader(device: Device) -> bool:
    device.volume.signals.look_around()
    return device.volume.fs.read_only


def lacks_content(device: Device) -> bool:
    device.volume.signals.look_around()
    db = unlocked(device.volume.fs)
    with device.volume.fs.state.transaction():
        return db.execute("SELECT 1 FROM chunk WHERE ifnull(pack, 0) = 0").fetchone() is not None


def knows_its_role(device: Device) -> bool:
    device.volume.signals.look_around()
    volume = device.volume
    with volume.fs.state.transaction():
        return not unlocked(volume.fs).registers.roles.are_awaited(volume.sharing.device)


def facts_of(device: Device, name: str) -> DeviceFacts:
    (found,) = (one for one in device.volume.devices() if one.name == name)
    return found


def told(liar: Device, victim: Device, writes: list[Write]) -> None:
    """The victim hears what the liar signs."""
    volume = liar.volume
    with volume.fs.state.log_transaction() as tx:
        unlocked(volume.fs).updates.sign(writes, time.time_ns(), 0)
        log = [row[0] for row in tx.execute("SELECT bytes FROM log ORDER BY number")]
    victim.volume.sharing.receive([one for one in log if one is not None])


def test_a_reader_reads_and_changes_nothing(tmp_path: Path, stack: ExitStack) -> None:
    first = opened(stack, Device(tmp_path))
    first.write("file", b"content" * 1000)
    first.sync()
    nas = opened(stack, Reader(tmp_path / "nas", first))
    assert nas.volume.fs.read_only, "it was told so when it was let in"
    with pytest.raises(OSError, match="Read-only"):
        nas.write("mine", b"content")
    until(lambda: shows(nas, "file"), "the reader to hear of the file")
    assert nas.read("file") == b"content" * 1000
    nas.reopen()
    assert nas.volume.fs.read_only
    with pytest.raises(OSError, match="Read-only"):
        nas.write("file", b"mine")
    with nas.volume.fs.state.transaction() as tx:
        inode = nas.volume.fs.lookup(tx, ROOT_INO, b"file")
        assert inode is not None
        with pytest.raises(OSError, match="Read-only"):
            nas.volume.fs.unlink(tx, ROOT_INO, b"file")
        with pytest.raises(OSError, match="Read-only"):
            nas.volume.fs.rename(tx, ROOT_INO, b"file", ROOT_INO, b"other", 0)
        with pytest.raises(OSError, match="Read-only"):
            nas.volume.fs.truncate(tx, inode, 0)
    nas.sync()
    assert ["only reads" in one.what for one in examine_roles(nas.home, [NAME])] == [True]
    assert not list(examine_roles(first.home, [NAME, "none"]))
    nas.volume.content.pin(PurePath())
    assert nas.volume.drop_cache().freed_bytes == 0, "it keeps what it is to keep"
    assert facts_of(first, "nas").reader and facts_of(nas, "nas").reader
    assert nas.volume.status(look=False).pending_files == 0
    assert any("only reads" in one for one in nas.volume.status(look=False).notices)
    assert nas.fsck().problems == [] and first.fsck().problems == []


def test_what_a_reader_signs_changes_nothing_anywhere(tmp_path: Path, stack: ExitStack) -> None:
    first = opened(stack, Device(tmp_path))
    first.write("file", b"content")
    first.sync()
    nas = opened(stack, Reader(tmp_path / "nas", first))
    until(lambda: knows_its_role(nas), "the reader to hear of its role")
    with nas.volume.fs.state.transaction() as tx:
        inode = nas.volume.fs.lookup(tx, ROOT_INO, b"file")
        assert inode is not None
        node = inode.id
    public = first.volume.ring.keys.device.public
    told(
        nas,
        first,
        [
            (content_key(node), Content(0, 0, ()).encode()),
            (place_key(node, 0), Place(node, b"file").left().encode()),
            (member_key(first.volume.sharing.device), Member(public, "first", removed=True).encode()),
            *entries_of({9: CloudRecord("evil", "file:///evil")}, None),
        ],
    )
    assert first.read("file") == b"content"
    assert not first.volume.following.was_removed
    assert [one.name for one in first.volume.config.clouds] == ["cloud-0", "cloud-1", "cloud-2"]
    assert facts_of(first, "nas").overstepped
    assert any("no machine accepts them" in one for one in first.volume.status(look=False).warnings)
    first.write("more", b"later")
    first.sync()
    assert first.fsck().problems == []
    third = opened(stack, Second(tmp_path / "third", first))
    until(lambda: shows(third, "more"), "a third device to hear of it")
    assert third.read("file") == b"content"
    assert third.fsck().problems == []


COMMANDS: Final[Sequence[Callable[[Volume], object]]] = (
    lambda volume: volume.clouds.add("file:///elsewhere", None),
    lambda volume: volume.clouds.drain("cloud-0"),
    lambda volume: volume.clouds.replace("cloud-0", "file:///elsewhere"),
    lambda volume: volume.clouds.change_redundancy(0, 1),
    lambda volume: volume.invite(lifetime=60.0, with_credentials=False),
    lambda volume: volume.remove_device("first"),
    lambda volume: volume.rename_device("first", "other"),
    lambda volume: volume.set_role("first", reader=True),
    lambda volume: volume.recovery.make("a passphrase that is good"),
    lambda volume: volume.versions.restore("file", None, None, None),
    lambda volume: volume.settle_conflict("file", keep_all=True),
    lambda volume: volume.merging.settle("file", "", b"merged"),
    lambda volume: volume.mirrors.add(Path("/nowhere"), Path("at"), []),
    lambda volume: volume.key_values.open().create_container("box"),
    lambda volume: volume.key_values.open().put("box", "key", b"value"),
)


def test_a_command_that_changes_something_says_why_it_fails(tmp_path: Path, stack: ExitStack) -> None:
    first = opened(stack, Device(tmp_path))
    nas = opened(stack, Reader(tmp_path / "nas", first))
    for command in COMMANDS:
        with pytest.raises(HybrisError, match="only reads"):
            command(nas.volume)
    nas.volume.maintenance.repair(lambda stage, done, total: None)
    assert nas.volume.collector.collect(lambda stage, done, total: None, dry_run=False).trouble == ""


def test_a_reader_names_itself(tmp_path: Path, stack: ExitStack) -> None:
    first = opened(stack, Device(tmp_path))
    nas = opened(stack, Reader(tmp_path / "nas", first))
    until(lambda: knows_its_role(nas), "the reader to hear of its role")
    nas.volume.rename_device("nas", "cellar")
    nas.sync()

    def renamed() -> bool:
        first.volume.signals.look_around()
        return any(one.name == "cellar" for one in first.volume.devices())

    until(renamed, "the first to hear of the name")


def test_a_member_is_made_a_reader_and_a_member_again(tmp_path: Path, stack: ExitStack) -> None:
    first = opened(stack, Device(tmp_path))
    second = opened(stack, Second(tmp_path / "second", first))
    second.write("before", b"as a member")
    second.sync()
    until(lambda: shows(first, "before"), "the first to hear of the file")
    assert first.volume.set_role("second", reader=True).reader
    first.sync()
    until(lambda: is_reader(second), "the second to hear of its role")
    with pytest.raises(OSError, match="Read-only"):
        second.write("during", b"as a reader")
    second.reopen()
    assert second.volume.fs.read_only
    assert not first.volume.set_role("second", reader=False).reader
    first.sync()
    until(lambda: not is_reader(second), "the second to hear of its role")
    second.write("after", b"as a member")
    second.sync()
    until(lambda: shows(first, "after"), "the first to hear of the file")
    assert first.fsck().problems == [] and second.fsck().problems == []


def test_offline_work_from_before_is_kept_and_what_is_unsigned_is_shown(
    tmp_path: Path, stack: ExitStack
) -> None:
    first = opened(stack, Device(tmp_path))
    second = opened(stack, Second(tmp_path / "second", first))
    first.write("common", b"content")
    first.sync()
    until(lambda: shows(second, "common"), "the second to hear of the file")
    second.volume.transfers.pause(None)
    second.write("offline", b"work")
    assert second.volume.uploads.wait_signed(60.0)
    second.close()
    first.volume.set_role("second", reader=True)
    first.sync()
    second.reopen()
    second.volume.transfers.resume()
    until(lambda: is_reader(second), "the second to hear of its role")
    until(lambda: shows(first, "offline"), "the first to hear of what was done before")
    with pytest.raises(HybrisError, match="only reads"):
        second.sync()  # its bytes are on no cloud
    assert any("on no cloud" in one for one in second.volume.status(look=False).warnings)
    first.volume.set_role("second", reader=False)
    first.sync()
    until(lambda: not is_reader(second), "the second to hear of its role")
    second.sync()
    until(lambda: not lacks_content(first), "the first to hear where the bytes are")
    assert first.read("offline") == b"work"
    assert first.fsck().problems == []


def test_what_is_unsigned_when_it_is_told_waits_here_until_it_may_write_again(
    tmp_path: Path, stack: ExitStack
) -> None:
    first = opened(stack, Device(tmp_path))
    second = opened(stack, Second(tmp_path / "second", first))
    second.sync()
    with second.volume.fs.state.transaction() as tx:  # a program that has it open keeps it from being signed
        _, handle = second.volume.fs.create(tx, ROOT_INO, b"unsaved", 0o644, 1, 1, os.O_WRONLY)
    second.write_at(handle, 0, b"work")
    first.volume.set_role("second", reader=True)
    first.sync()
    until(lambda: is_reader(second), "the second to hear of its role")
    with pytest.raises(OSError, match="Read-only"), second.volume.fs.state.transaction() as tx:
        second.volume.fs.write(tx, second.volume.fs.handle(handle), 4, b"more")
    with second.volume.fs.state.transaction() as tx:
        second.volume.fs.release(tx, handle)
    with pytest.raises(HybrisError, match="only reads"):
        second.sync()
    second.reopen()
    assert second.read("unsaved") == b"work"
    assert any("on no other machine" in one for one in second.volume.status(look=False).warnings)
    first.volume.set_role("second", reader=False)
    first.sync()
    until(lambda: shows(first, "unsaved"), "the first to hear of the work")
    assert first.read("unsaved") == b"work"


def test_who_may_say_what_a_device_may_do(tmp_path: Path, stack: ExitStack) -> None:
    first = opened(stack, Device(tmp_path))
    opened(stack, Second(tmp_path / "second", first))
    own = first.volume.sharing.membership.own_name
    with pytest.raises(UsageError, match="its own role"):
        first.volume.set_role(own, reader=True)
    with pytest.raises(UsageError, match="not a machine"):
        first.volume.set_role("nobody", reader=True)
    assert not first.volume.role_of("second").reader
    assert first.volume.set_role("second", reader=False).device == "second"
    assert not unlocked(first.volume.fs).registers.roles, "there was nothing to be said"
