"""Segments that another device has put on the clouds for their author."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from sync.beacons import Fault
from sync.head import Relayed, decode_head, encode_head, head_name
from sync.identity import Members
from sync.segment import SegmentId
from sync.trail import id_of
from sync.update import SignedUpdate, decode_signed
from tests.sync.publisher import (
    HOUR,
    SECOND,
    Publisher,
    Shelf,
    Watcher,
    announce,
    caught_up,
    publish,
    sealed_segment,
    segment_of,
    shelves,
    withhold,
)
from tests.sync.support import BOX_KEY, KEYS, NONCE, NOON, VOLUME

A, B, C, OWN = KEYS


def name_relayed(device: Publisher, clouds: Sequence[Shelf], time: float, *names: str) -> None:
    """Put a head of `device` that names these segments of other devices."""
    head = decode_head(device.head(NOON + int(time * SECOND)), VOLUME, device.key.public, BOX_KEY)
    relayed = sorted(Relayed(bytes.fromhex(name.split("/")[1]), id_of(name)) for name in names)
    data = encode_head(replace(head, relayed=tuple(relayed)), device.key, BOX_KEY, NONCE)
    for cloud in clouds:
        cloud.put(head_name(device.id), data)


def relay(
    device: Publisher,
    clouds: Sequence[Shelf],
    time: float,
    updates: Sequence[SignedUpdate],
    previous: SegmentId | None,
) -> str:
    """Put `updates` of another device on the clouds for it, after its segment `previous`."""
    name, data = sealed_segment(updates, previous)
    for cloud in clouds:
        cloud.put(name, data)
    name_relayed(device, clouds, time, name)
    return name


def test_what_an_absent_device_wrote_is_found_through_the_head_of_another() -> None:
    clouds = shelves()
    a, b = Publisher(A), Publisher(B)
    publish(a, clouds, 0.0, 2)
    a.write_more(3)
    b.receive_all(a.order)  # over the LAN
    relay(b, clouds, 1.0, a.order[2:], a.previous)
    watcher = Watcher(OWN, clouds, 1)
    watcher.run(10.0)
    assert caught_up(watcher, a)
    assert len(watcher.fetched()) == 2 and not watcher.reports()
    watcher.run(HOUR)
    assert len(watcher.fetched()) == 2


def test_a_device_that_never_reached_a_cloud_is_relayed_from_its_beginning() -> None:
    clouds = shelves()
    a, b = Publisher(A), Publisher(B)
    a.write_more(3)
    b.receive_all(a.order)
    relay(b, clouds, 1.0, a.order, None)
    watcher = Watcher(OWN, clouds, 1)
    watcher.run(10.0)
    assert caught_up(watcher, a)


def test_nothing_is_fetched_of_what_is_here() -> None:
    clouds = shelves()
    a, b = Publisher(A), Publisher(B)
    a.write_more(3)
    b.receive_all(a.order)
    relay(b, clouds, 1.0, a.order, None)
    watcher = Watcher(OWN, clouds, 1, a.order)
    watcher.run(HOUR)
    assert not watcher.fetched()


def test_what_the_author_announces_too_is_its_own_again() -> None:
    """Its head tells more than a relay of the same segment: which updates exist, and their whole hashes."""
    clouds = shelves()
    a, b = Publisher(A), Publisher(B)
    a.write_more(2)
    b.receive_all(a.order)
    name = relay(b, clouds, 1.0, a.order, None)
    for cloud in clouds:
        cloud.lie = withhold(name)
    watcher = Watcher(OWN, clouds, 1)
    watcher.run(10.0)
    publish(a, clouds, 10.0, 0)
    watcher.run(10.0)
    watcher.follow.set_members(Members(key.public for key in (A, C, OWN)), watcher.now)
    for cloud in clouds:
        cloud.lie = None
    watcher.run(HOUR)
    assert caught_up(watcher, a), "the author's word stays when the relay is no longer a member"


def test_the_author_that_ships_it_too_confuses_nobody() -> None:
    """It divides its log in other ways; one segment has the same name, and stands for the same updates."""
    clouds = shelves()
    a, b = Publisher(A), Publisher(B)
    publish(a, clouds, 0.0, 2)
    before = a.previous
    a.write_more(3)
    b.receive_all(a.order)
    relay(b, clouds, 1.0, a.order[2:5], before)
    a.write_more(1)
    name = segment_of(a.order[2], a.order[4])
    for clouds_name, data in a.ship(NOON + 2 * SECOND):
        for cloud in clouds:
            cloud.put(clouds_name, data)
    for cloud in clouds:
        cloud.put(name, sealed_segment(a.order[2:5], SegmentId.of(1, a.order[1].hash))[1])
    publish(a, clouds, 3.0, 1)
    watcher = Watcher(OWN, clouds, 1)
    watcher.run(10.0)
    assert caught_up(watcher, a)
    assert not watcher.reports() and not watcher.waiting


def test_a_device_finds_what_others_relayed_after_its_own_state_was_lost() -> None:
    clouds = shelves()
    own, b = Publisher(OWN), Publisher(B)
    publish(own, clouds, 0.0)
    backup = list(own.order)
    own.write_more(2)
    b.receive_all(own.order)
    relay(b, clouds, 1.0, own.order[1:], own.previous)
    watcher = Watcher(OWN, clouds, 1, backup)
    watcher.run(1.0)
    assert caught_up(watcher, own)


def test_both_branches_of_a_forked_device_can_be_relayed() -> None:
    clouds = shelves()
    a, b = Publisher(A), Publisher(B)
    publish(a, clouds, 0.0, 2)
    shared = a.previous
    twin = a.restored()
    a.write_more(2)
    twin.write_more(1)
    b.receive_all(a.order)
    b.receive_all(twin.order[2:])
    names = [relay(b, clouds, 1.0, updates, shared) for updates in (a.order[2:], twin.order[2:])]
    name_relayed(b, clouds, 2.0, *names)
    watcher = Watcher(OWN, clouds, 1)
    watcher.run(10.0)
    assert all(watcher.holds_update(update) for update in (*a.order, *twin.order))


def test_a_relayed_segment_that_is_nowhere_is_reported_and_holds_nothing_up() -> None:
    clouds = shelves()
    a, b = Publisher(A), Publisher(B)
    a.write_more(2)
    b.receive_all(a.order)
    name = relay(b, clouds, 1.0, a.order, None)
    for cloud in clouds:
        cloud.lie = withhold(name)
    watcher = Watcher(OWN, clouds, 1)
    watcher.run(10.0)
    (report,) = watcher.reports()
    assert (report.device, report.name, report.fault) == (a.id, name, Fault.OMITTED)
    publish(a, clouds, 10.0, 1)
    watcher.run(60.0)
    assert caught_up(watcher, a)
    watcher.run(HOUR)
    assert not watcher.follow.doubts()


def test_a_faulty_member_that_forges_a_segment_adds_nothing() -> None:
    clouds = shelves()
    a, b = Publisher(A), Publisher(B)
    publish(a, clouds, 0.0, 2)
    forged = a.restored().write((b"key", b"forged"))
    signature = KEYS[2].sign(b"something else")
    forged = decode_signed(forged.data.replace(forged.header.data[-64:], signature))
    relay(b, clouds, 1.0, [forged], a.previous)
    watcher = Watcher(OWN, clouds, 1)
    watcher.run(HOUR)
    assert caught_up(watcher, a) and not watcher.holds_update(forged)
    assert len(set(watcher.fetched())) == 2 and len(watcher.fetched()) < 20


def test_a_member_that_was_removed_is_not_followed_through_relays() -> None:
    clouds = shelves()
    a, b = Publisher(A), Publisher(B)
    a.write_more(2)
    b.receive_all(a.order)
    relay(b, clouds, 1.0, a.order, None)
    watcher = Watcher(OWN, clouds, 1)
    watcher.follow.set_members(Members([B.public, OWN.public]), 0.0)
    watcher.run(10.0)
    assert not watcher.fetched()


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.lists(st.sampled_from(["write", "ship", "hear", "relay"]), max_size=20),
    st.data(),
)
def test_whoever_relays_what_in_whatever_pieces_all_of_it_arrives(
    history: list[str], data: st.DataObject
) -> None:
    clouds = shelves()
    a, b = Publisher(A), Publisher(B)
    ends: dict[int, SegmentId] = {}  # by the number of updates up to its end: a segment on the clouds
    announced = b"", 0
    for step, kind in enumerate(history, 1):
        heard = len(b.order)
        match kind:
            case "write":
                a.write_more(2)
            case "ship" if a.unshipped:
                publish(a, clouds, step, 0)
                assert a.previous is not None
                ends[len(a.order)] = a.previous
            case "hear":
                b.receive_all(a.order[heard:])
            case "relay" if heard:
                start = data.draw(st.sampled_from(sorted({0, *(end for end in ends if end < heard)})))
                name = relay(b, clouds, step, a.order[start:heard], ends.get(start))
                ends[heard] = id_of(name)
                announced = bytes.fromhex(name.split("/")[1]), heard
        announce(a, clouds, step)
    watcher = Watcher(OWN, clouds, 1)
    watcher.run(60.0)
    reached = max(len(a.order) - len(a.unshipped), announced[1])
    assert all(watcher.holds_update(update) for update in a.order[:reached])
    assert not watcher.reports() and not watcher.waiting
