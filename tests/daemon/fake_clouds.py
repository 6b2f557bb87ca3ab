"""The clouds of a volume and what is done with them, for `tests.daemon.fake`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal

import msgspec

from hybrisfs.api.clouds import (
    AddedCloud,
    Checked,
    Cloud,
    KeptCloud,
    NamedCloud,
    Redundancy,
    ReplacedCloud,
    Retention,
    TestedCloud,
)
from hybrisfs.api.maintenance import Kit, KitCloud, MadeKit, RemovedKit, Repair, Scrub
from hybrisfs.api.request import extended
from hybrisfs.api.traffic import Direction, Transfers
from hybrisfs.dispersal.traffic import CloudTraffic, Counters, Transfer
from hybrisfs.errors import UsageError
from tests.daemon.fake_facts import EXPIRES, FakeFacts

__all__ = ["DRAWN", "KIT", "FakeClouds", "FakeMaintenance", "FakeRecovery", "FakeTransfers"]

KIT: Final = "0123456789abcdef" * 2
DRAWN: Final = "eight words that nobody ever will easily guess"


@dataclass
class FakeClouds:
    """One cloud, which goes when `released` is set; `asked` is what was asked for."""

    asked: list[tuple[str, ...]] = field(default_factory=list)
    released: bool = True
    trouble: str = ""
    counters: Counters = field(default_factory=Counters)
    url: str = "file:///amber"
    retention: dict[str, Any] | None = None
    together: list[str] = field(default_factory=list)

    def traffic(self) -> Sequence[CloudTraffic]:
        transfers = [Transfer("put", 8_000_000, 2_000_000, 1.5)]
        return [CloudTraffic(0, "amber", "ok", self.counters, transfers)]

    def all(self) -> list[Cloud]:
        return [
            Cloud(
                number=0,
                name="amber",
                url=self.url,
                use="draining" if self.trouble else "in use",
                objects=1200,
                bytes=3_000_000,
                state="ok",
                reason="",
                trouble=self.trouble,
                retention=self._retention(),
                checked=Checked(90, 1_760_000_000.0, None, 0.41, 1333.3),
            )
        ]

    def _retention(self) -> Retention | None:
        return msgspec.convert(self.retention, Retention | None)

    def warnings(self) -> list[str]:
        return self.together

    def test(self, which: str, *, make: bool) -> TestedCloud:
        return TestedCloud("photos", which, {"put": 0.0123}, self._retention(), self.together)

    def add(self, url: str, name: str | None, days: int | None = None, *, make: bool) -> AddedCloud:
        self.asked.append(
            ("add", url, name or "", *([str(days)] if days else []), *(["make"] if make else []))
        )
        added = AddedCloud("photos", name or "new", self.together)
        if days:
            added.retention, added.note = self._retention(), ""
        return added

    def retain(self, which: str, days: int) -> KeptCloud:
        self.asked.append(("retain", which, str(days)))
        return KeptCloud("photos", which, self._retention(), "mind the costs")

    def adopt(self, which: str) -> NamedCloud:
        self.asked.append(("adopt", which))
        return NamedCloud("photos", which)

    def drain(self, which: str) -> NamedCloud:
        self.asked.append(("drain", which))
        return NamedCloud("photos", which)

    def remove(self, which: str) -> NamedCloud:
        raise UsageError(f"this volume has no cloud {which!r}", "", "There are: amber.")

    def rename(self, which: str, name: str) -> NamedCloud:
        self.asked.append(("rename", which, name))
        return NamedCloud("photos", name)

    def replace(self, which: str, url: str, name: str | None, *, make: bool) -> ReplacedCloud:
        self.asked.append(("replace", which, url))
        return ReplacedCloud("photos", which, "new", self.together)

    def wait(
        self, which: str, timeout: float | None, progress: Callable[[int, int], None]
    ) -> tuple[bool, str]:
        progress(1, 2)
        return self.released, self.trouble

    def change_redundancy(self, f: int | None, k: int | None) -> Redundancy:
        return Redundancy("photos", 1 if f is None else f, 1 if k is None else k)

    def wait_rewritten(self, timeout: float | None, progress: Callable[[int, int], None]) -> tuple[bool, str]:
        return self.released, self.trouble


@dataclass
class FakeTransfers:
    """Takes note of what it is told; "nonsense" is not a timetable."""

    told: list[tuple[object, ...]] = field(default_factory=list)
    held: Literal["paused", "metered"] | None = None
    until: float | None = None

    def limit(self, up: str | None, down: str | None, on_metered: str | None) -> None:
        if up == "nonsense":
            raise UsageError(f"{up!r} is not a rate")
        self.told.append((up, down, on_metered))

    def pause(self, seconds: float | None) -> None:
        self.told.append(("pause", seconds))
        self.held, self.until = "paused", None if seconds is None else EXPIRES

    def resume(self) -> None:
        if self.held == "paused":
            self.held = None

    def facts(self) -> Transfers:
        return Transfers(
            up=Direction("08:00,512k 19:00,off", 524288, EXPIRES, None),
            down=Direction("off", None, None, None),
            on_metered="pause",
            held=self.held,
            paused_until=self.until if self.held == "paused" else None,
        )


@dataclass
class FakeMaintenance:
    """Reports what it is told to; `percent` is what was last asked for."""

    facts: dict[str, Any] = field(default_factory=dict)
    percent: float | None = None

    def trusted(self) -> set[int]:
        return set()

    def scrub(self, percent: float, step: Callable[[str, int, int], None]) -> FakeFacts[Scrub]:
        self.percent = percent
        step("packs", 1, 2)
        problems = [{"key": None, "older": False, **one} for one in self.facts.get("problems", ())]
        return FakeFacts({**self.facts, "problems": problems}, Scrub)

    def repair(self, step: Callable[[str, int, int], None]) -> FakeFacts[Repair]:
        step("packs", 2, 2)
        problems = [{"key": None, **one} for one in self.facts.get("problems", ())]
        return FakeFacts({**self.facts, "problems": problems}, Repair)


@dataclass
class FakeRecovery:
    """One kit, which the clouds hold as `states` says; `given` are the passphrases of those made."""

    states: list[str] = field(default_factory=list)
    given: list[str | None] = field(default_factory=list)
    used: bool = False
    unsigned: bool = False

    def all(self) -> list[Kit]:
        clouds = [
            KitCloud(f"cloud-{number}", f"file:///{number}", state)
            for number, state in enumerate(self.states)
        ]
        kit = Kit(
            kit=KIT,
            created=EXPIRES,
            used=self.used,
            clouds=clouds,
            complete=all(state == "complete" for state in self.states),
        )
        if self.unsigned:
            kit.unsigned = True
        return [kit] if self.states else []

    def make(self, passphrase: str | None) -> MadeKit:
        self.given.append(passphrase)
        if passphrase == "short":
            raise UsageError("the passphrase has fewer than 12 characters")
        self.states = self.states or ["complete", "complete"]
        pages = {"html": "<html>page</html>", "text": "page"}
        made = extended(MadeKit, self.all()[0], name="photos", pages=pages)
        if passphrase is None:
            made.passphrase, made.bits = DRAWN, 103
        return made

    def remove(self, which: str) -> RemovedKit:
        if not KIT.startswith(which):
            raise UsageError(f"{which!r} is not a recovery kit of this volume", "", "There are: none.")
        left = [f"cloud-{n}" for n, one in enumerate(self.states) if one == "unknown"]
        return RemovedKit("photos", KIT, left)
