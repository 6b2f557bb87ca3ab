"""Three devices over three clouds, each with a network of its own, and all that can be done to them."""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

from tests.system.chaos.record import Record, digest
from tests.system.clouds import objects
from tests.system.deadline import until
from tests.system.device import Device, has_ended, is_mounted, kill_at_once
from tests.system.network import Network
from tests.system.pairing import pair, this_device

__all__ = ["AREAS", "NAMES", "World", "files_below"]

NAMES = ("a", "b", "c")
AREAS = ("work", "turns", "bank", "git")
"""The folders of the volume that programs work in. Where nothing is mounted they are not: so nobody writes
beside the volume."""

_MOUNT_SECONDS = 90.0
_LOOK_SECONDS = 5.0
_SYNC_SECONDS = 15
_END_SECONDS = 10.0
_MNT_FORCE, _MNT_DETACH = 1, 2
_libc = ctypes.CDLL(None, use_errno=True)


class World:
    """The devices by name, and which states of them are kept as backups.

    As a context manager it leaves no daemon, mount or namespace behind. What lies in *root* stays.
    """

    def __init__(self, root: Path, record: Record) -> None:
        self.root = root
        self.record = record
        self.clouds = [root / "clouds" / name for name in ("amber", "birch", "cedar")]
        self.devices: dict[str, Device] = {}
        self.generation = dict.fromkeys(NAMES, 1)
        self.restored: set[str] = set()
        self.busy = {name: threading.RLock() for name in NAMES}
        """Whoever does something to a machine as a whole holds its lock."""
        self.at_work = {name: threading.Lock() for name in NAMES}
        """The person at a machine holds its lock in each step."""
        self.cables = threading.RLock()
        """Whoever pulls a cable, or has packets lost, holds it."""
        self._stack = ExitStack()
        self._backups: dict[str, float] = {}
        self.network = Network()

    def __enter__(self) -> World:
        try:
            self._stack.enter_context(self.network)
            for name in NAMES:
                folder = self.root / name
                folder.mkdir(parents=True)
                device = Device(folder, run_as=self.network.add(name))
                self.devices[name] = self._stack.enter_context(device)
            self._make_volume()
        except BaseException:
            self._stack.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for name, device in self.devices.items():
            self.thaw(name)
            abort(device.mountpoint)
        self._stack.close()

    def _make_volume(self) -> None:
        first = self.devices["a"]
        for cloud in self.clouds:
            cloud.mkdir(parents=True)
        first.create(self.clouds)
        first.run("device", "rename", str(this_device(first)["name"]), "a")
        for name in NAMES[1:]:
            pair(first, self.devices[name], name)
        # What is compared on all devices stays as it is. Merges in any order: tests/volume/test_unasked.py
        first.run("volume", "set", first.volume, "--merge-texts", "off")
        for device in self.devices.values():
            device.stop()
            _never_hold_deletions(device)
            device.mount()
        for area in AREAS:
            (first.mountpoint / area).mkdir()
        for device in self.devices.values():
            until(lambda at=device.mountpoint: all((at / area).is_dir() for area in AREAS), "the folders")  # type: ignore[misc]

    # -- where things are ----------------------------------------------------------------------------------

    def area(self, device: str, area: str) -> Path:
        """One of the `AREAS` as this device shows it."""
        return self.devices[device].mountpoint / area

    def own(self, shown_on: str, area: str, owner: str) -> Path:
        """The folder in which *owner* alone works; another one after each time that it was restored."""
        return self.area(shown_on, area) / f"{owner}{self.generation[owner]}"

    def is_up(self, device: str) -> bool:
        """Whether programs can work there now."""
        try:
            return self.area(device, AREAS[-1]).is_dir()
        except OSError:
            return False

    def mount_of(self, device: str) -> int:
        """Another number after each mounting. Raises OSError."""
        return self.area(device, AREAS[-1]).stat().st_dev

    # -- the daemons ---------------------------------------------------------------------------------------

    def kill_daemon(self, name: str) -> None:
        """Kill the daemon alone: its parent is to start it again and bring the mount back."""
        device = self.devices[name]
        with self.busy[name]:
            pid = device.daemon_pid()
            self._end(name, pid)
            self._await_mount(name)

    def kill_machine(self, name: str) -> None:
        """Kill all that runs there, as a power cut does, and start it again by command."""
        with self.busy[name]:
            self._end_all(name)
            self._start(name)

    def _end_all(self, name: str) -> None:
        """As when the power goes: nothing of the device is left, in the kernel neither."""
        while pids := self.devices[name].daemon_pids():
            kill_at_once(pids)
            abort(self.devices[name].mountpoint)
            until(lambda pids=pids: all(map(has_ended, pids)), f"{name} to be gone")  # type: ignore[misc]

    def _end(self, name: str, pid: int) -> None:
        """Kill the daemon, and see to it that it is gone."""
        os.kill(pid, signal.SIGKILL)
        try:
            until(lambda: has_ended(pid), "the killed daemon to end", _END_SECONDS)
        except AssertionError:
            self.record.find("ends", f"{name}: {_standing(pid)}")
            abort(self.devices[name].mountpoint)
            until(lambda: has_ended(pid), f"the daemon of {name} to end when its mount was aborted")

    def freeze(self, name: str) -> None:
        with self.busy[name]:
            self.devices[name].freeze()

    def thaw(self, name: str) -> None:
        """Let what was frozen go on."""
        device = self.devices.get(name)
        for pid in device.daemon_pids() if device else ():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)

    def drop_cache(self, name: str) -> None:
        self.devices[name].attempt("cache", "drop", self.devices[name].volume)

    # -- backups -------------------------------------------------------------------------------------------

    def back_up(self, name: str) -> None:
        """Copy all that the device keeps at one moment, as a snapshot of its disk would."""
        device = self.devices[name]
        with self.busy[name]:
            at = self.record.now()
            device.freeze()
            try:
                _copy(device.home, device.root / "backup")
            finally:
                self.thaw(name)
            self._backups[name] = at

    def has_backup(self, name: str) -> bool:
        return name in self._backups

    def restore(self, name: str) -> None:
        """Set the device back to its backup. What nobody else has seen of it is not owed any more."""
        device, since = self.devices[name], self._backups[name]
        # What is written after the sync may be known to others by its name, and be on no cloud, or in a pack
        # that nobody has heard of, once the device is gone: so its person waits.
        with self.busy[name], self.at_work[name]:
            with self.cables, self.network.without(name):
                done = device.attempt("sync", device.volume, "--wait", "--timeout", str(_SYNC_SECONDS))
                if done.returncode != 0:
                    self.record.fault("not restored:", done.stdout, done.stderr)
                    return
                with ThreadPoolExecutor() as pool:
                    others = [other for other in NAMES if other != name]
                    elsewhere = set[str]().union(*pool.map(self._contents, others))
                device.freeze()
                self.network.hang_up(name)
                self._end_all(name)
            lost = self.record.forget(name, since, elsewhere)
            shutil.rmtree(device.home)
            _copy(device.root / "backup", device.home)
            self.generation[name] += 1
            self.restored.add(name)
            self.record.fault("restored", name, f"as of {since:.2f};", lost, "contents are gone with it")
            self._start(name)

    def _contents(self, name: str) -> set[str]:
        """The digests of what this device shows, as far as it can be read within seconds."""
        found = set()
        end = time.monotonic() + _LOOK_SECONDS
        for path in files_below(self.area(name, "work")):
            if time.monotonic() > end:
                break
            with contextlib.suppress(OSError):
                found.add(digest(path.read_bytes()))
        return found

    # -- making all well -----------------------------------------------------------------------------------

    def heal(self) -> None:
        """Cables in, nobody frozen, everything mounted. Clouds are healed by who has damaged them."""
        for name in NAMES:
            self.thaw(name)
            self.network.deliver(name)
        self.network.heal()
        for name in NAMES:
            with self.busy[name]:
                if not self.is_up(name):
                    self._start(name)

    def _start(self, name: str) -> None:
        self.devices[name].mount()
        self._await_mount(name)

    def _await_mount(self, name: str) -> None:
        until(lambda: self.is_up(name), f"device {name} to be mounted again", _MOUNT_SECONDS)

    def keep_evidence(self) -> None:
        """Logs and databases of the devices, beside the logs of the record."""
        for name, device in self.devices.items():
            kept = self.record.folder / name
            kept.mkdir(exist_ok=True)
            for path in (device.home / "state").rglob("*"):
                if path.is_file() and (".log" in path.name or path.suffix in (".db", ".db-wal")):
                    shutil.copy2(path, kept / path.name)


def files_below(folder: Path) -> Iterator[Path]:
    """All regular files, links not followed; what goes away meanwhile is left out."""
    for parent, _, names in os.walk(folder):
        for name in names:
            path = Path(parent) / name
            with contextlib.suppress(OSError):
                if path.is_file() and not path.is_symlink():
                    yield path


def _never_hold_deletions(device: Device) -> None:
    path = device.home / "config" / "volumes" / device.volume / "volume.json"
    entries = json.loads(path.read_text())
    entries["deletion_percent"] = 100
    path.write_text(json.dumps(entries))


def _copy(source: Path, target: Path) -> None:
    shutil.rmtree(target, ignore_errors=True)
    subprocess.run(["cp", "-a", "--reflink=auto", str(source), str(target)], check=True, capture_output=True)


def remove_objects(cloud: Path) -> None:
    """Remove all objects, while devices may do the same."""
    for path in objects(cloud):
        path.unlink(missing_ok=True)


def copy_cloud(cloud: Path, target: Path) -> None:
    """Copy a cloud that is in use: what vanishes meanwhile is not in the copy."""
    shutil.rmtree(target, ignore_errors=True)
    subprocess.run(["cp", "-a", str(cloud), str(target)], check=False, capture_output=True)


def abort(mountpoint: Path) -> None:
    """Take a mount away by force: whoever waits for its daemon is told that it is gone."""
    if is_mounted(mountpoint):
        _libc.umount2(os.fsencode(mountpoint), _MNT_FORCE | _MNT_DETACH)


def _standing(pid: int) -> str:
    """What the threads of a process that does not end are waiting for."""
    with contextlib.suppress(OSError):
        stacks = [path.read_text() for path in Path(f"/proc/{pid}/task").glob("*/stack")]
        return f"{pid}: " + "; ".join(stacks)
    return f"{pid}: gone"
