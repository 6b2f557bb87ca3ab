"""Which code an archive gets, and which packs have rested."""

from __future__ import annotations

from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hybrisfs.dispersal.pack import Redundancy
from hybrisfs.gc.archive import ArchivePlan, cheapest_code
from hybrisfs.state.packs import KeptPack

CHEAP: Final = 0.006
DEAR: Final = 0.023


def test_equal_clouds_are_all_used() -> None:
    found = cheapest_code(1, 1, dict.fromkeys(range(5), CHEAP))
    assert found is not None and (found.k, found.clouds) == (4, frozenset(range(5)))
    assert cheapest_code(1, 1, dict.fromkeys(range(5))) == found, "also when nobody knows what they cost"


def test_a_dear_cloud_is_left_out() -> None:
    found = cheapest_code(1, 1, {0: CHEAP, 1: CHEAP, 2: CHEAP, 3: DEAR, 4: DEAR})
    assert found is not None and (found.k, found.clouds) == (2, frozenset({0, 1, 2}))


def test_a_wish_is_met_as_far_as_there_are_clouds() -> None:
    prices = dict.fromkeys(range(5), CHEAP)
    assert [getattr(cheapest_code(1, 1, prices, k), "k", None) for k in (2, 4, 9)] == [2, 4, 4]
    assert cheapest_code(1, 4, prices) is None
    assert cheapest_code(1, 1, dict.fromkeys(range(2), CHEAP), 4) is None


@given(
    st.integers(0, 3),
    st.integers(1, 3),
    st.dictionaries(st.integers(0, 255), st.none() | st.floats(0.001, 0.1), max_size=10),
    st.none() | st.integers(2, 31),
)
def test_no_other_code_costs_less(
    f: int, hot: int, prices: dict[int, float | None], wanted: int | None
) -> None:
    found = cheapest_code(f, hot, prices, wanted)
    if found is None:
        assert len(prices) <= hot + f or (wanted is not None and wanted <= hot)
        return
    assert hot < found.k <= len(prices) - f and len(found.clouds) >= found.k + f
    assert found.clouds <= prices.keys()
    known = [price for price in prices.values() if price is not None]
    mean = sum(known) / len(known) if known else 1.0
    order = sorted(mean if price is None else price for price in prices.values())
    if wanted is None:
        mine = sum(order[: found.k + f]) / found.k
        others = [sum(order[: k + f]) / k for k in range(hot + 1, len(prices) - f + 1)]
        assert mine <= min(others) + 1e-9


PLAN: Final = ArchivePlan(Redundancy(1, 4), frozenset(range(5)), 30, 1, {0: 90})
TODAY: Final = 20_000


def pack(k: int = 1, placement: bytes = b"\1\2", used: int = TODAY - 30, reads: int = 0) -> KeptPack:
    return KeptPack(7, None, k, placement, used, reads)


@pytest.mark.parametrize(
    ("one", "rests"),
    [
        (pack(), True),
        (pack(used=TODAY - 29), False),
        (pack(used=0), False),  # it was not met yet
        (pack(k=4), False),  # it is archived
        (pack(placement=b"\0\1"), False),  # the cloud 0 would charge for it all the same
        (pack(placement=b"\0\1", used=TODAY - 90), True),
        (pack(used=TODAY + 5), False),  # the clock was wrong
    ],
)
def test_when_a_pack_has_rested(one: KeptPack, rests: bool) -> None:
    assert PLAN.has_rested(one, TODAY) is rests


def test_when_an_archived_pack_is_used_again() -> None:
    assert PLAN.is_used_again(pack(k=4, reads=2))
    assert not PLAN.is_used_again(pack(k=4, reads=1)) and not PLAN.is_used_again(pack(reads=9))
