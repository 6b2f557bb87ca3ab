"""A daemon that is killed while it touches its own mount: the mount ends with it, and hangs nobody."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(not os.access("/dev/fuse", os.R_OK | os.W_OK), reason="needs /dev/fuse")
REPOSITORY = Path(__file__).parents[2]
_SECONDS = 60.0

# Kills itself when the kernel asks for the first name that an event is made with: whoever asks waits for
# the answer then.
_DAEMON = """
import os, signal, sys, time
from pathlib import Path
from hybrisfs.tree.unseen import Change
from hybrisfs.mount.echo import Echoes
from hybrisfs.state.schema import ROOT_INO
from tests.volume.device import Device

root = Path(sys.argv[1])
volume = Device(root).volume
(root / "mnt").mkdir()
volume.mount(root / "mnt")
(root / "mnt" / "file").touch()
Echoes.lookup = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
volume.fs.shown([Change(ROOT_INO, b"file")])
time.sleep(600)
"""


def test_a_daemon_that_is_killed_in_the_midst_of_an_event_goes_away(tmp_path: Path) -> None:
    daemon = subprocess.Popen([sys.executable, "-c", _DAEMON, tmp_path], cwd=REPOSITORY)
    try:
        assert daemon.wait(_SECONDS) == -signal.SIGKILL
        with pytest.raises(OSError) as caught:
            os.statvfs(tmp_path / "mnt")
        assert caught.value.errno == errno.ENOTCONN
    finally:
        tool = ["umount", "-f", "-l"] if os.geteuid() == 0 else ["fusermount3", "-u", "-z"]
        subprocess.run([*tool, tmp_path / "mnt"], check=False, capture_output=True)
        daemon.kill()
        daemon.wait(_SECONDS)
