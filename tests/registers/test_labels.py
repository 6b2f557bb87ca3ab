"""Which words are labels, and how they are written."""

from __future__ import annotations

import pytest

from hybrisfs.kinds import LABEL
from hybrisfs.registers.labels import (
    ADDED,
    LABEL_BYTES,
    TAKEN_AWAY,
    ArchiveAsked,
    archive_asked,
    archive_label,
    as_text,
    check_label,
    from_text,
    label_key,
    parse_label,
    word_of,
)
from sync import DecodeError

NODE = b"\xff" * 16
GOOD = ("a", "two words", "Ärger", "\N{CAT}", "x" * LABEL_BYTES, "a/b=c")
UNFIT = (b"", b" a", b"a ", b"a,b", b"a\nb", b"a\x7f", "a\x85".encode(), b"\xff", b"x" * (LABEL_BYTES + 1))


@pytest.mark.parametrize("word", GOOD)
def test_a_word_is_in_the_key(word: str) -> None:
    key = label_key(NODE, word)
    assert word_of(key) == word
    for value in (ADDED, TAKEN_AWAY):
        check_label(key, value)
    assert parse_label(f" {word}\n") == word


@pytest.mark.parametrize("word", UNFIT)
def test_what_is_no_label(word: bytes) -> None:
    with pytest.raises(DecodeError):
        check_label(LABEL.key(NODE, word), ADDED)


@pytest.mark.parametrize("value", [b"", b"\2", b"\1\1"])
def test_what_a_label_cannot_say(value: bytes) -> None:
    with pytest.raises(DecodeError):
        check_label(label_key(NODE, "word"), value)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("  ", "a word"),
        ("a,b", "comma"),
        ("a\tb", "seen"),
        ("a\u200bb", "seen"),
        ("ä" * 33, "64 bytes"),
        ("\udcff", "seen"),
    ],
)
def test_people_are_told_why_a_word_is_none(text: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        parse_label(text)


def test_letters_with_accents_are_one_label_however_they_are_typed() -> None:
    assert parse_label("e\u0301") == "\u00e9"


def test_as_one_text() -> None:
    assert as_text(["a", "b c"]) == b"a,b c"
    assert from_text(b" b c,a,, a,") == ["b c", "a"]
    assert from_text(b"") == []
    with pytest.raises(ValueError, match="utf-8"):
        from_text(b"\xff")


@pytest.mark.parametrize(
    "asked", [ArchiveAsked(30, None), ArchiveAsked(None, 4), ArchiveAsked(1, 31), ArchiveAsked(3660, 2)]
)
def test_what_is_to_be_archived_is_a_label(asked: ArchiveAsked) -> None:
    word = archive_label(asked)
    check_label(label_key(NODE, word), ADDED)
    assert archive_asked(["other", word]) == asked


@pytest.mark.parametrize("word", [f"archive={one}" for one in ("0/auto", "3661/4", "30/1", "30/32", "30")])
def test_what_asks_for_no_archive(word: str) -> None:
    assert archive_asked([word]) is None


def test_of_several_wishes_the_one_counts_that_archives_last_and_then_the_narrowest() -> None:
    asked = [ArchiveAsked(30, 4), ArchiveAsked(60, None), ArchiveAsked(60, 3), ArchiveAsked(60, 4)]
    words = [archive_label(one) for one in asked]
    assert archive_asked(words) == archive_asked(words[::-1]) == ArchiveAsked(60, 3)
    assert archive_asked([*words, archive_label(ArchiveAsked(None, 4))]) == ArchiveAsked(None, 4)
