"""Histories of concurrent operations on one engine, up to f of whose clouds are the adversary's.

What must hold whatever f clouds do: every operation that is begun ends in time, with what was written or
with success; nothing wrong is returned; nobody reads beyond a bound; honest clouds are not accused, and a
cloud whose lie was seen is.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from random import Random

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from backends.errors import AuthError, FullError, StoreError, ThrottledError, TransientError
from hybrisfs.dispersal.engine import Cloud, Engine
from hybrisfs.dispersal.errors import EarlierVersionError
from hybrisfs.dispersal.pack import EncodedPack
from hybrisfs.dispersal.probe import Marker
from hybrisfs.dispersal.ranking import TimerBounds, Timing
from hybrisfs.dispersal.share import MAX_SHARE
from hybrisfs.environment import SYSTEM
from tests.adversary import ALL, READS, WRITES, Fault, FaultyStore, Kind
from tests.dispersal.fakes import CALM, SEALER, TABLES, FakeStore, encode, locate

CODES = [(1, 1), (1, 2), (2, 1), (1, 3)]  # f, k
PATIENCE = 30.0  # seconds; whatever takes longer hangs
LIMIT = 10_000
MARKER = Marker("volume", b"marker of this volume")

# Waits are real but short: for a stalled cloud they are the timers', never the deadlines.
TIMING = Timing(
    put=PATIENCE,
    get=PATIENCE,
    stall=0.3,
    close=0.02,
    timers=TimerBounds(
        shortest=0.02, longest=0.05, unknown_put=0.03, unknown_get=0.03, unknown_rate=1e12, first_pause=0.001
    ),
)


def unreachable(url: str, operation: str, name: str) -> StoreError:
    return TransientError(url, operation, name, "connection reset")


def refused(url: str, operation: str, name: str) -> StoreError:
    return AuthError(url, operation, name, "access denied")


def full(url: str, operation: str, name: str) -> StoreError:
    return FullError(url, operation, name, "no space left")


def throttled(url: str, operation: str, name: str) -> StoreError:
    return ThrottledError(url, operation, name, "slow down", retry_after=0.01)


KINDS: list[Kind] = [
    "lose",
    "corrupt",
    "truncate",
    "pad",
    "swap",
    "inflate",
    "old",
    "late",
    "vanish",
    "mislist",
    "stall",
    "fail",
]
ERRORS: list[Callable[[str, str, str], StoreError]] = [unreachable, refused, full, throttled]

faults = st.builds(
    Fault,
    kind=st.sampled_from(KINDS),
    rate=st.sampled_from([0.1, 0.5, 1.0]),
    operations=st.sampled_from([ALL, READS, WRITES]),
    prefix=st.sampled_from(["", "packs/", "meta/"]),
    until=st.builds(threading.Event),
    error=st.sampled_from(ERRORS),
)


@dataclass(frozen=True)
class History:
    """The clouds, who of them is bad and how, and what is done by how many at a time."""

    f: int
    k: int
    seed: int
    bad: tuple[int, ...]
    faults: tuple[tuple[Fault, ...], ...]
    workers: int
    steps: int


@st.composite
def histories(draw: st.DrawFn) -> History:
    f, k = draw(st.sampled_from(CODES))
    size = 2 * f + k
    bad = draw(st.lists(st.integers(0, size - 1), unique=True, min_size=1, max_size=f))
    chosen = [tuple(draw(st.lists(faults, min_size=1, max_size=3))) for _ in bad]
    return History(
        f,
        k,
        draw(st.integers(0, 2**32)),
        tuple(bad),
        tuple(chosen),
        draw(st.integers(1, 4)),
        draw(st.integers(2, 5)),
    )


class Run:
    """One history over fresh clouds."""

    def __init__(self, history: History, timing: Timing = TIMING) -> None:
        self.history = history
        size = 2 * history.f + history.k
        self.stores = [FaultyStore(FakeStore(number), history.seed + number) for number in range(size)]
        clouds = [Cloud(number, f"c{number}", store) for number, store in enumerate(self.stores)]
        self.engine = Engine(clouds, history.f, SEALER, TABLES, timing=timing, environment=SYSTEM)
        for number, several in zip(history.bad, history.faults, strict=True):
            self.stores[number].faults = several
        self.written: list[tuple[EncodedPack, tuple[int, ...]]] = []

    def close(self) -> None:
        for several in self.history.faults:
            for fault in several:
                fault.until.set()
        self.engine.close()

    def work(self, worker: int) -> None:
        """What one caller does: packs, objects written once, and one that is overwritten, each read back."""
        history, engine = self.history, self.engine
        random = Random(f"{history.seed}/{worker}")
        for step in range(history.steps):
            chunks = [random.randbytes(random.randint(1, 3000)) for _ in range(random.randint(1, 4))]
            pack = encode(chunks, history.k, history.f + history.k)
            placement = engine.put_pack(pack)
            assert len(set(placement)) == pack.n
            self.written.append((pack, placement))
            assert engine.get_chunks(locate(pack, placement), timeout=PATIENCE) == chunks

            name, data = f"meta/{worker}/{step}", random.randbytes(random.randint(1, 2000))
            holders = engine.put_object(name, data, history.f + history.k)
            assert engine.get_object(name, LIMIT, exactly(data), holders) == data

            version = b"%d of %d" % (step, worker)
            engine.put_everywhere(f"meta/head{worker}", version)
            former = [b"%d of %d" % (one, worker) for one in range(step)]
            assert engine.get_object(f"meta/head{worker}", LIMIT, exactly(version, former)) == version

            old, where = random.choice(self.written)
            location = random.choice(locate(old, where))
            assert SEALER.chunk_id(engine.get_chunks([location], timeout=PATIENCE)[0]) == location.chunk_id

    def honest(self) -> set[str]:
        return {f"c{number}" for number in range(len(self.stores)) if number not in self.history.bad}

    def accused(self) -> dict[str, str]:
        return {one.name: one.state for one in self.engine.health() if one.state not in ("ok", "slow")}


def exactly(data: bytes, former: Collection[bytes] = ()) -> Callable[[bytes], bytes]:
    """Accepts *data* only; what it was before may still be at clouds that are slow."""

    def verify(found: bytes) -> bytes:
        if found in former:
            raise EarlierVersionError("an earlier version")
        if found != data:
            raise ValueError("not what was written")
        return found

    return verify


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(histories())
def test_up_to_f_adversaries_change_nothing(history: History) -> None:
    run = Run(history)
    try:
        with ThreadPoolExecutor(history.workers) as pool:
            for done in [pool.submit(run.work, worker) for worker in range(history.workers)]:
                done.result(timeout=2 * PATIENCE)
        for store in run.stores:
            assert all(call.size <= MAX_SHARE for call in store.calls)
        assert not set(run.accused()) & run.honest(), run.accused()
    finally:
        run.close()


SEEN: set[Kind | None] = {"lose", "corrupt", "vanish"}  # by whoever reads any part of an object
LIES: list[Kind] = ["lose", "corrupt", "truncate", "pad", "swap", "inflate", "vanish"]


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.sampled_from(CODES),
    st.sampled_from(LIES),
    st.sampled_from([0.3, 1.0]),
    st.integers(0, 2**32),
    st.data(),
)
def test_a_lie_that_is_seen_names_the_liar(
    code: tuple[int, int], kind: Kind, rate: float, seed: int, data: st.DataObject
) -> None:
    """Every share is looked at: who has one that is wrong is lying, and nobody else."""
    f, k = code
    bad = data.draw(st.integers(0, 2 * f + k - 1))
    run = Run(History(f, k, seed, (bad,), ((Fault(kind, rate, READS),),), 2, 3), CALM)
    try:
        with ThreadPoolExecutor(2) as pool:
            list(pool.map(run.work, range(2)))
        if any(call.operation == "get_range" and call.fault in SEEN for call in run.stores[bad].calls):
            assert run.accused() == {f"c{bad}": "lying"}
        wrong = {
            f"c{cloud}"
            for pack, placement in run.written
            for index, cloud in enumerate(placement)
            if run.engine.check_share(cloud, pack.pack_id, index) is not None
        }
        assert wrong <= {f"c{bad}"}
        assert set(run.accused()) <= {f"c{bad}"}
        last = [call.fault for call in run.stores[bad].calls if call.name.startswith("packs/")][-1:]
        if wrong and last == [kind]:
            assert run.accused() == {f"c{bad}": "lying"}
    finally:
        run.close()


@settings(max_examples=25, deadline=None)
@given(st.sampled_from(CODES), st.sampled_from(LIES), st.integers(0, 2**32))
def test_one_that_behaves_again_is_forgiven(code: tuple[int, int], kind: Kind, seed: int) -> None:
    f, k = code
    run = Run(History(f, k, seed, (0,), ((Fault(kind, 0.5, READS),),), 1, 3))
    try:
        run.work(0)
        run.stores[0].faults = []
        for pack, placement in run.written:
            for index, cloud in enumerate(placement):
                found = run.engine.upkeep.look_at_share(cloud, pack.pack_id, index)
                if found is not None:
                    assert found.kind == "missing"
                    assert kind == "vanish"
                    assert run.engine.upkeep.put(cloud, found.what.split()[0], pack.shares[index]) is None
                    assert run.engine.upkeep.look_at_share(cloud, pack.pack_id, index) is None
        for one in run.engine.upkeep.wrong_objects():
            assert one.name.startswith("meta/")
            run.engine.upkeep.excuse(one.cloud, one.name)
        assert run.accused() == {}
    finally:
        run.close()
