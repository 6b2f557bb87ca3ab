"""From the package to its removal on a bare Debian with systemd, as an ordinary user."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.system.deadline import until
from tests.system.device import REPOSITORY
from tests.system.machine import ROOT, Machine

pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0, reason="only root can boot a machine"),
    pytest.mark.skipif(not (ROOT / "complete").exists(), reason="packaging/debian-root.sh makes the machine"),
    pytest.mark.timeout(900),
]


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    """A fresh machine on which the package has just been installed."""
    environment = {**os.environ, "DPKG_DEB_COMPRESSOR_TYPE": "none"}
    subprocess.run(
        [REPOSITORY / "packaging" / "build-deb.sh", tmp_path],
        env=environment,
        check=True,
        timeout=600,
        stdout=subprocess.DEVNULL,
    )
    [package] = tmp_path.glob("*.deb")
    with Machine(tmp_path) as machine:
        package.rename(machine.root / "hybrisfs.deb")
        machine.as_root("dpkg -i /hybrisfs.deb")
        yield machine


def pid_of_service(machine: Machine) -> str:
    return machine.as_alice("systemctl --user show --property MainPID --value hybrisfs.service").strip()


def is_mounted(machine: Machine) -> bool:
    return machine.alice_can("grep -q ' fuse.hybrisfs ' /proc/self/mounts")


def log_out_let_cron_work_and_log_in(machine: Machine) -> None:
    """The service takes over from the daemon that a command had started while nobody was logged in."""
    machine.as_root("systemctl stop user@1000.service")
    assert not machine.alice_can("ls HybrisFS")
    machine.as_alice("env -u XDG_RUNTIME_DIR hybrisfs sync --wait; cat HybrisFS/letter")
    holder = "cat .local/state/hybrisfs/runtime/daemon.lock"
    first = machine.as_alice(holder)
    machine.as_root("systemctl start user@1000.service")
    until(lambda: machine.alice_can("systemctl --user is-active hybrisfs.service"), "the service", 120)
    machine.as_alice("hybrisfs status; hybrisfs sync --wait")
    assert machine.as_alice(holder).strip() == pid_of_service(machine) != first.strip()
    assert machine.as_alice("cat HybrisFS/letter") == "kept\n"
    machine.as_alice("env -u XDG_RUNTIME_DIR hybrisfs status")
    until(lambda: machine.alice_can("test -s $XDG_RUNTIME_DIR/hybrisfs/status.json"), "what panels read")


def test_install_use_kill_stop_remove(machine: Machine) -> None:
    assert not machine.alice_can("systemctl --user is-enabled hybrisfs.service")
    machine.as_alice("hybrisfs doctor")
    completed = "COMP_WORDS='hybrisfs servi' COMP_CWORD=1 _HYBRISFS_COMPLETE=bash_complete hybrisfs"
    assert machine.as_alice(completed) == "plain,service\n"
    for file in ("man/man1/hybrisfs-status.1.gz", "applications/hybrisfs.desktop", "man/man1/hybrisfs.1.gz"):
        machine.as_alice(f"test -s /usr/share/{file}")
    machine.as_alice("hybrisfs quickstart; echo kept >HybrisFS/letter; sync HybrisFS/letter")

    assert not machine.alice_can("hybrisfs service status")
    machine.as_alice("hybrisfs service install")
    machine.as_alice("hybrisfs service status")
    assert machine.as_alice("cat HybrisFS/letter") == "kept\n"

    first = pid_of_service(machine)
    machine.as_alice(f"kill -9 {first}")
    until(lambda: machine.alice_can("cat HybrisFS/letter"), "the mount to be back", 120)
    assert pid_of_service(machine) not in ("0", first)
    log = machine.as_root("journalctl -p err -o cat --user-unit hybrisfs.service")
    assert "hybrisfs." not in log.replace("hybrisfs.service", ""), "nothing of ours is an error"

    machine.as_alice("systemctl --user stop hybrisfs.service")
    assert not is_mounted(machine)
    assert not machine.alice_can("ls HybrisFS"), "an unmounted folder looks like an empty one"
    machine.as_alice("hybrisfs status")  # the socket starts the service
    assert machine.as_alice("cat HybrisFS/letter") == "kept\n"

    log_out_let_cron_work_and_log_in(machine)

    machine.as_alice("HYBRISFS_HOME=~/other hybrisfs quickstart")  # a daemon that systemd knows nothing of
    said = machine.as_root("dpkg -r hybrisfs")
    assert "hybrisfs.daemon" not in machine.as_root("cat /proc/[0-9]*/cmdline | tr '\\0' ' '")
    machine.as_alice("ls HybrisFS")  # it is locked no longer
    assert "~/.local/state/hybrisfs" in said
    assert not is_mounted(machine)
    machine.as_alice("test -s .local/state/hybrisfs/volumes/home/keys.json")
    assert machine.as_alice("ls .local/share/hybrisfs/clouds") == "cloud-1\ncloud-2\ncloud-3\n"
    assert not machine.alice_can("systemctl --user is-active hybrisfs.socket")
