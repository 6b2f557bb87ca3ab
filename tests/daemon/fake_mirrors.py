"""Mirrors of a volume that is none."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePath

from hybrisfs.api.mirrors import Imported, Mirror, Problem
from tests.daemon.fake_facts import EXPIRES

__all__ = ["FakeMirrors"]


@dataclass
class FakeMirrors:
    """Mirrors that only remember that they are there; one of a folder called "emptied" has much to delete."""

    mirrored: dict[Path, Mirror] = field(default_factory=dict)
    imported: list[tuple[object, ...]] = field(default_factory=list)
    decided: list[tuple[Path, bool]] = field(default_factory=list)

    @property
    def directories(self) -> list[Path]:
        return list(self.mirrored)

    def all(self) -> list[Mirror]:
        return list(self.mirrored.values())

    def add(self, directory: Path, at: PurePath, ignore: Sequence[str]) -> Mirror:
        emptied = directory.name == "emptied"
        self.mirrored[directory] = Mirror(
            id="00",
            directory=str(directory),
            at=str(at),
            ignore=list(ignore),
            state="waiting" if emptied else "watching",
            reason=None,
            names=1234,
            done=0,
            total=0,
            equal_at=EXPIRES,
            held_back={"volume": 99} if emptied else {},
            problems=[Problem("pipe\n", "is a pipe")] if emptied else [],
            problem_count=3 if emptied else 0,
            watching=None,
        )
        return self.mirrored[directory]

    def remove(self, directory: Path) -> Mirror:
        return self.mirrored.pop(directory)

    def decide(self, directory: Path, *, accept: bool) -> Mirror:
        self.decided.append((directory, accept))
        return self.mirrored[directory]

    def bring_in(
        self,
        directory: Path,
        into: PurePath,
        step: Callable[[str, int, int], None],
        *,
        dry_run: bool,
        replace: bool,
    ) -> Imported:
        step("copying", 1, 2)
        self.imported.append((directory, into, dry_run, replace))
        bad = directory.name == "bad"
        return Imported(
            name="photos",
            into=str(into),
            dry_run=dry_run,
            folders=2,
            files=3,
            bytes=4_000_000,
            present=1,
            replaced=0,
            problems=[Problem("pipe\n", "is a pipe")] if bad else [],
            problem_count=3 if bad else 0,
        )
