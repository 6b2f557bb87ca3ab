"""How much may be taken away, or overwritten, before that waits: the arithmetic of the brake alone."""

from __future__ import annotations

import pytest

from hybrisfs.merge.brake import FEW, MANY, WINDOW, WINDOW_NS, Brake, Loss, Shown
from hybrisfs.state.decisions import Cause

NAMES = 100
DEVICE = bytes(16)


def some(first: int, last: int) -> list[Loss]:
    return [Loss(b"p" + number.to_bytes(16) + b"\0", b"former") for number in range(first, last)]


def overwritten(first: int, last: int, *, wholly: bool = False) -> list[Loss]:
    return [
        Loss(b"c" + number.to_bytes(16), b"former", 0, overwritten=True, wholly=wholly)
        for number in range(first, last)
    ]


def cause(brake: Brake, losses: list[Loss], moment: int = 0, files: int = NAMES) -> Cause | None:
    """Of the verdict about what is overwritten."""
    brake.begin()
    verdicts = brake.judge(DEVICE, losses, moment, 0.0, lambda: Shown(files, files))
    return verdicts[0].cause if verdicts else None


def judged(brake: Brake, losses: list[Loss], moment: int, now: float, names: int = NAMES) -> int | None:
    brake.begin()
    verdicts = brake.judge(DEVICE, losses, moment, now, lambda: Shown(names, names))
    return verdicts[0].total if verdicts else None


def test_what_is_done_bit_by_bit_counts_together_for_a_while() -> None:
    brake = Brake(0.5)
    assert judged(brake, some(0, 40), 0, 0.0) is None
    assert judged(brake, some(40, 52), WINDOW_NS, WINDOW, NAMES - 40) == NAMES
    brake = Brake(0.5)
    assert judged(brake, some(0, 40), 0, 0.0) is None
    assert judged(brake, some(40, 52), WINDOW_NS + 1, 0.0, NAMES - 40) is None
    assert judged(brake, some(52, 76), 9 * WINDOW_NS, 0.0, NAMES - 52) == NAMES, "by what has arrived"
    brake = Brake(0.5)
    assert judged(brake, some(0, 52), 0, 0.0) == NAMES
    brake.forget(DEVICE, Cause.REMOVED)
    assert judged(brake, some(52, 76), WINDOW_NS // 2, 0.0, NAMES - 52) is None, "a person has decided"


def test_a_name_is_lost_once() -> None:
    brake = Brake(0.5)
    for _ in range(10):
        assert judged(brake, some(0, 50), 0, 0.0) is None
    both = [*some(0, 50), *(one._replace(key=b"c" + one.key[1:17]) for one in some(0, 50))]
    assert judged(brake, both, 0, 0.0) is None


def test_there_is_never_more_lost_than_there_was() -> None:
    brake = Brake(0.3)
    total = None
    for number in range(0, 300, 10):
        total = judged(brake, some(number, number + 10), 0, float(number % int(WINDOW)), 20) or total
    assert total is not None
    assert total >= 300


def test_what_was_let_go_is_told_once() -> None:
    brake = Brake(0.5)
    brake.begin()
    shown = Shown(NAMES, NAMES)
    assert brake.judge(DEVICE, some(0, 30), 0, 0.0, lambda: shown) == []
    [first] = brake.judge(DEVICE, some(30, 60), 0, 0.0, lambda: shown)
    assert set(first.before) == {one.key for one in some(0, 30)}
    [again] = brake.judge(DEVICE, some(60, 70), 0, 0.0, lambda: shown)
    assert not again.before


def test_overwriting_counts_by_itself() -> None:
    brake = Brake(0.5)
    assert cause(brake, [*some(0, 40), *overwritten(40, 80)]) is None
    assert cause(brake, overwritten(80, 91)) is Cause.MANY
    assert cause(brake, some(0, 40)) is None, "what is gone is counted apart"
    assert cause(brake, some(40, 80)) is Cause.REMOVED


@pytest.mark.parametrize(
    ("files", "limit"), [(100, FEW), (1000, FEW), (10_000, 300), (33_000, 990), (1_000_000, MANY)]
)
def test_of_how_many_overwritten_files_samples_are_looked_at(files: int, limit: int) -> None:
    assert cause(Brake(0.3), overwritten(0, limit), files=files) is None
    assert cause(Brake(0.3), overwritten(0, limit + 1), files=files) is Cause.MANY


def test_what_is_overwritten_slowly_is_not_looked_at() -> None:
    brake = Brake(0.5)
    for number in range(0, 10 * FEW, FEW):
        assert cause(brake, overwritten(number, number + FEW), number * WINDOW_NS) is None


def test_what_is_replaced_wholly_counts_on_when_samples_let_it_through() -> None:
    brake = Brake(0.3)
    assert cause(brake, overwritten(0, 200, wholly=True), files=1000) is Cause.MANY
    brake.forget(DEVICE, Cause.MANY)
    assert cause(brake, overwritten(200, 240, wholly=True), files=1000) is None
    assert cause(brake, overwritten(240, 301, wholly=True), files=1000) is Cause.MUCH
    brake.forget(DEVICE, Cause.MUCH)
    assert cause(brake, overwritten(301, 320, wholly=True), files=1000) is None


def test_what_was_overwritten_before_it_was_too_much_is_told() -> None:
    brake = Brake(0.3)
    assert cause(brake, overwritten(0, FEW)) is None
    brake.begin()
    [verdict] = brake.judge(DEVICE, overwritten(FEW, FEW + 1), 0, 0.0, lambda: Shown(NAMES, NAMES))
    assert set(verdict.before) == {one.key for one in overwritten(0, FEW)}
    assert [one.key for one in verdict.losses] == [one.key for one in overwritten(FEW, FEW + 1)]


def test_a_file_that_goes_as_another_comes_beside_it_counts_twice_and_is_held_once() -> None:
    both = [one._replace(overwritten=True) for one in some(0, 60)]
    brake = Brake(0.5)
    brake.begin()
    [verdict] = brake.judge(DEVICE, both, 0, 0.0, lambda: Shown(NAMES, NAMES))
    assert verdict.cause is Cause.REMOVED
    assert cause(Brake(0.5), both, files=1000) is Cause.MANY, "when it is too little for a mass deletion"
