"""An fsync through the mount: the loop answers it itself after a few small writes."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import Final

from tests.volume.device import Device

_MOST: Final = 2000


def test_the_loop_syncs_a_record_and_answers(device: Device, root: Path) -> None:
    """Now and then background work gets between, and there is a commit."""
    fdatasync, seen = device.around.fdatasync, set[tuple[str, str]]()

    def note(descriptor: int) -> None:
        suffix = Path(f"/proc/self/fd/{descriptor}").readlink().suffix
        seen.add((suffix, threading.current_thread().name.rpartition("-")[2]))
        fdatasync(descriptor)

    device.around.fdatasync = note
    with (root / "file").open("wb", buffering=0) as file:
        for number in range(_MOST):
            os.pwrite(file.fileno(), b"%d" % number, 0)
            os.fsync(file.fileno())
            if (".db-redo", "mount") in seen:
                break
    assert (".db-redo", "mount") in seen
    assert (root / "file").read_bytes() == b"%d" % number
