"""Names that many nodes want: all devices show the same, whatever the order in which they hear of it."""

from __future__ import annotations

import random
import stat
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from unittest import mock

import pytest

from hybrisfs.filesystem.registers import Attr, Place, attr_key, content_key, place_key
from hybrisfs.merge.members import Member
from hybrisfs.merge.rules import (
    Author,
    conflict_name,
    name_by_id,
)
from hybrisfs.store.schema import ROOT_ID
from sync import DeviceKey, Members
from sync.update import SignedUpdate
from sync.writes import Write
from tests.merge.fleet import Device, Fleet, member_of
from tests.merge.view import check_view
from tests.sync.support import Device as Signer

GUESTS = [DeviceKey.from_seed(bytes([seed]) * 32) for seed in (0xEE, 0xEF, 0xF0)]
FILE = Attr(stat.S_IFREG | 0o644, 1, 1, 0, 0).encode()
FOLDER = Attr(stat.S_IFDIR | 0o755, 1, 1, 0, 0).encode()
NODES = [bytes([number]) * 16 for number in range(1, 13)]
ADA = Author("ada", 0)


@contextmanager
def limits(contenders: int, copies: int, number: int) -> Iterator[None]:
    """Crowds that begin sooner."""
    rules, arrange, tree, model = (
        "hybrisfs.merge.rules",
        "hybrisfs.merge.arrange",
        "hybrisfs.versions.tree",
        "tests.merge.model",
    )
    values = {
        "MOST_CONTENDERS": (contenders, (rules, model)),
        "MOST_COPIES": (copies, (arrange, tree, model)),
        "MOST_NUMBER": (number, (rules, arrange, tree, model)),
        "_MOST_SHOWN": (contenders + copies, (arrange,)),
    }
    with ExitStack() as patches:
        for name, (value, modules) in values.items():
            for module in modules:
                patches.enter_context(mock.patch(f"{module}.{name}", value))
        yield


def fleet_of(count: int) -> Fleet:
    fleet = Fleet(count, [Member(key.public, f"guest {number}") for number, key in enumerate(GUESTS)])
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
