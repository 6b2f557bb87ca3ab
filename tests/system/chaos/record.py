"""What programs wrote, read and replaced, and what was found wrong.

A content is named by its digest. It is *owed* once an fsync of it has returned, and no longer when a program
that had read exactly it began to replace or remove it.
"""

from __future__ import annotations

import hashlib
import threading
import time
from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

__all__ = ["CHECKS", "Content", "Overtaken", "Record", "digest"]

CHECKS = {
    "lost": "every content that was made durable is in the tree, or was replaced by who had read it",
    "strange": "no file holds what no program wrote",
    "order": "of two files that are written in turn, no other device shows the second ahead of the first",
    "bank": "databases seen on other devices are sound, and their invariant holds",
    "own bank": "a database is sound on its own device after every failure",
    "git": "repositories seen on other devices are whole",
    "trees": "all devices come to show the same tree, times and attributes included",
    "conflicts": "all devices list the same conflicts",
    "forks": "no device has forked that was not restored from a backup",
    "held": "no deletion waits for a person where that is switched off",
    "clouds": "after a repair, fsck finds nothing wrong on the clouds",
    "readable": "with any one cloud away and nothing cached, all can be read",
    "safe": "no device calls safe what is on no cloud",
    "ends": "a daemon that is killed ends, and its mount comes back",
    "traceback": "no daemon met an error that it did not expect",
}
"""The names of all checks, with what each says."""


def digest(content: bytes) -> str:
    return hashlib.blake2b(content, digest_size=12).hexdigest()


NOTHING = digest(b"")


@dataclass(frozen=True, slots=True)
class Content:
    """When, where and under which name a content was written."""

    device: str
    path: str
    at: float
    size: int


@dataclass(frozen=True, slots=True)
class Overtaken:
    """A program replaced or removed what stood at `path`; it had looked there at `looked`."""

    device: str
    path: str
    looked: float
    done: float


class Record:
    """The account of one life. Everything may be called by any thread."""

    def __init__(self, folder: Path, checks: Collection[str] = tuple(CHECKS)) -> None:
        """The logs `operations`, `faults` and `findings` come into *folder*; only *checks* find anything."""
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.findings: Counter[str] = Counter()
        self.counts: Counter[str] = Counter()
        self.overtaken: list[Overtaken] = []
        self._checks = frozenset(checks)
        self._told: list[str] = []
        self._begun = time.monotonic()
        self._lock = threading.Lock()
        self._logs: dict[str, TextIO] = {
            name: (folder / name).open("w", buffering=1) for name in ("operations", "faults", "findings")
        }
        self._written: dict[str, Content] = {}
        self._owed: dict[str, Content] = {}
        self._replaced: dict[str, Content] = {}

    def close(self) -> None:
        for log in self._logs.values():
            log.close()

    def now(self) -> float:
        """Seconds since the beginning."""
        return time.monotonic() - self._begun

    # -- logs ----------------------------------------------------------------------------------------------

    def operation(self, device: str, *what: object) -> None:
        self._log("operations", device, *what)

    def fault(self, *what: object) -> None:
        self._log("faults", *what)

    def count(self, what: str) -> None:
        with self._lock:
            self.counts[what] += 1

    def find(self, check: str, text: str) -> None:
        """Something is wrong."""
        if check not in self._checks:
            return
        self._log("findings", f"[{check}]", text)
        with self._lock:
            self.findings[check] += 1
            self._told.append(f"{self.now():8.2f} [{check}] {text}")

    def told(self, most: int = 30) -> str:
        """The first findings, of each kind some."""
        with self._lock:
            shown: Counter[str] = Counter()
            lines = []
            for line in self._told:
                check = line.split("]")[0]
                shown[check] += 1
                if shown[check] <= most // max(1, len(self.findings)) + 1:
                    lines.append(line)
            return "\n".join(lines)

    def _log(self, name: str, *what: object) -> None:
        line = f"{self.now():8.2f} {' '.join(map(str, what))}\n"
        with self._lock:
            if not self._logs[name].closed:
                self._logs[name].write(line)

    # -- contents ------------------------------------------------------------------------------------------

    def writes(self, device: str, path: str, content: bytes) -> str:
        """A program is about to bring a file into this state; returns the digest."""
        name = digest(content)
        with self._lock:
            self._written.setdefault(name, Content(device, path, self.now(), len(content)))
        return name

    def durable(self, device: str, path: str, name: str, size: int) -> None:
        """An fsync of this content has returned."""
        if name != NOTHING:
            with self._lock:
                self._owed[name] = Content(device, path, self.now(), size)

    def replaces(self, device: str, path: str, content: bytes) -> str:
        """A program that has read exactly this is about to replace or remove it; returns the digest."""
        name = digest(content)
        with self._lock:
            self._replaced.setdefault(name, Content(device, path, self.now(), len(content)))
        return name

    def reads(self, device: str, path: str, content: bytes) -> None:
        """A program has read this."""
        name = digest(content)
        if not self.is_known(name):
            text = f"{device} reads {name}, {len(content)} bytes, from {path!r}; kept as strange-{name}"
            self.find("strange", text)
            (self.folder / f"strange-{name}").write_bytes(content)
            self.writes(device, path, content)  # programs go on from there

    def overtakes(self, device: str, path: str, looked: float) -> None:
        """A name was replaced or removed now, by a program that had looked at it a moment ago."""
        with self._lock:
            self.overtaken.append(Overtaken(device, path, looked, self.now()))

    def forget(self, device: str, since: float, but: Collection[str]) -> int:
        """The device lost what it wrote since then, *but* for what others have seen."""
        with self._lock:
            gone = [
                name
                for name, content in self._owed.items()
                if content.device == device and content.at >= since and name not in but
            ]
            for name in gone:
                del self._owed[name]
            return len(gone)

    def owed(self) -> dict[str, Content]:
        """What must be in the tree now."""
        with self._lock:
            return {name: content for name, content in self._owed.items() if name not in self._replaced}

    def is_known(self, name: str) -> bool:
        """Whether a program wrote that."""
        with self._lock:
            return name == NOTHING or name in self._written
