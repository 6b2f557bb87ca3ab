"""Containers move to the clouds, from them, and to other clouds, while programs use them and clouds fail."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Final

import pytest

from hybrisfs.dispersal.errors import CloudsUnavailable
from hybrisfs.dispersal.pack import Redundancy
from hybrisfs.dispersal.ranking import Timing
from hybrisfs.environment import Environment, Limits
from hybrisfs.errors import HybrisError
from hybrisfs.kv.cloud_place import CloudPlace
from hybrisfs.kv.cloud_store import CloudStore, CloudStoreLimits, CloudStores
from hybrisfs.kv.containers import ANYBODY, KeyFacts
from hybrisfs.kv.errors import ContainerExistsError, NoSuchContainerError, NoSuchKeyError
from hybrisfs.kv.migrate import Store, finish, left_behind, migrate
from hybrisfs.kv.record import ABSENT, Timestamp
from hybrisfs.kv.rmds import DeviceStore
from hybrisfs.kv.shared import Owner
from hybrisfs.kv.store import KeyValueLimits
from hybrisfs.quorums.names import Time
from hybrisfs.quorums.rounds import Protocol, Round, need
from hybrisfs.quorums.runner import Runner
from sync import OneKey
from tests.dispersal.fakes import HASTY, Cluster
from tests.kv.rig import KEY, LONG, new_database
from tests.kv.test_migrate import BOX, content, fill, quiet

WAYS: Final = (("device", "here"), ("here", "device"), ("here", "there"))
HURRIED: Final = Environment(
    limits=Limits(KeyValueLimits(cache_bytes=0, collect_seconds=LONG, get_seconds=0.3))
)
LIMITS: Final = Limits(CloudStoreLimits(known_seconds=0.2, forgotten_seconds=2.0))


class Stores:
    """Over six clouds: one that a device has, and two sets of clouds."""

    def __init__(
        self, folder: Path, ends: ExitStack, timing: Timing = HASTY, environment: Environment = HURRIED
    ) -> None:
        self.cluster = ends.enter_context(Cluster(1, 1, 6, timing, limits=LIMITS))
        self.ends = ends
        engine = self.cluster.engine
        self.device = DeviceStore(
            new_database(folder), engine.values, KEY, Redundancy(1, 1), environment=environment
        )
        ends.callback(self.device.close)

    def of(self, place: str) -> Store:
        """The store, on the clouds as one more device has it."""
        if place == "device":
            return self.device
        clouds = range(4) if place == "here" else range(2, 6)
        engine = self.cluster.engine
        runner = Runner(engine.clouds, engine.environment)
        store = CloudStore(CloudPlace.wished("clouds", clouds, 1), runner, KEY, OneKey(b"e" * 32), ANYBODY)
        self.ends.callback(store.close)
        return store


@pytest.fixture
def stores(tmp_path: Path) -> Iterator[Stores]:
    with ExitStack() as ends:
        yield Stores(tmp_path, ends)


@pytest.fixture(params=WAYS, ids="-to-".join)
def way(request: pytest.FixtureRequest, stores: Stores) -> tuple[str, str]:
    """Where a container is, and where it goes."""
    source, target = request.param
    stores.of(source).create_container(BOX)
    return source, target


def test_values_versions_times_and_attributes_stay(stores: Stores, way: tuple[str, str]) -> None:
    source, target = map(stores.of, way)
    fill(source)
    before = content(source)
    assert migrate(BOX, source, target, quiet).keys == 31
    assert content(target) == content(stores.of(way[1])) == before
    assert source.containers() == []
    with pytest.raises(NoSuchKeyError):
        target.get(BOX, "key 09")
    assert target.put(BOX, "key 09", b"again").sn >= 3, "it was written and deleted before"
    with pytest.raises(NoSuchContainerError):
        migrate(BOX, source, target, quiet)
    source.create_container(BOX)
    assert list(source.list(BOX)) == []
    with pytest.raises(ContainerExistsError):
        migrate(BOX, target, source, quiet)


@pytest.mark.parametrize("place", ["device", "there"])
def test_a_value_with_the_version_of_one_that_was_copied_is_not_lost(stores: Stores, place: str) -> None:
    move_beside_equal_versions(stores.of("here"), stores.of(place))


def move_beside_equal_versions(source: Store, target: Store) -> None:
    """Three programs write a key at the same time; two of them end after the copy of what the first wrote."""
    assert isinstance(source, CloudStore)
    source.create_container(BOX)
    for number in range(30):  # so many that there is a second pass
        source.put(BOX, f"key {number:02}", b"first")
    others = [b"second", b"third"]

    def step(stage: str, done: int, count: int) -> None:
        if stage == "keys" and others:
            value = others.pop(0)
            _write_as_number(source, "key 00", value, Time(1, (1 << 64) - 1 - len(others), 0))
            assert source.get(BOX, "key 00").value == value

    migrate(BOX, source, target, step)
    assert others == []
    assert target.get(BOX, "key 00").value == b"third"


def test_what_a_former_attempt_has_copied_late_keeps_its_version(stores: Stores) -> None:
    target = stores.of("there")
    assert isinstance(target, CloudStore)
    target.create_container(BOX)
    for _ in range(2):
        facts = KeyFacts("key", 0, Timestamp(5, 1), 1, b"")
        target.copy(BOX, "key", b"value", facts, None, is_only=True)
    assert [(one.timestamp.sn, one.size) for one in target.list(BOX)] == [(5, 5)]


def _write_as_number(store: CloudStore, key: str, value: bytes, time: Time) -> None:
    """What a put does that has listed the versions before others wrote theirs."""
    box = store._require(BOX).id
    register, draft = store.keys._register(box, key), store.keys._draft(key, value, b"", 1)
    version = draft.at(time)

    def write() -> Protocol[None]:
        yield [Round(register.objects(version, draft), need(register.thresholds.quorum))]
        yield from register.prove(version, draft.nonce)

    store.keys.run(key, write())


def test_a_move_that_is_cut_short_goes_on(stores: Stores, way: tuple[str, str]) -> None:
    """Clouds fail after so many requests, again and again."""
    source, target = map(stores.of, way)
    fill(source)
    before, chance = content(source), random.Random(str(way))
    left = threading.Semaphore(0)

    def fail() -> None:
        if not left.acquire(blocking=False):
            stores.cluster.behave("down")

    for store in stores.cluster.stores:
        store.before_list = fail
    cuts = 0
    for patience in (0, 10, 30, 60, 90, 120, 200, 400, 100_000):
        left = threading.Semaphore(patience + chance.randrange(8))
        stores.cluster.behave("ok")
        try:
            migrate(BOX, stores.of(way[0]), stores.of(way[1]), quiet)
        except (HybrisError, CloudsUnavailable):
            cuts += 1
        else:
            break
    assert cuts >= 2
    left = threading.Semaphore(100_000)
    stores.cluster.behave("ok")
    source, target = map(stores.of, way)
    finish(BOX, source, target)
    assert content(target) == before
    assert source.containers() == []
    assert left_behind(BOX, source) is None


def test_nothing_that_programs_write_beside_a_move_is_lost(stores: Stores, way: tuple[str, str]) -> None:
    source, target = map(stores.of, way)
    users = [stores.of(way[0]) for _ in range(3)]
    over, acknowledged = threading.Event(), dict[str, bytes]()

    def work(number: int) -> None:
        """Write to where the container is, as programs do that ask for it each time."""
        for count in range(10_000):
            if over.is_set():
                return
            key, value = f"{number} {count % 20}", f"{number} {count}".encode()
            for place in (users[number], target):
                with suppress(HybrisError, CloudsUnavailable):
                    place.put(BOX, key, value)
                    acknowledged[key] = value
                    break

    fill(source)
    threads = [threading.Thread(target=work, args=(number,)) for number in range(len(users))]
    for thread in threads:
        thread.start()
    try:
        migrate(BOX, source, target, quiet)
    finally:
        over.set()
        for thread in threads:
            thread.join()
    there = stores.of(way[1])
    found = {one.key: there.get(BOX, one.key).value for one in there.list(BOX)}
    assert acknowledged
    assert {key: found.get(key) for key in acknowledged} == acknowledged


def test_a_cloud_that_the_volume_has_no_more_keeps_no_move_from_its_end(stores: Stores) -> None:
    source, target = stores.of("here"), stores.of("there")
    source.create_container(BOX)
    fill(source)
    before = content(source)
    stores.cluster.engine.clouds.retire(0)
    assert migrate(BOX, source, target, quiet).keys == 31
    assert content(target) == before
    assert left_behind(BOX, source) is None


def test_what_a_move_has_left_on_a_cloud_is_known(stores: Stores) -> None:
    """A cloud that is drained goes only when it has deleted that."""
    engine = stores.cluster.engine
    places = [CloudPlace.wished("clouds", clouds, 1).url for clouds in (range(4), range(2, 6))]
    owner = Owner(b"v" * 16, b"d" * 32, KEY, OneKey(b"e" * 32))
    on_clouds = CloudStores(engine, owner, Named(places), ANYBODY)
    stores.ends.callback(on_clouds.close)
    source, target = map(on_clouds.at, places)
    source.create_container(BOX)
    source.put(BOX, "key", b"value")
    assert (on_clouds.keeping(0), on_clouds.keeping(5)) == ([BOX], [])
    with pytest.raises(HybrisError, match="stopped"):
        migrate(BOX, source, target, stop_at("waiting"))
    assert (on_clouds.keeping(0), on_clouds.keeping(5)) == ([BOX], [BOX])
    migrate(BOX, source, target, quiet)
    assert (on_clouds.keeping(0), on_clouds.keeping(5)) == ([], [BOX])


class Named:
    """The places of a volume, see `hybrisfs.kv.shared.Services`."""

    def __init__(self, urls: list[str]) -> None:
        self._urls = urls

    def urls(self) -> list[str]:
        return self._urls

    def add(self, url: str) -> None:
        self._urls.append(url)

    def forget(self, url: str) -> None:
        self._urls.remove(url)


def stop_at(which: str) -> Callable[[str, int, int], None]:
    def step(stage: str, done: int, total: int) -> None:
        if stage == which:
            raise HybrisError("stopped")

    return step


class Slow:
    """A value that is there only when something else has happened."""

    size = 5

    def __init__(self, before: Callable[[], object]) -> None:
        self._before = before

    def read(self) -> bytes:
        self._before()
        return b"value"


def test_a_write_that_took_longer_than_a_move_is_not_acknowledged(stores: Stores) -> None:
    """It goes to what nobody reads any more."""
    source, target = stores.of("here"), stores.of("there")
    source.create_container(BOX)
    user = stores.of("here")
    assert isinstance(user, CloudStore)
    user.put(BOX, "before", b"value")
    with pytest.raises(HybrisError, match=r"not known whether this was written.*moved at the same time"):
        user.put(BOX, "key", Slow(lambda: migrate(BOX, source, target, quiet)))
    assert [one.key for one in target.list(BOX)] == ["before"]
    source.create_container("other")
    user.put("other", "key", Slow(user.wait_for_others))
    assert user.get("other", "key").value == b"value"


def test_a_condition_holds_after_a_move(stores: Stores, way: tuple[str, str]) -> None:
    source, target = map(stores.of, way)
    source.put(BOX, "lock", b"mine", ABSENT)
    migrate(BOX, source, target, quiet)
    with pytest.raises(HybrisError, match="not none"):
        target.put(BOX, "lock", b"yours", ABSENT)
    assert target.delete(BOX, "lock") is not None
