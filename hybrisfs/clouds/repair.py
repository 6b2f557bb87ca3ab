"""Repair: everything on the clouds is verified, and what is wrong is put right from what is good."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final, TypeAlias

from hybrisfs.api import maintenance as api
from hybrisfs.clouds.expected_values import cloud_name
from hybrisfs.clouds.objects import CloudObjects
from hybrisfs.clouds.scrub import Step
from hybrisfs.dispersal.finding import Finding
from hybrisfs.dispersal.restoring import Repair
from hybrisfs.parallel import in_parallel
from hybrisfs.parts import Writing

__all__ = ["RepairReport", "Repairer"]

_WORKERS: Final = 3  # packs at a time, each with all its shares in memory
_MOST_FAILURES: Final = 1000

_Mend: TypeAlias = Callable[[], Sequence[Repair]]


@dataclass(slots=True)
class RepairReport:
    """What was wrong and is right again, by cloud; what went elsewhere; and what could not be mended."""

    clouds: Mapping[int, str]
    names: Mapping[int, str]
    repaired: Counter[int] = field(default_factory=Counter)
    moved: Counter[int] = field(default_factory=Counter)
    failed: Counter[int] = field(default_factory=Counter)
    failures: list[Repair] = field(default_factory=list)

    def add(self, repair: Repair) -> None:
        """Take note of an object that was wrong."""
        if repair.now_at is None:
            self.failed[repair.cloud] += 1
            if len(self.failures) < _MOST_FAILURES:
                self.failures.append(repair)
        else:
            (self.repaired if repair.now_at == repair.cloud else self.moved)[repair.cloud] += 1

    def name(self, cloud: int) -> str:
        """The cloud's name, for people."""
        return cloud_name(cloud, self.names)

    def facts(self) -> api.Repair:
        """The same as answers tell it."""
        numbers = sorted(self.clouds.keys() | self.failed.keys() | self.moved.keys())
        return api.Repair(
            clouds=[
                api.RepairedCloud(
                    self.name(number), self.repaired[number], self.moved[number], self.failed[number]
                )
                for number in numbers
            ],
            problems=[
                api.Unrepaired(self.name(one.cloud), one.finding.what, one.finding.key, one.failure)
                for one in self.failures
            ],
            repaired=self.repaired.total() + self.moved.total(),
            failed=self.failed.total(),
        )


class Repairer:
    """Puts the clouds of one volume right."""

    def __init__(self, objects: CloudObjects, writing: Writing) -> None:
        self._objects = objects
        self._expected = objects.expected
        self._writing = writing

    def repair(self, step: Step) -> RepairReport:
        """Verify everything, and put right what is wrong. What is done is done when it is stopped."""
        report = RepairReport(self._objects.clouds, self._objects.names)
        packs, segments = self._expected.counts()
        writable = self.mend_markers(report)
        mend_segment = partial(self._objects.segments.mend, writable=writable, move=True)
        mend_pack = partial(self._objects.packs.mend, writable=writable, move=True)
        _run(
            "log",
            (partial(mend_segment, one.name) for one in self._expected.segments()),
            segments,
            report,
            step,
        )
        self._mend_heads(report, writable)
        others = list(self._objects.others.mends(self._objects.clouds, writable))
        _run("logs of others", others, len(others), report, step)
        mends = self._objects.checkpoint.mends()
        _run("checkpoint", mends, len(mends), report, step)
        _run("packs", (partial(mend_pack, one.id) for one in self._expected.packs()), packs, report, step)
        _run("values", self._objects.values.mends(writable), self._objects.values.count(), report, step)
        return report

    def mend_markers(self, report: RepairReport) -> set[int]:
        """Put lost markers back; return the clouds that are known to be this volume's.

        A place that another volume has marked, or that cannot be read, is not touched.
        """
        writable = set()
        for cloud in self._objects.clouds:
            finding, foreign = self._expected.look_at_marker(cloud)
            if finding is None:
                writable.add(cloud)
                continue
            failure = "it belongs to another volume: mount or configure the right place"
            if not foreign:
                failure = self._put_marker(cloud, finding)
            if not failure:
                writable.add(cloud)
            report.add(Repair(cloud, finding, None if failure else cloud, failure))
        return writable

    def _put_marker(self, cloud: int, finding: Finding) -> str:
        """Why the marker is not there now; "" when it is."""
        if finding.kind == "unreadable":
            return "the cloud cannot be reached"
        marker = self._expected.marker
        refused = self._objects.upkeep.put(cloud, marker.name, marker.data)
        if refused is not None:
            return refused
        after, _ = self._expected.look_at_marker(cloud)
        return "" if after is None else after.what

    def _mend_heads(self, report: RepairReport, writable: set[int]) -> None:
        """Have the head announced again where it is wrong."""
        shipped = self._expected.shipped()
        if shipped is None:
            return
        wrong: dict[int, Finding] = {}
        for cloud in self._objects.clouds:
            found = self._expected.look_at_head(cloud, shipped)
            if found is not None:
                wrong[cloud] = found
        if not wrong:
            return
        if writable.intersection(wrong):
            self._writing.announce()
        for cloud, finding in wrong.items():
            after = self._expected.look_at_head(cloud, shipped)
            report.add(Repair(cloud, finding, cloud if after is None else None, after.what if after else ""))


def _run(stage: str, jobs: Iterable[_Mend], total: int, report: RepairReport, step: Step) -> None:
    step(stage, 0, total)
    for done, repairs in enumerate(in_parallel(jobs, _WORKERS, "repair"), 1):
        for one in repairs:
            report.add(one)
        step(stage, done, max(done, total))
