"""Packs on clouds that fail, lie, hang or are gone."""

from __future__ import annotations

import math
import os
import random
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import combinations, product

import pytest
from msgspec.structs import replace

from hybrisfs.dispersal.errors import ChunkUnavailable, CloudsUnavailable
from hybrisfs.dispersal.pack import ChunkLocation
from hybrisfs.dispersal.ranking import TimerBounds, Timing
from hybrisfs.dispersal.seal import MAX_CHUNK
from hybrisfs.dispersal.share import parse_share_name, share_name, verify_share
from tests.dispersal.fakes import (
    BEHAVIOURS,
    CALM,
    CODES,
    HASTY,
    MARKER,
    TABLES,
    Behaviour,
    Cluster,
    FakeStore,
    encode,
    locate,
)
from tests.system.deadline import until

FAULTS = [behaviour for behaviour in BEHAVIOURS if behaviour not in ("ok", "full")]
PAIRS = list(product([fault for fault in FAULTS if fault != "hang"], repeat=2))
LIES = ("missing", "truncated", "corrupt", "altered", "swapped")
CHUNKS = [random.Random(number).randbytes(size) for number, size in enumerate((1, 700, 20_000, 3, 5000))]
MORE = [random.Random(-number).randbytes(3000) for number in range(1, 4)]


def timing_for(fault: Behaviour) -> Timing:
    return HASTY if fault == "hang" else CALM


def read_all(cluster: Cluster, locations: list[ChunkLocation]) -> list[bytes]:
    """Read each chunk by itself and all as a run; return them when both agree."""
    single = [cluster.engine.get_chunks([location], timeout=5)[0] for location in locations]
    assert cluster.engine.get_chunks(locations, timeout=5) == single
    return single


def check_all(cluster: Cluster, locations: list[ChunkLocation]) -> dict[str, str]:
    """Verify the shares of these chunks on their clouds; return what is wrong by the cloud's name."""
    found = {}
    for pack_id, placement in {(location.pack_id, location.placement) for location in locations}:
        for index, cloud in enumerate(placement):
            problem = cluster.engine.check_share(cloud, pack_id, index)
            if problem is not None:
                found[f"c{cloud}"] = problem
    return found


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize(("f", "k", "size"), CODES)
def test_any_f_clouds_may_misbehave(f: int, k: int, size: int, fault: Behaviour) -> None:
    """Everything reads back equal, the bad clouds are named and no other, writes go on, and it heals."""
    for count in range(1, f + 1):
        for bad in combinations(range(size), count):
            with Cluster(f, k, size, timing_for(fault)) as cluster:
                first, second = cluster.write(CHUNKS), cluster.write(MORE)
                cluster.behave(fault, *bad)
                assert read_all(cluster, first) == CHUNKS
                assert read_all(cluster, second) == MORE
                problems = check_all(cluster, first + second)
                holders = {f"c{cloud}" for location in first + second for cloud in location.placement}
                assert set(problems) == {f"c{cloud}" for cloud in bad} & holders
                assert cluster.bad() <= {f"c{cloud}" for cloud in bad}
                assert set(problems) <= set(cluster.states())
                if fault in LIES:
                    assert cluster.bad() == set(problems)
                    assert set(cluster.states().values()) <= {"lying"}
                third = cluster.write(CHUNKS[::-1])
                assert read_all(cluster, third) == CHUNKS[::-1]
                if fault not in LIES:
                    assert not set(bad) & {cloud for location in third for cloud in location.placement}


@pytest.mark.parametrize("faults", PAIRS, ids="+".join)
@pytest.mark.parametrize("k", [1, 2])
def test_two_clouds_may_misbehave_in_different_ways(k: int, faults: tuple[Behaviour, Behaviour]) -> None:
    with Cluster(2, k, 4 + k) as cluster:
        locations = cluster.write(CHUNKS)
        placement = locations[0].placement
        for cloud, fault in zip(placement[-2:], faults, strict=True):
            cluster.behave(fault, cloud)
        assert read_all(cluster, locations) == CHUNKS
        assert set(check_all(cluster, locations)) == {f"c{cloud}" for cloud in placement[-2:]}
        assert read_all(cluster, cluster.write(MORE)) == MORE
        assert set(cluster.states()) == {f"c{cloud}" for cloud in placement[-2:]}


def test_failures_are_explained_for_each_cloud_that_did_not_deliver() -> None:
    with Cluster(1, 2, 4) as cluster:
        (location,) = cluster.write([b"chunk"])
        first, second, third = location.placement
        cluster.behave("down", first)
        cluster.behave("truncated", second)
        with pytest.raises(ChunkUnavailable) as caught:
            cluster.engine.get_chunks([location], timeout=5)[0]
        assert caught.value.reasons == {
            f"c{first}": "connection refused",
            f"c{second}": "is damaged: ends early",
        }
        assert f"c{third}" not in str(caught.value)


@pytest.mark.parametrize("fault", FAULTS)
def test_clouds_that_recover_are_trusted_again(fault: Behaviour) -> None:
    with Cluster(1, 2, 4, timing_for(fault)) as cluster:
        cluster.engine.put_everywhere(MARKER.name, MARKER.data)
        locations = cluster.write(CHUNKS)
        bad = locations[0].placement[1]
        cluster.behave(fault, bad)
        for _ in range(3):
            check_all(cluster, locations)
        assert cluster.bad() == {f"c{bad}"}
        cluster.engine.probe(MARKER)
        assert cluster.bad() == {f"c{bad}"}
        cluster.stores[bad].released.set()
        cluster.behave("ok")

        def trusts_all() -> bool:
            cluster.clock.advance(3600)
            cluster.engine.probe(MARKER)
            return not cluster.bad()

        until(trusts_all, "calls that hung to end", 30.0)
        assert check_all(cluster, locations) == {}


@pytest.mark.parametrize("fault", [fault for fault in FAULTS if fault != "hang"])
@pytest.mark.parametrize(("f", "k", "size"), CODES)
def test_more_than_f_bad_clouds_are_survived(f: int, k: int, size: int, fault: Behaviour) -> None:
    with Cluster(f, k, size) as cluster:
        locations = cluster.write(CHUNKS)
        cluster.behave(fault)
        with pytest.raises(ChunkUnavailable) as caught:
            cluster.engine.get_chunks([locations[2]], timeout=5)[0]
        assert set(caught.value.reasons) >= {f"c{cloud}" for cloud in locations[2].placement[: f + 1]}
        assert all(caught.value.reasons.values())
        if fault not in LIES:
            with pytest.raises(CloudsUnavailable) as refused:
                cluster.write(MORE)
            assert len(refused.value.reasons) > f
        cluster.behave("ok")
        assert read_all(cluster, locations) == CHUNKS
        assert read_all(cluster, cluster.write(MORE)) == MORE


def test_hanging_clouds_hang_nobody() -> None:
    with Cluster(1, 1, 3, HASTY) as cluster:
        locations = cluster.write(CHUNKS)
        cluster.behave("hang")
        with pytest.raises(ChunkUnavailable, match="no answer within"):
            cluster.engine.get_chunks([locations[0]], timeout=0.1)[0]
        with pytest.raises(CloudsUnavailable, match="no answer within"):
            cluster.engine.get_object("x", 10, bytes)
        problem = cluster.engine.check_share(locations[0].placement[0], locations[0].pack_id, 0)
        assert problem is not None
        assert "no answer within" in problem
        assert set(cluster.states()) == {"c0", "c1", "c2"}
        for store in cluster.stores:
            store.behaviour = "ok"
            store.released.set()
        assert read_all(cluster, locations) == CHUNKS


def test_one_cloud_that_hangs_for_ever_does_not_use_up_the_threads_of_others() -> None:
    with Cluster(1, 1, 3, HASTY) as cluster:
        cluster.behave("hang", 0)
        for number in range(40):
            locations = cluster.write([number.to_bytes(2, "big")])
            assert 0 not in locations[0].placement
            assert read_all(cluster, locations) == [number.to_bytes(2, "big")]


def test_close_ends_calls_that_wait() -> None:
    cluster = Cluster(1, 1, 3, HASTY)
    locations = cluster.write(CHUNKS)
    cluster.behave("hang")
    caught: list[ChunkUnavailable | CloudsUnavailable] = []

    def read() -> None:
        try:
            cluster.engine.get_chunks([locations[0]], timeout=1000)[0]
        except ChunkUnavailable as error:
            caught.append(error)

    reading = threading.Thread(target=read)
    reading.start()
    assert cluster.stores[locations[0].placement[0]].hanging.acquire(timeout=10)
    cluster.engine.close()
    reading.join(10)
    assert not reading.is_alive()
    assert "being closed" in str(caught[0])
    with pytest.raises(CloudsUnavailable, match="being closed"):
        cluster.write(MORE)
    for store in cluster.stores:
        store.released.set()


def test_close_closes_stores_that_answer() -> None:
    cluster = Cluster(1, 1, 3, HASTY)
    cluster.behave("hang", 2)
    cluster.write(CHUNKS)
    cluster.engine.probe(MARKER, everyone=True)
    cluster.engine.close()
    assert [store.closed for store in cluster.stores] == [True, True, False]
    cluster.stores[2].released.set()


def test_a_stalled_call_makes_its_cloud_down() -> None:
    with Cluster(1, 1, 3, replace(HASTY, stall=0.0)) as cluster:
        locations = cluster.write(CHUNKS)
        first = cluster.asked_first(locations[0].placement)
        index = locations[0].placement.index(first)
        cluster.behave("hang", first)
        cluster.engine.get_chunks([locations[0]], timeout=5)[0]
        assert cluster.states()[f"c{first}"] == "down"
        reason = cluster.engine.health()[first].reason
        assert reason.startswith("a request has had no answer for")
        sent = len(cluster.stores[first].requests)
        cluster.engine.probe(MARKER, everyone=True)
        problem = cluster.engine.check_share(first, locations[0].pack_id, index)
        assert "a request has had no answer for" in (problem or "")
        assert len(cluster.stores[first].requests) == sent


def test_every_share_is_right_and_on_a_cloud_of_its_own() -> None:
    for f, k, size in CODES:
        with Cluster(f, k, size) as cluster:
            pack = encode(CHUNKS, k, f + k)
            placement = cluster.engine.put_pack(pack)
            assert len(set(placement)) == f + k
            for index, cloud in enumerate(placement):
                data = cluster.stores[cloud].objects[share_name(pack.pack_id, index)]
                assert verify_share(data, pack.pack_id, index, TABLES) == []
            stored = [name for store in cluster.stores for name in store.objects]
            assert len(stored) == f + k
            assert all(parse_share_name(name) is not None for name in stored)


def test_what_some_clouds_took_while_others_were_away_counts_afterwards() -> None:
    with Cluster(1, 1, 3) as cluster:
        cluster.behave("auth", 1, 2)
        pack, held = encode(CHUNKS, 1, 2), dict[int, int]()
        for _ in range(9):
            with pytest.raises(CloudsUnavailable):
                cluster.engine.put_pack(pack, held)
        cluster.behave("ok", 1, 2)
        assert 0 in cluster.engine.put_pack(pack, held)
        assert cluster.stores[0].requests.count("put") <= 2  # it may have been asked again before it answered


def test_small_files_read_back_cost_one_request() -> None:
    chunks = [number.to_bytes(2, "big") * 1000 for number in range(300)]
    with Cluster(1, 1, 3) as cluster:
        locations = cluster.write(chunks)
        for store in cluster.stores:
            store.requests.clear()
        assert cluster.engine.get_chunks(locations[::-1], timeout=5) == chunks[::-1]
        assert [request for store in cluster.stores for request in store.requests] == ["get_range"]


@pytest.mark.parametrize("k", [1, 2])
def test_a_run_is_read_although_every_cloud_has_another_of_its_chunks_wrong(k: int) -> None:
    with Cluster(1, k, 2 + k) as cluster:
        locations = cluster.write([bytes([number]) * 1000 for number in range(20)])
        for index, cloud in enumerate(locations[0].placement[:2]):
            store, name = cluster.stores[cloud], share_name(locations[0].pack_id, index)
            data = bytearray(store.objects[name])
            data[locations[5 * index].offset + 12] ^= 1
            store.objects[name] = bytes(data)
        chunks = cluster.engine.get_chunks(locations, timeout=5)
        assert chunks == [bytes([number]) * 1000 for number in range(20)]


def test_samples_read_the_header_and_one_fragment() -> None:
    with Cluster(1, 2, 4) as cluster:
        (location,) = cluster.write([random.Random(0).randbytes(100_000)])
        pack_id, cloud = location.pack_id, location.placement[1]
        store, name = cluster.stores[cloud], share_name(pack_id, 1)

        def sample(most: float = math.inf) -> str:
            found = cluster.engine.upkeep.sample_share(cloud, pack_id, 1, most=most)
            return "" if found is None else found.what

        assert sample() == ""
        assert store.requests[-3:] == ["get_range"] * 3
        whole = store.objects[name]
        store.objects[name] = whole[:-1] + bytes([whole[-1] ^ 1])
        assert sample(most=0) == "", "only the header is read"
        assert sample() == f"{name} is wrong: fragment of chunk {location.chunk_id.hex()[:16]} is altered"
        store.objects[name] = whole[:20] + bytes([whole[20] ^ 1]) + whole[21:]
        assert "is wrong: share belongs to pack" in sample(most=0)
        store.objects[name] = whole[:200]
        assert "is damaged" in sample()
        del store.objects[name]
        assert "is missing" in sample(most=0)
        assert cluster.states() == {f"c{cloud}": "lying"}
        store.objects[name] = whole
        assert sample() == ""
        assert cluster.states() == {f"c{cloud}": "lying"}, "a sample does not prove that the whole is right"
        assert cluster.engine.check_share(cloud, pack_id, 1) is None
        assert cluster.states() == {}


def test_long_fragments_are_sampled_by_chance_as_bytes_allow() -> None:
    with Cluster(1, 1, 3) as cluster:
        (location,) = cluster.write([random.Random(0).randbytes(100_000)])
        cloud, store = location.placement[0], cluster.stores[location.placement[0]]
        store.requests.clear()
        for _ in range(200):
            assert cluster.engine.upkeep.sample_share(cloud, location.pack_id, 0, most=25_000) is None
        fragments = len(store.requests) - 2 * 200
        assert 25 <= fragments <= 80, "one in four"


def test_full_clouds_are_read_but_not_written() -> None:
    with Cluster(1, 1, 3) as cluster:
        cluster.engine.put_everywhere(MARKER.name, MARKER.data)
        locations = cluster.write(CHUNKS)
        cluster.behave("full", 0)
        cluster.engine.put_everywhere("head", b"1")
        placements = {location.placement for _ in range(3) for location in cluster.write(MORE)}
        assert all(0 not in placement for placement in placements)
        assert read_all(cluster, locations) == CHUNKS
        assert cluster.states() == {"c0": "full"}
        cluster.behave("ok")
        cluster.clock.advance(100)
        cluster.engine.probe(MARKER)
        assert cluster.states() == {}


def test_a_rotten_share_is_named_with_its_cloud() -> None:
    with Cluster(1, 2, 4) as cluster:
        locations = cluster.write(CHUNKS)
        pack_id, placement = locations[0].pack_id, locations[0].placement
        first = cluster.asked_first(placement)
        index = placement.index(first)
        store, name = cluster.stores[first], share_name(pack_id, index)
        whole = bytearray(store.objects[name])
        whole[-9] ^= 1  # not the last byte, which may be padding that takes no part in decoding
        store.objects[name] = bytes(whole)
        assert cluster.engine.get_chunks([locations[-1]], timeout=5)[0] == CHUNKS[-1]
        chunk = locations[-1].chunk_id.hex()[:16]
        status = cluster.engine.health()[first]
        assert (status.state, status.reason) == (
            "lying",
            f"{name} holds an altered fragment of chunk {chunk}",
        )
        del store.objects[name]
        problem = cluster.engine.check_share(first, pack_id, index)
        assert problem == f"{name} is missing although it was acknowledged"
        assert set(cluster.states()) == {f"c{first}"}


def test_a_share_of_a_newer_format_is_a_lie_only_if_others_have_the_old() -> None:
    for behave_all in (False, True):
        with Cluster(1, 1, 3) as cluster:
            (location,) = cluster.write([b"chunk"])
            first = cluster.asked_first(location.placement)
            for index, cloud in enumerate(location.placement):
                if cloud == first or behave_all:
                    name = share_name(location.pack_id, index)
                    data = bytearray(cluster.stores[cloud].objects[name])
                    data[location.offset] = 3
                    cluster.stores[cloud].objects[name] = bytes(data)
            if behave_all:
                with pytest.raises(ChunkUnavailable, match="format 3"):
                    cluster.engine.get_chunks([location], timeout=5)[0]
                assert cluster.states() == {}
            else:
                assert cluster.engine.get_chunks([location], timeout=5)[0] == b"chunk"
                assert cluster.states() == {f"c{first}": "lying"}


def test_a_wrong_location_blames_nobody() -> None:
    with Cluster(1, 2, 4) as cluster:
        locations = cluster.write(CHUNKS)
        wrong = locations[1]._replace(chunk_id=locations[2].chunk_id)
        with pytest.raises(ChunkUnavailable, match="every share is as it was written"):
            cluster.engine.get_chunks([wrong], timeout=5)[0]
        assert cluster.states() == {}


def test_clouds_that_were_removed_are_done_without() -> None:
    with Cluster(1, 1, 3) as cluster:
        (location,) = cluster.write([b"chunk"])
        moved = location._replace(placement=(99, location.placement[0]))
        name = share_name(location.pack_id, 1)
        store = cluster.stores[location.placement[0]]
        store.objects[name] = store.objects[share_name(location.pack_id, 0)]
        assert cluster.engine.get_chunks([moved], timeout=5)[0] == b"chunk"
        with pytest.raises(ChunkUnavailable, match="cloud 99: is no longer configured"):
            cluster.engine.get_chunks([location._replace(placement=(98, 99))], timeout=5)[0]
        assert "no longer configured" in (cluster.engine.check_share(99, location.pack_id, 0) or "")


def test_few_packs_are_under_way_at_a_time() -> None:
    with Cluster(1, 1, 3, replace(CALM, close=0.02)) as cluster, ThreadPoolExecutor(8) as pool:
        cluster.behave("hang", 0, 1)
        cluster.behave("down", 2)
        packs = [encode([bytes([number])], 1, 2) for number in range(8)]
        waiting = [pool.submit(cluster.engine.put_pack, pack) for pack in packs]
        for store in cluster.stores[:2]:
            assert all(store.hanging.acquire(timeout=10) for _ in range(4))
        cluster.engine.close()
        assert all(isinstance(future.exception(timeout=10), CloudsUnavailable) for future in waiting)
        assert len({name.split(".")[0] for store in cluster.stores for name in store.names}) == 4


class _Meeting(FakeStore):
    """Ranges are read by two at a time."""

    both = threading.Barrier(2, timeout=20)

    def get_range(self, name: str, offset: int, length: int) -> bytes:
        self.both.wait()
        return super().get_range(name, offset, length)


def test_runs_of_one_pack_are_read_side_by_side() -> None:
    with Cluster(1, 1, 3, kind=_Meeting) as cluster:
        chunks = [bytes([number]) + os.urandom(MAX_CHUNK - 1) for number in range(8)]
        locations = cluster.write(chunks)
        assert cluster.engine.get_chunks(locations, timeout=30) == chunks


@pytest.mark.parametrize("k", [1, 2])
def test_reads_at_a_time_are_spread_over_the_clouds(k: int) -> None:
    with Cluster(1, k, k + 1) as cluster, ThreadPoolExecutor(4) as pool:
        (location,) = cluster.write([b"x" * 100_000])
        (small,) = cluster.write([b"y"])
        for cloud in range(k + 1):
            cluster.engine._clouds._ranking.observe(cloud, "get", 100_000, 1.0)
        flying, answering = threading.Semaphore(0), threading.Event()

        def hold() -> None:
            flying.release()
            assert answering.wait(10)

        for store in cluster.stores:
            store.requests.clear()
            store.before_get = hold
        reads = []
        for asked in [location] * 3 + [small]:
            reads.append(pool.submit(cluster.engine.get_chunks, [asked]))
            for _ in range(k):
                assert flying.acquire(timeout=10)
        answering.set()
        assert [read.result(10) for read in reads] == [[b"x" * 100_000]] * 3 + [[b"y"]]
        counts = sorted(store.requests.count("get_range") for store in cluster.stores)
        assert counts == ([2, 2] if k == 1 else [2, 3, 3])


def test_nothing_is_read_after_the_end() -> None:
    with Cluster(1, 1, 3) as cluster:
        locations = cluster.write([os.urandom(MAX_CHUNK) for _ in range(8)])
    with pytest.raises(ChunkUnavailable):
        cluster.engine.get_chunks(locations, timeout=30)


def test_several_packs_at_once() -> None:
    with Cluster(1, 2, 4) as cluster, ThreadPoolExecutor(8) as pool:
        packs = [encode([number.to_bytes(4, "big") * 500], 2, 3) for number in range(40)]
        placements = list(pool.map(cluster.engine.put_pack, packs))
        locations = [locate(pack, placement)[0] for pack, placement in zip(packs, placements, strict=True)]
        read = list(pool.map(lambda location: cluster.engine.get_chunks([location], timeout=10), locations))
        assert read == [[number.to_bytes(4, "big") * 500] for number in range(40)]


WRITES: dict[str, Callable[[Cluster], object]] = {
    "object": lambda cluster: cluster.engine.put_object("object", b"data", 2),
    "value": lambda cluster: cluster.engine.values.put("value", "kv/{}".format, [b"data"] * 2, copies=False),
    "pack": lambda cluster: cluster.write(CHUNKS),
}


@pytest.mark.parametrize(("what", "seconds"), [("object", 0.1), ("value", 0.1), ("pack", 0.2)])
def test_packs_are_given_more_time_before_another_cloud_gets_them_than_what_somebody_waits_for(
    what: str, seconds: float
) -> None:
    with Cluster(1, 1, 3, replace(CALM, timers=TimerBounds(shortest=0.1, longest=0.1))) as cluster:
        cluster.behave("hang", 0)
        WRITES[what](cluster)
        estimates = cluster.engine._clouds._ranking._estimates
        assert [one.overdue for (cloud, *_), one in estimates.items() if cloud == 0] == [seconds]


def test_no_cloud_is_accused_for_what_a_member_made_up() -> None:
    """Where a pack is said to be: nowhere; on a cloud too many; on one that has none of it."""
    for f, k in ((1, 1), (1, 2)):
        with Cluster(f, k, 4) as cluster:
            (true, *_) = cluster.write(CHUNKS)
            nowhere = true._replace(pack_id=bytes(32), owed=False)
            cut = true._replace(offset=1 << 40, owed=False)
            short = true._replace(sealed_length=0, owed=False)
            for location in (nowhere, cut, short):
                with pytest.raises(ChunkUnavailable):
                    cluster.engine.get_chunks([location], timeout=5)[0]
            wrong = true._replace(length=true.length + 1, owed=False)
            assert cluster.engine.get_chunks([wrong], timeout=5)[0] in CHUNKS
            assert set(cluster.states().values()) <= {"ok", "slow"}, (f, k)


def test_a_cloud_that_lacks_its_share_of_what_another_one_has_is_named() -> None:
    """... though only a member says that it holds one. One of the two is asked first: the quicker one."""
    named = 0
    for attempt in range(40):
        index = attempt % 2
        with Cluster(1, 1, 3) as cluster:
            location = cluster.write(CHUNKS)[0]
            lacking = location.placement[index]
            cluster.stores[lacking].delete(share_name(location.pack_id, index))
            assert cluster.engine.get_chunks([location._replace(owed=False)], timeout=5)[0] in CHUNKS
            assert cluster.states() in ({}, {f"c{lacking}": "lying"})
            named += bool(cluster.states())
        if named:
            break
    assert named


def test_shares_are_found_wherever_they_are() -> None:
    with Cluster(1, 2, 4) as cluster:
        location = cluster.write(CHUNKS)[0]
        found = cluster.engine.upkeep.find_shares(location.pack_id, location.n)
        assert found == location.placement
        lost = location.placement[1]
        cluster.stores[lost].delete(share_name(location.pack_id, 1))
        found = cluster.engine.upkeep.find_shares(location.pack_id, location.n)
        assert found[0] == location.placement[0] and found[1] not in range(4)
        assert cluster.engine.upkeep.find_shares(bytes(32), location.n) == ()
        assert cluster.states() == {}
        assert cluster.engine.get_chunks([location._replace(placement=found)], timeout=5)[0] in CHUNKS
