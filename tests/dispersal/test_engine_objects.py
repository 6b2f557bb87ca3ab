"""Objects that every cloud holds as they are: replicated, verified, and asked for to see how a cloud is."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from msgspec.structs import replace

from hybrisfs.dispersal.errors import CloudsUnavailable, EarlierVersionError, IntegrityError, ObjectMissing
from hybrisfs.dispersal.ranking import TimerBounds, Timing
from tests.dispersal.fakes import CODES, HASTY, MARKER, Cluster, SteppingClock

PATIENCE = 30.0
PUTS = 24  # more than run at a time


def parse(data: bytes) -> bytes:
    if not data.startswith(b"good"):
        raise IntegrityError("not good")
    return data[4:]


@pytest.mark.parametrize(("f", "k", "size"), CODES)
def test_small_objects_cost_no_more_puts_than_copies(f: int, k: int, size: int) -> None:
    with Cluster(f, k, size) as cluster:
        for number in range(5):
            placement = cluster.engine.put_object(f"meta/{number}", b"good data", f + k)
            assert len(set(placement)) == f + k
        assert sum(store.requests.count("put") for store in cluster.stores) == 5 * (f + k)


def test_objects_are_replicated_and_verified() -> None:
    with Cluster(1, 1, 3) as cluster:
        placement = cluster.engine.put_object("meta/1", b"good data", 2)
        assert len(set(placement)) == 2
        first = cluster.asked_first(placement)
        cluster.stores[first].objects["meta/1"] = b"bad data"
        assert cluster.engine.get_object("meta/1", 100, parse, placement) == b" data"
        assert cluster.states() == {f"c{first}": "lying"}
        cluster.stores[first].objects["meta/1"] = b"good data"
        assert cluster.engine.check_object(first, "meta/1", 100, parse) is None
        assert cluster.states() == {}


def test_objects_above_their_limit_and_missing_ones_are_refused() -> None:
    with Cluster(1, 1, 3) as cluster:
        cluster.engine.put_everywhere("meta/1", b"good" + bytes(1000))
        with pytest.raises(CloudsUnavailable, match="larger than 100 bytes"):
            cluster.engine.get_object("meta/1", 100, parse)
        assert cluster.states() == {}
        with pytest.raises(CloudsUnavailable, match="larger than 100 bytes"):
            cluster.engine.get_object("meta/1", 100, parse, [0])
        assert cluster.states() == {"c0": "lying"}


def test_a_cloud_that_is_late_with_the_last_version_is_no_liar() -> None:
    def verify(data: bytes) -> bytes:
        if data == b"old":
            raise EarlierVersionError("an earlier version")
        return data

    with Cluster(1, 1, 3) as cluster:
        cluster.engine.put_everywhere("head", b"new")
        late = cluster.asked_first(range(3))
        cluster.stores[late].objects["head"] = b"old"
        assert cluster.engine.get_object("head", 100, verify) == b"new"
        assert "get" in cluster.stores[late].requests
        assert cluster.states() == {}


def test_absence_needs_the_word_of_all_but_f() -> None:
    with Cluster(1, 1, 3) as cluster:
        with pytest.raises(ObjectMissing):
            cluster.engine.get_object("meta/1", 100, parse)
        cluster.behave("down", 0)
        with pytest.raises(ObjectMissing):
            cluster.engine.get_object("meta/1", 100, parse)
        cluster.behave("down", 1)
        with pytest.raises(CloudsUnavailable) as caught:
            cluster.engine.get_object("meta/1", 100, parse)
        assert not isinstance(caught.value, ObjectMissing)


@pytest.mark.parametrize("hanging", range(3))
def test_a_cloud_that_hangs_does_not_hold_up_who_learns_that_there_is_nothing(hanging: int) -> None:
    """The deadline is so far away that it would be noticed."""
    with Cluster(1, 1, 3, replace(HASTY, get=3600.0)) as cluster:
        cluster.behave("hang", hanging)
        with pytest.raises(ObjectMissing):
            cluster.engine.get_object("meta/1", 100, parse)
        assert cluster.bad() == set()


def test_missing_objects_incriminate_only_clouds_that_acknowledged_them() -> None:
    with Cluster(1, 1, 3) as cluster:
        cluster.stores[2].objects["meta/1"] = b"good data"
        assert cluster.engine.get_object("meta/1", 100, parse) == b" data"
        assert cluster.states() == {}
        for _ in range(3):
            assert cluster.engine.get_object("meta/1", 100, parse, [0]) == b" data"
        assert cluster.states() == {"c0": "lying"}


def test_clouds_that_acknowledged_an_object_are_asked_first() -> None:
    with Cluster(1, 1, 3) as cluster:
        cluster.stores[2].objects["meta/1"] = b"good data"
        assert cluster.engine.get_object("meta/1", 100, parse, [2]) == b" data"
        assert not cluster.stores[0].requests
        assert not cluster.stores[1].requests


def test_put_everywhere_reaches_all_and_needs_f_plus_one() -> None:
    with Cluster(1, 1, 3, replace(HASTY, put=1000.0)) as cluster:
        cluster.engine.put_everywhere("head", b"1")
        cluster.behave("down", 2)
        assert sorted(cluster.engine.put_everywhere("head", b"2")) == [0, 1]
        assert [store.objects["head"] for store in cluster.stores] == [b"2", b"2", b"1"]
        cluster.behave("hang", 2)
        assert sorted(cluster.engine.put_everywhere("head", b"3")) == [0, 1]
    with Cluster(1, 1, 3) as cluster:
        cluster.behave("down", 1, 2)
        with pytest.raises(CloudsUnavailable, match="c1: connection refused"):
            cluster.engine.put_everywhere("head", b"4")


def test_who_has_acknowledged_an_object_that_all_are_to_hold() -> None:
    """`put_everywhere` does not wait for a slow cloud."""
    with Cluster(1, 1, 3, replace(HASTY, put=1000.0)) as cluster:
        assert cluster.engine.upkeep.holders("head") == frozenset()
        late = cluster.stores[2]
        cluster.behave("hang", 2)
        cluster.engine.put_everywhere("head", b"good")
        assert late.hanging.acquire(timeout=PATIENCE)
        assert cluster.engine.upkeep.holders("head") == {0, 1}
        late.released.set()
        assert sorted(cluster.engine.put_object("head", b"good", 3)) == [0, 1, 2]  # after that which was late
        assert cluster.engine.upkeep.holders("head") == {0, 1, 2}
        cluster.behave("full", 2)
        cluster.engine.put_everywhere("head", b"later")
        assert cluster.engine.upkeep.holders("head") == {0, 1, 2}  # it has to have the earlier one


def test_a_cloud_is_accused_of_the_loss_of_what_it_acknowledged_only() -> None:
    with Cluster(1, 1, 3, replace(HASTY, put=1000.0)) as cluster:
        cluster.engine.put_everywhere("head", b"good", {0, 1})
        for acknowledged, state in ((False, set[str]()), (True, {"lying"})):
            found = cluster.engine.upkeep.look_at(2, "head", 100, parse, acknowledged=acknowledged)
            assert found is not None and found.kind == "missing"
            assert ("although it was acknowledged" in found.what) == acknowledged
            assert set(cluster.states().values()) == state


def test_what_is_put_on_some_clouds_reaches_no_other() -> None:
    with Cluster(1, 1, 3, replace(HASTY, put=1000.0)) as cluster:
        assert sorted(cluster.engine.put_everywhere("head", b"1", {0, 2})) == [0, 2]
        assert "head" not in cluster.stores[1].objects
        for too_few in ({1}, set[int]()):
            with pytest.raises(CloudsUnavailable):
                cluster.engine.put_everywhere("head", b"2", too_few)


def test_a_put_never_overtakes_an_older_one_of_the_same_object_at_its_cloud() -> None:
    """Otherwise a late old head would replace a new one, and an honest cloud would look like a liar."""
    with Cluster(1, 1, 3, replace(HASTY, put=0.1)) as cluster:
        cluster.behave("hang", 0)
        cluster.engine.put_everywhere("head", b"old")
        assert cluster.stores[0].hanging.acquire(timeout=10)
        cluster.behave("ok", 0)
        with pytest.raises(CloudsUnavailable, match="c0: no answer"):
            cluster.engine.put_object("head", b"new", 3)
        cluster.engine.put_everywhere("head", b"newer")
        cluster.engine.put_everywhere("head", b"newest")
        cluster.stores[0].released.set()
        assert cluster.engine.put_object("head", b"last", 3)
        assert [store.objects["head"] for store in cluster.stores] == [b"last"] * 3
        assert cluster.stores[0].requests.count("put") <= 3  # nobody waited for "newer"


def test_requests_that_nobody_waits_for_any_more_are_not_sent() -> None:
    with Cluster(1, 1, 3, HASTY) as cluster:
        cluster.behave("hang", 0)
        for _ in range(12):
            assert "no answer" in (cluster.engine.check_object(0, "x", 10, bytes) or "")
        store = cluster.stores[0]
        store.behaviour = "down"
        sent = len(store.requests)
        assert sent < 12
        store.released.set()
        while "no answer" in (cluster.engine.check_object(0, "x", 10, bytes) or ""):
            pass
        assert len(store.requests) <= sent + 1


def test_an_answer_shows_that_a_cloud_is_up_even_if_it_has_nothing() -> None:
    with Cluster(1, 1, 3) as cluster:
        cluster.behave("down", 0)
        for _ in range(3):
            cluster.engine.check_object(0, "x", 10, bytes)
        assert cluster.states() == {"c0": "down"}
        cluster.behave("ok")
        with pytest.raises(ObjectMissing):
            cluster.engine.get_object("x", 10, bytes)
        assert cluster.states() == {}


def test_a_dead_cloud_costs_nothing_but_a_probe_now_and_then() -> None:
    with Cluster(1, 1, 3) as cluster:
        cluster.engine.put_object(MARKER.name, MARKER.data, 3)  # which waits for all three
        (location,) = cluster.write([b"chunk"])
        cluster.behave("down", 0)
        for _ in range(3):
            cluster.engine.check_object(0, MARKER.name, 100, bytes)
        dead = cluster.stores[0]
        dead.requests.clear()
        for number in range(10):
            cluster.engine.put_object(f"object-{number}", b"data", 2)
            cluster.write([b"chunk %d" % number])
            assert cluster.engine.get_object(f"object-{number}", 10, bytes) == b"data"
            assert cluster.engine.get_chunks([location], timeout=10)[0] == b"chunk"
        cluster.engine.probe(MARKER)  # too early
        assert dead.requests == []
        for count in (1, 2, 3):
            cluster.clock.advance(60)
            cluster.engine.probe(MARKER)
            cluster.engine.probe(MARKER)
            assert len(dead.requests) == count
        cluster.behave("ok")
        cluster.clock.advance(60)
        cluster.engine.probe(MARKER)
        assert cluster.states() == {}


def test_probe_of_everyone_finds_clouds_that_nothing_else_is_asked_of() -> None:
    with Cluster(1, 1, 3) as cluster:
        cluster.engine.put_everywhere(MARKER.name, MARKER.data)
        cluster.behave("missing", 0)
        cluster.stores[1].objects[MARKER.name] = b"marker of that volume"
        cluster.engine.probe(MARKER)
        assert cluster.states() == {}
        cluster.engine.probe(MARKER, everyone=True)
        assert cluster.states() == {"c0": "lying", "c1": "lying"}
        reasons = [status.reason for status in cluster.engine.health()]
        assert "volume/marker is missing although it was acknowledged" in reasons[0]
        assert "not this volume's marker" in reasons[1]


def test_puts_that_wait_behind_a_cloud_that_begins_to_hang_need_no_patience() -> None:
    clock = SteppingClock()
    timers = TimerBounds(shortest=0.01, longest=0.01, unknown_put=0.01, start_patience=1e9)
    timing = Timing(put=1e9, stall=1e9, close=0.02, timers=timers)
    with Cluster(1, 1, 3, timing, clock=clock) as cluster, ThreadPoolExecutor(PUTS) as pool:
        stored = threading.Semaphore(0)
        for store in cluster.stores:
            store.after_put = stored.release
        cluster.behave("hang", 0)
        puts = [pool.submit(cluster.engine.put_object, f"object-{n}", b"data", 2) for n in range(PUTS)]
        for _ in puts:  # each has asked the first cloud before it asked the second
            assert stored.acquire(timeout=PATIENCE)
        clock.step = 0.001
        assert [sorted(put.result(PATIENCE)) for put in puts] == [[1, 2]] * PUTS
        clock.step = 0.0
