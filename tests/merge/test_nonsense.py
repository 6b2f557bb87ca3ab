"""What a member that lies signs: it is kept apart from what others wrote, and stops nobody."""

from __future__ import annotations

import stat
from collections.abc import Iterator, Sequence

import pytest

from hybrisfs.members.members import Member, member_key
from hybrisfs.registers.node_id import ROOT_ID, new_node_id
from hybrisfs.registers.tree import (
    Attr,
    Content,
    Place,
    Run,
    attr_key,
    content_key,
    is_of_tree,
    place_key,
)
from sync import DeviceKey, Members
from sync.update import Write
from tests.merge.fleet import Device, Fleet, member_of
from tests.sync.support import NOON
from tests.sync.support import Device as Signer
from tests.tree.rig import SEALER

LIAR = DeviceKey.from_seed(b"\xee" * 32)
NODE = new_node_id(stat.S_IFREG, NOON, random_bytes=bytes)
FILE = Attr(stat.S_IFREG | 0o644, 1, 1, 0, 0)


@pytest.fixture
def fleet() -> Iterator[Fleet]:
    one = Fleet(2, [Member(LIAR.public, "mallory")])
    yield one
    one.discard()


def lie(*writes: Write) -> list[bytes]:
    """An update by somebody who has seen nothing, at the end of a log that is longer than any other."""
    signer = Signer(LIAR, Members([LIAR.public, member_of(0).public, member_of(1).public]))
    for _ in range(50):
        signer.write((b"filler", b""))
    signer.write(*writes)
    return [update.data for update in signer.order]


def both_ways(fleet: Fleet, lies: Sequence[bytes]) -> tuple[Device, Device]:
    """One device hears of the lies before it hears of what the other wrote, which hears of them last."""
    one, other = fleet.devices
    other.receive(lies)
    one.sign()
    log = one.log()
    one.receive(lies)
    other.receive(log)
    assert one.registers() == other.registers()
    assert one.tree() == other.tree()
    return one, other


@pytest.mark.parametrize("value", [None, b"", b"nonsense", Attr(0o644, 0, 0, 0, 0).encode()])
def test_attributes_that_mean_nothing_hide_no_file(fleet: Fleet, value: bytes | None) -> None:
    fleet[0].write("file", b"content")
    fleet[0].sign()
    node = fleet[0].at("file").id
    for device in both_ways(fleet, lie((attr_key(node), value))):
        assert device.read("file") == b"content"


def test_attributes_that_win_later_are_shown_whole(fleet: Fleet) -> None:
    fleet[0].write("file", b"content")
    fleet[0].sign()
    odd = Attr(stat.S_IFREG | 0o600, 3, 4, 5, 6)
    for device in both_ways(fleet, lie((attr_key(fleet[0].at("file").id), odd.encode()))):
        assert device.rig.fs.attributes.record(device.rig.tx, device.at("file")) == odd


@pytest.mark.parametrize(
    "key",
    [
        b"p",
        b"p" + NODE,
        b"p" + NODE + b"\x80\x00",
        b"p" + NODE + b"\xff" * 9 + b"\x01",
        b"p" + NODE + b"\xff" * 40 + b"\x01",
        attr_key(NODE) + b"more",
        content_key(NODE)[:9],
    ],
)
def test_keys_that_are_none_are_left_out(fleet: Fleet, key: bytes) -> None:
    assert not is_of_tree(key)
    place = Place(ROOT_ID, b"odd").encode()
    fleet[0].write("file", b"content")
    for device in both_ways(fleet, lie((key, place), (attr_key(NODE), FILE.encode()))):
        assert device.names() == ["file"]


def test_the_highest_slot_is_a_name_like_any_other(fleet: Fleet) -> None:
    key = place_key(NODE, (1 << 63) - 1)
    lies = lie((key, Place(ROOT_ID, b"odd").encode()), (attr_key(NODE), FILE.encode()))
    for device in both_ways(fleet, lies):
        assert device.names() == ["odd"]


def test_a_member_is_learned_of_though_another_says_nonsense_of_it(fleet: Fleet) -> None:
    new = DeviceKey.from_seed(b"\x77" * 32)
    fleet[0].rig.sharing.membership.admit(Member(new.public, "tablet"))
    for device in both_ways(fleet, lie((member_key(new.device_id), b"nonsense"))):
        assert new.device_id in device.rig.sharing.current_members()


def test_a_run_that_is_longer_than_its_chunk_shows_nothing_of_other_files(fleet: Fleet) -> None:
    honest = fleet[0]
    honest.write("short", b"short")
    honest.write("secret", b"secret" * 100)
    honest.sign()
    assert honest.read("short") == b"short", "it is here, and was looked at"
    run = Run(200, SEALER.chunk_id(b"short"))
    lies = lie(
        (place_key(NODE, 0), Place(ROOT_ID, b"odd").encode()),
        (attr_key(NODE), FILE.encode()),
        (content_key(NODE), Content(205, 0, [run, Run(5, SEALER.chunk_id(b"short"))]).encode()),
    )
    honest.receive(lies)
    assert honest.read("odd") == b"short" + bytes(195) + b"short"


@pytest.mark.parametrize("claimed", [4, 6, 200])
@pytest.mark.parametrize("reader", [0, 1], ids=["author", "other device"])
def test_a_false_length_of_a_chunk_keeps_nobody_from_reading_it(
    fleet: Fleet, reader: int, claimed: int
) -> None:
    """The only copy is on the clouds, and a member says that it is longer, or shorter, than it is."""
    honest = fleet[0]
    honest.write("short", b"short")
    honest.sign()
    honest.rig.pack()
    honest.sign()
    honest.write("more", b"more" * (16 << 10))  # the journal goes on in another segment
    honest.rig.commit()
    assert honest.rig.room.evict(1)
    lies = lie(
        (place_key(NODE, 0), Place(ROOT_ID, b"odd").encode()),
        (attr_key(NODE), FILE.encode()),
        (content_key(NODE), Content(claimed, 0, [Run(claimed, SEALER.chunk_id(b"short"))]).encode()),
    )
    fleet[reader].receive(lies)
    fleet.send(0, reader)
    fleet[reader].receive(lies)
    assert fleet[reader].read("odd") == (b"short" + bytes(195))[:claimed]
    assert fleet[reader].read("short") == b"short"
