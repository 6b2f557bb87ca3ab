"""The two machines: what they agree on, and that nothing but the one right conversation leads anywhere."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from hybrisfs.pairing.errors import PairingError, StrangeMessageError
from hybrisfs.pairing.handshake import MAX_MESSAGE, Handshake, Kind
from hybrisfs.pairing.messages import Peer, Reason
from hybrisfs.pairing.protocol import Inviter, Joiner, State, UsedCodeError
from tests.pairing.support import (
    CODE,
    GRANT,
    INVITER,
    JOINER,
    NOW,
    OTHER,
    Impostor,
    answer,
    flip,
    granted,
    introduced,
    inviter,
    joiner,
    seeded,
)


def conversation() -> list[bytes]:
    """Hello, offer, reveal, grant and done of a pairing that is fully determined."""
    one, two = inviter(), joiner()
    hello = two.hello(NOW)
    offer = answer(one, hello)
    reveal = answer(two, offer)
    one.receive(reveal, NOW)
    grant = granted(one)
    two.receive(grant, NOW)
    return [hello, offer, reveal, grant, two.done()]


MESSAGES = conversation()


def advance(count: int) -> tuple[Inviter, Joiner]:
    """The machines after the first `count` messages of the conversation, random bytes included."""
    one, two = inviter(), joiner()
    assert two.hello(NOW) == MESSAGES[0]
    for number, message in enumerate(MESSAGES[:count]):
        if number == 3:
            assert granted(one) == message
        receiver = two if number in (1, 3) else one
        receiver.receive(message, NOW)
        if number == 1:
            two.accept()
    if count == 3:
        assert granted(one) == MESSAGES[3]
    if count == 4:
        assert two.done() == MESSAGES[4]
    return one, two


def receiver_of(number: int, machines: tuple[Inviter, Joiner]) -> Inviter | Joiner:
    return machines[1] if number in (1, 3) else machines[0]


def test_a_pairing() -> None:
    one, two = introduced()
    assert one.comparison == two.comparison
    assert one.joiner == Peer(JOINER.public, "desktop")
    assert two.offer is not None
    assert two.offer.peer == Peer(INVITER.public, "laptop")
    assert two.offer.volume_name == "photos"
    assert two.receive(granted(one), NOW) is None
    assert two.granted == GRANT
    assert one.receive(two.done(), NOW) is None
    assert (one.state, two.state) == (State.FINISHED, State.FINISHED)


@given(st.integers(0, 1 << 32))
def test_the_string_is_six_digits(seed: int) -> None:
    one, two = inviter(seed=seed), joiner(seed=seed + 1)
    one.receive(answer(two, answer(one, two.hello(NOW))), NOW)
    assert one.comparison == two.comparison
    left, right = one.comparison.split(" ")
    assert len(left) == len(right) == 3
    assert (left + right).isdigit()


@given(st.integers(0, 4), st.integers(min_value=0))
def test_an_altered_message_is_refused_and_the_genuine_one_still_taken(number: int, bit: int) -> None:
    machines = advance(number)
    receiver = receiver_of(number, machines)
    before = receiver.state
    with pytest.raises(StrangeMessageError):
        receiver.receive(flip(MESSAGES[number], bit), NOW)
    assert receiver.state is before
    assert machines[1].granted is None or number == 4
    receiver.receive(MESSAGES[number], NOW)
    assert receiver.state is not before


@given(st.integers(0, 4), st.data())
def test_a_truncated_or_longer_message_is_refused(number: int, data: st.DataObject) -> None:
    length = data.draw(st.integers(0, len(MESSAGES[number]) - 1))
    more = data.draw(st.binary(min_size=1, max_size=9))
    receiver = receiver_of(number, advance(number))
    for message in (MESSAGES[number][:length], MESSAGES[number] + more):
        with pytest.raises(StrangeMessageError):
            receiver.receive(message, NOW)


@pytest.mark.parametrize("number", range(5))
@pytest.mark.parametrize("other", range(5))
def test_no_message_is_taken_at_another_place(number: int, other: int) -> None:
    """Repeated, reordered and reflected messages of the same conversation, on both sides."""
    machines = advance(number)
    for machine in machines:
        waits_for = number if machine is receiver_of(number, machines) else number + 1
        if other == waits_for:
            continue
        before = machine.state
        with pytest.raises(StrangeMessageError):
            machine.receive(MESSAGES[other], NOW)
        assert machine.state is before


@pytest.mark.parametrize("number", range(5))
def test_no_message_is_taken_from_another_conversation_with_the_same_code(number: int) -> None:
    one, two = inviter(seed=11), joiner(seed=12)
    other = [two.hello(NOW)]
    other.append(answer(one, other[0]))
    other.append(answer(two, other[1]))
    one.receive(other[2], NOW)
    other.append(granted(one))
    two.receive(other[3], NOW)
    other.append(two.done())
    if number > 0:  # the first hello to come is as good as any
        with pytest.raises(StrangeMessageError):
            receiver_of(number, advance(number)).receive(other[number], NOW)


@given(st.binary(max_size=300), st.integers(0, 4))
def test_garbage_is_refused(data: bytes, number: int) -> None:
    for machine in advance(number):
        with pytest.raises(StrangeMessageError):
            machine.receive(data, NOW)
        with pytest.raises(StrangeMessageError):
            machine.receive(b"HFPR\0\1" + data, NOW)


def test_oversize_is_refused_unread() -> None:
    with pytest.raises(StrangeMessageError, match="larger"):
        inviter().receive(MESSAGES[0] + bytes(MAX_MESSAGE), NOW)


def test_a_newer_format_says_so() -> None:
    with pytest.raises(StrangeMessageError, match="upgrade"):
        inviter().receive(b"HFPR\0\2" + MESSAGES[0][6:], NOW)


def test_a_flood_ends_the_machine() -> None:
    one = inviter()

    def flood() -> None:
        for _ in range(2000):
            try:
                one.receive(b"garbage", NOW)
            except StrangeMessageError:
                continue

    with pytest.raises(PairingError, match="flood"):
        flood()
    assert one.state is State.FAILED
    with pytest.raises(PairingError):
        one.receive(MESSAGES[0], NOW)


def test_another_code_opens_nothing() -> None:
    stranger = joiner(replace(CODE, secret=bytes(16)))
    with pytest.raises(StrangeMessageError):
        inviter().receive(stranger.hello(NOW), NOW)


def test_an_expired_code_gets_nothing() -> None:
    late = float(CODE.expires)
    with pytest.raises(PairingError, match="expired"):
        joiner().hello(late)
    one, two = inviter(), joiner()
    with pytest.raises(PairingError, match="expired") as told:
        one.receive(two.hello(NOW), late)
    assert one.state is State.FAILED
    assert told.value.reply is not None
    with pytest.raises(PairingError, match="expired"):
        two.receive(told.value.reply, NOW)
    assert two.state is State.FAILED


def test_a_code_that_expires_on_the_way_gets_nothing() -> None:
    late = float(CODE.expires)
    one, two = inviter(), joiner()
    reveal = answer(two, answer(one, two.hello(NOW)))
    with pytest.raises(PairingError, match="expired") as told:
        one.receive(reveal, late)
    assert told.value.reply is not None
    with pytest.raises(PairingError, match="expired"):
        two.receive(told.value.reply, NOW)
    one, two = introduced()
    with pytest.raises(PairingError, match="expired"):
        one.confirm(late)
    assert one.state is State.FAILED


@pytest.mark.parametrize("count", [1, 3, 4])
def test_a_second_joiner_is_refused_and_the_first_goes_on(count: int) -> None:
    one, two = advance(count)
    second = joiner(seed=7, key=OTHER)
    with pytest.raises(UsedCodeError, match="second machine") as told:
        one.receive(second.hello(NOW), NOW)
    assert told.value.reply is not None
    with pytest.raises(PairingError, match="used already"):
        second.receive(told.value.reply, NOW)
    with pytest.raises(StrangeMessageError):
        two.receive(told.value.reply, NOW)
    receiver_of(count, (one, two)).receive(MESSAGES[count], NOW)


def test_a_joiner_that_finds_another_ones_hello_knows_that_the_code_was_used() -> None:
    second = joiner(seed=7, key=OTHER)
    own = second.hello(NOW)
    with pytest.raises(StrangeMessageError):  # its own, reflected, says nothing
        second.receive(own, NOW)
    with pytest.raises(StrangeMessageError):
        second.receive(flip(MESSAGES[0], 999), NOW)
    with pytest.raises(PairingError, match="used already"):
        second.receive(MESSAGES[0], NOW)


@pytest.mark.parametrize("reason", Reason)
def test_rejection_and_closing_are_told(reason: Reason) -> None:
    one, two = introduced()
    closed = one.closed(reason)
    rejected = one.reject(reason)
    assert one.state is State.FAILED
    for message in (closed, rejected):
        machine = advance(2)[1]  # the same joiner, once more
        with pytest.raises(PairingError, match="the pairing failed"):
            machine.receive(message, NOW)
        assert machine.state is State.FAILED
        assert machine.granted is None
    with pytest.raises(StrangeMessageError):
        two.receive(flip(closed, 400), NOW)


def test_the_joiner_may_decline() -> None:
    one, two = introduced()
    with pytest.raises(PairingError, match="declined"):
        one.receive(two.decline(), NOW)
    assert one.state is State.FAILED
    one, two = introduced()
    two.receive(granted(one), NOW)
    message = two.decline()
    assert two.granted is None
    with pytest.raises(PairingError, match="declined"):
        one.receive(message, NOW)


def test_an_offer_that_cannot_be_taken_is_declined_before_anybody_is_shown_or_let_in() -> None:
    one, two = inviter(), joiner()
    assert two.receive(answer(one, two.hello(NOW)), NOW) is None
    assert two.offer is not None
    assert (two.offer.volume, two.offer.volume_name) == (GRANT.volume, GRANT.name)
    declined = two.decline()
    assert two.state is State.FAILED
    with pytest.raises(StrangeMessageError):
        one.receive(flip(declined, 400), NOW)
    with pytest.raises(PairingError, match="declined"):
        one.receive(declined, NOW)
    assert (one.state, one.joiner) == (State.FAILED, None)


def test_done_counts_only_after_the_grant() -> None:
    one, two = introduced()
    twin, _ = introduced()
    two.receive(granted(twin), NOW)
    with pytest.raises(StrangeMessageError):
        one.receive(two.done(), NOW)
    assert one.state is State.COMPARING


def test_a_man_in_the_middle_who_has_the_code_gets_different_strings() -> None:
    """He must commit before he sees the inviter's key, and speak before the joiner opens its commitment."""
    equal = 0
    for seed in range(50):
        one, two = inviter(seed=seed), joiner(seed=1000 + seed)
        to_joiner = Inviter(CODE, OTHER, "laptop", GRANT.volume, GRANT.name, seeded(2000 + seed))
        to_inviter = Joiner(CODE, OTHER, "desktop", seeded(3000 + seed))
        one.receive(answer(to_inviter, answer(one, to_inviter.hello(NOW))), NOW)
        to_joiner.receive(answer(two, answer(to_joiner, two.hello(NOW))), NOW)
        assert to_inviter.comparison == one.comparison
        assert to_joiner.comparison == two.comparison
        equal += one.comparison == two.comparison
    assert equal == 0


def test_what_was_committed_to_cannot_be_changed_after_the_offer() -> None:
    """Who knows the code and the inviter's key may not try device keys until the strings are equal."""
    one, cheat = inviter(), joiner()
    offer = answer(one, cheat.hello(NOW))
    cheat._reveal = joiner(seed=99, key=OTHER)._reveal
    cheat._device = OTHER
    with pytest.raises(PairingError, match="committed"):
        one.receive(answer(cheat, offer), NOW)
    assert one.state is State.FAILED
    assert one.joiner is None


def test_a_joiner_proves_that_it_has_the_key_it_shows() -> None:
    one, cheat = inviter(), joiner(key=Impostor(JOINER, OTHER))
    with pytest.raises(PairingError, match="could not prove"):
        one.receive(answer(cheat, answer(one, cheat.hello(NOW))), NOW)


def test_an_inviter_proves_that_it_has_the_key_it_shows() -> None:
    one, two = introduced(key=Impostor(INVITER, OTHER))
    with pytest.raises(PairingError, match="could not prove"):
        two.receive(granted(one), NOW)
    assert two.granted is None


def test_what_is_granted_is_what_was_offered() -> None:
    one, two = introduced()
    with pytest.raises(PairingError, match="something else"):
        two.receive(granted(one, structs.replace(GRANT, name="music")), NOW)
    assert two.granted is None
    one, two = introduced()
    one._self = Peer(OTHER.public, "laptop")
    with pytest.raises(PairingError, match="something else"):
        two.receive(granted(one, structs.replace(GRANT, members=(OTHER.public,))), NOW)
    one, two = introduced()
    with pytest.raises(ValueError, match="not a member"):
        granted(one, structs.replace(GRANT, members=(OTHER.public,)))


Build = Callable[[Handshake], bytes]


@pytest.mark.parametrize(
    "build",
    [
        lambda handshake: handshake.seal(Kind.HELLO, b"short"),
        lambda handshake: handshake.seal(Kind.HELLO, b""),
    ],
)
def test_a_senseless_message_from_somebody_with_the_code_ends_it(build: Build) -> None:
    one = inviter()
    with pytest.raises(PairingError, match="no sense"):
        one.receive(build(Handshake(CODE.secret, seeded(5))), NOW)
    assert one.state is State.FAILED


def test_a_key_of_low_order_is_refused() -> None:
    two = joiner()
    two.hello(NOW)
    handshake = Handshake(CODE.secret, seeded(5))
    with pytest.raises(StrangeMessageError, match="impossible key"):
        handshake.agreed(bytes(32))


def test_the_code_alone_does_not_open_what_was_granted() -> None:
    """Forward secrecy: with the code, but neither ephemeral key, everything up to the shared secret opens."""
    thief = Handshake(CODE.secret, seeded(5))
    commitment = thief.open(Kind.HELLO, MESSAGES[0])
    thief.absorb(commitment)
    offer = thief.open(Kind.OFFER, MESSAGES[1])
    thief.absorb(offer)
    outer = thief.open(Kind.REVEAL, MESSAGES[2])
    assert JOINER.public not in outer
    with pytest.raises(StrangeMessageError):
        thief.open(Kind.REVEAL, outer[32:])
    with pytest.raises(StrangeMessageError):
        thief.open(Kind.GRANT, MESSAGES[3])
