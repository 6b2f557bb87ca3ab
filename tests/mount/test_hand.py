"""The process that touches the mount for the daemon, here on an ordinary folder."""

from __future__ import annotations

import os
import signal
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from hybrisfs.mount.hand import Hand


@pytest.fixture
def hand() -> Iterator[Hand]:
    one = Hand()
    yield one
    one.close()


def test_it_does_what_it_is_told(hand: Hand, tmp_path: Path) -> None:
    folder, odd = os.fsencode(tmp_path), b"caf\xe9 \n"
    (tmp_path / "one").mkdir()
    (tmp_path / "file").write_bytes(b"content")
    hand.rename(folder, b"file", folder + b"/one", odd)
    assert os.listdir(folder + b"/one") == [odd]  # noqa: PTH208
    hand.write(folder + b"/one", odd, 3)
    [moved] = (tmp_path / "one").iterdir()
    os.utime(moved, (1, 1))
    hand.touch(folder + b"/one", odd)
    assert moved.stat().st_size == 3
    assert moved.stat().st_mtime > 1
    hand.unlink(folder + b"/one", odd)
    hand.rmdir(folder, b"one")
    assert list(tmp_path.iterdir()) == []


def test_it_makes_what_it_moves(hand: Hand, tmp_path: Path) -> None:
    hidden, folder = tmp_path / "hidden", tmp_path / "folder"
    folder.mkdir()
    (hidden / "1").mkdir(parents=True)
    (hidden / "2").write_bytes(b"content")
    with pytest.raises(FileNotFoundError):
        hand.arrive(os.fsencode(hidden), os.fsencode(tmp_path / "none"), [(2, b"file", stat.S_IFREG)])
    arrivals = [(3, b"none", stat.S_IFREG), (1, b"sub", stat.S_IFDIR), (2, b"file", stat.S_IFREG)]
    hand.arrive(os.fsencode(hidden), os.fsencode(folder), arrivals)
    assert (folder / "file").read_bytes() == b"content"
    assert (folder / "sub").is_dir(), "one that cannot appear keeps no other from it"


def test_errors_are_those_of_the_system(hand: Hand, tmp_path: Path) -> None:
    folder = os.fsencode(tmp_path)
    with pytest.raises(FileNotFoundError):
        hand.unlink(folder, b"none")
    with pytest.raises(FileNotFoundError):
        hand.rmdir(folder + b"/none", b"none")
    (tmp_path / "file").touch()
    with pytest.raises(NotADirectoryError):
        hand.rmdir(folder, b"file")


def test_it_is_started_again_when_it_was_killed(hand: Hand, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    pid = hand.pid
    os.kill(pid, signal.SIGKILL)
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    hand.unlink(os.fsencode(tmp_path), b"file")
    assert list(tmp_path.iterdir()) == []


def test_it_ends_with_whom_it_serves(hand: Hand) -> None:
    pid = hand.pid
    hand.close()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
    hand.close()
