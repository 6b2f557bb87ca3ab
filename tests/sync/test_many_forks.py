"""A device that forks without end: correct devices go on with each other, and with a new one."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from sync.identity import DeviceKey, Members
from sync.log import most_branches
from sync.log_tree import USUAL_LIMITS, LogLimits
from sync.outcome import Accepted, Inbox, Reason, Refused
from sync.update import SignedUpdate, decode_signed
from sync.vector import MAX_WRITERS
from tests.merge.test_many_links import calls
from tests.sync.support import KEYS, MEMBERS, Device

LIAR = KEYS[3]
MOST_BRANCHES = USUAL_LIMITS.branches


class Honest:
    """A correct device, with what waits at it."""

    def __init__(self, key: DeviceKey, members: Members = MEMBERS, limits: LogLimits = USUAL_LIMITS) -> None:
        self.device = Device(key, members, limits=limits)
        self.inbox = Inbox()

    def hear(self, updates: Sequence[SignedUpdate]) -> None:
        for update in updates:
            self.inbox.add(update.data, lambda data: self.device.receive(decode_signed(data)))

    def knows(self, updates: Sequence[SignedUpdate]) -> bool:
        return {one.hash for one in updates} <= {one.hash for one in self.device.order}

    def branches(self) -> int:
        return self.device.state.ends(LIAR.device_id)


def forks(count: int, length: int = 1, begin: Sequence[SignedUpdate] = ()) -> list[list[SignedUpdate]]:
    """So many branches of the liar, which begin after the same updates."""
    found = []
    for number in range(count):
        liar = Device(LIAR)
        liar.receive_all(begin)
        found.append([liar.write((b"fork", b"%d %d" % (number, step))) for step in range(length)])
    return found


def exchange(devices: Sequence[Honest]) -> None:
    """Each hears of all that each has accepted."""
    for one in devices:
        for other in devices:
            one.hear(list(other.device.order))


def test_so_many_branches_are_accepted_and_no_more() -> None:
    ada = Honest(KEYS[0])
    for branch in forks(MOST_BRANCHES + 6):
        ada.hear(branch)
    assert ada.branches() == MOST_BRANCHES
    [one_more] = forks(MOST_BRANCHES + 7)[-1]
    outcome = ada.device.receive(one_more)
    assert isinstance(outcome, Refused) and outcome.reason is Reason.NOT_VOUCHED


def test_a_device_that_was_set_back_three_times_is_heard_in_the_largest_volume() -> None:
    others = [DeviceKey.from_seed(number.to_bytes(32)) for number in range(200)]
    ada = Honest(KEYS[0], Members([key.public for key in (*KEYS, *others)]))
    for branch in forks(4):
        ada.hear(branch)
    assert ada.branches() == 4


def test_those_who_took_different_forks_go_on_with_each_other() -> None:
    ada, bob, cyd = (Honest(key) for key in KEYS[:3])
    every = forks(3 * MOST_BRANCHES, 2)
    for number, honest in enumerate((ada, bob, cyd)):
        honest.device.write()
        for branch in every[number * MOST_BRANCHES :]:
            honest.hear(branch)
    for honest in (ada, bob, cyd):
        honest.device.write((b"after", b"forks"))
    exchange((ada, bob, cyd))
    exchange((ada, bob, cyd))
    assert len({honest.device.state.history() for honest in (ada, bob, cyd)}) == 1
    assert {honest.branches() for honest in (ada, bob, cyd)} == {3 * MOST_BRANCHES}
    dan = Honest(KEYS[0])
    dan.hear(bob.device.order)
    assert dan.knows(bob.device.order)


def test_a_liar_cannot_vouch_for_itself() -> None:
    ada = Honest(KEYS[0])
    for branch in forks(MOST_BRANCHES):
        ada.hear(branch)
    longer = forks(MOST_BRANCHES + 1, 5)[-1]
    for update in reversed(longer):
        ada.hear([update])
    ada.hear(longer)
    assert ada.branches() == MOST_BRANCHES and not ada.knows(longer[:1])


def test_a_member_that_forked_too_often_cannot_vouch() -> None:
    ada = Honest(KEYS[0])
    other = KEYS[2]
    for number in range(MOST_BRANCHES):
        ada.hear([Device(other).write((b"other", b"%d" % number))])
    for branch in forks(MOST_BRANCHES):
        ada.hear(branch)
    puppet = Device(other)
    one_more = forks(MOST_BRANCHES + 1)[-1]
    puppet.receive_all(one_more)
    ada.hear([puppet.write((b"vouching", b""))])
    ada.hear(one_more)
    assert not ada.knows(one_more)


def test_a_device_that_was_set_back_to_a_backup_goes_on() -> None:
    ada, bob = Honest(KEYS[0]), Honest(KEYS[1])
    for branch in forks(MOST_BRANCHES + 1):
        ada.hear(branch)
    twin = ada.device.clone()
    ada.device.write((b"lost", b""))
    twin.write((b"again", b""))
    for order in (ada.device.order, twin.order):
        bob.hear(order)
    assert bob.knows(twin.order) and bob.knows(ada.device.order)


@given(st.integers(1, 2), st.integers(1, 3), st.booleans(), st.randoms(use_true_random=False))
@settings(max_examples=25, deadline=None)
def test_in_any_order(length: int, rounds: int, removed: bool, random: Random) -> None:
    """Correct devices hear of parts of the forks, in any order, write, and hear of each other."""
    honest = [Honest(key, limits=LogLimits(branches=4)) for key in KEYS[:3]]
    begin: list[SignedUpdate] = []
    for _ in range(rounds):
        every = forks(15, length, begin)
        for one in honest:
            heard = [update for branch in random.sample(every, 8) for update in branch]
            random.shuffle(heard)
            one.hear(heard)
            one.device.write((b"key", b"value"))
        begin = [*begin, *every[0]]
    if removed:
        after = Members([key.public for key in KEYS[:3]], [LIAR.public])
        for one in honest:
            one.device.members = after
            one.device.state.set_members(after)
    every_update = [update for one in honest for update in one.device.order]
    for one in honest:
        heard = every_update.copy()
        random.shuffle(heard)
        one.hear(heard)
    exchange(honest)
    assert all(one.knows(other.device.order) for one in honest for other in honest)
    assert len({one.device.state.history() for one in honest}) == 1
    last = honest[0].device.write((b"last", b""))
    assert isinstance(honest[1].device.receive(last), Accepted)


def test_there_is_room_for_all_that_can_come_together() -> None:
    """Correct devices that took different branches of each liar, with an entry for each fork."""
    for members in range(2, 22):
        most = max(liars * (members - liars) for liars in range(members))
        assert 2 * most * most_branches(members) + members <= MAX_WRITERS


def test_twice_as_many_forks_cost_twice_as_much() -> None:
    def cost(count: int) -> int:
        ada = Honest(KEYS[0])
        branches = forks(count)
        return calls(lambda: ada.hear([update for branch in branches for update in branch]))

    assert cost(16 * MOST_BRANCHES) <= 2.6 * cost(8 * MOST_BRANCHES)


def vouched(every: Sequence[Sequence[SignedUpdate]], name: bytes) -> list[SignedUpdate]:
    """What a liar's accomplice shows to one device: forks, and after each an update that depends on it."""
    accomplice = Device(KEYS[2], limits=LogLimits(branches=MAX_WRITERS))
    found: list[SignedUpdate] = []
    for branch in every:
        accomplice.receive_all(branch)
        found += [*branch, accomplice.write((b"vouching", name))]
    return found


def test_two_who_conspire_can_part_others() -> None:
    """As `sync.log` says. Both have to fork for it, so that everybody has proofs against both."""
    ada, bob = (Honest(key, limits=LogLimits(branches=8, writers=120)) for key in KEYS[:2])
    every = forks(120)
    ada.hear(vouched(every[:60], b"to ada"))
    bob.hear(vouched(every[60:], b"to bob"))
    assert ada.branches() == bob.branches() == 60
    of_ada, of_bob = (one.device.write((b"key", b"value")) for one in (ada, bob))
    exchange((ada, bob))
    exchange((ada, bob))
    assert not ada.knows([of_bob]) and not bob.knows([of_ada])
    outcomes = [ada.device.receive(update) for branch in every[60:] for update in branch]
    assert Reason.TOO_MANY_BRANCHES in {one.reason for one in outcomes if isinstance(one, Refused)}
    after = Members([key.public for key in KEYS[:2]], [key.public for key in KEYS[2:4]])
    for one in (ada, bob):
        one.device.members = after
        one.device.state.set_members(after)
    exchange((ada, bob))
    exchange((ada, bob))
    assert not ada.knows([of_bob]) and not bob.knows([of_ada])
    liars = [{fork.device for fork in one.device.state.branches if fork.parent} for one in (ada, bob)]
    assert liars[0] | liars[1] == {LIAR.device_id, KEYS[2].device_id}
