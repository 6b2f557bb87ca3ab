"""fsck of a volume of several devices: log, registers and what the view makes of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from hybrisfs.admit.join import join_volume, make_grant
from hybrisfs.environment import SYSTEM
from hybrisfs.home import Home
from hybrisfs.members.members import Member
from hybrisfs.pairing.messages import Peer
from hybrisfs.pairing.session import Joined
from hybrisfs.registers.tree import Place
from hybrisfs.verify.database_check import FsckReport, LocalVolume, check_database
from hybrisfs.verify.fsck import Problem
from hybrisfs.volume.volume import Volume
from sync import DeviceKey
from tests.merge.fleet import Device, Fleet
from tests.surroundings import limited
from tests.tree.rig import SEALER, SMALL_BLOCKS, VOLUME, small_chunks
from tests.volume.device import Device as Machine


def problems(device: Device) -> list[Problem]:
    """What is wrong with the database of a device."""
    device.rig.commit()
    report = FsckReport()
    local = LocalVolume(VOLUME, device.key.device_id, SEALER)
    with device.rig.db.snapshot() as db:
        check_database(db, local, report, lambda stage, done, total: None)
    return report.problems


def all_problems(fleet: Fleet) -> list[Problem]:
    return [problem for device in fleet.devices for problem in problems(device)]


@pytest.fixture
def fleet() -> Iterator[Fleet]:
    """Two devices, chunks of 64 bytes."""
    fleet = Fleet(2, environment=lambda _: limited(small_chunks(64), SMALL_BLOCKS))
    yield fleet
    fleet.discard()


# -- what the view may look like ------------------------------------------------------------------


def plain(fleet: Fleet) -> None:
    fleet[0].mkdir("folder")
    fleet[0].write("folder/file", b"content")
    fleet[0].link("folder/file", "link")
    fleet[0].write("removed", b"x")
    fleet.meet()
    fleet[1].remove("removed")
    fleet[1].write("folder/file", b"changed")
    fleet[1].move("folder", "moved")


def versions(fleet: Fleet) -> None:
    """Concurrent contents of one file."""
    fleet[0].write("file", b"first")
    fleet.meet()
    fleet[0].write("file", b"ada's")
    fleet[1].write("file", b"bob's")


def namesakes(fleet: Fleet) -> None:
    """Files of one name."""
    fleet[0].write("file", b"ada's")
    fleet[1].write("file", b"bob's")


def splits(fleet: Fleet) -> None:
    """Edits that were not signed when others came, twice, and a name that nobody has kept from one."""
    for name in ("file", "freed"):
        fleet[0].write(name, b"first")
    fleet.meet()
    for number in range(2):
        for name in ("file", "freed"):
            fleet[0].write(name, b"ada's %d" % number)
            fleet[1].write(name, b"bob's %d" % number)
        fleet.send(0, 1)
        fleet[1].sign()
    fleet[0].remove("freed")


def folders(fleet: Fleet) -> None:
    """Folders of one name, which are one."""
    for number in (0, 1):
        fleet[number].mkdir("folder")
        fleet[number].write(f"folder/{number}", b"x")
        fleet[number].mkdir("folder/inner")
        fleet[number].write("folder/inner/file", b"%d" % number)


def equals(fleet: Fleet) -> None:
    """Equal files of one name, which are one."""
    for number in (0, 1):
        fleet[number].write("file", b"same")


def circle(fleet: Fleet) -> None:
    """Folders moved into each other."""
    for name in ("one", "two"):
        fleet[0].mkdir(name)
        fleet[0].write(f"{name}/file", name.encode())
    fleet.meet()
    fleet[0].move("one", "two/one")
    fleet[1].move("two", "one/two")


def undead(fleet: Fleet) -> None:
    """A file edited, and a folder filled, that another device removed."""
    fleet[0].write("file", b"first")
    fleet[0].mkdir("folder")
    fleet.meet()
    fleet[0].write("file", b"edited")
    fleet[0].write("folder/file", b"x")
    fleet[1].remove("file")
    fleet[1].remove("folder")


def long_files(fleet: Fleet) -> None:
    """Files whose list of chunks stands in chunks itself, not read yet by the other device."""
    fleet[0].write("long", bytes(range(200)) * 8)
    fleet[0].rig.fs.truncate(fleet[0].rig.tx, fleet[0].at("long"), 5000)
    fleet[1].write("other", bytes(range(100, 250)) * 9)


def forked(fleet: Fleet) -> None:
    """A device that went on from a backup."""
    fleet[0].write("file", b"first")
    fleet.meet()
    backup = fleet[0].saved()
    fleet[0].write("file", b"lost in the crash")
    fleet[0].write("new", b"new")
    fleet.meet()
    fleet[0].restore(backup)
    fleet[0].write("file", b"after the crash")
    fleet[0].sign()


ODD: list[Callable[[Fleet], None]] = [
    plain, versions, namesakes, splits, folders, equals, circle, undead, long_files, forked,
]  # fmt: skip


@pytest.mark.parametrize("scene", ODD)
def test_nothing_is_wrong_with_what_may_happen(fleet: Fleet, scene: Callable[[Fleet], None]) -> None:
    scene(fleet)
    assert all_problems(fleet) == []
    fleet.meet()
    assert all_problems(fleet) == []
    for path, inode in sorted(fleet[1].walk().items()):
        if inode.is_file:
            fleet[1].read(path)
            fleet[1].write(path, b"by bob")
    assert all_problems(fleet) == [], "while changes are unsigned"
    fleet[1].sign()
    assert all_problems(fleet) == []
    fleet.meet()
    assert all_problems(fleet) == []


@pytest.mark.parametrize("scene", [plain, versions, namesakes, splits, folders, equals, long_files])
def test_nothing_is_wrong_when_all_is_removed(fleet: Fleet, scene: Callable[[Fleet], None]) -> None:
    scene(fleet)
    fleet.meet()
    for path in sorted(fleet[0].names(), reverse=True):
        fleet[0].remove(path)
    assert all_problems(fleet) == []
    fleet.meet()
    assert all_problems(fleet) == []


def test_a_removed_folder_that_lives_may_be_emptied(fleet: Fleet) -> None:
    """Until that is signed, the view still has it."""
    undead(fleet)
    fleet.meet()
    fleet[1].move("folder/file", "elsewhere")
    assert all_problems(fleet) == []


def test_what_the_only_device_removed() -> None:
    fleet = Fleet(1)
    (device,) = fleet.devices
    device.write("kept", b"x")
    device.write("removed", b"y")
    device.link("removed", "also removed")
    device.sign()
    device.remove("removed")
    device.sign()
    device.remove("also removed")
    device.sign()
    other = Member(DeviceKey.from_seed(b"\x09" * 32).public, "late")
    device.rig.sharing.membership.admit(other)
    device.write("kept", b"z")
    device.sign()
    assert problems(device) == []
    with device.rig.fs.state.transaction() as tx:
        device.rig.fs.commit(tx)
        device.rig.db.rows.execute("DELETE FROM register WHERE key >= x'63' AND key < x'64'")
    assert "registers" in {problem.where for problem in problems(device)}
    fleet.discard()


# -- damage ---------------------------------------------------------------------------------------

_PLACES = "key >= x'70' AND key < x'71'"
DAMAGE: dict[str, tuple[Callable[[Fleet], None], str, str]] = {
    "value": (
        plain,
        f"UPDATE register SET value = CAST(x'00' || value AS BLOB) WHERE {_PLACES}",
        "registers",
    ),
    "lost value": (plain, f"DELETE FROM register WHERE {_PLACES}", "registers"),
    "value of no update": (
        plain,
        "INSERT INTO register SELECT key, clock + 1000, writer, value FROM register LIMIT 1",
        "registers",
    ),
    "superseded value": (
        plain,
        f"INSERT INTO register SELECT key, 1, writer, value FROM register WHERE clock > 1 AND {_PLACES}",
        "registers",
    ),
    "writer": (plain, "UPDATE register SET writer = 3 - writer", "registers"),
    "unknown writer": (plain, "UPDATE register SET writer = 9 WHERE writer = 2", "registers"),
    "lost version": (
        versions,
        "DELETE FROM register WHERE key IN (SELECT key FROM register GROUP BY key HAVING count(*) > 1) "
        "AND writer = 1",
        "registers",
    ),
    "member": (plain, "DELETE FROM member WHERE name = 'ada'", "log"),
    "key of a member": (plain, "UPDATE member SET public = randomblob(32) WHERE name = 'ada'", "registers"),
    "vector": (
        plain,
        "UPDATE log SET vector = (SELECT vector FROM log ORDER BY number LIMIT 1) WHERE number > 2",
        "log",
    ),
    "branch": (plain, "UPDATE log SET branch = randomblob(16) WHERE number = 1", "log"),
    "branches": (forked, "DELETE FROM log_branch WHERE parent IS NOT NULL", "log"),
    "fork point": (forked, "UPDATE log_branch SET above = above + 1 WHERE parent IS NOT NULL", "log"),
    "circle of branches": (forked, "UPDATE log_branch SET parent = id", "log"),
    "order": (plain, "UPDATE log SET number = 1000 WHERE number = 1", "log"),
    "signed elsewhere": (plain, "UPDATE log SET chunk_high = 0", "log"),
    "lost update": (plain, "DELETE FROM log WHERE number = 2", "log"),
    "joined folder": (folders, "DELETE FROM joined", "tree"),
    "joined with nobody": (folders, "UPDATE joined SET ino = 99", "tree"),
    "joined twice": (equals, "INSERT INTO joined SELECT id, 1 FROM node WHERE ino > 1", "tree"),
    "version": (versions, "DELETE FROM copy", "tree"),
    "version of another": (versions, "UPDATE copy SET id = randomblob(16)", "tree"),
    "content of a version": (
        versions,
        "UPDATE file_chunk SET length = length - 1 WHERE ino IN (SELECT ino FROM copy)",
        "tree",
    ),
    "name of a version": (
        versions,
        "UPDATE place SET wanted = CAST('other' AS BLOB) WHERE wanted IS NOT NULL",
        "tree",
    ),
    "name for nothing": (namesakes, "UPDATE place SET wanted = name WHERE wanted IS NULL", "tree"),
    "wrong owner of a name": (
        namesakes,
        "UPDATE place SET ino = (SELECT sum(ino) FROM place) - ino",
        "tree",
    ),
    "moved": (circle, "DELETE FROM moved", "tree"),
    "moved elsewhere": (circle, "UPDATE moved SET parent = randomblob(16)", "tree"),
    "moved by mistake": (plain, "INSERT INTO moved SELECT id, zeroblob(16) FROM node", "tree"),
    "undead": (undead, "DELETE FROM place WHERE name = CAST('file' AS BLOB)", "tree"),
    "list of chunks": (long_files, "UPDATE unlisted SET value = CAST(value || x'00' AS BLOB)", "tree"),
    "unlisted": (long_files, "DELETE FROM unlisted", "tree"),
    "unlisted by mistake": (plain, "INSERT INTO unlisted SELECT ino, x'0000' FROM node", "tree"),
    "page": (long_files, "DELETE FROM content_page", "tree"),
    "name": (plain, "UPDATE place SET name = CAST(name || x'61' AS BLOB)", "tree"),
    "lost name": (plain, "DELETE FROM place WHERE name = CAST('link' AS BLOB)", "tree"),
    "attributes": (plain, "UPDATE node SET mode = mode | 2 WHERE ino > 1", "tree"),
    "stamp": (plain, "UPDATE place SET stamp = 0", "tree"),
    "pack": (plain, "DELETE FROM pack", "packs"),
    "chunk elsewhere": (plain, "UPDATE chunk SET pack = 0", "packs"),
    "placement": (plain, "UPDATE pack SET placement = CAST(placement || x'01' AS BLOB)", "packs"),
}


@pytest.mark.parametrize("damage", DAMAGE)
@pytest.mark.parametrize("device", [0, 1])
def test_damage_is_named(fleet: Fleet, damage: str, device: int) -> None:
    scene, statement, where = DAMAGE[damage]
    scene(fleet)
    fleet.meet()
    rig = fleet[device].rig
    with rig.fs.state.transaction() as tx:
        rig.fs.commit(tx)
        if not rig.db.rows.execute(statement).rowcount:
            pytest.skip("this device has no such rows")
    found = problems(fleet[device])
    assert where in {problem.where for problem in found}, found
    assert all(problem.what and problem.severity == "error" for problem in found)


def test_a_member_of_another_name(fleet: Fleet) -> None:
    fleet[0].rig.sharing.membership.rename("bob", "robert")
    fleet.meet()
    assert all_problems(fleet) == []
    fleet[0].rig.db.rows.execute("UPDATE member SET name = 'mallory' WHERE name = 'robert'")
    (problem,) = problems(fleet[0])
    assert problem.where == "registers" and "mallory" in problem.what


def test_a_lost_removal(fleet: Fleet) -> None:
    """A name that comes back although another device has removed it."""
    plain(fleet)
    fleet.meet()
    device = fleet[0]
    with device.rig.fs.state.transaction() as tx:
        device.rig.fs.commit(tx)
        for key, clock, value in device.rig.db.rows.execute(
            f"SELECT key, clock, value FROM register WHERE {_PLACES}"
        ):
            place = Place.decode(value)
            if place.removed:
                device.rig.db.rows.execute(
                    "UPDATE register SET value = ? WHERE key = ? AND clock = ?",
                    (Place(place.parent, place.name).encode(), key, clock),
                )
    assert {"registers"} <= {problem.where for problem in problems(device)}


# -- machines and clouds --------------------------------------------------------------------------


@pytest.fixture
def machines(tmp_path: Path) -> Iterator[tuple[Machine, Volume]]:
    """A device on three clouds, and another that has joined."""
    first = Machine(tmp_path)
    volume = first.volume
    home, key = Home.below(tmp_path / "other"), DeviceKey.generate()
    grant = make_grant(volume.config, volume.ring.keys, volume.sharing.current_members(), None)
    volume.sharing.membership.admit(Member(key.public, "other"))
    join_volume(home, None, key, "other", Joined(grant, Peer(volume.ring.keys.device.public, "first")))
    second = Volume.open(home, volume.name, SYSTEM)
    yield first, second
    second.close()
    first.close()


def hand_over(volume: Volume, other: Volume) -> None:
    with volume.fs.state.transaction() as tx:
        log = [row[0] for row in tx.execute("SELECT bytes FROM log ORDER BY number").fetchall()]
    other.sharing.receiver.receive(log)


def check(volume: Volume) -> list[Problem]:
    return volume.fsck(clouds=True, progress=lambda stage, done, total: None).problems


def test_clouds_of_two_devices(machines: tuple[Machine, Volume]) -> None:
    """Objects of another device are looked at, too."""
    first, second = machines
    first.write("file", b"content " * 1000)
    first.sync()
    hand_over(first.volume, second)
    assert check(first.volume) == check(second) == []
    with second.fs.state.transaction() as tx:
        (placement,) = tx.execute("SELECT placement FROM pack").fetchone()
    cloud = first.clouds[placement[0]]
    (share,) = [path for path in cloud.glob("packs/*/*") if path.is_file()]
    share.write_bytes(share.read_bytes()[:-1])
    assert {problem.where for problem in check(second)} == {f"cloud {cloud.name}"}
