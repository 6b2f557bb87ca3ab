"""The public suites: pjdfstest (system calls and their errors) and fsx (random operations on one file).

`packaging/posix-suites.sh` installs them. They run on a real mount that other users may enter; docs/posix.md
tells what they skip and why, and of the suites that are run by hand.
"""

from __future__ import annotations

import os
import pwd
import re
import subprocess
from pathlib import Path

import pytest

from tests.system.device import Device

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become the users of the suites")

_SKIPPED = 14  # 13 want a read-only remount, one a limit of links: docs/posix.md
_FSX_OPERATIONS = 2500

_PJDFSTEST_SETTINGS = """\
[features]
posix_fallocate = {}
rename_ctime = {}
utime_now = {}
utimensat = {}

[settings]
naptime = 0.01

[dummy_auth]
entries = [["nobody", "nogroup"], ["daemon", "daemon"]]
"""

_FSX_SETTINGS = """\
flen = 1048576

[weights]
close_open = 1
copy_file_range = 2
fdatasync = 1
fsync = 1
invalidate = 1
mapread = 10
mapwrite = 10
posix_fadvise = 1
posix_fallocate = 2
punch_hole = 4
read = 10
sendfile = 2
truncate = 4
write = 10
"""


def _program(name: str) -> Path:
    cache = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    path = Path(cache).expanduser() / "hybrisfs-posix-suites" / "bin" / name
    if not path.exists():
        pytest.skip(f"{name} is not installed: packaging/posix-suites.sh")
    return path


def test_pjdfstest_passes_whole(everybodys: Device) -> None:
    settings, other_disk = everybodys.root / "pjdfstest.toml", everybodys.root / "other"
    settings.write_text(_PJDFSTEST_SETTINGS)
    other_disk.mkdir()
    other_disk.chmod(0o777)
    done = subprocess.run(
        [_program("pjdfstest"), "-c", settings, "-s", other_disk, "-p", everybodys.mountpoint],
        capture_output=True,
        text=True,
        timeout=150,
    )
    found = re.search(r"Summary: (\d+) failed, (\d+) skipped, (\d+) passed", done.stdout)
    assert found is not None, done.stdout + done.stderr
    failed, skipped, passed = map(int, found.groups())
    failures = [line for line in done.stdout.splitlines() if line.endswith("FAILED")]
    assert (failed, skipped) == (0, _SKIPPED), "\n".join(failures) or done.stdout
    assert passed > 300
    assert everybodys.fsck().returncode == 0


@pytest.mark.parametrize(("user", "seed"), [("root", 1), ("nobody", 2)])
def test_fsx_finds_every_byte_where_it_was_written(everybodys: Device, user: str, seed: int) -> None:
    program = _program("fsx")
    settings = everybodys.root / "fsx.toml"
    settings.write_text(_FSX_SETTINGS)
    folder = everybodys.mountpoint / user
    folder.mkdir()
    account = pwd.getpwnam(user)
    os.chown(folder, account.pw_uid, account.pw_gid)
    # The program's own folder may be out of that user's reach; who it is already open for need not find it.
    descriptor = os.open(program, os.O_RDONLY)
    words = ["-f", settings, "-N", _FSX_OPERATIONS, "-S", seed, "-P", folder, folder / "file"]
    try:
        done = subprocess.run(
            [f"/proc/self/fd/{descriptor}", *map(str, words)],
            user=account.pw_uid,
            group=account.pw_gid,
            extra_groups=[],
            pass_fds=[descriptor],
            cwd=folder,
            capture_output=True,
            text=True,
            timeout=150,
        )
    finally:
        os.close(descriptor)
    assert done.returncode == 0, done.stdout + done.stderr
    assert (folder / "file").stat().st_uid == account.pw_uid
