"""Containers move to the log and from it, also when the move is cut short, and whoever writes when."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Final

import pytest

from hybrisfs.errors import HybrisError, UsageError
from hybrisfs.kv.containers import ContainerStore
from hybrisfs.kv.errors import (
    NoSuchContainerError,
    NoSuchKeyError,
)
from hybrisfs.kv.migrate import Store, finish, give_up, left_behind, migrate
from hybrisfs.registers.entries import MAX_ENTRY_KEY, MAX_ENTRY_VALUE
from tests.kv.log_rig import Places, cut_at, found
from tests.kv.test_migrate import BOX, Cut, content, fill, quiet
from tests.kv.test_migrate_clouds import move_beside_equal_versions

WAYS: Final = (("log", "device"), ("device", "log"), ("log", "here"), ("here", "log"))


@pytest.fixture
def places(tmp_path: Path) -> Iterator[Places]:
    with ExitStack() as ends:
        yield Places(tmp_path, ends)


@pytest.fixture(params=WAYS, ids="-to-".join)
def way(request: pytest.FixtureRequest, places: Places) -> tuple[Store, Store]:
    """Where a container is, and where it goes."""
    source, target = map(places.of, request.param)
    source.create_container(BOX)
    return source, target


@pytest.fixture
def here(places: Places) -> Store:
    """A store of the first machine. The container is in the log, and all machines know it."""
    places.log().create_container(BOX)
    places.fleet.meet()
    return places.of("device")


# -- one machine ---------------------------------------------------------------------------------------


def test_values_versions_times_and_attributes_stay(places: Places, way: tuple[Store, Store]) -> None:
    source, target = way
    fill(source, MAX_ENTRY_VALUE)
    before = content(source)
    moved = migrate(BOX, source, target, quiet)
    assert (moved.keys, list(moved.beside)) == (31, [])
    assert content(target) == before
    assert source.containers() == []
    with pytest.raises(NoSuchContainerError):
        source.put(BOX, "key 01", b"late")
    with pytest.raises(NoSuchKeyError):
        target.get(BOX, "key 09")
    assert target.put(BOX, "key 09", b"again").sn >= 3, "it was written and deleted before"
    with pytest.raises(NoSuchContainerError):
        migrate(BOX, source, target, quiet)
    assert (left_behind(BOX, source), left_behind(BOX, target)) == (None, None)
    places.fleet.meet()
    assert [places.log(number).containers() for number in range(3)] == [places.log().containers()] * 3
    assert migrate(BOX, target, source, quiet).keys == 31, "and back"
    assert found(source) == {one[0]: one[1] for one in before} | {"key 09": b"again"}
    source.create_container("other")
    assert source.put("other", "key", b"value").sn == 1


@pytest.mark.parametrize("after", [False, True])
def test_a_move_that_is_cut_short_anywhere_goes_on(
    places: Places, way: tuple[Store, Store], after: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Programs go on where the container is. Each move is cut at each of its updates."""
    source, target = way
    fill(source, MAX_ENTRY_VALUE)
    expected, cuts = found(source), 0
    for _ in range(2):
        for call in range(1, 100):
            with monkeypatch.context() as patch:
                cut_at(call, after=after, patch=patch)
                try:
                    migrate(BOX, source, target, quiet)
                except (Cut, NoSuchContainerError):
                    cuts += 1
            usable = [one for one in (source, target) if BOX in one.containers()]
            assert len(usable) <= 1
            if usable:
                assert found(usable[0]) == expected
                key, value = f"key {call % 12:02}", f"{call}".encode()
                usable[0].put(BOX, key, value)
                expected[key] = value
            if usable == [target]:
                finish(BOX, source, target)
                break
        assert found(target) == expected
        assert left_behind(BOX, source) is None
        source, target = target, source
    assert cuts >= 5


def test_nothing_that_programs_write_beside_a_move_is_lost(places: Places, way: tuple[Store, Store]) -> None:
    source, target = way
    over, acknowledged = threading.Event(), dict[str, bytes]()

    def work(number: int) -> None:
        """Write to where the container is, as programs do that ask for it each time."""
        for count in range(10_000):
            if over.is_set():
                return
            key, value = f"{number} {count % 20}", f"{number} {count}".encode()
            for place in (source, target):
                with suppress(HybrisError):
                    place.put(BOX, key, value)
                    acknowledged[key] = value
                    break

    fill(source, MAX_ENTRY_VALUE)
    threads = [threading.Thread(target=work, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    try:
        migrate(BOX, source, target, quiet)
    finally:
        over.set()
        for thread in threads:
            thread.join()
    there = found(target)
    assert acknowledged
    assert {key: there.get(key) for key in acknowledged} == acknowledged


def test_a_value_with_the_version_of_one_that_was_copied_is_not_lost(places: Places) -> None:
    move_beside_equal_versions(places.of("here"), places.of("log"))


def test_what_the_log_has_no_room_for_is_refused_before_anything_is_changed(places: Places) -> None:
    source, log = places.of("device"), places.log()
    source.create_container(BOX)
    source.put(BOX, "fits", bytes(MAX_ENTRY_VALUE))
    source.put(BOX, "large", bytes(MAX_ENTRY_VALUE + 1))
    source.put(BOX, "k" * (MAX_ENTRY_KEY + 1), b"")
    before = len(places.fleet[0].log())
    with pytest.raises(UsageError, match=r"(?s)512 bytes there.*262,144.*box/large.*another container"):
        migrate(BOX, source, log, quiet)
    assert len(places.fleet[0].log()) == before
    assert (source.containers(), left_behind(BOX, source)) == ([BOX], None)
    for key in ("large", "k" * (MAX_ENTRY_KEY + 1)):
        source.delete(BOX, key)
    migrate(BOX, source, log, quiet)
    assert list(found(log)) == ["fits"], "that a key was deleted which cannot be there is no trouble"


def test_a_container_in_which_too_much_is_written_while_it_is_copied_gets_its_name_back(
    places: Places,
) -> None:
    source, log = places.of("device"), places.log()
    source.create_container(BOX)
    source.put(BOX, "key", b"value")

    def step(stage: str, done: int, total: int) -> None:
        if stage == "keys" and BOX in source.containers():
            source.put(BOX, "large", bytes(MAX_ENTRY_VALUE + 1))

    with pytest.raises(UsageError, match="box/large"):
        migrate(BOX, source, log, step)
    assert list(found(source)) == ["key", "large"]
    assert (log.containers(), left_behind(BOX, source)) == ([], None)
    source.delete(BOX, "large")
    migrate(BOX, source, log, quiet)
    assert found(log) == {"key": b"value"}


def test_a_copy_that_was_given_up_counts_for_nothing(places: Places, monkeypatch: pytest.MonkeyPatch) -> None:
    """The next one goes to the same place."""
    source, log = places.of("device"), places.log()
    source.create_container(BOX)
    fill(source, MAX_ENTRY_VALUE)
    with monkeypatch.context() as patch:
        cut_at(9, after=True, patch=patch)
        with pytest.raises(Cut):
            migrate(BOX, source, log, quiet)
    give_up(BOX, log)
    assert log.moves.names() == []
    before = content(source)
    migrate(BOX, source, log, quiet)
    assert content(log) == before


# -- chance --------------------------------------------------------------------------------------------


class Model:
    """Which values nobody has overwritten who had seen them: these must be somewhere."""

    def __init__(self, places: Places, here: Store, seed: int) -> None:
        self.places, self.here = places, here
        self.chance = random.Random(seed)
        self.overwritten: set[bytes] = set()
        self.written: set[bytes] = set()

    def write(self, store: ContainerStore) -> None:
        """A program writes a key, or deletes it, and has seen what is there."""
        key = self.chance.choice("abc")
        try:
            seen = {store.get(BOX, key, tag=one.timestamp).value for one in store.values(BOX, key)}
        except NoSuchKeyError:
            seen = set()
        if seen and self.chance.random() < 0.2:
            store.delete(BOX, key)
        else:
            value = b"%d" % len(self.written)
            store.put(BOX, key, value)
            self.written.add(value)
        self.overwritten |= seen

    def settle(self, number: int = 0) -> None:
        """One value for each key of the log."""
        log = self.places.log(number)
        for (_, key), _ in log.conflicts():
            seen = {log.get(BOX, key, tag=one.timestamp).value for one in log.values(BOX, key)}
            value = b"%d" % len(self.written)
            log.put(BOX, key, value)
            self.written.add(value)
            self.overwritten |= seen


@pytest.mark.parametrize("seed", range(12))
def test_no_value_is_lost_whoever_writes_when(
    places: Places, here: Store, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = Model(places, here, seed)
    chance, fleet = model.chance, places.fleet
    working = list[bool]()

    def something() -> None:
        working.append(True)
        try:
            work()
        finally:
            working.clear()

    def work() -> None:
        number = chance.randrange(3)
        if chance.random() < 0.3:
            fleet.send(number, chance.randrange(3))
        log = places.log(number)
        if log.has_container(BOX):
            model.write(log)
        elif number == 0 and BOX in here.containers():
            model.write(here)

    for _ in range(chance.randrange(4, 16)):
        something()
    with monkeypatch.context() as patch:
        for _ in range(20):
            model.settle()
            cut_at(
                chance.randrange(1, 12),
                after=chance.random() < 0.5,
                patch=patch,
                spared=lambda: bool(working),
            )
            with suppress(Cut, UsageError):
                migrate(BOX, places.log(), here, lambda stage, done, total: something())
            patch.undo()
            something()
            if BOX in here.containers():
                break
    for _ in range(chance.randrange(4, 16)):
        something()
        if chance.random() < 0.2:
            finish(BOX, places.log(), here)
    fleet.meet()
    finish(BOX, places.log(), here)
    assert places.log().moved() == []
    there = set(found(here).values())
    assert model.written - model.overwritten <= there
    fleet.meet()
    assert [places.log(number).moved() for number in range(3)] == [[]] * 3
