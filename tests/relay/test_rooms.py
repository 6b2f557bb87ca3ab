"""What a space holds, and may hold."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from backends.errors import FullError, MissingError, MissingRootError
from relay.rooms import Room, Rooms, objects_of, size_of
from relay.spaces import Space

SPACE = Space("home", "a" * 32, "nas", 8017, 0)


@pytest.fixture
def room(tmp_path: Path) -> Room:
    room = Rooms(tmp_path).of(SPACE)
    room.store.initialise()
    return room


def test_a_space_holds_no_more_than_its_quota(room: Room) -> None:
    assert room.put("one", bytes(60), 100, only_new=False)
    with pytest.raises(FullError):
        room.put("two", bytes(41), 100, only_new=False)
    assert room.list("", "", 10).names == ("one",)
    assert room.put("two", bytes(40), 100, only_new=True)


def test_what_is_overwritten_or_deleted_counts_no_more(room: Room) -> None:
    room.put("one", bytes(100), 100, only_new=False)
    room.put("one", bytes(10), 100, only_new=False)
    room.put("two", bytes(90), 100, only_new=False)
    room.delete("two")
    room.delete("two")
    assert room.put("three", bytes(90), 100, only_new=False)
    with pytest.raises(FullError):
        room.put("four", bytes(1), 100, only_new=False)


def test_what_was_not_stored_does_not_count(room: Room) -> None:
    room.put("one", bytes(10), 100, only_new=True)
    room.put("empty", b"", 100, only_new=True)
    for name in ("one", "empty"):
        assert not room.put(name, bytes(50), 100, only_new=True)
    assert room.put("two", bytes(90), 100, only_new=True)


def test_a_smaller_object_fits_though_the_quota_is_exceeded(room: Room) -> None:
    """It may have become smaller."""
    room.put("one", bytes(100), 0, only_new=False)
    assert room.put("one", bytes(50), 10, only_new=False)
    with pytest.raises(FullError):
        room.put("one", bytes(51), 10, only_new=False)


def test_what_is_there_at_the_start_counts(room: Room, tmp_path: Path) -> None:
    room.put("a/b/one", bytes(60), 0, only_new=False)
    assert size_of(objects_of(tmp_path, "home")) == 60
    with pytest.raises(FullError):
        Rooms(tmp_path).of(SPACE).put("two", bytes(41), 100, only_new=False)


def test_sizes(room: Room) -> None:
    room.put("one", bytes(7), 0, only_new=False)
    assert room.size_of("one") == 7
    with pytest.raises(MissingError):
        room.size_of("two")


def test_a_space_whose_folder_is_not_there(tmp_path: Path) -> None:
    room = Rooms(tmp_path).of(SPACE)
    with pytest.raises(MissingRootError):
        room.put("one", b"data", 0, only_new=False)
    assert Rooms(tmp_path).of(SPACE) is not room


@pytest.mark.parametrize("shrink", [Room.delete, lambda room, name: room.put(name, b"", 100, only_new=False)])
def test_what_requests_free_together_is_counted_once(
    room: Room, monkeypatch: pytest.MonkeyPatch, shrink: Callable[[Room, str], object]
) -> None:
    room.put("one", bytes(60), 100, only_new=False)
    room.put("two", bytes(40), 100, only_new=False)
    inside, other_done = threading.Event(), threading.Event()

    def held_up(work: Callable[..., object]) -> Callable[..., object]:
        def first_waits(*given: object) -> object:
            if not inside.is_set():
                inside.set()
                other_done.wait(0.2)  # it may have to wait for this one
            return work(*given)

        return first_waits

    for name in ("put", "delete"):
        monkeypatch.setattr(room.store, name, held_up(getattr(room.store, name)))
    first = threading.Thread(target=shrink, args=(room, "one"))
    first.start()
    inside.wait()
    shrink(room, "one")
    other_done.set()
    first.join()
    assert room.put("three", bytes(60), 100, only_new=False)
    with pytest.raises(FullError):
        room.put("four", bytes(1), 100, only_new=False)
