"""A relay as a script sees it: a process in a network of its own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from tests.system.device import COMMAND, REPOSITORY

__all__ = ["Relay"]


class Relay:
    """`hybrisfs relay` on a machine. A context manager: it runs within the block."""

    port = 8017

    def __init__(self, folder: Path, host: str, run_as: Sequence[str] = ()) -> None:
        """*host* is its address."""
        self.folder = folder
        self._host = host
        self._run_as = list(run_as)
        self._where: dict[str, Any] = {
            "cwd": folder,
            "env": {**os.environ, "PYTHONPATH": str(REPOSITORY)},
        }
        self._process: subprocess.Popen[str] | None = None

    def __enter__(self) -> Relay:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()

    def add(self, space: str) -> Path:
        """Make a space; the file that has its code."""
        facts = self._run("add", space, f"{self._host}:{self.port}", "--json")
        file = self.folder / f"{space}.code"
        file.write_text(facts["code"])
        return file

    def start(self) -> None:
        """Returns when devices can connect."""
        command = self._command("serve", "--listen", f"{self._host}:{self.port}", "--json")
        self._process = subprocess.Popen(command, **self._where, text=True, stdout=subprocess.PIPE)
        assert self._process.stdout is not None
        assert json.loads(self._process.stdout.readline())["port"] == self.port

    def kill(self) -> None:
        """SIGKILL."""
        if self._process is not None:
            self._process.send_signal(signal.SIGKILL)
            self._process.communicate()
            self._process = None

    def _run(self, *arguments: str) -> Any:
        command = self._command(*arguments)
        done = subprocess.run(command, **self._where, check=True, text=True, stdout=subprocess.PIPE)
        return json.loads(done.stdout)

    def _command(self, *arguments: str) -> list[str]:
        return [*self._run_as, *COMMAND, "relay", "--folder", str(self.folder), *arguments]
