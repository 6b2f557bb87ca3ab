"""A daemon that dies is replaced by its parent, and its mounts with it."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from hybrisfs.client import Client, NotRunningError, stop_daemon
from hybrisfs.daemon.only_one import answers, holder
from hybrisfs.daemon.wanted_mounts import unlock
from hybrisfs.home import Home
from tests.system.deadline import until
from tests.system.device import Device, is_mounted, kill_at_once, processes_with

REPOSITORY = Path(__file__).resolve().parents[2]

# A daemon in whose way the file "trouble" is dies as soon as it has been started.
_SITE = """
import os, signal, sys
if "--supervised" in getattr(sys, "orig_argv", ()) and os.path.exists({trouble!r}):
    os.kill(os.getpid(), signal.SIGKILL)
"""
_SUPERVISOR = """
import logging, sys
from hybrisfs.daemon import supervisor
from hybrisfs.home import Home
logging.basicConfig(stream=sys.stdout)
supervisor._DELAYS = ({delays},)
sys.exit(supervisor.supervise(Home.from_environment(), lambda reason: print("ready", reason, flush=True)))
"""


@pytest.fixture
def device(tmp_path: Path) -> Iterator[Device]:
    if not Path("/dev/fuse").exists():
        pytest.skip("this kernel has no FUSE")
    with Device(tmp_path) as device:
        yield device.create().mount()


def replaced(home: Home) -> None:
    """Kill the daemon; return when another one has mounted what is to be mounted, and answers."""
    first = killed(home)
    until(lambda: holder(home.daemon_lock) not in (None, first) and answers(home.socket), "another daemon")


def killed(home: Home) -> int:
    pid = holder(home.daemon_lock)
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    return pid


def test_a_killed_daemon_comes_back_by_itself_and_with_it_the_mount(device: Device) -> None:
    with (device.mountpoint / "file").open("wb") as file:
        file.write(b"data")
        file.flush()
        os.fsync(file.fileno())
    for _ in range(2):
        replaced(Home.below(device.home))
        assert is_mounted(device.mountpoint)
        assert (device.mountpoint / "file").read_bytes() == b"data"
    assert "the daemon died (SIGKILL)" in (device.home / "state" / "daemon.log").read_text()
    until(lambda: device.run("events").count("and was started again") == 2, "events")
    device.stop()
    assert device.daemon_pids() == []


def test_what_was_unmounted_stays_unmounted(device: Device) -> None:
    device.umount()
    replaced(Home.below(device.home))
    assert not is_mounted(device.mountpoint)


def test_the_folder_below_is_locked_until_it_is_unmounted_on_purpose(device: Device) -> None:
    device.stop()
    assert stat.S_IMODE(device.mountpoint.stat().st_mode) == 0
    device.mount()
    device.umount()
    assert stat.S_IMODE(device.mountpoint.stat().st_mode) == 0o755


def test_a_busy_mount_names_who_uses_it(device: Device) -> None:
    with (device.mountpoint / "open").open("wb"):
        done = device.attempt("umount", device.volume)
    assert done.returncode == 1
    assert f"(process {os.getpid()}) uses {device.mountpoint}/open" in done.stderr
    assert "--lazy" in done.stderr


def test_both_are_told_to_end_at_a_shutdown(device: Device) -> None:
    for pid in device.daemon_pids():
        os.kill(pid, signal.SIGTERM)
    until(lambda: not device.daemon_pids(), "all to end")
    assert not is_mounted(device.mountpoint)
    assert "stopped\n" in (device.home / "state" / "daemon.log").read_text()


# -- a supervisor that the test starts itself ---------------------------------------------------------


@pytest.fixture
def trouble(home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The file in whose presence no daemon can start."""
    site = tmp_path / "site"
    site.mkdir()
    trouble = tmp_path / "trouble"
    (site / "sitecustomize.py").write_text(_SITE.format(trouble=str(trouble)))
    monkeypatch.setenv("PYTHONPATH", f"{site}:{REPOSITORY}")
    yield trouble
    kill_at_once(processes_with("HYBRISFS_HOME", str(home.root)))


def started(home: Home, delays: str) -> subprocess.Popen[str]:
    supervisor = subprocess.Popen(
        [sys.executable, "-c", _SUPERVISOR.format(delays=delays)],
        env=home.environment(),
        stdout=subprocess.PIPE,
        text=True,
    )
    assert supervisor.stdout is not None
    assert supervisor.stdout.readline() == "ready \n"
    return supervisor


def test_it_never_gives_up(home: Home, trouble: Path) -> None:
    supervisor = started(home, "0.0, 0.0")
    trouble.touch()
    killed(home)
    assert supervisor.stdout is not None
    for _ in range(8):
        assert "it is started again" in supervisor.stdout.readline()
    trouble.unlink()
    until(lambda: answers(home.socket), "a daemon")
    stop_daemon(home)
    assert supervisor.wait(60) == 0


def test_it_can_be_stopped_while_it_waits_to_start_another(home: Home, trouble: Path) -> None:
    supervisor = started(home, "1000.0")
    killed(home)
    assert supervisor.stdout is not None
    assert "it is started again" in supervisor.stdout.readline()
    stop_daemon(home)
    assert supervisor.wait(60) == 0
    with pytest.raises(NotRunningError):
        stop_daemon(home)


def test_a_client_need_not_wait_for_it(home: Home, trouble: Path) -> None:
    supervisor = started(home, "1000.0")
    killed(home)
    assert supervisor.stdout is not None
    assert "it is started again" in supervisor.stdout.readline()
    with Client.connect(home):
        assert supervisor.wait(60) == 0
        assert holder(home.supervisor_lock) not in (None, supervisor.pid)
    stop_daemon(home)


# -- what lands beside the volume ----------------------------------------------------------------------

_WRITER = """
import os, sys
print("ready", flush=True)
while True:
    try:
        file = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
        os.write(file, b"line\\n")
        os.close(file)
    except OSError:
        pass
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="nothing keeps root out but root")
def test_not_even_root_writes_beside_the_volume_while_the_daemon_is_away(device: Device) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", _WRITER, str(device.mountpoint / "log")], stdout=subprocess.PIPE
    ) as writer:
        try:
            assert writer.stdout is not None
            assert writer.stdout.readline()
            for _ in range(3):
                replaced(Home.below(device.home))
                assert is_mounted(device.mountpoint)
            device.stop()
            device.mount()
        finally:
            writer.kill()
    assert list(device.mountpoint.parent.glob("mnt.beside-*")) == []
    device.umount()
    assert list(device.mountpoint.iterdir()) == []


def test_a_file_beside_the_volume_never_keeps_it_from_being_mounted_again(device: Device) -> None:
    (device.mountpoint / "log").write_text("in the volume\n")
    device.stop()
    unlock(device.mountpoint)
    (device.mountpoint / "log").write_text("beside\n")
    assert device.run("status", device.volume)  # starts the daemon, which mounts
    assert is_mounted(device.mountpoint)
    assert (device.mountpoint / "log").read_text() == "in the volume\n"
    [place] = device.mountpoint.parent.glob("mnt.beside-*")
    assert (place / "log").read_text() == "beside\n"
    command = f"hybrisfs import --volume {device.volume} {place}"
    assert command in device.run("status", device.volume)
    assert command in device.status()["warnings"][0]
    until(lambda: command in device.run("events"), "an event")
    device.run(*command.split()[1:])
    assert (device.mountpoint / place.name / "log").read_text() == "beside\n"


def test_a_folder_that_is_not_empty_is_refused_at_first(device: Device) -> None:
    other = device.root / "other"
    other.mkdir()
    (other / "file").touch()
    device.umount()
    refused = device.attempt("mount", device.volume, str(other))
    assert "is not empty" in refused.stderr
    assert [path.name for path in other.iterdir()] == ["file"]


def test_a_volume_that_should_be_mounted_and_is_not_is_an_alarm(device: Device) -> None:
    device.stop()
    unlock(device.mountpoint)
    device.mountpoint.rmdir()
    said = device.attempt("status")
    assert said.returncode == 1
    assert f"is not mounted at {device.mountpoint}, as it should be" in said.stdout.splitlines()[0]
    assert "verything is safe" not in said.stdout
    panel = device.home / "runtime" / "status.json"
    until(lambda: panel.exists() and '"trouble"' in panel.read_text(), "panels to be told")
    until(lambda: "it is not mounted at" in device.run("events"), "an event")
    device.run("umount", device.volume)
    calm = device.attempt("status")
    assert calm.returncode == 0
    assert "not mounted\n" in calm.stdout


def loaded_by(*modules: str) -> set[str]:
    script = f"import sys, {', '.join(modules)}\nprint(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


def test_the_daemon_loads_the_libraries_of_clouds_and_services_when_it_needs_them() -> None:
    """Each costs every daemon a part of a second, and megabytes."""
    loaded = loaded_by("hybrisfs.daemon.local", "hybrisfs.daemon.service")
    assert {"hybrisfs.volume.volume", "backends.registry"} <= loaded
    kinds = ("azure", "file", "gcs", "rclone", "relay", "s3", "sftp", "webdav")
    assert not {f"backends.{one}" for one in kinds} & loaded
    assert not {"azure", "boto3", "google.cloud", "paramiko", "requests", "urllib3", "zeroconf"} & loaded
    services = {"etcd_client", "zookeeper_client", "service_metadata", "sealed_names"}
    assert not {"h2", "kazoo", *(f"hybrisfs.kv.{one}" for one in services)} & loaded
    assert not {"hybrisfs.mirror.worker", "pathspec", "watchdog.observers"} & loaded
    # What only a volume of several devices, a pairing, a wide code or a repair needs.
    assert not {"hybrisfs.peers.service", "cryptography.x509", "ssl", "zfec"} & loaded
    assert not {"hybrisfs.pairing.protocol", "hybrisfs.admit.recover", "hybrisfs.kv.rebuild"} & loaded


def test_a_command_loads_nothing_of_what_clouds_need() -> None:
    """It asks the daemon."""
    loaded = loaded_by("cli.main", "hybrisfs.client")
    assert not {"hybrisfs.dispersal", "backends.registry", "hybrisfs.exposition"} & loaded


def test_the_process_that_watches_over_the_daemon_loads_little() -> None:
    """It lives as long as the daemon, and has its memory beside it."""
    loaded = loaded_by("hybrisfs.daemon.main")
    assert "hybrisfs.daemon.supervisor" in loaded
    assert not {"hybrisfs.volume", "hybrisfs.api", "backends", "cryptography", "msgspec", "nacl"} & loaded
