from __future__ import annotations

from itertools import permutations

import pytest

from hybrisfs.dispersal.ranking import Ranking, TimerBounds, size_class
from hybrisfs.environment import Environment
from tests.dispersal.fakes import FakeClock

BOUNDS = TimerBounds(shortest=0.1, longest=20.0, unknown_put=4.0, unknown_get=1.0, unknown_rate=1e6)
SMALL, MIDDLE, LARGE = 1000, 100_000, 8 << 20


def make() -> tuple[Ranking, FakeClock]:
    clock = FakeClock()
    return Ranking(BOUNDS, Environment(monotonic=clock)), clock


def test_size_classes() -> None:
    limits = (64 << 10, 256 << 10, 1 << 20, 4 << 20)
    assert [size_class(limit - 1) for limit in limits] == [0, 1, 2, 3]
    assert [size_class(limit) for limit in limits] == [1, 2, 3, 4]
    assert (size_class(0), size_class(1 << 40)) == (0, 4)


def test_fastest_first_per_operation_and_size() -> None:
    ranking, _ = make()
    for cloud, small, large in ((1, 0.1, 9.0), (2, 0.2, 5.0), (3, 0.3, 7.0)):
        ranking.observe(cloud, "get", SMALL, small)
        ranking.observe(cloud, "get", LARGE, large)
        ranking.observe(cloud, "put", SMALL, 1 - small)
    assert ranking.order([1, 2, 3], "get", SMALL, {}) == [1, 2, 3]
    assert ranking.order([1, 2, 3], "get", LARGE, {}) == [2, 3, 1]
    assert ranking.order([1, 2, 3], "put", SMALL, {}) == [3, 2, 1]
    assert ranking.order([3, 1], "get", SMALL, {}) == [1, 3]


def test_unknown_and_long_unseen_clouds_are_tried_first() -> None:
    ranking, clock = make()
    ranking.observe(1, "get", SMALL, 0.1)
    ranking.observe(2, "get", SMALL, 5.0)
    assert ranking.order([1, 2, 3], "get", SMALL, {}) == [3, 1, 2]
    clock.now += 500
    ranking.observe(1, "get", SMALL, 0.1)
    clock.now += 200
    assert ranking.order([1, 2], "get", SMALL, {}) == [2, 1]


def test_one_unlucky_request_is_not_taken_at_its_word() -> None:
    ranking, _ = make()
    for _ in range(10):
        ranking.observe(2, "get", SMALL, 0.2)
    ranking.observe(1, "get", SMALL, 1.0)  # a new connection, say; it takes 0.1 from now on
    asked = 0
    while ranking.order([1, 2], "get", SMALL, {})[0] == 1 and asked < 20:
        ranking.observe(1, "get", SMALL, 0.1)
        asked += 1
    assert asked == 20


def test_a_slow_cloud_is_tried_twice_and_then_left_alone() -> None:
    ranking, _ = make()
    for _ in range(10):
        ranking.observe(2, "get", SMALL, 0.1)
    ranking.observe(1, "get", SMALL, 1.0)
    assert ranking.order([1, 2], "get", SMALL, {}) == [1, 2]
    ranking.observe(1, "get", SMALL, 1.0)
    assert ranking.order([1, 2], "get", SMALL, {}) == [2, 1]


def test_a_cloud_that_was_waited_for_is_not_hoped_for() -> None:
    ranking, _ = make()
    for _ in range(10):
        ranking.observe(2, "get", SMALL, 0.1)
    ranking.waited(1, "get", SMALL, 0.5)
    assert ranking.order([1, 2], "get", SMALL, {}) == [2, 1]


def test_penalties_outweigh_speed() -> None:
    ranking, _ = make()
    for cloud in (1, 2, 3):
        ranking.observe(cloud, "get", SMALL, cloud / 10)
    assert ranking.order([1, 2, 3], "get", SMALL, {1: 3, 2: 1}) == [3, 2, 1]


def test_order_follows_a_change_of_speed() -> None:
    ranking, _ = make()
    ranking.observe(1, "put", SMALL, 0.1)
    ranking.observe(2, "put", SMALL, 0.2)
    for _ in range(10):
        ranking.observe(1, "put", SMALL, 1.0)
    assert ranking.order([1, 2], "put", SMALL, {}) == [2, 1]


def test_silence_counts_as_slowness_at_once() -> None:
    ranking, _ = make()
    ranking.observe(1, "put", SMALL, 0.1)
    ranking.observe(2, "put", SMALL, 0.2)
    ranking.waited(1, "put", SMALL, 3.0)
    ranking.waited(2, "put", SMALL, 0.1)
    ranking.waited(3, "put", SMALL, 1.0)
    assert ranking.order([1, 2, 3], "put", SMALL, {}) == [2, 3, 1]


def test_a_request_that_was_late_and_then_answered_costs_a_cloud_nothing_for_long() -> None:
    ranking, _ = make()
    for _ in range(3):
        ranking.observe(1, "put", SMALL, 0.1)
        ranking.observe(2, "put", SMALL, 0.2)
    ranking.waited(1, "put", SMALL, 0.25)
    assert ranking.order([1, 2], "put", SMALL, {}) == [2, 1]
    ranking.observe(1, "put", SMALL, 0.7)
    assert ranking.order([1, 2], "put", SMALL, {}) == [1, 2]


def test_of_clouds_that_were_not_seen_for_long_those_come_first_that_were_quick() -> None:
    ranking, clock = make()
    ranking.observe(1, "get", SMALL, 0.9)
    ranking.observe(2, "get", SMALL, 0.1)
    clock.now += 700
    assert ranking.order([1, 2], "get", SMALL, {}) == [2, 1]


def test_requests_of_one_class_are_compared_as_if_they_were_of_one_size() -> None:
    """A cloud that is asked for two things at a time carries more at a time, and is no slower for that."""
    ranking, _ = make()
    for _ in range(9):
        ranking.observe(1, "get", 2 * LARGE, 1.0)
        ranking.observe(2, "get", LARGE, 0.7)
    assert ranking.order([1, 2], "get", LARGE, {}) == [1, 2]


def test_round_trip_and_bandwidth_follow_from_requests_of_other_sizes() -> None:
    """Cloud 1 is near and narrow, cloud 2 far and wide. Nothing large has been asked for so far."""
    ranking, _ = make()
    for _ in range(9):
        for size in (SMALL, MIDDLE, 10 * MIDDLE):
            ranking.observe(1, "get", size, 0.01 + size / 5e6)
            ranking.observe(2, "get", size, 0.20 + size / 25e6)
    assert ranking.order([1, 2], "get", MIDDLE, {}) == [1, 2]
    assert ranking.order([1, 2], "get", LARGE, {}) == [2, 1]


def _two_lines(ranking: Ranking) -> None:
    """Cloud 1 has two and a half times the bandwidth of cloud 2."""
    for _ in range(9):
        for size in (SMALL, MIDDLE, LARGE):
            ranking.observe(1, "get", size, 0.02 + size / 20e6)
            ranking.observe(2, "get", size, 0.02 + size / 8e6)


def test_a_read_goes_where_it_will_be_over_first() -> None:
    ranking, _ = make()
    _two_lines(ranking)
    orders = [ranking.order([1, 2], "get", LARGE, {}, loads={1: n * LARGE}) for n in range(3)]
    assert orders == [[1, 2], [1, 2], [2, 1]]
    assert ranking.order([1, 2], "get", LARGE, {}, loads={1: 2 * LARGE, 2: LARGE}) == [1, 2]


def test_a_small_read_does_not_queue_behind_large_ones() -> None:
    ranking, _ = make()
    _two_lines(ranking)
    assert ranking.order([1, 2], "get", SMALL, {}, loads={1: LARGE}) == [2, 1]


def test_much_to_do_does_not_outweigh_a_penalty() -> None:
    ranking, _ = make()
    _two_lines(ranking)
    assert ranking.order([1, 2], "get", LARGE, {2: 1}, loads={1: 100 * LARGE}) == [1, 2]


def test_reads_at_a_time_are_spread_though_little_is_known() -> None:
    ranking, _ = make()
    assert ranking.order([1, 2], "get", LARGE, {}, loads={1: LARGE}) == [2, 1]
    assert ranking.order([1, 2], "get", LARGE, {}, loads={1: LARGE, 2: 2 * LARGE}) == [1, 2]
    ranking.observe(2, "get", LARGE, 1.0)
    assert ranking.order([1, 2], "get", LARGE, {}, loads={1: LARGE}) == [2, 1]
    ranking.observe(1, "get", LARGE, 1.0)
    assert ranking.order([1, 2], "get", LARGE, {}, loads={1: LARGE}) == [2, 1]


def test_a_cloud_not_seen_for_long_is_tried_by_one_at_a_time() -> None:
    ranking, clock = make()
    ranking.observe(1, "get", LARGE, 1.0)
    clock.now += 700
    ranking.observe(2, "get", LARGE, 1.0)
    assert ranking.order([1, 2], "get", LARGE, {}) == [1, 2]
    assert ranking.order([1, 2], "get", LARGE, {}, loads={1: LARGE}) == [2, 1]


def test_what_was_observed_long_ago_does_not_speak_for_or_against_a_cloud() -> None:
    ranking, clock = make()
    for _ in range(9):
        ranking.observe(1, "get", SMALL, 0.9)
    clock.now += 700
    for _ in range(2):
        ranking.observe(1, "get", SMALL, 0.1)
        ranking.observe(2, "get", SMALL, 0.3)
    assert ranking.order([1, 2], "get", SMALL, {}) == [1, 2]


@pytest.mark.parametrize("speeds", sorted(permutations((1, 2, 3, 4))))
def test_whatever_comes_first_the_two_quickest_clouds_get_most_of_it(speeds: tuple[int, ...]) -> None:
    """Objects of three sizes by turns, each to two of four clouds, and read from one of these."""
    ranking, _ = make()

    def seconds(cloud: int, size: int) -> float:
        return speeds[cloud] * (0.02 + size / 25e6)

    best = {cloud for cloud in range(4) if speeds[cloud] <= 2}
    placed = []
    for _ in range(20):
        for size in (MIDDLE, 10 * MIDDLE, LARGE):
            holders = ranking.order(range(4), "put", size, {})[:2]
            for cloud in holders:
                ranking.observe(cloud, "put", size, seconds(cloud, size))
            reader = ranking.order(holders, "get", size, {})[0]
            ranking.observe(reader, "get", size, seconds(reader, size))
            placed.append(set(holders) == best)
    assert sum(placed[-30:]) >= 27


def test_timer_covers_what_is_usual_for_the_slowest() -> None:
    ranking, _ = make()
    for _ in range(50):
        ranking.observe(1, "get", SMALL, 0.5)
        ranking.observe(2, "get", SMALL, 2.0)
    assert 0.5 <= ranking.timer({1: SMALL}, "get") < 0.6
    assert 2.0 <= ranking.timer({1: SMALL, 2: SMALL}, "get") < 2.2
    steady = ranking.timer({1: SMALL}, "get")
    for seconds in (0.2, 0.8) * 10:
        ranking.observe(1, "get", SMALL, seconds)
    assert ranking.timer({1: SMALL}, "get") > steady + 0.5


def test_timer_keeps_to_its_bounds() -> None:
    ranking, _ = make()
    assert ranking.timer({1: 0}, "put") == 4.0
    assert ranking.timer({1: 0}, "get") == 1.0
    assert ranking.timer({1: 2_000_000}, "get") == 3.0
    assert ranking.timer({1: 1 << 30}, "get") == 20.0
    assert ranking.timer({}, "get") == 0.1
    ranking.observe(1, "get", 0, 0.0001)
    assert ranking.timer({1: 0}, "get") == 0.1


def test_an_unknown_class_is_derived_from_other_sizes_as_others_show() -> None:
    """Large requests take others ten times as long as small ones; so they will take this one."""
    ranking, _ = make()
    for cloud, small in ((1, 0.1), (2, 0.3)):
        for _ in range(9):
            ranking.observe(cloud, "get", SMALL, small)
            ranking.observe(cloud, "get", LARGE, 10 * small)
    for _ in range(9):
        ranking.observe(3, "get", SMALL, 0.2)
    assert ranking.order([1, 2, 3], "get", LARGE, {}) == [1, 3, 2]
    assert ranking.timer({3: LARGE}, "get") == pytest.approx(3 * 2.0)


def test_an_unknown_class_is_derived_from_the_other_operation() -> None:
    ranking, _ = make()
    for cloud, put in ((1, 0.1), (2, 0.4), (3, 0.2)):
        for _ in range(9):
            ranking.observe(cloud, "put", SMALL, put)
            if cloud != 3:
                ranking.observe(cloud, "get", SMALL, put / 2)
    assert ranking.order([1, 2, 3], "get", SMALL, {}) == [1, 3, 2]
    assert ranking.timer({3: SMALL}, "get") == pytest.approx(3 * 0.1)


def test_without_others_to_compare_with_the_bytes_count() -> None:
    ranking, _ = make()
    ranking.observe(1, "get", SMALL, 0.5)
    assert ranking.timer({1: MIDDLE}, "get") == pytest.approx(3 * (0.5 + (64 << 10) / 1e6))
    ranking.observe(2, "get", LARGE, 5.0)
    assert ranking.timer({2: SMALL}, "get") == pytest.approx(3 * 5.0)


def test_a_slow_cloud_is_not_asked_for_each_size_anew() -> None:
    ranking, _ = make()
    for _ in range(9):
        ranking.observe(1, "get", SMALL, 2.0)
        ranking.observe(2, "get", SMALL, 0.1)
        ranking.observe(2, "get", LARGE, 0.9)
    assert ranking.order([1, 2], "get", LARGE, {}) == [2, 1]


def test_nothing_is_derived_from_what_is_out_of_date() -> None:
    ranking, clock = make()
    ranking.observe(1, "get", SMALL, 9.0)
    clock.now += 700
    ranking.observe(2, "get", LARGE, 0.1)
    assert ranking.order([1, 2], "get", LARGE, {}) == [1, 2]
    assert ranking.timer({1: LARGE}, "get") == 1.0 + LARGE / 1e6


def test_of_clouds_that_take_it_as_quickly_those_get_it_that_return_it_quickly() -> None:
    ranking, _ = make()
    for cloud, put, get in ((1, 1.0, 4.0), (2, 1.1, 0.5), (3, 3.0, 0.1)):
        for _ in range(9):
            ranking.observe(cloud, "put", LARGE, put)
            ranking.observe(cloud, "get", LARGE, get)
    assert ranking.order([1, 2, 3], "put", LARGE, {}) == [2, 1, 3]
