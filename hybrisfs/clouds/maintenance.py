"""Scrub and repair of one volume: on command, and in the background what reads have found wrong."""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Final

from msgspec import Struct

from hybrisfs.clouds.objects import CloudObjects, ExpectedObjects
from hybrisfs.clouds.scrub import Repairer, RepairReport, ScrubReport, Step, scrub
from hybrisfs.dispersal.share import parse_share_name, share_name
from hybrisfs.dispersal.upkeep import Repair, Upkeep, WrongObject
from hybrisfs.errors import HybrisError
from hybrisfs.parts import Writing
from hybrisfs.stages import Pause
from hybrisfs.state.packs import PackPlace
from sync.checkpoint import parse_checkpoint_name

__all__ = ["Maintenance", "MaintenanceLimits"]

log = logging.getLogger(__name__)

_LAST_PAUSE: Final = 3600.0
_AUDIT_PAUSE: Final = 600.0  # between lists of what one cloud has
_FILL_ANYWAY: Final = 86_400.0  # between lists of containers on clouds none of which has failed
_MOST_NAMES: Final = 1_000_000
_MOST_TRIED: Final = 10_000  # objects that it is remembered of that they were to be healed


class MaintenanceLimits(Struct, frozen=True):
    """See `hybrisfs.environment.Limits`."""

    first_pause: float = 60.0
    """Seconds before something is healed: a cloud that has just lost something may still be in trouble."""
    fill_pause: float = 1800.0
    """Seconds between lists of containers on clouds of which one has failed since."""


class _Absent(Struct, frozen=True):
    """Packs and own log segments that clouds do not list. With each pack come the clouds that lack a share of
    it; the pack that most clouds lack comes first."""

    packs: Mapping[PackPlace, Collection[int]]
    segments: Collection[str]

    def lost(self) -> list[PackPlace]:
        """The packs that could not be read if these lists were true."""
        return [pack for pack, clouds in self.packs.items() if len(pack.placement) - len(clouds) < pack.k]


def _audit(expected: ExpectedObjects, upkeep: Upkeep, clouds: Collection[int]) -> _Absent:
    """Compare what *clouds* list with what they should hold. One that does not answer lacks nothing.

    A list costs one request for a thousand objects. It is a hint only, for a cloud may leave out what it has:
    what is to be done about it is decided by reading.
    """
    packs, segments = list(expected.packs()), list(expected.segments())  # before the lists
    shares = {cloud: upkeep.names(cloud, "packs/", _MOST_NAMES) for cloud in clouds}
    logs = {cloud: upkeep.names(cloud, "log/", _MOST_NAMES) for cloud in clouds}
    listed = {cloud: frozenset(names) for cloud, names in shares.items() if names is not None}
    logged = {cloud: frozenset(names) for cloud, names in logs.items() if names is not None}
    absent = {
        pack: [
            cloud
            for index, cloud in enumerate(pack.placement)
            if cloud in listed and share_name(pack.id, index) not in listed[cloud]
        ]
        for pack in packs
    }
    found = sorted((one for one in absent.items() if one[1]), key=lambda one: -len(one[1]))
    return _Absent(
        dict(found),
        [
            one.name
            for one in segments
            if any(cloud in logged and one.name not in logged[cloud] for cloud in one.placement)
        ],
    )


class Maintenance:
    """One scrub or repair at a time."""

    def __init__(self, objects: CloudObjects, writing: Writing) -> None:
        self.objects = objects
        self._writing = writing
        self._upkeep = objects.upkeep
        self._signals = writing.clouds.ground.signals
        self._monotonic = self._signals.environment.monotonic
        self._repairer = Repairer(objects, writing)
        self._limits = self._signals.environment.limits.of(MaintenanceLimits)
        self._busy = threading.Lock()
        self._tried: set[WrongObject] = set()
        self._audited: dict[int, float] = {}  # when, by cloud
        self._emptied: frozenset[int] = frozenset()  # the clouds that are to be filled again
        self._filled: float | None = None  # when containers on the clouds were looked after
        self._unfilled: set[int] = set()  # clouds that lacked something of them still
        self._failures: dict[int, int] = {}  # requests that had failed then, by cloud
        self._known_wrong: set[WrongObject] = set()  # at the last step
        self._pause = self.first
        self._guarding = threading.Lock()
        self._guarded: frozenset[WrongObject] = frozenset()

    def scrub(self, percent: float, step: Step) -> ScrubReport:
        """Look at the shares of so many per cent of the packs, and at all other objects; changes nothing.

        Raises HybrisError while another scrub or repair is under way, and when the volume is closed.
        """
        with self._exclusively():
            self._writing.look_at_clouds()
            report = ScrubReport(self.objects.clouds, self.objects.names)
            scrub(self.objects, report, percent, self._stoppable(step))
            return report

    def repair(self, step: Step) -> RepairReport:
        """Verify everything on the clouds and put right what is wrong. Raises like `scrub`."""
        with self._exclusively():
            self._writing.look_at_clouds()
            report = self._repairer.repair(self._stoppable(step))
            for one in self._upkeep.wrong_objects():
                self._excuse_moved(one)
            return report

    def trusted(self) -> set[int]:
        """See `CloudObjects.trusted`."""
        return self.objects.trusted()

    @property
    def first(self) -> Pause:
        """How long it is until the first step."""
        return Pause(self._limits.first_pause)

    def step(self) -> Pause:
        """Heal what ordinary reads and check-ups had found wrong at the last step. What has just been found
        is left for the next one, as the cloud may be in the middle of trouble. And put on clouds that were
        away what was written without them."""
        tried = self._known_wrong.intersection(self._upkeep.wrong_objects())
        due = tried or self._emptied or self.objects.renewer.lost()
        left = due and (self.heal(tried) or self._emptied or self.objects.renewer.lost())
        self._pause = Pause(min(self._pause.most * 2, _LAST_PAUSE)) if left else self.first
        self._known_wrong = set(self._upkeep.wrong_objects())
        self.fill()
        return self._pause

    def fill(self) -> None:
        """Put the values of containers on the clouds on those that lack them, when it is time: a cloud has
        failed since the last time and answers again; or a day is over, as other devices may have seen one
        fail. Does nothing while a scrub or repair is under way."""
        now, clouds = self._monotonic(), self.objects.clouds
        failures = {cloud: self._upkeep.failures(cloud) for cloud in clouds}
        failed = {cloud for cloud in clouds if failures[cloud] != self._failures.get(cloud, 0)}
        is_due = any(not self._upkeep.is_down(cloud) for cloud in failed | self._unfilled)
        pause = self._limits.fill_pause if is_due else _FILL_ANYWAY
        if self._filled is not None and now - self._filled < pause:
            return
        if not self._busy.acquire(blocking=False):
            return
        try:
            self._filled, self._failures = now, failures
            self._unfilled = self.objects.values.fill(self.objects.trusted, self._go_on)
        finally:
            self._busy.release()

    def refill(self, cloud: int) -> None:
        """Fill a cloud that was emptied again, in the background."""
        self._emptied |= {cloud}
        self._audited.pop(cloud, None)

    def guard(self, doubted: Collection[int] = ()) -> None:
        """If clouds are known to have lost shares, find out which packs are lost altogether, so that nothing
        of them that is here is let go before they have been written again. Clouds that are *doubted* may have
        lost some. Writes nothing to the clouds."""
        with self._guarding:
            wrong = frozenset(one for one in self._upkeep.wrong_objects() if parse_share_name(one.name))
            news, self._guarded = wrong - self._guarded, wrong
            if not news and not doubted:
                return
            clouds = {one.cloud for one in wrong}.union(doubted)
            for pack in _audit(self.objects.expected, self._upkeep, clouds).lost():
                answers = [
                    self._upkeep.is_there(cloud, share_name(pack.id, index))
                    for index, cloud in enumerate(pack.placement)
                ]
                if len(answers) - answers.count(False) < pack.k:
                    self.objects.renewer.set_aside(pack.id)
                if self._signals.stopping:
                    return

    def heal(self, wrong: Iterable[WrongObject]) -> set[WrongObject]:
        """Put right, where they were, objects that are known to be wrong; those of them that still are.

        What has been put right before, or could not be, goes to another cloud, the best that has none of it.
        Only on clouds that still have this volume's marker: a disk that is not mounted is not written to.
        Where a cloud has lost something, it is looked what else it does not list, and that is put right, too.
        So is what the clouds have lost altogether. Does nothing while a scrub or repair is under way.
        """
        wrong = set(wrong)
        values = {one for one in wrong if self.objects.values.is_value(one.name)}
        if not self._busy.acquire(blocking=False):
            return wrong
        trusted: set[int] = set()
        try:
            trusted = self.objects.trusted()
            heals = [
                *(partial(self._heal, one, trusted) for one in sorted(wrong - values)),
                *(
                    partial(self.objects.packs.mend, pack, writable=trusted, move=False)
                    for pack in self.objects.renewer.lost()
                ),
            ]
            lossy = self._carry_out(heals) | self._emptied
            self._mend_absent(lossy & trusted, trusted)
            if values:
                self._log(self.objects.values.heal(values, trusted, self._tried, self._go_on))
        finally:
            tried = {one for one in wrong if one.cloud in trusted}
            self._tried = tried if len(self._tried) > _MOST_TRIED else self._tried | tried
            self._busy.release()
        return wrong.intersection(self._upkeep.wrong_objects())

    def _mend_absent(self, clouds: set[int], trusted: set[int]) -> None:
        """Put right the other objects that these clouds stored and do not list."""
        now = self._monotonic()
        due = {one for one in clouds if now - self._audited.get(one, -_AUDIT_PAUSE) >= _AUDIT_PAUSE}
        if not due:
            return
        absent = _audit(self.objects.expected, self._upkeep, due)
        self._audited |= dict.fromkeys(due, now)
        self._emptied -= due
        self._carry_out(
            [
                *(
                    partial(self.objects.packs.mend, one.id, writable=trusted, move=False)
                    for one in absent.packs
                ),
                *(
                    partial(self.objects.segments.mend, name, writable=trusted, move=False)
                    for name in absent.segments
                ),
                *self.objects.checkpoint.mends(),
            ]
        )
        self._writing.announce()

    def _carry_out(self, heals: Iterable[Callable[[], Sequence[Repair]]]) -> set[int]:
        """Run one after the other. Returns the clouds that lacked something."""
        lossy = set[int]()
        for heal in heals:
            if self._signals.stopping:
                break
            repairs = heal()
            lossy |= {repair.cloud for repair in repairs if repair.finding.kind == "missing"}
            self._log(repairs)
        return lossy

    def _go_on(self) -> bool:
        return not self._signals.stopping

    @staticmethod
    def _log(repairs: Iterable[Repair]) -> None:
        for repair in repairs:
            log.info("%s: %s", repair.finding.what, repair.failure or "repaired")

    def _heal(self, one: WrongObject, trusted: set[int]) -> list[Repair]:
        share = parse_share_name(one.name)
        if share is not None:
            pack, _ = share
            if self._excuse_moved(one):
                return []
            again = one in self._tried
            return self.objects.packs.mend(pack, writable=trusted, move=again) if one.cloud in trusted else []
        part = parse_checkpoint_name(one.name)
        if part is not None:
            return self._heal_part(one, part) if one.cloud in trusted else []
        if one.name == self.objects.expected.head and one.cloud in trusted:
            self._writing.announce()
            shipped = self.objects.expected.shipped()
            if shipped is not None:
                self.objects.expected.look_at_head(one.cloud, shipped)
            return []
        if one.cloud in self.objects.segments.holders(one.name) and one.cloud in trusted:
            return self.objects.segments.mend(one.name, writable=trusted, move=False)
        return []

    def _excuse_moved(self, one: WrongObject) -> bool:
        """Excuse a cloud of a share if it was moved away, maybe by another device. Returns whether it was."""
        share = parse_share_name(one.name)
        moved = share is not None and self.objects.expected.holder(*share) != one.cloud
        if moved:
            self._upkeep.excuse(one.cloud, one.name)
        return moved

    def _heal_part(self, one: WrongObject, part: bytes) -> list[Repair]:
        repairs = self.objects.checkpoint.mend(part)
        if repairs is None:
            self._upkeep.excuse(one.cloud, one.name)  # another checkpoint has taken its place
        return repairs or []

    @contextlib.contextmanager
    def _exclusively(self) -> Iterator[None]:
        if not self._busy.acquire(blocking=False):
            raise HybrisError(
                "a scrub or repair of this volume is under way already", "", "Try again when it has ended."
            )
        try:
            yield
        finally:
            self._busy.release()

    def _stoppable(self, step: Step) -> Step:
        def checked(stage: str, done: int, total: int) -> None:
            if self._signals.stopping:
                raise HybrisError("the volume is being closed", "", "Run the command again afterwards.")
            step(stage, done, total)

        return checked
