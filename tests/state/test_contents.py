"""What the contents of files are made of: parts, pages, and files whose parts are not known yet."""

from __future__ import annotations

from random import Random

import pytest

from hybrisfs.state.chunk_states import MAX_CHUNK, CutRow
from hybrisfs.state.file_chunks import Part, RecentParts
from tests.tree.rig import Rig

INO, OTHER = 7, 8


@pytest.fixture
def chunk(rig: Rig) -> int:
    """The number of a chunk of 100 bytes."""
    return rig.tx.chunks.add(CutRow(b"\x01" * 32, 100, *rig.journal.append(bytes(100))))


def parts(rig: Rig, ino: int = INO) -> list[tuple[int, int]]:
    return [(one.offset, one.length) for one in rig.tx.contents.parts_between(ino, 0, 1000, 100)]


def test_parts_that_touch_a_range(rig: Rig, chunk: int) -> None:
    contents = rig.tx.contents
    contents.add_parts([(INO, 0, 100, chunk, 0), (INO, 100, 50, chunk, 0), (INO, 300, 80, chunk, 0)])
    assert parts(rig) == [(0, 100), (100, 50), (300, 80)] and parts(rig, OTHER) == []
    assert [one.offset for one in contents.parts_between(INO, 99, 101, 100)] == [0, 100]
    assert contents.parts_between(INO, 150, 300, 100) == []
    contents.set_parts(INO, [(INO, 20, 5, chunk, 0)])
    assert parts(rig) == [(20, 5)]


@pytest.mark.parametrize(
    ("size", "left", "less"),
    [
        (0, [], 230),
        (30, [(0, 30)], 200),
        (100, [(0, 100)], 130),
        (120, [(0, 100), (100, 20)], 110),
        (200, [(0, 100), (100, 50)], 80),
        (380, [(0, 100), (100, 50), (300, 80)], 0),
    ],
)
def test_a_file_is_cut_off(rig: Rig, chunk: int, size: int, left: list[tuple[int, int]], less: int) -> None:
    rig.tx.contents.add_parts(
        [
            (INO, 0, 100, chunk, 0),
            (INO, 100, 50, chunk, 0),
            (INO, 300, 80, chunk, 0),
            (OTHER, 300, 80, chunk, 0),
        ]
    )
    assert rig.tx.contents.cut_off(INO, size) == less
    assert parts(rig) == left and parts(rig, OTHER) == [(300, 80)]


def test_new_parts_take_the_place_of_those_in_their_regions(rig: Rig, chunk: int) -> None:
    contents = rig.tx.contents
    contents.add_parts([(INO, 0, 100, chunk, 0), (INO, 100, 50, chunk, 0), (INO, 300, 80, chunk, 0)])
    contents.replace_parts(INO, [(100, 300)], [(INO, 110, 10, chunk, 0), (INO, 130, 20, chunk, 0)])
    assert parts(rig) == [(0, 100), (110, 10), (130, 20), (300, 80)]


def test_files_that_are_unlisted_and_their_pages(rig: Rig, chunk: int) -> None:
    contents = rig.tx.contents
    contents.leave_unlisted(INO, b"value")
    contents.add_pages([(INO, chunk), (INO, chunk), (OTHER, chunk)])
    assert contents.unlisted() == {INO}
    assert contents.value_unlisted(INO) == b"value" and contents.value_unlisted(OTHER) is None
    contents.end_unlisted(INO)
    assert contents.unlisted() == set()
    contents.drop_pages(OTHER)
    assert rig.db.rows.execute("SELECT ino, chunk FROM content_page").fetchall() == [(INO, chunk)]
    contents.add_parts([(INO, 0, 100, chunk, 0)])
    contents.clear(INO)
    assert parts(rig) == [] and not rig.db.rows.execute("SELECT 1 FROM content_page").fetchall()


def test_recent_parts_are_those_of_the_table(rig: Rig, chunk: int) -> None:
    """In each window of 16 MiB, at its borders and across them, with holes, and after every change."""
    random = Random(1)
    recent, contents = RecentParts(), rig.tx.contents
    for ino in (INO, INO + 1):
        parts, at = list[Part](), 0
        while at < 40 << 20:
            length = random.randrange(1, 1 << 20)
            if random.random() < 0.8:
                parts.append((ino, at, length, chunk, 0))
            at += length
        contents.set_parts(ino, parts)
    for round_ in range(400):
        ino, start = INO + round_ % 2, random.randrange(41 << 20)
        if round_ % 10 == 0:
            start = (16 << 20) * random.randrange(3) + random.randrange(-2, 3)
        end = max(start, 0) + random.choice((1, 4096, 1 << 20))
        found = recent.between(rig.tx, ino, max(start, 0), end)
        assert list(found) == contents.parts_between(ino, max(start, 0), end, MAX_CHUNK)
        if round_ % 50 == 49:
            contents.cut_off(ino, (40 << 20) - (round_ << 16))


def test_parts_that_were_read_are_not_asked_for_again(rig: Rig, chunk: int) -> None:
    rig.tx.contents.set_parts(INO, [(INO, number << 20, 1 << 20, chunk, 0) for number in range(48)])
    recent, statements = RecentParts(most=40), list[str]()
    rig.db.connection.set_trace_callback(statements.append)
    for _ in range(3):
        assert recent.between(rig.tx, INO, 5, 6)
        assert recent.between(rig.tx, INO, 20 << 20, 21 << 20)
    assert len(statements) == 2
    assert recent.between(rig.tx, INO, 33 << 20, 34 << 20)  # now they are more than are kept
    assert recent.between(rig.tx, INO, 5, 6)
    rig.db.connection.set_trace_callback(None)
    assert len(statements) == 4
