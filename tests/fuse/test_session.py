"""Mounting, notifying and unmounting."""

from __future__ import annotations

import errno
import os
import signal
import socket
import struct
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from hybrisfs import fuse
from hybrisfs.fuse import FuseError, records
from hybrisfs.fuse.request import ANSWER
from hybrisfs.fuse.requests import HEADER, INIT
from hybrisfs.fuse.session import Wishes, shake_hands
from tests.fuse.server import OrderError, Server, mount_options, names_in


def test_unmounting_ends_the_loop(server: Server) -> None:
    (server.mountpoint / "file").touch()
    server.order("unmount", False)
    assert server.order("join")
    assert names_in(server.mountpoint) == []
    assert server.order("close") == ["init", "destroy"]
    assert server.order("close") == ["init", "destroy"]


def test_unmounting_from_outside_ends_the_loop(server: Server) -> None:
    subprocess.run(["umount", os.fspath(server.mountpoint)], check=True)
    assert server.order("join")
    server.order("unmount", False)
    server.order("close")


def test_a_busy_mount_is_kept_unless_unmounted_lazily(server: Server) -> None:
    with (server.mountpoint / "file").open("w") as file:
        with pytest.raises(OrderError, match=r"busy.*close what uses it"):
            server.order("unmount", False)
        server.order("unmount", True)
        assert names_in(server.mountpoint) == []
        file.write("still served")
    assert server.order("join")


def test_a_served_session_cannot_be_closed(server: Server) -> None:
    with pytest.raises(OrderError, match="still being served"):
        server.order("close")


def test_notify_inval_entry_has_the_name_looked_up_again(server: Server) -> None:
    path = server.mountpoint / "file"
    path.touch()
    server.order("drop", "file")
    assert path.exists()
    server.order("notify_inval_entry", 1, "file")
    assert not path.exists()


def test_notify_inval_inode_has_content_and_size_read_again(server: Server) -> None:
    path = server.mountpoint / "file"
    path.write_text("old")
    assert path.read_text() == "old"
    server.order("rewrite", "file", "new")
    assert path.read_text() == "old"
    server.order("notify_inval_inode", server.order("ino", "file"))
    assert path.read_text() == "new"
    assert path.stat().st_size == 3
    server.order("rewrite", "file", "longer")
    assert path.stat().st_size == 3
    server.order("notify_inval_inode", server.order("ino", "file"))
    assert path.stat().st_size == 6
    assert path.read_text() == "longer"


def test_notices_about_what_the_kernel_does_not_know_are_no_error(server: Server) -> None:
    server.order("notify_inval_entry", 1, "nothing")
    server.order("notify_inval_inode", 4711)


def refused(directory: Path, *options: str) -> str:
    """The message with which mounting is refused."""
    session = fuse.MountedSession(fuse.Operations(), directory, options)
    with pytest.raises(fuse.FuseError) as caught:
        session.mount()
    session.close()
    return str(caught.value)


def test_what_a_dead_server_left_is_recognised_and_can_be_cleared(mountpoint: Path) -> None:
    with Server(mountpoint) as dead:
        dead.process.send_signal(signal.SIGKILL)
        dead.process.wait()
        with pytest.raises(OSError, match="not connected"):
            names_in(mountpoint)
        assert "server that has died" in refused(mountpoint)
        assert fuse.clear_stale(mountpoint)
        assert not fuse.clear_stale(mountpoint)
        with Server(mountpoint):
            (mountpoint / "file").touch()


def test_a_mount_point_that_cannot_be_used_is_refused_with_advice(tmp_path: Path, mountpoint: Path) -> None:
    assert "does not exist: create" in refused(tmp_path / "missing")
    (tmp_path / "file").touch()
    assert "not a directory" in refused(tmp_path / "file")
    assert "not empty" in refused(tmp_path)
    wrong = "one of these options wrong? nonsense" if os.geteuid() == 0 else "unknown option 'nonsense'"
    assert wrong in refused(mountpoint, "nonsense")
    with Server(mountpoint):
        assert "mounted already" in refused(mountpoint)


def test_a_mount_point_with_blanks_and_backslashes(tmp_path: Path) -> None:
    directory = tmp_path / "a b\\040\tc"
    directory.mkdir()
    with Server(directory) as server:
        (directory / "file").touch()
        server.order("unmount", False)
        assert server.order("join")


def test_a_mount_point_behind_a_symbolic_link(tmp_path: Path, mountpoint: Path) -> None:
    (tmp_path / "link").symlink_to(mountpoint)
    with Server(tmp_path / "link") as server:
        (mountpoint / "file").touch()
        server.order("unmount", False)
        assert server.order("join")


def test_the_mount_shows_its_source_and_type(mountpoint: Path) -> None:
    with Server(mountpoint, ["fsname=a,b\\c", "subtype=hybrisfs", "default_permissions", "ro", "noatime"]):
        line = next(
            line for line in Path("/proc/self/mounts").read_text().splitlines() if str(mountpoint) in line
        )
        source, _, kind, options, *_ = line.split()
        assert (source, kind) == (r"a,b\134c", "fuse.hybrisfs")
        assert {"ro", "noatime", "nosuid", "nodev", "default_permissions"} <= set(options.split(","))


_ONLY_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="only root may always let others see its mounts")


@pytest.mark.parametrize(
    "options",
    [[], pytest.param(["allow_other"], marks=_ONLY_ROOT), ["again"], ["default_permissions", "rw"]],
)
def test_programs_get_no_rights_from_what_is_in_the_mount(mountpoint: Path, options: list[str]) -> None:
    with Server(mountpoint, options):
        assert {"nosuid", "nodev"} <= mount_options(mountpoint)


@pytest.mark.parametrize("option", ["suid", "dev"])
def test_nobody_can_ask_for_such_rights(mountpoint: Path, option: str) -> None:
    if os.geteuid() != 0:  # fusermount3 passes over what ordinary users may not have
        with Server(mountpoint, [option]):
            assert {"nosuid", "nodev"} <= mount_options(mountpoint)
        return
    with pytest.raises(OrderError, match="is one of these options wrong"), Server(mountpoint, [option]):
        pass


@pytest.mark.parametrize("parallel", [True, False])
def test_lookups_in_one_directory_come_in_parallel_when_agreed(mountpoint: Path, parallel: bool) -> None:
    capabilities = fuse.DEFAULT_CAPABILITIES
    if not parallel:
        capabilities &= ~records.FUSE_PARALLEL_DIROPS
    with Server(mountpoint, capabilities=capabilities) as server:
        callers = [subprocess.Popen(["test", "-e", mountpoint / f"hang{number}"]) for number in range(2)]
        try:
            if parallel:
                server.wait_until(2, "hanging")
            else:
                server.wait_until(1, "hanging")
                server.order("fail_hanging", errno.ENOENT)
                server.wait_until(1, "hanging")
        finally:
            while server.order("hanging"):
                server.order("fail_hanging", errno.ENOENT)
            for caller in callers:
                caller.wait()


@pytest.mark.parametrize("told", [True, False])
def test_security_attributes_are_asked_before_each_write_unless_told_otherwise(
    mountpoint: Path, told: bool
) -> None:
    capabilities = fuse.DEFAULT_CAPABILITIES | (records.FUSE_HANDLE_KILLPRIV_V2 if told else 0)
    with Server(mountpoint, capabilities=capabilities) as server:
        with (mountpoint / "file").open("wb", buffering=0) as file:
            for _ in range(10):
                file.write(b"x")
        assert server.order("xattr_requests") == (1 if told else 10)


# -- the first exchange ---------------------------------------------------------------------------------

WISHES = Wishes(records.FUSE_ASYNC_READ | records.FUSE_POSIX_ACL, 1 << 20, 1 << 17, 64)


@pytest.fixture
def device() -> Iterator[tuple[socket.socket, socket.socket]]:
    """What the session has, and what the kernel has, of a connection."""
    ours, kernels = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours, kernels:
        yield ours, kernels


def offer(major: int, minor: int, flags: int) -> bytes:
    body = struct.pack("=IIII", major, minor, 1 << 16, flags) + bytes(48)
    return HEADER.pack(HEADER.size + len(body), INIT, 2, 0, 0, 0, 0) + body


def test_nothing_is_agreed_upon_that_the_kernel_has_not_offered(
    device: tuple[socket.socket, socket.socket],
) -> None:
    ours, kernels = device
    kernels.send(offer(7, 99, records.FUSE_ASYNC_READ | records.FUSE_MAX_PAGES | records.FUSE_CACHE_SYMLINKS))
    shake_hands(ours.fileno(), WISHES)
    answer = kernels.recv(200)
    assert ANSWER.unpack_from(answer) == (len(answer), 0, 2)
    major, minor, readahead, flags, background, congestion, largest = struct.unpack_from(
        "=IIIIHHI", answer, ANSWER.size
    )
    assert flags == records.FUSE_ASYNC_READ | records.FUSE_MAX_PAGES
    assert (major, minor, readahead, background, congestion) == (7, 38, 1 << 16, 64, 48)
    assert largest == 1 << 20


@pytest.mark.parametrize(("major", "minor"), [(7, 22), (8, 0)])
def test_a_kernel_that_speaks_another_protocol_is_refused(
    device: tuple[socket.socket, socket.socket], major: int, minor: int
) -> None:
    ours, kernels = device
    kernels.send(offer(major, minor, 0))
    with pytest.raises(FuseError, match=rf"speaks version {major}\.{minor} of FUSE.*Linux 3\.15 or later"):
        shake_hands(ours.fileno(), WISHES)


def test_a_mount_that_ends_as_it_begins_is_explained(device: tuple[socket.socket, socket.socket]) -> None:
    ours, kernels = device
    kernels.send(offer(7, 38, 0))
    kernels.close()
    with pytest.raises(FuseError, match="broke as it began: Broken pipe; try again"):
        shake_hands(ours.fileno(), WISHES)
