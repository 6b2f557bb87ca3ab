"""Patterns mean what they mean to git, and cost no more than their length says."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from hybrisfs.kinds import IGNORE_RULE
from hybrisfs.registers.ignore_rules import (
    MOST_PARTS,
    MOST_RULES,
    MOST_STARS,
    PATTERN_BYTES,
    Rules,
    check_rule,
    encode_rank,
    parse_pattern,
    pattern_of,
    ranks,
    rule_key,
)
from hybrisfs.registers.values import Stamp, Value
from sync import DecodeError
from tests.system.shell import tool


def ignores(path: str, *patterns: str) -> bool | None:
    return Rules(patterns).verdict(path.rstrip("/").split("/"), is_directory=path.endswith("/"))


@pytest.mark.parametrize(
    ("pattern", "matched", "others"),
    [
        ("*.o", ["a.o", "x/y/a.o", "a.o/", ".o"], ["a.oo", "a"]),
        ("build/", ["build/", "x/build/"], ["build", "builds/"]),
        ("/out", ["out", "out/"], ["x/out"]),
        ("doc/*.txt", ["doc/a.txt"], ["doc/x/a.txt", "x/doc/a.txt"]),
        ("**/logs", ["logs", "a/logs", "a/b/logs/"], ["logs/a"]),
        ("a/**", ["a/b", "a/b/c"], ["a/", "b/a/c"]),
        ("a/**/b", ["a/b", "a/x/b", "a/x/y/b"], ["a/bb", "x/a/b", "ab"]),
        ("a/**/b/**/c", ["a/b/c", "a/x/b/y/c"], ["a/c/b", "a/b"]),
        ("[a-c]?", ["ax", "bb"], ["dx", "a", "abc"]),
        ("[!a-c]", ["d", "-"], ["a"]),
        ("[]]", ["]"], ["[]"]),
        ("\\!x", ["!x"], ["x"]),
        ("a\\*b", ["a*b"], ["axb"]),
        ("x**y", ["xy", "xaby"], ["x/y"]),
        ("ä*", ["ärger"], ["a"]),
    ],
)
def test_what_a_pattern_matches(pattern: str, matched: list[str], others: list[str]) -> None:
    assert [path for path in [*matched, *others] if ignores(path, pattern)] == matched


def test_the_last_one_that_matches_counts() -> None:
    patterns = "*.log", "!keep.log", "/x/*"
    assert ignores("a.log", *patterns) is True
    assert ignores("keep.log", *patterns) is False
    assert ignores("x/keep.log", *patterns) is True
    assert ignores("a.txt", *patterns) is None


@pytest.mark.parametrize(
    "text",
    [
        "", "*", "**", "/", "!*", "*/*", "?", "#note", "a\nb", "a\x00b", "[a", "[b-a]", "[[:alpha:]]", "a\\",
        "a//b", "x" * (PATTERN_BYTES + 1), "/".join("x" * (MOST_PARTS + 1)), "a" + "*a" * (MOST_STARS + 1),
        "\udc80",
    ],
)  # fmt: skip
def test_what_is_no_pattern(text: str) -> None:
    with pytest.raises(ValueError):
        parse_pattern(text)


def test_blanks_around_it_are_nothing() -> None:
    assert parse_pattern(" node_modules/ ") == "node_modules/"


def test_a_rule_is_a_register() -> None:
    key = rule_key("*.o")
    assert pattern_of(key) == "*.o"
    check_rule(key, encode_rank(3))
    for other, value in (
        (IGNORE_RULE.key(b"*"), encode_rank(1)),
        (IGNORE_RULE.key(b"\xff"), encode_rank(1)),
        (key, b""),
        (key, encode_rank(1) + b"x"),
        (key, b"\2" + encode_rank(1)[1:]),
    ):
        with pytest.raises(DecodeError):
            check_rule(other, value)


def test_rules_stand_in_the_order_of_their_ranks() -> None:
    def value(rank: int, clock: int = 1) -> Value:
        return Value(Stamp(clock, b"b" * 16), encode_rank(rank))

    registers = {
        rule_key("b"): [value(1)],
        rule_key("a"): [value(2)],
        rule_key("c"): [value(1)],
        rule_key("gone"): [value(0)],
        rule_key("added again"): [value(0, 2), value(5)],
        rule_key("x"): [Value(Stamp(1, b"b" * 16), b"nonsense")],
    }
    assert list(map(pattern_of, ranks(registers))) == ["b", "c", "a", "added again"]


def test_no_more_rules_hold_than_can_be_looked_at() -> None:
    rules = Rules(f"name{number}" for number in range(MOST_RULES + 1))
    assert rules.verdict([f"name{MOST_RULES - 1}"], is_directory=False)
    assert rules.verdict([f"name{MOST_RULES}"], is_directory=False) is None


def test_no_pattern_takes_long() -> None:
    """Each of these takes a backtracking matcher longer than the world has been there."""
    name = "a" * 255
    path = ["a"] * 2000
    for pattern in (
        "*a" * MOST_STARS + "b",
        "a*" * MOST_STARS + "b",
        "**/a/" * 3 + "b",
        "?*" * MOST_STARS + "b",
    ):
        assert ignores(name, pattern) is None
        assert Rules([pattern]).verdict(path, is_directory=False) is None


PIECES = st.lists(
    st.sampled_from(["a", "b", "*", "**", "?", "/", "[ab]", "[!a]", ".", "\\*"]), min_size=1, max_size=6
)
PATHS = st.lists(
    st.text("ab.*", min_size=1, max_size=3).filter(lambda name: name not in (".", "..")),
    min_size=1,
    max_size=4,
)


@example(pieces=["a", "**", "/", "a"], paths=[["a", "*", "a"]])
@given(pieces=PIECES, paths=st.lists(PATHS, min_size=1, max_size=6))
def test_git_thinks_so_too(
    tmp_path_factory: pytest.TempPathFactory, pieces: list[str], paths: list[list[str]]
) -> None:
    try:
        pattern = parse_pattern("".join(pieces))
    except ValueError:
        return
    folder = tmp_path_factory.getbasetemp() / "git"
    if not folder.exists():
        subprocess.run([tool("git"), "init", "-q", folder], check=True)
    (folder / ".git" / "info" / "exclude").write_text(f"{_as_documented(pattern)}\n")
    asked = sorted({"/".join(path) for path in paths})
    for path in asked:
        expected = _git_ignores(folder, path)
        names = path.split("/")
        rules = Rules([pattern])
        above = any(rules.verdict(names[:length], is_directory=True) for length in range(1, len(names)))
        assert (above or bool(rules.verdict(names, is_directory=False))) is expected, (pattern, path)


def _as_documented(pattern: str) -> str:
    """The pattern with one star for each run of stars beside something else: gitignore(5) takes them as one.

    git before 2.40 compares pointers into two buffers there, and often lets such a run match slashes.
    """

    def one_star(name: str) -> str:
        return re.sub(r"(\\.)|\*+", lambda match: match[1] or "*", name)

    return "/".join(name if set(name) == {"*"} else one_star(name) for name in pattern.split("/"))


def _git_ignores(folder: Path, path: str) -> bool:
    run = subprocess.run(
        ["git", "-C", folder, "check-ignore", "-q", "--no-index", "--", path], check=False, timeout=30
    )
    assert run.returncode in (0, 1)
    return run.returncode == 0
