"""What one user does to the file of another in a folder that both may enter."""

from __future__ import annotations

import os
import pwd
import struct
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


_ALL = 0xFFFFFFFF  # the id of entries of an access control list that name nobody


def _acl(*entries: tuple[int, int, int]) -> bytes:
    return struct.pack("<I", 2) + b"".join(struct.pack("<HHI", *entry) for entry in entries)


def test_an_access_control_list_lets_one_user_in(everybodys: Device) -> None:
    path = everybodys.mountpoint / "secret"
    path.write_text("for nobody alone")
    path.chmod(0o600)
    read = "import sys; print(open(sys.argv[1]).read())"
    with pytest.raises(AssertionError, match="Permission denied"):
        _as_nobody(read, path)
    entries = (1, 6, _ALL), (2, 4, _NOBODY), (4, 0, _ALL), (16, 4, _ALL), (32, 0, _ALL)
    os.setxattr(path, "system.posix_acl_access", _acl(*entries))
    assert _as_nobody(read, path) == "for nobody alone"
    path.chmod(0o600)  # takes the mask away
    with pytest.raises(AssertionError, match="Permission denied"):
        _as_nobody(read, path)


def test_an_access_control_list_makes_no_set_group_id_program(everybodys: Device) -> None:
    """Of a group that its owner is not in."""
    path = everybodys.mountpoint / "groups"
    path.touch()
    os.chown(path, _NOBODY, 0)
    path.chmod(0o2755)
    entries = (1, 7, _ALL), (2, 7, 0), (4, 5, _ALL), (16, 7, _ALL), (32, 5, _ALL)
    program = f"import os, sys; os.setxattr(sys.argv[1], 'system.posix_acl_access', {_acl(*entries)!r})"
    _as_nobody(program, path)
    assert path.stat().st_mode & 0o7777 == 0o775
    path.chmod(0o2775)
    os.setxattr(path, "system.posix_acl_access", _acl(*entries))
    assert path.stat().st_mode & 0o7777 == 0o2775
