"""A device that is bound to an update: what it signs as if it had never heard of it counts for nothing, but
for what others have seen, and what it signed before it owned up."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sync.log import Bound
from sync.outcome import Accepted, Duplicate, Inbox, Outcome, Reason, Refused
from sync.update import SignedUpdate, decode_signed
from tests.sync.support import KEYS, Device

BOUND = KEYS[3]


def bind(device: Device, update: SignedUpdate, *, from_first: bool = False) -> None:
    """The device has accepted the update that binds BOUND."""
    header = update.header
    bound = Bound(header.writer, header.writer, header.clock, from_first)
    device.state.bind(BOUND.device_id, [bound])


def offer(inbox: Inbox, device: Device, updates: Iterable[SignedUpdate]) -> list[Outcome]:
    def accept(data: bytes) -> Outcome:
        return device.receive(decode_signed(data))

    return [outcome for one in updates for outcome in inbox.add(one.data, accept)]


def shuffled(random: Random, updates: Sequence[SignedUpdate]) -> list[SignedUpdate]:
    found = list(updates)
    random.shuffle(found)
    return found


def refusal(device: Device, update: SignedUpdate) -> Reason | None:
    outcome = device.receive(update)
    return outcome.reason if isinstance(outcome, Refused) else None


def test_who_pretends_not_to_know_is_not_heard() -> None:
    judge, liar = Device(KEYS[0]), Device(BOUND)
    before = liar.write()
    judge.receive_all([before])
    bind(judge, judge.write())
    assert refusal(judge, liar.write()) is Reason.NOT_VOUCHED
    assert refusal(judge, liar.write()) is Reason.NOT_VOUCHED


@given(st.integers(1, 5), st.integers(0, 4), st.randoms(use_true_random=False))
def test_what_was_done_before_it_was_heard_of_counts_in_any_order(
    before: int, after: int, random: Random
) -> None:
    judge, honest = Device(KEYS[0]), Device(BOUND)
    binding = judge.write()
    bind(judge, binding)
    updates = [honest.write() for _ in range(before)]
    honest.receive_all([binding])
    updates += [honest.write() for _ in range(after + 1)]
    inbox = Inbox()
    offer(inbox, judge, shuffled(random, updates))
    assert judge.state.history() == honest.state.history()
    assert not len(inbox)


@given(st.integers(1, 5), st.booleans(), st.randoms(use_true_random=False))
def test_what_another_has_seen_counts_in_any_order(count: int, from_first: bool, random: Random) -> None:
    judge, witness, bound = Device(KEYS[0]), Device(KEYS[1]), Device(BOUND)
    binding = judge.write()
    bind(judge, binding, from_first=from_first)
    seen = [bound.write() for _ in range(count)]
    witness.receive_all(seen)
    vouching, later = witness.write(), bound.write()
    inbox = Inbox()
    offer(inbox, judge, shuffled(random, [*seen, vouching, later]))
    assert {one.hash for one in judge.order} == {one.hash for one in (binding, vouching, *seen)}


@given(st.integers(1, 4), st.randoms(use_true_random=False))
def test_who_was_bound_from_the_first_update_on_vouches_for_nothing(count: int, random: Random) -> None:
    judge, liar = Device(KEYS[0]), Device(BOUND)
    binding = judge.write()
    bind(judge, binding, from_first=True)
    updates = [liar.write() for _ in range(count)]
    liar.receive_all([binding])
    updates += [liar.write(), liar.write()]
    offer(Inbox(), judge, shuffled(random, updates))
    assert [one.hash for one in judge.order] == [binding.hash]
    honest = Device(BOUND)
    honest.receive_all([binding])
    offer(Inbox(), judge, [honest.write(), honest.write()])
    assert len(judge.order) == 3


@given(st.randoms(use_true_random=False))
def test_updates_that_come_before_their_causes_are_taken_in_later(random: Random) -> None:
    """Nobody can tell of them at first whether they know what binds their writer."""
    judge, other, honest = Device(KEYS[0]), Device(KEYS[1]), Device(BOUND)
    binding = judge.write()
    bind(judge, binding)
    other.receive_all([binding])
    updates = [other.write()]
    honest.receive_all([binding, *updates])
    updates += [honest.write(), honest.write(), honest.write()]
    inbox = Inbox()
    offer(inbox, judge, shuffled(random, updates))
    assert judge.state.history() == honest.state.history()
    assert not len(inbox) and not inbox._unvouched and not inbox._following


def test_two_that_are_bound_do_not_go_round_in_circles() -> None:
    """What waits for an update that nobody vouches for is not tried again and again."""
    judge, liar = Device(KEYS[0]), Device(BOUND)
    bind(judge, judge.write(), from_first=True)
    first = liar.write()
    twin = liar.clone()
    one, other = liar.write((b"k", b"1")), twin.write((b"k", b"2"))
    liar.receive_all([other])
    inbox = Inbox()
    outcomes = offer(inbox, judge, [liar.write(), one, other, first])
    assert not any(isinstance(outcome, Accepted) for outcome in outcomes)
    assert len(outcomes) < 16


def test_a_state_that_is_loaded_again_knows_what_was_obeyed() -> None:
    judge, honest = Device(KEYS[0]), Device(BOUND)
    binding = judge.write()
    twin = honest.clone()
    bind(judge, binding)
    honest.receive_all([binding])
    obeying = [honest.write(), honest.write()]
    judge.receive_all(obeying)
    judge.restart()
    bind(judge, binding)
    restored = twin.write()  # from a backup: it makes a fork, which convicts it, and counts
    assert isinstance(judge.receive(restored), Accepted)


def test_the_first_word_against_one_that_seconds_a_bound_gets_through() -> None:
    """Two that are bound by two others each, at the same time, go on hearing of each other."""
    low, high = sorted(KEYS[:2], key=lambda key: key.device_id)
    judge, rival, bound = Device(KEYS[2]), Device(high), Device(low)
    binding, seconding = rival.write(), judge.write()
    judge.receive_all([binding])
    said = [Bound(high.device_id, high.device_id, binding.header.clock, from_first=False)]
    own = KEYS[2].device_id
    said.append(Bound(own, own, seconding.header.clock, False, frozenset({high.device_id})))
    judge.state.bind(low.device_id, said)
    word, more = bound.write((b"against", b"rival")), bound.write((b"k", b"v"))
    assert refusal(judge, word) is Reason.NOT_VOUCHED
    judge.log.binding = lambda update: {high.device_id} if update.hash == word.hash else set()
    judge.state.bind(low.device_id, [one._replace(from_first=True) for one in said])
    assert refusal(judge, word) is Reason.NOT_VOUCHED, "it had no excuse from the first update on"
    judge.state.bind(low.device_id, [said[0], said[1]._replace(seconds=frozenset())])
    assert refusal(judge, word) is Reason.NOT_VOUCHED, "the other bound binds without the rival"
    judge.state.bind(low.device_id, said)
    assert isinstance(judge.receive(word), Accepted)
    assert refusal(judge, more) is Reason.NOT_VOUCHED


@pytest.mark.parametrize("in_order", [True, False])
def test_who_heard_of_one_bound_after_the_other_owns_up_by_both(*, in_order: bool) -> None:
    """An update that had seen one of them waits; the next one depends on that, and on the other bound."""
    judge, other, honest = Device(KEYS[0]), Device(KEYS[1]), Device(BOUND)
    bindings = [judge.write(), other.write()]
    judge.receive_all(bindings[1:])
    judge.state.bind(
        BOUND.device_id,
        [Bound(one.header.writer, one.header.writer, one.header.clock, from_first=False) for one in bindings],
    )
    honest.receive_all(bindings[:1])
    updates = [honest.write()]
    honest.receive_all(bindings[1:])
    updates.append(honest.write())
    inbox = Inbox()
    for _ in range(2):  # they are sent again
        offer(inbox, judge, updates if in_order else updates[::-1])
    assert judge.state.history() == honest.state.history()
    assert not len(inbox) and not inbox._unvouched


@pytest.mark.parametrize("in_order", [True, False])
def test_a_first_word_that_another_bound_holds_up_counts_with_what_follows(*, in_order: bool) -> None:
    """A device speaks against a rival that speaks against it, and hears of another bound only. It cannot have
    heard of the rival's word, which is refused there until the rival has heard of its own."""
    low, high = sorted(KEYS[:2], key=lambda key: key.device_id)
    judge, rival, bound = Device(KEYS[2]), Device(high), Device(low)
    said, other = rival.write(), judge.write()
    judge.receive_all([said])
    word = bound.write((b"against", b"rival"))
    judge.log.binding = lambda update: {high.device_id} if update.hash == word.hash else set()
    judge.state.bind(
        low.device_id,
        [Bound(one.header.writer, one.header.writer, one.header.clock, False) for one in (said, other)],
    )
    updates = [word, bound.write()]
    bound.receive_all([other])
    updates.append(bound.write())
    inbox = Inbox()
    for _ in range(3):  # they are sent again
        offer(inbox, judge, updates if in_order else updates[::-1])
    assert isinstance(judge.receive(updates[-1]), Duplicate)
    assert refusal(judge, bound.write()) is Reason.NOT_VOUCHED, "now it can have heard of both"
