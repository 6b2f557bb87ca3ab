"""Programs that write while the daemon is killed, and know what must be there afterwards.

Each works alone in its own folder, in a thread of its own, until an operation fails because the daemon is
gone. What is then found must be a state that the writer passed through, and none older than what it made
durable last. After a check the writer goes on from what was found.
"""

from __future__ import annotations

import abc
import errno
import hashlib
import os
import random
import signal
import sqlite3
import subprocess
import sys
import threading
from pathlib import Path

__all__ = ["Appender", "Database", "PageWriter", "Replacer", "Writer"]

_PAGE = 4096
_LOG_BYTES = 4 << 20  # a longer log is begun anew after the next crash

_GONE = frozenset({errno.ENOTCONN, errno.ECONNABORTED, errno.EIO})
_EXIT_GONE = 3


def _body(label: str, size: int) -> bytes:
    """Bytes that only `label` can have written."""
    return hashlib.shake_128(label.encode()).digest(size)


def _described(page: bytes) -> str:
    """What a page that nobody wrote looks like."""
    zeros = page.count(0)
    return "all zeros" if zeros == len(page) else f"{zeros} zeros of {len(page)} bytes, {page[:16].hex()}..."


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


class Writer(abc.ABC):
    """Runs `step` again and again in a thread."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.folder = folder
        self.steps = 0
        self.choose = random.Random(f"{type(self).__name__} {seed}")
        self.surprise: BaseException | None = None
        self._thread = threading.Thread()

    def prepare(self) -> None:
        """Make the folder; runs once, while nobody kills anything."""
        self.folder.mkdir()

    @abc.abstractmethod
    def step(self) -> None:
        """One operation, recorded before it begins and when it has become durable."""

    @abc.abstractmethod
    def check(self) -> None:
        """Compare what is there with what may be there, and take it as the new beginning."""

    def start(self) -> None:
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    @property
    def running(self) -> bool:
        """Whether no operation has failed so far."""
        return self._thread.is_alive()

    def finish(self) -> None:
        """Wait until the writer has met the end of the daemon."""
        self._thread.join(timeout=60)
        assert not self._thread.is_alive(), f"{type(self).__name__} hangs in the dead mount"
        if self.surprise is not None:
            raise self.surprise

    def _run(self) -> None:
        try:
            while True:
                self.step()
                self.steps += 1
        except OSError as error:
            if error.errno not in _GONE:
                self.surprise = error
        except BaseException as error:  # noqa: BLE001 - `finish` raises it in the test
            self.surprise = error


class Replacer(Writer):
    """Whole files, made aside and renamed over a name; renames, exchanges by rename, and deletions.

    The names must at any time be those after one of the operations, in their order, with whole contents: a
    rename never shows without the content it brings, whether or not somebody called fsync.
    """

    def __init__(self, folder: Path, seed: int) -> None:
        super().__init__(folder, seed)
        self.states: list[dict[str, bytes]] = [{}]
        self._version = 0

    def step(self) -> None:
        now, name = dict(self.states[-1]), f"doc{self.choose.randrange(8)}"
        match self.choose.choice(["write", "write", "durable", "durable", "move", "delete"]):
            case "move" if name in now:
                other = f"doc{self.choose.randrange(8)}"
                now[other] = now.pop(name)
                self.states.append(now)
                (self.folder / name).rename(self.folder / other)
            case "delete" if name in now:
                del now[name]
                self.states.append(now)
                (self.folder / name).unlink()
            case kind:
                self._version += 1
                size = self.choose.choice([0, 10, 5000, 70_000, 1_200_000])
                now[name] = _body(f"{name} {self._version}", size)
                self._replace(name, now, durable=kind == "durable")

    def _replace(self, name: str, then: dict[str, bytes], *, durable: bool) -> None:
        aside = self.folder / ".aside"
        with aside.open("wb") as file:
            file.write(then[name])
            if durable:
                file.flush()
                os.fsync(file.fileno())
        self.states.append(then)
        aside.rename(self.folder / name)
        if durable:
            _sync_folder(self.folder)
            self.states = [then]

    def check(self) -> None:
        found = {
            path.name: path.read_bytes() for path in self.folder.iterdir() if not path.name.startswith(".")
        }
        assert found in self.states, self._difference(found)
        self.states = [found]

    def _difference(self, found: dict[str, bytes]) -> str:
        """Which of the files cannot be explained by any state."""
        torn = [
            f"{name} ({len(content)} bytes)"
            for name, content in found.items()
            if all(state.get(name) != content for state in self.states)
        ]
        missing = [
            name
            for name in self.states[0]
            if all(name in state for state in self.states)
            if name not in found
        ]
        return f"step {self.steps}, {len(self.states)} states: torn {torn}, missing {missing}, has {[*found]}"


class PageWriter(Writer):
    """A file of pages overwritten in place; now and then all is fsynced."""

    pages = 64

    def __init__(self, folder: Path, seed: int) -> None:
        super().__init__(folder, seed)
        self._allowed: list[list[bytes]] = []  # per page: the durable content first, then what came later

    @property
    def path(self) -> Path:
        return self.folder / "pages"

    def prepare(self) -> None:
        super().prepare()
        self._allowed = [[_body(f"page {number}", _PAGE)] for number in range(self.pages)]
        with self.path.open("wb") as file:
            file.writelines(versions[0] for versions in self._allowed)
            file.flush()
            os.fsync(file.fileno())
        _sync_folder(self.folder)

    def step(self) -> None:
        with self.path.open("r+b", buffering=0) as file:
            for _ in range(self.choose.randrange(1, 30)):
                number = self.choose.randrange(self.pages)
                content = self.choose.randbytes(_PAGE)
                self._allowed[number].append(content)
                file.seek(number * _PAGE)
                file.write(content)
            os.fsync(file.fileno())
        self._allowed = [versions[-1:] for versions in self._allowed]

    def check(self) -> None:
        content = self.path.read_bytes()
        assert len(content) == self.pages * _PAGE, f"{len(content)} bytes instead of {self.pages} pages"
        for number, versions in enumerate(self._allowed):
            page = content[number * _PAGE : (number + 1) * _PAGE]
            assert page in versions, (
                f"page {number} of {len(versions)} versions since its fsync: {_described(page)}"
            )
            self._allowed[number] = [page]


class Appender(Writer):
    """A log, a record per write, now and then fsynced. What is found is a beginning of what was written."""

    def __init__(self, folder: Path, seed: int) -> None:
        super().__init__(folder, seed)
        self._written = bytearray()
        self._durable = 0

    @property
    def path(self) -> Path:
        return self.folder / "log"

    def prepare(self) -> None:
        super().prepare()
        self.path.touch()
        _sync_folder(self.folder)

    def step(self) -> None:
        with self.path.open("ab", buffering=0) as file:
            for _ in range(self.choose.randrange(1, 50)):
                record = b"%d %s\n" % (len(self._written), self.choose.randbytes(60).hex().encode())
                self._written += record
                file.write(record)
            if self.choose.random() < 0.5:
                os.fsync(file.fileno())
                self._durable = len(self._written)

    def check(self) -> None:
        found = self.path.read_bytes()
        assert len(found) >= self._durable, f"{self._durable} bytes were durable, {len(found)} are there"
        assert self._written.startswith(found), "the log holds what nobody wrote"
        whole = found.rfind(b"\n") + 1 if len(found) < _LOG_BYTES else 0
        with self.path.open("r+b") as file:  # cut off half a record, as any program does
            file.truncate(whole)
            os.fsync(file.fileno())
        self._written = bytearray(found[:whole])
        self._durable = whole


_INSERTS = """
import sqlite3, sys
path, number = sys.argv[1], int(sys.argv[2])
try:
    while True:
        db = sqlite3.connect(path, isolation_level=None)
        db.execute("PRAGMA synchronous=FULL")
        for _ in range(20):
            number += 1
            print("begun", number, flush=True)
            db.execute("INSERT INTO entry VALUES (?, ?)", (number, "x" * (number * 7919 % 6000)))
            print("committed", number, flush=True)
        db.close()
except sqlite3.OperationalError as error:
    gone = error.sqlite_errorcode & 0xFF in (sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN)
    sys.exit(GONE if gone else error)
""".replace("GONE", str(_EXIT_GONE))


class Database(Writer):
    """An SQLite database in WAL mode: committed rows stay, and the file is sound.

    A process of its own writes, for SQLite maps a file into memory, and whoever touches such memory when the
    daemon is gone dies of SIGBUS.
    """

    def __init__(self, folder: Path, seed: int) -> None:
        super().__init__(folder, seed)
        self._committed = self._begun = 0
        self._process: subprocess.Popen[str] | None = None

    @property
    def path(self) -> Path:
        return self.folder / "data.db"

    def prepare(self) -> None:
        super().prepare()
        db = sqlite3.connect(self.path)
        db.execute("PRAGMA journal_mode=WAL")
        db.execute("CREATE TABLE entry (number INTEGER PRIMARY KEY, text TEXT)")
        db.close()

    def start(self) -> None:
        command = [sys.executable, "-c", _INSERTS, str(self.path), str(self._committed)]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        super().start()

    def step(self) -> None:
        """Hear from the process; what it said before it died counts."""
        assert self._process is not None
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            code = self._process.wait()
            assert code in (_EXIT_GONE, -signal.SIGBUS), f"the writing process ended with {code}"
            raise OSError(errno.ENOTCONN, "the writing process has met the end of the daemon")
        if line.startswith("begun"):
            self._begun = int(line.split()[1])
        else:
            self._committed = int(line.split()[1])

    def check(self) -> None:
        db = sqlite3.connect(self.path)
        try:
            damage = db.execute("PRAGMA integrity_check").fetchall()
            assert damage == [("ok",)], damage
            numbers = [row[0] for row in db.execute("SELECT number FROM entry ORDER BY number")]
        finally:
            db.close()
        assert numbers == list(range(1, len(numbers) + 1)), (
            f"rows are missing: {len(numbers)} up to {numbers[-1]}"
        )
        seen = f"{len(numbers)} rows; {self._committed} were committed, {self._begun} begun"
        assert self._committed <= len(numbers) <= self._begun, seen
        self._committed = self._begun = len(numbers)
