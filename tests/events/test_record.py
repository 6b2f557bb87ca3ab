"""Events on the disk: kept, numbered, bounded, and readable whatever a crash leaves."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hybrisfs.events.conditions import Happening
from hybrisfs.events.event import MAX_LINE, Event, from_line, to_line
from hybrisfs.events.record import EventRecord


def news(*texts: str) -> list[Happening]:
    return [Happening("news", "topic", text) for text in texts]


def texts(record: EventRecord) -> list[str]:
    return [one.text for one in record.all()]


def test_events_come_back_with_their_numbers(tmp_path: Path) -> None:
    record = EventRecord(tmp_path)
    record.add(news("a", "b"), 1.0)
    record = EventRecord(tmp_path)
    assert record.add(news("c"), 2.0) == [Event(3, 2.0, "news", "topic", "c")]
    assert [(one.number, one.text) for one in EventRecord(tmp_path).all()] == [(1, "a"), (2, "b"), (3, "c")]
    assert [one.text for one in record.after(1)] == ["b", "c"]


def test_a_torn_line_costs_itself_only(tmp_path: Path) -> None:
    EventRecord(tmp_path).add(news("a", "b"), 1.0)
    path = tmp_path / "events"
    path.write_bytes(path.read_bytes()[:-5])
    record = EventRecord(tmp_path)
    assert texts(record) == ["a"]
    record.add(news("c"), 2.0)
    assert texts(EventRecord(tmp_path)) == ["a", "c"]


def test_altered_lines_are_left_out(tmp_path: Path) -> None:
    EventRecord(tmp_path).add(news("a", "b", "c"), 1.0)
    path = tmp_path / "events"
    lines = path.read_bytes().split(b"\n")
    path.write_bytes(b"\n".join([lines[0], b"\xff\x00{", lines[0], *lines[2:]]))
    assert texts(EventRecord(tmp_path)) == ["a", "c"]


def test_the_room_that_they_take_is_bounded(tmp_path: Path) -> None:
    record, every = EventRecord(tmp_path), [f"event {number} {'x' * 900}" for number in range(5000)]
    for start in range(0, len(every), 50):
        record.add(news(*every[start : start + 50]), 1.0)
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) <= 2 << 20
    found = texts(EventRecord(tmp_path))
    assert 0 < len(found) < len(every)
    assert found == every[-len(found) :]


def test_a_disk_that_refuses_keeps_nobody_from_being_told(tmp_path: Path) -> None:
    record = EventRecord(tmp_path / "is not there")
    assert record.add(news("a"), 1.0)
    assert texts(record) == ["a"]


@given(st.text(), st.text(), st.integers(1, 1 << 52), st.floats(0, 1e12))
def test_any_text_fits_into_a_line(topic: str, text: str, number: int, time: float) -> None:
    line = to_line(Event(number, time, "trouble", topic * 50, text * 500))
    assert len(line) <= MAX_LINE
    assert line.count(b"\n") == 1
    found = from_line(line.strip())
    assert (found.number, found.time, found.kind) == (number, time, "trouble")
    assert (text * 500).startswith(found.text)


@pytest.mark.parametrize(
    "different",
    [
        {"version": 2},
        {"number": 0},
        {"number": True},
        {"number": "1"},
        {"time": float("nan")},
        {"time": None},
        {"kind": "joke"},
        {"topic": 1},
        {"text": None},
    ],
)
def test_what_is_no_event_is_refused(different: dict[str, object]) -> None:
    fields = {"version": 1, "number": 1, "time": 1.0, "kind": "news", "topic": "", "text": ""}
    from_line(json.dumps(fields).encode())
    with pytest.raises(ValueError, match="it"):
        from_line(json.dumps({**fields, **different}).encode())
    with pytest.raises(ValueError, match="it is"):
        from_line(b"[]")
