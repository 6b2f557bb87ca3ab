"""Runs the commands of a page, and compares what they print with what the page says they print.

A block marked `console` holds commands, each after "$ ", and what they print. In the page "…" stands for
anything: within a line for any text, alone in a line for any number of lines.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Final, Self

__all__ = ["Shell", "Step", "matches", "steps"]

_BLOCK: Final = re.compile(r"^```console\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_PROMPT: Final = "$ "
_END: Final = "--- end of the command"
_PATIENCE: Final = 60.0  # seconds for what becomes true a little later


@dataclass(frozen=True)
class Step:
    """A command, and the lines that it prints."""

    command: str
    printed: str


def steps(page: str) -> Iterator[Step]:
    """The commands of *page*, in its order."""
    for block in _BLOCK.findall(page):
        command = ""
        printed: list[str] = []
        for line in block.splitlines():
            if line.startswith(_PROMPT):
                if command:
                    yield Step(command, "\n".join(printed))
                command, printed = line.removeprefix(_PROMPT), []
            else:
                printed.append(line)
        if command:
            yield Step(command, "\n".join(printed))


def matches(expected: str, printed: str) -> bool:
    """Is *printed* what the page expects?"""
    pattern = "".join(
        r"(?:.*\n)*" if line == "…" else re.escape(line).replace("…", ".*") + r"\n"
        for line in expected.splitlines()
    )
    return re.fullmatch(pattern, f"{printed}\n" if printed else "") is not None


class Shell:
    """One shell for all commands, so that `cd` stays in force."""

    def __init__(self, environment: Mapping[str, str], directory: Path) -> None:
        self._process = subprocess.Popen(
            ["bash", "--norc", "--noprofile"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=dict(environment),
            cwd=directory,
            text=True,
            start_new_session=True,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.communicate()

    def run(self, step: Step) -> str:
        """What the command prints: the last time it is run, when the first time is too early for it."""
        deadline = time.monotonic() + _PATIENCE
        while True:
            printed = self._once(step.command)
            asks_only = step.command.startswith("hybrisfs status")
            if matches(step.printed, printed) or not asks_only or time.monotonic() > deadline:
                return printed

    def _once(self, command: str) -> str:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f'{{ {command}\n}} </dev/null\nprintf "%s\\n" "{_END}"\n')
        self._process.stdin.flush()
        lines: list[str] = []
        for line in self._process.stdout:
            if line.rstrip("\n") == _END:
                return "\n".join(lines)
            lines.append(line.rstrip("\n"))
        raise AssertionError(f"the shell ended within {command!r}: {lines}")
