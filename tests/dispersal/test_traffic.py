"""What is counted of the calls to a cloud."""

from __future__ import annotations

from backends import pacing
from hybrisfs.dispersal.counting import Request, RequestClass
from hybrisfs.dispersal.throttle import StandingClock, Throttle
from hybrisfs.dispersal.traffic import Counters, Traffic, Transfer
from hybrisfs.environment import SYSTEM, Environment


def test_bytes_are_counted_as_they_move_and_progress_shows() -> None:
    now = [100.0]
    traffic, throttle = Traffic(Environment(monotonic=lambda: now[0])), Throttle(SYSTEM)
    with (
        traffic.transfer(
            "put", 1000, throttle.pacer((StandingClock(Environment(monotonic=lambda: 0.0)),))
        ) as pacer,
        pacing.paced(pacer),
    ):
        assert traffic.transfers() == [Transfer("put", 1000, 0, 0.0)]
        pacing.sending(600)
        now[0] += 3
        assert traffic.transfers() == [Transfer("put", 1000, 600, 3.0)]
        pacing.received(30)
    assert traffic.transfers() == []
    assert traffic.counters() == Counters(up=600, down=30)


def test_the_oldest_transfer_comes_first() -> None:
    now = [0.0]
    traffic, pacer = Traffic(Environment(monotonic=lambda: now[0])), Throttle(SYSTEM).pacer(())
    with traffic.transfer("put", 1, pacer):
        now[0] = 5.0
        with traffic.transfer("get", 2, pacer):
            assert [one.operation for one in traffic.transfers()] == ["put", "get"]


def test_requests_answers_and_failures_are_counted() -> None:
    traffic = Traffic(SYSTEM)
    kinds: tuple[RequestClass, ...] = ("put", "put", "get", "list", "delete")
    for kind in kinds:
        traffic.request(Request(kind))
    traffic.answered("get", 100, 0.5)
    traffic.answered("get", 64 << 10, 0.25)
    traffic.answered("put", 100, 2.0)
    traffic.failed()
    counted = traffic.counters()
    assert (counted.put, counted.get, counted.list, counted.delete, counted.failed) == (2, 1, 1, 1, 1)
    assert (counted.reads, counted.read_seconds) == (2, 0.75)
    assert (counted.writes, counted.write_seconds) == (1, 2.0)


def test_large_transfers_tell_nothing_of_latency() -> None:
    traffic = Traffic(SYSTEM)
    traffic.answered("put", 8 << 20, 60.0)
    assert traffic.counters().writes == 0


def test_what_a_line_carried_while_a_call_ran_counts_for_all_calls_of_its_direction() -> None:
    traffic, pacer = Traffic(SYSTEM), Throttle(SYSTEM).pacer(())
    with traffic.transfer("get", 100, pacer) as first, pacing.paced(first):
        pacing.received(40)
        with (
            traffic.transfer("get", 1000, pacer) as second,
            traffic.transfer("put", 10, pacer) as third,
            pacing.paced(second),
        ):
            pacing.received(700)
            assert traffic.load("get") == 60 + 300
            assert traffic.load("put") == 10
        assert (first.carried, second.carried, third.carried) == (740, 1000, 10)
        assert traffic.carried("get", 100) == 740
        assert traffic.carried("get", 50) == 50, "no such call is under way"
    assert traffic.load("get") == 0
