"""Scrub and repair: all on the clouds is verified, and what is wrong is put right from what is good."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from random import Random
from typing import Final, TypeAlias

from msgspec import Struct, field

from hybrisfs.api import maintenance as api
from hybrisfs.bounded import in_parallel
from hybrisfs.clouds.objects import HERE, CloudObjects, ExpectedObjects, Look, PartState, cloud_name
from hybrisfs.dispersal.errors import Finding
from hybrisfs.dispersal.upkeep import Repair, Upkeep
from hybrisfs.parts import Writing

__all__ = ["RepairReport", "Repairer", "ScrubReport", "Step", "scrub"]

Step: TypeAlias = Callable[[str, int, int], None]
"""Gets a stage, how much of it is done, and how much there is; may raise to stop."""

_PER_CLOUD: Final = 4
_MOST_WORKERS: Final = 16
_MOST_PROBLEMS: Final = 1000

_Looks: TypeAlias = Callable[[], list[tuple[int, Finding | None]]]


class ScrubReport(Struct):
    """How many objects were looked at by cloud, and what is wrong: in numbers, and the first cases."""

    clouds: Mapping[int, str]
    names: Mapping[int, str]
    checked: Counter[int] = field(default_factory=Counter)
    wrong: Counter[tuple[int, str]] = field(default_factory=Counter)
    problems: list[tuple[int, Finding]] = field(default_factory=list)
    older: int = 0
    """How many wrong objects there are whose clouds keep the right one as an older version."""

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

    The reads that find something wrong also tell the clouds' health. For each wrong object it looks whether
    the cloud keeps the right one.
    """
    expected, values, upkeep = objects.expected, objects.values, objects.upkeep
    workers = min(_PER_CLOUD * len(report.clouds), _MOST_WORKERS)

    run = partial(_run, workers=workers, upkeep=upkeep, report=report, step=step)
    run("log", list(_log_looks(expected, report.clouds)))
    run("logs of others", objects.others.looks(report.clouds))
    run("checkpoint", [partial(_look_at_part, one) for one in objects.checkpoint.looks()])
    packs, _ = expected.counts()
    stages = (
        ("packs", _pack_looks(expected, upkeep, percent, objects.chance), packs),
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


def _pack_looks(expected: ExpectedObjects, upkeep: Upkeep, percent: float, chance: Random) -> Iterator[Look]:
    for pack in expected.packs():
        if chance.random() * 100 < percent:
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


# -- repair: everything on the clouds is verified, and what is wrong is put right from what is good -----


_WORKERS: Final = 3  # packs at a time, each with all its shares in memory
_MOST_FAILURES: Final = 1000

_Mend: TypeAlias = Callable[[], Sequence[Repair]]


class RepairReport(Struct):
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
        """Verify everything, and put right what is wrong. Repairs made before a stop stay."""
        report = RepairReport(self._objects.clouds, self._objects.names)
        packs, segments = self._expected.counts()
        writable = self.mend_markers(report)
        mend_segment = partial(self._objects.segments.mend, writable=writable, move=True)
        mend_pack = partial(self._objects.packs.mend, writable=writable, move=True)
        _run_all(
            "log",
            (partial(mend_segment, one.name) for one in self._expected.segments()),
            segments,
            report,
            step,
        )
        self._mend_heads(report, writable)
        others = list(self._objects.others.mends(self._objects.clouds, writable))
        _run_all("logs of others", others, len(others), report, step)
        mends = self._objects.checkpoint.mends()
        _run_all("checkpoint", mends, len(mends), report, step)
        _run_all("packs", (partial(mend_pack, one.id) for one in self._expected.packs()), packs, report, step)
        _run_all("values", self._objects.values.mends(writable), self._objects.values.count(), report, step)
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


def _run_all(stage: str, jobs: Iterable[_Mend], total: int, report: RepairReport, step: Step) -> None:
    step(stage, 0, total)
    for done, repairs in enumerate(in_parallel(jobs, _WORKERS, "repair"), 1):
        for one in repairs:
            report.add(one)
        step(stage, done, max(done, total))
