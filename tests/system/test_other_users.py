"""What one user does to the file of another in a folder that both may enter."""

from __future__ import annotations

import os
import pwd
import subprocess
import sys
from pathlib import Path

import pytest

from tests.system.device import Device

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")

_NOBODY = pwd.getpwnam("nobody").pw_uid


def _as_nobody(program: str, path: Path) -> str:
    done = subprocess.run(
        ["/usr/bin/python3" if Path("/usr/bin/python3").exists() else sys.executable, "-c", program, path],
        user=_NOBODY,
        group=_NOBODY,
        extra_groups=[],
        cwd="/",
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_whoever_truncates_a_file_by_opening_it_takes_its_privileges(everybodys: Device) -> None:
    path = everybodys.mountpoint / "program"
    path.write_bytes(b"harmless")
    path.chmod(0o6777)
    path.open("wb").close()
    assert path.stat().st_mode & 0o7777 == 0o6777
    _as_nobody("import os, sys; os.open(sys.argv[1], os.O_RDONLY | os.O_TRUNC)", path)
    assert (path.stat().st_mode & 0o7777, path.stat().st_size) == (0o777, 0)


def test_trusted_attributes_are_shown_to_root_alone(everybodys: Device) -> None:
    path = everybodys.mountpoint / "file"
    path.touch()
    os.setxattr(path, "user.a", b"1")
    os.setxattr(path, "trusted.b", b"2")
    assert sorted(os.listxattr(path)) == ["trusted.b", "user.a"]
    assert _as_nobody("import os, sys; print(*os.listxattr(sys.argv[1]))", path) == "user.a"
