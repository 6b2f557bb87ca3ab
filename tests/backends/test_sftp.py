"""The SFTP driver: the contract, and what is particular to SFTP."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlsplit

import paramiko
import pytest

from backends.body import Timing
from backends.errors import AuthError, CorruptError, FullError, StoreError, TransientError
from backends.registry import open_heard, open_store
from backends.sftp import SftpStore
from backends.sftp_session import Files
from backends.store import Store
from tests.backends.conformance import Conformance
from tests.backends.faulty_server import Answer, AnsweringServer
from tests.backends.network_conformance import NetworkConformance
from tests.backends.servers import FixedCredentials, Server
from tests.system.small_disks import memory_disk, needs_root


class TestSftpStore(NetworkConformance, Conformance):
    """The contract holds."""

    @pytest.fixture
    def server(self, sftp_server: Server) -> Server:
        return sftp_server

    def open(self, url: str, secrets: Mapping[str, str], timing: Timing | None = None) -> Store:
        return SftpStore(url, FixedCredentials(secrets), timing)


@pytest.fixture
def url(sftp_server: Server) -> str:
    url = sftp_server.url()
    SftpStore(url, FixedCredentials(sftp_server.secrets)).initialise()
    return url


def known_hosts(url: str) -> Path:
    return Path(url.partition("known_hosts=")[2])


def test_an_unknown_host_is_refused(sftp_server: Server, url: str, tmp_path: Path) -> None:
    (tmp_path / "known_hosts").write_text("")
    other = url.replace(str(known_hosts(url)), str(tmp_path / "known_hosts"))
    with pytest.raises(AuthError, match=r"not known.*ssh"):
        SftpStore(other, FixedCredentials(sftp_server.secrets)).list("")


def test_another_machine_does_not_say_by_which_file_a_server_is_known(
    sftp_server: Server, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    with pytest.raises(AuthError, match=r"not known.*ssh"):
        open_heard(url, FixedCredentials(sftp_server.secrets)).list("")
    (tmp_path / ".ssh").mkdir()
    (tmp_path / ".ssh" / "known_hosts").write_text(known_hosts(url).read_text())
    open_heard(url, FixedCredentials(sftp_server.secrets)).list("")


def test_another_machine_names_no_file_with_a_key(
    sftp_server: Server, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    (tmp_path / ".ssh").mkdir()
    (tmp_path / ".ssh" / "known_hosts").write_text(known_hosts(url).read_text())
    with_key = f"{url}&key={known_hosts(url).parent / 'user_key'}"
    open_store(with_key).list("")
    with pytest.raises(StoreError, match="No authentication methods"):
        open_heard(with_key).list("")


def test_a_changed_host_key_is_refused(sftp_server: Server, url: str, tmp_path: Path) -> None:
    host = known_hosts(url).read_text().split()[0]
    stranger = (known_hosts(url).parent / "wrong_key.pub").read_text()
    (tmp_path / "known_hosts").write_text(f"{host} {stranger}")
    other = url.replace(str(known_hosts(url)), str(tmp_path / "known_hosts"))
    with pytest.raises(AuthError, match="in between"):
        SftpStore(other, FixedCredentials(sftp_server.secrets)).list("")


def test_a_key_that_cannot_be_read(url: str) -> None:
    with pytest.raises(AuthError, match="private_key"):
        SftpStore(url, FixedCredentials({"private_key": "nonsense"})).list("")


def test_what_is_being_written_is_not_listed_and_dead_writers_are_swept(
    sftp_server: Server, url: str
) -> None:
    spool = Path(url.partition("?")[0].partition("127.0.0.1")[2].partition("/")[2])
    spool = Path("/") / spool / ".hybrisfs"
    for name, age in (("old", 25 * 3600), ("young", 23 * 3600)):
        (spool / name).write_bytes(b"half")
        then = (spool / name).stat().st_mtime - age
        os.utime(spool / name, (then, then))
    store = SftpStore(url, FixedCredentials(sftp_server.secrets))
    store.put("object", b"")
    assert store.put_if_absent("object", b"") is False
    assert store.list("").names == ("object",)
    assert [path.name for path in spool.iterdir()] == ["young"]


def test_something_else_in_an_objects_place(sftp_server: Server, url: str) -> None:
    store = SftpStore(url, FixedCredentials(sftp_server.secrets))
    store.put("dir/object", b"data")
    with pytest.raises(CorruptError):
        store.get("dir", limit=100)
    with pytest.raises(StoreError):
        store.put("dir", b"")
    assert store.get("dir/object", limit=4) == b"data"


def test_a_server_that_talks_nonsense(sftp_server: Server) -> None:
    for banner in (b"HTTP/1.1 400 Bad\r\n\r\n", b"SSH-2.0-x\r\n" + b"\xff" * 100_000, b"x" * 1_000_000):
        with AnsweringServer(Answer()) as nonsense:
            nonsense.greeting = banner
            url = sftp_server.url(authority=nonsense.authority)
            store = SftpStore(url, FixedCredentials(sftp_server.secrets), Timing(connect=2, stall=1))
            with pytest.raises(StoreError):
                store.list("")


def test_no_packet_beyond_any_measure_is_taken() -> None:
    class Endless(paramiko.Channel):
        def recv(self, nbytes: int) -> bytes:
            return b"\xff" * nbytes

    files = Files.__new__(Files)
    files.sock = Endless(1)
    with pytest.raises(paramiko.SFTPError, match="packet"):
        files._read_all(1 << 31)
    assert files._read_all(4) == b"\xff" * 4


@needs_root
@pytest.mark.parametrize(("mebibytes", "expected"), [(1, FullError), (8, TransientError)])
def test_a_full_disk_is_told(sftp_server: Server, mebibytes: int, expected: type[StoreError]) -> None:
    """The protocol has no code for it: OpenSSH says "Failure", as of much else."""
    url = sftp_server.url()
    store = SftpStore(url, FixedCredentials(sftp_server.secrets))
    with memory_disk(Path(urlsplit(url).path), mebibytes):
        store.initialise()
        store.put("dir/object", b"data")
        with pytest.raises(expected, match="Failure"):
            store.put("dir", b"data")  # a folder is in its place; of little room that is told first
        if mebibytes == 1:
            with pytest.raises(FullError):
                store.put("large", bytes(2 << 20))
        assert store.list("").names == ("dir/object",)
        store.close()


def test_the_room_that_is_left_is_understood(sftp_server: Server, url: str) -> None:
    store = SftpStore(url, FixedCredentials(sftp_server.secrets))
    with store._calling("test", "") as files:
        told = files.free_bytes("/")
    status = os.statvfs("/")
    assert told == pytest.approx(status.f_frsize * status.f_bavail, rel=0.2)
