"""The inbox: whatever comes first waits, within bounds."""

from __future__ import annotations

from random import Random

from hypothesis import given
from hypothesis import strategies as st

from sync.outcome import Accepted, Duplicate, Inbox, Outcome, Reason, Refused
from sync.update import decode_signed
from tests.sync.support import KEYS, Device, chain
from tests.sync.test_forks import Node, Script, heal, play, steps


def offer(inbox: Inbox, device: Device, data: bytes) -> list[Outcome]:
    return inbox.add(data, lambda one: device.receive(decode_signed(one)))


@given(steps, st.randoms(use_true_random=False))
def test_any_order_and_repetition_is_put_right(script: Script, random: Random) -> None:
    nodes = play(script)
    heal(nodes)
    offered = [update.data for update in nodes[0].order]
    offered += random.sample(offered, len(offered) // 3)
    random.shuffle(offered)
    observer, inbox = Node(3), Inbox()
    accepted = 0
    for data in offered:
        outcomes = offer(inbox, observer, data)
        accepted += sum(isinstance(outcome, Accepted) for outcome in outcomes)
        assert all(observer.find(stamp.prefix) is None for stamp in inbox.missing)
    assert accepted == len(nodes[0].order) and len(inbox) == 0 and not inbox.missing
    assert observer.facts() == nodes[0].facts()


def test_outcomes_come_in_the_order_of_acceptance() -> None:
    updates = chain(4)
    device, inbox = Device(KEYS[1]), Inbox()
    for late in updates[:0:-1]:
        (outcome,) = offer(inbox, device, late.data)
        assert isinstance(outcome, Refused) and outcome.retryable
    assert len(inbox) == 3 and inbox.missing == {updates[0].stamp}
    outcomes = offer(inbox, device, updates[0].data)
    assert [one.update.hash for one in outcomes if isinstance(one, Accepted)] == [one.hash for one in updates]
    (again,) = offer(inbox, device, updates[2].data)
    assert isinstance(again, Duplicate)


def test_what_is_refused_for_good_does_not_wait() -> None:
    foreign = Inbox()
    outcomes = foreign.add(chain(1)[0].data, lambda data: Refused(Reason.BAD_SIGNATURE, "no"))
    assert len(outcomes) == 1 and len(foreign) == 0


def test_the_farthest_are_dropped() -> None:
    updates = chain(40)
    size = len(updates[20].data)
    for inbox in (Inbox(most_count=8), Inbox(most_bytes=8 * size)):
        device = Device(KEYS[1])
        for update in reversed(updates[1:]):
            offer(inbox, device, update.data)
            assert len(inbox) <= 8
        offer(inbox, device, updates[0].data)
        assert 4 <= len(device.order) <= 9, "the nearest were kept"
        for update in updates[len(device.order) :]:
            offer(inbox, device, update.data)
        assert len(device.order) == 40


def test_what_was_taken_out_leaves_room() -> None:
    updates = chain(60)
    size = len(updates[20].data)
    device, inbox = Device(KEYS[1]), Inbox(most_bytes=4 * size)
    for first, second in zip(updates[::2], updates[1::2], strict=True):
        offer(inbox, device, second.data)
        assert len(offer(inbox, device, first.data)) == 2
