"""What versions are called in the folder of a file."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from dataclasses import replace

import pytest

from hybrisfs.registers.tree import Attr
from hybrisfs.versions.by_path import VersionsByPath
from hybrisfs.versions.catalog import Version
from hybrisfs.versions.tree import PastNode
from tests.versions.support import UsualRetention

SECOND = 1_000_000_000
EARLIEST = Version(bytes(16), None, 0, 1_700_000_000 * SECOND, None, 0, "laptop", "a/notes.txt", None)
FOLDER = PastNode((b"",), Attr(0o40555, 0, 0, 0, 0), None, 1)


class Catalog:
    """Three versions, two of them of one second."""

    def __init__(self, *_: object) -> None:
        pass

    def names(self, path: object) -> dict[bytes, set[bytes]]:
        return {}

    def kept(self, path: object, now: int) -> list[Version]:
        later = [EARLIEST.since + SECOND // 2, EARLIEST.since + SECOND]
        return [*(replace(EARLIEST, since=one) for one in reversed(later)), EARLIEST]


class Tree:
    """All files have the same attributes."""

    def __init__(self, *_: object) -> None:
        pass

    def attr(self, node: bytes) -> Attr:
        return Attr(0o100644, 0, 0, 0, 0)


def test_versions_of_one_second_are_numbered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hybrisfs.versions.by_path.Catalog", Catalog)
    monkeypatch.setattr("hybrisfs.versions.by_path.PastTree", Tree)
    with closing(sqlite3.connect(":memory:")) as db:
        found = list(VersionsByPath((b"a", b"notes.txt"), UsualRetention()).children(db, FOLDER))
    assert [one.name for one in found] == [
        b"2023-11-14T22:13:20Z notes.txt",
        b"2023-11-14T22:13:20Z (2) notes.txt",
        b"2023-11-14T22:13:21Z notes.txt",
    ]
    assert len({one.number for one in found}) == 3
