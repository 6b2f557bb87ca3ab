"""What one member signs costs the others no more than linear time for each byte, however it comes.

Costs are counted: calls of Python's functions and steps of SQLite's machine. Twice as much may cost at most
twice as much, and a little.
"""

from __future__ import annotations

import stat
from collections.abc import Callable, Iterator, Sequence

import pytest

from hybrisfs.members.members import Member, member_key
from hybrisfs.members.removal import Stance, encode_vote, vote_key
from hybrisfs.registers.ignore_rules import encode_rank, rule_key
from hybrisfs.registers.node_id import ROOT_ID
from hybrisfs.registers.tree import Attr, Content, Place, Run, attr_key, content_key, place_key
from hybrisfs.state.database import Database
from sync import DeviceKey, Members
from sync.update import Write
from tests.merge.fleet import Fleet, member_of
from tests.merge.test_crowds import limits
from tests.merge.test_many_links import calls
from tests.merge.view import check_view
from tests.sync.support import OLDER_VOLUME
from tests.sync.support import Device as Signer

LIAR = DeviceKey.from_seed(b"\xee" * 32)
FILE = Attr(stat.S_IFREG | 0o644, 1, 1, 0, 0).encode()
FOLDER = Attr(stat.S_IFDIR | 0o755, 1, 1, 0, 0).encode()
FEW = 60
FEW_AT_ONCE = 200  # what is done in bulk is done otherwise when it is little
SLACK = 1.3

Update = list[Write]


def node(number: int) -> bytes:
    """The ids come in no order, and do not tell the kind."""
    return ((number + 1) * 0x9E3779B97F4A7C15F39CC0605CEDC835 % (1 << 127)).to_bytes(16, "big")


def at(number: int, name: bytes, parent: bytes = ROOT_ID, slot: int = 0) -> Write:
    return place_key(node(number), slot), Place(parent, name).encode()


def gone(number: int, name: bytes, parent: bytes = ROOT_ID) -> Write:
    return place_key(node(number), 0), Place(parent, name, removed=True).encode()


def file(number: int, name: bytes, parent: bytes = ROOT_ID) -> Update:
    return [at(number, name, parent), (attr_key(node(number)), FILE), content(number, number)]


def content(number: int, version: int) -> Write:
    """Versions are of different sizes."""
    return content_key(node(number)), Content(version + 1, 0, [Run(version + 1, None)]).encode()


def empty(number: int, name: bytes, parent: bytes = ROOT_ID) -> Update:
    return [at(number, name, parent), (attr_key(node(number)), FILE)]


def folder(number: int, name: bytes, parent: bytes = ROOT_ID) -> Update:
    return [at(number, name, parent), (attr_key(node(number)), FOLDER)]


def files_of_one_name(count: int) -> Iterator[Update]:
    return (file(number, b"name.txt") for number in range(count))


def equal_files_of_one_name(count: int) -> Iterator[Update]:
    return (empty(number, b"name.txt") for number in range(count))


def folders_of_one_name(count: int) -> Iterator[Update]:
    for number in range(count):
        yield [*folder(2 * number, b"folder"), *file(2 * number + 1, b"%d" % number, node(2 * number))]


def folders_of_one_name_with_one_file(count: int) -> Iterator[Update]:
    for number in range(count):
        yield [*folder(2 * number, b"folder"), *file(2 * number + 1, b"file", node(2 * number))]


def conflicts_in_one_folder(count: int) -> Iterator[Update]:
    for number in range(count):
        yield [*file(2 * number, b"%d" % number), *file(2 * number + 1, b"%d" % number)]


def removed_files_of_one_name(count: int) -> Iterator[Update]:
    for number in range(count):
        yield file(number, b"name.swp")
        yield [gone(number, b"name.swp")]


def a_name_that_wins_and_loses(count: int) -> Iterator[Update]:
    yield from files_of_one_name(count)
    for _ in range(count):
        yield [gone(0, b"name.txt")]
        yield [at(0, b"name.txt")]


def holders_that_go(count: int) -> Iterator[Update]:
    yield from files_of_one_name(count)
    for number in sorted(range(count), key=node):
        yield [gone(number, b"name.txt")]


def files_in_no_folder(count: int) -> Iterator[Update]:
    for number in range(count):
        yield file(number, b"%d" % number, node(1 << 40 | number))
    for number in range(count, 2 * count):
        yield folder(number, b"%d" % number)


def files_whose_folders_come_late(count: int) -> Iterator[Update]:
    for number in range(count):
        yield file(2 * number, b"%d" % number, node(2 * number + 1))
    for number in range(count):
        yield folder(2 * number + 1, b"folder %d" % number)


def a_chain_of_folders(count: int) -> Iterator[Update]:
    above = ROOT_ID
    for number in range(count):
        yield folder(number, b"d", above)
        above = node(number)


def a_chain_from_below(count: int) -> Iterator[Update]:
    return reversed(list(a_chain_of_folders(count)))


def a_chain_that_is_removed(count: int) -> Iterator[Update]:
    yield from a_chain_of_folders(count)
    for number in reversed(range(count)):
        yield [gone(number, b"d", node(number - 1) if number else ROOT_ID)]


def a_circle(count: int) -> Iterator[Update]:
    yield from a_chain_of_folders(count)
    yield [at(0, b"d", node(count - 1))]


def a_circle_that_is_touched(count: int) -> Iterator[Update]:
    yield from a_circle(count)
    for number in range(count):
        yield [at(0, b"%d" % number, node(count - 1))]


def a_circle_that_opens_and_closes(count: int) -> Iterator[Update]:
    yield from a_chain_of_folders(count)
    for _ in range(count):
        yield [at(0, b"d", node(count - 1))]
        yield [at(0, b"d")]


def moves_at_the_end_of_a_chain(count: int) -> Iterator[Update]:
    yield from a_chain_of_folders(count)
    yield file(count, b"file")
    for number in range(count):
        yield [at(count, b"file", node(count - 1 - number % 2))]


def removed_folders(count: int) -> Iterator[Update]:
    for number in range(count):
        yield folder(number, b"%d" % number)
    for number in range(count):
        yield [gone(number, b"%d" % number)]


def names_like_conflict_names(count: int) -> Iterator[Update]:
    yield file(0, b"x")
    yield file(1, b"x")
    for number in range(count):
        yield file(
            2 + number, b"x (conflict, mallory, 1970-01-01%s)" % (b" %d" % number if number > 1 else b"")
        )


def names_of_one_file(count: int) -> Iterator[Update]:
    yield file(0, b"name")
    for number in range(count):
        yield [at(0, b"%d" % number, slot=number + 1)]


def names_of_one_file_that_are_one(count: int) -> Iterator[Update]:
    yield file(0, b"name")
    for number in range(count):
        yield [at(0, b"name", slot=number + 1)]


def names_that_go(count: int) -> Iterator[Update]:
    yield from names_of_one_file(count)
    for number in range(count - 2):
        yield [(place_key(node(0), number + 1), Place(ROOT_ID, b"%d" % number, removed=True).encode())]


def ignore_rules(count: int) -> Iterator[Update]:
    for number in range(count):
        yield [(rule_key(f"*.{number}"), encode_rank(count - number))]


SCENES: list[Callable[[int], Iterator[Update]]] = [
    files_of_one_name,
    equal_files_of_one_name,
    folders_of_one_name,
    folders_of_one_name_with_one_file,
    conflicts_in_one_folder,
    removed_files_of_one_name,
    a_name_that_wins_and_loses,
    holders_that_go,
    files_in_no_folder,
    files_whose_folders_come_late,
    a_chain_of_folders,
    a_chain_from_below,
    a_chain_that_is_removed,
    a_circle,
    removed_folders,
    names_like_conflict_names,
    names_of_one_file,
    names_of_one_file_that_are_one,
    names_that_go,
    moves_at_the_end_of_a_chain,
    ignore_rules,
]
IN_A_CIRCLE: list[Callable[[int], Iterator[Update]]] = [
    a_circle_that_is_touched,
    a_circle_that_opens_and_closes,
]


def signed(updates: Sequence[Update]) -> list[bytes]:
    signer = Signer(LIAR, Members([LIAR.public, member_of(0).public]), OLDER_VOLUME)
    for writes in updates:
        signer.write(*writes)
    return [update.data for update in signer.order]


def at_once(updates: Iterator[Update]) -> list[Update]:
    return [list({key: value for update in updates for key, value in update}.items())]


def work_of(database: Database, work: Callable[[], object]) -> tuple[int, int]:
    """Calls of functions, and hundreds of steps of SQLite's machine."""
    hundreds = 0

    def note() -> int:
        nonlocal hundreds
        hundreds += 1
        return 0

    connection = database.rows._connection
    connection.set_progress_handler(note, 100)
    try:
        return calls(work), hundreds
    finally:
        connection.set_progress_handler(None, 100)


def cost(scene: Callable[[int], Iterator[Update]], count: int, *, one_by_one: bool) -> tuple[int, int]:
    """What a device does to take the scene in."""
    updates = list(scene(count)) if one_by_one else at_once(scene(count))
    fleet = Fleet(1, [Member(LIAR.public, "mallory")], volume=OLDER_VOLUME)
    fleet[0].rig.sharing.brake.share = 1.0
    log = signed(updates)
    found = work_of(fleet[0].rig.db, lambda: [fleet[0].receive([data]) for data in log])
    fleet[0].sign()
    check_view(fleet[0])
    fleet.discard()
    return found


@pytest.mark.parametrize("one_by_one", [False, True], ids=["at once", "one by one"])
@pytest.mark.parametrize("scene", IN_A_CIRCLE, ids=lambda scene: scene.__name__)
def test_what_moves_in_a_circle_of_folders_looks_at_the_circle(
    scene: Callable[[int], Iterator[Update]], one_by_one: bool
) -> None:
    """Once for all that comes together, as whoever moves a folder walks up to the root. So what comes one by
    one may cost four times as much for twice as much, and no more."""
    count = FEW if one_by_one else FEW_AT_ONCE
    with limits(8, 8, 8):
        few = cost(scene, count, one_by_one=one_by_one)
        many = cost(scene, 2 * count, one_by_one=one_by_one)
    for before, after in zip(few, many, strict=True):
        assert after <= (4 if one_by_one else 2 * SLACK) * before


@pytest.mark.parametrize("one_by_one", [False, True], ids=["at once", "one by one"])
@pytest.mark.parametrize("scene", SCENES, ids=lambda scene: scene.__name__)
def test_twice_as_much_costs_twice_as_much(
    scene: Callable[[int], Iterator[Update]], one_by_one: bool
) -> None:
    count = FEW if one_by_one else FEW_AT_ONCE
    with limits(8, 8, 8):  # FEW is far above them
        few = cost(scene, count, one_by_one=one_by_one)
        many = cost(scene, 2 * count, one_by_one=one_by_one)
    for before, after in zip(few, many, strict=True):
        assert after <= 2 * SLACK * before


def cost_of_versions(count: int, *, backwards: bool) -> int:
    """Of so many versions of a file, by a device that has not heard of one which stands beside them all; the
    other's come first or last, and so may be dated before or after them. In hundreds of steps of SQLite."""
    one, other = (DeviceKey.from_seed(bytes([seed]) * 32) for seed in (0xEE, 0xEF))
    fleet = Fleet(1, [Member(one.public, "one"), Member(other.public, "other")], volume=OLDER_VOLUME)
    members = Members([one.public, other.public, member_of(0).public])
    first, second = Signer(one, members, OLDER_VOLUME), Signer(other, members, OLDER_VOLUME)
    first.write(*file(0, b"name"))
    second.write(content(0, 0))
    for number in range(count):
        first.write(content(0, 2 * number + 1))
        if backwards:
            second.write(content(0, 2 * number + 2))
    log = [update.data for update in (*first.order, *second.order)]
    _, cost = work_of(fleet[0].rig.db, lambda: [fleet[0].receive([data]) for data in log])
    fleet[0].sign()
    check_view(fleet[0])
    fleet.discard()
    return cost


@pytest.mark.parametrize("backwards", [False, True])
def test_twice_as_many_versions_cost_twice_as_much(backwards: bool) -> None:
    few = cost_of_versions(FEW, backwards=backwards)
    assert cost_of_versions(2 * FEW, backwards=backwards) <= 2 * SLACK * few


@pytest.mark.parametrize("scene", [files_of_one_name, conflicts_in_one_folder, files_in_no_folder])
def test_own_changes_do_not_look_at_what_others_made_of_the_folder(
    scene: Callable[[int], Iterator[Update]],
) -> None:
    def cost_of_own(count: int) -> tuple[int, int]:
        fleet = Fleet(1, [Member(LIAR.public, "mallory")], volume=OLDER_VOLUME)
        for data in signed(list(scene(count))):
            fleet[0].receive([data])

        def change() -> None:
            fleet[0].write("mine", b"x")
            fleet[0].sign()
            fleet[0].move("mine", "yours")
            fleet[0].sign()
            fleet[0].remove("yours")
            fleet[0].sign()

        change()
        found = work_of(fleet[0].rig.db, change)
        check_view(fleet[0])
        fleet.discard()
        return found

    with limits(8, 8, 8):
        few, many = cost_of_own(FEW), cost_of_own(2 * FEW)
    assert all(after < SLACK * before for before, after in zip(few, many, strict=True))


def machines(count: int) -> Iterator[Update]:
    """The liar lets them in, and wants them out again."""
    for number in range(count):
        machine = Member(DeviceKey.from_seed(number.to_bytes(32)).public, f"puppet {number}")
        vote = vote_key(machine.device, LIAR.device_id), encode_vote(Stance.REMOVE)
        yield [(member_key(machine.device), machine.encode()), vote]


def test_who_is_a_member_is_not_looked_at_again_when_other_things_change() -> None:
    """Thousands of machines that a member says it has let in make nothing slow but what is about them."""

    def cost_of_name(count: int) -> tuple[int, int]:
        fleet = Fleet(1, [Member(LIAR.public, "mallory")], volume=OLDER_VOLUME)
        fleet[0].receive(signed(at_once(machines(count))))
        tx, rig = fleet[0].rig.tx, fleet[0].rig

        def look() -> None:
            fleet[0].write("mine", b"x")
            fleet[0].sign()
            assert tx.members.shown_name(LIAR.device_id) == "mallory"
            assert not tx.members.devices().known(bytes(16))

        look()
        found = work_of(rig.db, look)
        fleet.discard()
        return found

    few, many = cost_of_name(FEW), cost_of_name(2 * FEW)
    assert all(after < SLACK * before for before, after in zip(few, many, strict=True))


def test_machines_that_come_together_look_at_copies_called_after_machines_once() -> None:
    def cost_of_names(count: int) -> tuple[int, int]:
        fleet = Fleet(1, [Member(LIAR.public, "mallory")], volume=OLDER_VOLUME)
        conflicts, names = at_once(conflicts_in_one_folder(count)), at_once(machines(count))
        first, second = signed([conflicts[0], names[0]])
        fleet[0].receive([first])
        found = work_of(fleet[0].rig.db, lambda: fleet[0].receive([second]))
        fleet.discard()
        return found

    few, many = cost_of_names(FEW_AT_ONCE), cost_of_names(2 * FEW_AT_ONCE)
    assert all(after < 2 * SLACK * before for before, after in zip(few, many, strict=True))
