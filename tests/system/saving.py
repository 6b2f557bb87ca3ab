"""Two linked devices whose programs save the same files within milliseconds; what must be there then.

`python -m tests.system.saving ROUNDS [SEED]` runs so many rounds with daemons, mounts and clouds of its own.

Every content is written once. It may vanish only when a program that had read exactly that replaced or
removed it; all else must be on both devices in the end, under its name or beside it.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import socket
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, Final

from tests.system.deadline import until
from tests.system.device import Device
from tests.system.pairing import device_list, pair

__all__ = ["KINDS", "LostError", "Saving", "linked_devices", "saving_together"]

KINDS: Final = ("rename", "folder", "in place", "remove", "truncate", "first", "backup", "again", "joined")
_AT_ONCE: Final = 12  # rounds that are under way side by side
_APART: Final = 0.25  # seconds between the two programs, at most
_LARGE: Final = 1_400_000  # bytes of some files: more than one chunk


class LostError(AssertionError):
    """A content that nobody who had read it replaced is not there."""


class Saving:
    """The programs of one round, one on each device, at *folder* in the mounts."""

    def __init__(self, number: int, kind: str, chance: random.Random) -> None:
        self.number = number
        self.kind = kind
        self.folder = f"{number}"
        self.moved: list[str] = []
        self.written: set[bytes] = set()  # and synced
        self.ended: set[bytes] = set()  # contents that a program which had read them replaced or removed
        self._count = 0
        self._pause = chance.choice((0.0, 0.0, 0.05, 0.3))  # from reading a file to replacing it, in seconds
        self.story: list[str] = []
        self._begun = time.monotonic()
        self._large = chance.random() < 0.1
        self.offset = chance.uniform(-_APART, _APART) * chance.random()

    def _content(self, who: str) -> bytes:
        """What nobody has written before."""
        self._count += 1
        return f"<{self.number} {who} {self._count}>".encode()

    def _write(self, path: Path, content: bytes) -> None:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
        try:
            os.write(descriptor, content)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        self.written.add(content.partition(b"\0")[0])

    def prepare(self, mount: Path) -> None:
        """Make the file that both are going to save, if there is to be one."""
        folder = mount / self.folder
        folder.mkdir()
        if self.kind != "first":
            body = self._content("base")
            self._write(folder / "file", body + (bytes(_LARGE) if self._large else b""))

    def act(self, mount: Path, who: str, first: bool) -> None:
        """What the program of one device does."""
        kind = self.kind
        path = mount / self.folder / "file"
        if kind == "joined":
            self._save_in_folders(mount / self.folder / "nest", who)
        elif kind == "again":
            for _ in range(3):
                self._save(path, who)
        elif kind in ("rename", "folder", "first"):
            self._save(path, who)
            if kind == "folder":
                self._move(mount, who)
        elif first:
            self._overwrite(path, who)
        elif kind == "in place":
            self._save(path, who)
        elif kind == "remove":
            self._remove(path, who)
        elif kind == "backup":
            self._save_with_backup(path, who)
        else:
            self._truncate(path, who)

    def _read(self, path: Path) -> bytes | None:
        with contextlib.suppress(FileNotFoundError):
            return path.read_bytes().partition(b"\0")[0]
        return None

    def _note(self, who: str, what: str, before: bytes | None, after: bytes | None = None) -> None:
        self.story.append(f"{time.monotonic() - self._begun:.3f} {who} {what} {before!r} -> {after!r}")
        if before is not None:
            self.ended.add(before)

    def _save(self, path: Path, who: str) -> None:
        """As editors do."""
        before, after = self._read(path), self._content(who)
        time.sleep(self._pause)
        draft = path.with_name(f".file.{who}.tmp")
        self._write(draft, after)
        draft.rename(path)
        self._note(who, "saved", before, after)  # the other may move the folder before it is synced
        _sync_folder(path.parent)

    def _save_with_backup(self, path: Path, who: str) -> None:
        """As vim does."""
        before, after = self._read(path), self._content(who)
        time.sleep(self._pause)
        backup = path.with_name(f"file~{who}")
        path.rename(backup)
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
        try:
            os.write(descriptor, after)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        self.written.add(after)
        backup.unlink()
        self._note(who, "saved with a backup", before, after)

    def _save_in_folders(self, folder: Path, who: str) -> None:
        """In folders of one name, made by both, one in the other, and moved at once."""
        for number in range(2):
            (folder / "nest").mkdir(parents=True, exist_ok=True)
            self._save(folder / "nest" / "file", who)
            with contextlib.suppress(OSError):  # the other has moved it, or one is there
                (folder / "nest").rename(folder.with_name(f"nest {number if self._pause else who}"))

    def _overwrite(self, path: Path, who: str) -> None:
        """Read it and write it anew through one descriptor."""
        descriptor = os.open(path, os.O_RDWR)
        try:
            before = os.read(descriptor, 4096).partition(b"\0")[0]
            os.ftruncate(descriptor, 0)
            after = self._content(who)
            os.pwrite(descriptor, after, 0)
            os.fsync(descriptor)
            self.written.add(after)
        finally:
            os.close(descriptor)
        self._note(who, "overwrote", before, after)

    def _truncate(self, path: Path, who: str) -> None:
        """Read it, then open it to write it anew."""
        before, after = self._read(path), self._content(who)
        time.sleep(self._pause)
        self._write(path, after)
        self._note(who, "wrote", before, after)

    def _remove(self, path: Path, who: str) -> None:
        before = self._read(path)
        time.sleep(self._pause)
        path.unlink()
        self._note(who, "removed", before)

    def _move(self, mount: Path, who: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            (mount / self.folder).rename(mount / f"{self.folder} of {who}")

    def lost(self, trees: Iterable[set[bytes]]) -> set[bytes]:
        """What ought to be in all of these, the contents of the devices, and is not."""
        must = self.written - self.ended
        return {one for one in must for tree in trees if one not in tree}


def _sync_folder(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _tree(mount: Path, games: Iterable[Saving]) -> dict[str, bytes]:
    """The beginning of the content of every file of these, by path."""
    numbers = {game.folder for game in games}
    found: dict[str, bytes] = {}
    for top in mount.iterdir():
        for folder, _, names in os.walk(top) if top.name.partition(" ")[0] in numbers else ():
            for name in names:
                with contextlib.suppress(OSError):
                    path = Path(folder, name)
                    with path.open("rb") as file:
                        found[str(path.relative_to(mount))] = file.read(200).partition(b"\0")[0]
    return found


def saving_together(a: Device, b: Device, rounds: Iterable[tuple[int, str]], chance: random.Random) -> None:
    """Play these rounds (number and kind), all at the same time, and look what has become of them.

    Raises LostError.
    """
    mounts = (a.mountpoint, b.mountpoint)
    games = [Saving(number, kind, chance) for number, kind in rounds]
    for game in games:
        game.prepare(mounts[0])
    until(lambda: _tree(mounts[0], games) == _tree(mounts[1], games), "the files to arrive", 60)
    start = time.monotonic() + 0.1
    with ThreadPoolExecutor(2 * len(games)) as pool:
        acts = []
        for place, game in enumerate(games):
            at = start + place * 0.02
            times = (at, at + game.offset) if game.offset > 0 else (at - game.offset, at)
            early = chance.randrange(2)
            for number, (mount, who) in enumerate(zip(mounts, ("a", "b"), strict=True)):
                acts.append(pool.submit(_at, times[number], partial(game.act, mount, who, number == early)))
    for act in acts:
        act.result()

    def missing() -> list[Saving]:
        trees = [_tree(mount, games) for mount in mounts]
        if trees[0] != trees[1]:
            return games
        return [game for game in games if game.lost([set(tree.values()) for tree in trees])]

    try:
        until(lambda: not missing(), "all that was saved to be there", 20)
    except AssertionError:
        trees = [_tree(mount, games) for mount in mounts]
        for game in games:
            lost = game.lost([set(tree.values()) for tree in trees])
            if lost:
                there = [_tree(mount, [game]) for mount in mounts]
                raise LostError(f"{game.kind}: lost {lost} of {game.story}; there are {there}") from None
        raise


def _at(moment: float, act: Callable[[], None]) -> None:
    time.sleep(max(0.0, moment - time.monotonic()))
    # The other has moved the folder, removed the file, or made it just now.
    with contextlib.suppress(FileNotFoundError, FileExistsError):
        act()


@contextlib.contextmanager
def linked_devices(root: Path) -> Iterator[tuple[Device, Device]]:
    """Two devices with a link between them, mounted."""
    with contextlib.ExitStack() as stack:
        devices = []
        for name in ("ada", "bob"):
            (root / name).mkdir()
            devices.append(stack.enter_context(Device(root / name)))
        a, b = devices
        a.create(3)
        pair(a, b, "bob")
        a.stop()
        b.stop()
        port = _free_port()
        _configure(a, port=port, addresses=[], discover=False)
        _configure(b, port=0, addresses=[f"127.0.0.1:{port}"], discover=False)
        a.mount()
        b.mount()
        until(lambda: all(one["this"] or one.get("linked") for one in device_list(b)), "the link", 30)
        yield a, b


def _configure(device: Device, **links: Any) -> None:
    path = device.home / "config" / "volumes" / device.volume / "volume.json"
    entries = json.loads(path.read_text())
    path.write_text(json.dumps({**entries, "links": links, "deletion_percent": 100}))


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _main() -> None:
    rounds, seed = int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 1
    kinds = sys.argv[3].split(",") if len(sys.argv) > 3 else KINDS
    chance = random.Random(seed)
    lost = done = 0
    with tempfile.TemporaryDirectory(prefix="hybrisfs-saving-") as root, linked_devices(Path(root)) as (a, b):
        while done < rounds:
            some = [(done + number, chance.choice(kinds)) for number in range(_AT_ONCE)]
            try:
                saving_together(a, b, some, chance)
            except LostError as problem:
                lost += 1
                print(problem, flush=True)
            done += _AT_ONCE
            print(f"{done} rounds, {lost} with a loss", flush=True)
    sys.exit(1 if lost else 0)


if __name__ == "__main__":
    _main()
