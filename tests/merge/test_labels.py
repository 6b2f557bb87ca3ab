"""Labels of several devices are a set: what one adds stays, unless somebody takes it away who has seen it."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator

import pytest

from hybrisfs.kinds import LABEL
from hybrisfs.members.roles import Role
from hybrisfs.registers.labels import ADDED, MOST_LABELS, TAKEN_AWAY, label_key
from hybrisfs.tree.attributes import XATTR_CREATE, XATTR_REPLACE
from hybrisfs.tree.facets import LABELS_XATTR
from hybrisfs.tree.residency import State
from tests.merge.fleet import NAMES, Device, Fleet
from tests.merge.view import check_view
from tests.tree.unlocked import unlocked


@pytest.fixture
def fleet() -> Iterator[Fleet]:
    fleet = Fleet(2)
    fleet[0].write("file", b"content")
    fleet[0].mkdir("folder")
    fleet.meet()
    yield fleet
    fleet.discard()


def add(device: Device, path: str, *words: str) -> None:
    device.rig.fs.labels.add(device.rig.tx, device.at(path), words)


def remove(device: Device, path: str, *words: str) -> None:
    device.rig.fs.labels.remove(device.rig.tx, device.at(path), words)


def of(device: Device, path: str) -> list[str]:
    return device.rig.fs.labels.of(device.rig.tx, device.at(path))


def met(fleet: Fleet, path: str) -> list[str]:
    """What all see once they have heard of all."""
    fleet.meet()
    fleet.meet()
    for device in fleet.devices:
        check_view(device)
        assert device.rig.db.rows.execute("SELECT count(*) FROM unsigned").fetchone() == (0,)
        assert of(device, path) == of(fleet[0], path)
    return of(fleet[0], path)


def refused(number: int, device: Device, path: str, *words: str) -> None:
    with pytest.raises(OSError) as error:
        add(device, path, *words)
    assert error.value.errno == number


def test_both_keep_what_they_add(fleet: Fleet) -> None:
    add(fleet[0], "file", "taxes", "2026")
    add(fleet[1], "file", "Ämter", "taxes")
    assert of(fleet[0], "file") == ["2026", "taxes"]
    assert met(fleet, "file") == ["2026", "taxes", "Ämter"]


@pytest.mark.parametrize("path", ["", "folder", "file"])
def test_it_is_taken_away_by_who_has_seen_it(fleet: Fleet, path: str) -> None:
    add(fleet[0], path, "a", "b")
    assert met(fleet, path) == ["a", "b"]
    remove(fleet[1], path, "a", "unknown")
    assert of(fleet[1], path) == ["b"]
    assert met(fleet, path) == ["b"]


def test_who_adds_wins_over_who_takes_away_at_the_same_time(fleet: Fleet) -> None:
    add(fleet[0], "file", "a")
    fleet.meet()
    add(fleet[0], "file", "a")  # again: it is wanted
    remove(fleet[1], "file", "a")
    fleet.sign()
    assert met(fleet, "file") == ["a"]


def test_a_removal_that_is_not_signed_gives_way(fleet: Fleet) -> None:
    add(fleet[0], "file", "a", "b")
    fleet.meet()
    remove(fleet[1], "file", "a", "b")
    add(fleet[0], "file", "a")
    fleet.send(0, 1)
    assert of(fleet[1], "file") == ["a"]
    assert met(fleet, "file") == ["a"]


def test_a_removal_stays_when_another_device_removes_it_too(fleet: Fleet) -> None:
    add(fleet[0], "file", "a")
    add(fleet[1], "file", "a")
    fleet.meet()
    remove(fleet[0], "file", "a")
    remove(fleet[1], "file", "a")
    fleet.send(0, 1)
    assert met(fleet, "file") == []


@pytest.mark.parametrize("end", ["crash", "reopen"])
def test_what_is_not_signed_survives(fleet: Fleet, end: str) -> None:
    device = fleet[0]
    add(device, "file", "a", "b")
    remove(device, "file", "b")
    device.rig.commit()
    device.rig = device.rig.crashed() if end == "crash" else device.rig.reopen()
    assert of(device, "file") == ["a"]
    assert {key[0] for key in device.rig.fs.changes.unsigned} == {LABEL}
    assert met(fleet, "file") == ["a"]


def test_it_is_on_its_way_to_the_clouds(fleet: Fleet) -> None:
    device = fleet[0]
    device.rig.tx.pending.ship(1 << 40)
    residency = device.rig.reading.residency
    assert residency.state(device.rig.tx, device.at("file")) is State.DURABLE
    add(device, "file", "a")
    assert residency.state(device.rig.tx, device.at("file")) is State.UPLOADING


def test_labels_go_with_a_file_that_is_gone_before_it_is_signed(fleet: Fleet) -> None:
    device = fleet[0]
    device.write("new", b"")
    add(device, "new", "a")
    device.remove("new")
    device.sign()
    assert not [key for key in device.registers() if key[0] == LABEL]
    assert device.rig.db.rows.execute("SELECT count(*) FROM unsigned").fetchone() == (0,)


def test_a_change_while_the_last_one_is_signed(fleet: Fleet) -> None:
    rig = fleet[0].rig
    add(fleet[0], "file", "a")
    key = label_key(fleet[0].at("file").id, "a")
    cut = rig.publisher._take_cut()
    assert cut is not None and cut.writes == {key: ADDED}
    remove(fleet[0], "file", "a")
    rig.publisher._sign(rig.tx, cut)
    assert of(fleet[0], "file") == []
    fleet[0].sign()
    assert [one.value for one in rig.tx.registers.values(key)] == [TAKEN_AWAY]


def test_folders_of_one_name_have_the_labels_of_both(fleet: Fleet) -> None:
    for number, device in enumerate(fleet.devices):
        device.mkdir("same")
        add(device, "same", f"of {number}", "both")
    assert met(fleet, "same") == ["both", "of 0", "of 1"]
    remove(fleet[0], "same", "both", "of 1")
    assert met(fleet, "same") == ["of 0"]


def test_equal_files_that_become_one_have_the_labels_of_both(fleet: Fleet) -> None:
    for number, device in enumerate(fleet.devices):
        device.write("same", b"equal")
        add(device, "same", f"of {number}")
    assert met(fleet, "same") == ["of 0", "of 1"]
    fleet[0].rig.fs.attributes.change(fleet[0].rig.tx, fleet[0].at("same"), mode=0o600)
    assert met(fleet, "same") == ["of 0", "of 1"]


def test_a_conflict_copy_keeps_the_labels_of_its_file(fleet: Fleet) -> None:
    add(fleet[0], "file", "a")
    fleet.meet()
    fleet[0].write("file", b"by ada")
    fleet[1].write("file", b"by bob")
    fleet.meet()
    [copy] = [path for path in fleet[0].names() if path not in ("file", "folder")]
    assert met(fleet, copy) == ["a"]
    add(fleet[0], copy, "b")
    assert met(fleet, copy) == ["a", "b"]
    assert of(fleet[0], "file") == ["a"]


def test_an_edit_that_goes_on_beside_the_file_keeps_the_labels(fleet: Fleet) -> None:
    add(fleet[0], "file", "a")
    fleet.meet()
    add(fleet[1], "file", "b")
    fleet[1].write("file", b"by bob")
    fleet[0].write("file", b"by ada")
    fleet.send(0, 1)
    [copy] = [path for path in fleet[1].names() if path not in ("file", "folder")]
    assert of(fleet[1], copy) == ["a", "b"]
    assert met(fleet, copy) == ["a", "b"]
    assert of(fleet[0], "file") == ["a", "b"]


def test_what_is_refused(fleet: Fleet) -> None:
    device = fleet[0]
    add(device, "file", *(str(number) for number in range(MOST_LABELS)))
    refused(errno.ENOSPC, device, "file", "one more")
    fs, inode = device.rig.fs, device.at("file")
    for value in (b"a\nb", b"\xff", b"x" * 65):
        with pytest.raises(OSError, match=os.strerror(errno.EINVAL)):
            fs.set_xattr(unlocked(fs), inode, LABELS_XATTR, value, 0)
    nameless, handle = fs.create_nameless(unlocked(fs), 1, 0o600, 1, 1, os.O_RDWR)
    with pytest.raises(OSError, match=os.strerror(errno.EOPNOTSUPP)):
        fs.labels.add(unlocked(fs), nameless, ["a"])
    fs.release(unlocked(fs), handle)


def test_as_an_extended_attribute(fleet: Fleet) -> None:
    fs, inode = fleet[0].rig.fs, fleet[0].at("file")
    fs.set_xattr(unlocked(fs), inode, b"user.other", b"x", 0)
    with pytest.raises(OSError, match=os.strerror(errno.ENODATA)):
        fs.set_xattr(unlocked(fs), inode, LABELS_XATTR, b"a", XATTR_REPLACE)
    fs.set_xattr(unlocked(fs), inode, LABELS_XATTR, b"b,a", XATTR_CREATE)
    with pytest.raises(OSError, match=os.strerror(errno.EEXIST)):
        fs.set_xattr(unlocked(fs), inode, LABELS_XATTR, b"a", XATTR_CREATE)
    assert fs.attributes.get_xattr(unlocked(fs), inode, LABELS_XATTR) == b"a,b"
    assert fs.attributes.list_xattrs(unlocked(fs), inode) == [b"user.other", LABELS_XATTR]
    fs.set_xattr(unlocked(fs), inode, LABELS_XATTR, b"c,b", 0)
    assert met(fleet, "file") == ["b", "c"]
    fs.attributes.remove_xattr(unlocked(fs), inode, LABELS_XATTR)
    assert fs.attributes.list_xattrs(unlocked(fs), inode) == [b"user.other"]
    with pytest.raises(OSError, match=os.strerror(errno.ENODATA)):
        fs.attributes.remove_xattr(unlocked(fs), inode, LABELS_XATTR)
    assert met(fleet, "file") == []


def test_what_a_member_signs_beyond_its_rights_counts_for_nothing(fleet: Fleet) -> None:
    fleet.tell_who_came_by_whom()
    fleet.meet()
    fleet[0].rig.sharing.membership.set_role(NAMES[1], Role.READER)
    fleet.meet()
    rig, node = fleet[1].rig, fleet[1].at("file").id
    with rig.fs.state.transaction():
        rig.updates.sign([(label_key(node, "a"), ADDED)], 1, 0)
    fleet[0].receive(fleet[1].log())
    assert of(fleet[0], "file") == []


def test_a_member_that_gives_thousands_keeps_no_program_from_copying_the_file(fleet: Fleet) -> None:
    words = [f"{number:04} {'x' * 50}" for number in range(2000)]
    node = fleet[1].at("file").id
    with fleet[1].rig.fs.state.transaction():
        fleet[1].rig.updates.sign([(label_key(node, word), ADDED) for word in words], 1, 0)
    assert fleet[0].receive(fleet[1].log())
    fs, inode = fleet[0].rig.fs, fleet[0].at("file")
    shown = fs.attributes.get_xattr(unlocked(fs), inode, LABELS_XATTR)
    assert shown == ",".join(words[:MOST_LABELS]).encode()
    fs.set_xattr(unlocked(fs), inode, LABELS_XATTR, shown, 0)
    assert of(fleet[0], "file") == words
    fs.attributes.remove_xattr(unlocked(fs), inode, LABELS_XATTR)
    assert of(fleet[0], "file") == words[MOST_LABELS:]


def test_all_that_are_shown(fleet: Fleet) -> None:
    add(fleet[0], "file", "a", "b")
    add(fleet[0], "folder", "a")
    fleet[0].write("gone", b"")
    add(fleet[0], "gone", "a", "c")
    fleet.meet()
    fleet[1].remove("gone")
    remove(fleet[1], "file", "b")
    labels = fleet[1].rig.fs.labels
    assert labels.counts(fleet[1].rig.tx) == {"a": 2}
    assert labels.labelled(fleet[1].rig.tx, "a") == sorted(
        fleet[1].at(path).ino for path in ("file", "folder")
    )
    assert labels.labelled(fleet[1].rig.tx, "b") == []


def test_a_label_that_is_no_text_harms_nobody(fleet: Fleet) -> None:
    """An earlier version, which knew no labels, has kept it unread."""
    device = fleet[0]
    add(device, "file", "good")
    device.sign()
    key = LABEL.key(device.at("file").id, b"\xff")
    device.rig.db.rows.execute(
        "INSERT INTO register (key, clock, writer, value) SELECT ?, clock, writer, ? FROM register LIMIT 1",
        (key, ADDED),
    )
    assert of(device, "file") == ["\\xff", "good"]
    assert set(device.rig.fs.labels.counts(device.rig.tx)) == {"\\xff", "good"}
    assert device.rig.fs.labels.asking_for_copies(device.rig.tx) == {}
