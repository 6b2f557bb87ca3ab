"""Where to connect to, and when."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from hybrisfs.peers.settings import Address, PeerSettings, Relay, Through
from hybrisfs.peers.targets import Targets

A, B = b"a" * 16, b"b" * 16
RELAY = Relay(("relay.example", 8017), bytes(32), "space", "token")
HOME, WORK, AWAY = ("192.0.2.1", 1), ("192.0.2.2", 2), ("2001:db8::3", 3)


def targets(*addresses: Address) -> Targets:
    made = Targets(PeerSettings(first_retry=1.0, last_retry=60.0), random.Random(7))
    made.configure(addresses, 0.0)
    return made


def test_a_configured_address_is_due_at_once_and_once() -> None:
    due = targets(HOME)
    assert due.take_due(0.0, {}, 8) == [HOME]
    assert due.take_due(0.0, {}, 8) == []


def test_failures_make_it_due_later_each_time_up_to_a_bound() -> None:
    due = targets(HOME)
    now, waits = 0.0, []
    for _ in range(12):
        assert due.take_due(now, {}, 8) == [HOME]
        due.failed(HOME, now)
        later = due.next_due({})
        assert later is not None
        waits.append(later - now)
        assert due.take_due(now + waits[-1] * 0.99, {}, 8) == []
        now = later
    assert 0.7 <= waits[0] <= 1.0
    assert all(0.7 * min(60, 2**i) <= wait <= min(60, 2**i) for i, wait in enumerate(waits))


def test_devices_do_not_march_in_step() -> None:
    waits = set()
    for seed in range(20):
        due = Targets(PeerSettings(), random.Random(seed))
        due.configure([HOME], 0.0)
        due.take_due(0.0, {}, 8)
        due.failed(HOME, 0.0)
        waits.add(due.next_due({}))
    assert len(waits) == 20


def test_a_linked_device_is_left_alone_until_its_link_ends() -> None:
    due = targets(HOME)
    due.take_due(0.0, {}, 8)
    due.met(HOME, A)
    assert due.take_due(1e6, {A: True}, 8) == []
    assert due.next_due({A: True}) is None
    due.lost(A, True, 1e6)
    assert due.take_due(1e6 + 1, {}, 8) == [HOME]


def test_a_link_that_never_lasts_is_tried_less_and_less() -> None:
    due = targets(HOME)
    now, waits = 0.0, []
    for _ in range(8):
        due.take_due(now, {}, 8)
        due.met(HOME, A)
        due.lost(A, False, now)
        later = due.next_due({})
        assert later is not None
        waits.append(later - now)
        now = later
    assert waits[-1] > 30


def test_one_attempt_per_device_at_a_time() -> None:
    due = targets()
    due.seen(A, [HOME, WORK], 0.0)
    due.seen(B, [AWAY], 0.0)
    assert due.take_due(0.0, {}, 8) == [HOME, AWAY]
    due.failed(HOME, 0.0)
    assert due.take_due(0.0, {}, 8) == [WORK]


def test_no_more_attempts_at_once_than_asked_for() -> None:
    assert targets(HOME, WORK, AWAY).take_due(0.0, {}, 2) != []
    assert len(targets(HOME, WORK, AWAY).take_due(0.0, {}, 2)) == 2
    assert targets(HOME).take_due(0.0, {}, 0) == []


def test_a_device_that_is_seen_again_is_tried_at_once() -> None:
    due = targets()
    due.seen(A, [HOME], 0.0)
    for now in range(0, 1000, 100):
        due.take_due(now, {}, 8)
        due.failed(HOME, now)
    due.seen(A, [HOME], 901.0)
    assert due.take_due(901.0, {}, 8) == [HOME]


def test_an_address_is_the_device_that_was_seen_there_last() -> None:
    due = targets(HOME)
    due.seen(A, [HOME], 0.0)
    due.seen(B, [HOME], 0.0)
    assert due.take_due(0.0, {B: True}, 8) == []
    assert due.take_due(0.0, {A: True}, 8) == [HOME]


@given(st.lists(st.tuples(st.sampled_from([A, B]), st.integers(1, 60_000)), max_size=200))
def test_a_device_has_no_more_than_a_few_addresses(seen: list[tuple[bytes, int]]) -> None:
    due = targets()
    for device, port in seen:
        due.seen(device, [("192.0.2.9", port)], 0.0)
    assert len(due._targets) <= 16


def test_addresses_of_former_members_are_forgotten_but_the_users_are_not() -> None:
    due = targets(HOME)
    due.seen(A, [HOME, WORK], 0.0)
    due.seen(B, [AWAY], 0.0)
    due.keep_members({B})
    assert set(due.take_due(0.0, {}, 8)) == {HOME, AWAY}


def test_configuring_replaces_the_users_addresses_only() -> None:
    due = targets(HOME, AWAY)
    due.seen(A, [WORK], 0.0)
    due.configure([AWAY], 5.0)
    assert set(due.take_due(5.0, {}, 8)) == {WORK, AWAY}
    due.failed(HOME, 5.0)  # an attempt that was under way comes back late
    assert due.next_due({}) is None


def test_all_members_are_called_through_a_relay_each_at_its_time() -> None:
    due = targets()
    due.relayed([RELAY], {A: 1.0, B: 0.0})
    assert due.take_due(0.0, {}, 8) == [Through(RELAY, B)]
    assert due.take_due(1.0, {}, 8) == [Through(RELAY, A)]


def test_the_same_relays_again_change_nothing() -> None:
    due = targets()
    due.relayed([RELAY], {A: 0.0})
    due.take_due(0.0, {}, 8)
    due.failed(Through(RELAY, A), 0.0)
    due.relayed([RELAY], {A: 0.0})
    assert due.take_due(0.1, {}, 8) == []


def test_a_relay_that_is_left_is_not_asked() -> None:
    due = targets(HOME)
    due.relayed([RELAY], {A: 0.0})
    due.relayed([], {A: 0.0})
    assert due.take_due(0.0, {}, 8) == [HOME]


def test_a_way_without_a_relay_is_looked_for_while_there_is_a_link_through_one() -> None:
    due = targets()
    due.relayed([RELAY], {A: 0.0})
    due.seen(A, [HOME], 0.0)
    assert due.take_due(0.0, {A: False}, 8) == [HOME]
    assert due.next_due({A: False}) is None
    due.failed(HOME, 0.0)
    assert due.take_due(100.0, {A: True}, 8) == []


def test_a_device_is_called_at_its_address_and_through_a_relay_at_the_same_time() -> None:
    due = targets()
    due.seen(A, [HOME, WORK], 0.0)
    due.relayed([RELAY], {A: 0.0})
    assert due.take_due(0.0, {}, 8) == [HOME, Through(RELAY, A)]


def test_many_addresses_do_not_drive_out_a_relay() -> None:
    due = targets()
    due.relayed([RELAY], {A: 0.0})
    for port in range(1, 100):
        due.seen(A, [("192.0.2.9", port)], 1.0)
    assert due.take_due(0.5, {}, 8) == [Through(RELAY, A)]
