"""Two machines of a user who types what a page says: homes of their own, with a daemon each."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from hybrisfs.daemon.wanted_mounts import unlock
from tests.system.device import REPOSITORY, kill_at_once, processes_with
from tests.system.shell import run

__all__ = ["Ended", "Machines", "free_port"]

_PATIENCE: Final = 40.0  # seconds
_THERE: Final = """#!/bin/bash
export HOME={home} XDG_RUNTIME_DIR={home}
cd && exec bash -ec "$*"
"""


@dataclass(frozen=True)
class Ended:
    """What a command printed, and its exit code."""

    code: int
    printed: str


@dataclass(frozen=True)
class _GoesOn:
    """A command that ends by Ctrl-C, or when another machine has joined."""

    command: str
    process: subprocess.Popen[str]


def free_port() -> int:
    """A port that nobody has now."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return int(probe.getsockname()[1])


class Machines:
    """As a context manager it leaves nothing behind: no daemon, no mount.

    Scripts run on this machine; `there SCRIPT` in one runs on the other. A `cd` counts for what comes later.
    """

    def __init__(self, folder: Path, variables: Mapping[str, str]) -> None:
        self._homes = tuple(folder / name for name in ("here", "there"))
        programs, self._where = folder / "bin", folder / "where"
        for path in (*self._homes, programs):
            path.mkdir()
        there = programs / "there"
        there.write_text(_THERE.format(home=self._homes[1]))
        there.chmod(0o755)
        self._environment = {
            "HOME": str(self.home),
            "XDG_RUNTIME_DIR": str(self.home),
            "PATH": f"{programs}:{Path(sys.executable).parent}:{os.environ['PATH']}",
            "LANG": "C.UTF-8",
            "PYTHONPATH": str(REPOSITORY),
            "RCLONE_CONFIG": str(folder / "rclone.conf"),
            "HERE": str(self.home),
            **variables,
        }
        self._directory = self.home
        self._go_on: list[_GoesOn] = []

    @property
    def home(self) -> Path:
        """That of this machine."""
        return self._homes[0]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for one in self._go_on:
            one.process.kill()
            one.process.communicate()
        for home in self._homes:
            for line in Path("/proc/self/mountinfo").read_text().splitlines():
                if (mountpoint := line.split()[4]).startswith(f"{home}/"):
                    run("fusermount3", "-u", "-z", mountpoint)
            kill_at_once(processes_with("HOME", str(home)))
            for folder in home.iterdir():
                if folder.is_dir():
                    unlock(folder)

    def run(self, script: str) -> Ended:
        """Run *script* to its end."""
        printed = self._where.with_name("printed")
        with (
            printed.open("w") as output,
            subprocess.Popen(
                ["bash", "-ec", f"{script}\npwd >{self._where}"],
                cwd=self._directory,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            ) as process,
        ):
            try:
                code = process.wait(_PATIENCE)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                code = process.wait()
        if code == 0:
            self._directory = Path(self._where.read_text().strip())
        return Ended(code, printed.read_text())

    def start(self, command: str, ready: str) -> None:
        """Start a command that goes on, and wait until it prints something like *ready*: that is $READY then.

        One of the same kind that still runs is ended before.
        """
        self.end(" ".join(command.split()[:3]))
        process = subprocess.Popen(
            ["bash", "-ec", f"exec {command}"],
            cwd=self._directory,
            env={**self._environment, "PYTHONUNBUFFERED": "1"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self._go_on.append(_GoesOn(command, process))
        assert process.stdout is not None
        printed = ""
        for line in process.stdout:
            printed += line
            if found := re.search(ready, line):
                self._environment["READY"] = found[0]
                return
        self._go_on.pop()
        raise AssertionError(f"{command}\n{printed}exit code {process.wait()}, and nothing like {ready!r}")

    def end(self, beginning: str = "") -> None:
        """End what goes on and begins so, by Ctrl-C, unless it has ended."""
        ending = [one for one in self._go_on if one.command.startswith(beginning)]
        self._go_on = [one for one in self._go_on if one not in ending]
        for one in ending:
            one.process.send_signal(signal.SIGINT)
            printed, _ = one.process.communicate(timeout=_PATIENCE)
            told = f"{one.command}\n{printed}exit code {one.process.returncode}"
            assert one.process.returncode in (0, 130), told

    def wait_for(self, beginning: str) -> None:
        """Wait until what begins so has ended well."""
        [one] = [one for one in self._go_on if one.command.startswith(beginning)]
        self._go_on.remove(one)
        printed, _ = one.process.communicate(timeout=_PATIENCE)
        assert one.process.returncode == 0, f"{one.command}\n{printed}exit code {one.process.returncode}"
