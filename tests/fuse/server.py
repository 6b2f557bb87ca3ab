"""Runs a filesystem server as a process of its own: one that looks into its own mount may wait for itself."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from hybrisfs.fuse import DEFAULT_CAPABILITIES

ROOT = Path(__file__).parent.parent.parent


def names_in(directory: Path) -> list[str]:
    """The names in a directory."""
    return [entry.name for entry in os.scandir(directory)]


def mount_options(mountpoint: Path) -> set[str]:
    """With which options the kernel has mounted what is there."""
    lines = [line.split() for line in Path("/proc/self/mounts").read_text().splitlines()]
    return set(next(words[3] for words in lines if words[1] == os.fspath(mountpoint)).split(","))


class OrderError(Exception):
    """The server answered an order with an error."""


class Server:
    """A mounted MischiefFS, unmounted and ended at the end of the `with` block, come what may."""

    def __init__(
        self,
        mountpoint: Path,
        options: Sequence[str] = (),
        *,
        capabilities: int = DEFAULT_CAPABILITIES,
        user: int | None = None,
    ) -> None:
        self.mountpoint = mountpoint
        # Not beside the mount point, which may be in a mount that this process serves: it holds the
        # interpreter's lock until the new process has closed its descriptors, and closing one is a request.
        self._log = tempfile.TemporaryFile("w+")  # noqa: SIM115 - `_end` closes it
        self.process = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "tests.fuse.mischief_fs",
                os.fspath(mountpoint),
                str(capabilities),
                *options,
            ],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
            user=user,
            group=user,
            extra_groups=None if user is None else [],
        )

    def __enter__(self) -> Server:
        try:
            self._answer()
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()

    def order(self, name: str, *arguments: Any) -> Any:
        """Have the server do something, and return its answer. Raises OrderError."""
        assert self.process.stdin is not None
        print(json.dumps([name, *arguments]), file=self.process.stdin, flush=True)
        return self._answer()

    def wait_until(self, expected: Any, name: str, *arguments: Any) -> None:
        """Repeat an order until its answer is as expected. Raises TimeoutError after ten seconds."""
        end = time.monotonic() + 10
        while (answer := self.order(name, *arguments)) != expected:
            if time.monotonic() > end:
                raise TimeoutError(f"{name} answers {answer!r}, not {expected!r}")

    def _answer(self) -> Any:
        assert self.process.stdout is not None
        answer = json.loads(self.process.stdout.readline() or '{"error": "the server has died"}')
        if isinstance(answer, dict):
            raise OrderError(answer["error"])
        return answer

    def log(self) -> str:
        """What the server has logged so far."""
        self._log.seek(0)
        return self._log.read()

    def _end(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()
        self._log.close()
        subprocess.run(["umount", "-l", os.fspath(self.mountpoint)], check=False, stderr=subprocess.DEVNULL)
