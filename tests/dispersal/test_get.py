"""The GET machine under every order of events, with up to f clouds that fail, lie or keep silent."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hybrisfs.dispersal.get import Fetch, GetAction, GetFailed, GetMachine, Verify
from hybrisfs.dispersal.put import SetTimer

Temper = Literal["good", "silent", "fails", "lies", "fails once"]


class Simulation:
    """Drives a machine; `draw` chooses which of the possible events comes next."""

    def __init__(self, k: int, tempers: dict[int, Temper], draw: st.DataObject) -> None:
        self.machine = GetMachine(k, list(tempers), timer=1.0)
        self.k = k
        self.tempers = tempers
        self.draw = draw
        self.flying: list[int] = []
        self.arrived: set[int] = set()
        self.asked: Counter[int] = Counter()
        self.timer = False
        self.result: tuple[int, ...] | GetFailed | None = None

    def run(self) -> tuple[int, ...] | GetFailed | None:
        self.apply(self.machine.start())
        silent_expiries = 0
        for _ in range(500):
            if self.result is not None:
                return self.result
            events = [index for index in self.flying if self.tempers[index] != "silent"]
            silent_expiries = 0 if events else silent_expiries + 1
            if self.timer:
                events.append(-1)
            if not events or silent_expiries > 20:
                return None
            self.step(self.draw.draw(st.sampled_from(events)))
        raise AssertionError("the machine does not come to an end")

    def step(self, event: int) -> None:
        if event < 0:
            self.timer = False
            self.apply(self.machine.timer_expired())
            return
        self.flying.remove(event)
        temper = self.tempers[event]
        if temper == "fails" or (temper == "fails once" and self.asked[event] == 1):
            self.apply(self.machine.failed(event, temper))
        else:
            self.arrived.add(event)
            self.apply(self.machine.arrived(event))

    def apply(self, actions: Sequence[GetAction]) -> None:
        for action in actions:
            match action:
                case Fetch(index):
                    assert index not in self.flying
                    self.flying.append(index)
                    self.asked[index] += 1
                case SetTimer(seconds):
                    assert seconds > 0
                    self.timer = True
                case Verify(indices):
                    assert len(set(indices)) == len(indices) == self.k
                    assert set(indices) <= self.arrived
                    wrong = {index for index in indices if self.tempers[index] == "lies"}
                    if not wrong:
                        self.result = indices
                        return
                    self.arrived -= wrong
                    self.apply(self.machine.rejected(wrong, "wrong"))
                case GetFailed():
                    assert self.result is None
                    self.result = action


@st.composite
def placements(draw: st.DrawFn, worst: int = 0) -> tuple[int, int, dict[int, Temper]]:
    """Return (f, k, tempers of the f+k clouds that hold a share, at most f + worst of them bad)."""
    f, k = draw(st.integers(0, 3)), draw(st.integers(1, 4))
    order = draw(st.permutations(range(f + k)))
    tempers: dict[int, Temper] = dict.fromkeys(order, "good")
    for index in order[: draw(st.integers(0, f + worst))]:
        tempers[index] = draw(st.sampled_from(("silent", "fails", "lies", "fails once")))
    return f, k, tempers


@settings(max_examples=400)
@given(placements(), st.data())
def test_always_done_with_at_most_f_faulty_clouds(
    placement: tuple[int, int, dict[int, Temper]], data: st.DataObject
) -> None:
    _, k, tempers = placement
    result = Simulation(k, tempers, data).run()
    assert isinstance(result, tuple)


@settings(max_examples=300)
@given(placements(worst=4), st.data())
def test_never_accepts_a_lie_and_asks_a_bounded_number_of_times(
    placement: tuple[int, int, dict[int, Temper]], data: st.DataObject
) -> None:
    f, k, tempers = placement
    simulation = Simulation(k, tempers, data)
    result = simulation.run()
    if isinstance(result, tuple):
        assert all(tempers[index] != "lies" for index in result)
    else:
        bad = [index for index, temper in tempers.items() if temper != "good"]
        assert len(bad) > f
    if isinstance(result, GetFailed):
        assert set(result.reasons) == set(tempers) - simulation.arrived
    assert max(simulation.asked.values(), default=0) <= 3


def test_common_case_asks_the_best_only() -> None:
    machine = GetMachine(2, [4, 1, 0], timer=1.0)
    assert machine.start() == [Fetch(4), Fetch(1), SetTimer(1.0)]
    assert machine.arrived(1) == []
    assert machine.arrived(4) == [Verify((1, 4))]


def test_expiry_asks_one_more_for_each_that_is_missing() -> None:
    machine = GetMachine(2, [0, 1, 2, 3], timer=1.0)
    machine.start()
    machine.arrived(1)
    assert machine.timer_expired() == [Fetch(2), SetTimer(2.0)]
    assert machine.timer_expired() == [Fetch(3), SetTimer(4.0)]
    assert machine.arrived(3) == [Verify((1, 3))]
    assert machine.rejected({1}, "wrong") == []
    assert machine.arrived(0) == [Verify((3, 0))]


def test_failure_asks_the_next_at_once() -> None:
    machine = GetMachine(1, [0, 1], timer=1.0)
    machine.start()
    assert machine.failed(0, "down") == [Fetch(1), SetTimer(1.0)]


def test_worst_case_asks_all_again_in_parallel_and_then_gives_up() -> None:
    machine = GetMachine(1, [0, 1], timer=1.0, rounds=2, pause=0.2)
    machine.start()
    machine.failed(0, "down")
    for pause in (0.2, 0.4):
        assert machine.failed(1, "out") == [SetTimer(pause)]
        assert machine.timer_expired() == [Fetch(0), Fetch(1), SetTimer(1.0)]
        assert machine.failed(0, "down") == []
    assert machine.failed(1, "out") == [GetFailed({0: "down", 1: "out"})]


def test_without_rounds_the_first_failure_of_all_is_final() -> None:
    machine = GetMachine(1, [0, 1], timer=1.0, rounds=0)
    machine.start()
    machine.failed(0, "missing")
    assert machine.failed(1, "missing") == [GetFailed({0: "missing", 1: "missing"})]


def test_late_answers_during_the_pause_count() -> None:
    machine = GetMachine(2, [0, 1, 2], timer=1.0)
    machine.start()
    machine.timer_expired()
    machine.failed(0, "down")
    assert machine.failed(1, "down") == [SetTimer(0.2)]
    assert machine.arrived(2) == []
    assert machine.timer_expired() == [Fetch(0), Fetch(1), SetTimer(2.0)]
    assert machine.arrived(1) == [Verify((2, 1))]


def test_giving_up_names_the_silent() -> None:
    machine = GetMachine(1, [0, 1], timer=1.0)
    machine.start()
    assert machine.give_up({0: "no answer within 1 s"}) == [
        GetFailed({0: "no answer within 1 s", 1: "has not answered"})
    ]
    assert machine.arrived(0) == []


def test_too_few_positions_doubles_and_unblamed_rejections() -> None:
    assert GetMachine(2, [1], timer=1.0).start() == [GetFailed({1: "has not answered"})]
    with pytest.raises(ValueError, match="twice"):
        GetMachine(1, [1, 1], timer=1.0)
    with pytest.raises(ValueError, match="blames"):
        GetMachine(1, [1], timer=1.0).rejected(set(), "nobody")


def test_the_worst_case_asks_all_at_once_and_insists() -> None:
    machine = GetMachine(1, [0, 1], timer=1.0, rounds=5, pause=0.2, eager=True)
    assert machine.start() == [Fetch(0), Fetch(1), SetTimer(1.0)]
    assert machine.failed(0, "gone") == []
    assert machine.failed(1, "gone") == [SetTimer(0.2)]
    assert machine.timer_expired() == [Fetch(0), Fetch(1), SetTimer(1.0)]
    assert machine.failed(1, "gone") == []
    assert machine.arrived(0) == [Verify((0,))]


def test_a_denial_replaces_who_is_late_at_once() -> None:
    machine = GetMachine(1, [0, 1, 2], timer=1.0)
    machine.start()
    assert machine.timer_expired() == [Fetch(1), SetTimer(2.0)]
    assert machine.failed(1, "gone") == [Fetch(2), SetTimer(2.0)]
    assert machine.arrived(2) == [Verify((2,))]


def test_who_is_late_is_not_waited_for_when_enough_deny_it() -> None:
    machine = GetMachine(1, [0, 1, 2], timer=1.0, rounds=0, absent=2)
    machine.start()
    machine.timer_expired()
    machine.failed(1, "gone", denied=True)
    assert machine.failed(2, "gone", denied=True) == [
        GetFailed({0: "has not answered", 1: "gone", 2: "gone"})
    ]


def test_who_has_its_usual_time_left_is_waited_for_although_the_others_deny_it() -> None:
    machine = GetMachine(1, [0, 1, 2], timer=1.0, rounds=0, absent=2, eager=True)
    machine.start()
    machine.failed(0, "gone", denied=True)
    assert machine.failed(1, "gone", denied=True) == []
    assert machine.arrived(2) == [Verify((2,))]


def test_the_usual_time_of_the_last_is_the_end_when_the_others_deny_it() -> None:
    machine = GetMachine(1, [0, 1, 2], timer=1.0, rounds=0, absent=2, eager=True)
    machine.start()
    machine.failed(0, "gone", denied=True)
    machine.failed(1, "gone", denied=True)
    assert machine.timer_expired() == [GetFailed({0: "gone", 1: "gone", 2: "has not answered"})]


def test_a_failure_is_no_denial() -> None:
    machine = GetMachine(1, [0, 1, 2], timer=1.0, rounds=0, absent=2, eager=True)
    machine.start()
    machine.failed(0, "gone", denied=True)
    machine.failed(1, "down")
    assert machine.timer_expired() == []
    assert machine.arrived(2) == [Verify((2,))]


def test_what_was_stored_is_asked_for_again_before_a_denial_is_believed() -> None:
    machine = GetMachine(1, [0, 1, 2], timer=1.0, rounds=1, absent=2, eager=True)
    machine.start()
    machine.failed(0, "gone", denied=True)
    machine.failed(1, "gone", denied=True)
    assert machine.timer_expired() == [SetTimer(0.2)]
    assert machine.timer_expired() == [Fetch(0), Fetch(1), SetTimer(2.0)]
    assert machine.failed(0, "gone", denied=True) == []
    assert machine.arrived(1) == [Verify((1,))]
