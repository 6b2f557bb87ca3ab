"""Each claim of the threat model names tests, and these exist."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

from tests.system.device import REPOSITORY

_PAGE = (REPOSITORY / "docs" / "threat-model.md").read_text()
_TESTS = REPOSITORY / "tests"
_NAMED = re.compile(r"`([a-z_]+/[a-z_]+\.py)::(test_[a-z0-9_]+)`")
_UNPROMISED = ("is not promised", "can fill your clouds")


@cache
def _tests_in(path: Path) -> set[str]:
    tree = ast.parse(path.read_text())
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}


@pytest.mark.parametrize("named", sorted(set(_NAMED.findall(_PAGE))))
def test_the_tests_that_are_named_exist(named: tuple[str, str]) -> None:
    file, name = named
    assert name in _tests_in(_TESTS / file)


def test_every_claim_names_a_test() -> None:
    claims = [
        claim
        for section in re.split(r"^## ", _PAGE, flags=re.MULTILINE)
        if "is not promised" not in section.partition("\n")[0]
        for claim in re.split(r"^- ", section, flags=re.MULTILINE)[1:]
    ]
    unproven = [claim for claim in claims if not _NAMED.search(claim.partition("\n\n")[0])]
    assert [claim for claim in unproven if not claim.startswith("can ") and "recovery kit" not in claim] == []
