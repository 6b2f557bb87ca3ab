"""The PUT machine under every order of events, with up to f clouds that fail, err or keep silent."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hybrisfs.dispersal.put import Placed, PutAction, PutFailed, PutMachine, Send, SetTimer

Temper = Literal["good", "silent", "fails", "errs", "errs once"]


class Simulation:
    """Drives a machine; `draw` chooses which of the possible events comes next.

    `patience` is the machine's. Each request is started, or found stuck, before it is answered.
    """

    def __init__(
        self, machine: PutMachine, tempers: dict[int, Temper], draw: st.DataObject, patience: float = 0.0
    ) -> None:
        self.machine = machine
        self.tempers = tempers
        self.draw = draw
        self.flying: list[tuple[int, int]] = []  # (cloud, share)
        self.acks: set[tuple[int, int]] = set()
        self.sent: Counter[tuple[int, int]] = Counter()
        self.waiting: list[tuple[int, int]] = []  # of those that fly
        self.in_line: set[int] = set()  # shares whose first request waits
        self.patience = patience
        self.timer: float | None = None
        self.result: Placed | PutFailed | None = None
        self.errors: Counter[int] = Counter()

    def run(self) -> Placed | PutFailed | None:
        """Return the outcome; None when only silence is left."""
        self.apply(self.machine.start())
        self.in_line = {share for _, share in self.flying}
        silent_expiries = 0
        for _ in range(1000):
            if self.result is not None:
                return self.result
            events = [
                index for index, (cloud, _) in enumerate(self.flying) if self.tempers[cloud] != "silent"
            ]
            silent_expiries = 0 if events else silent_expiries + 1
            if silent_expiries > 40:
                return None
            assert self.timer is not None, "an open operation always has a timer"
            chosen = self.draw.draw(st.sampled_from([*events, -1]))
            if bool(self.waiting) and self.draw.draw(st.booleans()):
                self.leave_line(*self.draw.draw(st.sampled_from(self.waiting)))
            elif chosen < 0:
                self.expire(self.timer)
            else:
                self.answer(*self.flying.pop(chosen))
        raise AssertionError("the machine does not come to an end")

    def leave_line(self, cloud: int, share: int) -> None:
        self.waiting.remove((cloud, share))
        self.in_line.discard(share)
        event = self.machine.started if self.draw.draw(st.booleans()) else self.machine.stuck
        self.apply(event(cloud, share))

    def expire(self, seconds: float) -> None:
        self.patience -= seconds
        if self.patience <= 0:
            self.in_line.clear()
        self.timer = None
        actions = self.machine.timer_expired()
        helped = [action.index for action in actions if isinstance(action, Send)]
        assert len(helped) == len(set(helped)), "one more copy per share and expiry"
        assert not self.in_line.intersection(helped), "what waits in line gets no second copy"
        self.apply(actions)

    def answer(self, cloud: int, share: int) -> None:
        temper = self.tempers[cloud]
        if (cloud, share) in self.waiting:
            self.leave_line(cloud, share)
        once = temper == "errs once" and not self.errors[cloud]
        if temper in ("fails", "errs") or once:
            self.errors[cloud] += 1
            self.apply(self.machine.failed(cloud, share, temper, passing=temper != "fails"))
        else:
            self.acks.add((cloud, share))
            self.apply(self.machine.acked(cloud, share))

    def apply(self, actions: Sequence[PutAction]) -> None:
        for action in actions:
            match action:
                case Send(share, cloud):
                    assert (cloud, share) not in self.flying
                    assert (cloud, share) not in self.acks
                    self.flying.append((cloud, share))
                    self.waiting.append((cloud, share))
                    self.sent[cloud, share] += 1
                case SetTimer(seconds):
                    assert seconds > 0
                    self.timer = seconds
                case Placed() | PutFailed():
                    assert self.result is None
                    self.result = action


@st.composite
def clusters(draw: st.DrawFn, worst: int = 0) -> tuple[int, int, dict[int, Temper]]:
    """Return (f, k, tempers of 2f+k clouds, at most f + worst of them bad)."""
    f, k = draw(st.integers(1, 3)), draw(st.integers(1, 4))
    clouds = draw(st.permutations(range(2 * f + k)))
    bad = draw(st.integers(0, f + worst))
    tempers: dict[int, Temper] = dict.fromkeys(clouds, "good")
    for cloud in clouds[:bad]:
        tempers[cloud] = draw(st.sampled_from(("silent", "fails", "errs", "errs once")))
    return f, k, tempers


def check_placement(placement: tuple[int, ...], n: int, acks: set[tuple[int, int]]) -> None:
    assert len(placement) == len(set(placement)) == n
    assert all((cloud, share) in acks for share, cloud in enumerate(placement))


@settings(max_examples=400)
@given(clusters(), st.data())
def test_always_done_with_at_most_f_faulty_clouds(
    cluster: tuple[int, int, dict[int, Temper]], data: st.DataObject
) -> None:
    f, k, tempers = cluster
    patience = data.draw(st.sampled_from([0.0, 5.0, 1000.0]))
    clouds = data.draw(st.permutations(list(tempers)))
    held = {share: clouds[share] for share in data.draw(st.sets(st.integers(0, f + k - 1)))}
    machine = PutMachine(f + k, list(tempers), timer=1.0, patience=patience, held=held)
    simulation = Simulation(machine, tempers, data, patience)
    result = simulation.run()
    assert isinstance(result, Placed)
    check_placement(result.placement, f + k, simulation.acks | {(held[share], share) for share in held})
    assert all(result.placement[share] == cloud for share, cloud in held.items())
    assert not {share for _, share in simulation.sent}.intersection(held)


@settings(max_examples=300)
@given(clusters(worst=4), st.data())
def test_never_claims_what_was_not_acknowledged(
    cluster: tuple[int, int, dict[int, Temper]], data: st.DataObject
) -> None:
    f, k, tempers = cluster
    simulation = Simulation(PutMachine(f + k, list(tempers), timer=1.0), tempers, data)
    result = simulation.run()
    if isinstance(result, Placed):
        check_placement(result.placement, f + k, simulation.acks)
    else:
        bad = {cloud for cloud, temper in tempers.items() if temper != "good"}
        assert len(bad) > f
        if isinstance(result, PutFailed):
            assert bad & set(result.reasons)
    assert sum(simulation.sent.values()) <= 4 * len(tempers)


@settings(max_examples=200)
@given(clusters(), st.data())
def test_copies_of_one_object_go_to_each_cloud_once(
    cluster: tuple[int, int, dict[int, Temper]], data: st.DataObject
) -> None:
    f, k, tempers = cluster
    simulation = Simulation(PutMachine(f + k, list(tempers), timer=1.0, fungible=True), tempers, data)
    result = simulation.run()
    assert isinstance(result, Placed)
    assert len(set(result.placement)) == f + k
    per_cloud: Counter[int] = Counter()
    for cloud, _ in simulation.acks:
        per_cloud[cloud] += 1
    assert set(result.placement) <= set(per_cloud)
    assert max(per_cloud.values()) == 1


@pytest.mark.parametrize("fungible", [False, True])
def test_common_case_uses_the_best_clouds_only(fungible: bool) -> None:
    machine = PutMachine(2, [7, 5, 3], timer=1.0, fungible=fungible)
    assert machine.start() == [Send(0, 7), Send(1, 5), SetTimer(1.0)]
    assert machine.acked(5, 1) == []
    assert machine.acked(7, 0) == [Placed((7, 5))]
    assert machine.timer_expired() == []


def test_timer_runs_from_the_start_of_the_last_request() -> None:
    machine = PutMachine(2, [0, 1, 2], timer=1.0, patience=9.0)
    assert machine.start()[-1] == SetTimer(9.0)
    assert machine.started(0, 0) == []
    assert machine.started(1, 1) == [SetTimer(1.0)]


def test_whoever_waits_behind_late_requests_is_not_patient() -> None:
    machine = PutMachine(2, [0, 1, 2], timer=1.0, patience=9.0)
    assert machine.start()[-1] == SetTimer(9.0)
    assert machine.stuck(0, 0) == [SetTimer(1.0)]
    assert machine.started(1, 1) == [SetTimer(1.0)]
    assert machine.acked(1, 1) == []
    assert machine.timer_expired() == [Send(0, 2), SetTimer(2.0)]
    assert machine.stuck(0, 0) == machine.stuck(2, 0) == [], "the timer runs already"
    assert machine.acked(2, 0) == [Placed((2, 1))]
    assert machine.stuck(0, 0) == []


def test_a_share_that_waits_in_another_queue_stays_in_line() -> None:
    machine = PutMachine(2, [0, 1, 2, 3], timer=1.0, patience=4.0)
    machine.start()
    assert machine.stuck(0, 0) == [SetTimer(1.0)]
    assert machine.timer_expired() == [Send(0, 2), SetTimer(2.0)]
    assert machine.acked(2, 0) == []
    assert machine.timer_expired() == [SetTimer(1.0)], "what is left of the patience"
    assert machine.timer_expired() == [Send(1, 0), SetTimer(8.0)]


def test_a_stuck_request_that_is_started_after_all_has_its_time() -> None:
    machine = PutMachine(1, [0, 1], timer=1.0, patience=9.0)
    machine.start()
    assert machine.stuck(0, 0) == [SetTimer(1.0)]
    assert machine.started(0, 0) == [SetTimer(1.0)]
    assert machine.timer_expired() == [Send(0, 1), SetTimer(2.0)]


def test_secondary_takes_over_at_expiry_and_a_late_first_still_counts() -> None:
    machine = PutMachine(2, [0, 1, 2], timer=1.0)
    machine.start()
    machine.acked(0, 0)
    assert machine.timer_expired() == [Send(1, 2), SetTimer(2.0)]
    assert machine.acked(1, 1) == [Placed((0, 1))]


def test_secondary_takes_over_at_once_when_one_fails() -> None:
    machine = PutMachine(2, [0, 1, 2], timer=1.0)
    machine.start()
    assert machine.failed(0, 0, "down", passing=True) == [Send(0, 2)]
    machine.acked(2, 0)
    assert machine.acked(1, 1) == [Placed((2, 1))]


def test_secondary_made_redundant_takes_the_next_open_share() -> None:
    machine = PutMachine(3, [0, 1, 2, 3], timer=1.0)
    machine.start()
    machine.acked(0, 0)
    assert machine.timer_expired() == [Send(1, 3), SetTimer(2.0)]
    assert machine.acked(1, 1) == []
    assert machine.timer_expired() == [Send(2, 3), SetTimer(4.0)]
    assert machine.acked(3, 1) == []
    assert machine.acked(3, 2) == [Placed((0, 1, 3))]


def test_a_cloud_that_was_too_late_with_one_share_takes_another() -> None:
    machine = PutMachine(2, [0, 1, 2], timer=1.0)
    machine.start()
    assert Send(0, 2) in machine.timer_expired()
    assert machine.acked(0, 0) == []
    assert Send(1, 2) in machine.timer_expired()
    machine.failed(1, 1, "gone", passing=False)
    assert machine.acked(2, 0) == []
    assert machine.acked(2, 1) == [Placed((0, 2))]


def test_failures_that_may_pass_are_tried_again_soon_others_are_not() -> None:
    machine = PutMachine(2, [0, 1], timer=30.0)
    machine.start()
    assert machine.acked(0, 0) == []
    assert machine.failed(1, 1, "refused", passing=True) == [SetTimer(0.2)]
    assert Send(1, 1) in machine.timer_expired()
    assert machine.failed(1, 1, "no space", passing=False) == [PutFailed({1: "no space"})]


def test_shares_that_were_acknowledged_before_are_not_sent_again() -> None:
    machine = PutMachine(2, [7, 8, 9], timer=1.0, held={1: 7})
    assert machine.start() == [Send(0, 8), SetTimer(1.0)]
    assert machine.failed(8, 0, "down", passing=False) == [Send(0, 9)]
    assert machine.acked(9, 0) == [Placed((9, 7))]
    assert PutMachine(2, [7, 8, 9], timer=1.0, held={0: 8, 1: 7}).start() == [Placed((8, 7))]
    doubled = PutMachine(2, [7, 8, 9], timer=1.0, held={0: 7, 1: 7})
    assert doubled.start() == [Send(1, 8), SetTimer(1.0)]
    retired = PutMachine(2, [8, 9], timer=1.0, held={1: 7})
    assert retired.start() == [Send(0, 8), Send(1, 9), SetTimer(1.0)]


def test_too_few_clouds_and_doubles() -> None:
    assert isinstance(PutMachine(2, [1], timer=1.0).start()[0], PutFailed)
    with pytest.raises(ValueError, match="twice"):
        PutMachine(2, [1, 1, 2], timer=1.0)


def test_giving_up_names_the_silent() -> None:
    machine = PutMachine(2, [0, 1, 2], timer=1.0)
    machine.start()
    machine.acked(0, 0)
    (failed,) = machine.give_up({1: "no answer within 5 s"})
    assert failed == PutFailed({1: "no answer within 5 s", 2: "was not tried: too few are left"})
    assert machine.acked(1, 1) == []
    assert machine.give_up({1: "again"}) == []


def test_strange_answers_are_ignored() -> None:
    machine = PutMachine(2, [0, 1, 2], timer=1.0)
    machine.start()
    assert machine.acked(2, 0) == []
    assert machine.acked(0, 1) == []
    assert machine.failed(2, 0, "x", passing=True) == []
    machine.acked(0, 0)
    assert machine.acked(0, 0) == []
    assert machine.acked(1, 1) == [Placed((0, 1))]
