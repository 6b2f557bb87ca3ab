"""Running ordinary programs on the mount."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

__all__ = ["run", "tool"]


def run(*words: str | Path, cwd: Path | None = None, timeout: float = 120.0) -> str:
    """Run a program that must succeed; returns what it printed.

    Raises:
        AssertionError: it failed, or took longer than `timeout` seconds; the message holds its output.
    """
    environment = {
        **os.environ,
        "LC_ALL": "C.UTF-8",
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_CONFIG_GLOBAL": os.devnull,
    }
    for role in ("AUTHOR", "COMMITTER"):
        environment |= {f"GIT_{role}_NAME": "Test", f"GIT_{role}_EMAIL": "test@example.org"}
    try:
        done = subprocess.run(
            list(map(str, words)), cwd=cwd, env=environment, capture_output=True, text=True, timeout=timeout
        )
    except subprocess.TimeoutExpired as error:
        raise AssertionError(f"{words[0]} hangs: {error}") from error
    assert done.returncode == 0, f"{words} exits with {done.returncode}:\n{done.stdout}{done.stderr}"
    return done.stdout


def tool(name: str) -> str:
    """The path of a program. Without it the test is skipped; where nothing may be skipped, it fails."""
    found = shutil.which(name)
    if found is None:
        (pytest.fail if os.environ.get("CI") else pytest.skip)(f"{name} is not installed")
    return found
