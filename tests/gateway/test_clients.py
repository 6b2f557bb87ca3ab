"""The programs that people use, before a gateway and a daemon of their own, over three folders as clouds."""

from __future__ import annotations

import json
import os
import shutil
import signal
import stat
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

import pytest
from botocore.exceptions import ClientError

from gateway.signature import AccessKey
from tests.gateway.rig import boto
from tests.system.clouds import away
from tests.system.deadline import until
from tests.system.device import Device
from tests.system.shell import tool

PIECE = 64 << 20


class Served(NamedTuple):
    """A device whose volume is served."""

    device: Device
    process: subprocess.Popen[str]
    url: str
    key: AccessKey

    def environment(self) -> dict[str, str]:
        """Of a client; nothing of the user's own."""
        ours = {name: one for name, one in os.environ.items() if not name.startswith(("AWS_", "RCLONE_"))}
        return {**ours, "AWS_ACCESS_KEY_ID": self.key.id, "AWS_SECRET_ACCESS_KEY": self.key.secret}


def start(device: Device) -> tuple[subprocess.Popen[str], str]:
    process = device.start("serve", "s3", device.volume, "--listen", "127.0.0.1:0", "--json")
    assert process.stdout is not None
    return process, json.loads(process.stdout.readline())["url"]


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with ExitStack() as stack:
        device = stack.enter_context(Device(tmp_path_factory.mktemp("gateway")))
        device.create(3)
        shown = json.loads(device.run("serve", "s3", device.volume, "--show-keys", "--json"))
        process, url = start(device)
        yield Served(device, process, url, AccessKey(shown["access_key_id"], shown["secret_access_key"]))
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=60)
        assert process.returncode == 0
        assert "Traceback" not in errors


def test_it_ends_quietly_the_moment_its_address_is_shown(served: Served) -> None:
    device = Device(served.device.root / "another")
    with device:
        device.create(3)
        process, _ = start(device)
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=60)
    assert (process.returncode, errors.strip()) == (0, "")


def written(folder: Path, sizes: dict[str, int]) -> Path:
    for name, size in sizes.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(os.urandom(size))
    return folder


def content(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_rclone(served: Served, tmp_path: Path) -> None:
    remote = {
        "TYPE": "s3",
        "PROVIDER": "Other",
        "ENV_AUTH": "true",
        "ENDPOINT": served.url,
        "UPLOAD_CUTOFF": "6Mi",
        "CHUNK_SIZE": "5Mi",
    }
    environment = served.environment() | {f"RCLONE_CONFIG_HFS_{name}": one for name, one in remote.items()}

    def rclone(*words: str) -> bytes:
        done = subprocess.run(
            [tool("rclone"), "--config", "", "--retries", "1", *words],
            env=environment,
            capture_output=True,
            timeout=120,
        )
        assert done.returncode == 0, done.stderr.decode()
        return done.stdout

    source = written(tmp_path / "source", {"a": 10, "b c/ü+%": 100_000, "large": 12 << 20, "empty": 0})
    rclone("sync", str(source), "hfs:rclone/x")
    rclone("check", "--download", str(source), "hfs:rclone/x")
    rclone("moveto", "hfs:rclone/x/large", "hfs:rclone/y/moved")
    large = (source / "large").read_bytes()
    assert (
        rclone("cat", "hfs:rclone/y/moved", "--offset", "6000000", "--count", "99") == large[6_000_000:][:99]
    )
    (source / "a").write_bytes(b"changed")
    (source / "large").unlink()
    rclone("sync", str(source), "hfs:rclone/x")
    found = rclone("lsf", "-R", "--files-only", "hfs:rclone").decode().splitlines()
    assert sorted(found) == ["x/a", "x/b c/ü+%", "x/empty", "y/moved"]
    rclone("purge", "hfs:rclone")


def test_restic(served: Served, tmp_path: Path) -> None:
    environment = served.environment() | {"RESTIC_PASSWORD": "x", "RESTIC_CACHE_DIR": str(tmp_path / "cache")}

    def restic(*words: str) -> None:
        command = [tool("restic"), "-q", "-r", f"s3:{served.url}/restic", *words]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stderr

    source = written(tmp_path / "source", {f"{number}/{number}": number * 3000 for number in range(50)})
    restic("init")
    restic("backup", str(source))
    before = content(source)
    shutil.rmtree(source / "7")
    written(source, {"new": 20_000})
    restic("backup", str(source))
    with away(served.device.clouds[1]):
        restic("restore", "latest", "--target", str(tmp_path / "target"))
    assert content(tmp_path / "target" / source.relative_to("/")) == content(source) != before
    restic("forget", "--keep-last", "1", "--prune")
    restic("check", "--read-data")


def test_an_object_larger_than_a_value(served: Served, tmp_path: Path) -> None:
    s3, device = boto(served.url, served.key), served.device
    s3.create_bucket(Bucket="large")
    body = os.urandom(PIECE + 1)
    s3.put_object(Bucket="large", Key="a", Body=body)
    assert s3.get_object(Bucket="large", Key="a")["Body"].read() == body
    [found] = s3.list_objects_v2(Bucket="large")["Contents"]
    assert found["Size"] == len(body)
    done = device.attempt("kv", "get", device.volume, "large/a", str(tmp_path / "target"))
    assert (done.returncode, "is an object in parts" in done.stderr) == (2, True)
    s3.delete_object(Bucket="large", Key="a")
    until(
        lambda: "no such keys" in device.run("kv", "list", device.volume, "large"), "the parts to be deleted"
    )
    s3.delete_bucket(Bucket="large")


def test_a_daemon_that_ends_meanwhile(served: Served) -> None:
    s3, device = boto(served.url, served.key), served.device
    s3.create_bucket(Bucket="restart")
    s3.put_object(Bucket="restart", Key="a", Body=b"x")
    device.run("daemon", "--stop")
    for _ in range(2):
        with pytest.raises(ClientError) as caught:
            s3.get_object(Bucket="restart", Key="a")
        answer = caught.value.response
        assert answer["Error"]["Code"] == "ServiceUnavailable"
        assert answer["ResponseMetadata"]["HTTPStatusCode"] == 503
    device.run("status")
    device.run("kv", "list", device.volume, "restart")
    assert s3.get_object(Bucket="restart", Key="a")["Body"].read() == b"x"


def test_clouds_that_are_away(served: Served) -> None:
    s3 = boto(served.url, served.key)
    s3.create_bucket(Bucket="away")
    with away(*served.device.clouds[1:]), pytest.raises(ClientError, match="ServiceUnavailable"):
        s3.put_object(Bucket="away", Key="a", Body=b"x")
    s3.put_object(Bucket="away", Key="a", Body=b"x")


def test_one_gateway_is_enough(served: Served) -> None:
    device = served.device
    done = device.attempt("serve", "s3", device.volume, "--listen", "127.0.0.1:0")
    assert (done.returncode, "vol is served already" in done.stderr) == (1, True)
    port = served.url.rpartition(":")[2]
    assert device.attempt("serve", "s3", "nonsense").returncode == 4
    assert device.attempt("serve", "s3", device.volume, "--listen", port).returncode == 2


def test_the_key_is_for_this_user_only(served: Served) -> None:
    [path] = (served.device.home / "config" / "s3-keys").iterdir()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    shown = served.device.run("serve", "s3", served.device.volume, "--show-keys")
    assert shown == f"Access key: {served.key.id}\nSecret:     {served.key.secret}\n"
    assert served.key.secret not in (served.device.home / "state" / "daemon.log").read_text()
