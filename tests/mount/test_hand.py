"""The process that touches the mount for the daemon, here on an ordinary folder."""

from __future__ import annotations

import contextlib
import os
import signal
import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from hybrisfs.mount.hand import Hand
from tests.mount.outside import ORDERS, Order, device_of, private_folder, state


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "root").mkdir()
    return tmp_path / "root"


@pytest.fixture
def hand(root: Path) -> Iterator[Hand]:
    one = Hand(root, device_of(root), subprocess.Popen)
    yield one
    one.close()


def test_it_does_what_it_is_told(hand: Hand, root: Path) -> None:
    odd = b"caf\xe9 \n"
    (root / "one" / "two").mkdir(parents=True)
    (root / "file").write_bytes(b"content")
    hand.rename(b"", b"file", b"one/two", odd)
    assert os.listdir(bytes(root / "one" / "two")) == [odd]  # noqa: PTH208
    hand.write(b"one/two", odd, 3)
    [moved] = (root / "one" / "two").iterdir()
    os.utime(moved, (1, 1))
    os.utime(root / "one", (1, 1))
    hand.touch(b"one/two", odd)
    hand.touch(b"", b"one")
    assert moved.stat().st_size == 3
    assert moved.stat().st_mtime > 1
    assert (root / "one").stat().st_mtime > 1
    hand.unlink(b"one/two", odd)
    hand.rmdir(b"one", b"two")
    hand.rmdir(b"", b"one")
    assert list(root.iterdir()) == []


def test_it_makes_what_it_moves(hand: Hand, root: Path) -> None:
    hidden, folder = root / "hidden", root / "folder"
    folder.mkdir()
    (hidden / "1").mkdir(parents=True)
    (hidden / "2").write_bytes(b"content")
    with pytest.raises(FileNotFoundError):
        hand.arrive(b"hidden", b"none", [(2, b"file", stat.S_IFREG)])
    arrivals = [(3, b"none", stat.S_IFREG), (1, b"sub", stat.S_IFDIR), (2, b"file", stat.S_IFREG)]
    hand.arrive(b"hidden", b"folder", arrivals)
    assert (folder / "file").read_bytes() == b"content"
    assert (folder / "sub").is_dir(), "one that cannot appear keeps no other from it"


def test_errors_are_those_of_the_system(hand: Hand, root: Path) -> None:
    with pytest.raises(FileNotFoundError):
        hand.unlink(b"", b"none")
    with pytest.raises(FileNotFoundError):
        hand.rmdir(b"none", b"none")
    (root / "file").touch()
    with pytest.raises(NotADirectoryError):
        hand.rmdir(b"", b"file")


def test_it_is_started_again_when_it_was_killed(hand: Hand, root: Path) -> None:
    (root / "file").touch()
    pid = hand.pid
    os.kill(pid, signal.SIGKILL)
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    hand.unlink(b"", b"file")
    assert list(root.iterdir()) == []


def test_it_ends_with_whom_it_serves(hand: Hand) -> None:
    pid = hand.pid
    hand.close()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
    hand.close()


# -- what stands in the way ------------------------------------------------------------------------


@pytest.fixture
def outside(tmp_path: Path, root: Path) -> Path:
    """A folder beside the root, which holds what an order may ask for."""
    (root / "hidden" / "2").mkdir(parents=True)
    (root / "hidden" / "1").touch()
    (root / "file").write_bytes(b"within")
    return private_folder(tmp_path / "outside")


@pytest.mark.parametrize("order", ORDERS.values(), ids=ORDERS)
def test_no_symbolic_link_leads_out(hand: Hand, root: Path, outside: Path, order: Order) -> None:
    (root / "way").symlink_to(outside)
    (root / "loop").symlink_to(".")
    (outside / "sub").mkdir()
    private_folder(outside / "sub" / "deeper")
    before = state(outside)
    for way in (b"way", b"way/sub/deeper", b"loop/way", b"loop/loop"):
        with pytest.raises(NotADirectoryError):
            order(hand, way)
    assert state(outside) == before


@pytest.mark.parametrize("order", ORDERS.values(), ids=ORDERS)
def test_no_name_is_a_way_out(hand: Hand, root: Path, outside: Path, order: Order) -> None:
    before = state(outside)
    for way in (b"../outside", b"hidden/../../outside", b".", b"hidden\0"):
        with pytest.raises(OSError, match="Invalid argument"):
            order(hand, way)
    for name in (b"../outside/name", bytes(outside / "name"), b"..", b".", b"", b"file\0"):
        for act in (hand.unlink, hand.rmdir, hand.touch):
            with pytest.raises(OSError, match="Invalid argument"):
                act(b"", name)
        with pytest.raises(OSError, match="Invalid argument"):
            hand.write(b"", name, 1)
        for source, target in ((name, b"other"), (b"file", name)):
            with pytest.raises(OSError, match="Invalid argument"):
                hand.rename(b"", source, b"", target)
        hand.arrive(b"hidden", b"", [(1, name, stat.S_IFREG), (2, name, stat.S_IFDIR)])
    assert state(outside) == before
    assert (root / "file").read_bytes() == b"within"


def test_a_link_at_the_end_of_a_path_is_not_followed(hand: Hand, root: Path, outside: Path) -> None:
    (root / "folder").mkdir()
    link = root / "folder" / "link"
    link.symlink_to(outside / "name")
    before = state(outside)
    with pytest.raises(OSError, match="Too many levels"):
        hand.write(b"folder", b"link", 1)
    os.utime(link, (1, 1), follow_symlinks=False)
    hand.touch(b"folder", b"link")
    assert link.lstat().st_mtime > 1
    with pytest.raises(NotADirectoryError):
        hand.rmdir(b"folder", b"link")
    hand.arrive(b"hidden", b"folder", [(1, b"link", stat.S_IFREG)])
    assert link.is_symlink()
    hand.unlink(b"folder", b"link")
    assert not link.is_symlink()
    assert state(outside) == before


@pytest.mark.parametrize("order", ORDERS.values(), ids=ORDERS)
def test_nothing_is_done_where_the_mount_is_not(root: Path, outside: Path, order: Order) -> None:
    """It may have gone, so that what it covered is there again, or another may have come in its place."""
    before = state(outside)
    for device in (device_of(Path("/proc")), None):
        with (
            contextlib.closing(Hand(outside, device, subprocess.Popen)) as hand,
            pytest.raises(OSError, match="cross-device"),
        ):
            order(hand, b"")
    assert state(outside) == before
