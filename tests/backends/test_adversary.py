"""The faulty store used by other tests: it does what it says, and the same again for the same seed."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from backends.errors import CorruptError, MissingError, OversizeError, TransientError
from backends.file import FileStore
from backends.store import Store
from tests.adversary import READS, WRITES, Fault, FaultyStore
from tests.backends.conformance import Conformance

DATA = bytes(range(100))


@pytest.fixture
def inner(tmp_path: Path) -> Store:
    store = FileStore((tmp_path / "cloud").as_uri())
    store.initialise()
    return store


class TestHonest(Conformance):
    """Without faults it is an ordinary store."""

    @pytest.fixture
    def store(self, inner: Store) -> Store:
        return FaultyStore(inner, seed=1)


def test_lost_writes_are_acknowledged(inner: Store) -> None:
    store = FaultyStore(inner, 1, [Fault("lose", operations=WRITES)])
    store.put("a", DATA)
    assert store.put_if_absent("b", DATA) is True
    assert inner.list("").names == ()


def test_lost_reads_deny_what_is_there(inner: Store) -> None:
    inner.put("a", DATA)
    store = FaultyStore(inner, 1, [Fault("lose", operations=READS)])
    with pytest.raises(MissingError):
        store.get("a", limit=100)


def test_corruption_flips_exactly_one_bit(inner: Store) -> None:
    inner.put("a", DATA)
    store = FaultyStore(inner, 1, [Fault("corrupt")])
    for answer in (store.get("a", limit=100), store.get_range("a", 0, 100)):
        flipped = int.from_bytes(answer) ^ int.from_bytes(DATA)
        assert flipped.bit_count() == 1


def test_truncation(inner: Store) -> None:
    inner.put("a", DATA)
    store = FaultyStore(inner, 1, [Fault("truncate")])
    answer = store.get("a", limit=100)
    assert answer == DATA[: len(answer)]
    assert len(answer) < 100
    with pytest.raises(CorruptError):
        store.get_range("a", 0, 100)


def test_padding_meets_the_size_guard(inner: Store) -> None:
    inner.put("a", DATA)
    store = FaultyStore(inner, 1, [Fault("pad")])
    assert store.get("a", limit=1000).startswith(DATA)
    assert len(store.get("a", limit=1000)) > 100
    with pytest.raises(OversizeError):
        store.get("a", limit=100)


def test_swapping_returns_another_object_of_the_folder(inner: Store) -> None:
    inner.put("p/a", DATA)
    inner.put("p/b", DATA[::-1])
    inner.put("q/c", b"far")
    store = FaultyStore(inner, 1, [Fault("swap", prefix="p/")])
    assert store.get("p/a", limit=100) == DATA[::-1]
    assert store.get_range("p/b", 1, 3) == DATA[1:4]
    assert store.get("q/c", limit=100) == b"far"


def test_stalling_waits_for_the_event(inner: Store) -> None:
    inner.put("a", DATA)
    until = threading.Event()
    store = FaultyStore(inner, 1, [Fault("stall", until=until)])
    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(store.get, "a", limit=100)
        assert not answer.done()
        until.set()
        assert answer.result() == DATA


def test_failing(inner: Store) -> None:
    store = FaultyStore(inner, 1, [Fault("fail", operations=frozenset({"put"}))])
    with pytest.raises(TransientError):
        store.put("a", DATA)
    store.list("")


def struck(inner: Store, seed: int, workers: int) -> set[tuple[str, str, str | None]]:
    store = FaultyStore(inner, seed, [Fault("fail", 0.3), Fault("lose", 0.3, WRITES)])

    def put(number: int) -> None:
        for _ in range(3):
            try:
                store.put(f"n{number}", DATA)
            except TransientError:
                continue

    with ThreadPoolExecutor(workers) as pool:
        list(pool.map(put, range(20)))
    seen: dict[str, list[str | None]] = {}
    for call in store.calls:
        seen.setdefault(call.name, []).append(call.fault)
    return {(name, str(place), fault) for name, faults in seen.items() for place, fault in enumerate(faults)}


def test_a_seed_repeats_whatever_the_threads_do(inner: Store) -> None:
    assert struck(inner, 7, 1) == struck(inner, 7, 8)
    assert struck(inner, 7, 1) != struck(inner, 8, 1)


def test_the_rate_is_kept(inner: Store) -> None:
    faults = [fault for _, _, fault in struck(inner, 3, 1)]
    assert 0.15 < faults.count("fail") / len(faults) < 0.45


def test_unknown_faults_are_refused() -> None:
    with pytest.raises(ValueError, match="no such fault"):
        Fault("explode")  # type: ignore[arg-type]


def test_inflated_objects_meet_the_size_guard_whatever_it_is(inner: Store) -> None:
    inner.put("a", DATA)
    store = FaultyStore(inner, 1, [Fault("inflate")])
    with pytest.raises(OversizeError):
        store.get("a", limit=1 << 30)
    assert store.get_range("a", 10, 20) == DATA[10:30]


def test_earlier_versions(inner: Store) -> None:
    store = FaultyStore(inner, 1, [Fault("old", operations=READS)])
    store.put("a", b"first")
    with pytest.raises(MissingError):
        store.get("a", limit=100)
    store.put("a", b"second")
    seen = set()
    for _ in range(20):
        try:
            seen.add(store.get("a", limit=100))
        except MissingError:
            seen.add(b"")
    assert seen == {b"", b"first"}


def test_eventual_consistency(inner: Store) -> None:
    store = FaultyStore(inner, 1)
    store.put("a", b"first")
    store.faults = [Fault("late", operations=WRITES)]
    store.put("a", b"second")
    seen = [store.get("a", limit=100) for _ in range(10)]
    assert seen[0] == b"first"
    assert seen[-1] == b"second"
    assert seen == sorted(seen)


def test_vanishing_is_for_good(inner: Store) -> None:
    store = FaultyStore(inner, 1, [Fault("vanish")])
    store.put("a", DATA)
    inner.put("b", DATA)
    store.faults = [Fault("vanish", prefix="b")]
    for name in "ab":
        with pytest.raises(MissingError):
            store.get(name, limit=100)
    assert inner.list("").names == ()


def test_wrong_lists(inner: Store) -> None:
    for number in range(20):
        inner.put(f"p/{number:02}", DATA)
    names = FaultyStore(inner, 1, [Fault("mislist")]).list("p/").names
    assert set(inner.list("").names) - set(names)
    assert set(names) - set(inner.list("").names)
    assert list(names) != sorted(names)
