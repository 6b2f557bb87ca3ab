"""What real programs do to a folder that is weeks old, on another device, waits for nobody: git, a compiler
of Python, rsync, tar."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.merge.fleet import Device, Fleet
from tests.merge.test_overwriting import DAY, SICK, VICTIM, examine, past, text, waiting
from tests.system.shell import tool

FILES = 150
GIT = {
    **os.environ,
    "GIT_CONFIG_GLOBAL": "/dev/null",
    "GIT_CONFIG_SYSTEM": "/dev/null",
    "GIT_AUTHOR_NAME": "a",
    "GIT_AUTHOR_EMAIL": "a@example.org",
    "GIT_COMMITTER_NAME": "a",
    "GIT_COMMITTER_EMAIL": "a@example.org",
}


class Copied:
    """A folder of this disk, which one device of a fleet is made equal to, as a mirror does."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.fleet = Fleet(2)

    def git(self, *words: str) -> None:
        subprocess.run(["git", *words], cwd=self.folder, env=GIT, check=True, capture_output=True)

    def copy(self, number: int) -> None:
        """Let the device show what is in the folder, and sign that."""
        device = self.fleet[number]
        shown, wanted = device.walk(), self._found()
        for path in sorted(shown.keys() - wanted.keys(), reverse=True):
            device.remove(path)
        for path, content in wanted.items():
            if content is None:
                if path not in shown:
                    device.mkdir(path)
            elif path not in shown or device.read(path) != content:
                device.write(path, content)
        device.sign()

    def begin(self, age: int = 30 * DAY) -> None:
        """Both devices have shown the folder for so long."""
        with past(self.fleet, age):
            self.copy(VICTIM)
            self.fleet.meet()

    def follow(self) -> Device:
        """The other device sees what has become of the folder; asks nobody, and shows the same."""
        self.copy(SICK)
        victim = self.fleet[VICTIM]
        for update in self.fleet[SICK].log():
            victim.receive([update])
        assert examine(victim)
        assert waiting(victim) == []
        assert victim.tree() == self.fleet[SICK].tree()
        return victim

    def _found(self) -> dict[str, bytes | None]:
        found: dict[str, bytes | None] = {}
        for path in sorted(self.folder.rglob("*")):
            if path.is_symlink():
                continue
            found[str(path.relative_to(self.folder))] = None if path.is_dir() else path.read_bytes()
        return found


@pytest.fixture
def copied(tmp_path: Path) -> Iterator[Copied]:
    found = Copied(tmp_path / "folder")
    found.folder.mkdir()
    yield found
    found.fleet.discard()


def source(number: int, word: str) -> str:
    return f"def {word}_{number}(a, b):\n    return {number} * a + b\n\n\nDOC = {text(number)[:400]!r}\n"


@pytest.fixture
def repository(copied: Copied) -> Copied:
    copied.git("init", "-q", "-b", "main")
    for number in range(FILES):
        (copied.folder / f"module_{number}.py").write_text(source(number, "first"))
    copied.git("add", ".")
    copied.git("commit", "-qm", "first")
    copied.git("checkout", "-qb", "other")
    for number in range(FILES):
        (copied.folder / f"module_{number}.py").write_text(source(number, "second") + source(number, "third"))
    copied.git("commit", "-qam", "second")
    return copied


def test_git_gc(repository: Copied) -> None:
    tool("git")
    repository.begin()
    before = len(repository.fleet[VICTIM].names())
    repository.git("gc", "-q", "--prune=now")
    assert len(repository.follow().names()) < before / 2, "loose objects are gone"


def test_a_checkout_of_another_branch(repository: Copied) -> None:
    tool("git")
    repository.begin()
    repository.git("checkout", "-q", "main")
    assert b"first_7" in repository.follow().read("module_7.py")


def test_a_source_tree_is_formatted(repository: Copied) -> None:
    tool("git")
    repository.begin()
    for path in repository.folder.glob("*.py"):
        path.write_text(path.read_text().replace("    ", "\t").replace("= b'", "=\tb'"))
    repository.follow()


def test_a_build_and_the_next_ones(copied: Copied) -> None:
    build = ["python3", "-m", "compileall", "-q", "-f", "."]
    for number in range(FILES):
        (copied.folder / f"module_{number}.py").write_text(source(number, "first"))
    subprocess.run(build, cwd=copied.folder, check=True)
    copied.begin()
    for number in range(FILES):
        path = copied.folder / f"module_{number}.py"
        path.write_text(source(number, "next"))
    subprocess.run(build, cwd=copied.folder, check=True)
    copied.follow()
    with past(copied.fleet, -DAY // 24):
        for path in copied.folder.glob("__pycache__/*"):
            path.unlink()
        (copied.folder / "__pycache__").rmdir()
        subprocess.run(build, cwd=copied.folder, check=True)
        copied.follow()


def test_rsync_of_a_newer_copy(copied: Copied, tmp_path: Path) -> None:
    tool("rsync")
    newer = tmp_path / "newer"
    newer.mkdir()
    for number in range(FILES):
        (copied.folder / f"note {number}.txt").write_bytes(text(number))
        (newer / f"note {number}.txt").write_bytes(text(number) + b"\nmore of it")
    copied.begin()
    subprocess.run(["rsync", "-a", "--delete", "-I", f"{newer}/", f"{copied.folder}/"], check=True)
    copied.follow()


def test_an_archive_of_small_files_that_is_renewed_each_night(copied: Copied) -> None:
    for round_ in range(2):
        for number in range(FILES):
            path = copied.folder / f"table {number}.csv"
            path.unlink(missing_ok=True)
            path.write_text("\n".join(f"{number},{line},{line * number + round_}" for line in range(100)))
            subprocess.run(["gzip", "-kf", str(path)], check=True)
        if not round_:
            copied.begin(DAY)
    copied.follow()
