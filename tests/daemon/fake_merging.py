"""Versions in conflict as a daemon knows them, made up."""

from __future__ import annotations

from dataclasses import dataclass, field

from hybrisfs.errors import HybrisError, UsageError
from hybrisfs.merge.text import merge_texts
from hybrisfs.volume.merging import Compared

__all__ = ["FakeMerging"]

MARK = "0f" * 16


@dataclass
class FakeMerging:
    """One conflict: its versions by their places, that which has the name first, and what they come from."""

    versions: dict[str, bytes] = field(default_factory=dict)
    base: bytes | None = None
    refusal: HybrisError | None = None
    settled: list[tuple[str, bytes]] = field(default_factory=list)
    """What was put in the place of all versions of a path."""

    def compare(self, path: str) -> Compared:
        if path not in self.versions:
            raise UsageError(f"there is no conflict at {path}", "", "hybrisfs conflicts list shows them.")
        contents = list(self.versions.values())
        merge = merge_texts(self.base or b"", contents)
        if self.base is None:
            merge = merge._replace(content=None, why="the version that they come from is not known")
        return Compared(next(iter(self.versions)), list(self.versions), contents, self.base, merge, MARK)

    def settle(self, path: str, mark: str, content: bytes) -> None:
        assert mark == MARK
        if self.refusal is not None:
            raise self.refusal
        self.settled.append((path, content))
