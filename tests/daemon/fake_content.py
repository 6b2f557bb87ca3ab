"""What of the content of files is on this device, for `tests.daemon.fake`."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import PurePath

from hybrisfs.api.content import Entry, Freed, Measured, Pin
from hybrisfs.errors import HybrisError, UsageError
from tests.daemon.fake_facts import EXPIRES

__all__ = ["FakeBrowsing", "FakeContent"]


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
        )

    def pins(self) -> list[Pin]:
        return [Pin(1, 3_000_000, 0, str(path)) for path in self.pinned]


@dataclass
class FakeBrowsing:
    """Every folder holds `names`, which are files; every file holds `data`."""

    names: list[str] = field(default_factory=list)
    data: bytes = b"hello"

    def folder(self, path: PurePath, after: str, limit: int) -> tuple[list[Entry], bool]:
        left = [name for name in sorted(self.names) if name > after]
        entries = [Entry(name, "file", 5, EXPIRES, "durable", "no", None) for name in left[:limit]]
        return entries, len(left) > limit

    def read(self, path: PurePath, offset: int, length: int) -> tuple[int, bytes]:
        if path.name == "missing":
            raise HybrisError(f"{path}: No such file or directory")
        return len(self.data), self.data[offset : offset + length]
