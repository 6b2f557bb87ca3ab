"""Each claim of the threat model, and each promise, names tests, and these exist."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from tests.system.device import REPOSITORY

_PAGE = (REPOSITORY / "docs" / "threat-model.md").read_text()
_PROMISES = (REPOSITORY / "docs" / "promises.md").read_text()
_TESTS = REPOSITORY / "tests"
_NAMED = re.compile(r"`([a-z_]+/[a-z_]+\.py)::(test_[a-z0-9_]+)`")
_SECTION = re.compile(r"^## ", re.MULTILINE)
_CLAIM = re.compile(r"^- ", re.MULTILINE)


@cache
def _tests_in(path: Path) -> set[str]:
    tree = ast.parse(path.read_text())
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}


def _claims() -> Iterator[str]:
    """What is promised; not what somebody can do all the same."""
    for section in _SECTION.split(_PAGE):
        for item in _CLAIM.split(section)[1:] if not section.startswith("What is not promised") else ():
            claim = item.partition("\n\n")[0]
            if re.match(r"can\b", claim) is None:
                yield claim


@pytest.mark.parametrize("named", sorted(set(_NAMED.findall(_PAGE + _PROMISES))))
def test_the_tests_that_are_named_exist(named: tuple[str, str]) -> None:
    file, name = named
    assert name in _tests_in(_TESTS / file)


def test_every_claim_names_a_test() -> None:
    assert [claim for claim in _claims() if not _NAMED.search(claim)] == []


def test_every_promise_and_every_event_names_a_test() -> None:
    promised, _, rest = _PROMISES.partition("## What is not promised")
    events, _, kept = rest.partition("## What happens when")[2].partition("## Which tests")
    promises = [
        " ".join(text.split()) for text in re.findall(r"^\*\*(.+?)\*\*", promised, re.MULTILINE | re.DOTALL)
    ]
    events_told = [row.split(" | ")[0][2:] for row in events.splitlines() if row.startswith("| ")][1:]
    rows = dict(row[2:].split(" | ", 1) for row in kept.splitlines() if row.startswith("| "))
    named = [row for row, tests in rows.items() if _NAMED.search(tests)]
    told = [*promises, *(one for one in events_told if one != "... without a recovery kit")]
    assert [one for one in told if not any(one.startswith(row) for row in named)] == []
    assert [row for row in named if not any(one.startswith(row) for one in told)] == []
