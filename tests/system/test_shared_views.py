"""What programs see of what another device does: at once, whole, and never stale."""

from __future__ import annotations

import contextlib
import errno
import mmap
import os
import shutil
import sqlite3
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.system.deadline import until
from tests.system.device import Device
from tests.system.pairing import all_sound, pair, same_trees
from tests.system.shell import run, tool

_PAGE = mmap.PAGESIZE


class Pair(NamedTuple):
    """Two devices of one volume, and the mounts of both."""

    devices: tuple[Device, Device]
    here: Path
    there: Path


@pytest.fixture(scope="module")
def _pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    with ExitStack() as stack:
        devices = []
        for name in ("here", "there"):
            root = tmp_path_factory.mktemp(name)
            stack.callback(shutil.rmtree, root, ignore_errors=True)
            devices.append(stack.enter_context(Device(root)))
        here, there = devices
        here.create(3).mount()
        pair(here, there, "there")
        there.mount()
        yield Pair((here, there), here.mountpoint, there.mountpoint)
        all_sound(devices)


@pytest.fixture
def both(_pair: Pair, request: pytest.FixtureRequest) -> Iterator[Pair]:
    """A folder of the test's own, on both devices; in the end it holds the same on both."""
    name = str(request.node.name)
    (_pair.here / name).mkdir()
    until((_pair.there / name).is_dir, "the folder to arrive")
    yield Pair(_pair.devices, _pair.here / name, _pair.there / name)
    same_trees(_pair.devices)


def _holds(path: Path, content: bytes) -> bool:
    try:
        return path.read_bytes() == content
    except FileNotFoundError:
        return False


def _arrives(path: Path, content: bytes) -> None:
    until(partial(_holds, path, content), f"{path.name} to arrive")


def test_a_name_that_was_looked_for_in_vain_appears(both: Pair) -> None:
    there = both.there / "new"
    assert not there.exists()  # the kernel may remember that
    assert os.listdir(both.there) == []  # noqa: PTH208
    (both.here / "new").write_bytes(b"hello")
    until(there.exists, "the file to appear")
    assert there.read_bytes() == b"hello"
    assert there.stat().st_size == 5
    assert os.listdir(both.there) == ["new"]  # noqa: PTH208


def test_what_is_deleted_or_renamed_elsewhere_vanishes(both: Pair) -> None:
    (both.here / "folder" / "inner").mkdir(parents=True)
    for name in ("deleted", "renamed", "folder/inner/file"):
        (both.here / name).write_bytes(name.encode())
        _arrives(both.there / name, name.encode())
    (both.here / "deleted").unlink()
    (both.here / "renamed").rename(both.here / "new name")
    (both.here / "folder").rename(both.here / "moved")
    until(lambda: not (both.there / "deleted").exists(), "the deleted file to vanish")
    _arrives(both.there / "new name", b"renamed")
    _arrives(both.there / "moved/inner/file", b"folder/inner/file")
    assert not (both.there / "renamed").exists()
    assert not (both.there / "folder").exists()
    assert sorted(os.listdir(both.there)) == ["moved", "new name"]  # noqa: PTH208
    with pytest.raises(FileNotFoundError):
        (both.there / "folder/inner/file").read_bytes()


def test_a_shell_in_a_folder_that_is_deleted_elsewhere_finds_nothing_there(both: Pair) -> None:
    (both.here / "folder").mkdir()
    until((both.there / "folder").is_dir, "the folder to arrive")
    inside = os.open(both.there / "folder", os.O_RDONLY | os.O_DIRECTORY)
    try:
        (both.here / "folder").rmdir()
        until(lambda: not (both.there / "folder").exists(), "the folder to vanish")
        try:
            with os.scandir(inside) as found:
                assert list(found) == []
        except OSError as error:
            assert error.errno == errno.ESTALE  # as on a network file system
        with pytest.raises(OSError):
            os.stat("x", dir_fd=inside)
    finally:
        os.close(inside)


def test_permissions_times_and_attributes_of_elsewhere_are_seen(both: Pair) -> None:
    here, there = both.here / "file", both.there / "file"
    here.write_bytes(b"x")
    _arrives(there, b"x")
    os.setxattr(here, "user.note", b"kept")
    here.chmod(0o600)
    os.utime(here, ns=(10**18, 10**18 + 7))
    until(lambda: there.stat().st_mtime_ns == 10**18 + 7, "the time to arrive")
    until(lambda: there.stat().st_mode & 0o777 == 0o600, "the permissions to arrive")
    assert os.getxattr(there, "user.note") == b"kept"
    os.removexattr(here, "user.note")
    until(lambda: os.listxattr(there) == [], "the attribute to vanish")


@pytest.mark.parametrize(
    ("before", "after"),
    [
        pytest.param(3 * _PAGE + 5, 7 * _PAGE + 9, id="grown"),
        pytest.param(7 * _PAGE + 9, _PAGE + 3, id="shrunk"),
        pytest.param(3 * _PAGE, 3 * _PAGE, id="same size"),
        pytest.param(3 * _PAGE, 0, id="emptied"),
    ],
)
def test_no_stale_size_or_byte_where_the_page_cache_is_warm(both: Pair, before: int, after: int) -> None:
    here, there = both.here / "file", both.there / "file"
    old, new = os.urandom(before), os.urandom(after)
    here.write_bytes(old)
    _arrives(there, old)
    with there.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
        assert mapped[:] == old  # warm
    here.write_bytes(new)
    _arrives(there, new)
    assert there.stat().st_size == after
    if after:
        with there.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
            assert mapped[:] == new


def test_a_change_in_place_is_seen_where_the_page_cache_is_warm(both: Pair) -> None:
    here, there = both.here / "file", both.there / "file"
    content = bytearray(os.urandom(40 * _PAGE))
    here.write_bytes(content)
    _arrives(there, bytes(content))
    with here.open("r+b") as file:
        for offset in (0, 5 * _PAGE + 7, 39 * _PAGE):
            file.seek(offset)
            file.write(b"changed")
            content[offset : offset + 7] = b"changed"
    _arrives(there, bytes(content))


def test_an_open_file_stays_as_it_was_opened(both: Pair) -> None:
    here, there = both.here / "file", both.there / "file"
    old, new = os.urandom(5 * _PAGE), os.urandom(9 * _PAGE)
    here.write_bytes(old)
    _arrives(there, old)
    with there.open("rb", buffering=0) as opened:
        assert opened.read(100) == old[:100]
        here.write_bytes(new)
        _arrives(there, new)
        assert opened.read() == old[100:]
        assert os.fstat(opened.fileno()).st_size == len(old)
        (both.here / "file").unlink()
        until(lambda: not there.exists(), "the file to vanish")
        opened.seek(0)
        assert opened.read() == old


def test_what_is_written_to_a_file_opened_before_is_not_lost(both: Pair) -> None:
    here, there = both.here / "file", both.there / "file"
    here.write_bytes(b"old")
    _arrives(there, b"old")
    with there.open("r+b", buffering=0) as opened:
        here.write_bytes(b"new of here")
        _arrives(there, b"new of here")
        opened.write(b"OLD, and more of there")
    tree = same_trees(both.devices)
    contents = {path.read_bytes() for path in both.there.iterdir()}
    assert contents == {b"new of here", b"OLD, and more of there"}, tree


def test_a_log_that_both_append_to_loses_no_line(both: Pair) -> None:
    """Each device appends; where they did it at once there are two files, but every line is somewhere."""
    here, there = both.here / "log", both.there / "log"
    here.write_bytes(b"")
    until(there.exists, "the log to arrive")
    for number in range(20):
        for path in (here, there):
            with path.open("ab") as file:
                file.write(f"{number} {path.parent.parent.parent.name}\n".encode())
    same_trees(both.devices)
    lines = {line for path in both.here.iterdir() for line in path.read_text().splitlines()}
    assert len(lines) == 40


def test_a_clone_made_here_is_a_sound_repository_there(both: Pair, tmp_path: Path) -> None:
    tool("git")
    origin = tmp_path / "origin"
    run("git", "init", "--quiet", "--initial-branch=main", origin)
    for number in range(100):
        (origin / f"file{number}.c").write_text(f"int f{number}(void) {{ return {number}; }}\n" * 20)
    run("git", "add", ".", cwd=origin)
    run("git", "commit", "--quiet", "-m", "Import", cwd=origin)
    run("git", "clone", "--quiet", "--no-hardlinks", origin, both.here / "clone")
    same_trees(both.devices)
    clone = both.there / "clone"
    run("git", "fsck", "--strict", cwd=clone)
    assert run("git", "status", "--porcelain", cwd=clone) == ""
    (clone / "file7.c").write_text("changed\n")
    run("git", "commit", "--quiet", "-a", "-m", "Change", cwd=clone)
    same_trees(both.devices)
    back = both.here / "clone"
    run("git", "fsck", "--strict", cwd=back)
    assert run("git", "status", "--porcelain", cwd=back) == ""
    assert (back / "file7.c").read_text() == "changed\n"
    assert "Change" in run("git", "log", "--oneline", cwd=back)


def test_a_database_written_here_is_sound_there_after_every_arrival(both: Pair) -> None:
    here, there = both.here / "db", both.there / "db"
    for batch in range(10):
        # While it is open for writing, what is in it comes in steps of some seconds.
        with contextlib.closing(sqlite3.connect(here)) as database, database:
            database.execute("CREATE TABLE IF NOT EXISTS fact (number INTEGER PRIMARY KEY, text TEXT)")
            rows = [(None, "x" * 500) for _ in range(20)]
            database.executemany("INSERT INTO fact VALUES (?, ?)", rows)
        until(partial(_has_rows, there, 20 * (batch + 1)), "the rows to arrive")


def _has_rows(path: Path, rows: int) -> bool:
    if not path.exists():
        return False
    with contextlib.closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as database:
        try:
            (found,) = database.execute("SELECT count(*) FROM fact").fetchone()
            assert database.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        except sqlite3.OperationalError:  # the journal is there, or no table yet
            return False
    return int(found) == rows


def test_a_program_that_runs_there_is_replaced_here(both: Pair) -> None:
    """An editor's save: a new file renamed over the old one."""
    here, there = both.here / "letter", both.there / "letter"
    here.write_bytes(b"first")
    _arrives(there, b"first")
    inode = there.stat().st_ino
    (both.here / "letter.tmp").write_bytes(b"second, longer")
    (both.here / "letter.tmp").rename(here)
    _arrives(there, b"second, longer")
    assert there.stat().st_ino != inode
    assert os.listdir(both.there) == ["letter"]  # noqa: PTH208


def test_tail_shows_what_is_appended_elsewhere(both: Pair) -> None:
    """It may begin anew: an open file stays as it is, and a new version is another file."""
    here, there = both.here / "log", both.there / "log"
    here.write_bytes(b"line 1\n")
    _arrives(there, b"line 1\n")
    options = ["--follow=name", "--lines=+1", "---disable-inotify", "--sleep-interval=0.05"]
    tail = subprocess.Popen(
        ["tail", *options, str(there)], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    try:
        assert tail.stdout is not None
        assert tail.stdout.readline() == "line 1\n"
        for number in (2, 3):
            with here.open("ab") as file:
                file.write(f"line {number}\n".encode())
            while tail.stdout.readline() != f"line {number}\n":
                pass
    finally:
        tail.kill()
        tail.communicate()


_VERSIONS = 150


def _version(number: int) -> bytes:
    """Sizes go up and down, over several pages."""
    return f"{number:04} ".encode() * (1 + number * 4099 % 6007)


def _versions_seen(path: Path, last: int) -> list[int]:
    """Read the file until it is the *last* version; every read must give one whole version."""
    seen = [0]
    while seen[-1] != last:
        try:
            with path.open("rb") as file:
                promised = os.fstat(file.fileno()).st_size
                content = file.read()
        except OSError as error:
            if error.errno != errno.ESTALE:  # replaced twice while it was being opened
                raise
            continue
        number = int(content[:4])
        assert content == _version(number), f"version {number} is torn: {len(content)} bytes"
        assert promised == len(content)
        seen.append(number)
    return seen


@pytest.mark.parametrize("replace", [False, True], ids=["written", "renamed over"])
def test_every_read_gives_one_whole_version_and_never_an_older_one(both: Pair, replace: bool) -> None:
    _read_while_written(both, both.there / "file", replace)


def test_a_file_that_is_renamed_over_here_is_never_seen_torn_here(both: Pair) -> None:
    _read_while_written(both, both.here / "file", True)


def _read_while_written(both: Pair, watched: Path, replace: bool) -> None:
    here, there = both.here / "file", both.there / "file"
    here.write_bytes(_version(0))
    _arrives(there, _version(0))
    with ThreadPoolExecutor() as pool:
        reading = pool.submit(_versions_seen, watched, _VERSIONS)
        for number in range(1, _VERSIONS + 1):
            if replace:
                (both.here / "draft").write_bytes(_version(number))
                (both.here / "draft").rename(here)
            else:
                here.write_bytes(_version(number))
        seen = reading.result(timeout=60)
    assert seen == sorted(seen)
