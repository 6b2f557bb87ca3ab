"""The rclone that runs for the driver: one child, which nobody else is served by, and which ends."""

from __future__ import annotations

import os
import re
import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from uuid import uuid4

import pytest
import urllib3

from backends.body import Timing
from backends.errors import (
    AuthError,
    PermanentError,
    TransientError,
)
from backends.rclone import RcloneStore
from backends.rclone_client import RcloneClient
from backends.rclone_process import USER, NoRcloneError, Rclone, version
from tests.backends.faulty_server import Answer, AnsweringServer, Request
from tests.backends.network_conformance import every_operation
from tests.backends.rclone_remotes import Remotes
from tests.system.device import REPOSITORY


@pytest.fixture
def mine(remotes: Remotes) -> Iterator[Rclone]:
    """A child of a test's own."""
    rclone = Rclone()
    yield rclone
    rclone._end()


def children(rclone: Rclone) -> list[int]:
    """The process of rclone, and what waits for its end beside it."""
    shell = rclone._shell
    assert shell is not None
    return [int(one) for one in Path(f"/proc/{shell.pid}/task/{shell.pid}/children").read_text().split()]


def command_of(process: int) -> list[str]:
    return Path(f"/proc/{process}/cmdline").read_text().split("\0")


def program_of(rclone: Rclone) -> int:
    (found,) = [one for one in children(rclone) if Path(command_of(one)[0]).name == "rclone"]
    return found


def wait_for_the_end(process: int) -> None:
    try:
        watched = os.pidfd_open(process)
    except ProcessLookupError:
        return
    with open(watched, closefd=True):
        assert select.select([watched], [], [], 30)[0], "it lives on"


def test_all_clouds_share_one_child_that_starts_when_it_is_needed(mine: Rclone) -> None:
    clients = [RcloneClient("disk:", "/tmp", Timing(), mine), RcloneClient("memory:", "a", Timing(), mine)]
    assert mine._shell is None
    for client in clients:
        client.features()
    first = mine.endpoint()
    clients[0].size("missing")
    assert mine.endpoint() == first


def test_a_child_that_dies_is_started_again(mine: Rclone) -> None:
    client = RcloneClient("disk:", "/tmp", Timing(), mine)
    client.features()
    for _ in range(2):
        dead = program_of(mine)
        os.kill(dead, signal.SIGKILL)
        assert mine._shell is not None
        mine._shell.wait(30)
        client.features()
        assert program_of(mine) != dead


def test_what_is_under_way_when_the_child_dies_may_be_tried_again(remotes: Remotes, mine: Rclone) -> None:
    asked = threading.Event()

    def hold(request: Request) -> Answer:
        asked.set()
        return Answer(stall=True, declared=5)

    with AnsweringServer(hold) as slow, ThreadPoolExecutor(1) as pool:
        name = remotes.add(
            f"slow-{slow.port}", type="webdav", url=f"http://{slow.authority}/", vendor="other"
        )
        store = RcloneStore(f"rclone:{name}:folder", rclone=mine)
        under_way = pool.submit(store.get, "object", limit=5)
        assert asked.wait(30)
        os.kill(program_of(mine), signal.SIGKILL)
        with pytest.raises(TransientError, match="rclone ended"):
            under_way.result(30)
        assert slow.requests


def test_an_encrypted_configuration_without_its_password(
    remotes: Remotes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """rclone ends when it is asked for a remote, and says why."""
    (tmp_path / "config").write_text(
        "# Encrypted rclone configuration File\n\nRCLONE_ENCRYPT_V0:\n" + "A" * 80
    )
    monkeypatch.setenv("RCLONE_CONFIG", str(tmp_path / "config"))
    store = RcloneStore("rclone:disk:folder", rclone=Rclone())
    for operation in (*every_operation(store), store.initialise):
        with pytest.raises(AuthError, match="RCLONE_CONFIG_PASS"):
            operation()


def test_nothing_of_the_password_is_in_arguments_or_errors(mine: Rclone, remotes: Remotes) -> None:
    password = mine.endpoint().password
    for process in children(mine):
        assert password not in "".join(command_of(process))
    assert mine._shell is not None
    assert password not in "".join(command_of(mine._shell.pid))
    assert password not in repr(mine.endpoint())


def test_nobody_without_the_password_is_served(mine: Rclone) -> None:
    endpoint = mine.endpoint()
    for target in ("/operations/list", "/config/dump", "/core/quit", "/rc/noopauth"):
        answer = urllib3.request("POST", f"http://127.0.0.1:{endpoint.port}{target}")
        assert answer.status == 401
    assert urllib3.request("GET", f"http://127.0.0.1:{endpoint.port}/[disk:]etc/passwd").status == 401


_KILLED = """
import os, signal, sys
from backends.rclone_process import RCLONE
RCLONE.endpoint()
print(RCLONE._shell.pid, flush=True)
sys.stdin.read(1)
"""


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM, None])
def test_the_child_ends_with_this_process(remotes: Remotes, how: signal.Signals | None) -> None:
    """However this process ends: killed, or of its own accord."""
    with subprocess.Popen(
        [sys.executable, "-c", _KILLED], cwd=REPOSITORY, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        shell = int(process.stdout.readline())
        below = Path(f"/proc/{shell}/task/{shell}/children").read_text().split()
        assert len(below) == 2
        if how is None:
            process.stdin.write(b"x")
            process.stdin.close()
        else:
            process.send_signal(how)
        for one in [*map(int, below), shell]:
            wait_for_the_end(one)


def test_a_child_that_hangs_ends_too(mine: Rclone) -> None:
    mine.endpoint()
    hanging = program_of(mine)
    os.kill(hanging, signal.SIGSTOP)
    mine._end()
    wait_for_the_end(hanging)


@pytest.mark.parametrize("size", [100_000, 5_000_000])
def test_an_upload_that_breaks_off_stores_nothing(mine: Rclone, remotes: Remotes, size: int) -> None:
    """As when this process is killed in the midst of it: no half object has the name."""
    endpoint, folder = mine.endpoint(), uuid4().hex
    login = urllib3.make_headers(basic_auth=f"{USER}:{endpoint.password}")["authorization"]
    part = 'Content-Disposition: form-data; name="f"; filename="object"'
    head = (
        f"POST /operations/uploadfile?fs=memory:&remote={folder} HTTP/1.1\r\nHost: x\r\n"
        f"Authorization: {login}\r\nContent-Length: {size + 1000}\r\n"
        f"Content-Type: multipart/form-data; boundary=b\r\n\r\n--b\r\n{part}\r\n\r\n"
    )
    with socket.create_connection(("127.0.0.1", endpoint.port)) as connection:
        connection.sendall(head.encode() + bytes(size))
        connection.shutdown(socket.SHUT_WR)
        assert b" 500 " in connection.recv(1000)
    assert RcloneClient("memory:", folder, Timing(), mine).size("object") is None


def test_a_machine_without_rclone_says_what_to_install(
    remotes: Remotes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    store = RcloneStore("rclone:disk:folder", rclone=Rclone())
    for operation in (*every_operation(store), store.initialise):
        with pytest.raises(PermanentError, match=r"not installed.*apt install rclone.*rclone config"):
            operation()


def test_a_child_that_does_not_start_says_why(
    remotes: Remotes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake = tmp_path / "rclone"  # a fake: it ends at once
    fake.write_text("#!/bin/sh\necho 2026/11/29 10:00:00 CRITICAL: no such flag >&2\nexit 1\n")
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    with pytest.raises(NoRcloneError, match="CRITICAL: no such flag"):
        Rclone().endpoint()
    with pytest.raises(NoRcloneError, match="version"):
        version()


def test_rclone_tells_its_version(remotes: Remotes) -> None:
    assert re.fullmatch(r"rclone v\d+\.\d+.*", version())
