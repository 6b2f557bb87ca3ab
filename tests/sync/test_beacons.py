"""Heads: clouds that tell less than they should, and devices that fall silent."""

from __future__ import annotations

import pytest

from sync.beacons import PROPAGATION_SECONDS, Fault, Sighting, precedes
from sync.follow import LONGEST_PAUSE, STALE_SECONDS
from sync.head import Head, head_name
from sync.identity import Members
from sync.vector import VersionVector
from tests.sync.publisher import (
    Lie,
    Publisher,
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
from tests.sync.support import KEYS, NOON, VOLUME

A, B, _, OWN = KEYS


def clouds_of_a_round(watcher: Watcher, device: Publisher) -> set[int]:
    """The clouds that are asked for the head of `device` in the next round."""
    watcher.run(watcher.follow.next_due() - watcher.now - 1e-3)
    watcher.done.clear()
    watcher.run(2e-3)
    return {one.cloud for one in watcher.asked() if one.device == device.id}


def faults(watcher: Watcher, cloud: int) -> set[Fault]:
    return {report.fault for report in watcher.reports() if report.cloud == cloud}


@pytest.mark.parametrize(
    ("lie", "fault"),
    [
        (roll_back, Fault.ROLLED_BACK),
        (hide, Fault.LOST),
        (corrupt, Fault.UNREADABLE),
        (mix, Fault.UNREADABLE),
    ],
)
def test_one_cloud_that_begins_to_lie_is_named_once_and_cleared_when_it_stops(lie: Lie, fault: Fault) -> None:
    clouds = shelves()
    a, b = Publisher(A), Publisher(B)
    watcher = Watcher(OWN, clouds, 1)
    for _ in range(2):
        publish(a, clouds, watcher.now)
        publish(b, clouds, watcher.now)
        watcher.run(10.0)
    clouds[1].lie = lie
    publish(a, clouds, watcher.now)
    watcher.run(60.0)
    assert caught_up(watcher, a)
    assert faults(watcher, 1) == {fault}
    assert {report.cloud for report in watcher.reports()} == {1}
    assert len(watcher.reports()) == 2, "once for each device"
    assert {report.cloud for report in watcher.follow.doubts()} == {1}
    clouds[1].lie = None
    watcher.run(60.0)
    assert not watcher.follow.doubts()


def test_a_cloud_that_shows_nothing_new_any_more_is_behind_after_a_while() -> None:
    clouds = shelves()
    a = Publisher(A)
    watcher = Watcher(OWN, clouds, 1)
    publish(a, clouds, 0.0)
    watcher.run(10.0)
    publish(a, clouds[:2], 10.0)
    watcher.run(PROPAGATION_SECONDS / 2)
    assert caught_up(watcher, a)
    assert not watcher.reports()
    watcher.run(PROPAGATION_SECONDS)
    (report,) = watcher.reports()
    assert (report.cloud, report.fault, report.fault.lie) == (2, Fault.BEHIND, False)
    assert report.name == head_name(a.id)


def test_while_clouds_disagree_all_are_asked() -> None:
    clouds = shelves()
    a = Publisher(A)
    watcher = Watcher(OWN, clouds, 1)
    publish(a, clouds, 0.0)
    watcher.run(10.0)
    assert len(clouds_of_a_round(watcher, a)) == 2
    publish(a, clouds[:2], watcher.now)
    watcher.run(20.0)
    assert clouds_of_a_round(watcher, a) == {0, 1, 2}


def test_all_clouds_together_cannot_roll_back_unnoticed() -> None:
    clouds = shelves()
    a = Publisher(A)
    watcher = Watcher(OWN, clouds, 1)
    publish(a, clouds, 0.0)
    publish(a, clouds, 1.0)
    watcher.run(10.0)
    for cloud in clouds:
        cloud.lie = roll_back
    watcher.run(30.0)
    assert {report.cloud for report in watcher.reports()} == {0, 1, 2}
    head = watcher.follow.newest(a.id)
    assert head is not None and head.vector == a.state.vector


def test_a_restart_does_not_let_clouds_roll_back_unnoticed() -> None:
    clouds = shelves()
    a = Publisher(A)
    watcher = Watcher(OWN, clouds, 1)
    publish(a, clouds, 0.0)
    publish(a, clouds, 1.0)
    watcher.run(10.0)
    for cloud in clouds:
        cloud.lie = roll_back
    again = watcher.restarted()
    again.run(2 * PROPAGATION_SECONDS)
    told = {(report.device, report.cloud, report.fault) for report in again.reports()}
    assert told == {(a.id, cloud, Fault.BEHIND) for cloud in range(3)}
    head = again.follow.newest(a.id)
    assert head is not None and head.vector == a.state.vector
    for cloud in clouds:
        cloud.lie = None
    again.run(2 * LONGEST_PAUSE)
    assert not again.follow.doubts()


def test_a_restart_does_not_let_clouds_withhold_what_was_announced() -> None:
    clouds = shelves()
    a = Publisher(A)
    publish(a, clouds, 0.0)
    watcher = Watcher(OWN, clouds, 1)
    watcher.receiving = False
    watcher.run(10.0)
    for cloud in clouds:
        cloud.lie = hide
    again = watcher.restarted()
    again.run(10.0)
    assert [report.fault for report in again.reports()] == [Fault.OMITTED]


def test_a_restart_forgets_no_sign_of_life_and_suspects_nobody_before_it_has_looked() -> None:
    clouds = shelves()
    a = Publisher(A)
    publish(a, clouds, 0.0)
    watcher = Watcher(OWN, clouds, 1)
    watcher.follow.set_members(Members([A.public, OWN.public]), 0.0)
    watcher.run(1.0)
    watcher.follow.heard(a.id, NOON + 5)
    watcher.now = 2 * STALE_SECONDS
    again = watcher.restarted()
    again.follow.set_members(Members([A.public, OWN.public]), again.now)
    (one,) = again.follow.staleness(again.now, again.time_ns)
    assert (one.last_ns, one.suspect) == (NOON + 5, False)
    again.run(1.0)
    assert suspects(again) == {a.id}


@pytest.mark.parametrize("kept", [None, b"", b"no head at all"])
def test_what_is_kept_of_a_device_may_be_of_no_use(kept: bytes | None) -> None:
    clouds = shelves()
    a = Publisher(A)
    publish(a, clouds, 0.0)
    watcher = Watcher(OWN, clouds, 1, remembered={a.id: Sighting(kept, None)})
    watcher.run(10.0)
    assert caught_up(watcher, a) and not watcher.reports()
    assert watcher.follow.sightings()[a.id].head == clouds[0].truth(head_name(a.id))


def test_a_clock_that_is_set_back_convicts_nobody() -> None:
    clouds = shelves()
    a = Publisher(A)
    watcher = Watcher(OWN, clouds, 1)
    publish(a, clouds, 100_000.0)
    watcher.run(10.0)
    publish(a, clouds, 0.0)
    watcher.run(10.0)
    announce(a, clouds, -10.0)
    watcher.run(10.0)
    assert caught_up(watcher, a)
    assert not watcher.reports()


def suspects(watcher: Watcher) -> set[bytes]:
    return {one.device for one in watcher.follow.staleness(watcher.now, watcher.time_ns) if one.suspect}


def test_who_announces_itself_more_often_is_asked_more_often_and_suspect_sooner() -> None:
    clouds = shelves()
    a = Publisher(A)
    publish(a, clouds, 0.0)
    watcher = Watcher(OWN, clouds, 1)
    watcher.follow.set_members(Members([A.public, OWN.public]), 0.0)
    watcher.follow.announce_every(30.0)
    watcher.run(2 * 30.0 + 90.0 - 1)
    assert not suspects(watcher)
    watcher.run(2)
    assert suspects(watcher) == {a.id}
    announce(a, clouds, watcher.now)
    watcher.run(7200.0)
    announce(a, clouds, watcher.now)
    watcher.run(30.0)
    assert not suspects(watcher)
    watcher.follow.announce_every(900.0)
    watcher.run(STALE_SECONDS - 31)
    assert not suspects(watcher)
    watcher.run(2)
    assert suspects(watcher) == {a.id}


def test_a_device_that_falls_silent_is_suspect_until_it_is_heard_again() -> None:
    clouds = shelves()
    a = Publisher(A)
    publish(a, clouds, 0.0)
    watcher = Watcher(OWN, clouds, 1)
    watcher.follow.set_members(Members([A.public, OWN.public]), 0.0)
    watcher.run(STALE_SECONDS - 1)
    assert not suspects(watcher)
    watcher.run(2)
    assert suspects(watcher) == {a.id}
    assert clouds_of_a_round(watcher, a) == {0, 1, 2}
    watcher.follow.heard(a.id, watcher.time_ns)
    assert not suspects(watcher)
    watcher.run(STALE_SECONDS + 1)
    assert suspects(watcher) == {a.id}
    announce(a, clouds, watcher.now)
    watcher.run(2 * LONGEST_PAUSE)
    (one,) = watcher.follow.staleness(watcher.now, watcher.time_ns)
    assert not one.suspect and one.last_ns is not None and one.last_ns > NOON


def test_a_device_that_ended_in_good_order_is_not_suspect() -> None:
    clouds = shelves()
    a = Publisher(A)
    publish(a, clouds, 0.0)
    watcher = Watcher(OWN, clouds, 1)
    watcher.run(1.0)
    announce(a, clouds, 1.0, offline=True)
    watcher.run(2 * STALE_SECONDS)
    assert a.id not in suspects(watcher)
    announce(a, clouds, 2 * STALE_SECONDS)
    watcher.run(STALE_SECONDS - 60)
    assert a.id not in suspects(watcher)
    watcher.run(STALE_SECONDS)
    assert a.id in suspects(watcher)


def test_a_device_with_its_clock_ahead_is_not_above_suspicion() -> None:
    clouds = shelves()
    a = Publisher(A)
    publish(a, clouds, 1_000_000.0)
    watcher = Watcher(OWN, clouds, 1)
    watcher.run(1.0)
    assert a.id not in suspects(watcher)
    watcher.run(STALE_SECONDS + 10)
    assert a.id in suspects(watcher)


def test_a_replayed_beacon_is_no_sign_of_life() -> None:
    clouds = shelves()
    a = Publisher(A)
    publish(a, clouds, 0.0)
    watcher = Watcher(OWN, clouds, 1)
    watcher.run(1.0)
    announce(a, clouds, 1.0)
    watcher.run(STALE_SECONDS / 2)
    for cloud in clouds:
        cloud.lie = roll_back
    watcher.run(STALE_SECONDS / 2 + 10)
    assert a.id in suspects(watcher)


def head(time: int, vector: dict[bytes, int]) -> Head:
    return Head(VOLUME, A.device_id, time, time, VersionVector(vector), (), None)


def test_when_one_head_precedes_another() -> None:
    x, y, z = (bytes([n]) * 16 for n in range(3))
    early = head(1, {x: 5, y: 3})
    assert precedes(early, head(2, {x: 5, y: 4}))
    assert not precedes(head(2, {x: 5, y: 4}), early)
    assert not precedes(early, early)
    assert not precedes(early, head(2, {x: 5, y: 3})), "a beacon without news takes nothing back"
    assert not precedes(head(2, {x: 5, y: 2}), early), "restored from a backup, and went on later"
    assert not precedes(early, head(1, {x: 4, y: 4}))
    assert precedes(early, head(2, {x: 2, y: 3, z: 5})), "the entries above 2 were renamed"


def test_a_clock_that_was_ahead_and_is_set_right_makes_nobody_suspect() -> None:
    clouds = shelves()
    a = Publisher(A)
    watcher = Watcher(OWN, clouds, 1)
    publish(a, clouds, watcher.now + 10 * STALE_SECONDS)
    watcher.run(10.0)
    for _ in range(3):
        watcher.run(0.9 * STALE_SECONDS)
        publish(a, clouds, watcher.now)
        watcher.run(LONGEST_PAUSE)
        assert not next(
            one for one in watcher.follow.staleness(watcher.now, watcher.time_ns) if one.device == a.id
        ).suspect
