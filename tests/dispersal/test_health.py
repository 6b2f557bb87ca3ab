from __future__ import annotations

from itertools import pairwise

from hybrisfs.dispersal.ranking import MAX_OFFENCES, CloudHealth, Offence
from tests.dispersal.fakes import FakeClock


def accept(_: bytes) -> None:
    return None


def offence(reason: str) -> Offence:
    return Offence(reason, 10, accept)


def make() -> tuple[CloudHealth, FakeClock]:
    clock = FakeClock()
    return CloudHealth(clock), clock


def test_a_new_cloud_is_ok() -> None:
    health, clock = make()
    assert health.state() == ("ok", "")
    assert health.since == clock.now
    assert health.penalty("get") == health.penalty("put") == 0
    assert not health.probe_due()


def test_failures_in_a_row_open_the_circuit_and_a_success_closes_it() -> None:
    health, clock = make()
    health.failed("down", "timed out")
    assert health.state() == ("slow", "last request failed: timed out")
    assert health.penalty("get") == 1
    clock.now += 5
    health.failed("down", "timed out")
    clock.now += 5
    health.failed("down", "connection refused")
    assert health.state() == ("down", "connection refused")
    assert health.since == clock.now
    assert health.penalty("get") == health.penalty("put") == 3
    clock.now += 5
    health.succeeded("get")
    assert health.state() == ("ok", "")
    assert health.since == clock.now


def test_one_failure_that_will_last_is_enough() -> None:
    health, _ = make()
    health.failed("down", "folder /x is gone; is the disk mounted?", lasting=True)
    assert health.state() == ("down", "folder /x is gone; is the disk mounted?")
    health, _ = make()
    health.failed("refusing", "access denied")
    assert health.state() == ("refusing", "access denied")


def test_probes_come_less_and_less_often() -> None:
    health, clock = make()
    pauses = []
    for _ in range(9):
        health.failed("down", "refused")
        begun = clock.now
        while not health.probe_due():
            clock.now += 0.5
        pauses.append(clock.now - begun)
    assert pauses == [1, 2, 4, 8, 16, 32, 60, 60, 60]
    health.succeeded("get")
    health.failed("down", "refused")
    clock.now += 1
    assert health.probe_due()


def test_a_full_cloud_is_good_for_reading() -> None:
    health, _ = make()
    health.failed("full", "quota used up")
    assert health.state() == ("full", "quota used up")
    assert (health.penalty("get"), health.penalty("put")) == (0, 2)
    health.succeeded("get")
    assert health.full
    health.succeeded("put")
    assert health.state() == ("ok", "")


def test_a_lie_is_forgiven_only_when_the_object_is_right_again() -> None:
    health, _ = make()
    assert health.lied("packs/a", offence("packs/a is missing"))
    assert health.lied("packs/b", offence("packs/b is altered"))
    assert not health.lied("packs/b", offence("packs/b is altered"))
    health.succeeded("get")
    health.succeeded("put")
    health.in_time()
    assert health.state() == ("lying", "packs/b is altered (and 1 more)")
    assert health.penalty("get") == health.penalty("put") == 2
    health.cleared("packs/b")
    assert health.state() == ("lying", "packs/a is missing")
    health.cleared("packs/a")
    assert health.state() == ("ok", "")


def test_offences_are_bounded_and_looked_at_in_turns_at_growing_intervals() -> None:
    health, clock = make()
    for number in range(MAX_OFFENCES + 50):
        health.lied(f"o{number}", offence("wrong"))
    assert health.state()[1].endswith(f"(and {MAX_OFFENCES - 1} more)")
    seen: list[str] = []
    times = []
    for _ in range(6):
        while not (batch := health.take_rechecks()):
            clock.now += 1
        times.append(clock.now)
        assert len(batch) == 4
        seen += batch
        for name in batch:
            health.lied(name, offence("wrong"))
    assert len(set(seen)) == 24
    assert [after - before for before, after in pairwise(times)] == [5, 10, 20, 40, 80]
    health.cleared("o30")
    assert health.take_rechecks()


def test_state_down_comes_before_lying() -> None:
    health, _ = make()
    health.lied("packs/a", offence("wrong"))
    health.failed("down", "gone", lasting=True)
    assert health.state()[0] == "down"
    health.succeeded("get")
    assert health.state()[0] == "lying"


def test_late_answers_make_a_cloud_slow_and_timely_ones_quick() -> None:
    health, _ = make()
    for _ in range(3):
        assert health.state()[0] == "ok"
        health.late()
    assert health.state() == ("slow", "did not answer the last 3 requests in its usual time")
    assert health.penalty("get") == 0
    health.in_time()
    assert health.state()[0] == "ok"


def test_throttling_passes_with_time() -> None:
    health, clock = make()
    health.throttled(30)
    assert health.state() == ("slow", "asks for fewer requests")
    assert health.penalty("put") == 1
    clock.now += 30
    assert health.state() == ("ok", "")
    assert health.penalty("put") == 0
