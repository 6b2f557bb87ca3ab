"""What a newcomer does first works: README.md's first command block, in a clean clone and a fresh home."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

from hybrisfs.daemon.wanted_mounts import unlock
from tests.system.device import REPOSITORY, is_mounted, kill_at_once, processes_with
from tests.system.shell import run, tool

_BLOCK = re.compile(r"^```(?:sh|bash|shell|console)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def _commands(readme: str) -> str:
    """The first block of shell commands, without prompts."""
    found = _BLOCK.search(readme)
    assert found is not None, "README.md has no block of shell commands"
    return "\n".join(line.removeprefix("$ ") for line in found.group(1).splitlines())


@pytest.mark.readme
@pytest.mark.timeout(600)
def test_the_first_commands_of_the_readme_give_a_working_folder(tmp_path: Path) -> None:
    tool("git")
    clone, home = tmp_path / "clone", tmp_path / "home"
    home.mkdir()
    run("git", "clone", "--quiet", REPOSITORY, clone)
    environment = {
        key: value for key, value in os.environ.items() if key.startswith("PIP_") or key in ("PATH", "LANG")
    }
    environment |= {"HOME": str(home), "XDG_RUNTIME_DIR": str(home)}
    mountpoint = home / "HybrisFS"
    try:
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", _commands((clone / "README.md").read_text())],
            cwd=clone,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=580,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        assert is_mounted(mountpoint), done.stdout
        (mountpoint / "hello").write_text("hello")
        assert (mountpoint / "hello").read_text() == "hello"
    finally:
        if is_mounted(mountpoint):
            run("fusermount3", "-u", "-z", mountpoint)
        kill_at_once(processes_with("HOME", str(home)))
        unlock(mountpoint)
