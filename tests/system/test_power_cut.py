"""A power cut at any instant: what was fsynced is there and nothing is torn.

The device's disk is an XFS filesystem that is shut down without writing anything back, which is what a power
cut does to a disk; the clouds are elsewhere and keep what they have.

The daemon is frozen a moment before. XFS calls an fsync that is under way during the shutdown a success and
loses its data (measured with a bare writer: 1 answer in 30), which a real power cut cannot do: nobody would
hear of that success.
"""

from __future__ import annotations

import os
import random
import subprocess
import time
from pathlib import Path

from tests.system.conftest import MakeDevice
from tests.system.deadline import until
from tests.system.shell import tool
from tests.system.small_disks import XfsDisk, needs_root
from tests.system.trees import snapshot
from tests.system.writers import Appender, Database, PageWriter, Replacer

_CUTS = int(os.environ.get("HYBRISFS_POWER_CUTS", "8"))  # by hand: hundreds

pytestmark = needs_root


def test_a_power_cut_at_any_moment_loses_nothing_fsynced(
    make_device: MakeDevice, tmp_path: Path, seed: int
) -> None:
    tool("mkfs.xfs")
    choose = random.Random(seed)
    with XfsDisk(tmp_path / "disk", 600) as disk:
        device = make_device(home=disk.where / "home")
        try:
            device.create(3).mount()
            kinds = (Replacer, PageWriter, Appender, Database)
            writers = [kind(device.mountpoint / kind.__name__, seed) for kind in kinds]
            for writer in writers:
                writer.prepare()
            for _ in range(_CUTS):
                for writer in writers:
                    writer.start()
                time.sleep(choose.expovariate(1 / 0.5))  # the instant of the cut is the random input
                device.freeze()
                disk.cut_power()
                device.kill()
                for writer in writers:
                    writer.finish()
                disk.restore_power()
                device.mount()
                for writer in writers:
                    writer.check()
            assert device.fsck().returncode == 0
            before = snapshot(device.mountpoint)
            device.forget()
            assert snapshot(device.mountpoint) == before
            assert device.fsck(clouds=True).returncode == 0
        finally:
            device.close()


def test_the_power_comes_back_though_somebody_else_has_the_disk_mounted(tmp_path: Path) -> None:
    """Whoever makes a mount namespace takes along what is mounted at that moment, as other tests do."""
    tool("mkfs.xfs")
    with XfsDisk(tmp_path / "disk", 300) as disk:
        own = Path("/proc/self/ns/mnt").readlink()
        other = subprocess.Popen(["unshare", "--mount", "sleep", "infinity"])
        try:
            theirs = Path(f"/proc/{other.pid}/ns/mnt")
            until(lambda: theirs.readlink() != own, "the other to have a mount namespace")
            disk.cut_power()
            disk.restore_power()
            (disk.where / "file").write_text("written")
        finally:
            other.kill()
            other.wait()
