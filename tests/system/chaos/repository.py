"""A git repository per device, in a folder of its own: commit after commit, and now and then a branch."""

from __future__ import annotations

import contextlib
import os
import random
import subprocess
import threading
from pathlib import Path

from tests.system.chaos.record import Record
from tests.system.chaos.world import World

__all__ = ["Committer", "look_at_repository"]

_PAUSE = 1.0  # seconds between commits, on average
_TIMEOUT = 120.0  # seconds
_ENVIRONMENT = {
    "LC_ALL": "C.UTF-8",
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_AUTHOR_NAME": "Test",
    "GIT_AUTHOR_EMAIL": "test@example.org",
    "GIT_COMMITTER_NAME": "Test",
    "GIT_COMMITTER_EMAIL": "test@example.org",
}
_UNAVAILABLE = ("Input/output error", "Transport endpoint", "Software caused connection abort", "Stale file")
"""What git prints when the mount is gone, or what is read is nowhere to be had at the moment."""


class Committer(threading.Thread):
    """Works in the repository of one device until `stop` is set."""

    def __init__(self, world: World, name: str, seed: int, stop: threading.Event) -> None:
        super().__init__(name=f"git {name}", daemon=True)
        self._world, self._device, self._stop_word = world, name, stop
        self._record: Record = world.record
        self._choose = random.Random(f"{seed} git {name}")
        self._number = 0

    def run(self) -> None:
        while not self._stop_word.wait(self._choose.expovariate(1 / _PAUSE)):
            with contextlib.suppress(OSError, subprocess.TimeoutExpired):
                self._commit()

    def _commit(self) -> None:
        folder = self._world.own(self._device, "git", self._device)
        folder.mkdir(exist_ok=True)
        if not (folder / ".git").is_dir():
            _git(folder, "init", "-q", "-b", "main")
        for lock in (folder / ".git").rglob("*.lock"):  # of a git that met the end of the daemon
            lock.unlink()
        self._number += 1
        (folder / f"chapter {self._choose.randrange(5)}").write_text(f"{self._number}\n" * 300)
        _git(folder, "add", "-A")
        done = _git(folder, "commit", "-q", "-m", f"commit {self._number}")
        self._record.operation(self._device, "commit", folder.name, self._number, "exit", done.returncode)
        self._record.count("commits" if done.returncode == 0 else "failed commits")


def look_at_repository(world: World, shown_on: str, owner: str) -> None:
    """`git fsck` on another device, while the repository is worked in."""
    folder = world.own(shown_on, "git", owner)
    if not (folder / ".git" / "refs" / "heads" / "main").exists():
        return
    mount, before = world.mount_of(shown_on), _state(folder)
    done = _git(folder, "fsck", "--strict", "--full", "--no-dangling")
    said = done.stdout + done.stderr
    if done.returncode != 0 and any(words in said for words in _UNAVAILABLE):
        return
    if folder != world.own(shown_on, "git", owner) or mount != world.mount_of(shown_on):
        return
    if before != _state(folder):
        return  # git lists objects first: those of a commit that arrives meanwhile seem to be missing
    world.record.count("repositories seen")
    if done.returncode != 0:
        world.record.find("git", f"{shown_on} shows {folder.name}: exit {done.returncode}, {said[:600]}")


def _state(folder: Path) -> list[bytes]:
    """What leads to objects."""
    return [(folder / ".git" / name).read_bytes() for name in ("refs/heads/main", "logs/HEAD", "index")]


def _git(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    safe = ["-c", "safe.directory=*", "-c", "gc.auto=0"]
    return subprocess.run(
        ["git", *safe, "-C", str(folder), *words],
        env={**os.environ, **_ENVIRONMENT},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=_TIMEOUT,
    )
