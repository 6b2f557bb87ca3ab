"""Which device becomes a member and gets the keys, whatever a network does that has the code itself, and
whenever one side crashes. The table of states stands at the head of `hybrisfs.pairing.protocol`.

Two persons stand at two devices and compare. Between them is a network that delivers, repeats, alters and
withholds what it likes, and has two machines of its own with the same code: another joiner, another inviter.
"""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from msgspec.structs import replace

from hybrisfs.pairing.errors import PairingError, StrangeMessageError
from hybrisfs.pairing.messages import Peer, Reason
from hybrisfs.pairing.protocol import Inviter, Joiner, State
from tests.pairing.support import CODE, GRANT, INVITER, JOINER, NOW, OTHER, flip, seeded

NEXT = {
    State.NEW: {State.WAITING},
    State.WAITING: {State.ANSWERED, State.OFFERED},
    State.OFFERED: {State.ANSWERED},
    State.ANSWERED: {State.COMPARING, State.GRANTED},
    State.COMPARING: {State.CONFIRMED},
    State.CONFIRMED: {State.GRANTED},
    State.GRANTED: {State.FINISHED},
    State.FINISHED: set[State](),
    State.FAILED: set[State](),
}


class Admitting(RuleBasedStateMachine):
    """The honest inviter and joiner are machines 0 and 1, those of the network 2 and 3."""

    @initialize(seed=st.integers(0, 1 << 32))
    def begin(self, seed: int) -> None:
        self.now = NOW
        self.machines: list[Inviter | Joiner] = [
            Inviter(CODE, INVITER, "laptop", GRANT.volume, GRANT.name, seeded(seed)),
            Joiner(CODE, JOINER, "desktop", seeded(seed + 1)),
            Inviter(CODE, OTHER, "laptop", GRANT.volume, GRANT.name, seeded(seed + 2)),
            Joiner(CODE, OTHER, "desktop", seeded(seed + 3)),
        ]
        self.states = [one.state for one in self.machines]
        self.said: list[bytes] = []
        self.members: list[Peer] = []
        self.has_declined = False
        self.is_gone = [False] * 4

    @property
    def inviter(self) -> Inviter:
        (one,) = (one for one in self.machines[:1] if isinstance(one, Inviter))
        return one

    @property
    def joiner(self) -> Joiner:
        (one,) = (one for one in self.machines[1:2] if isinstance(one, Joiner))
        return one

    @rule(number=st.integers(0, 3), pick=st.integers(0, 99), bit=st.integers(-4000, 4000))
    def deliver(self, number: int, pick: int, bit: int) -> None:
        """Something that was said comes, the newest first; some of it is altered."""
        if self.said and not self.is_gone[number]:
            message = self.said[-1 - pick % len(self.said)]
            self.hear(number, flip(message, bit) if bit > 3000 else message)

    def hear(self, number: int, message: bytes) -> None:
        try:
            answer = self.machines[number].receive(message, self.now)
        except StrangeMessageError as error:
            answer = error.reply
        except PairingError as error:
            assert self.machines[number].state is State.FAILED
            answer = error.reply
        if answer is not None:
            self.said.append(answer)

    @rule(number=st.sampled_from([1, 1, 3]))
    def go_on(self, number: int) -> None:
        """A joiner says what is its turn to say."""
        machine = self.machines[number]
        assert isinstance(machine, Joiner)
        if self.is_gone[number]:
            return
        if machine.state is State.NEW and self.now < CODE.expires:
            self.said.append(machine.hello(self.now))
        elif machine.state is State.OFFERED:
            self.said.append(machine.accept())
        elif machine.state is State.GRANTED:
            self.said.append(machine.done())

    @rule()
    def decline(self) -> None:
        if self.joiner.state in (State.OFFERED, State.ANSWERED) and not self.is_gone[1]:
            message = self.joiner.decline()
            self.said.append(message)
            self.hear(0, message)
            self.has_declined = self.inviter.state is State.FAILED

    @rule(late=st.integers(0, 4))
    def compare(self, late: int) -> None:
        """The person at the inviter says yes if the other device shows the same string; perhaps too late."""
        if self.inviter.state is not State.COMPARING or self.is_gone[0]:
            return
        if late == 0:
            self.now = float(CODE.expires)
        shown = self.joiner.comparison if self.joiner.state is State.ANSWERED else None
        if self.inviter.comparison != shown:
            self.said.append(self.inviter.reject(Reason.NOT_CONFIRMED))
            return
        try:
            joiner = self.inviter.confirm(self.now)
        except PairingError:
            assert self.now >= CODE.expires
            return
        assert self.now < CODE.expires and not self.has_declined
        self.members.append(joiner)

    @rule()
    def grant(self) -> None:
        if self.inviter.state is State.CONFIRMED and not self.is_gone[0]:
            self.said.append(self.inviter.grant(GRANT))

    @rule()
    def deceive(self) -> None:
        """The inviter of the network lets in whatever comes, and gives it what it likes."""
        machine = self.machines[2]
        assert isinstance(machine, Inviter)
        if machine.state is State.COMPARING and self.now < CODE.expires:
            machine.confirm(self.now)
            self.said.append(machine.grant(replace(GRANT, members=(OTHER.public,))))

    @rule()
    def pair(self) -> None:
        """For once the network does what it should, as far as a person has not to speak."""
        for _ in range(3):
            self.go_on(1)
            self.deliver(0, 0, 0)
            self.deliver(1, 0, 0)

    @rule(number=st.integers(0, 40))
    def crash(self, number: int) -> None:
        """One side is gone for good: its machine is kept nowhere."""
        if number < 2:
            self.is_gone[number] = True

    @rule(late=st.integers(0, 20))
    def wait(self, late: int) -> None:
        self.now = float(CODE.expires) if late == 0 else min(self.now + 1, CODE.expires - 1.0)

    @rule(number=st.sampled_from([0, 2]))
    def notice(self, number: int) -> None:
        machine = self.machines[number]
        assert isinstance(machine, Inviter)
        if machine.state in (State.FINISHED, State.FAILED):
            self.said.append(machine.notice(self.now))

    @invariant()
    def only_the_device_that_was_compared_gets_in(self) -> None:
        if not hasattr(self, "members"):
            return
        assert self.members in ([], [Peer(JOINER.public, "desktop")])
        if self.inviter.state in (State.GRANTED, State.FINISHED):
            assert self.members, "the keys were given to a device that is not a member"
        for number in (1, 3):
            machine = self.machines[number]
            assert isinstance(machine, Joiner)
            if machine.granted == GRANT:
                assert number == 1 and self.members
        if self.inviter.state is State.FINISHED:
            assert self.joiner.granted == GRANT

    @invariant()
    def states_follow_the_table(self) -> None:
        for number, machine in enumerate(self.machines if hasattr(self, "machines") else ()):
            before, self.states[number] = self.states[number], machine.state
            reached = {before}
            while not reached >= {one for state in reached for one in NEXT[state]}:
                reached |= {one for state in reached for one in NEXT[state]}
            assert machine.state in reached or machine.state is State.FAILED
            assert before not in (State.FAILED, State.FINISHED) or machine.state is before


Admitting.TestCase.settings = settings(stateful_step_count=40, deadline=None)
TestAdmitting = Admitting.TestCase
