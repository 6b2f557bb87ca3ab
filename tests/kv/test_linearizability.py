"""The checker knows good histories from bad ones."""

from __future__ import annotations

import pytest

from tests.kv.linearizability import Effect, Operation, is_linearizable, listed, read, wrote


def history(*operations: tuple[int, int, Effect]) -> list[Operation]:
    return [Operation(str(number), *one) for number, one in enumerate(operations)]


GOOD = {
    "nothing": history(),
    "one after the other": history((0, 1, wrote({"a": 1})), (2, 3, read("a", 1))),
    "a read during a write sees either": history(
        (0, 9, wrote({"a": 1})), (1, 2, read("a", None)), (3, 4, read("a", 1))
    ),
    "concurrent writes in either order": history(
        (0, 5, wrote({"a": 1})), (0, 5, wrote({"a": 2})), (6, 7, read("a", 1))
    ),
    "overwritten at once": history(
        (0, 9, wrote({"a": 1})), (1, 2, wrote({"a": 2})), (3, 4, read("a", 2)), (10, 11, read("a", 2))
    ),
    "a transaction": history(
        (0, 1, wrote({"a": 1, "b": 1})), (2, 3, read("a", 1)), (2, 3, listed(["a", "b"]))
    ),
    "deleted": history((0, 1, wrote({"a": 1})), (2, 3, wrote({"a": None})), (4, 5, read("a", None))),
}
BAD = {
    "a stale read": history((0, 1, wrote({"a": 1})), (2, 3, wrote({"a": 2})), (4, 5, read("a", 1))),
    "old after new": history((0, 9, wrote({"a": 1})), (1, 2, read("a", 1)), (3, 4, read("a", None))),
    "a value from nowhere": history((0, 1, wrote({"a": 1})), (0, 1, read("a", 7))),
    "old-new inversion": history(
        (0, 9, wrote({"a": 1})), (1, 2, wrote({"a": 2})), (3, 4, read("a", 2)), (10, 11, read("a", 1)),
        (12, 13, read("a", 2)),
    ),
    "half a transaction": history(
        (0, 9, wrote({"a": 1, "b": 1})), (1, 2, read("a", 1)), (3, 4, read("b", None))
    ),
    "a list without what is there": history((0, 1, wrote({"a": 1})), (2, 3, listed([]))),
}  # fmt: skip


@pytest.mark.parametrize("name", GOOD)
def test_accepts(name: str) -> None:
    assert is_linearizable(GOOD[name])


@pytest.mark.parametrize("name", BAD)
def test_refuses(name: str) -> None:
    assert not is_linearizable(BAD[name])
