"""One HybrisFS device as a script sees it: the command, a folder, and directories that play the clouds."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any

from hybrisfs.daemon.wanted_mounts import unlock
from tests.system.deadline import until

__all__ = [
    "CLOUD_NAMES",
    "COMMAND",
    "REPOSITORY",
    "CommandFailedError",
    "Device",
    "has_ended",
    "is_mounted",
    "kill_at_once",
    "processes_with",
]

REPOSITORY = Path(__file__).resolve().parents[2]
COMMAND: list[str] = [sys.executable, "-m", "cli.main"]

CLOUD_NAMES = ("amber", "birch", "cedar", "denim", "ebony", "fjord", "glade")
"""Words that turn up in no message by accident, so that a report that names one means it."""


class CommandFailedError(AssertionError):
    """A `hybrisfs` command that had to succeed did not; the message holds all it printed."""


def is_mounted(directory: Path) -> bool:
    """Whether something is mounted exactly there. Reads only the mount table: a dead mount blocks nothing."""
    wanted = os.fsencode(directory)
    for line in Path("/proc/self/mountinfo").read_bytes().splitlines():
        escaped = line.split(b" ")[4]
        if escaped.decode("unicode_escape").encode("latin-1") == wanted:
            return True
    return False


def processes_with(variable: str, value: str) -> list[int]:
    """The processes that were started with this environment variable."""
    mark = os.fsencode(f"{variable}={value}")
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            environment = (entry / "environ").read_bytes()
        except OSError:  # gone meanwhile, or a zombie
            continue
        if mark in environment.split(b"\0"):
            found.append(int(entry.name))
    return found


def kill_at_once(pids: Sequence[int]) -> None:
    """SIGKILL; all are stopped first, so that none can act upon the death of another."""
    for number in (signal.SIGSTOP, signal.SIGKILL):
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)


def has_ended(pid: int) -> bool:
    """Whether the process holds nothing any more: it is gone, or a zombie without threads that still end."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        return state == "Z" and len(list(Path(f"/proc/{pid}/task").iterdir())) == 1
    except (FileNotFoundError, ProcessLookupError):
        return True


def _is_frozen(pid: int) -> bool:
    """Whether no thread of the process can run: stopped, or within a call that ends in a stop."""
    states = [
        path.read_text().rpartition(")")[2].split()[0] for path in Path(f"/proc/{pid}/task").glob("*/stat")
    ]
    return all(state in ("T", "D") for state in states)


class Device:
    """A device with its own HYBRISFS_HOME under `root` and one volume; several may live side by side.

    As a context manager it leaves nothing behind: no daemon, no mount.
    """

    def __init__(
        self,
        root: Path,
        *,
        volume: str = "vol",
        home: Path | None = None,
        run_as: Sequence[str] = (),
        variables: dict[str, str] | None = None,
    ) -> None:
        """`run_as` is a command prefix like setpriv's; `variables` join the environment of all commands."""
        self.root = root
        self.home = home if home is not None else root / "home"
        self.mountpoint = root / "mnt"
        self.volume = volume
        self.clouds: list[Path] = []
        self._run_as = list(run_as)
        self._environment = {
            **os.environ,
            "HYBRISFS_HOME": str(self.home),
            "PYTHONPATH": str(REPOSITORY),
            "COLUMNS": "200",
            "NO_COLOR": "1",
            **(variables or {}),
        }

    def __enter__(self) -> Device:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # -- commands ------------------------------------------------------------------------------------------

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        """Start a command and return at once."""
        return subprocess.Popen(
            [*self._run_as, *COMMAND, *arguments],
            env=self._environment,
            cwd=self.root,
            text=True,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )

    def attempt(self, *arguments: str, timeout: float = 120.0) -> subprocess.CompletedProcess[str]:
        """Run a command that may fail."""
        process = self.start(*arguments)
        try:
            out, err = process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise CommandFailedError(
                f"hybrisfs {' '.join(arguments)}: no answer in {timeout:.0f} s"
            ) from None
        return subprocess.CompletedProcess(process.args, process.returncode, out, err)

    def run(self, *arguments: str, timeout: float = 120.0) -> str:
        """Run a command that must succeed; returns its standard output."""
        done = self.attempt(*arguments, timeout=timeout)
        if done.returncode != 0:
            raise CommandFailedError(
                f"hybrisfs {' '.join(arguments)}: exit {done.returncode}\n{done.stdout}{done.stderr}"
            )
        return done.stdout

    def create(self, clouds: int | Sequence[Path] = 3, *, f: int = 1, k: int = 1) -> Device:
        """Create the volume over directories that exist already, or over `clouds` new ones under `root`."""
        if isinstance(clouds, int):
            self.clouds = [self.root / "clouds" / name for name in CLOUD_NAMES[:clouds]]
            for cloud in self.clouds:
                cloud.mkdir(parents=True)
        else:
            self.clouds = list(clouds)
        options = [word for cloud in self.clouds for word in ("--cloud", cloud.as_uri())]
        self.run("volume", "create", self.volume, *options, "-f", str(f), "-k", str(k))
        return self

    def mount(self) -> Device:
        with contextlib.suppress(OSError):  # exists already, perhaps as the ruin of a killed mount
            self.mountpoint.mkdir(parents=True, exist_ok=True)
        self.run("mount", self.volume, str(self.mountpoint))
        assert is_mounted(self.mountpoint), "mount returned 0 and mounted nothing"
        return self

    def umount(self) -> None:
        self.run("umount", self.volume)
        until(lambda: not is_mounted(self.mountpoint), "the mount to go away")

    def remount(self) -> None:
        self.umount()
        self.mount()

    def sync(self, timeout: float = 120.0) -> None:
        self.run("sync", self.volume, "--wait", "--timeout", str(int(timeout)), timeout=timeout + 30)

    def cache_drop(self) -> None:
        self.run("cache", "drop", self.volume)

    def forget(self) -> None:
        """Bring all to the clouds, then drop every cached byte, the kernel's too."""
        self.sync()
        self.cache_drop()
        self.remount()

    def fsck(self, *, clouds: bool = False) -> subprocess.CompletedProcess[str]:
        return self.attempt("fsck", self.volume, *(["--clouds"] if clouds else []), timeout=300)

    def status(self) -> dict[str, Any]:
        """What `status --json` says about the volume."""
        volumes = json.loads(self.run("status", self.volume, "--json"))["volumes"]
        [volume] = [entry for entry in volumes if entry["name"] == self.volume]
        assert isinstance(volume, dict)
        return volume

    def bad_clouds(self) -> set[str]:
        """Directory names of the clouds that `status` does not call fit for use."""
        by_url = {cloud.as_uri(): cloud.name for cloud in self.clouds}
        return {
            by_url[entry["url"]] for entry in self.status()["clouds"] if entry["state"] not in ("ok", "slow")
        }

    # -- the daemon ----------------------------------------------------------------------------------------

    def daemon_pids(self) -> list[int]:
        """The processes that run with this HYBRISFS_HOME: between commands, the daemon and its kin."""
        return processes_with("HYBRISFS_HOME", str(self.home))

    def daemon_pid(self) -> int:
        """The daemon itself."""
        pid = json.loads(self.run("status", "--json"))["daemon"]["pid"]
        assert isinstance(pid, int)
        return pid

    def kill(self) -> None:
        """SIGKILL the daemon and its parent and wait until it is gone. The mount stays behind as a ruin."""
        assert self._kill_all(), "no daemon to kill"

    def freeze(self) -> None:
        """Stop the daemon in mid-step: from now on it answers nobody, whatever its system calls come to."""
        pids = self.daemon_pids()
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        for pid in pids:
            until(partial(_is_frozen, pid), "the daemon to stand still")

    def _kill_all(self) -> int:
        """Kill also what is just being started; returns how many processes there were."""
        killed = 0
        while pids := self.daemon_pids():
            kill_at_once(pids)
            for pid in pids:
                until(partial(has_ended, pid), "the killed daemon to be gone")
            killed += len(pids)
        return killed

    def stop(self) -> None:
        """End the daemon the polite way, as a shutdown does."""
        self.run("daemon", "--stop")
        until(lambda: not self.daemon_pids(), "the daemon to end")
        assert not is_mounted(self.mountpoint)

    def close(self) -> None:
        """Remove mount and daemon whatever state they are in."""
        if is_mounted(self.mountpoint):
            tool = ["umount", "--lazy"] if os.geteuid() == 0 else ["fusermount3", "-u", "-z"]
            subprocess.run([*tool, str(self.mountpoint)], check=False, capture_output=True)
        self._kill_all()
        if is_mounted(self.mountpoint) and shutil.which("fusermount3"):
            subprocess.run(
                ["fusermount3", "-u", "-z", str(self.mountpoint)], check=False, capture_output=True
            )
        if not is_mounted(self.mountpoint):
            with contextlib.suppress(OSError):
                unlock(self.mountpoint)
