"""Scrubbing: does every cloud hold what it has acknowledged, as it was put there? Nothing is changed."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final, TypeAlias

from hybrisfs.api import maintenance as api
from hybrisfs.clouds.expected_checkpoint import PartState
from hybrisfs.clouds.expected_objects import ExpectedObjects
from hybrisfs.clouds.expected_values import HERE, Look, cloud_name
from hybrisfs.clouds.objects import CloudObjects
from hybrisfs.dispersal.finding import Finding
from hybrisfs.dispersal.upkeep import Upkeep
from hybrisfs.parallel import in_parallel

__all__ = ["ScrubReport", "Step", "scrub"]

Step: TypeAlias = Callable[[str, int, int], None]
"""Gets a stage, how much of it is done, and how much there is; may raise to stop."""

_PER_CLOUD: Final = 4
_MOST_WORKERS: Final = 16
_MOST_PROBLEMS: Final = 1000

_Looks: TypeAlias = Callable[[], list[tuple[int, Finding | None]]]


@dataclass(slots=True)
class ScrubReport:
    """How many objects were looked at by cloud, and what is wrong: in numbers, and the first cases."""

    clouds: Mapping[int, str]
    names: Mapping[int, str]
    checked: Counter[int] = field(default_factory=Counter)
    wrong: Counter[tuple[int, str]] = field(default_factory=Counter)
    problems: list[tuple[int, Finding]] = field(default_factory=list)
    older: int = 0
    """Of how many wrong objects their clouds keep the right ones, as older versions."""

    def add(self, cloud: int, finding: Finding | None) -> None:
        """Take note of an object that was looked at."""
        if cloud != HERE:
            self.checked[cloud] += 1
        if finding is not None:
            self.wrong[cloud, finding.kind] += 1
            self.older += finding.older
            if len(self.problems) < _MOST_PROBLEMS:
                self.problems.append((cloud, finding))

    def name(self, cloud: int) -> str:
        """The cloud's name, for people."""
        return cloud_name(cloud, self.names)

    def facts(self) -> api.Scrub:
        """The same as answers tell it."""
        numbers = sorted(self.clouds.keys() | self.checked.keys())
        return api.Scrub(
            clouds=[
                api.ScrubbedCloud(
                    name=self.name(number),
                    checked=self.checked[number],
                    missing=self.wrong[number, "missing"],
                    stale=self.wrong[number, "stale"],
                    corrupt=self.wrong[number, "corrupt"],
                    unreadable=self.wrong[number, "unreadable"],
                )
                for number in numbers
            ],
            problems=[
                api.WrongObject(self.name(cloud), one.kind, one.what, one.key, one.older)
                for cloud, one in self.problems
            ],
            wrong=self.wrong.total(),
            older=self.older,
        )


def scrub(
    objects: CloudObjects,
    report: ScrubReport,
    percent: float,
    step: Step,
) -> None:
    """Read and verify the shares of packs and values, or those of a random sample of *percent*, and all else.

    The reads that find something wrong also tell the clouds' health. Of what is wrong it is looked whether
    its cloud keeps it as it was.
    """
    expected, values, upkeep = objects.expected, objects.values, objects.upkeep
    workers = min(_PER_CLOUD * len(report.clouds), _MOST_WORKERS)

    run = partial(_run, workers=workers, upkeep=upkeep, report=report, step=step)
    run("log", list(_log_looks(expected, report.clouds)))
    run("logs of others", objects.others.looks(report.clouds))
    run("checkpoint", [partial(_look_at_part, one) for one in objects.checkpoint.looks()])
    packs, _ = expected.counts()
    stages = (
        ("packs", _pack_looks(expected, upkeep, percent), packs),
        ("values", values.looks(percent), values.count()),
    )
    for stage, looks, total in stages:
        most = round(total * percent / 100)
        done = 0
        step(stage, 0, most)
        jobs = (partial(_look_at_object, upkeep, look) for look in looks)
        for cloud, finding, last in in_parallel(jobs, workers, "scrub"):
            report.add(cloud, finding)
            done += last
            step(stage, done, max(done, most))


def _run(
    stage: str, looks: Sequence[_Looks], workers: int, upkeep: Upkeep, report: ScrubReport, step: Step
) -> None:
    step(stage, 0, len(looks))
    jobs = (partial(_with_older, upkeep, look) for look in looks)
    for done, found in enumerate(in_parallel(jobs, workers, "scrub"), 1):
        for cloud, finding in found:
            report.add(cloud, finding)
        step(stage, done, len(looks))


def _with_older(upkeep: Upkeep, look: _Looks) -> list[tuple[int, Finding | None]]:
    return [(cloud, upkeep.with_older(cloud, finding)) for cloud, finding in look()]


def _log_looks(expected: ExpectedObjects, clouds: Mapping[int, str]) -> Iterator[_Looks]:
    """The marker and the head on every cloud, and the copies of the own log segments."""
    shipped = expected.shipped()
    for cloud in clouds:
        yield partial(_look_at_marker, expected, cloud)
        if shipped is not None:
            yield partial(_look, cloud, partial(expected.look_at_head, cloud, shipped))
    for segment in expected.segments():
        for cloud in segment.placement:
            yield partial(_look, cloud, partial(expected.look_at_segment, cloud, segment.name))


def _look_at_marker(expected: ExpectedObjects, cloud: int) -> list[tuple[int, Finding | None]]:
    return [(cloud, expected.look_at_marker(cloud)[0])]


def _look(cloud: int, look: Callable[[], Finding | None]) -> list[tuple[int, Finding | None]]:
    return [(cloud, look())]


def _look_at_part(look: Callable[[], PartState]) -> list[tuple[int, Finding | None]]:
    return list(look().findings())


def _pack_looks(expected: ExpectedObjects, upkeep: Upkeep, percent: float) -> Iterator[Look]:
    for pack in expected.packs():
        if random.random() * 100 < percent:
            for index, cloud in enumerate(pack.placement):
                last = index == len(pack.placement) - 1
                yield partial(_look_at_share, upkeep, cloud, pack.id, index, last)


def _look_at_share(
    upkeep: Upkeep, cloud: int, pack: bytes, index: int, last: bool
) -> tuple[int, Finding | None, bool]:
    return cloud, upkeep.look_at_share(cloud, pack, index), last


def _look_at_object(upkeep: Upkeep, look: Look) -> tuple[int, Finding | None, bool]:
    cloud, finding, last = look()
    return cloud, upkeep.with_older(cloud, finding), last
