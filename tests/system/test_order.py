"""What programs write on one device is seen on another in its order, across files, while files are open.

Programs keep their files open all the time. Whoever looks on the other device, at any moment, sees a state
that the first device was in: a database with the journal or log that belongs to it, never a later file
beside an earlier one.
"""

from __future__ import annotations

import contextlib
import errno
import io
import os
import shutil
import sqlite3
import subprocess
import tarfile
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import BinaryIO

import pytest

from tests.system.deadline import until
from tests.system.device import Device
from tests.system.pairing import all_sound, pair
from tests.system.test_linked import configure

_ROWS = 2000
_EACH = 100
_STATES = 4  # seen on the other device


@pytest.fixture(scope="module", params=[True, False], ids=["linked", "clouds"])
def mounts(
    tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Iterator[Sequence[Path]]:
    """The mounts of two devices, which are linked or hear of each other through the clouds alone."""
    with ExitStack() as stack:
        devices = []
        for name in ("here", "there"):
            root = tmp_path_factory.mktemp(name)
            stack.callback(shutil.rmtree, root, ignore_errors=True)
            devices.append(stack.enter_context(Device(root)))
        here, there = devices
        here.create(3)
        pair(here, there, "there")
        if not request.param:
            for device in devices:
                device.stop()
                configure(device, port=0, addresses=[], discover=False)
        here.mount()
        there.mount()
        yield here.mountpoint, there.mountpoint
        all_sound(devices)


@contextlib.contextmanager
def _goes_on(step: Callable[[int], None]) -> Iterator[None]:
    """A program repeats a step, with its number, as long as the block lasts; what fails there fails here."""
    stop, failures = threading.Event(), list[BaseException]()

    def run() -> None:
        number = 0
        try:
            while not stop.is_set():
                number += 1
                step(number)
                stop.wait(0.01 * (number % 4))
        except BaseException as error:  # noqa: BLE001 - told to the test
            failures.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
    assert not failures, failures


class Transfers:
    """A database with one connection for all the time, whose rows' sum no transaction changes."""

    def __init__(self, path: Path, mode: str) -> None:
        self._database = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        self._database.execute(f"PRAGMA journal_mode = {mode}")
        self._database.execute("PRAGMA cache_size = 10")  # so that pages are written amid transactions
        self._database.execute("CREATE TABLE account (number INTEGER PRIMARY KEY, amount INTEGER, text TEXT)")
        self._database.execute("BEGIN")
        rows = [(number, _EACH, "x" * 200) for number in range(_ROWS)]
        self._database.executemany("INSERT INTO account VALUES (?, ?, ?)", rows)
        self._database.execute("COMMIT")

    def transaction(self, number: int) -> None:
        change = "UPDATE account SET amount = amount + ? WHERE number = ?"
        self._database.execute("BEGIN IMMEDIATE")
        for step in range(60):
            at = number * 37 + step * 101
            self._database.execute(change, (-step, at % _ROWS))
            self._database.execute(change, (step, (at + 997) % _ROWS))
        self._database.execute("COMMIT")

    def close(self) -> None:
        self._database.close()


@contextlib.contextmanager
def _replaced_meanwhile() -> Iterator[None]:
    """A file may not be there, or be replaced twice while it is being opened."""
    try:
        yield
    except OSError as error:
        if error.errno not in (errno.ENOENT, errno.ESTALE):
            raise


def _copied(path: Path, to: Path) -> tuple[object, ...] | None:
    """Copy a database with its journal and log as they are at one moment; what tells this state from others,
    or None when it changed meanwhile."""
    names = [path, Path(f"{path}-journal"), Path(f"{path}-wal")]
    with ExitStack() as stack:
        files: list[BinaryIO | None] = []
        for name in names:
            try:
                files.append(stack.enter_context(name.open("rb")))
            except FileNotFoundError:
                files.append(None)
        state = []
        for name, file in zip(names, files, strict=True):
            copy = to / name.name
            copy.unlink(missing_ok=True)
            if file is not None:
                copy.write_bytes(file.read())
                facts = os.fstat(file.fileno())
                state.append((name.suffix, facts.st_ino, facts.st_mtime_ns, facts.st_size))
        now = [name.stat().st_ino if name.exists() else None for name in names]
        then = [None if file is None else os.fstat(file.fileno()).st_ino for file in files]
        return tuple(state) if now == then and then[0] is not None else None


def _look(path: Path, to: Path, seen: set[object]) -> bool:
    """Look at the database on the other device; whether enough states have been seen, all of them sound."""
    with _replaced_meanwhile():
        state = _copied(path, to)
        if state is not None and state not in seen:
            seen.add(state)
            with contextlib.closing(sqlite3.connect(to / path.name)) as database:
                assert database.execute("PRAGMA integrity_check").fetchall() == [("ok",)], state
                if database.execute("SELECT 1 FROM sqlite_master").fetchone():
                    total = database.execute("SELECT sum(amount), count(*) FROM account").fetchone()
                    assert total in ((_ROWS * _EACH, _ROWS), (None, 0)), (total, state)
    return len(seen) >= _STATES


@pytest.mark.parametrize("mode", ["DELETE", "TRUNCATE", "PERSIST", "WAL"])
def test_a_database_that_stays_open_is_whole_in_every_state(
    mounts: Sequence[Path], mode: str, tmp_path: Path
) -> None:
    here, there = (mount / mode for mount in mounts)
    here.mkdir()
    transfers = Transfers(here / "db", mode)

    def step(number: int) -> None:
        transfers.transaction(number)
        (here / "note").write_text(str(number))  # what is finished waits behind the database

    seen: set[object] = set()
    with contextlib.closing(transfers), _goes_on(step):
        until(partial(_look, there / "db", tmp_path, seen), "states of the database to arrive", 100)


def test_of_two_files_written_in_turn_the_second_is_never_newer(mounts: Sequence[Path]) -> None:
    """The first stays open, is written in place, and synced now and then."""
    here, there = (mount / "turns" for mount in mounts)
    here.mkdir()
    first = os.open(here / "first", os.O_RDWR | os.O_CREAT)

    def step(number: int) -> None:
        os.pwrite(first, b"%09d" % number, 0)
        if number % 5 == 0:
            os.fsync(first)
        second = os.open(here / "second", os.O_WRONLY | os.O_CREAT)
        os.pwrite(second, b"%09d" % number, 0)
        os.close(second)

    seen: set[int] = set()

    def look() -> bool:
        with _replaced_meanwhile():
            then = int((there / "second").read_bytes())
            assert int((there / "first").read_bytes()) >= then
            seen.add(then)
        return len(seen) >= _STATES

    try:
        with _goes_on(step):
            until(look, "files to arrive", 100)
    finally:
        os.close(first)


def _git(repository: Path, *arguments: str) -> subprocess.CompletedProcess[bytes]:
    identity = ("-c", "user.name=Ann", "-c", "user.email=ann@example.org", "-c", "safe.directory=*")
    command = ["git", "-C", str(repository), *identity, *arguments]
    done = subprocess.run(command, capture_output=True, timeout=60, check=False)
    if b"Unable to read current working directory" in done.stderr:  # the folder is just arriving
        raise FileNotFoundError(errno.ENOENT, done.stderr.decode(), str(repository))
    return done


def test_git_commits_in_a_loop_and_every_head_that_is_seen_is_whole(mounts: Sequence[Path]) -> None:
    here, there = (mount / "repository" for mount in mounts)
    assert _git(mounts[0], "init", "--quiet", "--initial-branch=main", "repository").returncode == 0

    def step(number: int) -> None:
        for name in ("first", "second"):
            (here / name).write_text(f"{number}\n" * 50)
        assert _git(here, "add", "--all").returncode == 0
        assert _git(here, "commit", "--quiet", "--message", str(number)).returncode == 0

    seen: set[bytes] = set()

    def look() -> bool:
        with _replaced_meanwhile():
            head = (there / ".git" / "refs" / "heads" / "main").read_bytes().strip()
            archive = _git(there, "archive", "--format=tar", head.decode())
            assert archive.returncode == 0, archive.stderr
            with tarfile.open(fileobj=io.BytesIO(archive.stdout)) as files:
                found = [file.read() for name in ("first", "second") if (file := files.extractfile(name))]
            assert found[0] == found[1]
            assert _git(there, "rev-list", "--objects", head.decode()).returncode == 0
            seen.add(head)
        return len(seen) >= _STATES

    with _goes_on(step):
        until(look, "commits to arrive", 100)


def test_what_an_editor_saves_in_turn_is_seen_in_turn(mounts: Sequence[Path]) -> None:
    """vim writes a file in place or puts another one in its place, as it is told to."""
    here, there = (mount / "edited" for mount in mounts)
    here.mkdir()
    for name in ("first", "second"):
        (here / name).write_text("0\n")

    def step(number: int) -> None:
        for name in ("first", "second"):
            ways = "backupcopy=no" if number % 2 else "backupcopy=yes"
            script = ["-c", f"set {ways} nofsync", "-c", f"%s/.*/{number}/", "-c", "wq", str(here / name)]
            subprocess.run(["vim", "-u", "NONE", "-es", *script], check=True, timeout=60)

    seen: set[int] = set()

    def look() -> bool:
        with _replaced_meanwhile():
            then = (there / "second").read_text()
            now = (there / "first").read_text()
            if then and now:  # what is written in place is empty for a moment
                assert int(now) >= int(then)
                seen.add(int(then))
        return len(seen) >= _STATES

    with _goes_on(step):
        until(look, "saved files to arrive", 100)


def test_a_log_is_not_gone_before_what_it_protects_has_changed(mounts: Sequence[Path]) -> None:
    """`pwrite, fsync, unlink log`, with the file kept open: no state without the log shows the old
    content."""
    here, there = (mount / "log" for mount in mounts)
    here.mkdir()
    data = os.open(here / "data", os.O_RDWR | os.O_CREAT)
    for number in range(3):
        (here / "log").write_bytes(b"%d" % (number + 1))
        os.pwrite(data, b"%d" % number, 0)
        until(lambda wanted=b"%d" % number: _both(there) == (wanted, True), "the log to arrive")  # type: ignore[misc]
        os.pwrite(data, b"%d" % (number + 1), 0)
        os.fsync(data)
        (here / "log").unlink()
        states: set[tuple[bytes, bool]] = set()

        def gone(states: set[tuple[bytes, bool]] = states) -> bool:
            state = _both(there)
            if state is not None:
                states.add(state)
            return state is not None and not state[1]

        until(gone, "the log to go")
        assert (b"%d" % number, False) not in states
    os.close(data)


def _both(folder: Path) -> tuple[bytes, bool] | None:
    """The content of the data, and whether there is a log; None when the data was replaced meanwhile."""
    with _replaced_meanwhile(), (folder / "data").open("rb") as data:
        found = data.read(), (folder / "log").exists()
        if (folder / "data").stat().st_ino == os.fstat(data.fileno()).st_ino:
            return found
    return None
