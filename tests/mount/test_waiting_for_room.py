"""What a program asks for while the disk is full of what the clouds hold, too: it waits until some has been
evicted, and fails only when there is nothing to evict."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path
from unittest import mock

import pytest

from hybrisfs.read.evict import RoomLimits
from tests.volume.device import Device

pytestmark = pytest.mark.skipif(not os.access("/dev/fuse", os.R_OK | os.W_OK), reason="needs /dev/fuse")

# In processes of their own: what this one does is taken for an echo of what another device did.
WORK = {
    "rename": "os.rename('file', 'other')",
    "replace": "os.rename('aside', 'file')",
    "setxattr": "os.setxattr('file', 'user.test', b'value')",
    "mkdir": "os.mkdir('new')",
    "link": "os.link('file', 'new')",
    "create": "open('new', 'x')",
}


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
    full, evicted = [True], []

    def evict(wanted: int, *, shortage: bool = True) -> int:
        evicted.append(wanted)
        full[0] = False
        return 1

    volume = device.volume
    with (
        mock.patch.object(volume.fs.journal, "free_bytes", lambda reserve=0: -1 if full[0] else 1 << 30),
        mock.patch.object(volume.room, "evict", evict),
    ):
        volume.fs._calls_until_space_check = 0
        assert carry_out(work, root) == 0
    assert evicted


@pytest.mark.parametrize("work", WORK)
def test_it_fails_when_nothing_can_be_evicted(device: Device, root: Path, work: str) -> None:
    volume = device.volume
    volume.room.limits = RoomLimits(patience_seconds=0.1)
    with (
        mock.patch.object(volume.fs.journal, "free_bytes", return_value=-1),
        mock.patch.object(volume.room, "evict", return_value=0),
    ):
        volume.fs._calls_until_space_check = 0
        assert carry_out(work, root) == errno.ENOSPC
