"""Versions of a volume that is none."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from hybrisfs.errors import UsageError

__all__ = ["FakeBytes", "FakeVersions"]


@dataclass
class FakeBytes:
    """Bytes of a version."""

    data: bytes

    @property
    def size(self) -> int:
        return len(self.data)

    def read(self, offset: int, size: int) -> bytes:
        return self.data[offset : offset + size]


@dataclass
class FakeVersions:
    """One file, notes.txt, with two versions; and one that was removed."""

    restored: list[tuple[str, str | None, int | None, str | None]] = field(default_factory=list)

    def all(self, path: str) -> dict[str, Any]:
        if path != "notes.txt":
            raise UsageError(f"there is no file {path!r} in the volume, and none is known to have been there")
        now = {"version": 0, "since": 1.8e9, "until": None, "kept_until": None, "size": 5, "readable": False}
        then = {
            "version": 1,
            "since": 1.7e9,
            "until": 1.8e9,
            "kept_until": 1.9e9,
            "size": 4,
            "readable": True,
        }
        rest = {"device": "desk", "path": path, "signed": 1.7e9, "at": "2023-11-14T22:13:20Z"}
        return {"path": path, "versions": [now | rest, then | rest], "known_since": 1.6e9}

    def log(self, path: str, limit: int) -> dict[str, Any]:
        one = {"time": 1.8e9, "signed": 1.8e9, "device": "desk", "what": ["made: a\nb", "content: 5 bytes"]}
        return {"path": path, "changes": [one] * limit, "more": True, "known_since": 1.6e9}

    def removed(self, folder: str) -> dict[str, Any]:
        gone = {"path": "old.txt", "kind": "file", "size": 3, "removed": 1.7e9, "kept_until": 1.8e9}
        return {"path": folder, "removed": [gone | {"device": "desk"}] if folder in ("", ".") else []}

    def moments(self) -> dict[str, Any]:
        return {"moments": ["2023-11-14T00:00Z"], "keep": "default"}

    def reader(self, path: str, at: str | None, number: int | None) -> FakeBytes:
        return FakeBytes(f"{path} {at} {number}".encode())

    def restore(self, path: str, at: str | None, number: int | None, target: str | None) -> dict[str, Any]:
        self.restored.append((path, at, number, target))
        return {"path": target or path, "files": 1}
