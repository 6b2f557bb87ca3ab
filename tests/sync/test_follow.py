"""Following devices through clouds that roll back, withhold, mix and corrupt."""

from __future__ import annotations

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sync.beacons import Fault, Report
from sync.chase import FetchSegment
from sync.follow import LONGEST_PAUSE, FetchGrant, FetchHead, Follow
from sync.head import Head, Relayed, encode_head
from sync.identity import Members
from sync.seal import EpochKey, OneKey
from sync.segment import SegmentId
from sync.update import SignedUpdate
from sync.vector import VersionVector
from tests.sync.publisher import (
    HOUR,
    Lie,
    Publisher,
    Shelf,
    Watcher,
    announce,
    caught_up,
    corrupt,
    corrupt_segments,
    hide,
    mix,
    publish,
    roll_back,
    shelves,
)
from tests.sync.support import BOX_KEY, KEYS, NONCE, NOON, VOLUME

A, B, C, OWN = KEYS

LIES = (roll_back, hide, corrupt, mix)
lies = st.sampled_from(LIES)


def test_what_others_publish_is_delivered_within_two_rounds() -> None:
    clouds = shelves()
    watcher, a = Watcher(OWN, clouds, 1), Publisher(A)
    watcher.run(1.0)
    for _ in range(5):
        publish(a, clouds, watcher.now, 3)
        watcher.run(4.0)
        assert caught_up(watcher, a)
    assert len(watcher.fetched()) == 5
    assert not watcher.reports()


def test_a_round_asks_f_plus_one_clouds_in_turns() -> None:
    clouds = shelves(4)
    a = Publisher(A)
    publish(a, clouds, 0.0)
    watcher = Watcher(OWN, clouds, 1)
    watcher.follow.set_members(Members([A.public, OWN.public]), 0.0)
    watcher.run(1.0)
    assert {one.cloud for one in watcher.asked()} == {0, 1, 2, 3}, "in the first round all of them"
    watcher.done.clear()
    watcher.run(4.0)
    asked = [one.cloud for one in watcher.asked() if one.device == a.id]
    assert len(asked) == 4 and set(asked) != {asked[0]}
    assert all(one.again for one in watcher.asked())
    watcher.done.clear()
    watcher.run(120.0)
    assert {one.cloud for one in watcher.asked()} == {0, 1, 2, 3}


def test_beacons_of_an_idle_device_do_not_quicken_the_pace() -> None:
    clouds = shelves()
    a = Publisher(A)
    publish(a, clouds, 0.0)
    watcher = Watcher(OWN, clouds, 1)
    watcher.follow.set_members(Members([A.public, OWN.public]), 0.0)
    watcher.run(2 * HOUR)
    watcher.done.clear()
    for _ in range(12):
        announce(a, clouds, watcher.now)
        watcher.run(600.0)
    assert len(watcher.asked()) < 2 * (7200 / LONGEST_PAUSE) + 3 * 40
    assert not watcher.fetched()
    assert not any(one.suspect for one in watcher.follow.staleness(watcher.now, watcher.time_ns))


def test_acknowledgements_do_not_quicken_the_pace() -> None:
    """Two devices that acknowledge each other's updates would else keep each other looking."""
    clouds = shelves()
    a, b = Publisher(A), Publisher(B)
    publish(a, clouds, 0.0)
    publish(b, clouds, 0.0, 12)
    watcher = Watcher(OWN, clouds, 1)
    watcher.follow.set_members(Members([A.public, B.public, OWN.public]), 0.0)
    watcher.run(2 * HOUR)
    assert caught_up(watcher, a, b)
    counts = []
    for acknowledged in ([], b.order):
        watcher.done.clear()
        for number in range(12):
            a.receive_all(acknowledged[number : number + 1])
            announce(a, clouds, watcher.now)
            announce(b, clouds, watcher.now)
            watcher.run(600.0)
        counts.append(len(watcher.asked()))
    assert counts[1] <= counts[0]


def test_when_a_cloud_does_not_answer_another_is_asked_in_the_same_round() -> None:
    watcher = Watcher(OWN, shelves(4), 1)
    watcher.run(1.0)
    asked = [one for one in watcher.follow.due(3.0, watcher.time_ns) if isinstance(one, FetchHead)]
    clouds = [one.cloud for one in asked if one.device == A.device_id]
    assert len(clouds) == 2
    for _ in range(2):
        (another,) = watcher.follow.head_failed(A.device_id, clouds[-1], "down")
        assert isinstance(another, FetchHead)
        clouds.append(another.cloud)
    assert sorted(clouds) == [0, 1, 2, 3]
    assert not watcher.follow.head_failed(A.device_id, clouds[-1], "down")


def test_news_quickens_the_pace() -> None:
    clouds = shelves()
    a = Publisher(A)
    watcher = Watcher(OWN, clouds, 1)
    watcher.run(4 * HOUR)
    publish(a, clouds, watcher.now)
    watcher.run(LONGEST_PAUSE)
    assert caught_up(watcher, a)
    publish(a, clouds, watcher.now)
    watcher.run(LONGEST_PAUSE / 5)
    assert caught_up(watcher, a)


def test_waking_up_is_one_round_and_no_storm() -> None:
    """Whether the monotonic clock stood still in the sleep or not, and whatever the time of day says now."""
    clouds = shelves()
    a = Publisher(A)
    publish(a, clouds, 0.0)
    watcher = Watcher(OWN, clouds, 1)
    watcher.run(4 * HOUR)
    watcher.done.clear()
    watcher.run(HOUR)
    usual = len(watcher.asked())
    for asleep in (0.0, 24 * HOUR, 365 * 24 * HOUR):
        watcher.now += asleep
        watcher.done.clear()
        watcher.run(HOUR)
        assert len(watcher.asked()) <= usual + 4 * len(clouds), asleep


def test_our_own_head_is_looked_for_when_all_clouds_but_f_have_answered() -> None:
    follow = Follow(VOLUME, BOX_KEY, OWN.device_id, [0, 1, 2], 1, lambda *_: False, 0.0)
    assert not follow.own_looked_for
    follow.set_members(Members([OWN.public]), 0.0)
    follow.head_missing(OWN.device_id, 0, 0.0)
    follow.head_failed(OWN.device_id, 1, "down")
    assert not follow.own_looked_for
    follow.head_arrived(OWN.device_id, 2, b"junk", 0.0, NOON)
    assert follow.own_looked_for
    follow.set_members(Members([A.public]), 0.0)
    assert follow.own_looked_for, "who is no longer a member has nothing to lose"


def test_only_members_are_followed() -> None:
    clouds = shelves()
    a, b = Publisher(A), Publisher(B)
    publish(a, clouds, 0.0)
    publish(b, clouds, 0.0)
    watcher = Watcher(OWN, clouds, 1)
    watcher.follow.set_members(Members([A.public]), 0.0)
    watcher.run(10.0)
    assert {one.device for one in watcher.asked()} == {a.id}
    publish(a, clouds, watcher.now)
    for cloud in clouds:
        cloud.lie = corrupt_segments
    watcher.run(10.0)
    assert watcher.follow.pending(a.id)
    for cloud in clouds:
        cloud.lie = None
    watcher.follow.set_members(Members([B.public]), watcher.now)
    watcher.done.clear()
    watcher.run(10.0)
    assert {one.device for one in watcher.asked()} == {b.id}
    assert caught_up(watcher, b)
    watcher.run(HOUR)
    assert not watcher.follow.pending(a.id)
    assert not any(a.id.hex() in name for name in watcher.fetched())


class _Ring:
    """Keys that become known later."""

    def __init__(self) -> None:
        self.keys = {BOX_KEY.newest().epoch: BOX_KEY.newest().key}

    def newest(self) -> EpochKey:
        return BOX_KEY.newest()

    def find(self, epoch: bytes) -> bytes | None:
        return self.keys.get(epoch)


class _Next(OneKey):
    """The keys of the next epoch."""

    def newest(self) -> EpochKey:
        return EpochKey(b"next", bytes(32))


def test_the_key_of_an_unknown_epoch_is_asked_for_and_no_cloud_blamed() -> None:
    ring = _Ring()
    follow = Follow(VOLUME, ring, OWN.device_id, [0, 1], 1, lambda *_: False, 0.0)
    follow.set_members(Members([A.public, OWN.public]), 0.0)
    head = Head(VOLUME, A.device_id, NOON, NOON, VersionVector(), (), None)
    data = encode_head(head, A, _Next(bytes(32)), NONCE)
    actions = follow.head_arrived(A.device_id, 0, data, 1.0, NOON)
    assert FetchGrant(A.device_id, b"next") in actions
    [report] = [one for one in actions if isinstance(one, Report)]
    assert report.fault is Fault.UNKNOWN_EPOCH and not report.fault.lie
    assert not follow.unread, "that cloud may have made it up"
    again = follow.head_arrived(A.device_id, 1, data, 2.0, NOON)
    assert not any(isinstance(one, FetchGrant) for one in again), "not for every copy"
    assert follow.doubts() and follow.unread == {A.device_id}
    ring.keys[b"next"] = bytes(32)
    follow.grant_arrived()
    asked = follow.due(3.0, NOON)
    assert {(one.device, one.cloud) for one in asked if isinstance(one, FetchHead)} >= {(A.device_id, 0)}
    for cloud in (0, 1):
        follow.head_arrived(A.device_id, cloud, data, 3.0, NOON)
    assert follow.newest(A.device_id) == head
    assert not follow.doubts() and not follow.unread


def test_the_key_of_a_segment_is_asked_of_the_device_that_put_it_there() -> None:
    """Whose updates are in it cannot tell: it was removed, and another device sealed what it wrote before."""
    follow = Follow(VOLUME, BOX_KEY, OWN.device_id, [0], 0, lambda *_: False, 0.0)
    follow.set_members(Members([A.public, OWN.public], [B.public]), 0.0)
    relayed = Relayed(B.device_id, SegmentId(1, bytes(8)))
    head = Head(VOLUME, A.device_id, NOON, NOON, VersionVector(), (), None, relayed=(relayed,))
    follow.head_arrived(A.device_id, 0, encode_head(head, A, BOX_KEY, NONCE), 1.0, NOON)
    [fetch] = [one for one in follow.due(1.0, NOON) if isinstance(one, FetchSegment)]
    assert fetch.device == B.device_id
    name = fetch.wanted.name
    actions = follow.segment_failed(B.device_id, name, "sealed", 2.0, gone=False, epoch=b"next")
    assert actions == [FetchGrant(A.device_id, b"next")]


def test_answers_about_a_device_that_was_removed_are_ignored() -> None:
    follow = Follow(VOLUME, BOX_KEY, OWN.device_id, [0, 1], 1, lambda *_: False, 0.0)
    a = A.device_id
    assert follow.head_arrived(a, 0, b"", 0.0, NOON) == []
    assert follow.head_missing(a, 0, 0.0) == follow.head_unchanged(a, 0, 0.0) == []
    assert follow.head_failed(a, 0, "down") == follow.head_failed(a, 0, "cut", wrong=True) == []
    assert follow.segment_failed(a, "log/x", "gone", 0.0, gone=True) == []
    follow.names_arrived(a, ["log/x"])
    follow.heard(a, NOON)


@st.composite
def events(draw: st.DrawFn) -> list[tuple[str, int]]:
    kinds = st.sampled_from(["write", "write", "write", "hear", "restore", "look", "lie"])
    return draw(st.lists(st.tuples(kinds, st.integers(0, 2)), max_size=25))


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(events(), st.lists(lies, min_size=3, max_size=3), st.sets(st.integers(0, 2)))
def test_whatever_clouds_do_all_that_was_published_arrives_once_enough_are_honest(
    history: list[tuple[str, int]], kinds: list[Lie], liars: set[int]
) -> None:
    clouds = shelves()
    devices = [Publisher(key) for key in (A, B, C)]
    backups: dict[int, Publisher] = {}
    everything: list[SignedUpdate] = []
    forked = False
    watcher = Watcher(OWN, clouds, 1)
    for step, (kind, number) in enumerate(history):
        device = devices[number]
        match kind:
            case "write":
                publish(device, clouds, watcher.now, number + 1)
                everything += device.order
            case "hear":
                other = devices[number - 1]
                device.receive_all([update for update in other.order if not device.holds_update(update)])
            case "restore" if number in backups:
                devices[number] = backups.pop(number)
                forked = True
            case "restore":
                backups[number] = device.restored(step + 1)
            case "look":
                watcher.run(60.0 * number + 5)
            case "lie":
                for liar in liars:
                    clouds[liar].lie = kinds[liar]
    watcher.run(30.0)
    convicted = {one.cloud for one in watcher.reports() if one.fault.lie and one.cloud is not None}
    assert convicted <= {number for number, cloud in enumerate(clouds) if cloud.lied}
    unreadable = {one.cloud for one in watcher.reports() if one.fault is Fault.UNREADABLE}
    for number, cloud in enumerate(clouds):
        if cloud.lie is corrupt and any(name.startswith("heads/") for name in cloud.lied):
            assert number in unreadable
    if len(liars) <= 1 and not forked:
        assert caught_up(watcher, *devices)
    for liar in liars:
        clouds[liar].lie = None
    for device in devices:
        watcher.list_branches(device.id)
    watcher.run(3 * HOUR)
    assert all(watcher.holds_update(update) for update in everything)
    assert not watcher.waiting
    if not forked:
        assert caught_up(watcher, *devices)
        for device in devices:
            own = [update for update in watcher.order if update.header.writer == device.id]
            assert own == sorted(own, key=lambda update: update.header.clock)


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=200), st.integers(0, 1000), st.integers(0, 3))
def test_no_bytes_raise(junk: bytes, place: int, how: int) -> None:
    clouds = shelves()
    a = Publisher(A)
    publish(a, clouds, 0.0)
    watcher = Watcher(OWN, clouds, 1)

    def spoil(shelf: Shelf, name: str) -> bytes | None:
        truth = shelf.truth(name)
        if truth is None or how == 0:
            return junk
        at = place % len(truth)
        return (truth[:at], truth[:at] + junk, truth[:at] + junk + truth[at:])[how - 1]

    for cloud in clouds:
        cloud.lie = spoil
    watcher.run(100.0)
    for cloud in clouds:
        cloud.lie = None
    watcher.run(HOUR)
    assert caught_up(watcher, a)
