"""A short run of every fuzz target, the same each time."""

from __future__ import annotations

from random import Random

import pytest

from tests.fuzz.mutate import mutations
from tests.fuzz.target import Target
from tests.fuzz.targets import TARGETS

RUNS = 150


@pytest.fixture(params=TARGETS)
def name(request: pytest.FixtureRequest) -> str:
    found: str = request.param
    return found


@pytest.fixture
def target(name: str) -> Target:
    return TARGETS[name]


def test_what_the_code_writes_is_valid(target: Target) -> None:
    assert target.seeds
    for data in target.seeds:
        target.take(data)


def test_nothing_but_the_documented_errors(name: str, target: Target) -> None:
    for data in (b"", *target.nonsense, *mutations([*target.seeds, *target.nonsense], RUNS, Random(name))):
        target.accepts(data)


@pytest.mark.parametrize(
    "name", ["code below the checksum", "update behind the hash", "head behind the seal"]
)
def test_what_lies_behind_a_check_is_reached(name: str) -> None:
    """Many mutations are valid: the target is not stuck at a hash that nobody can guess."""
    target = TARGETS[name]
    assert sum(map(target.accepts, mutations(target.seeds, RUNS, Random(name)))) > RUNS // 50
