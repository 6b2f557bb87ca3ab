"""A daemon that is killed ends, and its mount comes back, whatever its threads were about."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

from tests.system.chaos.world import abort
from tests.system.clouds import away
from tests.system.conftest import MakeDevice
from tests.system.deadline import until
from tests.system.device import Device
from tests.system.pairing import device_list, pair, same_trees

_LONGER_THAN_A_LOOK = 3.0  # seconds, of the supervisor at its daemon


def _awaits_a_page(pid: int) -> bool:
    """Whether a thread of the process has the kernel drop a page that is being read."""
    return any("folio_lock" in path.read_text() for path in Path(f"/proc/{pid}/task").glob("*/wchan"))


def _is_served(path: Path) -> bool:
    """Whether a file in a mount can be seen. While the mount is dead that fails."""
    try:
        return path.exists()
    except OSError:
        return False


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may see what a process waits for")
def test_killed_while_the_kernel_is_told_of_a_change_to_what_is_being_read(make_device: MakeDevice) -> None:
    """The reader waits for the daemon with the page locked, a thread of the daemon waits for the page, and
    cannot be killed: the daemon is dead, but the kernel does not know that nobody will ever answer."""
    alice, bob = make_device("alice"), make_device("bob")
    alice.create(3).mount()
    pair(alice, bob, "bob")
    bob.mount()
    path = "read here, changed there"
    (alice.mountpoint / path).write_bytes(os.urandom(300_000))
    same_trees((alice, bob))
    alice.sync()
    bob.forget()
    alice.forget()
    until(lambda: all(one["this"] or one["linked"] for one in device_list(bob)), "the devices to be linked")
    daemon = bob.daemon_pid()
    with away(*alice.clouds):  # so that the read has to wait
        reader = subprocess.Popen(["cat", str(bob.mountpoint / path)], stdout=subprocess.DEVNULL)
        until(lambda: "folio" in Path(f"/proc/{reader.pid}/wchan").read_text(), "the read to wait", 15)
        (alice.mountpoint / path).chmod(0o600)
        until(lambda: _awaits_a_page(daemon), "the kernel to be told of the change", 15)
        os.kill(daemon, signal.SIGKILL)
        try:
            until(lambda: not Path(f"/proc/{daemon}").exists(), "the daemon to end", 30)
            until(lambda: _is_served(bob.mountpoint / path), "the mount to come back", 30)
        finally:
            abort(bob.mountpoint)
        assert reader.wait(30) != 0


def test_a_machine_that_slept_has_the_same_daemon_afterwards(device: Device) -> None:
    """Whoever waits for a signal, and no longer than so long, is woken by SIGCONT, too."""
    daemon = device.daemon_pid()
    for _ in range(3):
        pids = device.daemon_pids()
        device.freeze()
        time.sleep(_LONGER_THAN_A_LOOK)
        for pid in pids:
            os.kill(pid, signal.SIGCONT)
    (device.mountpoint / "after").write_text("the sleep")
    device.sync()
    assert device.daemon_pid() == daemon
