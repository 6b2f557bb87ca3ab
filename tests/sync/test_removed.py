"""Updates of a device that was removed: accepted when a member depends on them, and only then."""

from __future__ import annotations

from random import Random

from hypothesis import given
from hypothesis import strategies as st

from sync.identity import Members
from sync.outcome import Accepted, Inbox, Outcome, Reason, Refused
from sync.update import decode_signed
from tests.sync.support import KEYS, Device

AFTER = Members([KEYS[0].public, KEYS[1].public, KEYS[2].public], [KEYS[3].public])


def offer(inbox: Inbox, device: Device, data: bytes) -> list[Outcome]:
    return inbox.add(data, lambda one: device.receive(decode_signed(one)))


def remove(device: Device) -> None:
    """The device hears that KEYS[3] was removed."""
    device.members = AFTER
    device.state.set_members(AFTER)


def refusal(device: Device, data: bytes) -> Reason | None:
    outcome = device.receive(decode_signed(data))
    return outcome.reason if isinstance(outcome, Refused) else None


def test_what_nobody_depends_on_is_refused() -> None:
    remover, removed = Device(KEYS[0]), Device(KEYS[3])
    before = removed.write()
    remover.receive_all([before])
    remove(remover)
    after = removed.write()
    assert refusal(remover, after.data) is Reason.NOT_VOUCHED
    inbox = Inbox()
    offer(inbox, remover, after.data)
    assert [one.hash for one in remover.order] == [before.hash]


def test_a_stranger_was_never_removed() -> None:
    device = Device(KEYS[0], Members([KEYS[0].public], [KEYS[3].public]))
    assert refusal(device, Device(KEYS[2]).write().data) is Reason.NOT_A_MEMBER


@given(st.integers(1, 6), st.randoms(use_true_random=False))
def test_what_a_member_saw_is_accepted_in_any_order(count: int, random: Random) -> None:
    remover, witness, removed = Device(KEYS[0]), Device(KEYS[1]), Device(KEYS[3])
    seen = [removed.write((b"seen", b"%d" % number)) for number in range(count)]
    witness.receive_all(seen)
    remove(witness)
    vouching = witness.write()
    later = removed.write()
    remove(remover)
    offered = [*(one.data for one in seen), vouching.data, later.data]
    random.shuffle(offered)
    inbox = Inbox()
    for data in offered:
        offer(inbox, remover, data)
    assert {one.hash for one in remover.order} == {vouching.hash, *(one.hash for one in seen)}
    assert remover.state.history() == witness.state.history()


def test_vouching_needs_the_signature_of_a_member() -> None:
    remover, removed = Device(KEYS[0]), Device(KEYS[3])
    first, second = removed.write((b"a", b"1")), removed.write((b"a", b"2"))
    remove(remover)
    assert refusal(remover, second.data) is Reason.NOT_VOUCHED, (
        "it waits for the first, and vouches for nothing"
    )
    assert refusal(remover, first.data) is Reason.NOT_VOUCHED
    witness = Device(KEYS[1])
    witness.receive_all([first])
    update = witness.write()
    forged = update.data.replace(update.header.data[-64:], bytes(64))
    assert refusal(remover, forged) is Reason.BAD_SIGNATURE
    assert refusal(remover, first.data) is Reason.NOT_VOUCHED


def test_a_fork_of_a_removed_device_that_a_member_saw_is_kept() -> None:
    remover, witness, removed = Device(KEYS[0]), Device(KEYS[1]), Device(KEYS[3])
    shared = removed.write((b"k", b"0"))
    twin = removed.clone()
    one, other = removed.write((b"k", b"1")), twin.write((b"k", b"2"))
    remover.receive_all([shared, one])
    remove(remover)
    witness.receive_all([shared, other])
    remove(witness)
    vouching = witness.write()
    inbox = Inbox()
    for data in (vouching.data, other.data):
        offer(inbox, remover, data)
    assert len(remover.order) == 4
    offer(Inbox(), witness, remover.write().data)
    assert refusal(witness, one.data) is None  # it has been named as a cause
    assert any(branch.parent is not None for branch in witness.state.branches)


def test_what_waits_to_be_vouched_for_is_bounded() -> None:
    removed, remover = Device(KEYS[3]), Device(KEYS[0])
    remove(remover)
    inbox = Inbox(most_count=8)
    updates = [removed.write() for _ in range(20)]
    for update in updates:
        offer(inbox, remover, update.data)
    assert len(inbox._unvouched) == 8


def test_a_state_that_is_loaded_again_decides_alike() -> None:
    remover, witness, removed = Device(KEYS[0]), Device(KEYS[1]), Device(KEYS[3])
    seen = removed.write()
    witness.receive_all([seen])
    remove(remover)
    vouching = witness.write()
    assert refusal(remover, vouching.data) is Reason.MISSING_DEPENDENCY
    remover.restart()
    assert refusal(remover, seen.data) is Reason.NOT_VOUCHED
    assert refusal(remover, vouching.data) is Reason.MISSING_DEPENDENCY
    assert isinstance(remover.receive(seen), Accepted)
    assert isinstance(remover.receive(vouching), Accepted)
