"""Two files written in turn, first then second: no other device may show the second ahead of the first."""

from __future__ import annotations

import contextlib
import os
import random
import threading
from pathlib import Path

from tests.system.chaos.record import Record
from tests.system.chaos.world import NAMES, World

__all__ = ["TurnReader", "TurnWriter"]

_WAYS = ("both held", "first held", "second held", "reopened", "renamed")
_EMPTY, _MISSING = -1, -2
_WIDTH = 20  # digits: a version is one write
_READER_PAUSE = 0.03  # seconds


class TurnWriter(threading.Thread):
    """Writes version after version into both files; begins in a folder of its own after each restoration."""

    def __init__(self, world: World, name: str, seed: int, stop: threading.Event) -> None:
        super().__init__(name=f"turns {name}", daemon=True)
        self._world, self._device, self._stop_word = world, name, stop
        self._record: Record = world.record
        self._choose = random.Random(f"{seed} turns {name}")

    def run(self) -> None:
        while not self._stop_word.wait(0.3):
            with contextlib.suppress(OSError):
                self._write(self._choose.choice(_WAYS), self._choose.randrange(20, 200))

    def _write(self, way: str, rounds: int) -> None:
        """A number of versions in one way; an error of the mount ends it."""
        folder = self._world.own(self._device, "turns", self._device)
        folder.mkdir(exist_ok=True)
        paths = (folder / "first", folder / "second")
        begin = max(0, *map(_version, paths)) + 1
        pause = self._choose.choice((0.01, 0.05, 0.3))
        held: dict[Path, int] = {}
        try:
            for path, kept in zip(paths, ("first held", "second held"), strict=True):
                if way in ("both held", kept):
                    held[path] = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
            for version in range(begin, begin + rounds):
                self._record.operation(self._device, "turn", folder.name, way, version)
                for path in paths:
                    self._put(path, version, way, held.get(path))
                if self._stop_word.wait(pause) or folder != self._world.own(
                    self._device, "turns", self._device
                ):
                    return
        finally:
            for file in held.values():
                with contextlib.suppress(OSError):
                    os.close(file)

    def _put(self, path: Path, version: int, way: str, file: int | None) -> None:
        data = f"{version:0{_WIDTH}}".encode()
        if way == "renamed":
            aside = path.with_name(f".{path.name}")
            aside.write_bytes(data)
            aside.rename(path)
        elif file is not None:
            os.pwrite(file, data, 0)
            if self._choose.random() < 0.5:
                os.fsync(file)
        else:
            own = os.open(path, os.O_WRONLY | os.O_CREAT, 0o644)
            try:
                os.pwrite(own, data, 0)
            finally:
                os.close(own)


class TurnReader(threading.Thread):
    """Reads the second file and then the first, of all the other devices, again and again."""

    def __init__(self, world: World, name: str, stop: threading.Event) -> None:
        super().__init__(name=f"turn reader {name}", daemon=True)
        self._world, self._device, self._stop_word = world, name, stop
        self._record: Record = world.record
        self._told: set[tuple[str, int, int]] = set()

    def run(self) -> None:
        while not self._stop_word.wait(_READER_PAUSE):
            for other in NAMES:
                if other != self._device:
                    with contextlib.suppress(OSError):
                        self._look(other)

    def _look(self, other: str) -> None:
        folder = self._world.own(self._device, "turns", other)
        mount = self._world.mount_of(self._device)
        second = _version(folder / "second")
        first = _version(folder / "first")
        if folder != self._world.own(self._device, "turns", other):
            return
        if mount != self._world.mount_of(self._device):
            return
        self._record.count("turns read")
        if second > first:
            self._record.count("turns out of order")
            if (folder.name, first, second) not in self._told:
                self._told.add((folder.name, first, second))
                shown = {_EMPTY: "an empty file", _MISSING: "no file"}.get(first, str(first))
                self._record.find(
                    "order", f"{self._device} shows second {second}, first {shown} of turns/{folder.name}"
                )


def _version(path: Path) -> int:
    """The version that the file holds, or one below all others."""
    try:
        return int(path.read_bytes() or _EMPTY)
    except FileNotFoundError:
        return _MISSING
