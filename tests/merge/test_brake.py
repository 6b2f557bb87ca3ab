"""What others take away in mass is shown here until a person decides; everything else goes on."""

from __future__ import annotations

import stat
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import pytest

from hybrisfs.errors import HybrisError, UsageError
from hybrisfs.merge.brake import FEW, MOST
from hybrisfs.merge.losses import YOUNG_NS
from hybrisfs.registers.node_id import ROOT_ID, new_node_id
from hybrisfs.registers.tree import (
    Attr,
    Content,
    Place,
    Run,
    attr_key,
    content_key,
    place_key,
)
from hybrisfs.sharing.sharing import REBUILDING_FOLDER
from sync import decode_signed
from sync.update import Write
from tests.merge.fleet import Device, Fleet
from tests.tree.invariants import check_accounts

FILES = 200
HOUR = 3600 * 10**9
DAY = 24 * HOUR
VICTIM, MALLORY, THIRD = range(3)


@pytest.fixture
def fleet() -> Iterator[Fleet]:
    """One device has made some files, the others have seen them."""
    fleet = Fleet(3)
    for number in range(FILES):
        fleet[VICTIM].write(f"file {number}", b"content %d" % number * 10)
    fleet.meet()
    yield fleet
    fleet.discard()


def held(device: Device) -> list[tuple[object, object]]:
    return [(one.names, one.of) for one in device.rig.sharing.deletions.all()]


def node(device: Device, number: int) -> bytes:
    return device.at(f"file {number}").id


def nodes(device: Device) -> list[bytes]:
    return [node(device, number) for number in range(FILES)]


def sign(device: Device, writes: Sequence[Write], time_ns: int | None = None) -> None:
    """Sign what no program of ours signs."""
    device.rig.updates.sign(writes, time.time_ns() if time_ns is None else time_ns, 0)


def delete(fleet: Fleet, first: int, last: int, by: int = MALLORY) -> None:
    for number in range(first, last):
        fleet[by].remove(f"file {number}")
    fleet[by].sign()


@contextmanager
def past(fleet: Fleet, ago_ns: int) -> Iterator[None]:
    """The clocks of all devices are behind by so much."""
    for device in fleet.devices:
        device.rig.around.ahead_ns = -ago_ns
    yield
    for device in fleet.devices:
        device.rig.around.ahead_ns = 0


def aged(ago_ns: int, maker: int = 0) -> Fleet:
    """Two devices; one of them made some files so long ago."""
    fleet = Fleet(2)
    with past(fleet, ago_ns):
        for number in range(FILES):
            fleet[maker].write(f"file {number}", b"content %d" % number * 10)
        fleet.meet()
    return fleet


def show_alike(*devices: Device) -> None:
    """All hold the same registers, whatever they show."""
    first, *others = devices
    for one in others:
        assert one.registers() == first.registers()


# -- what waits, and how it ends -----------------------------------------------------------------


def test_what_is_edited_before_it_is_accepted_stays_though_another_name_of_it_goes(fleet: Fleet) -> None:
    fleet[VICTIM].link("file 3", "other name")
    fleet.meet()
    delete(fleet, 0, 150)
    fleet.send(MALLORY, VICTIM)
    fleet[VICTIM].write("file 3", b"edited")
    fleet[VICTIM].remove("other name")
    fleet[VICTIM].sign()
    [waiting] = fleet[VICTIM].rig.sharing.deletions.all()
    assert waiting.names == 149
    fleet[VICTIM].rig.sharing.deletions.accept(str(waiting.id))
    fleet[VICTIM].sign()
    fleet.meet()
    for device in fleet.devices:
        assert device.read("file 3") == b"edited"


def test_it_waits_and_is_accepted(fleet: Fleet) -> None:
    before = fleet[VICTIM].tree()
    delete(fleet, 0, 150)
    fleet.send(MALLORY, VICTIM)
    assert fleet[VICTIM].tree() == before
    check_accounts(fleet[VICTIM].rig, [])
    deletions = fleet[VICTIM].rig.sharing.deletions
    [waiting] = deletions.all()
    assert (waiting.device, waiting.names, waiting.of) == ("bob", 150, FILES)
    with pytest.raises(UsageError):
        deletions.accept("beef")
    deletions.accept(str(waiting.id))
    assert deletions.all() == []
    assert len(fleet[VICTIM].names()) == FILES - 150
    check_accounts(fleet[VICTIM].rig, [])
    fleet.meet()
    assert fleet[MALLORY].tree() == fleet[VICTIM].tree()


def test_it_is_undone_everywhere(fleet: Fleet) -> None:
    before = fleet[VICTIM].tree()
    delete(fleet, 0, 40)  # in several updates: what counts is the sum
    fleet.send(MALLORY, VICTIM)
    assert len(fleet[VICTIM].names()) == FILES - 40
    delete(fleet, 40, 100)
    fleet.send(MALLORY, VICTIM)
    assert len(fleet[VICTIM].names()) == FILES - 40
    [waiting] = fleet[VICTIM].rig.sharing.deletions.all()
    assert (waiting.names, waiting.of) == (100, FILES)
    fleet[VICTIM].rig.sharing.deletions.undo(str(waiting.id))
    fleet.meet()
    assert [one.tree() for one in fleet.devices] == [before] * 3
    assert [held(one) for one in fleet.devices] == [[]] * 3


def test_the_rest_of_what_the_device_does_is_shown(fleet: Fleet) -> None:
    delete(fleet, 0, 150)
    fleet[MALLORY].write("later", b"depends on it")
    fleet[MALLORY].write("file 199", b"changed since")
    fleet.send(MALLORY, VICTIM)
    assert len(fleet[VICTIM].names()) == FILES + 1
    assert fleet[VICTIM].read("later") == b"depends on it"
    assert fleet[VICTIM].read("file 199") == b"changed since"
    show_alike(fleet[MALLORY], fleet[VICTIM])


def test_nothing_of_it_is_signed_meanwhile(fleet: Fleet) -> None:
    delete(fleet, 0, 150)
    rig = fleet[VICTIM].rig
    pending = rig.fs.changes.pending_nodes(rig.tx)
    rig.tx.pending.ship(1 << 32)
    fleet.send(MALLORY, VICTIM)
    assert not rig.publish(everything=True)
    assert pending
    assert rig.fs.changes.pending_nodes(rig.tx) == 0
    assert not rig.fs.changes.unsigned_up_to(rig.fs.changes.seq)
    fleet[VICTIM].write("other", b"goes on")
    fleet.send(VICTIM, MALLORY)
    assert len(fleet[MALLORY].names()) == FILES - 150 + 1


def test_it_waits_after_a_restart(fleet: Fleet) -> None:
    before = fleet[VICTIM].tree()
    delete(fleet, 0, 150)
    fleet.send(MALLORY, VICTIM)
    fleet[VICTIM].restore(fleet[VICTIM].saved())
    assert fleet[VICTIM].tree() == before
    assert not fleet[VICTIM].rig.publish(everything=True)
    [waiting] = fleet[VICTIM].rig.sharing.deletions.all()
    fleet[VICTIM].rig.sharing.deletions.undo(str(waiting.id))
    fleet.meet()
    assert fleet[MALLORY].tree() == before


def test_who_changes_something_of_it_wants_it(fleet: Fleet) -> None:
    delete(fleet, 0, 150)
    fleet.send(MALLORY, VICTIM)
    fleet[VICTIM].write("file 3", b"still at work")
    fleet[VICTIM].move("file 4", "renamed")
    fleet[VICTIM].remove("file 5")
    fleet.send(VICTIM, MALLORY)
    names = set(fleet[MALLORY].names())
    assert {"file 3", "renamed"} <= names
    assert not names & {"file 4", "file 5", "file 6"}
    [waiting] = fleet[VICTIM].rig.sharing.deletions.all()
    fleet[VICTIM].rig.sharing.deletions.accept(str(waiting.id))
    fleet.meet()
    assert fleet[VICTIM].tree() == fleet[MALLORY].tree()
    assert fleet[VICTIM].read("file 3") == b"still at work"


def test_it_is_over_when_others_bring_all_back(fleet: Fleet) -> None:
    before = fleet[VICTIM].tree()
    delete(fleet, 0, 150)
    fleet.send(MALLORY, VICTIM)
    fleet.send(MALLORY, THIRD)
    deletions = fleet[THIRD].rig.sharing.deletions
    deletions.undo(str(deletions.all()[0].id))
    fleet.send(THIRD, VICTIM)
    assert held(fleet[VICTIM]) == []
    assert not fleet[VICTIM].rig.fs.changes.unsigned
    fleet.meet()
    assert [one.tree() for one in fleet.devices] == [before] * 3


def test_a_tree_of_folders_waits_as_a_whole() -> None:
    fleet = Fleet(2)
    fleet[0].mkdir("top")
    for folder in range(10):
        fleet[0].mkdir(f"top/{folder}")
        for number in range(10):
            fleet[0].write(f"top/{folder}/{number}", b"%d %d" % (folder, number))
    fleet.meet()
    before = fleet[0].tree()
    for path in reversed(fleet[1].names()):
        fleet[1].remove(path)
    fleet.send(1, 0)
    assert fleet[0].tree() == before
    [(names, of)] = held(fleet[0])
    assert names == of == len(before)
    fleet[0].write("top/3/new", b"put in here")
    deletions = fleet[0].rig.sharing.deletions
    deletions.accept(str(deletions.all()[0].id))
    assert fleet[0].names() == ["top", "top/3", "top/3/new"]
    fleet.meet()
    assert fleet[1].tree() == fleet[0].tree()
    fleet.discard()


def test_who_may_not_sign_brings_nothing_back_and_goes_on_waiting(fleet: Fleet) -> None:
    delete(fleet, 0, 150)
    fleet.send(MALLORY, VICTIM)
    (fleet[VICTIM].rig.directory / REBUILDING_FOLDER).mkdir()
    fleet[VICTIM].rig = fleet[VICTIM].rig.reopen()
    deletions = fleet[VICTIM].rig.sharing.deletions
    [waiting] = deletions.all()
    with pytest.raises(HybrisError, match="cannot be done yet"):
        deletions.undo(str(waiting.id))
    assert deletions.all() == [waiting]
    assert len(fleet[VICTIM].names()) == FILES


# -- by whatever register ------------------------------------------------------------------------


def _removed(number: int) -> bytes:
    return Place(ROOT_ID, f"file {number}".encode()).left().encode()


def _lies(device: Device, way: str) -> list[Write]:
    """What takes all files out of sight, one way or another."""
    ids = nodes(device)
    folder = new_node_id(stat.S_IFDIR, time.time_ns())
    hidden = Place(ROOT_ID, b"hidden")
    makes: dict[str, Callable[[int], list[Write]]] = {
        "removed": lambda n: [(place_key(ids[n], 0), _removed(n))],
        "tombstones of places": lambda n: [(place_key(ids[n], 0), None)],
        "no places": lambda n: [(place_key(ids[n], 0), b"nonsense")],
        "tombstones of attributes": lambda n: [(attr_key(ids[n]), None)],
        "tombstones of contents": lambda n: [(content_key(ids[n]), None)],
        "emptied": lambda n: [(content_key(ids[n]), Content(0, 0, ()).encode())],
        "emptied and placed anew": lambda n: [
            (place_key(ids[n], 0), Place(ROOT_ID, b"file %d" % n).encode()),
            (content_key(ids[n]), Content(0, 0, ()).encode()),
        ],
        "zeros": lambda n: [(content_key(ids[n]), Content(1000, 0, (Run(1000, None),)).encode())],
        "shrunk": lambda n: [(content_key(ids[n]), Content(1, 0, (Run(1, bytes(32)),)).encode())],
        "into a removed folder": lambda n: [(place_key(ids[n], 0), Place(folder, b"%d" % n).encode())],
        "removed from elsewhere": lambda n: [
            (place_key(ids[n], 0), Place(folder, b"%d" % n).left().encode())
        ],
        "nothing may be read": lambda n: [(attr_key(ids[n]), Attr(0o100000, 1000, 1000, 0, 0).encode())],
        "somebody else's": lambda n: [(attr_key(ids[n]), Attr(0o100600, 7, 7, 0, 0).encode())],
    }
    writes: list[Write] = []
    if "folder" in way or "elsewhere" in way:
        writes = [
            (place_key(folder, 0), hidden.left().encode()),
            (attr_key(folder), Attr(0o040755, 1000, 1000, 0, 0).encode()),
        ]
    return writes + [write for number in range(FILES) for write in makes[way](number)]


VOID = ("tombstones of places", "no places", "tombstones of attributes", "tombstones of contents")
HELD = (
    "removed", "emptied", "emptied and placed anew", "zeros", "shrunk", "removed from elsewhere",
    "nothing may be read", "somebody else's",
)  # fmt: skip


@pytest.mark.parametrize("way", [*VOID, *HELD])
def test_however_it_is_done_everything_is_shown(fleet: Fleet, way: str) -> None:
    before = fleet[VICTIM].tree()
    modes = {path: inode.mode for path, inode in fleet[VICTIM].walk().items()}
    sign(fleet[MALLORY], _lies(fleet[VICTIM], way))
    for device in (fleet[VICTIM], fleet[THIRD]):
        device.receive(fleet[MALLORY].log())
        assert device.tree() == before
        assert {path: inode.mode for path, inode in device.walk().items()} == modes
        assert held(device) == ([(FILES, FILES)] if way in HELD else [])
        check_accounts(device.rig, [])
    show_alike(fleet[VICTIM], fleet[THIRD])
    for one in fleet[VICTIM].rig.sharing.deletions.all():
        fleet[VICTIM].rig.sharing.deletions.undo(str(one.id))
    fleet.meet()
    assert fleet[VICTIM].tree() == fleet[THIRD].tree() == before
    assert {path: inode.mode for path, inode in fleet[THIRD].walk().items()} == modes
    assert held(fleet[VICTIM]) == held(fleet[THIRD]) == []


@pytest.mark.parametrize("way", HELD)
def test_however_it_is_done_a_person_may_let_it_happen(fleet: Fleet, way: str) -> None:
    sign(fleet[MALLORY], _lies(fleet[VICTIM], way))
    fleet[VICTIM].receive(fleet[MALLORY].log())
    deletions = fleet[VICTIM].rig.sharing.deletions
    deletions.accept(str(deletions.all()[0].id))
    assert not fleet[VICTIM].rig.fs.changes.unsigned
    check_accounts(fleet[VICTIM].rig, [])
    if "removed" in way:
        assert fleet[VICTIM].names() == []
    elif way.startswith("emptied"):
        assert {one.size for one in fleet[VICTIM].walk().values()} == {0}


def test_what_is_put_into_a_removed_folder_is_in_sight(fleet: Fleet) -> None:
    sign(fleet[MALLORY], _lies(fleet[VICTIM], "into a removed folder"))
    fleet[VICTIM].receive(fleet[MALLORY].log())
    assert len(fleet[VICTIM].names()) == FILES + 1
    assert held(fleet[VICTIM]) == []


def test_one_folder_hides_all_that_is_in_it() -> None:
    fleet = Fleet(2)
    fleet[0].mkdir("top")
    for number in range(FILES):
        fleet[0].write(f"top/{number}", b"content")
    fleet.meet()
    sign(fleet[1], [(attr_key(fleet[0].at("top").id), Attr(0o040000, 1000, 1000, 0, 0).encode())])
    fleet[0].receive(fleet[1].log())
    assert held(fleet[0]) == [(FILES + 1, FILES + 1)]
    assert fleet[0].at("top").mode & 0o700
    fleet.discard()


def test_content_that_others_write_since_is_shown(fleet: Fleet) -> None:
    sign(fleet[MALLORY], _lies(fleet[VICTIM], "emptied"))
    fleet[VICTIM].receive(fleet[MALLORY].log())
    brake = fleet[THIRD].rig.sharing.brake
    share, brake.share = brake.share, 1.0
    fleet[THIRD].receive(fleet[MALLORY].log())
    brake.share = share
    fleet[THIRD].write("file 7", b"written anew")
    fleet.send(THIRD, VICTIM)
    assert fleet[VICTIM].read("file 7") == b"written anew"
    assert held(fleet[VICTIM]) == [(FILES - 1, FILES)]
    assert len(fleet[VICTIM].names()) == FILES


@pytest.mark.parametrize("content", [b"new content", b""])
def test_saving_by_a_rename_removes_nothing_unless_it_empties(fleet: Fleet, content: bytes) -> None:
    for number in range(FILES):
        fleet[MALLORY].write("draft", content * 10)
        fleet[MALLORY].move("draft", f"file {number}")
    fleet.send(MALLORY, VICTIM)
    assert bool(held(fleet[VICTIM])) == (not content)
    if content:
        assert fleet[VICTIM].tree() == fleet[MALLORY].tree()
    else:
        assert fleet[VICTIM].read("file 199") == b"content 199" * 10


# -- what does not count -------------------------------------------------------------------------


def test_few_deletions_pass(fleet: Fleet) -> None:
    delete(fleet, 0, FEW)
    fleet.send(MALLORY, VICTIM)
    assert len(fleet[VICTIM].names()) == FILES - FEW
    assert held(fleet[VICTIM]) == []


def test_what_lived_for_minutes_is_no_loss(fleet: Fleet) -> None:
    """As when git packs what it has just written."""
    for number in range(3 * FILES):
        fleet[MALLORY].write(f"scratch {number}", b"%d" % number)
    fleet.send(MALLORY, VICTIM)
    assert len(fleet[VICTIM].names()) == 4 * FILES
    for number in range(3 * FILES):
        fleet[MALLORY].remove(f"scratch {number}")
    fleet.send(MALLORY, VICTIM)
    assert held(fleet[VICTIM]) == []
    assert fleet[VICTIM].tree() == fleet[MALLORY].tree()


@pytest.mark.parametrize(("age", "waits"), [(YOUNG_NS + HOUR, True), (YOUNG_NS // 2, False)])
def test_what_a_device_has_made_long_ago_counts_when_it_removes_it(age: int, waits: bool) -> None:
    fleet = aged(age, maker=1)
    delete(fleet, 0, FILES, by=1)
    fleet.send(1, 0)
    assert bool(held(fleet[0])) == waits
    fleet.discard()


@pytest.mark.parametrize("step", ["over", "moved away"])
def test_a_copy_in_the_place_of_a_file_is_not_young(fleet: Fleet, step: str) -> None:
    """Who puts copies in the place of files has made these himself, and a moment ago."""
    before = fleet[VICTIM].tree()
    for number in range(FILES):
        content = fleet[MALLORY].read(f"file {number}")
        fleet[MALLORY].write("copy", content)
        fleet[MALLORY].move("copy", f"file {number}")
    fleet.send(MALLORY, VICTIM)
    assert held(fleet[VICTIM]) == []
    assert fleet[VICTIM].tree() == before
    if step == "moved away":
        for number in range(FILES):
            fleet[MALLORY].move(f"file {number}", f"scratch {number}")
        fleet.send(MALLORY, VICTIM)
    for name in fleet[MALLORY].names():
        fleet[MALLORY].remove(name)
    fleet.send(MALLORY, VICTIM)
    assert len(held(fleet[VICTIM])) == 1
    assert len(fleet[VICTIM].names()) == FILES


def test_who_comes_back_is_not_asked_about_what_came_and_went(fleet: Fleet) -> None:
    for number in range(FILES):
        fleet[THIRD].write(f"scratch {number}", b"%d" % number)
    fleet[THIRD].sign()
    fleet[MALLORY].receive(fleet[THIRD].log())
    for number in range(FILES):
        fleet[MALLORY].remove(f"scratch {number}")
    fleet[MALLORY].write("news", b"is shown")
    fleet[MALLORY].sign()
    for update in fleet[MALLORY].log():  # even if what came is shown for a moment
        fleet[VICTIM].receive([update])
    assert held(fleet[VICTIM]) == []
    assert fleet[VICTIM].tree() == fleet[MALLORY].tree()


def test_what_was_seen_a_moment_ago_counts(fleet: Fleet) -> None:
    for number in range(2 * FILES):
        fleet[THIRD].write(f"more {number}", b"%d" % number)
    fleet.send(THIRD, MALLORY)
    fleet.send(THIRD, VICTIM)
    for number in range(2 * FILES):
        fleet[MALLORY].remove(f"more {number}")
    fleet.send(MALLORY, VICTIM)
    assert held(fleet[VICTIM]) == [(2 * FILES, 3 * FILES)]


def test_a_week_that_arrives_at_once_is_a_week() -> None:
    fleet = aged(9 * DAY)
    for day in range(6):
        with past(fleet, (7 - day) * DAY):
            delete(fleet, day * 20, day * 20 + 20, by=1)
    fleet.send(1, 0)
    assert held(fleet[0]) == []
    assert len(fleet[0].names()) == FILES - 120
    fleet.discard()


def test_who_dates_one_deletion_as_many_does_not_get_far() -> None:
    fleet = aged(300 * DAY)
    ids = nodes(fleet[0])
    for number in range(FILES):
        sign(fleet[1], [(place_key(ids[number], 0), _removed(number))], time.time_ns() - (250 - number) * DAY)
    fleet[0].receive(fleet[1].log())
    assert len(fleet[0].names()) >= FILES * (1 - MOST)
    assert len(held(fleet[0])) == 1
    fleet.discard()


def test_unsigned_and_refused_updates_count_for_nobody(fleet: Fleet) -> None:
    delete(fleet, 0, 150)
    log = fleet[MALLORY].log()
    signature = decode_signed(log[-1]).header.data[-64:]
    forged = log[-1].replace(signature, signature[:-1] + bytes((signature[-1] ^ 1,)))
    fleet[VICTIM].receive([*log[:-1], forged])
    assert fleet[VICTIM].rig.sharing.receiver.refused
    assert held(fleet[VICTIM]) == []
    assert len(fleet[VICTIM].names()) == FILES


def test_own_deletions_never_wait(fleet: Fleet) -> None:
    delete(fleet, 0, FILES)
    fleet[MALLORY].receive(fleet[MALLORY].log())
    assert held(fleet[MALLORY]) == []


def test_nothing_ever_waits_when_all_may_be_removed(fleet: Fleet) -> None:
    fleet[VICTIM].rig.sharing.brake.share = 1.0
    sign(fleet[MALLORY], _lies(fleet[VICTIM], "emptied"))
    fleet[VICTIM].receive(fleet[MALLORY].log())
    delete(fleet, 0, FILES)
    fleet.send(MALLORY, VICTIM)
    assert fleet[VICTIM].names() == []
    assert held(fleet[VICTIM]) == []
