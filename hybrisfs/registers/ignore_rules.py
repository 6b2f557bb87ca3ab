"""Ignore rules: which new files stay on the device that made them. Each rule is a register of its own, so
that devices add and remove rules without knowing of each other.

===========  ======================================  ======================================================
register     key                                     value
===========  ======================================  ======================================================
ignore rule  ``u`` pattern (1 .. 255 bytes, UTF-8)   version u8 = 1, rank u32: 0 the rule was removed; else
                                                     where it stands among the others
===========  ======================================  ======================================================

Of concurrent values the highest rank counts: the device that removed the rule had not seen that another
adds it. Rules stand in the order of their ranks, then of their patterns. `MOST_RULES` hold, the first ones.

A pattern is one of gitignore(5), about the path from the root of the volume. Not all that git takes is one,
so that nobody can make the others' devices calculate for long, or keep everything by one word: no control
characters, no blank at the ends, no classes like ``[:alpha:]``, `MOST_PARTS` names with slashes between them
and `MOST_STARS` stars at most, and something besides slashes and wildcards. Upper case and lower case differ.

Of the rules that match a path the last one counts: it ignores it, or, with ``!`` in front, does not. What is
in an ignored folder is ignored, whatever the rules say of it.
"""

from __future__ import annotations

import re
from bisect import bisect_left, insort
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Final

from msgspec import Struct

from hybrisfs.kinds import IGNORE_RULE
from hybrisfs.registers.values import Value
from sync.codec import DecodeError, Reader, Writer

__all__ = [
    "HIGHEST_RANK",
    "MOST_RULES",
    "PATTERN_BYTES",
    "Pattern",
    "Ranking",
    "Rules",
    "check_rule",
    "encode_rank",
    "parse_pattern",
    "pattern_of",
    "ranks",
    "rule_key",
]

PATTERN_BYTES: Final = 255
"""That a pattern has at most."""
MOST_RULES: Final = 128
HIGHEST_RANK: Final = (1 << 32) - 1
MOST_PARTS: Final = 8
MOST_STARS: Final = 16
_VERSION: Final = 1
_UNFIT: Final = re.compile(r"[\x00-\x1f\x7f-\x9f]|^ | $")
_WILD: Final = frozenset("*?/")
_ANY_FOLDERS: Final = "**"


# -- registers ------------------------------------------------------------------------------------------


def rule_key(pattern: str) -> bytes:
    """The register of the rule with a pattern."""
    return IGNORE_RULE.key(pattern.encode())


def pattern_of(key: bytes) -> str:
    """The pattern of the rule that a register is of, whose key is one that `check_rule` allows."""
    return key[IGNORE_RULE.size :].decode()


def encode_rank(rank: int) -> bytes:
    """The value of a rule that stands there; 0: it was removed."""
    return Writer().u8(_VERSION).u32(rank).getvalue()


def _decode_rank(value: bytes) -> int:
    reader = Reader(value)
    if reader.u8() != _VERSION:
        raise DecodeError("an ignore rule of another version")
    rank = reader.u32()
    reader.end()
    return rank


def check_rule(key: bytes, value: bytes) -> None:
    """Raises DecodeError unless this is the key of a rule and a value that it may have."""
    try:
        Pattern.parse(pattern_of(key))
    except ValueError as error:  # UnicodeDecodeError is one
        raise DecodeError("a pattern that no rule has") from error
    _decode_rank(value)


def ranks(registers: Mapping[bytes, Iterable[Value]]) -> dict[bytes, tuple[int, Value]]:
    """Of each register of a rule that is there its rank, and the value that says so, by rank, then by key.
    *registers*: those of the kind, with their latest values."""
    found: dict[bytes, tuple[int, Value]] = {}
    for key, values in registers.items():
        for one in values:
            try:
                check_rule(key, one.value or b"")
                rank = _decode_rank(one.value or b"")
            except DecodeError:
                continue  # an earlier version kept it unread
            if rank > found.get(key, (0, one))[0]:
                found[key] = rank, one
    return dict(sorted(found.items(), key=lambda item: (item[1][0], item[0])))


class Ranking:
    """The registers of all rules that are there, in the order of the rules, while values come and go."""

    def __init__(self) -> None:
        self._ranks: dict[bytes, int] = {}
        self._order: list[tuple[int, bytes]] = []

    def note(self, registers: Mapping[bytes, Iterable[Value]], keys: Iterable[bytes]) -> None:
        """The registers with these *keys* may have other values: those in *registers*, or none."""
        found = ranks(registers)
        for key in keys:
            rank, before = found[key][0] if key in found else 0, self._ranks.pop(key, 0)
            if before:
                del self._order[bisect_left(self._order, (before, key))]
            if rank:
                self._ranks[key] = rank
                insort(self._order, (rank, key))

    def __contains__(self, key: object) -> bool:
        return key in self._ranks

    def __len__(self) -> int:
        return len(self._order)

    @property
    def last(self) -> int:
        """The rank of the last rule; 0 when there is none."""
        return self._order[-1][0] if self._order else 0

    def first(self, most: int = MOST_RULES) -> list[bytes]:
        """The keys of the first *most* rules."""
        return [key for _, key in self._order[:most]]


# -- patterns -------------------------------------------------------------------------------------------


class Pattern(Struct, frozen=True):
    """A pattern that has been read."""

    includes: bool
    """What it matches is not ignored."""
    folders_only: bool
    parts: tuple[re.Pattern[str] | None, ...]
    """What the names along a path match; None: any folders, or none. A single one is about the last name."""
    is_path: bool
    """It is about the path from where the rules are, not about the last name alone."""

    @staticmethod
    def parse(text: str) -> Pattern:
        """Raises ValueError, which says what is wrong with it."""
        if len(text.encode()) > PATTERN_BYTES:
            raise ValueError(f"a pattern has {PATTERN_BYTES} bytes at most")
        if _UNFIT.search(text):
            raise ValueError("a pattern has no control characters, and no blank at its ends")
        includes = text.startswith("!")
        body = text[includes:]
        folders_only = body.endswith("/")
        body = body.removesuffix("/")
        is_path = "/" in body
        names = body.removeprefix("/").split("/")
        if set(body) <= _WILD:
            raise ValueError("a pattern names something: this one would match everything, or nothing")
        if body.startswith("#"):
            raise ValueError("what begins with # is a comment: write \\#")
        if len(names) > MOST_PARTS:
            raise ValueError(f"a pattern has {MOST_PARTS} names with slashes between them at most")
        if body.count("*") > MOST_STARS:
            raise ValueError(f"a pattern has {MOST_STARS} stars at most")
        if "" in names:
            raise ValueError("there is no name between two slashes")
        parts = [None if name == _ANY_FOLDERS else re.compile(_translated(name), re.DOTALL) for name in names]
        return Pattern(includes, folders_only, tuple(parts), is_path)

    def matches(self, path: Sequence[str], *, is_directory: bool) -> bool:
        """Whether it matches a path, given by its names from where the rules are."""
        if self.folders_only and not is_directory:
            return False
        if not self.is_path:
            [part] = self.parts
            return part is None or part.fullmatch(path[-1]) is not None
        return self._matches_path(path)

    def _matches_path(self, path: Sequence[str]) -> bool:
        """Names between two ``**`` match at the first place where they can: what comes later loses nothing by
        that. So each of them looks at each name once for each of its own names."""
        groups = _groups(self.parts)
        first, at = groups[0], 0
        if len(groups) == 1:
            return len(first) == len(path) and _match_at(first, path, 0)
        if not _match_at(first, path, 0):
            return False
        at, last = len(first), groups[-1]
        for group in groups[1:-1]:
            while at + len(group) <= len(path) and not _match_at(group, path, at):
                at += 1
            at += len(group)
        end = len(path) - len(last)
        # A pattern that ends with ** matches what is in the folder, not the folder itself.
        return at <= end and (bool(last) or at < len(path)) and _match_at(last, path, end)


_parsed: Final = lru_cache(4 * MOST_RULES)(Pattern.parse)

_Group = Sequence[re.Pattern[str]]


def _groups(parts: Iterable[re.Pattern[str] | None]) -> list[list[re.Pattern[str]]]:
    groups: list[list[re.Pattern[str]]] = [[]]
    for part in parts:
        if part is None:
            groups.append([])
        else:
            groups[-1].append(part)
    return groups


def _match_at(group: _Group, path: Sequence[str], at: int) -> bool:
    names = path[at : at + len(group)]
    return len(names) == len(group) and all(
        part.fullmatch(name) for part, name in zip(group, names, strict=True)
    )


def _translated(name: str) -> str:
    """One name of a pattern as a regular expression, which takes time in proportion to its length and that of
    what it is compared with: what follows a star matches at the first place where it can (``(?>``)."""
    pieces = [""]
    at = 0
    while at < len(name):
        letter = name[at]
        at += 1
        if letter == "*":
            pieces.append("")
        elif letter == "?":
            pieces[-1] += "."
        elif letter == "[":
            text, at = _class(name, at)
            pieces[-1] += text
        else:
            if letter == "\\":
                if at == len(name):
                    raise ValueError("nothing follows the last backslash")
                letter = name[at]
                at += 1
            pieces[-1] += re.escape(letter)
    if len(pieces) == 1:
        return pieces[0]
    middle = "".join(f"(?>.*?{piece})" for piece in pieces[1:-1])
    return f"{pieces[0]}{middle}.*{pieces[-1]}"


def _class(name: str, at: int) -> tuple[str, int]:
    """The regular expression of a class of characters whose contents begin there, and where it ends."""
    text = "["
    if name[at : at + 1] in ("!", "^"):
        text, at = "[^", at + 1
    ends: list[str] = []  # the characters, and None where a range goes on
    first = True
    while at < len(name) and (first or name[at] != "]"):
        if name.startswith("[:", at):
            raise ValueError("classes like [:alpha:] are not known")
        if name[at] == "\\":
            at += 1
        if at < len(name):
            low = high = name[at]
            at += 1
            if name[at : at + 1] == "-" and name[at + 1 : at + 2] not in ("", "]"):
                high = name[at + 1]
                at += 2
            if high < low:
                raise ValueError(f"there is nothing from {low} to {high}")
            ends.append(f"{re.escape(low)}-{re.escape(high)}" if high != low else re.escape(low))
        first = False
    if at >= len(name):
        raise ValueError("a [ has no ]")
    return f"{text}{''.join(ends)}]", at + 1


def parse_pattern(text: str) -> str:
    """The pattern that a person means. Raises ValueError, which says what is wrong with it."""
    pattern = text.strip()
    Pattern.parse(pattern)
    return pattern


class Rules:
    """Rules in their order."""

    def __init__(self, patterns: Iterable[str] = ()) -> None:
        self.patterns = tuple(patterns)[:MOST_RULES]
        self._last_first = list(map(_parsed, reversed(self.patterns)))

    def __bool__(self) -> bool:
        return bool(self.patterns)

    def verdict(self, path: Sequence[str], *, is_directory: bool) -> bool | None:
        """Whether they ignore a path, given by its names from where they are; None when they do not say."""
        for one in self._last_first:
            if one.matches(path, is_directory=is_directory):
                return not one.includes
        return None
