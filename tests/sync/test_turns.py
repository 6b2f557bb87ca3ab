"""With many devices their heads take turns: each is seen in time, and requests do not grow with them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from itertools import pairwise
from math import ceil

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sync.beacons import PROPAGATION_SECONDS, Fault
from sync.follow import LONGEST_PAUSE, SHORTEST_PAUSE, FetchHead, Follow, FollowLimits
from sync.head import Head, encode_head
from sync.identity import DeviceKey, Members
from sync.vector import VersionVector
from tests.sync.publisher import (
    HOUR,
    SECOND,
    Lie,
    Publisher,
    Shelf,
    Watcher,
    announce,
    caught_up,
    corrupt,
    hide,
    mix,
    publish,
    roll_back,
    shelves,
)
from tests.sync.support import BOX_KEY, NONCE, NOON, VOLUME

_MANY = 60
KEYS = tuple(DeviceKey.from_seed(bytes([7, n]) * 16) for n in range(_MANY + 1))
OWN = KEYS[_MANY]


def many(count: int, heads: int, clouds: Sequence[Shelf], f: int = 1) -> tuple[Watcher, list[Publisher]]:
    """A device that follows so many others, each of which wrote something five minutes ago, and has just
    looked at all."""
    keys = [*KEYS[:count], OWN]
    members = Members(key.public for key in keys)
    devices = [Publisher(key, members) for key in keys[:count]]
    for device in devices:
        publish(device, clouds, 0.0)
    watcher = Watcher(OWN, clouds, f, limits=FollowLimits(heads=heads), members=members)
    watcher.run(300.0)
    assert caught_up(watcher, *devices)
    work(watcher, 1)
    watcher.done.clear()
    return watcher, devices


def work(watcher: Watcher, rounds: int) -> None:
    """Let so many of the shortest pauses pass while somebody works here."""
    for _ in range(rounds):
        watcher.follow.active(watcher.now)
        watcher.run(SHORTEST_PAUSE)


def round_trip(count: int, heads: int) -> int:
    """Rounds in which the head of each of so many devices is looked at."""
    return ceil(count / heads) + 1


@given(
    st.integers(1, 12),
    st.integers(1, 4),
    st.integers(1, 2),
    st.lists(st.sampled_from((roll_back, hide, corrupt, mix)), min_size=2, max_size=2),
    st.lists(st.lists(st.tuples(st.integers(0, 11), st.integers(0, 11)), max_size=4), max_size=4),
)
def test_a_change_is_found_in_time_though_f_clouds_lie(
    count: int, heads: int, f: int, kinds: list[Lie], steps: list[list[tuple[int, int]]]
) -> None:
    clouds = shelves(2 * f + 1)
    watcher, devices = many(count, heads, clouds, f)
    for cloud, lie in zip(clouds, kinds[:f], strict=False):
        cloud.lie = lie
    for writers in steps:
        for writer, heard in writers:
            device, other = devices[writer % count], devices[heard % count]
            device.receive_all([update for update in other.order if not device.holds_update(update)])
            publish(device, clouds, watcher.now)
        watcher.done.clear()
        rounds = round_trip(count, heads)
        work(watcher, rounds)
        assert caught_up(watcher, *devices)
        assert len(watcher.asked()) <= (rounds + 1) * 2 * heads * len(clouds) + len(clouds)


@pytest.mark.parametrize("count", [4, 8, 20, _MANY])
def test_requests_do_not_grow_with_devices_that_are_many(count: int) -> None:
    clouds = shelves()
    watcher, devices = many(count, 4, clouds)
    for number in range(40):
        publish(devices[number % count], clouds, watcher.now)
        work(watcher, 1)
    assert len(watcher.asked()) <= 41 * 2 * 4 * 2 + 2
    assert len(watcher.asked()) >= 39 * 4 * 2


def test_up_to_five_devices_have_each_head_in_every_round() -> None:
    clouds = shelves()
    watcher, devices = many(4, FollowLimits().heads, clouds)
    work(watcher, 5)
    for device in devices:
        assert len({one.cloud for one in watcher.asked() if one.device == device.id}) == 3
        assert sum(one.device == device.id for one in watcher.asked()) == 5 * 2


@given(
    st.integers(1, _MANY),
    st.integers(1, 4),
    st.sampled_from([10.0, 45.0, LONGEST_PAUSE]),
    st.lists(st.floats(0.0, 3 * LONGEST_PAUSE), max_size=30),
)
def test_no_head_waits_for_longer_than_a_head_may_take_to_be_seen(
    count: int, heads: int, announced: float, active: list[float]
) -> None:
    clouds = [0, 1, 2]
    limits = FollowLimits(heads=heads)
    follow = Follow(VOLUME, BOX_KEY, OWN.device_id, clouds, 1, lambda *_: False, 0.0, limits=limits)
    follow.set_members(Members(key.public for key in [*KEYS[:count], OWN]), 0.0)
    follow.announce_every(announced)
    asked: dict[bytes, list[float]] = defaultdict(list)
    now, waiting = 0.0, sorted(active)
    while now < 3 * LONGEST_PAUSE:
        while waiting and waiting[0] <= now:
            follow.active(waiting.pop(0))
        for action in follow.due(now, NOON + int(now * SECOND)):
            assert isinstance(action, FetchHead)
            asked[action.device].append(now)
        now = max(now, follow.next_due())
    assert len(asked) == count + 1
    for device, times in asked.items():
        longest = 2 * LONGEST_PAUSE if device == OWN.device_id else announced
        gaps = [after - before for before, after in pairwise(sorted({*times, now}))]
        assert max(gaps) <= longest + PROPAGATION_SECONDS - LONGEST_PAUSE, (
            "it would count as silent too early"
        )


def test_a_device_that_writes_again_is_found_in_the_next_round_among_many() -> None:
    clouds = shelves()
    watcher, devices = many(20, 1, clouds)
    publish(devices[7], clouds, watcher.now)
    work(watcher, round_trip(20, 1))
    assert caught_up(watcher, devices[7])
    for _ in range(10):
        publish(devices[7], clouds, watcher.now)
        work(watcher, 2)
        assert caught_up(watcher, devices[7])


def test_causes_are_looked_for_at_once() -> None:
    clouds = shelves()
    watcher, devices = many(20, 1, clouds)
    publish(devices[1], clouds, watcher.now)
    work(watcher, round_trip(20, 1))
    for number in range(2, 8):
        publish(devices[number], clouds, watcher.now)
        known = [update for device in devices[2 : number + 1] for update in device.order]
        devices[1].receive_all([update for update in known if not devices[1].holds_update(update)])
    publish(devices[1], clouds, watcher.now)
    watcher.done.clear()
    work(watcher, 12)
    assert caught_up(watcher, *devices[1:8]), "much sooner than by turns"
    assert len(watcher.asked()) <= 13 * 2 * len(clouds), "and not all heads of all clouds"


def test_who_wrote_causes_is_asked_for_on_all_clouds() -> None:
    """Clouds that were away when they were written need not have its newest head."""
    clouds = [0, 1, 2]
    limits = FollowLimits(heads=1)
    follow = Follow(VOLUME, BOX_KEY, OWN.device_id, clouds, 1, lambda *_: False, 0.0, limits=limits)
    follow.set_members(Members(key.public for key in [*KEYS[:20], OWN]), 0.0)
    one, other = KEYS[0], KEYS[1].device_id
    follow.due(0.0, NOON)
    vector = VersionVector({one.device_id: 3, other: 2})
    head = Head(VOLUME, one.device_id, NOON, NOON, vector, (), None)
    follow.head_arrived(one.device_id, 0, encode_head(head, one, BOX_KEY, NONCE), 0.0, NOON)
    follow.lacking(one.device_id, VersionVector({one.device_id: 2, other: 1}))
    asked = [action for action in follow.due(SHORTEST_PAUSE, NOON) if isinstance(action, FetchHead)]
    assert {action.cloud for action in asked if action.device == other} == {0, 1, 2}
    assert sum(action.device != OWN.device_id for action in asked) == 3 + 2, "and one whose turn it is"


def test_each_cloud_is_looked_at_for_each_device() -> None:
    """Also where as many rounds as there are clouds pass until a head has its turn again."""
    clouds = shelves()
    watcher, devices = many(3, 1, clouds)
    work(watcher, 9)
    assert len(watcher.asked()) <= 10 * 2
    for device in devices:
        assert {one.cloud for one in watcher.asked() if one.device == device.id} == {0, 1, 2}


def test_a_cloud_that_goes_back_is_convicted_among_many() -> None:
    clouds = shelves()
    watcher, devices = many(12, 2, clouds)
    for device in devices:
        publish(device, clouds, watcher.now)
    work(watcher, 3 * round_trip(12, 2))
    clouds[2].lie = roll_back
    work(watcher, 3 * round_trip(12, 2))
    found = {(one.device, one.cloud) for one in watcher.reports() if one.fault is Fault.ROLLED_BACK}
    assert found == {(device.id, 2) for device in devices}


def test_silence_is_seen_among_many() -> None:
    clouds = shelves()
    watcher, devices = many(20, 1, clouds)
    for _ in range(12):
        for device in devices[1:]:
            announce(device, clouds, watcher.now)
        watcher.run(HOUR / 6)
    suspect = {one.device for one in watcher.follow.staleness(watcher.now, watcher.time_ns) if one.suspect}
    assert suspect == {devices[0].id}
