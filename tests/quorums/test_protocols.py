"""The protocols of one register are linearizable under every order that was tried, whatever t clouds do."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hybrisfs.quorums.thresholds import PASIS, POWERSTORE, Thresholds
from tests.kv.linearizability import is_linearizable
from tests.quorums.schedule import LIES, World

SIZES = {
    "4 clouds": Thresholds(POWERSTORE, 4, 1, 1),
    "5 clouds": Thresholds(POWERSTORE, 5, 1, 1),
    "7 clouds, two liars": Thresholds(POWERSTORE, 7, 2, 2),
    "pasis": Thresholds(PASIS, 5, 1, 1),
    "pasis, two fail and one lies": Thresholds(PASIS, 7, 2, 1),
}
PLAIN = ("put", "put", "get", "get", "clear")
ALL = ("put", "get", "get", "delete", "if absent", "if match", "if version", "clear")
TOGETHER = ("put", "get", "get", "get", "list", "delete", *("together",) * 6, "clear", "tidy")


def run(thresholds: Thresholds, seed: int, kinds: tuple[str, ...], keys: tuple[str, ...] = ("key",)) -> World:
    chance = Random(seed)
    liars = [chance.choice(LIES) for _ in range(chance.randint(0, thresholds.b))]
    liars += ["is silent"] * chance.randint(0, thresholds.t - len(liars))
    world = World(seed, thresholds, liars, keys)
    world.run(kinds, 14, deaths=chance.choice((0.01, 0.2)))
    return world


@pytest.mark.parametrize("thresholds", SIZES.values(), ids=SIZES)
@pytest.mark.parametrize("kinds", [PLAIN, ALL], ids=["plain", "with conditions"])
@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 1 << 32))
def test_a_register_is_linearizable(thresholds: Thresholds, kinds: tuple[str, ...], seed: int) -> None:
    world = run(thresholds, seed, kinds)
    assert is_linearizable(world.history), "\n".join(
        f"{one.called} {one.returned} {one.name}" for one in world.history
    )


@pytest.mark.parametrize("thresholds", SIZES.values(), ids=SIZES)
@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 1 << 32))
def test_transactions_are_linearizable(thresholds: Thresholds, seed: int) -> None:
    world = run(thresholds, seed, TOGETHER, ("key", "other"))
    assert is_linearizable(world.history), "\n".join(
        f"{one.called} {one.returned} {one.name}" for one in world.history
    )
