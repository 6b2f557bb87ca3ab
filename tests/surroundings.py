"""Surroundings of a volume that a test changes while the volume is open."""

from __future__ import annotations

from dataclasses import replace
from itertools import count
from typing import TypeVar

from hybrisfs.environment import SYSTEM, Environment, Limits

__all__ = ["Surroundings", "also", "at", "impatient", "limited"]


L = TypeVar("L")


def limited(*limits: object) -> Environment:
    """The system, but for these records of limits."""
    return Environment(limits=Limits(*limits))


def also(environment: Environment, *limits: object) -> Environment:
    """Another one, but for these records of limits."""
    return replace(environment, limits=_Also(environment.limits, *limits))


class _Also(Limits):
    def __init__(self, others: Limits, *records: object) -> None:
        super().__init__(*records)
        self._others = others

    def of(self, kind: type[L]) -> L:
        return super().of(kind) if kind in self._records else self._others.of(kind)


def at(now: float) -> Environment:
    """The system, but for the time of day, which stands at so many seconds since the epoch."""
    return Environment(time_ns=lambda: int(now * 1e9))


def impatient() -> Environment:
    """One whose clock is minutes ahead whenever it is looked at: whoever waits gives up at once."""
    minutes = count(step=300.0)
    return Environment(monotonic=lambda: next(minutes))


class Surroundings:
    """An `environment` that behaves as another one until a test says otherwise, at any moment."""

    def __init__(self, base: Environment = SYSTEM) -> None:
        self._base = base
        self.ahead_ns = 0
        """By how much the time of day is ahead."""
        self.passed = 0.0
        """Seconds that have passed on the monotonic clock besides those that did."""
        self.fsync = base.fsync
        self.fdatasync = base.fdatasync
        self.sleep = base.sleep
        self.statvfs = base.statvfs
        self.environment = replace(
            base,
            time_ns=lambda: self._base.time_ns() + self.ahead_ns,
            monotonic=lambda: self._base.monotonic() + self.passed,
            fsync=lambda descriptor: self.fsync(descriptor),
            fdatasync=lambda descriptor: self.fdatasync(descriptor),
            sleep=lambda seconds: self.sleep(seconds),
            statvfs=lambda path: self.statvfs(path),
        )
