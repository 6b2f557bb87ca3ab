"""The first thing a newcomer does works: the first command block of README.md, in a clean clone, in a fresh home."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

from tests.system.device import REPOSITORY, Device, is_mounted
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
    # One mark for the daemon, so that it can be found and ended; the folders are those of a new user.
    device = Device(tmp_path, home=home)
    device.mountpoint = home / "HybrisFS"
    environment |= {"HOME": str(home), "HYBRISFS_HOME": str(home)}
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
        assert is_mounted(device.mountpoint), done.stdout
        (device.mountpoint / "hello").write_text("hello")
        assert (device.mountpoint / "hello").read_text() == "hello"
    finally:
        device.close()
