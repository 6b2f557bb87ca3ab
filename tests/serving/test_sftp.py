"""SFTP, by programs that people use, before a folder of this disk."""

from __future__ import annotations

import asyncio
import os
import shutil
import socket
import subprocess
import threading
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import asyncssh
import pytest

from hybrisfs.door import DoorLimits
from tests.gateway.test_clients import content, written
from tests.serving.rig import SftpRig, listed, running_sftp
from tests.system.shell import tool

_WAIT = 120  # seconds


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[SftpRig]:
    with running_sftp(tmp_path) as rig:
        yield rig


def environment(tmp_path: Path, password: str) -> dict[str, str]:
    """One in which OpenSSH is told the password as a person would tell it."""
    told = tmp_path / "told"
    told.write_text('#!/bin/sh\nprintf "%s\\n" "$HFS_TEST_PASSWORD"\n')
    told.chmod(0o700)
    said = {"SSH_ASKPASS": str(told), "SSH_ASKPASS_REQUIRE": "force", "HFS_TEST_PASSWORD": password}
    return os.environ | said


def options(port_option: str, port: int) -> list[str]:
    words = ["StrictHostKeyChecking=no", "UserKnownHostsFile=/dev/null", "NumberOfPasswordPrompts=1"]
    words += ["LogLevel=ERROR", "PubkeyAuthentication=no"]
    return [port_option, str(port), "-F", "/dev/null", *(f"-o{word}" for word in words)]


def sftp(
    rig: SftpRig, tmp_path: Path, *orders: str, password: str | None = None
) -> subprocess.CompletedProcess[str]:
    """What OpenSSH's sftp does with orders; one that fails ends it."""
    said = environment(tmp_path, rig.password if password is None else password)
    # -b forbids it to ask for a password, unless this comes before.
    words = ["-oBatchMode=no", "-b", "-", *options("-P", rig.port), "phone@127.0.0.1"]
    return subprocess.run(
        [tool("sftp"), *words],
        input="\n".join(orders) + "\n",
        env=said,
        capture_output=True,
        text=True,
        timeout=_WAIT,
    )


def done(rig: SftpRig, tmp_path: Path, *orders: str) -> str:
    found = sftp(rig, tmp_path, *orders)
    assert found.returncode == 0, found.stderr
    return found.stdout


def test_openssh(rig: SftpRig, tmp_path: Path) -> None:
    source = written(tmp_path / "source", {"one": 3 << 20, "two": 100})
    os.utime(source / "one", (1_000_000_000, 1_000_000_000))
    shown = done(
        rig,
        tmp_path,
        "mkdir folder",
        f"put -p {source / 'one'} folder/one",
        f"put {source / 'two'} folder/two",
        "chmod 600 folder/two",
        "rename folder/two folder/three",
        f"get folder/one {tmp_path / 'back'}",
        "df",
        "ls -l folder",
        "mkdir empty",
        "rmdir empty",
    )
    assert content(rig.root) == {"folder/one": content(source)["one"], "folder/three": content(source)["two"]}
    assert (rig.root / "folder" / "one").stat().st_mtime == 1_000_000_000
    assert (rig.root / "folder" / "three").stat().st_mode & 0o777 == 0o600
    assert (tmp_path / "back").read_bytes() == (source / "one").read_bytes()
    assert "three" in shown
    assert listed(rig.root) == ["folder"]
    done(rig, tmp_path, "rm folder/one")
    assert listed(rig.root / "folder") == ["three"]


def test_what_is_broken_off_goes_on(rig: SftpRig, tmp_path: Path) -> None:
    source = written(tmp_path / "source", {"file": 1 << 20})
    whole = (source / "file").read_bytes()
    (rig.root / "file").write_bytes(whole[:300_000])
    done(rig, tmp_path, f"reput {source / 'file'} file")
    assert (rig.root / "file").read_bytes() == whole


def test_scp(rig: SftpRig, tmp_path: Path) -> None:
    source = written(tmp_path / "source", {"a": 100_000, "b/c d": 10})
    login = options("-P", rig.port)
    for words in (
        [str(source), "phone@127.0.0.1:/there"],
        ["phone@127.0.0.1:/there", str(tmp_path / "back")],
    ):
        found = subprocess.run(
            [tool("scp"), "-s", "-rp", *login, *words],
            env=environment(tmp_path, rig.password),
            capture_output=True,
            text=True,
            timeout=_WAIT,
        )
        assert found.returncode == 0, found.stderr
    assert content(rig.root / "there") == content(tmp_path / "back") == content(source)


def test_rclone(rig: SftpRig, tmp_path: Path) -> None:
    hidden = subprocess.run(
        [tool("rclone"), "obscure", "-"], input=rig.password, capture_output=True, text=True, check=True
    )
    remote = {
        "TYPE": "sftp",
        "HOST": "127.0.0.1",
        "PORT": str(rig.port),
        "USER": "phone",
        "PASS": hidden.stdout.strip(),
        "SHELL_TYPE": "none",
    }
    ours = {name: one for name, one in os.environ.items() if not name.startswith("RCLONE_")}
    said = ours | {f"RCLONE_CONFIG_HFS_{name}": one for name, one in remote.items()}

    def rclone(*words: str) -> None:
        found = subprocess.run(
            [tool("rclone"), "--config", "", "--retries", "1", *words],
            env=said,
            capture_output=True,
            timeout=_WAIT,
        )
        assert found.returncode == 0, found.stderr.decode()

    names = {f"many/{number} ü?;#%\\": number * 100 for number in range(150)}
    source = written(tmp_path / "source", {"a": 10, "b c/ü+%": 100_000, "large": 12 << 20, "e": 0, **names})
    os.utime(source / "a", (0, 1_000_000_000))
    rclone("sync", str(source), "hfs:backup")
    assert content(rig.root / "backup") == content(source)
    assert (rig.root / "backup" / "a").stat().st_mtime == 1_000_000_000
    rclone("check", "--download", str(source), "hfs:backup")
    rclone("moveto", "hfs:backup/large", "hfs:backup/a")
    assert (rig.root / "backup" / "a").read_bytes() == (source / "large").read_bytes()
    shutil.rmtree(source / "many")
    rclone("sync", str(source), "hfs:backup")
    assert content(rig.root / "backup") == content(source)
    rclone("purge", "hfs:backup")
    assert listed(rig.root) == []


def test_nobody_gets_in_without_the_password(rig: SftpRig, tmp_path: Path) -> None:
    (rig.root / "file").write_text("x")
    for _ in range(5):
        assert sftp(rig, tmp_path, "ls", password="wrong").returncode != 0
    # That were as many as an address has.
    refused = sftp(rig, tmp_path, "ls")
    assert (refused.returncode != 0, "denied" in refused.stderr, "file" in refused.stdout) == (
        True,
        True,
        False,
    )


@pytest.mark.parametrize(
    "words", [["true"], ["-s", "netconf"], ["-N", "-oExitOnForwardFailure=yes", "-R0:localhost:9"]]
)
def test_ssh_gives_nothing_else(rig: SftpRig, tmp_path: Path, words: list[str]) -> None:
    before = [word for word in words if word.startswith("-")]
    after = [word for word in words if not word.startswith("-")]
    found = subprocess.run(
        [tool("ssh"), *options("-p", rig.port), *before, "phone@127.0.0.1", *after],
        env=environment(tmp_path, rig.password),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=_WAIT,
    )
    assert found.returncode != 0
    assert "failed" in found.stderr, found.stderr
    assert "denied" not in found.stderr


def test_ssh_connects_to_nothing_else(rig: SftpRig, tmp_path: Path) -> None:
    found = subprocess.run(
        [tool("ssh"), *options("-p", rig.port), "-W", f"127.0.0.1:{rig.port}", "phone@127.0.0.1"],
        env=environment(tmp_path, rig.password),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=_WAIT,
    )
    assert (found.returncode != 0, "SSH-2.0" in found.stdout) == (True, False)
    assert "forwarding failed" in found.stderr, found.stderr


def test_nothing_outside_is_reached(rig: SftpRig, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret").write_text("secret")
    (rig.root / "link").symlink_to(outside)
    (rig.root / "file").symlink_to(outside / "secret")
    (rig.root / "inner").mkdir()
    (rig.root / "plain").write_text("plain")
    back = tmp_path / "back"
    source = written(tmp_path / "source", {"new": 10})
    for order in (
        f"get ../outside/secret {back}",
        f"get {outside / 'secret'} {back}",
        f"get link/secret {back}",
        f"get file {back}",
        f"put {source / 'new'} link/new",
        f"put {source / 'new'} file",
        "mkdir link/new",
        "rm link/secret",
        "rm file",
        "rmdir link",
        "chmod 777 file",
        "rename inner link/inner",
        "rename plain file",
        "rename file inner/file",
        "ln -s /etc/passwd passwd",
        "ln inner/a b",
    ):
        assert sftp(rig, tmp_path, order).returncode != 0, order
    assert done(rig, tmp_path, "ls -1").split("\n")[1:] == ["inner", "plain", ""]
    assert not back.exists()
    assert listed(outside) == ["secret"]
    assert (outside / "secret").read_text() == "secret"
    assert listed(rig.root) == ["file", "inner", "link", "plain"]


def test_for_reading_only(tmp_path: Path) -> None:
    with running_sftp(tmp_path, read_only=True) as rig:
        (rig.root / "file").write_text("x")
        (rig.root / "folder").mkdir()
        source = written(tmp_path / "source", {"new": 10})
        for order in (
            f"put {source / 'new'} new",
            f"put {source / 'new'} file",
            "rm file",
            "rename file other",
            "mkdir new",
            "rmdir folder",
            "chmod 777 file",
        ):
            assert sftp(rig, tmp_path, order).returncode != 0, order
        done(rig, tmp_path, f"get file {tmp_path / 'back'}")
        assert (tmp_path / "back").read_text() == "x"
        assert listed(rig.root) == ["file", "folder"]
        assert (rig.root / "file").read_text() == "x"


# -- what no program asks by order of a person ----------------------------------------------------------


def asked(rig: SftpRig, work: Callable[[asyncssh.SFTPClient], Awaitable[None]]) -> None:
    """Do something with a client of asyncssh's."""

    async def ask() -> None:
        login = {"username": "phone", "password": rig.password, "known_hosts": None, "config": None}
        async with (
            asyncssh.connect("127.0.0.1", rig.port, client_keys=None, agent_path=None, **login) as connection,
            connection.start_sftp_client() as client,
        ):
            await work(client)

    asyncio.run(asyncio.wait_for(ask(), _WAIT))


def test_files_are_changed_in_place(rig: SftpRig) -> None:
    (rig.root / "file").write_bytes(b"0123456789")
    number = (rig.root / "file").stat().st_ino

    async def work(client: asyncssh.SFTPClient) -> None:
        async with client.open("file", "rb+") as file:
            await file.write(b"ab", 4)
            await file.fsync()
            assert (rig.root / "file").read_bytes() == b"0123ab6789"
        async with client.open("file", "ab") as file:
            await file.write(b"end", 0)
        with pytest.raises(asyncssh.SFTPFailure):
            await client.open("file", "xb")
        await client.truncate("file", 6)
        async with client.open("file", "r") as text:
            assert await text.read(3, 3) == "3ab"

    asked(rig, work)
    assert (rig.root / "file").read_bytes() == b"0123ab"
    assert (rig.root / "file").stat().st_ino == number


def test_renaming(rig: SftpRig) -> None:
    for name in ("a", "b", "full/c"):
        (rig.root / name).parent.mkdir(exist_ok=True)
        (rig.root / name).write_text(name)
    (rig.root / "folder").mkdir()

    async def work(client: asyncssh.SFTPClient) -> None:
        with pytest.raises(asyncssh.SFTPFailure):
            await client.rename("a", "b")
        await client.posix_rename("a", "b")
        with pytest.raises(asyncssh.SFTPFailure):
            await client.posix_rename("folder", "full")
        with pytest.raises(asyncssh.SFTPFailure):
            await client.rmdir("full")
        with pytest.raises(asyncssh.SFTPFailure):
            await client.remove("folder")
        with pytest.raises(asyncssh.SFTPNoSuchFile):
            await client.stat("nothing")

    asked(rig, work)
    assert listed(rig.root) == ["b", "folder", "full"]
    assert (rig.root / "b").read_text() == "a"
    assert listed(rig.root / "full") == ["c"]


def test_a_user_who_is_removed_is_shut_out_at_once(rig: SftpRig) -> None:
    (rig.root / "file").write_text("x")

    async def work(client: asyncssh.SFTPClient) -> None:
        file = await client.open("file", "rb")
        rig.users.remove("phone")
        with pytest.raises((asyncssh.SFTPConnectionLost, asyncssh.DisconnectError)):
            await file.read()

    asked(rig, work)


def test_a_connection_has_so_many_files_open(rig: SftpRig) -> None:
    (rig.root / "file").write_text("x")

    async def work(client: asyncssh.SFTPClient) -> None:
        for _ in range(256):
            await client.open("file", "rb")
        with pytest.raises(asyncssh.SFTPFailure, match="Too many open files"):
            await client.open("file", "rb")

    asked(rig, work)


def test_strangers_make_room_and_those_who_have_logged_in_stay(tmp_path: Path) -> None:
    limits = DoorLimits(of_one=3, login_seconds=0)

    with running_sftp(tmp_path, doors=limits) as served:

        def stranger() -> socket.socket:
            return socket.create_connection(("127.0.0.1", served.port))

        async def work(client: asyncssh.SFTPClient) -> None:
            others = [stranger() for _ in range(6)]
            await client.mkdir("made")
            for one in others:
                one.close()

        silent = [stranger() for _ in range(3)]
        asked(served, work)
        for one in silent:
            one.close()
        assert listed(served.root) == ["made"]


def test_a_folder_that_becomes_a_link_in_that_moment_leads_nowhere(rig: SftpRig, tmp_path: Path) -> None:
    """Another program swaps a folder for a link and back, as fast as it can."""
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret").write_text("secret")
    (rig.root / "a").mkdir()
    (rig.root / "a" / "secret").write_text("known")
    (rig.root / "b").symlink_to(outside)
    over = threading.Event()
    swaps = [0]

    def swap() -> None:
        while not over.is_set():
            for one, other in (("a", "c"), ("b", "a"), ("a", "b"), ("c", "a")):
                (rig.root / one).rename(rig.root / other)
            swaps[0] += 1

    async def work(client: asyncssh.SFTPClient) -> None:
        read = 0
        while read < 100 or swaps[0] < 100:
            try:
                async with client.open("a/secret", "r") as file:
                    assert await file.read() == "known"
                read += 1
                async with client.open("a/new", "wb") as file:
                    await file.write(b"x")
                await client.chmod("a/secret", 0o640)
            except asyncssh.SFTPNoSuchFile:
                continue

    swapping = threading.Thread(target=swap)
    swapping.start()
    try:
        asked(rig, work)
    finally:
        over.set()
        swapping.join()
    assert listed(outside) == ["secret"]
    assert (outside / "secret").stat().st_mode & 0o777 != 0o640
