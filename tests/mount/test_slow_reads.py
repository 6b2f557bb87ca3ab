"""A read that waits for a cloud holds up nobody but those who want that file."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeAlias

import pytest

from hybrisfs.mount.notifier import MOST_WAITING
from hybrisfs.tree.unseen import Aspect, Change
from tests.merge.fleet import Device
from tests.mount.mounted_fleet import MountedFleet
from tests.system.deadline import until
from tests.system.watching import Watch

pytestmark = pytest.mark.skipif(not os.access("/dev/fuse", os.R_OK | os.W_OK), reason="needs /dev/fuse")

OLD, NEW = b"as it was" * 1000, b"as it is now" * 1000
SECONDS = 20.0
Act: TypeAlias = Callable[[Device], None]


@pytest.fixture
def both(tmp_path: Path) -> Iterator[MountedFleet]:
    (tmp_path / "mnt").mkdir()
    both = MountedFleet(tmp_path / "mnt")
    try:
        for name in ("slow", "quick", "kept", *(f"slow{number}" for number in range(MOST_WAITING))):
            both.there.write(name, OLD + name.encode())
            both.there.sign()  # each is in a pack of its own: they are not fetched together
        both.tell(both.arrive())
        yield both
    finally:
        both.close()


@contextlib.contextmanager
def reading(both: MountedFleet, *names: str) -> Iterator[list[bytes]]:
    """While the block lasts reads of these files wait for a cloud that does not answer; what they return."""
    clouds, path, found = both.here.rig.clouds, both.root, list[bytes]()
    stalled, answering = threading.Semaphore(0), threading.Event()
    usual = clouds.before_get

    def wait(_: object) -> None:
        stalled.release()
        assert answering.wait(60)

    clouds.before_get = wait
    readers = [
        threading.Thread(target=lambda name=name: found.append((path / name).read_bytes())) for name in names
    ]
    for reader in readers:
        reader.start()
    try:
        for _ in names:
            assert stalled.acquire(timeout=SECONDS)
        clouds.before_get = usual
        yield found
    finally:
        answering.set()
        for reader in readers:
            reader.join()


def saved_over(there: Device) -> None:
    there.write("draft", NEW)
    there.move("draft", "slow")


def edited(there: Device) -> None:
    there.write("slow", NEW)


def removed(there: Device) -> None:
    there.remove("slow")


def linked(there: Device) -> None:
    there.link("slow", "another name")


@pytest.mark.parametrize("act", [saved_over, edited, removed, linked])
def test_what_another_device_does_is_shown_beside_a_slow_read(both: MountedFleet, act: Act) -> None:
    assert (both.root / "quick").read_bytes() == OLD + b"quick"
    with reading(both, "slow") as found:
        act(both.there)
        both._mount.notify(both.arrive())
        with Watch(both.root, "moved to") as watch:
            both.there.write("other draft", NEW)
            both.there.move("other draft", "quick")
            both.there.write("news", NEW)
            both._mount.notify(both.arrive())
            until(lambda: (both.root / "quick").read_bytes() == NEW, "the new content", SECONDS)
            watch.wait_for("moved to", "news", SECONDS)
    assert found == [OLD + b"slow"]


def rewrite(both: MountedFleet, *names: str) -> list[Change]:
    """Do what a command does that puts another content into a file; what the kernel is to hear."""
    changes, fs = [], both.here.rig.fs
    for name in names:
        with fs.state.transaction() as tx:
            inode = both.here.at(name)
            handle = fs.open(tx, inode.ino, os.O_WRONLY | os.O_TRUNC)  # what is there is not asked for
            fs.write(tx, inode, 0, NEW)
            fs.release(tx, handle)
            changes.append(Change(inode.ino, aspect=Aspect.CONTENT))
    return changes


def test_a_file_that_is_rewritten_in_place_holds_up_no_other(both: MountedFleet) -> None:
    for name in ("quick", "kept"):
        assert (both.root / name).read_bytes() == OLD + name.encode()
    with reading(both, "slow"):
        both._mount.notify(rewrite(both, "slow", "quick"))
        until(lambda: (both.root / "quick").read_bytes() == NEW, "the new content", SECONDS)
        both._mount.notify(rewrite(both, "kept"))
        until(lambda: (both.root / "kept").read_bytes() == NEW, "the new content", SECONDS)
    until(lambda: (both.root / "slow").read_bytes() == NEW, "the new content", SECONDS)


def test_more_slow_reads_than_may_be_waited_for(both: MountedFleet) -> None:
    """Files beyond that show their old pages until one of these reads is answered, and nothing else does."""
    names = [f"slow{number}" for number in range(MOST_WAITING)]
    assert (both.root / "quick").read_bytes() == OLD + b"quick"
    with reading(both, *names):
        both._mount.notify(rewrite(both, *names, "quick"))
        both.there.write("news", NEW)
        both._mount.notify(both.arrive())
        until((both.root / "news").exists, "the new name", SECONDS)
    for name in (*names, "quick"):
        until(lambda name=name: (both.root / name).read_bytes() == NEW, "the new content", SECONDS)  # type: ignore[misc]
