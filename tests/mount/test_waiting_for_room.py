"""What a program asks for while the disk is full of what the clouds hold, too: it waits until some has been
evicted, and fails only when there is nothing to evict."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

from hybrisfs.read.evict import RoomLimits
from tests.volume.device import Device

pytestmark = pytest.mark.skipif(not os.access("/dev/fuse", os.R_OK | os.W_OK), reason="needs /dev/fuse")

GIB = 1 << 30
# In processes of their own: what this one does is taken for an echo of what another device did.
WORK = {
    "rename": "os.rename('file', 'other')",
    "replace": "os.rename('aside', 'file')",
    "setxattr": "os.setxattr('file', 'user.test', b'value')",
    "mkdir": "os.mkdir('new')",
    "link": "os.link('file', 'new')",
    "create": "open('new', 'x')",
}


def space(free: int) -> os.statvfs_result:
    """What is told of a disk with so many bytes free."""
    return os.statvfs_result((1, 1, 1024 * GIB, free, free, 0, 0, 0, 0, 255))


def carry_out(work: str, folder: Path) -> int:
    """The error number of what a program does; 0 when it succeeds."""
    # It goes there itself: the one that serves the mount stands still until the other has been started.
    told = f"import os, sys\nos.chdir({str(folder)!r})\ntry:\n    {WORK[work]}\n"
    told += "except OSError as error:\n    sys.exit(error.errno)"
    return subprocess.run([sys.executable, "-c", told], check=False, timeout=60).returncode


@pytest.fixture(autouse=True)
def _files(device: Device, root: Path) -> None:
    for name in ("file", "aside"):
        (root / name).write_bytes(b"content")
    device.sync()


@pytest.mark.parametrize("work", WORK)
def test_it_waits_for_an_eviction(device: Device, root: Path, work: str) -> None:
    volume = device.volume
    cached = volume.fs.journal.bytes
    device.around.statvfs = lambda _: space(0 if volume.fs.journal.bytes >= cached else GIB)
    volume.fs._calls_until_space_check = 0
    assert carry_out(work, root) == 0
    assert volume.fs.journal.bytes < cached


@pytest.mark.parametrize("work", WORK)
def test_it_fails_when_nothing_can_be_evicted(device: Device, root: Path, work: str) -> None:
    volume = device.volume
    volume.room.limits = RoomLimits(patience_seconds=0.1)
    volume.drop_cache()
    device.around.statvfs = lambda _: space(0)
    volume.fs._calls_until_space_check = 0
    assert carry_out(work, root) == errno.ENOSPC
    device.around.statvfs = os.statvfs
