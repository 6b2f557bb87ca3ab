"""Opening files while changes of another device may be missing: hold, go on, fail in time."""

from __future__ import annotations

import errno
import os
from queue import SimpleQueue

import pytest

from hybrisfs.read.freshness import Freshness, FreshnessLimits, only_writes
from tests.surroundings import limited

PATIENCE = 30.0


class Case:
    """A `Freshness` that blocks, and what becomes of what it holds."""

    def __init__(self, wait: float = 3600.0) -> None:
        self.stale = True
        self.gone = False
        self.looks: SimpleQueue[None] = SimpleQueue()
        self.answers: SimpleQueue[OSError | None] = SimpleQueue()
        self.freshness = Freshness(self, limited(FreshnessLimits(wait)))
        self.freshness.blocks = True

    def are_suspect(self) -> bool:
        return self.stale

    def look_now(self) -> None:
        self.looks.put(None)

    def hold(self) -> None:
        self.freshness.hold(self.answers.put, lambda: self.gone)

    def answer(self) -> OSError | None:
        return self.answers.get(timeout=PATIENCE)


def test_what_is_held_goes_on_when_the_device_is_heard_of() -> None:
    case = Case()
    case.hold()
    case.hold()
    case.looks.get(timeout=PATIENCE)  # the clouds are asked at once
    assert case.answers.empty()
    case.stale = False
    assert case.answer() is None
    assert case.answer() is None
    assert not case.freshness.must_wait()


def test_what_is_held_fails_in_the_end() -> None:
    case = Case(wait=0.0)
    case.hold()
    error = case.answer()
    assert error is not None
    assert error.errno == errno.ETIMEDOUT


def test_who_is_gone_or_unmounted_waits_no_longer() -> None:
    case = Case()
    case.hold()
    case.gone = True
    assert case.answer() is not None
    case.gone = False
    case.hold()
    case.freshness.let_go()
    assert case.answer() is not None


def test_when_it_only_warns_nothing_is_held() -> None:
    case = Case()
    case.hold()
    case.freshness.blocks = False
    assert case.answer() is None
    assert not case.freshness.must_wait()


@pytest.mark.parametrize(
    ("flags", "blind"),
    [
        (os.O_RDONLY, False),
        (os.O_RDWR, False),
        (os.O_WRONLY, True),
        (os.O_WRONLY | os.O_APPEND, True),
    ],
)
def test_who_only_writes_sees_nothing(flags: int, blind: bool) -> None:
    assert only_writes(flags) is blind
