"""A person's programs on one device: they create, save, append, keep open, rename and remove at random.

All devices work in one folder, on few names, so that they often meet. Before a program changes a file it
reads it through the same descriptor, so that the record knows what exactly was replaced. A program that
replaces or removes by name looks once more at the last moment, as a careful editor does.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import random
import stat
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.system.chaos.record import Record
from tests.system.chaos.world import World

__all__ = ["Person"]

_SIZES = (10, 300, 5_000, 40_000, 200_000, 1_100_000)
_SIZE_WEIGHTS = (3, 6, 6, 3, 1, 0.3)
_AT_ONCE = 64 << 10  # bytes per write: the kernel passes so many on in one request
_HELD = 3
_FILES = [f"file {number}" for number in range(8)]
_FOLDERS = [f"folder {number}" for number in range(4)]
_DEEPEST = 3
_TRIES = 4  # folders to look for a file in
_PACE = 0.12  # seconds between steps, on average


class Person(threading.Thread):
    """The programs of one device, one after the other, until `stop` is set."""

    def __init__(self, world: World, name: str, seed: int, stop: threading.Event) -> None:
        super().__init__(name=f"person {name}", daemon=True)
        self._world, self._device, self._stop_word = world, name, stop
        self._record: Record = world.record
        self._choose = random.Random(f"{seed} person {name}")
        self._top = world.area(name, "work")
        self._number = 0
        self._held: list[tuple[int, Path]] = []
        self._steps: dict[Callable[[], None], float] = {
            self._create: 4,
            self._save: 6,
            self._overwrite: 5,
            self._append: 4,
            self._hold: 2,
            self._write_held: 5,
            self._let_go: 1,
            self._remove: 2.5,
            self._make_folder: 2,
            self._remove_folder: 0.7,
            self._remove_tree: 0.2,
            self._rename_file: 2.5,
            self._rename_folder: 1.5,
            self._link: 1.2,
            self._attribute: 1.2,
            self._mode: 1,
            self._time: 0.7,
            self._symlink: 0.7,
            self._read: 3,
        }

    def run(self) -> None:
        while not self._stop_word.wait(self._choose.expovariate(1 / _PACE)):
            [step] = self._choose.choices(list(self._steps), list(self._steps.values()))
            try:
                with self._world.at_work[self._device]:
                    step()
            except OSError as error:
                name = errno.errorcode.get(error.errno or 0, str(error))
                self._record.count(f"errno {name}")
                self._note(step.__name__.strip("_"), "->", name, error.filename or "")
                if error.errno in (errno.ENOTCONN, errno.ECONNABORTED):
                    self._drop_held()
        self._drop_held()

    # -- files ---------------------------------------------------------------------------------------------

    def _create(self) -> None:
        path = self._folder() / self._choose.choice(_FILES)
        with _opened(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL) as file:
            self._put(file, path, b"", [(0, self._fresh())], "create")

    def _save(self) -> None:
        """Save as editors do: a new file, renamed over the old one."""
        path = self._folder() / self._choose.choice(_FILES)
        if self._choose.random() < 0.7:
            path = self._file() or path
        aside = path.with_name(f".{path.name}.{self._device}{self._number}~")
        content = self._fresh()
        with _opened(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL) as file:
            name = self._put(file, aside, b"", [(0, content)], "write aside", durable=True)
        with self._instead_of(path, "save", name):
            aside.rename(path)
        self._record.durable(self._device, self._relative(path), name, len(content))
        _sync_folder(path.parent)

    def _overwrite(self) -> None:
        path = self._existing()
        with _opened(path, os.O_RDWR) as file:
            before = self._content(file, path)
            if self._choose.random() < 0.5:
                self._put(file, path, before, [(-1, b""), (0, self._fresh())], "overwrite")
            else:
                at = self._choose.randrange(len(before) + 1)
                self._put(file, path, before, [(at, self._fresh()[:4000])], "patch")

    def _append(self) -> None:
        path = self._existing()
        with _opened(path, os.O_RDWR) as file:
            before = self._content(file, path)
            self._put(file, path, before, [(len(before), self._fresh()[:3000])], "append")

    def _hold(self) -> None:
        """Open a file and keep it open."""
        if len(self._held) >= _HELD:
            return
        path = self._existing()
        self._held.append((os.open(path, os.O_RDWR | os.O_NOFOLLOW), path))
        self._note("hold", path)

    def _write_held(self) -> None:
        if not self._held:
            return
        file, path = self._choose.choice(self._held)
        before = self._content(file, path)
        at = self._choose.choice([0, len(before), self._choose.randrange(len(before) + 1)])
        self._put(file, path, before, [(at, self._fresh()[:3000])], "write held", durable=True)

    def _let_go(self) -> None:
        if self._held:
            file, path = self._held.pop(self._choose.randrange(len(self._held)))
            os.close(file)
            self._note("let go", path)

    def _remove(self) -> None:
        path = self._existing()
        with self._instead_of(path, "remove"):
            path.unlink()

    def _read(self) -> None:
        path = self._existing()
        with _opened(path, os.O_RDONLY) as file:
            self._content(file, path)

    # -- names ---------------------------------------------------------------------------------------------

    def _rename_file(self) -> None:
        path = self._existing()
        target = self._folder() / self._choose.choice(_FILES)
        if path != target:
            with self._instead_of(target, f"rename {path} to"):
                path.rename(target)

    def _link(self) -> None:
        path, target = self._existing(), self._folder() / self._choose.choice(_FILES)
        os.link(path, target, follow_symlinks=False)
        self._note("link", path, target)

    def _symlink(self) -> None:
        path = self._folder() / f"link {self._choose.randrange(3)}"
        with contextlib.suppress(FileNotFoundError):
            path.unlink()
            return
        path.symlink_to(self._choose.choice(_FILES))

    def _make_folder(self) -> None:
        path = self._folder() / self._choose.choice(_FOLDERS)
        if len(path.relative_to(self._top).parts) <= _DEEPEST:
            path.mkdir()
            self._note("mkdir", path)

    def _remove_folder(self) -> None:
        path = self._folder()
        if path != self._top:
            path.rmdir()
            self._note("rmdir", path)

    def _remove_tree(self) -> None:
        top = self._folder()
        if top == self._top:
            return
        self._note("remove tree", top)
        for parent, folders, names in os.walk(top, topdown=False):
            for name in names:
                path = Path(parent) / name
                if path.is_symlink():
                    path.unlink()
                else:
                    with self._instead_of(path, "remove"):
                        path.unlink()
            for name in folders:
                (Path(parent) / name).rmdir()
        top.rmdir()

    def _rename_folder(self) -> None:
        path, target = self._folder(), self._folder() / self._choose.choice(_FOLDERS)
        if path not in (self._top, target):
            path.rename(target)
            self._note("rename folder", path, target)

    # -- attributes ----------------------------------------------------------------------------------------

    def _attribute(self) -> None:
        path, name = self._existing(), f"user.note{self._choose.randrange(2)}"
        if self._choose.random() < 0.7:
            os.setxattr(path, name, f"{self._device} {self._number}".encode())
        else:
            os.removexattr(path, name)

    def _mode(self) -> None:
        self._existing().chmod(self._choose.choice([0o644, 0o600, 0o755, 0o640]))

    def _time(self) -> None:
        stamp = self._choose.randrange(10**18, 17 * 10**17)
        os.utime(self._existing(), ns=(stamp, stamp))

    # -- what they are made of -----------------------------------------------------------------------------

    def _put(
        self,
        file: int,
        path: Path,
        before: bytes,
        writes: list[tuple[int, bytes]],
        what: str,
        *,
        durable: bool | None = None,
    ) -> str:
        """Write pieces at offsets, an offset of -1 empties the file. All states between are on record."""
        relative = self._relative(path)
        pieces: list[tuple[int, bytes]] = []
        for at, piece in writes:
            starts = range(0, len(piece), _AT_ONCE) or range(1)
            pieces += [(at + start, piece[start : start + _AT_ONCE]) for start in starts]
        state = before
        old = new = self._record.writes(self._device, relative, b"") if not before else ""
        states = []
        for at, piece in pieces:
            state = b"" if at < 0 else state[:at] + piece + state[at + len(piece) :]
            new = self._record.writes(self._device, relative, state)
            states.append((at, piece))
        if before:
            old = self._record.replaces(self._device, relative, before)
        self._note(what, path, old, "->", new, len(state))
        for at, piece in states:
            if at < 0:
                os.ftruncate(file, 0)
            else:
                os.pwrite(file, piece, at)
        if durable or (durable is None and self._choose.random() < 0.85):
            os.fsync(file)
            if os.fstat(file).st_nlink:
                self._record.durable(self._device, relative, new, len(state))
                self._note("durable", path, new)
            else:
                self._note("without a name", path, new)
        return new

    @contextmanager
    def _instead_of(self, path: Path, what: str, new: str = "") -> Iterator[None]:
        """The block replaces or removes what is at *path*, and nothing happens between the look and that."""
        relative, old = self._relative(path), ""
        before, content = None, self._look(path)
        while content != before:
            if content is not None:
                old = self._record.replaces(self._device, relative, content)
            self._note(what, path, old, "->", new)
            before, content = content, self._look(path)
        looked = self._record.now()
        yield
        self._record.overtakes(self._device, relative, looked)

    def _look(self, path: Path) -> bytes | None:
        """What the file holds, if it is there."""
        with contextlib.suppress(FileNotFoundError), _opened(path, os.O_RDONLY) as file:
            return self._content(file, path)
        return None

    def _content(self, file: int, path: Path) -> bytes:
        """All that is in an open file, which must be what a program wrote."""
        found = b""
        while piece := os.pread(file, 1 << 20, len(found)):
            found += piece
        self._record.reads(self._device, self._relative(path), found)
        return found

    def _fresh(self) -> bytes:
        """A content that never was."""
        self._number += 1
        label = f"{self._device} {self._number}\n".encode()
        [size] = self._choose.choices(_SIZES, _SIZE_WEIGHTS)
        return label + hashlib.shake_128(label).digest(size)

    def _folder(self) -> Path:
        """A folder that is there, at random, the top one most often."""
        path = self._top
        while self._choose.random() < 0.6:
            with os.scandir(path) as entries:
                below = sorted(entry.name for entry in entries if entry.is_dir(follow_symlinks=False))
            if not below:
                break
            path /= self._choose.choice(below)
        return path

    def _file(self) -> Path | None:
        for _ in range(_TRIES):
            with os.scandir(folder := self._folder()) as entries:
                names = sorted(entry.name for entry in entries if entry.is_file(follow_symlinks=False))
            if names:
                return folder / self._choose.choice(names)
        return None

    def _existing(self) -> Path:
        path = self._file()
        if path is None:
            raise FileNotFoundError(errno.ENOENT, "no file here")
        return path

    def _relative(self, path: Path) -> str:
        return str(path.relative_to(self._top))

    def _note(self, *what: object) -> None:
        words = [self._relative(word) if isinstance(word, Path) else word for word in what]
        self._record.operation(self._device, *(word for word in words if word != ""))

    def _drop_held(self) -> None:
        while self._held:
            with contextlib.suppress(OSError):
                os.close(self._held.pop()[0])


@contextmanager
def _opened(path: Path, flags: int) -> Iterator[int]:
    file = os.open(path, flags | os.O_NOFOLLOW, 0o644)
    try:
        if not stat.S_ISREG(os.fstat(file).st_mode):
            raise OSError(errno.EINVAL, "no file", str(path))
        yield file
    finally:
        os.close(file)


def _sync_folder(folder: Path) -> None:
    with _opened_folder(folder) as own:
        os.fsync(own)


@contextmanager
def _opened_folder(folder: Path) -> Iterator[int]:
    own = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield own
    finally:
        os.close(own)
