"""Which checkpoints of others are taken in, by the machine alone: whatever heads name and devices offer, and
whatever fails, only one that can be believed and that is needed; and that one in the end."""

from __future__ import annotations

import hashlib
from typing import Final

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from hybrisfs.checkpoint.adopt import Action, AdoptionMachine, Compare, Read, TakeIn, View
from hybrisfs.checkpoint.limits import CheckpointLimits
from sync import CheckpointId, DecodeError, DeviceKey, Head, Members, VersionVector
from sync.checkpoint import Root, Slice, Statement

VOLUME: Final = b"v" * 16
ME, INVITER, OTHER, STRANGER = KEYS = [DeviceKey.from_seed(bytes([number]) * 32) for number in range(4)]
LIMITS: Final = CheckpointLimits(far_behind=5, patience_seconds=700.0)
AGAIN: Final = 300.0
Update = tuple[int, str]
"""Its clock, and which of two with that clock it is."""
updates = st.tuples(st.integers(1, 12), st.sampled_from("ab"))
numbers = st.integers(0, 7)


def vector_of(known: frozenset[Update]) -> VersionVector:
    """All on one branch: a vector does not tell what of a fork is known."""
    highest = max((clock for clock, _ in known), default=0)
    return VersionVector({ME.device_id: highest} if highest else {})


def root_of(covered: frozenset[Update], signers: frozenset[int], forged: frozenset[int]) -> Root:
    snapshot = hashlib.sha256(repr(sorted(covered)).encode()).digest()
    vector = vector_of(covered)
    evidence = {
        KEYS[one].device_id: Statement.of(VOLUME, vector, snapshot, KEYS[one]).signature for one in signers
    }
    evidence |= {KEYS[one].device_id: b"!" * 64 for one in forged}
    return Root(VOLUME, snapshot, vector, (Slice(snapshot, 1),), (), dict(sorted(evidence.items())))


class Made:
    """A checkpoint, its root by any name, and what is true of it."""

    def __init__(self, covered: frozenset[Update], signers: frozenset[int], forged: frozenset[int]) -> None:
        self.covered = covered
        self.signers = {KEYS[one] for one in signers - forged}
        self.root = root_of(covered, signers, forged)
        self.is_forged = bool(forged & {0, 1, 2})
        self.name = hashlib.sha256(self.root.encode()).digest()


class Adopting(RuleBasedStateMachine):
    """One device, and what others tell it."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.known = frozenset[Update]()
        self.made: list[Made] = []
        self.heads: dict[bytes, Head] = {}
        self.recorded: set[bytes] = set()
        self.inviter_is_member = True
        self.clouds_fail = False
        self.start()

    def start(self) -> None:
        self.machine = AdoptionMachine(VOLUME, ME.device_id, LIMITS)
        self.read: dict[bytes, float] = {}  # since nobody has offered it
        self.done: set[bytes] = set()

    @property
    def view(self) -> View:
        keys = [ME, OTHER, *([INVITER] if self.inviter_is_member else [])]
        members = Members((one.public for one in keys), former=[INVITER.public])
        return View(vector_of(self.known), members, INVITER.device_id, self.recorded)

    # -- what happens ----------------------------------------------------------------------------

    @rule(
        covered=st.frozensets(updates, min_size=1, max_size=4),
        signers=st.frozensets(st.integers(0, 3), min_size=1),
        forged=st.frozensets(st.integers(0, 3), max_size=1),
    )
    def make(self, covered: frozenset[Update], signers: frozenset[int], forged: frozenset[int]) -> None:
        self.made.append(Made(covered, signers, forged))

    @rule(by=st.sampled_from([INVITER, OTHER]), number=numbers, lies=st.booleans())
    def name(self, by: DeviceKey, number: int, lies: bool) -> None:
        if self.made:
            one = self.made[number % len(self.made)]
            named = CheckpointId(one.name, b"?" * 32 if lies else one.root.snapshot)
            self.heads[by.device_id] = Head(
                VOLUME, by.device_id, 1, 0, VersionVector(), (), None, checkpoint=named
            )

    @rule(number=numbers)
    def offer(self, number: int) -> None:
        if self.made:
            one = self.made[number % len(self.made)]
            self.machine.offered(one.name)
            self.read.pop(one.name, None)

    @rule(some=st.frozensets(updates, max_size=3))
    def hear_by_the_log(self, some: frozenset[Update]) -> None:
        self.known |= some

    @rule(is_member=st.booleans())
    def invite(self, is_member: bool) -> None:
        self.inviter_is_member = is_member

    @rule(fail=st.booleans())
    def clouds_go(self, fail: bool) -> None:
        self.clouds_fail = fail

    @rule(seconds=st.sampled_from([1.0, 200.0, AGAIN, 1000.0]))
    def wait(self, seconds: float) -> None:
        self.now += seconds

    @rule()
    def restart(self) -> None:
        self.start()

    @rule()
    def look(self) -> None:
        while action := self.machine.due(self.view, self.heads, self.now):
            assert isinstance(action, Read)
            assert self.now - self.read.get(action.name, float("-inf")) >= AGAIN, "others keep it busy"
            self.read[action.name] = self.now
            self.run(action)

    def run(self, first: Action) -> None:
        action: Action | None = first
        while action is not None and not self.clouds_fail:
            one = next(made for made in self.made if made.name == action.name)
            lacks = not one.covered <= self.known
            match action:
                case Read():
                    try:
                        action = self.machine.read(action, one.root, self.view, self.now)
                    except DecodeError:
                        assert one.is_forged or one.signers <= {STRANGER}
                        return
                case Compare():
                    assert one.root.snapshot not in self.done
                    self.done |= set() if lacks else {one.root.snapshot}
                    action = self.machine.compared(action, self.view, self.now, lacks=lacks)
                case TakeIn():
                    assert lacks, "it is needed"
                    assert self.is_believable(one)
                    self.known |= one.covered
                    self.recorded = {one.root.snapshot}
                    self.machine.taken_in(action)
                    return

    # -- what must hold --------------------------------------------------------------------------

    def is_believable(self, one: Made) -> bool:
        if one.is_forged:
            return False
        members = {ME, OTHER} if not self.inviter_is_member else {ME, INVITER}
        return bool(one.signers & members) or self.is_vouched(one)

    def is_vouched(self, one: Made) -> bool:
        head = self.heads.get(INVITER.device_id)
        return head is not None and head.checkpoint == CheckpointId(one.name, one.root.snapshot)

    @invariant()
    def what_is_recorded_is_complete(self) -> None:
        for one in self.made:
            assert one.root.snapshot not in self.recorded or one.covered <= self.known

    def teardown(self) -> None:
        """When the clouds answer, all that the inviter names is here before long."""
        self.clouds_fail = False
        for _ in range(5):
            self.now += AGAIN
            self.look()
        for one in self.made:
            if self.is_vouched(one) and not one.is_forged and not one.signers <= {STRANGER}:
                assert one.covered <= self.known


TestAdopting = Adopting.TestCase


def far_ahead(*signers: int) -> Made:
    return Made(frozenset({(12, "a")}), frozenset(signers), frozenset())


def world_with(one: Made) -> Adopting:
    """It has a log, and the other member names that checkpoint."""
    world = Adopting()
    world.made = [one]
    world.known = frozenset({(1, "a")})
    world.name(OTHER, 0, lies=False)
    return world


@pytest.mark.parametrize(("signer", "believed"), [(0, True), (1, True), (2, False)])
def test_the_word_of_this_device_and_of_its_inviter_counts(signer: int, believed: bool) -> None:
    world = world_with(far_ahead(signer))
    world.look()
    assert bool(world.recorded) is believed
    world = world_with(far_ahead(signer))
    world.inviter_is_member = False
    world.wait(AGAIN)
    world.look()
    assert world.recorded == ({world.made[0].root.snapshot} if signer != 1 else set())


def test_what_lacks_little_waits_for_the_log_unless_a_device_offers_it() -> None:
    one = Made(frozenset({(2, "a")}), frozenset({0}), frozenset())
    world = world_with(one)
    for _ in range(2):
        world.wait(AGAIN)
        world.look()
    assert not world.recorded
    world.offer(0)
    world.look()
    assert world.recorded == {one.root.snapshot}


def test_after_long_what_lacks_little_is_taken_in_all_the_same() -> None:
    world = world_with(Made(frozenset({(2, "a")}), frozenset({0}), frozenset()))
    for _ in range(4):
        assert not world.recorded
        world.look()
        world.wait(AGAIN)
    assert world.recorded


def test_a_device_without_a_log_waits_for_nothing() -> None:
    world = world_with(Made(frozenset({(2, "a")}), frozenset({0}), frozenset()))
    world.known = frozenset()
    world.look()
    assert world.recorded


@pytest.mark.parametrize("first", [INVITER, OTHER])
def test_nobody_can_hide_what_the_inviter_names(first: DeviceKey) -> None:
    world = world_with(far_ahead(2))
    world.heads.clear()
    for by in (first, OTHER if first is INVITER else INVITER):
        world.name(by, 0, lies=by is OTHER)
    world.look()
    assert world.recorded


def test_a_member_that_names_it_wrongly_hides_nothing_that_this_device_has_stated() -> None:
    world = world_with(far_ahead(0))
    for by in (INVITER, OTHER):
        world.name(by, 0, lies=True)
    world.look()
    assert world.recorded


def test_a_fork_at_the_same_clock_is_seen_by_its_name() -> None:
    """The vector seems to cover it."""
    world = world_with(Made(frozenset({(1, "b")}), frozenset({0}), frozenset()))
    world.offer(0)
    world.look()
    assert world.known == {(1, "a"), (1, "b")}


def test_it_begins_with_what_the_inviter_names_though_nobody_known_has_more_than_named_it() -> None:
    world = Adopting()
    one = far_ahead(2)
    world.made = [one]
    world.heads.clear()
    world.name(INVITER, 0, lies=False)
    world.run(world.machine.begin(CheckpointId(one.name, one.root.snapshot)))
    assert world.known == one.covered
    world.look()
    assert not world.read, "it is not looked at again"
