"""Versions of a volume that is none."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import msgspec

from hybrisfs.api import versions as api
from hybrisfs.content_ids import Comparison, Difference
from hybrisfs.errors import HybrisError

__all__ = ["FakeBytes", "FakeContentIds", "FakeVersions"]


class FakeContentIds:
    """A place has the ID `f1-PATH` or `f1-PATH@MOMENT`."""

    def of(self, place: tuple[str, str | None], tell: Callable[[int], None]) -> str:
        tell(1 << 20)
        path, at = place
        return f"f1-{path}" if at is None else f"f1-{path}@{at}"

    def compare(
        self, first: tuple[str, str | None], second: tuple[str, str | None], tell: Callable[[int], None]
    ) -> Comparison:
        """Two thousand files differ."""
        found = [Difference(b"%04d" % number, "changed") for number in range(2000)]
        return Comparison(self.of(first, tell), self.of(second, tell), found)


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
    left: list[api.NotRestored] = field(default_factory=list)

    def all(self, path: str) -> api.Versions:
        if path != "notes.txt":
            raise HybrisError(
                f"there is no file {path!r} in the volume, and none is known to have been there"
            )
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
        versions = msgspec.convert([now | rest, then | rest], list[api.Version])
        return api.Versions("photos", path, versions, 1.6e9)

    def log(self, path: str, limit: int) -> api.Changes:
        one = api.Change(1.8e9, 1.8e9, "desk", ["made: a\nb", "content: 5 bytes"])
        return api.Changes("photos", path, [one] * limit, more=True, known_since=1.6e9)

    def removed(self, folder: str) -> api.RemovedFiles:
        gone = api.Removed("old.txt", "file", 3, 1.7e9, "desk", 1.8e9)
        return api.RemovedFiles("photos", folder, [gone] if folder in ("", ".") else [])

    def moments(self) -> api.Moments:
        return api.Moments("photos", ["2023-11-14T00:00Z"], "default")

    def reader(self, path: str, at: str | None, number: int | None) -> FakeBytes:
        return FakeBytes(f"{path} {at} {number}".encode())

    def restore(self, path: str, at: str | None, number: int | None, target: str | None) -> api.Restored:
        self.restored.append((path, at, number, target))
        return api.Restored("photos", target or path, 1, self.left, len(self.left))

    def preview(self, path: str, at: str, target: str | None, limit: int) -> api.Preview:
        """One file is changed, one made, and one cannot be put back."""
        changes = [
            api.PreviewedFile("a.txt", "changed", "file", 5, ""),
            api.PreviewedFile("b", "made", "folder", 0, ""),
            api.PreviewedFile("b/c.txt", "made", "file", 7, ""),
            api.PreviewedFile("d.txt", "left", "file", 7, "no cloud has its bytes"),
        ]
        return api.Preview("photos", target or path, changes[:limit], 1, 1, 1, 12)

    def folder(self, path: str, at: str, after: str, limit: int) -> api.FolderThen:
        """Names that a folder had in 2023."""
        names = [name for name in ("a.txt", "b", "d.txt") if name > after] if at.startswith("2023") else []
        entries = [api.FileThen(name, "file" if "." in name else "folder", 5, 1.7e9) for name in names]
        return api.FolderThen("photos", path, entries[:limit], len(entries) > limit)
