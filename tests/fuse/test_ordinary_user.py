"""Mounting without privileges, through fusermount3. Root plays an ordinary user in the server's process."""

from __future__ import annotations

import os
import pwd
import shutil
import stat
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from hybrisfs import fuse
from hybrisfs.fuse import records
from tests.fuse.server import OrderError, Server, mount_options, names_in

pytestmark = pytest.mark.skipif(
    os.geteuid() != 0 or shutil.which("fusermount3") is None,
    reason="needs root, to become another user, and fuse3",
)

DEVICE = Path("/dev/fuse")
NOBODY = pwd.getpwnam("nobody").pw_uid


@pytest.fixture(autouse=True)
def device_for_all() -> Iterator[None]:
    """/dev/fuse as udev makes it."""
    mode = stat.S_IMODE(DEVICE.stat().st_mode)
    DEVICE.chmod(0o666)
    yield
    DEVICE.chmod(mode)


@pytest.fixture
def own_directory() -> Iterator[Path]:
    """An empty directory of the user's own, in one that the user may enter."""
    with tempfile.TemporaryDirectory() as parent:
        Path(parent).chmod(0o755)
        directory = Path(parent) / "mount"
        directory.mkdir()
        os.chown(directory, NOBODY, NOBODY)
        yield directory


def as_user(*command: str) -> str:
    done = subprocess.run(
        command,
        user=NOBODY,
        group=NOBODY,
        extra_groups=[],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return done.stdout


def test_mount_use_and_unmount(own_directory: Path) -> None:
    with Server(own_directory, [r"fsname=a,b\c", "subtype=hybrisfs"], user=NOBODY) as server:
        assert r"a,b\134c" in Path("/proc/self/mounts").read_text()
        as_user("sh", "-c", f"echo written > {own_directory}/file")
        assert as_user("cat", f"{own_directory}/file") == "written\n"
        assert as_user("stat", "-c", "%u", f"{own_directory}/file") == f"{NOBODY}\n"
        server.order("unmount", False)
        assert server.order("join")
    assert names_in(own_directory) == []


def test_a_busy_mount_is_kept_unless_unmounted_lazily(own_directory: Path) -> None:
    with Server(own_directory, user=NOBODY) as server:
        user = subprocess.Popen(
            ["sh", "-c", f"exec > {own_directory}/file; echo open >&2; read line"],
            user=NOBODY,
            group=NOBODY,
            stdin=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        with user:
            assert user.stderr is not None
            assert user.stderr.readline() == b"open\n"
            with pytest.raises(OrderError, match=r"busy.*close what uses it"):
                server.order("unmount", False)
            server.order("unmount", True)
        assert server.order("join")


@pytest.mark.parametrize("options", [[], ["again"], ["default_permissions", "suid", "dev"]])
def test_programs_get_no_rights_from_what_is_in_the_mount(own_directory: Path, options: list[str]) -> None:
    with Server(own_directory, options, user=NOBODY):
        assert {"nosuid", "nodev"} <= mount_options(own_directory)


def test_another_users_directory_is_refused(own_directory: Path) -> None:
    os.chown(own_directory, 0, 0)
    with (
        pytest.raises(OrderError, match="choose a directory of your own"),
        Server(own_directory, user=NOBODY),
    ):
        pass


def test_allow_other_must_be_allowed(own_directory: Path) -> None:
    if "\nuser_allow_other" in Path("/etc/fuse.conf").read_text():
        pytest.skip("it is allowed here")
    refused = pytest.raises(OrderError, match=r"put user_allow_other into /etc/fuse\.conf")
    with refused, Server(own_directory, ["allow_other"], user=NOBODY):
        pass


def test_a_device_that_may_not_be_opened_is_named(own_directory: Path) -> None:
    DEVICE.chmod(0o600)
    with (
        pytest.raises(OrderError, match=r"cannot open /dev/fuse.*mode 666"),
        Server(own_directory, user=NOBODY),
    ):
        pass


def test_writes_and_truncations_of_all_but_root_are_to_clear_set_id_bits(own_directory: Path) -> None:
    capabilities = fuse.DEFAULT_CAPABILITIES | records.FUSE_HANDLE_KILLPRIV_V2
    with Server(own_directory, ["allow_other"], capabilities=capabilities) as server:
        path = own_directory / "file"
        path.write_bytes(b"x")
        path.chmod(0o666)
        os.truncate(path, 0)
        assert server.order("kills") == [False]
        assert server.order("kills_by_setattr") == [False, False]
        as_user("sh", "-c", f"echo >> {path}; truncate -s 0 {path}")
        assert server.order("kills") == [False, True]
        assert server.order("kills_by_setattr") == [False, False, True]
