"""What of the content of files is on this device, for `tests.daemon.fake`."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import Any

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

    def pin(self, path: PurePath) -> dict[str, Any]:
        if path.name == "missing":
            raise HybrisError(f"{path}: No such file or directory")
        self.pinned.append(path)
        return {"files": 1, "bytes": 3_000_000, "missing_bytes": 0 if self.release.is_set() else 1_000_000}

    def wait(
        self, paths: Sequence[PurePath], timeout: float | None, progress: Callable[[int, int], None]
    ) -> bool:
        progress(2_000_000 * len(paths), 3_000_000 * len(paths))
        return self.release.wait(timeout)

    def unpin(self, path: PurePath) -> dict[str, Any]:
        if path not in self.pinned:
            raise UsageError(f"{path} is not pinned itself")
        self.pinned.remove(path)
        return {}

    def evict(self, path: PurePath) -> dict[str, Any]:
        self.evicted.append(path)
        return {
            "freed_bytes": 3_000_000,
            "pending_bytes": 1000 if path.name == "new" else 0,
            "pinned_bytes": 2000 if path.name in ("new", "kept") else 0,
        }

    def pins(self) -> list[dict[str, Any]]:
        return [
            {"path": str(path), "files": 1, "bytes": 3_000_000, "missing_bytes": 0} for path in self.pinned
        ]


@dataclass
class FakeBrowsing:
    """Every folder holds `names`, which are files; every file holds `data`."""

    names: list[str] = field(default_factory=list)
    data: bytes = b"hello"

    def folder(self, path: PurePath, after: str, limit: int) -> dict[str, Any]:
        left = [name for name in sorted(self.names) if name > after]
        entry = {"kind": "file", "size": 5, "modified": EXPIRES, "state": "durable", "pinned": "no"}
        entries = [{"name": name, **entry, "conflict": None} for name in left[:limit]]
        return {"entries": entries, "more": len(left) > limit}

    def read(self, path: PurePath, offset: int, length: int) -> dict[str, Any]:
        if path.name == "missing":
            raise HybrisError(f"{path}: No such file or directory")
        return {"size": len(self.data), "offset": offset, "data": self.data[offset : offset + length]}
