"""A device that is limited to a folder: it works there as a full member does, and nothing that it signs about
anything else changes anything."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path, PurePath
from typing import Final

import pytest
from msgspec import structs

from hybrisfs.admit.join import join_volume, make_grant
from hybrisfs.doctor.examination import examine_roles
from hybrisfs.environment import SYSTEM
from hybrisfs.errors import HybrisError, UsageError
from hybrisfs.home import Home
from hybrisfs.members.members import Member, member_key
from hybrisfs.members.roles import Area, Role, RoleRecord, new_assignment, new_role_key
from hybrisfs.merge.cloud_records import CloudRecord, entries_of
from hybrisfs.pairing.messages import Peer
from hybrisfs.pairing.session import Joined
from hybrisfs.registers.node_id import ROOT_ID, new_node_id
from hybrisfs.registers.tree import Attr, Content, Place, attr_key, content_key, pack_key, place_key
from hybrisfs.state.schema import ROOT_INO
from hybrisfs.tree.content import Missing
from hybrisfs.tree.inodes import Inode
from hybrisfs.volume.volume import Volume
from sync import DeviceKey
from sync.update import Write
from tests.system.deadline import until
from tests.tree.unlocked import unlocked
from tests.volume.device import ALONE, NAME, Device, Second
from tests.volume.test_roles import facts_of, knows_its_role, lacks_content, opened, told

FOLDER: Final = "shared"


class Contributor(Second):
    """A device that was let in to change what is in a folder."""

    def __init__(self, root: Path, first: Device) -> None:
        self.home = Home.below(root / "home")
        self.clouds = first.clouds
        self.home.prepare()
        key, volume = DeviceKey.generate(), first.volume
        members = volume.sharing.current_members()
        grant = make_grant(volume.config, volume.ring.keys, members, None, reader=True)
        with volume.fs.state.transaction() as tx:
            areas = volume.sharing.shared_folders.choose(tx, [FOLDER])
        volume.sharing.membership.admit(Member(key.public, "tablet"), role=Role.CONTRIBUTOR, areas=areas)
        volume.sharing.shared_folders.assign(areas)
        joined = Joined(grant, Peer(volume.ring.keys.device.public, "first"))
        structs.replace(join_volume(self.home, None, key, "tablet", joined), links=ALONE).save(self.home)
        self.volume = Volume.open(self.home, NAME, SYSTEM)
        self._open = True


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as one:
        yield one


def at(device: Device, path: str) -> Inode:
    with device.volume.fs.state.transaction() as tx:
        inode = device.volume.fs.locate(tx, path.encode().split(b"/"))
    assert inode is not None
    return inode


def put(device: Device, path: str, content: bytes) -> None:
    """Make a file of this content, or replace that of one."""
    folder, _, name = path.rpartition("/")
    volume = device.volume
    with volume.fs.state.transaction() as tx:
        parent = at(device, folder).ino if folder else ROOT_INO
        inode = volume.fs.lookup(tx, parent, name.encode())
        if inode is None:
            inode = volume.fs.make(tx, parent, name.encode(), 0o100644, 1, 1)
        volume.fs.truncate(tx, inode, 0)
        volume.fs.write(tx, inode, 0, content)


def has(device: Device, path: str) -> bool:
    device.volume.signals.look_around()
    with device.volume.fs.state.transaction() as tx:
        return device.volume.fs.locate(tx, path.encode().split(b"/")) is not None


def begin(root: Path, stack: ExitStack) -> tuple[Device, Contributor]:
    """A first device with files inside and outside of a folder, and one that is limited to that and knows."""
    first = opened(stack, Device(root))
    with first.volume.fs.state.transaction() as tx:
        first.volume.fs.make(tx, ROOT_INO, FOLDER.encode(), 0o040755, 1, 1)
    put(first, f"{FOLDER}/inside", b"content" * 1000)
    put(first, "outside", b"content" * 1000)
    first.sync()
    tablet = opened(stack, Contributor(root / "tablet", first))
    until(lambda: knows_its_role(tablet), "the contributor to hear of its role")
    until(lambda: has(tablet, f"{FOLDER}/inside"), "the contributor to hear of the files")
    return first, tablet


def read(device: Device, path: str) -> bytes:
    volume, inode = device.volume, at(device, path)
    while True:
        with volume.fs.state.transaction() as tx:
            lacking = volume.fs.received.lacking(tx, inode)
            data = lacking or volume.fs.read(tx, inode, 0, inode.size)
        if not isinstance(data, Missing):
            return data
        volume.fetcher.fetch(data.chunks)


def area_of(first: Device) -> Area:
    with first.volume.fs.state.transaction() as tx:
        (area,) = first.volume.sharing.shared_folders.choose(tx, [FOLDER])
    return area


def test_a_contributor_changes_its_folder_and_nothing_else(tmp_path: Path, stack: ExitStack) -> None:
    first, tablet = begin(tmp_path, stack)
    put(tablet, f"{FOLDER}/new", b"contributed" * 1000)
    put(tablet, f"{FOLDER}/inside", b"changed" * 1000)
    tablet.sync()
    until(lambda: has(first, f"{FOLDER}/new"), "the first to hear of the file")
    until(lambda: not lacks_content(first), "the first to hear where its bytes are")
    assert read(first, f"{FOLDER}/new") == b"contributed" * 1000
    assert read(first, f"{FOLDER}/inside") == b"changed" * 1000
    for path in ("outside", "new"):
        with pytest.raises(PermissionError):
            put(tablet, path, b"mine")
    tablet.reopen()
    with pytest.raises(PermissionError):
        put(tablet, "outside", b"mine")
    put(tablet, f"{FOLDER}/later", b"contributed")
    for device in (first, tablet):
        assert facts_of(device, "tablet").folders == [FOLDER]
        assert not facts_of(device, "tablet").reader
        others = [one for one in device.volume.devices() if one.name != "tablet"]
        assert [one.folders for one in others] == [None]
    tablet.sync()
    facts = tablet.volume.status(look=False)
    assert any(f"only change what is in {FOLDER}" in one for one in facts.notices)
    assert (facts.pending_files, facts.reader, facts.folders) == (0, False, [FOLDER])
    assert ["in the folders" in one.what for one in examine_roles(tablet.home, [NAME])] == [True]
    assert tablet.fsck(clouds=True).problems == []
    assert first.fsck(clouds=True).problems == []


def test_what_a_contributor_signs_about_anything_else_changes_nothing(
    tmp_path: Path, stack: ExitStack
) -> None:
    first, tablet = begin(tmp_path, stack)
    area, folder = area_of(first), at(first, FOLDER).id
    outside, inside = at(first, "outside").id, at(first, f"{FOLDER}/inside").id
    node, forged = (
        new_node_id(0o100644, time.time_ns(), area.id),
        new_node_id(0o100644, time.time_ns(), b"else"),
    )
    (pack,) = unlocked(first.volume.fs).execute("SELECT id FROM pack LIMIT 1").fetchone()
    public = first.volume.ring.keys.device.public
    itself = tablet.volume.sharing.device
    lies: list[Write] = [
        (content_key(outside), Content(0, 0, ()).encode()),
        (attr_key(outside), Attr(0o100600, 1, 1, 0, 0).encode()),
        (place_key(outside, 0), Place(folder, b"stolen").encode()),
        (place_key(inside, 0), Place(ROOT_ID, b"moved out").encode()),
        (place_key(inside, 5), Place(ROOT_ID, b"a link").encode()),
        (place_key(folder, 0), Place(ROOT_ID, b"renamed").encode()),
        (place_key(node, 0), Place(ROOT_ID, b"new").encode()),
        (place_key(forged, 0), Place(folder, b"forged").encode()),
        new_assignment(outside, area.id),
        (new_role_key(itself), RoleRecord(Role.FULL).encode()),
        (new_role_key(first.volume.sharing.device), RoleRecord(Role.READER).encode()),
        (member_key(first.volume.sharing.device), Member(public, "first", removed=True).encode()),
        (pack_key(pack), None),
        *entries_of({9: CloudRecord("evil", "file:///evil")}, None),
    ]
    told(tablet, first, lies)
    told(tablet, first, [(content_key(outside), Content(0, 0, ()).encode())])  # by its own assignment
    told(tablet, first, [(attr_key(inside), Attr(0o100600, 1, 1, 0, 0).encode())])  # this counts
    with first.volume.fs.state.transaction() as tx:
        assert {name for _, name, _ in first.volume.fs.names.list(tx, ROOT_INO, 0, 10)} == {
            b"outside",
            b"shared",
        }
        assert first.volume.sharing.signer.role_of(unlocked(first.volume.fs), itself) is Role.CONTRIBUTOR
    assert read(first, "outside") == b"content" * 1000 == read(first, f"{FOLDER}/inside")
    assert at(first, f"{FOLDER}/inside").mode == 0o100600
    assert not first.volume.following.was_removed
    assert [one.name for one in first.volume.config.clouds] == ["cloud-0", "cloud-1", "cloud-2"]
    assert facts_of(first, "tablet").overstepped
    warnings = first.volume.status(look=False).warnings
    assert any("is limited to folders" in one for one in warnings)
    first.sync()
    assert first.fsck().problems == []
    third = opened(stack, Second(tmp_path / "third", first))
    until(lambda: has(third, "outside"), "a third device to hear of it")
    assert read(third, "outside") == b"content" * 1000
    assert third.fsck().problems == []


def test_a_contributor_that_forks_or_pretends_gets_no_further(tmp_path: Path, stack: ExitStack) -> None:
    """It was a full member; it does not depend on what limits it."""
    first = opened(stack, Device(tmp_path))
    with first.volume.fs.state.transaction() as tx:
        first.volume.fs.make(tx, ROOT_INO, FOLDER.encode(), 0o040755, 1, 1)
    put(first, "outside", b"content")
    first.sync()
    second = opened(stack, Second(tmp_path / "second", first))
    until(lambda: has(second, "outside"), "the second to hear of the file")
    second.volume.transfers.pause(None)
    node = at(second, "outside").id
    assert first.volume.set_role("second", folders=[FOLDER]).folders == [FOLDER]
    told(second, first, [(content_key(node), Content(0, 0, ()).encode())])
    assert read(first, "outside") == b"content"
    assert first.fsck().problems == []


def another(volume: Volume) -> str:
    """The id of the other device."""
    return next(str(one.id) for one in volume.devices() if not one.this)


COMMANDS: Final[Sequence[Callable[[Volume], object]]] = (
    lambda volume: volume.clouds.add("file:///elsewhere", None),
    lambda volume: volume.clouds.drain("cloud-0"),
    lambda volume: volume.clouds.change_redundancy(0, 1),
    lambda volume: volume.invite(lifetime=60.0, with_credentials=False),
    lambda volume: volume.remove_device(another(volume)),
    lambda volume: volume.set_role(another(volume), reader=True),
    lambda volume: volume.set_role(another(volume), folders=[FOLDER]),
    lambda volume: volume.recovery.make("a passphrase that is good"),
    lambda volume: volume.mirrors.add(Path("/nowhere"), Path("at"), []),
    lambda volume: volume.key_values.open().create_container("box"),
)


def test_what_is_for_full_members_says_so(tmp_path: Path, stack: ExitStack) -> None:
    first, tablet = begin(tmp_path, stack)
    for command in COMMANDS:
        with pytest.raises(HybrisError, match="some folders"):
            command(tablet.volume)
    tablet.volume.rename_device("tablet", "slate")
    tablet.volume.maintenance.repair(lambda stage, done, total: None)
    assert tablet.volume.collector.collect(lambda stage, done, total: None, dry_run=False).trouble == ""
    assert first.volume.role_of(tablet.volume.sharing.device.hex()).folders == [FOLDER]


def keep(volume: Volume) -> None:
    volume.settle_conflict(f"{FOLDER}/inside", keep_all=False)


def merge(volume: Volume) -> None:
    found = volume.merging.compare(f"{FOLDER}/inside")
    volume.merging.settle(f"{FOLDER}/inside", found.mark, b"merged")


@pytest.mark.parametrize("settle", [keep, merge])
def test_a_contributor_settles_conflicts_in_its_folder(
    tmp_path: Path, stack: ExitStack, settle: Callable[[Volume], None]
) -> None:
    first, tablet = begin(tmp_path, stack)
    tablet.volume.transfers.pause(None)
    for device, content in ((first, b"first"), (tablet, b"tablet")):
        put(device, f"{FOLDER}/inside", content)
    assert tablet.volume.uploads.wait_signed(60.0)
    first.sync()
    tablet.volume.transfers.resume()
    until(lambda: looked(tablet).volume.conflicts(), "the contributor to hear of the conflict")
    settle(tablet.volume)
    assert tablet.volume.conflicts() == []
    tablet.sync()
    until(lambda: not looked(first).volume.conflicts(), "the first to hear that it is settled")
    with first.volume.fs.state.transaction() as tx:
        assert len(first.volume.fs.names.list(tx, at(first, FOLDER).ino, 0, 10)) == 1
    assert first.fsck().problems == [] and tablet.fsck().problems == []


def looked(device: Device) -> Device:
    device.volume.signals.look_around()
    return device


def test_a_contributor_mirrors_and_imports_into_its_folder(tmp_path: Path, stack: ExitStack) -> None:
    first, tablet = begin(tmp_path, stack)
    source = tmp_path / "source"
    source.mkdir()
    (source / "brought").write_bytes(b"content")
    with pytest.raises(HybrisError, match="some folders"):
        tablet.volume.mirrors.bring_in(source, PurePath("in"), lambda *_: None, dry_run=False, replace=False)
    with pytest.raises(HybrisError, match="some folders"):
        tablet.volume.mirrors.add(source, PurePath(), [])
    into = PurePath(FOLDER, "in")
    tablet.volume.mirrors.bring_in(source, into, lambda *_: None, dry_run=False, replace=False)
    tablet.volume.mirrors.add(source, into, [])
    tablet.sync()
    until(lambda: has(first, f"{into}/brought"), "the first to hear of the file")
    tablet.volume.mirrors.remove(source)


def test_a_contributor_restores_versions_in_its_folder(tmp_path: Path, stack: ExitStack) -> None:
    first, tablet = begin(tmp_path, stack)
    put(tablet, f"{FOLDER}/inside", b"changed")
    tablet.sync()
    with tablet.volume.fs.state.transaction() as tx:
        tablet.volume.fs.unlink(tx, at(tablet, FOLDER).ino, b"inside")
    tablet.sync()
    tablet.volume.versions.restore(f"{FOLDER}/inside", None, 0, None)
    with pytest.raises(PermissionError):
        tablet.volume.versions.restore(f"{FOLDER}/inside", None, 0, "elsewhere")
    tablet.sync()
    until(lambda: has(first, f"{FOLDER}/inside"), "the first to hear that it is back")
    assert read(tablet, f"{FOLDER}/inside") == b"changed"
    assert first.fsck().problems == [] and tablet.fsck().problems == []


def test_a_member_is_limited_and_set_free_again(tmp_path: Path, stack: ExitStack) -> None:
    first = opened(stack, Device(tmp_path))
    for folder in ("one", "two"):
        with first.volume.fs.state.transaction() as tx:
            first.volume.fs.make(tx, ROOT_INO, folder.encode(), 0o040755, 1, 1)
    first.sync()
    second = opened(stack, Second(tmp_path / "second", first))
    until(lambda: has(second, "two"), "the second to hear of the folders")
    for folders in (["one"], ["one", "two"], []):
        assert first.volume.set_role("second", folders=folders).folders == (folders or None)
        first.sync()
        until(lambda wanted=folders: limits_of(second) == len(wanted), "the second to hear of its role")  # type: ignore[misc]
        for folder in ("one", "two"):
            path = f"{folder}/{len(folders)}"
            if folders and folder not in folders:
                with pytest.raises(PermissionError):
                    put(second, path, b"content")
            else:
                put(second, path, b"content")
    put(second, "anywhere", b"content")
    second.sync()
    until(lambda: has(first, "anywhere"), "the first to hear of the file")
    assert first.volume.set_role("second", reader=False).folders is None
    with first.volume.fs.state.transaction() as tx:
        first.volume.fs.rename(tx, at(first, "one").ino, b"1", ROOT_INO, b"free", 0)
    assert first.fsck().problems == [] and second.fsck().problems == []


def limits_of(device: Device) -> int:
    device.volume.signals.look_around()
    return len(device.volume.fs.borders.limits or ())


@pytest.mark.parametrize(
    ("folders", "why"),
    [
        (["none"], "no folder"),
        (["outside"], "is not a folder"),
        (["/"], "whole volume"),
        ([""], "whole volume"),
    ],
)
def test_to_what_nobody_can_be_limited(
    tmp_path: Path, stack: ExitStack, folders: list[str], why: str
) -> None:
    first = opened(stack, Device(tmp_path))
    put(first, "outside", b"content")
    opened(stack, Second(tmp_path / "second", first))
    with pytest.raises(UsageError, match=why):
        first.volume.set_role("second", folders=folders)
    with pytest.raises(UsageError, match=why):
        first.volume.invite(lifetime=60.0, with_credentials=False, folders=folders)
    assert not unlocked(first.volume.fs).registers.roles
