"""SFTP before a server, a mount and a daemon, over three folders as clouds."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import asyncssh
import pytest

from serving.users import Users
from tests.gateway.test_clients import written
from tests.serving.rig import SftpRig
from tests.serving.test_clients import ended, new_user
from tests.serving.test_sftp import asked, done, environment, options, sftp
from tests.system.device import Device
from tests.system.shell import tool

pytestmark = pytest.mark.skipif(not os.access("/dev/fuse", os.W_OK), reason="needs /dev/fuse")


def test_it_waits_for_the_mount_and_ends_quietly_while_somebody_is_connected(tmp_path: Path) -> None:
    with Device(tmp_path) as device:
        device.create(3).mount()
        (device.mountpoint / "file").write_text("x")
        password = new_user(device)
        process = device.start("serve", "sftp", device.volume, "--listen", "127.0.0.1:0", "--json")
        assert process.stdout is not None
        port = int(json.loads(process.stdout.readline())["urls"][0].rpartition(":")[2])
        rig = SftpRig(device.mountpoint, port, Users(tmp_path / "nobody"), password)
        source, back = written(tmp_path / "source", {"new": 3 << 20}), tmp_path / "back"
        done(rig, tmp_path, f"put {source / 'new'} new", f"get file {back}")
        assert (device.mountpoint / "new").read_bytes() == (source / "new").read_bytes()
        assert back.read_text() == "x"
        device.sync()
        assert "over SFTP, by phone" in device.run("log", str(device.mountpoint / "new"))
        assert "over SFTP" not in device.run("log", str(device.mountpoint / "file"))
        done(rig, tmp_path, "mkdir empty")
        device.sync()
        done(rig, tmp_path, "rename file renamed", "rm new", "rmdir empty")
        device.sync()
        for name, words in (
            ("renamed", "named: renamed"),
            ("new", "removed: new"),
            ("empty", "removed: empty"),
        ):
            last = device.run("log", str(device.mountpoint / name)).splitlines()[0]
            assert last.endswith(f"{words}; over SFTP, by phone")
        done(rig, tmp_path, "rename renamed file")
        [key] = tmp_path.rglob("ssh-host-key")
        assert key.stat().st_mode & 0o777 == 0o600
        client = subprocess.Popen(
            [tool("sftp"), *options("-P", port), "phone@127.0.0.1"],
            env=environment(tmp_path, password),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        assert client.stdin is not None
        assert client.stdout is not None
        client.stdin.write(b"pwd\n")
        client.stdin.flush()
        while b"Remote working directory: /" not in (line := client.stdout.readline()):
            assert line
        device.umount()
        assert sftp(rig, tmp_path, "mkdir folder").returncode != 0

        async def hear(client: asyncssh.SFTPClient) -> None:
            with pytest.raises(asyncssh.SFTPFailure, match="is not mounted"):
                await client.mkdir("folder")

        asked(rig, hear)
        device.mount()
        done(rig, tmp_path, "mkdir folder")
        assert (device.mountpoint / "folder").is_dir()
        errors = ended(process)
        assert "is not mounted" in errors
        assert "Traceback" not in errors
        client.communicate(timeout=60)
