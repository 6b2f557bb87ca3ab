"""Texts that were changed at the same time become one: a three-way merge by lines, as one pure function.

Each text is compared with the text before both. A change is a range of the lines before, and the lines that
stand there instead. Changes are all made when an unchanged line is between any two of different texts; what
all have changed alike is changed once. Lines that several append to the end stand one after the other, in the
order in which the texts are given; a beginning that they share stands there once. All else is for a person.

The comparison is that of *patience diff* (Bram Cohen): lines that are there once in both texts, in the same
order, are taken for the same, and so are the lines before and behind these while they are equal. It may find
more changed than a shortest edit script would: then a person decides where a program could have. Never does
it take lines for the same that are not. It has no other state than the lines, so each device finds the same.

Time is O(n log n) for n lines, at most `_DEEPEST` times.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

__all__ = ["LARGEST", "Merge", "is_text", "merge_texts"]

LARGEST: Final = 4 << 20
"""Bytes of a text that is merged."""
_MOST_LINES: Final = 200_000
_DEEPEST: Final = 32

_NO_TEXT: Final = "not all of them are text"
_TOO_LARGE: Final = f"texts of more than {LARGEST >> 20} MiB or {_MOST_LINES:,} lines are not merged"
_OVERLAP: Final = "they change the same lines, or lines beside each other"


class Merge(NamedTuple):
    """The merged text; or None, and *why* there is none, as part of a sentence."""

    content: bytes | None
    why: str


class _Text(NamedTuple):
    """*ended*: whether a newline is behind the last line, too. An empty text counts as ended."""

    lines: Sequence[bytes]
    ended: bool


class _Hunk(NamedTuple):
    """Instead of the lines from *start* to *end* of the text before, there are these."""

    start: int
    end: int
    lines: Sequence[bytes]


def merge_texts(before: bytes, texts: Sequence[bytes]) -> Merge:
    """What becomes of *before* when all changes are made that lead to each of *texts*."""
    if any(len(one) > LARGEST or one.count(b"\n") > _MOST_LINES for one in (before, *texts)):
        return Merge(None, _TOO_LARGE)
    if not all(map(is_text, (before, *texts))):
        return Merge(None, _NO_TEXT)
    base, merged = _split(before), _split(texts[0])
    for one in map(_split, texts[1:]):
        lines = _merge_lines(base.lines, merged.lines, one.lines)
        if lines is None:
            return Merge(None, _OVERLAP)
        ended = one.ended if merged.ended == base.ended else merged.ended
        merged = _Text(lines, ended or not lines or not lines[-1])  # an empty line has an end
    return Merge(_join(merged), "")


def is_text(content: bytes) -> bool:
    """Whether it is UTF-8 without NUL."""
    if b"\0" in content:
        return False
    try:
        content.decode()
    except UnicodeDecodeError:
        return False
    return True


def _split(content: bytes) -> _Text:
    if not content:
        return _Text((), True)
    lines = content.split(b"\n")
    ended = not lines[-1]
    return _Text(lines[:-1] if ended else lines, ended)


def _join(text: _Text) -> bytes:
    content = b"\n".join(text.lines)
    return content + b"\n" if text.ended and text.lines else content


def _merge_lines(
    before: Sequence[bytes], first: Sequence[bytes], second: Sequence[bytes]
) -> list[bytes] | None:
    """The lines with the changes of both; None when these meet."""
    hunks = _together(_hunks(before, first), _hunks(before, second), len(before))
    if hunks is None:
        return None
    found: list[bytes] = []
    at = 0
    for one in hunks:
        found += before[at : one.start]
        found += one.lines
        at = one.end
    found += before[at:]
    return found


def _together(first: list[_Hunk], second: list[_Hunk], length: int) -> list[_Hunk] | None:
    """The hunks of both, in order; None when two meet. *length*: how many lines were there before."""
    found: list[_Hunk] = []
    i = j = 0
    while i < len(first) and j < len(second):
        one, other = first[i], second[j]
        if one == other:
            found.append(one)
            i, j = i + 1, j + 1
        elif one.end < other.start:
            found.append(one)
            i += 1
        elif other.end < one.start:
            found.append(other)
            j += 1
        elif length and one.start == one.end == other.start == other.end == length:
            found.append(_Hunk(length, length, _both(one.lines, other.lines)))
            i, j = i + 1, j + 1
        else:
            return None
    return [*found, *first[i:], *second[j:]]


def _both(first: Sequence[bytes], second: Sequence[bytes]) -> list[bytes]:
    """What both have appended: the beginning that they share once, then the rest of each. Empty lines at the
    end of that beginning stand between paragraphs: each keeps its own."""
    shared = next(
        (at for at, (one, other) in enumerate(zip(first, second, strict=False)) if one != other),
        min(len(first), len(second)),
    )
    if shared < min(len(first), len(second)):
        while shared and not first[shared - 1].strip():
            shared -= 1
    return [*first, *second[shared:]]


# -- what has changed between two texts -----------------------------------------------------------------


def _hunks(before: Sequence[bytes], after: Sequence[bytes]) -> list[_Hunk]:
    """The changes that lead from *before* to *after*, in order, with equal lines between any two."""
    found: list[_Hunk] = []
    at_before = at_after = 0
    for one, other, length in [*sorted(_alike(before, after)), (len(before), len(after), 0)]:
        if at_before < one or at_after < other:
            found.append(_Hunk(at_before, one, after[at_after:other]))
        at_before, at_after = one + length, other + length
    return found


def _alike(before: Sequence[bytes], after: Sequence[bytes]) -> Iterator[tuple[int, int, int]]:
    """Where the same lines are in both, and how many."""
    waiting = [(0, len(before), 0, len(after), 0)]
    while waiting:
        start, end, other, other_end, depth = waiting.pop()
        length = 0
        while start + length < end and other + length < other_end:
            if before[start + length] != after[other + length]:
                break
            length += 1
        if length:
            yield start, other, length
            start, other = start + length, other + length
        length = 0
        while end - length > start and other_end - length > other:
            if before[end - length - 1] != after[other_end - length - 1]:
                break
            length += 1
        if length:
            end, other_end = end - length, other_end - length
            yield end, other_end, length
        if start == end or other == other_end or depth == _DEEPEST:
            continue
        anchors = _in_order(_once_in_both(before, start, end, after, other, other_end))
        for one, another in anchors:
            # Each anchor begins the piece that is up to the next one.
            waiting.append((start, one, other, another, depth + 1))
            start, other = one, another
        if anchors:
            waiting.append((start, end, other, other_end, depth + 1))


def _once_in_both(
    before: Sequence[bytes], start: int, end: int, after: Sequence[bytes], other: int, other_end: int
) -> list[tuple[int, int]]:
    """Where the lines are that are there once in a range of each, in the order of *before*."""
    here, there = _only(before, start, end), _only(after, other, other_end)
    return [(at, there[line]) for line, at in here.items() if at >= 0 and there.get(line, -1) >= 0]


def _only(lines: Sequence[bytes], start: int, end: int) -> dict[bytes, int]:
    """Where each line of a range is; -1 when it is there more than once."""
    found: dict[bytes, int] = {}
    for at in range(start, end):
        found[lines[at]] = -1 if lines[at] in found else at
    return found


def _in_order(pairs: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """The most of the pairs, which ascend by their first numbers, that ascend by the second ones, too."""
    lowest: list[int] = []  # the lowest end of a row with so many pairs
    ends: list[int] = []  # which pair that is
    previous: list[int] = []
    for number, (_, value) in enumerate(pairs):
        at = bisect_left(lowest, value)
        previous.append(ends[at - 1] if at else -1)
        lowest[at : at + 1] = [value]
        ends[at : at + 1] = [number]
    found: list[tuple[int, int]] = []
    number = ends[-1] if ends else -1
    while number >= 0:
        found.append(pairs[number])
        number = previous[number]
    return found[::-1]
