"""What a member calls its device goes into names of files, of which others make shells and terminals."""

from __future__ import annotations

import sys

import pytest

from hybrisfs.merge.names import Author, conflict_name, is_conflict_name
from hybrisfs.registers.tree import MAX_NAME

NOON = 1_795_521_600 * 1_000_000_000


def named(device: str) -> str:
    return conflict_name(b"notes.txt", Author(device, NOON)).decode()


def test_every_character_of_a_name_can_be_shown() -> None:
    for start in range(0, sys.maxunicode + 1, 16):
        device = "".join(map(chr, range(start, start + 16)))
        name = named(device)
        assert name.isprintable(), f"{start:x}"
        assert is_conflict_name(name.encode())
        assert name.startswith("notes (conflict, ") and name.endswith(", 2026-11-24).txt")


@pytest.mark.parametrize(
    ("device", "shown"),
    [
        ("evil\x1b]0;pwned\x07", "evil-]0;pwned-"),
        ("a/../b", "a----b"),
        ("two\nlines\r\0", "two-lines--"),
        ("\u202etxt\u2066.\u200b\u2028", "-txt----"),
        ("\x85\x9b31m", "--31m"),
        ("\ufeff\udcff\ue000", "---"),
        ("non\xa0breaking\xadhyphen", "non-breaking-hyphen"),
        ("Zoë's ThinkPad", "Zoë's ThinkPad"),
        ("Ноутбук", "Ноутбук"),
        ("笔记本电脑", "笔记本电脑"),
    ],
)
def test_what_cannot_be_shown_becomes_a_hyphen(device: str, shown: str) -> None:
    assert named(device) == f"notes (conflict, {shown}, 2026-11-24).txt"


def test_a_long_name_stays_one() -> None:
    name = conflict_name(b"n" * MAX_NAME, Author("\x1b€" * 500, NOON), 10**6)
    assert len(name) <= MAX_NAME
    assert name.decode().isprintable()
