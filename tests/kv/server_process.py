"""A server of a metadata service as a process that can be killed, stopped and started again."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path

__all__ = ["ServerProcess"]


class ServerProcess:
    """One server, which does not run before `start`."""

    def __init__(self, command: Sequence[str], log: Path) -> None:
        self._command = command
        self._log = log
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start, or start again with what the disk has."""
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(self._command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def kill(self) -> None:
        """As a power cut would."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def pause(self) -> None:
        """It answers nothing until `resume`; its connections stay."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """It goes on."""
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    @property
    def has_ended(self) -> bool:
        """Whether it has given up, as when another program has its port."""
        return self._process is not None and self._process.poll() is not None
