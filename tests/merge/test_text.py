"""Texts are merged by their lines; nothing that anybody has written is lost, and nothing is there twice."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from hybrisfs.merge import text as module
from hybrisfs.merge.text import LARGEST, is_text, merge_texts

BEFORE = b"".join(b"line %d\n" % number for number in range(10))


def merged(before: bytes, *texts: bytes) -> bytes | None:
    return merge_texts(before, texts).content


def test_changes_in_different_places() -> None:
    first = BEFORE.replace(b"line 2\n", b"ada's 2\n")
    second = BEFORE.replace(b"line 7\n", b"")
    third = b"above all\n" + BEFORE
    expected = b"above all\n" + BEFORE.replace(b"line 2\n", b"ada's 2\n").replace(b"line 7\n", b"")
    for texts in itertools.permutations((first, second, third)):
        assert merged(BEFORE, *texts) == expected


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (BEFORE.replace(b"line 5", b"ada's"), BEFORE.replace(b"line 5", b"bob's")),
        (BEFORE.replace(b"line 5", b"ada's"), BEFORE.replace(b"line 6", b"bob's")),  # nothing between them
        (BEFORE.replace(b"line 5\n", b""), BEFORE.replace(b"line 5", b"bob's")),
        (BEFORE.replace(b"line 5\n", b"line 5\nada's\n"), BEFORE.replace(b"line 5\n", b"line 5\nbob's\n")),
        (BEFORE.replace(b"line 9", b"ada's"), BEFORE + b"bob's\n"),
        (b"ada's\n" + BEFORE, b"bob's\n" + BEFORE),
        (b"", BEFORE + b"bob's\n"),
        (b"", BEFORE.replace(b"line 5", b"bob's")),
    ],
)
def test_changes_that_meet_are_for_a_person(first: bytes, second: bytes) -> None:
    for texts in ((first, second), (second, first)):
        found = merge_texts(BEFORE, texts)
        assert found.content is None
        assert "same lines" in found.why


def test_two_who_fill_an_empty_file_have_not_appended_to_a_list() -> None:
    assert merged(b"", b"ada's\n", b"bob's\n") is None
    assert merged(b"", b"both\n", b"both\n") == b"both\n"


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        (b"milk\n", b"tea\n", b"milk\ntea\n"),
        (b"milk\n", b"milk\n", b"milk\n"),
        (b"milk\n", b"milk\ntea\n", b"milk\ntea\n"),
        (b"milk\ntea\n", b"milk\n", b"milk\ntea\n"),
        (b"milk\ntea\n", b"milk\njam\n", b"milk\ntea\njam\n"),
        (b"\nMonday\n", b"\nTuesday\n", b"\nMonday\n\nTuesday\n"),  # paragraphs stay apart
        (b"milk\n\ntea\n", b"milk\n\njam\n", b"milk\n\ntea\n\njam\n"),
    ],
)
def test_what_both_append_is_all_there_once(first: bytes, second: bytes, expected: bytes) -> None:
    assert merged(BEFORE, BEFORE + first, BEFORE + second) == BEFORE + expected


def test_a_list_without_a_newline_at_the_end() -> None:
    assert merged(b"one\ntwo", b"one\ntwo\nada's", b"one\ntwo\nbob's") == b"one\ntwo\nada's\nbob's"
    assert merged(b"one\ntwo", b"one\ntwo\nada's\n", b"one\ntwo\nbob's\n") == b"one\ntwo\nada's\nbob's\n"
    assert merged(b"one\n", b"one", b"none\n\none\n") == b"none\n\none"


def test_line_ends_of_other_systems_stay() -> None:
    before = BEFORE.replace(b"\n", b"\r\n")
    first, second = before.replace(b"line 1", b"ada's"), before + b"bob's\r\n"
    assert merged(before, first, second) == first + b"bob's\r\n"


@pytest.mark.parametrize("bad", [b"a\0b", b"\xff\xfe", b"\xc3"])
def test_what_is_no_text_is_not_merged(bad: bytes) -> None:
    assert not is_text(bad)
    for texts in ((BEFORE, BEFORE, bad), (BEFORE, bad, BEFORE), (bad, BEFORE, BEFORE)):
        found = merge_texts(texts[0], texts[1:])
        assert (found.content, found.why) == (None, "not all of them are text")


@pytest.mark.parametrize("large", [b"x" * (LARGEST + 1), b"\n" * 300_000])
def test_what_is_too_large_is_not_merged(large: bytes) -> None:
    found = merge_texts(BEFORE, (BEFORE, large))
    assert found.content is None
    assert "4 MiB" in found.why


# -- any texts -----------------------------------------------------------------------------------

LINES = st.lists(st.sampled_from([b"", b"a", b"b", b"c", b"d", b"  ", b"e\r"]), max_size=12)


@st.composite
def texts(draw: st.DrawFn) -> bytes:
    return b"\n".join(draw(LINES)) + draw(st.sampled_from([b"", b"\n"]))


@given(texts(), texts())
def test_one_who_changes_something_gets_it(before: bytes, after: bytes) -> None:
    assert merged(before, after) == after
    assert merged(before, before, after) == after
    assert merged(before, after, before) == after
    assert merged(before, after, after) == after


@given(texts(), texts())
def test_changes_lead_from_one_text_to_the_other(before: bytes, one: bytes) -> None:
    lines, after = before.split(b"\n"), one.split(b"\n")
    found: list[bytes] = []
    at = -1
    for hunk in module._hunks(lines, after):
        assert hunk.start > at  # equal lines are between two
        found += [*lines[max(at, 0) : hunk.start], *hunk.lines]
        at = hunk.end
    assert found + lines[max(at, 0) :] == after


@given(texts(), texts(), texts())
@example(b"\n", b"\n\n", b"\na")  # an empty line is a line, at the end, too
def test_the_order_of_texts_matters_for_what_is_appended_only(before: bytes, one: bytes, two: bytes) -> None:
    first, second = merged(before, one, two), merged(before, two, one)
    assert (first is None) == (second is None)
    if first is not None and second is not None:
        assert lines_of(first) == lines_of(second)


def lines_of(text: bytes) -> Counter[bytes]:
    return Counter(text.removesuffix(b"\n").split(b"\n"))


@st.composite
def edits(draw: st.DrawFn) -> tuple[list[bytes], list[list[bytes]]]:
    """A text of some lines that differ, and what two or three people make of it: each takes lines away and
    writes lines that nobody else writes."""
    before = [b"line %d" % number for number in range(draw(st.integers(1, 14)))]
    after = []
    for who in range(draw(st.integers(2, 3))):
        numbers = itertools.count()
        lines: list[bytes] = []
        for line in [*before, None]:
            written = draw(st.sampled_from([0, 0, 0, 0, 0, 1, 2]))
            lines += [b"token %d of %d" % (next(numbers), who) for _ in range(written)]
            if line is not None and draw(st.sampled_from([True] * 7 + [False])):
                lines.append(line)
        after.append(lines)
    return before, after


@given(edits())
def test_what_anybody_wrote_is_there_and_what_anybody_took_away_is_not(
    case: tuple[list[bytes], list[list[bytes]]],
) -> None:
    before, after = case
    found = merged(b"\n".join(before), *(b"\n".join(one) for one in after))
    if found is None:
        return
    lines = found.split(b"\n") if found else []
    assert len(lines) == len(set(lines))
    written = {line for one in after for line in one if line.startswith(b"token")}
    kept = {line for line in before if all(line in one for one in after)}
    assert set(lines) - {b""} == written | kept
    for one in after:  # in the order in which each wrote them
        assert [line for line in lines if line in one] == [line for line in one if line in lines]


def _halved(depth: int, mark: bytes) -> list[bytes]:
    """Two halves alike: only the line in the middle is there once, and so on in each half."""
    if not depth:
        return [mark]
    inner = _halved(depth - 1, mark)
    return [*inner, b"%d" % depth, *inner]


def _peeled(depth: int, mark: bytes) -> list[bytes]:
    """What is behind a line that is there once has another one, and so on."""
    return [line for one in range(depth, 0, -1) for line in (b"%d" % (one - 1), mark, b"%d" % one)]


@pytest.mark.parametrize(("lines", "depth"), [(_halved, 12), (_peeled, 500)])
def test_work_is_bounded(
    monkeypatch: pytest.MonkeyPatch, lines: Callable[[int, bytes], list[bytes]], depth: int
) -> None:
    """Texts in which other lines are there once, the deeper one looks."""
    looked = 0
    only = module._only

    def counting(lines: list[bytes], start: int, end: int) -> dict[bytes, int]:
        nonlocal looked
        looked += end - start
        return only(lines, start, end)

    monkeypatch.setattr(module, "_only", counting)
    before, after = lines(depth, b"x"), lines(depth, b"y")
    merge_texts(b"\n".join(before), (b"\n".join(after),) * 2)
    assert len(before) < looked <= 2 * 33 * (len(before) + len(after))
