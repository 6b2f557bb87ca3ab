"""What the contents of files are made of: parts, pages, and files whose parts are not known yet."""

from __future__ import annotations

import pytest

from hybrisfs.state.chunk_states import CutRow
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
    contents.add_parts([(INO, 0, 100, chunk), (INO, 100, 50, chunk), (INO, 300, 80, chunk)])
    assert parts(rig) == [(0, 100), (100, 50), (300, 80)] and parts(rig, OTHER) == []
    assert [one.offset for one in contents.parts_between(INO, 99, 101, 100)] == [0, 100]
    assert contents.parts_between(INO, 150, 300, 100) == []
    contents.set_parts(INO, [(INO, 20, 5, chunk)])
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
        [(INO, 0, 100, chunk), (INO, 100, 50, chunk), (INO, 300, 80, chunk), (OTHER, 300, 80, chunk)]
    )
    assert rig.tx.contents.cut_off(INO, size) == less
    assert parts(rig) == left and parts(rig, OTHER) == [(300, 80)]


def test_new_parts_take_the_place_of_those_in_their_regions(rig: Rig, chunk: int) -> None:
    contents = rig.tx.contents
    contents.add_parts([(INO, 0, 100, chunk), (INO, 100, 50, chunk), (INO, 300, 80, chunk)])
    contents.replace_parts(INO, [(100, 300)], [(INO, 110, 10, chunk), (INO, 130, 20, chunk)])
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
    contents.add_parts([(INO, 0, 100, chunk)])
    contents.clear(INO)
    assert parts(rig) == [] and not rig.db.rows.execute("SELECT 1 FROM content_page").fetchall()
