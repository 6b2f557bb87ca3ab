"""Machines write to a container in the log, or move it, that have not heard of its move."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import pytest

from hybrisfs.errors import HybrisError, UsageError
from hybrisfs.kv.errors import (
    ContainerExistsError,
    ContainerMovingError,
    NoSuchContainerError,
)
from hybrisfs.kv.log_moves import MovedContainer
from hybrisfs.kv.log_store import LogStore
from hybrisfs.kv.log_writes import LogWriter
from hybrisfs.kv.migrate import Store, finish, give_up, left_behind, migrate
from hybrisfs.kv.store import KeyValueStore
from hybrisfs.registers.entries import MAX_ENTRY_VALUE
from tests.dispersal.fakes import CALM
from tests.kv.log_rig import Places, cut_at, found
from tests.kv.rig import UNHURRIED
from tests.kv.test_migrate import BOX, Cut, content, fill, quiet
from tests.kv.test_migrate_clouds import Stores


@pytest.fixture
def places(tmp_path: Path) -> Iterator[Places]:
    with ExitStack() as ends:
        yield Places(tmp_path, ends)


@pytest.fixture
def here(places: Places) -> Store:
    """A store of the first machine. The container is in the log, and all machines know it."""
    places.log().create_container(BOX)
    places.fleet.meet()
    return places.of("device")


def test_keys_with_several_values_are_refused_and_named(places: Places, here: Store) -> None:
    for number in range(2):
        places.log(number).put(BOX, "several", b"%d" % number)
        places.log(number).put(BOX, f"one {number}", b"value")
    places.fleet.meet()
    before = len(places.fleet[0].log())
    with pytest.raises(UsageError, match=r"several values: box/several$|several values: box/several\n"):
        migrate(BOX, places.log(), here, quiet)
    assert len(places.fleet[0].log()) == before
    assert here.containers() == []
    places.log().put(BOX, "several", b"both")
    migrate(BOX, places.log(), here, quiet)
    assert found(here) == {"several": b"both", "one 0": b"value", "one 1": b"value"}


def test_a_machine_that_has_heard_of_it_writes_no_more(places: Places, here: Store) -> None:
    places.log().put(BOX, "key", b"value")
    migrate(BOX, places.log(), here, quiet)
    places.log(1).put(BOX, "late", b"late")
    places.fleet.meet()
    for number in range(3):
        with pytest.raises(NoSuchContainerError):
            places.log(number).put(BOX, "later", b"value")
        assert places.log(number).moved() == [MovedContainer(BOX, 1, False)]


def late(places: Places, here: Store, *moments: Callable[[], object]) -> dict[str, bytes]:
    """Move the container while the second machine does the first of these, and programs the second one where
    it is then; what is there after late writes were brought over."""
    migrate(BOX, places.log(), here, quiet)
    for moment in moments:
        moment()
    places.fleet.meet()
    finish(BOX, places.log(), here)
    places.fleet.meet()
    assert [places.log(number).moved() for number in range(3)] == [[]] * 3
    return found(here)


@pytest.fixture
def known(places: Places, here: Store) -> LogStore:
    """The log of the second machine, which knows a key."""
    places.log().put(BOX, "key", b"before")
    places.fleet.meet()
    return places.log(1)


def test_what_follows_the_value_that_was_taken_takes_its_place(
    places: Places, here: Store, known: LogStore
) -> None:
    for count in range(3):
        known.put(BOX, "key", b"late %d" % count, attributes=b"said")
    known.put(BOX, "new", b"late")
    assert late(places, here) == {"key": b"late 2", "new": b"late"}
    assert here.get(BOX, "key").facts.attributes == b"said"
    known.delete(BOX, "key") if known.has_container(BOX) else None
    assert not known.has_container(BOX)


def test_a_machine_that_hears_of_it_even_later_goes_on_with_its_own_value(
    places: Places, here: Store, known: LogStore
) -> None:
    known.put(BOX, "key", b"late")
    updates = places.fleet[1].log()
    known.put(BOX, "key", b"later")
    migrate(BOX, places.log(), here, quiet)
    places.fleet[0].receive(updates)
    finish(BOX, places.log(), here)
    assert found(here) == {"key": b"late"}
    assert late_again(places, here) == {"key": b"later"}


def late_again(places: Places, here: Store) -> dict[str, bytes]:
    places.fleet.meet()
    finish(BOX, places.log(), here)
    return found(here)


def test_a_late_deletion_takes_the_value_that_it_had_seen(
    places: Places, here: Store, known: LogStore
) -> None:
    known.delete(BOX, "key")
    assert late(places, here) == {}


def test_a_value_goes_before_a_late_deletion(places: Places, here: Store, known: LogStore) -> None:
    known.delete(BOX, "key")
    assert late(places, here, lambda: here.put(BOX, "key", b"here")) == {"key": b"here"}


def test_a_late_value_does_not_take_the_place_of_one_that_a_program_has_written_since(
    places: Places, here: Store, known: LogStore
) -> None:
    for count in range(5):  # so that its version is the higher one
        known.put(BOX, "key", b"late %d" % count)
    there = late(places, here, lambda: here.put(BOX, "key", b"here"))
    assert there.pop("key") == b"here"
    assert list(there.values()) == [b"late 4"]
    assert next(iter(there)).startswith("key (late 6-")


def test_a_late_value_does_not_take_the_place_of_one_that_its_writer_had_not_seen(
    places: Places, here: Store, known: LogStore
) -> None:
    for count in range(5):
        known.put(BOX, "key", b"late %d" % count)
    places.log().put(BOX, "key", b"unseen")
    there = late(places, here)
    assert there.pop("key") == b"unseen"
    assert list(there.values()) == [b"late 4"]


def test_a_late_value_that_comes_after_the_last_look_is_not_taken_for_a_copied_one(
    places: Places, here: Store, known: LogStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Then nobody can tell any more what the key has had, so it is put beside."""
    known.put(BOX, "key", b"late")
    known.put(BOX, "new", b"late")
    assert isinstance(here, KeyValueStore)
    rename = here.metadata.rename_container

    def hear_first(name: str, new: str) -> None:
        places.fleet.send(1, 0)
        rename(name, new)

    monkeypatch.setattr(here.metadata, "rename_container", hear_first)
    there = late(places, here)
    assert (there.pop("key"), there.pop("new")) == (b"before", b"late")
    assert list(there.values()) == [b"late"]


def test_a_late_value_that_comes_while_the_former_ones_are_taken_is_not_taken_with_them(
    places: Places, here: Store, known: LogStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    known.put(BOX, "key", b"late")
    write = LogWriter.write

    def hear_first(self: LogWriter, *asked: Any, **named: Any) -> None:
        if BOX in here.containers():
            monkeypatch.undo()
            places.fleet.send(1, 0)
        write(self, *asked, **named)

    monkeypatch.setattr(LogWriter, "write", hear_first)
    assert sorted(late(places, here).values()) == [b"before", b"late"]


def test_a_value_that_another_one_hid_is_copied_when_that_is_deleted(
    places: Places, here: Store, known: LogStore
) -> None:
    """Its version is not higher than that of the one which was copied before."""
    known.put(BOX, "key", b"hidden")
    places.log().put(BOX, "key", b"copied first")
    places.fleet.send(0, 2)
    places.log(2).delete(BOX, "key")

    def step(stage: str, done: int, total: int) -> None:
        if places.log().has_container(BOX):
            places.fleet.meet()

    for number in range(30):  # so that there is a second pass
        places.log().put(BOX, f"{number}", b"value")
    migrate(BOX, places.log(), here, step)
    assert here.get(BOX, "key").value == b"hidden"


def test_late_values_that_agree_with_what_is_there_leave_nothing_beside(
    places: Places, here: Store, known: LogStore
) -> None:
    known.put(BOX, "key", b"same")
    assert late(places, here, lambda: here.put(BOX, "key", b"same")) == {"key": b"same"}


def test_a_late_value_comes_back_to_a_key_that_was_deleted(
    places: Places, here: Store, known: LogStore
) -> None:
    known.put(BOX, "key", b"late")
    assert late(places, here, lambda: here.delete(BOX, "key")) == {"key": b"late"}


def test_late_values_of_two_machines_are_both_there(places: Places, here: Store, known: LogStore) -> None:
    for number in (1, 2):
        places.log(number).put(BOX, "key", b"late %d" % number)
    there = late(places, here)
    assert sorted(there.values()) == [b"late 1", b"late 2"]
    assert "key" in there


def test_a_container_that_a_machine_has_dropped_without_knowing_of_its_move_is_where_it_went(
    places: Places, here: Store
) -> None:
    places.log(1).delete_container(BOX)
    places.log().put(BOX, "key", b"value")
    left = list[str]()

    def step(stage: str, done: int, total: int) -> None:
        if stage == "waiting":
            places.fleet.meet()
            left.append(str(left_behind(BOX, places.log(2))))
            assert [places.log(number).containers() for number in range(3)] == [[]] * 3

    migrate(BOX, places.log(), here, step)
    assert left != ["None"]
    places.fleet.meet()
    assert found(here) == {"key": b"value"}
    for number in range(3):
        assert (places.log(number).containers(), places.log(number).moved()) == ([], [])


def test_a_name_that_is_used_again_is_of_another_container(
    places: Places, here: Store, known: LogStore
) -> None:
    migrate(BOX, places.log(), here, quiet)
    places.log().create_container(BOX)
    places.log().put(BOX, "key", b"of the new one")
    known.put(BOX, "key", b"late")
    places.fleet.meet()
    for number in range(3):
        assert found(places.log(number)) == {"key": b"of the new one"}
        assert places.log(number).moved() == [MovedContainer(BOX, 1, False)]
    assert places.log().moves.rejoin(BOX)
    places.fleet.meet()
    for number in range(3):
        assert len(places.log(number).values(BOX, "key")) == 2
        assert places.log(number).moved() == []
    places.log(2).put(BOX, "key", b"both")
    places.fleet.meet()
    assert [len(places.log(number).values(BOX, "key")) for number in range(3)] == [1, 1, 1]
    assert found(places.log()) == {"key": b"both"}
    assert len(places.log().list(BOX)) == 1
    places.log(1).delete(BOX, "key")
    places.log(1).delete_container(BOX)
    places.fleet.meet()
    assert places.log().containers() == []


def test_machines_that_move_it_to_two_places_tell_of_it(places: Places, here: Store, tmp_path: Path) -> None:
    """None had heard of the other one. Each place has all, and somebody drops one."""
    (tmp_path / "there").mkdir()
    with ExitStack() as ends:
        there = Stores(tmp_path / "there", ends, CALM, UNHURRIED).device
        places.log().put(BOX, "key", b"before")
        places.fleet.meet()
        places.log(2).put(BOX, "late", b"late")
        for number, target in enumerate((here, there)):
            migrate(BOX, places.log(number), target, quiet)
        places.fleet.meet()
        told = [MovedContainer(BOX, 1, True)]
        assert [places.log(number).moved() for number in range(3)] == [told] * 3
        for number, target in enumerate((here, there)):
            assert target.get(BOX, "key").value == b"before"
            finish(BOX, places.log(number), target)
        places.fleet.meet()
        assert b"late" in [*found(here).values(), *found(there).values()]
        assert [places.log(number).moved() for number in range(3)] == [[MovedContainer(BOX, 0, True)]] * 3
        places.log(1).moves.settle(BOX)
        places.fleet.meet()
        assert [places.log(number).moved() for number in range(3)] == [[]] * 3


@pytest.mark.parametrize("has_ended", [True, False])
def test_machines_that_hear_in_time_of_each_other_move_it_to_one_place(
    places: Places, here: Store, tmp_path: Path, has_ended: bool
) -> None:
    (tmp_path / "there").mkdir()
    with ExitStack() as ends:
        there = Stores(tmp_path / "there", ends, CALM, UNHURRIED).device
        places.log().put(BOX, "key", b"before")
        places.fleet.meet()
        places.log(1).put(BOX, "other", b"value")

        def step(stage: str, done: int, total: int) -> None:
            if stage == "waiting":
                with suppress(Cut):
                    migrate(BOX, places.log(1), there, quiet if has_ended else cut_before_the_last_pass)
                places.fleet.meet()

        with suppress(ContainerMovingError):
            migrate(BOX, places.log(), here, step)
        places.fleet.meet()
        if not has_ended:
            with suppress(HybrisError):
                migrate(BOX, places.log(1), there, quiet)
        places.fleet.meet()
        assert here.containers() == ([] if has_ended or there.containers() else [BOX])
        assert there.containers() == ([] if here.containers() else [BOX])
        for number, target in enumerate((here, there)):
            if target.containers():
                finish(BOX, places.log(number), target)
                assert found(target) == {"key": b"before", "other": b"value"}
        places.fleet.meet()
        assert [places.log(number).moved() for number in range(3)] == [[]] * 3


def cut_before_the_last_pass(stage: str, done: int, total: int) -> None:
    if stage == "waiting":
        raise Cut


def test_two_machines_that_move_it_to_the_log_have_one_container(
    places: Places, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One is cut short, and what it has copied comes later than all that programs have written since."""
    places.of("here").create_container(BOX)
    fill(places.of("here"), MAX_ENTRY_VALUE)
    with monkeypatch.context() as patch:
        cut_at(8, after=True, patch=patch)
        with pytest.raises(Cut):
            migrate(BOX, places.of("here"), places.log(1), quiet)
    places.of("here").put(BOX, "key 00", b"newer than that copy")
    places.of("here").delete(BOX, "key 01")
    before = content(places.of("here"))
    migrate(BOX, places.of("here"), places.log(), quiet)
    assert content(places.log()) == before
    places.log().put(BOX, "key 02", b"newer still")
    expected = found(places.log())
    places.fleet.meet()
    for number in range(3):
        assert found(places.log(number)) == expected
        assert places.log(number).conflicts() == []
        assert left_behind(BOX, places.log(number)) is None
        give_up(BOX, places.log(number))
    places.fleet.meet()
    assert found(places.log(2)) == expected


def test_a_container_that_another_machine_makes_in_the_log_is_one_with_that_which_comes(
    places: Places,
) -> None:
    places.of("here").create_container(BOX)
    fill(places.of("here"), MAX_ENTRY_VALUE)
    places.log(1).create_container(BOX)
    places.log(1).put(BOX, "key 00", b"of the other one")
    migrate(BOX, places.of("here"), places.log(), quiet)
    places.fleet.meet()
    for number in range(3):
        assert len(places.log(number).list(BOX)) == 30
        assert [key for (_, key), _ in places.log(number).conflicts()] == ["key 00"]
    with pytest.raises(UsageError, match="several values: box/key 00"):
        migrate(BOX, places.log(2), places.of("device"), quiet)
    places.log(2).put(BOX, "key 00", b"both")
    places.fleet.meet()
    assert places.log().conflicts() == []
    migrate(BOX, places.log(), places.of("device"), quiet)
    assert places.of("device").get(BOX, "key 00").value == b"both"
    assert len(places.of("device").list(BOX)) == 30


def test_what_is_left_stays_where_another_container_has_the_name(
    places: Places, here: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may be the only copy."""
    places.log().put(BOX, "key", b"value")
    monkeypatch.setattr(here.metadata, "rename_container", _cut)  # type: ignore[union-attr]
    with pytest.raises(Cut):
        migrate(BOX, places.log(), here, quiet)
    monkeypatch.undo()
    here.create_container(BOX)
    assert finish(BOX, places.log(), here) is None
    with pytest.raises(ContainerExistsError):
        migrate(BOX, places.log(), here, quiet)
    assert left_behind(BOX, places.log()) is not None
    here.delete_container(BOX)
    migrate(BOX, places.log(), here, quiet)
    assert found(here) == {"key": b"value"}
    assert places.log().moves.names() == []


def _cut(*_: object) -> None:
    raise Cut
