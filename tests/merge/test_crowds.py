"""Names that many nodes want: all devices show the same, whatever the order in which they hear of it."""

from __future__ import annotations

import random
import stat
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from unittest import mock

import pytest

from hybrisfs.environment import Environment, Limits
from hybrisfs.members.members import Member
from hybrisfs.merge.names import (
    MOST_NUMBER,
    Author,
    conflict_name,
    is_conflict_name,
    is_kept,
    later_names,
    name_by_id,
    number_names,
)
from hybrisfs.merge.refresh import RefreshLimits
from hybrisfs.merge.rules import MOST_CONTENDERS, Contender, judge
from hybrisfs.registers.node_id import ROOT_ID
from hybrisfs.registers.tree import Attr, Content, Place, Run, attr_key, content_key, place_key
from hybrisfs.registers.values import Stamp
from hybrisfs.state.schema import ROOT_INO
from hybrisfs.tree.unseen import NameChange
from sync import DeviceKey, Members
from sync.update import SignedUpdate, Write, decode_signed
from tests.merge.fleet import Device, Fleet, member_of
from tests.merge.view import check_view
from tests.sync.support import Device as Signer
from tests.versions.support import past_tree

GUESTS = [DeviceKey.from_seed(bytes([seed]) * 32) for seed in (0xEE, 0xEF, 0xF0)]
FILE = Attr(stat.S_IFREG | 0o644, 1, 1, 0, 0).encode()
FOLDER = Attr(stat.S_IFDIR | 0o755, 1, 1, 0, 0).encode()
NODES = [bytes([0x80 + number]) * 15 + bytes((number % 3 == 0,)) for number in range(12)]  # folders and files
ADA = Author("ada", 0)
STAMP = Stamp(1, bytes(16))


@contextmanager
def limits(contenders: int, copies: int, number: int) -> Iterator[None]:
    """Crowds that begin sooner."""
    rules, names, arrange, resolution = (
        f"hybrisfs.merge.{module}" for module in ("rules", "names", "arrange", "resolution")
    )
    values = {
        "MOST_CONTENDERS": (contenders, (rules,)),
        "MOST_COPIES": (copies, (rules, arrange)),
        "MOST_NUMBER": (number, (rules, names, arrange)),
        "MOST_SHOWN": (contenders + copies, (arrange, resolution)),
    }
    with ExitStack() as patches:
        for name, (value, modules) in values.items():
            for module in modules:
                patches.enter_context(mock.patch(f"{module}.{name}", value))
        yield


def fleet_of(count: int) -> Fleet:
    guests = [Member(key.public, f"guest {number}") for number, key in enumerate(GUESTS)]
    environment = Environment(limits=Limits(RefreshLimits(many_names=2)))
    fleet = Fleet(count, guests, lambda _: environment)
    for device in fleet.devices:
        device.rig.sharing.brake.share = 1.0
    return fleet


def signers(count: int) -> list[Signer]:
    members = Members(
        [*(key.public for key in GUESTS), *(member_of(number).public for number in range(count))]
    )
    return [Signer(key, members) for key in GUESTS]


def anything(chance: random.Random, names: Sequence[bytes]) -> list[Write]:
    """A few registers of a few nodes, of which some are folders for good."""
    written: dict[bytes, bytes | None] = {}
    for _ in range(chance.randint(1, 4)):
        number = chance.randrange(len(NODES))
        node, is_folder = NODES[number], number % 3 == 0
        written[attr_key(node)] = FOLDER if is_folder else FILE
        kind = chance.random()
        if kind < 0.25 and not is_folder:
            written[content_key(node)] = b"%d" % chance.randrange(3)
        else:
            parent = chance.choice([ROOT_ID, ROOT_ID, ROOT_ID, *NODES[::3]])
            former = chance.choice([b"", ROOT_ID, NODES[0]]) if is_folder else b""
            place = Place(parent, chance.choice(names), former=former, yields=chance.random() < 0.1)
            if chance.random() < 0.3:
                place = place.left()
            slot = 0 if is_folder or chance.random() < 0.8 else chance.randint(1, 2)
            written[place_key(node, slot)] = place.encode()
    return list(written.items())


def histories(chance: random.Random, devices: int, names: Sequence[bytes]) -> list[SignedUpdate]:
    """What guests sign who hear of each other now and then."""
    guests = signers(devices)
    for _ in range(chance.randint(5, 40)):
        guest = chance.choice(guests)
        guest.write(*anything(chance, names))
        if chance.random() < 0.3:
            one, other = chance.sample(guests, 2)
            known = {update.hash for update in other.order}
            other.receive_all(update for update in one.order if update.hash not in known)
    for guest in guests[1:]:
        known = {update.hash for update in guests[0].order}
        guests[0].receive_all(update for update in guest.order if update.hash not in known)
    return guests[0].order


def shuffled(chance: random.Random, updates: Sequence[SignedUpdate]) -> list[list[bytes]]:
    """In batches; they need not come after their causes."""
    order = [update.data for update in updates]
    if chance.random() < 0.5:
        chance.shuffle(order)
    size = chance.choice([1, 1, 5, len(order)])
    return [order[at : at + size] for at in range(0, len(order), size)]


def all_alike(devices: Sequence[Device]) -> None:
    for device in devices:
        device.sign()
        check_view(device)
    assert all(device.tree() == devices[0].tree() for device in devices)


NAMES = [
    b"x",
    name_by_id(b"x", NODES[1], 0),
    conflict_name(b"x", Author("guest 0", 1_800_000_000_000_000_000)),
    conflict_name(b"x", Author("guest 1", 1_800_000_000_000_000_000), 2),
]


@pytest.mark.parametrize("seed", range(60))
def test_all_devices_show_the_same(seed: int) -> None:
    chance = random.Random(seed)
    most = chance.choice([1, 2, 4])
    with limits(most, chance.choice([1, 2]), chance.choice([1, 2])):
        fleet = fleet_of(2)
        names = NAMES[: chance.randint(1, 4)]
        updates = histories(chance, 2, names)
        for device in fleet.devices:
            for batch in shuffled(chance, updates):
                device.receive(batch)
        all_alike(fleet.devices)
        fleet.discard()


# -- names ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("length", [1, 100, 190, 200, 201, 202, 203, 204, 205, 210, 240, 251])
@pytest.mark.parametrize("extension", [b"", b".txt"])
def test_the_names_that_come_after_a_conflict_name(length: int, extension: bytes) -> None:
    """They are those that are given while it is taken, however long the name is."""
    name = (b"n" * length)[: 255 - len(extension)] + extension
    given = number_names(name, [ADA] * MOST_NUMBER, lambda _: False)
    for number, one in enumerate(given):
        assert is_conflict_name(one) and not is_kept(one)
        assert set(given[number + 1 :]) <= set(later_names(one))
    [kept] = number_names(name, [ADA], lambda _: True, MOST_NUMBER)
    assert is_kept(kept) and kept in later_names(given[-1])


@pytest.mark.parametrize("length", [1, 190, 215, 240, 255])
def test_names_by_id_are_in_the_order_of_ids_and_nobody_elses(length: int) -> None:
    name = b"n" * length
    ids = [(bytes([number]) * 16, 0) for number in (1, 2, 0x0A, 0xF0)]
    given = [name_by_id(name, *one) for one in ids]
    assert given == sorted(given) and len(set(given)) == len(given)
    assert all(is_kept(one) and is_conflict_name(one) and len(one) <= 255 for one in given)
    assert set(given).isdisjoint(name_by_id(name + b"x", *one) for one in ids) or length == 255
    shown = judge([Contender(one, slot, STAMP, False, False, None) for one, slot in crowd()])
    assert [one.node.id for one in shown] == sorted(one for one, _ in crowd())


def crowd() -> list[tuple[bytes, int]]:
    return [(bytes([number * 37 % 251]) * 16, 0) for number in range(MOST_CONTENDERS + 1)]


def test_what_most_numbers_are_taken_from_has_a_name_all_the_same() -> None:
    """Somebody has taken the names of conflict copies, and takes more."""
    fleet = fleet_of(2)
    [signer, *_] = signers(2)
    signer.write(*named(1, b"x"), *named(2, b"x"))
    for number in range(1, MOST_NUMBER + 2):
        signer.write(
            *named(2 + number, conflict_name(b"x", Author("guest 0", 1_800_000_000_000_000_000), number))
        )
    for device in fleet.devices:
        for update in signer.order:
            device.receive([update.data])
    all_alike(fleet.devices)
    assert len(fleet[0].names()) == MOST_NUMBER + 3
    fleet.discard()


def named(number: int, name: bytes) -> list[Write]:
    identity = b"\x80" + (number << 3).to_bytes(15)  # of a file
    return [
        (place_key(identity, 0), Place(ROOT_ID, name).encode()),
        (attr_key(identity), FILE),
        (content_key(identity), Content(number, 0, [Run(number, None)]).encode()),
    ]


def test_the_past_shows_a_crowd_as_the_present_did() -> None:
    with limits(2, 1, 1):
        fleet = fleet_of(1)
        [signer, *_] = signers(1)
        for number in range(1, 6):
            signer.write(*named(number, b"x"))
        for update in signer.order:
            fleet[0].receive([update.data])
        (moment,) = fleet[0].rig.db.rows.execute("SELECT max(moment) FROM log").fetchone()
        assert set(past_tree(fleet[0], moment)) == set(fleet[0].names())
        fleet.discard()


def test_a_crowd_that_goes_leaves_the_name_to_who_had_it() -> None:
    fleet = fleet_of(2)
    fleet[0].write("thesis", b"years of work")
    fleet.meet()
    [signer, *_] = signers(2)
    for update in fleet[0].log():
        signer.receive(decode_signed(update))
    for number in range(1, 2 * MOST_CONTENDERS + 10):
        signer.write(*named(number, b"thesis"))
    for device in fleet.devices:
        device.receive([update.data for update in signer.order])
    all_alike(fleet.devices)
    assert any(fleet[0].read(name) == b"years of work" for name in fleet[0].names())
    for name in fleet[0].names():
        if fleet[0].read(name) != b"years of work":
            fleet[0].remove(name)
    fleet.meet()
    all_alike(fleet.devices)
    assert fleet[1].tree().keys() == {"thesis"} and fleet[1].read("thesis") == b"years of work"
    fleet.discard()


def test_what_a_program_spares_stays_one_of_the_crowd() -> None:
    """It saves over a file that it has not seen, and of which there are more than are looked at together."""
    fleet = fleet_of(2)
    [signer, *_] = signers(2)
    for number in range(1, 2 * MOST_CONTENDERS + 10):
        signer.write(*named(number, b"thesis"))
    for device in fleet.devices:
        device.receive([update.data for update in signer.order])
    rig = fleet[0].rig
    rig.fs.unseen.watch(lambda _: True)
    rig.fs.unseen.names_changed(rig.tx, [NameChange(ROOT_INO, b"thesis", True)])
    rig.make(b"draft", b"years of work")
    rig.sharing.sparing.before_rename(rig.tx, ROOT_INO, b"draft", ROOT_INO, b"thesis", 0)
    rig.fs.rename(rig.tx, ROOT_INO, b"draft", ROOT_INO, b"thesis", 0)
    fleet.meet()
    all_alike(fleet.devices)
    assert any(fleet[1].read(name) == b"years of work" for name in fleet[1].names())
    fleet.discard()
