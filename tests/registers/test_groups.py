"""Groups of a bounded size."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from hybrisfs.bounded import in_groups


@given(st.lists(st.integers(0, 20)), st.integers(1, 30))
def test_groups_are_as_large_as_they_may_be(sizes: list[int], most: int) -> None:
    groups = list(in_groups(sizes, lambda size: size, most))
    assert [size for group in groups for size in group] == sizes
    assert all(sum(group) <= most or len(group) == 1 for group in groups)
    assert all(sum(group) + following[0] > most for group, following in pairwise(groups))
