"""Containers move between metadata stores while programs use them, also when the move is cut short."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from hybrisfs.dispersal.pack import Redundancy
from hybrisfs.environment import SYSTEM
from hybrisfs.errors import HybrisError
from hybrisfs.kv.errors import (
    ContainerExistsError,
    NoSuchContainerError,
    NoSuchKeyError,
)
from hybrisfs.kv.migrate import Store, finish, give_up, left_behind, migrate
from hybrisfs.kv.rmds import DeviceMetadata, DeviceStore
from hybrisfs.kv.seal import ValueSealer
from hybrisfs.kv.service_metadata import ServiceMetadata
from hybrisfs.kv.store import KeyValueStore
from tests.dispersal.fakes import Cluster
from tests.kv.rig import KEY, UNHURRIED, new_database
from tests.kv.services import SERVICES, Servers, client_of, in_form, service_cluster

BOX = "box"
MOVES = (("device", "service"), ("service", "device"), ("service", "sealed"), ("sealed", "service"))


@pytest.fixture(scope="module", params=SERVICES)
def service(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    with service_cluster(request.param, tmp_path_factory.mktemp("service")) as cluster:
        yield cluster


class Stores:
    """Over the same clouds: one that a device has, one in a service, and one there with sealed names."""

    def __init__(self, folder: Path, url: str, ends: ExitStack) -> None:
        self.cluster = ends.enter_context(Cluster(1, 1, 3))
        self._folder = folder
        self._url = url
        self._of = {
            "device": self._device("device"),
            "service": self._service("plain"),
            "sealed": self._service("sealed"),
        }
        for store in self._of.values():
            ends.callback(store.close)

    def of(self, place: str) -> KeyValueStore:
        return self._of[place]

    def _device(self, name: str) -> KeyValueStore:
        (self._folder / name).mkdir()
        return DeviceStore(
            new_database(self._folder / name),
            self.cluster.engine.values,
            KEY,
            Redundancy(1, 1),
            environment=UNHURRIED,
        )

    def _service(self, form: str) -> KeyValueStore:
        (self._folder / form).mkdir()
        debts = DeviceMetadata(new_database(self._folder / form), SYSTEM)
        client = in_form(form, client_of(self._url, f"{uuid4().hex}/"))
        metadata = ServiceMetadata(client, debts, b"\1" * 16, SYSTEM)
        sealer = ValueSealer(KEY, metadata.store_id)
        return KeyValueStore(
            metadata, self.cluster.engine.values, sealer, Redundancy(1, 1), environment=UNHURRIED
        )


@pytest.fixture
def stores(tmp_path: Path, service: Servers) -> Iterator[Stores]:
    with ExitStack() as ends:
        yield Stores(tmp_path, service.url, ends)


@pytest.fixture(params=MOVES, ids="-to-".join)
def places(request: pytest.FixtureRequest, stores: Stores) -> tuple[KeyValueStore, KeyValueStore]:
    """Where a container is, and where it goes."""
    source, target = (stores.of(place) for place in request.param)
    source.create_container(BOX)
    return source, target


def quiet(stage: str, done: int, total: int) -> None:
    """Nobody looks at the progress."""


def content(store: Store) -> list[tuple[str, bytes, int, int, bytes]]:
    found = []
    for one in store.list(BOX):
        value, facts = store.get(BOX, one.key)
        found.append((one.key, value, facts.timestamp.sn, facts.written, facts.attributes))
    return found


def fill(store: Store, largest: int = 2_000_000) -> None:
    for number in range(30):
        store.put(BOX, f"key {number:02}", b"%d" % number, attributes=b"a%d" % number)
    for _ in range(3):
        store.put(BOX, "key 07", b"newer")
    store.put(BOX, "large", b"x" * largest)
    store.delete(BOX, "key 09")


def objects(stores: Stores) -> set[str]:
    return {name for store in stores.cluster.stores for name in store.objects}


def test_values_versions_times_and_attributes_stay(
    stores: Stores, places: tuple[KeyValueStore, KeyValueStore]
) -> None:
    source, target = places
    fill(source)
    before, former = content(source), objects(stores)
    assert migrate(BOX, source, target, quiet).keys == 31
    assert content(target) == before
    assert source.containers() == []
    assert source.metadata.containers() == []
    with pytest.raises(NoSuchKeyError):
        target.get(BOX, "key 09")
    assert target.put(BOX, "key 09", b"again").sn == 3, "it was written and deleted before"
    for store in places:
        store.collector.collect()
    assert not objects(stores) & former, "the former values are deleted"
    assert content(target)[:9] == before[:9]
    assert migrate(BOX, target, source, quiet).keys == 31, "and back"
    assert len(content(source)) == 31


def test_who_has_a_container_of_that_name_keeps_it(places: tuple[KeyValueStore, KeyValueStore]) -> None:
    source, target = places
    fill(source)
    before = content(source)
    target.create_container(BOX)
    target.put(BOX, "other", b"theirs")
    with pytest.raises(ContainerExistsError):
        migrate(BOX, source, target, quiet)
    assert content(source) == before
    assert len(target.list(BOX)) == 1
    assert not finish(BOX, source, target)
    with pytest.raises(NoSuchContainerError):
        migrate("none", source, target, quiet)


class Cut(Exception):  # noqa: N818
    """The process ends here."""


STEPS = ("create_container", "rename_container", "discard_container")


def cut_at(store: KeyValueStore, call: int, *, after: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """The process ends before, or after, the so manyth step of those that change containers."""
    left = [call]
    for name in STEPS:
        step: Callable[..., Any] = getattr(store.metadata, name)

        def cut(*asked: Any, step: Callable[..., Any] = step) -> Any:
            left[0] -= 1
            if left[0] == 0 and not after:
                raise Cut
            done = step(*asked)
            if left[0] == 0:
                raise Cut
            return done

        monkeypatch.setattr(store.metadata, name, cut)


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize(("side", "call"), [(0, 1), (0, 2), (1, 1), (1, 2)])
def test_a_move_that_was_cut_short_goes_on(
    places: tuple[KeyValueStore, KeyValueStore],
    side: int,
    call: int,
    after: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    source, target = places
    fill(source)
    before = content(source)
    with monkeypatch.context() as patch:
        cut_at(places[side], call, after=after, monkeypatch=patch)
        with pytest.raises(Cut):
            migrate(BOX, source, target, quiet)
    usable = [store for store in places if BOX in store.containers()]
    assert len(usable) <= 1
    if usable:
        assert content(usable[0]) == before
    if usable == [source]:  # programs go on meanwhile
        source.put(BOX, "later", b"later")
        source.delete(BOX, "key 01")
    if usable == [target]:
        finish(BOX, source, target)
    else:
        migrate(BOX, source, target, quiet)
    assert target.get(BOX, "key 02").value == b"2"
    assert len(content(target)) == len(before)
    assert source.metadata.containers() == []
    assert target.metadata.containers() == [BOX]


def test_what_is_left_behind_stays_where_another_container_has_the_name(
    places: tuple[KeyValueStore, KeyValueStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may be the only copy."""
    source, target = places
    fill(source)
    with monkeypatch.context() as patch:
        cut_at(target, 2, after=False, monkeypatch=patch)
        with pytest.raises(Cut):
            migrate(BOX, source, target, quiet)
    target.create_container(BOX)
    assert not finish(BOX, source, target)
    with pytest.raises(ContainerExistsError):
        migrate(BOX, source, target, quiet)
    assert left_behind(BOX, source) is not None
    target.delete_container(BOX)
    give_up(BOX, target)
    assert migrate(BOX, source, target, quiet).keys == 31, "the copy was given up: all are copied"
    assert len(content(target)) == 30


def test_nothing_is_kept_of_a_container_of_the_same_name_that_was_dropped(
    places: tuple[KeyValueStore, KeyValueStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its copy has higher versions than the new one."""
    source, target = places
    fill(source)
    with monkeypatch.context() as patch:
        cut_at(source, 1, after=False, monkeypatch=patch)
        with pytest.raises(Cut):
            migrate(BOX, source, target, quiet)
    for one in source.list(BOX):
        source.delete(BOX, one.key)
    source.delete_container(BOX)
    source.create_container(BOX)
    source.put(BOX, "key 07", b"of the new one")
    migrate(BOX, source, target, quiet)
    assert [one[:3] for one in content(target)] == [("key 07", b"of the new one", 1)]
    assert target.metadata.containers() == [BOX]


def test_programs_use_it_meanwhile(places: tuple[KeyValueStore, KeyValueStore]) -> None:
    """What they were told to be written is there; a write that began in the source does not end there."""
    source, target = places
    fill(source)
    stop: list[bool] = []

    def write(number: int) -> Sequence[int]:
        done = []
        for count in range(10_000):
            if stop:
                break
            for store in (source, target):
                with suppress(HybrisError):
                    store.put(BOX, f"writer {number}", b"%d" % count)
                    done.append(count)
                    break
        return done

    with ThreadPoolExecutor(4) as pool:
        writers = [pool.submit(write, number) for number in range(4)]
        try:
            migrate(BOX, source, target, quiet)
        finally:
            stop.append(True)
        written = [one.result() for one in writers]
    for number, done in enumerate(written):
        assert done
        value, facts = target.get(BOX, f"writer {number}")
        assert (int(value), facts.timestamp.sn) == (done[-1], len(done))
