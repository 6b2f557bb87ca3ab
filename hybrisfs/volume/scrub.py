"""Scrubbing: does every cloud hold what it has acknowledged, as it was put there? Nothing is changed."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Final, TypeAlias

from hybrisfs.dispersal.finding import Finding
from hybrisfs.dispersal.upkeep import Upkeep
from hybrisfs.volume.checkpoint_holdings import CheckpointHoldings
from hybrisfs.volume.holdings import Holdings
from hybrisfs.volume.parallel import in_parallel
from hybrisfs.volume.value_holdings import HERE, ValueHoldings, cloud_name

__all__ = ["ScrubReport", "Step", "scrub"]

Step: TypeAlias = Callable[[str, int, int], None]
"""Is told of a stage, how much of it is done, and how much there is; may raise to stop."""

_PER_CLOUD: Final = 4
_MOST_WORKERS: Final = 16
_MOST_PROBLEMS: Final = 1000

_Look: TypeAlias = Callable[[], tuple[int, Finding | None]]


@dataclass(slots=True)
class ScrubReport:
    """How many objects were looked at by cloud, and what is wrong: in numbers, and the first cases."""

    clouds: Mapping[int, str]
    names: Mapping[int, str]
    checked: Counter[int] = field(default_factory=Counter)
    wrong: Counter[tuple[int, str]] = field(default_factory=Counter)
    problems: list[tuple[int, Finding]] = field(default_factory=list)

    def add(self, cloud: int, finding: Finding | None) -> None:
        """Take note of an object that was looked at."""
        if cloud != HERE:
            self.checked[cloud] += 1
        if finding is not None:
            self.wrong[cloud, finding.kind] += 1
            if len(self.problems) < _MOST_PROBLEMS:
                self.problems.append((cloud, finding))

    def name(self, cloud: int) -> str:
        """The cloud's name, for people."""
        return cloud_name(cloud, self.names)

    def as_dict(self) -> dict[str, object]:
        """The facts that `hybrisfs scrub --json` prints."""
        numbers = sorted(self.clouds.keys() | self.checked.keys())
        kinds = ("missing", "stale", "corrupt", "unreadable")
        return {
            "clouds": [
                {
                    "name": self.name(number),
                    "checked": self.checked[number],
                    **{kind: self.wrong[number, kind] for kind in kinds},
                }
                for number in numbers
            ],
            "problems": [
                {
                    "cloud": self.name(cloud),
                    "kind": finding.kind,
                    "what": finding.what,
                    "key": finding.key,
                }
                for cloud, finding in self.problems
            ],
            "wrong": self.wrong.total(),
        }


def scrub(
    holdings: Holdings,
    checkpoint: CheckpointHoldings,
    values: ValueHoldings,
    upkeep: Upkeep,
    report: ScrubReport,
    percent: float,
    step: Step,
) -> None:
    """Read and verify the shares of packs and values, or those of a random sample of *percent*, and all else.

    The reads that find something wrong also tell the clouds' health.
    """
    workers = min(_PER_CLOUD * len(report.clouds), _MOST_WORKERS)
    _run("log", list(_log_looks(holdings, report.clouds)), workers, report, step)
    parts = checkpoint.looks()
    step("checkpoint", 0, len(parts))
    for done, part in enumerate(in_parallel(parts, workers, "scrub"), 1):
        for cloud, finding in part.findings():
            report.add(cloud, finding)
        step("checkpoint", done, len(parts))
    packs, _ = holdings.counts()
    stages = (
        ("packs", _pack_looks(holdings, upkeep, percent), packs),
        ("values", values.looks(percent), values.count()),
    )
    for stage, looks, total in stages:
        expected = round(total * percent / 100)
        done = 0
        step(stage, 0, expected)
        for cloud, finding, last in in_parallel(looks, workers, "scrub"):
            report.add(cloud, finding)
            done += last
            step(stage, done, max(done, expected))


def _run(stage: str, looks: list[_Look], workers: int, report: ScrubReport, step: Step) -> None:
    step(stage, 0, len(looks))
    for done, (cloud, finding) in enumerate(in_parallel(looks, workers, "scrub"), 1):
        report.add(cloud, finding)
        step(stage, done, len(looks))


def _log_looks(holdings: Holdings, clouds: Mapping[int, str]) -> Iterator[_Look]:
    """The marker and the head on every cloud, and the copies of the own log segments."""
    shipped = holdings.shipped()
    for cloud in clouds:
        yield partial(_look_at_marker, holdings, cloud)
        if shipped is not None:
            yield partial(_look, cloud, partial(holdings.look_at_head, cloud, shipped))
    for segment in holdings.segments():
        for cloud in segment.placement:
            yield partial(_look, cloud, partial(holdings.look_at_segment, cloud, segment.name))


def _look_at_marker(holdings: Holdings, cloud: int) -> tuple[int, Finding | None]:
    return cloud, holdings.look_at_marker(cloud)[0]


def _look(cloud: int, look: Callable[[], Finding | None]) -> tuple[int, Finding | None]:
    return cloud, look()


def _pack_looks(
    holdings: Holdings, upkeep: Upkeep, percent: float
) -> Iterator[Callable[[], tuple[int, Finding | None, bool]]]:
    for pack in holdings.packs():
        if random.random() * 100 < percent:
            for index, cloud in enumerate(pack.placement):
                last = index == len(pack.placement) - 1
                yield partial(_look_at_share, upkeep, cloud, pack.id, index, last)


def _look_at_share(
    upkeep: Upkeep, cloud: int, pack: bytes, index: int, last: bool
) -> tuple[int, Finding | None, bool]:
    return cloud, upkeep.look_at_share(cloud, pack, index), last
