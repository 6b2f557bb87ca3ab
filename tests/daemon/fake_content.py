"""What of the content of files is on this device, for `tests.daemon.fake`."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import PurePath

from hybrisfs.api.copies import FileCopies, FolderCopies
from hybrisfs.api.files import Entry, Freed, Measured, Pin
from hybrisfs.api.ignoring import Ignored, IgnoredPath, IgnoreRule, IgnoreRules
from hybrisfs.errors import HybrisError, UsageError
from tests.daemon.fake_facts import EXPIRES

__all__ = ["FakeBrowsing", "FakeContent", "FakeCopies", "FakeIgnoring", "FakeLabels"]


@dataclass
class FakeContent:
    """Every path holds a file of 3 MB, a third of which is missing until `release` is set."""

    pinned: list[PurePath] = field(default_factory=list)
    evicted: list[PurePath] = field(default_factory=list)
    release: threading.Event = field(default_factory=threading.Event)
    trouble: str | None = None

    def pin(self, path: PurePath) -> Measured:
        if path.name == "missing":
            raise HybrisError(f"{path}: No such file or directory")
        self.pinned.append(path)
        return Measured(1, 3_000_000, 0 if self.release.is_set() else 1_000_000)

    def wait(
        self, paths: Sequence[PurePath], timeout: float | None, progress: Callable[[int, int], None]
    ) -> bool:
        progress(2_000_000 * len(paths), 3_000_000 * len(paths))
        return self.release.wait(timeout)

    def unpin(self, path: PurePath) -> None:
        if path not in self.pinned:
            raise UsageError(f"{path} is not pinned itself")
        self.pinned.remove(path)

    def evict(self, path: PurePath) -> Freed:
        self.evicted.append(path)
        return Freed(
            freed_bytes=3_000_000,
            pending_bytes=1000 if path.name == "new" else 0,
            pinned_bytes=2000 if path.name in ("new", "kept") else 0,
            copies_bytes=3000 if path.name == "precious" else 0,
        )

    def pins(self) -> list[Pin]:
        return [Pin(1, 3_000_000, 0, str(path)) for path in self.pinned]


@dataclass
class FakeIgnoring:
    """Remembers rules; `files` of 1,000 bytes are kept."""

    patterns: list[str] = field(default_factory=list)
    files: int = 0

    def facts(self) -> Ignored:
        return Ignored([IgnoreRule(one, "laptop") for one in self.patterns], self.files, self.files * 1000)

    def list(self, limit: int) -> IgnoreRules:
        facts = self.facts()
        paths = [IgnoredPath(f"file {number}", folder=not number) for number in range(self.files)][:limit]
        return IgnoreRules(facts.rules, facts.files, facts.bytes, "photos", paths)

    def add(self, patterns: Sequence[str]) -> None:
        if "*" in patterns:
            raise UsageError("* is not an ignore rule", "it would match everything")
        self.patterns += patterns

    def remove(self, patterns: Sequence[str]) -> None:
        for one in patterns:
            self.patterns.remove(one)


@dataclass
class FakeLabels:
    """Remembers the labels of each path."""

    by_path: dict[PurePath, set[str]] = field(default_factory=dict)

    def of(self, path: PurePath) -> list[str]:
        if path.name == "missing":
            raise HybrisError(f"{path}: No such file or directory")
        return sorted(self.by_path.get(path, ()))

    def add(self, path: PurePath, words: Sequence[str]) -> list[str]:
        self.by_path.setdefault(path, set()).update(words)
        return self.of(path)

    def remove(self, path: PurePath, words: Sequence[str]) -> list[str]:
        self.by_path.setdefault(path, set()).difference_update(words)
        return self.of(path)

    def counts(self) -> Counter[str]:
        return Counter(word for words in self.by_path.values() for word in words)

    def find(self, word: str) -> list[PurePath]:
        return sorted(path for path, words in self.by_path.items() if word in words)


@dataclass
class FakeCopies:
    """Remembers how many copies of each path are asked for; this device has all of it."""

    by_path: dict[PurePath, int] = field(default_factory=dict)

    def ask(self, path: PurePath, copies: int) -> None:
        if path.name == "missing":
            raise HybrisError(f"{path}: No such file or directory")
        self.by_path[path] = copies

    def all(self) -> list[FolderCopies]:
        return [
            FolderCopies(
                inside=str(path),
                copies=copies,
                on=["laptop"],
                fetching=["desktop"],
                short=copies > 1,
                bytes=5,
                missing_bytes=0,
            )
            for path, copies in self.by_path.items()
            if copies
        ]

    def of(self, path: PurePath) -> FileCopies:
        return FileCopies(0 if path.name == "new" else 3, ["laptop", "desktop"])


@dataclass
class FakeBrowsing:
    """Every folder holds `names`, which are files with `labels`; every file holds `data`."""

    names: list[str] = field(default_factory=list)
    data: bytes = b"hello"
    labels: list[str] = field(default_factory=list)

    def folder(self, path: PurePath, after: str, limit: int) -> tuple[list[Entry], bool]:
        left = [name for name in sorted(self.names) if name > after]
        entries = [
            Entry(name, "file", 5, EXPIRES, "durable", "no", None, self.labels) for name in left[:limit]
        ]
        return entries, len(left) > limit

    def read(self, path: PurePath, offset: int, length: int) -> tuple[int, bytes]:
        if path.name == "missing":
            raise HybrisError(f"{path}: No such file or directory")
        return len(self.data), self.data[offset : offset + length]
