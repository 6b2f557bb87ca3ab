"""The programs that people use, before a server, a mount and a daemon, over three folders as clouds."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.gateway.test_clients import content, written
from tests.serving.rig import listed
from tests.system.deadline import until
from tests.system.device import Device, is_mounted
from tests.system.shell import tool

pytestmark = pytest.mark.skipif(not os.access("/dev/fuse", os.W_OK), reason="needs /dev/fuse")


class Served(NamedTuple):
    """A device whose volume is served."""

    device: Device
    process: subprocess.Popen[str]
    url: str
    certificate: str
    password: str

    def at(self, *path: str) -> Path:
        """A path in the mounted volume."""
        return self.device.mountpoint.joinpath(*path)

    def curl(self, path: str, *words: str) -> bytes:
        """What curl prints; it has to succeed."""
        login = ["--cacert", self.certificate, "--user", f"phone:{self.password}"]
        command = [tool("curl"), "-sS", "--fail", *login, *words, self.url + path]
        return subprocess.run(command, check=True, capture_output=True, timeout=120).stdout


def start(device: Device, *words: str) -> tuple[subprocess.Popen[str], dict[str, Any]]:
    process = device.start("serve", "webdav", device.volume, "--listen", "127.0.0.1:0", "--json", *words)
    assert process.stdout is not None
    return process, json.loads(process.stdout.readline())


def ended(process: subprocess.Popen[str]) -> str:
    """End a server as Ctrl-C does; returns what it had to say."""
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 0
    return errors.strip()


def new_user(device: Device, name: str = "phone") -> str:
    return str(json.loads(device.run("serve", "user", "add", device.volume, name, "--json"))["password"])


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with ExitStack() as stack:
        device = stack.enter_context(Device(tmp_path_factory.mktemp("served")))
        device.create(3).mount()
        password = new_user(device)
        process, said = start(device)
        yield Served(device, process, said["urls"][0], said["certificate"], password)
        assert ended(process) == ""


def test_curl(served: Served, tmp_path: Path) -> None:
    source = written(tmp_path / "source", {"file": 5 << 20})
    served.curl("/file", "--upload-file", str(source / "file"))
    assert served.at("file").read_bytes() == (source / "file").read_bytes()
    assert served.curl("/file") == (source / "file").read_bytes()
    assert served.curl("/file", "--range", "1000-1999") == (source / "file").read_bytes()[1000:2000]


def test_it_is_written_by_this_machine_and_has_versions(served: Served, tmp_path: Path) -> None:
    source = written(tmp_path / "source", {"one": 100, "two": 200})
    served.curl("/kept", "--upload-file", str(source / "one"))
    served.device.run("label", "add", "blue", str(served.at("kept")))
    served.device.sync()
    served.curl("/kept", "--upload-file", str(source / "two"))
    served.device.sync()
    found = json.loads(served.device.run("versions", "list", str(served.at("kept")), "--json"))["versions"]
    assert [one["size"] for one in found] == [200, 100]
    assert "blue" in served.device.run("label", "list", str(served.at("kept")))
    assert served.device.run("log", str(served.at("kept"))).count("over WebDAV, by phone") == 2
    served.at("kept").write_text("by a program of this machine")
    served.device.sync()
    assert served.device.run("log", str(served.at("kept"))).count("over WebDAV, by phone") == 2
    assert "user.hybrisfs.via" not in os.listxattr(served.at("kept"))
    served.curl("/made/", "--request", "MKCOL")
    served.device.sync()
    assert "over WebDAV, by phone" in served.device.run("log", str(served.at("made")))


def test_the_log_names_who_renamed_copied_and_removed(served: Served) -> None:
    for name in ("renamed", "copied", "removed", "removed-here"):
        served.at(name).write_text(name)
    (served.at("within") / "folder").mkdir(parents=True)
    (served.at("within") / "folder" / "file").write_text("x")
    served.device.sync()
    served.at("removed-here").unlink()
    served.device.sync()
    for method in ("MOVE", "COPY"):
        name = {"MOVE": "renamed", "COPY": "copied"}[method]
        destination = f"{served.url}/{name}-then"
        served.curl(f"/{name}", "--request", method, "--header", f"Destination: {destination}")
    served.curl("/removed", "--request", "DELETE")
    served.curl("/within/folder/", "--request", "DELETE")
    served.device.sync()

    def last(*names: str) -> str:
        return served.device.run("log", str(served.at(*names))).splitlines()[0]

    assert last("renamed-then").endswith("named: renamed-then; over WebDAV, by phone")
    assert "over WebDAV, by phone" in last("copied-then")
    assert last("removed").endswith("removed: removed; over WebDAV, by phone")
    assert last("within", "folder").endswith("removed: within/folder; over WebDAV, by phone")
    assert last("within", "folder", "file").endswith("removed: within/folder/file; over WebDAV, by phone")
    assert last("within").endswith("  something in it removed over WebDAV, by phone")
    assert last("removed-here").endswith("removed: removed-here")


def test_rclone(served: Served, tmp_path: Path) -> None:
    hidden = subprocess.run(
        [tool("rclone"), "obscure", "-"], input=served.password, capture_output=True, text=True, check=True
    )
    remote = {
        "TYPE": "webdav",
        "URL": served.url,
        "USER": "phone",
        "PASS": hidden.stdout.strip(),
        "VENDOR": "owncloud",
    }
    ours = {name: one for name, one in os.environ.items() if not name.startswith("RCLONE_")}
    environment = ours | {f"RCLONE_CONFIG_HFS_{name}": one for name, one in remote.items()}

    def rclone(*words: str) -> bytes:
        done = subprocess.run(
            [tool("rclone"), "--config", "", "--ca-cert", served.certificate, "--retries", "1", *words],
            env=environment,
            capture_output=True,
            timeout=120,
        )
        assert done.returncode == 0, done.stderr.decode()
        return done.stdout

    names = {f"many/{number} ü?;#%": number * 100 for number in range(40)}
    source = written(
        tmp_path / "source", {"a": 10, "b c/ü+%": 100_000, "large": 12 << 20, "empty": 0, **names}
    )
    os.utime(source / "a", (0, 1_000_000_000))
    rclone("sync", str(source), "hfs:backup")
    assert content(served.at("backup")) == content(source)
    assert served.at("backup", "a").stat().st_mtime == 1_000_000_000
    rclone("check", "--download", str(source), "hfs:backup")
    rclone("moveto", "hfs:backup/large", "hfs:backup/moved?x")
    rclone("copyto", "hfs:backup/a", "hfs:backup/a2")
    assert served.at("backup", "moved?x").read_bytes() == (source / "large").read_bytes()
    assert served.at("backup", "a2").read_bytes() == (source / "a").read_bytes()
    shutil.rmtree(source / "many")
    rclone("sync", str(source), "hfs:backup")
    assert content(served.at("backup")) == content(source)
    rclone("purge", "hfs:backup")
    assert not served.at("backup").exists()


def test_cadaver(tmp_path: Path) -> None:
    """It asks a person whether to trust a certificate, so it is served without."""
    with Device(tmp_path) as device:
        device.create(3).mount()
        password = new_user(device)
        process, said = start(device, "--plain")
        source = written(tmp_path / "source", {"file": 100_000})
        home = tmp_path / "cadaver"
        home.mkdir()
        (home / ".netrc").write_text(f"machine 127.0.0.1 login phone password {password}\n")
        (home / ".netrc").chmod(0o600)
        orders = [
            "mkcol folder",
            f"put {source / 'file'} folder/file",
            "lock folder/file",
            f"put {source / 'file'} folder/file",
            "unlock folder/file",
            "copy folder/file folder/copy",
            "move folder/file folder/moved",
            "delete folder/copy",
            f"get folder/moved {tmp_path / 'back'}",
            "ls folder",
            "quit",
        ]
        done = subprocess.run(
            [tool("cadaver"), said["urls"][0]],
            input="\n".join(orders) + "\n",
            env={**os.environ, "HOME": str(home)},
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert "failed" not in done.stdout, done.stdout
        assert (tmp_path / "back").read_bytes() == (source / "file").read_bytes()
        assert listed(device.mountpoint / "folder") == ["moved"]
        assert ended(process) == ""


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


@pytest.mark.skipif(os.geteuid() != 0, reason="mounts as root")
def test_davfs2(served: Served, tmp_path: Path, stack: ExitStack) -> None:
    mount, umount = tool("mount.davfs"), tool("umount")
    secrets, settings, point = tmp_path / "secrets", tmp_path / "settings", tmp_path / "davfs"
    cache = Path(stack.enter_context(tempfile.TemporaryDirectory(dir="/var/tmp")))
    cache.chmod(0o755)  # it gives up root, and reads the certificate then
    certificate = Path(shutil.copy(served.certificate, cache / "certificate.pem"))
    certificate.chmod(0o644)
    point.mkdir()
    secrets.write_text(f'"{served.url}" phone "{served.password}"\n')
    # With the usual size, davfs2 before 1.7.2 lists nothing under Linux 6.16, whatever the server.
    settings.write_text(f"secrets {secrets}\ntrust_server_cert {certificate}\ndelay_upload 0\nbuf_size 64\n")
    for one in (secrets, settings):
        one.chmod(0o600)
    done = subprocess.run(
        [mount, served.url, str(point), "-o", f"conf={settings}"],
        capture_output=True,
        text=True,
        timeout=60,
        stdin=subprocess.DEVNULL,
    )
    assert done.returncode == 0, done.stderr
    try:
        source = written(tmp_path / "source", {"one": 1000, "two": 300_000})
        (point / "dav").mkdir()
        for name in ("one", "two"):
            shutil.copy(source / name, point / "dav" / name)
        (point / "dav" / "one").rename(point / "dav" / "three")
        until(lambda: served.at("dav", "three").exists(), "the file to have its new name")
        assert listed(point / "dav") == ["three", "two"]
    finally:
        subprocess.run([umount, str(point)], check=True, capture_output=True, timeout=60)
    assert not is_mounted(point)
    assert served.at("dav", "three").read_bytes() == (source / "one").read_bytes()
    assert served.at("dav", "two").read_bytes() == (source / "two").read_bytes()


def test_a_folder_for_reading_only_and_nothing_beside_it(tmp_path: Path) -> None:
    with Device(tmp_path) as device:
        device.create(3).mount()
        films = device.mountpoint / "Films"
        films.mkdir()
        (films / "one").write_text("one")
        (films / "out").symlink_to(device.mountpoint)
        (device.mountpoint / "secret").write_text("secret")
        password = new_user(device)
        process, said = start(device, "--folder", "Films", "--read-only")
        served = Served(device, process, said["urls"][0], said["certificate"], password)
        assert served.curl("/one") == b"one"
        for path in ("/out/secret", "/../secret", "/..%2fsecret", "/.hybrisfs"):
            with pytest.raises(subprocess.CalledProcessError):
                served.curl(path, "--path-as-is")
        with pytest.raises(subprocess.CalledProcessError):
            served.curl("/new", "--upload-file", __file__)
        assert ended(process) == ""


def test_what_a_server_that_dies_was_given_is_gone_with_the_next(tmp_path: Path) -> None:
    with Device(tmp_path) as device:
        device.create(3).mount()
        password = new_user(device)
        process, said = start(device)
        login = ["--cacert", said["certificate"], "--user", f"phone:{password}"]
        upload = subprocess.Popen(
            [tool("curl"), "-sS", *login, "--upload-file", "-", f"{said['urls'][0]}/file"],
            stdin=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        assert upload.stdin is not None
        upload.stdin.write(b"x" * (1 << 20))
        upload.stdin.flush()
        until(lambda: len(listed(device.mountpoint)) == 1, "the upload to begin")
        process.kill()
        process.communicate(timeout=60)
        upload.kill()
        upload.communicate(timeout=60)
        assert len(listed(device.mountpoint)) == 1
        process, _ = start(device)
        assert listed(device.mountpoint) == []
        assert ended(process) == ""


def test_it_ends_quietly_in_the_midst_of_requests(tmp_path: Path) -> None:
    with Device(tmp_path) as device:
        device.create(3).mount()
        (device.mountpoint / "large").write_bytes(b"x" * (64 << 20))
        password = new_user(device)
        process, said = start(device)
        login = ["--cacert", said["certificate"], "--user", f"phone:{password}"]
        curl = [tool("curl"), "-sS", *login]
        url = said["urls"][0]
        with (
            subprocess.Popen(
                [*curl, "--upload-file", "-", f"{url}/file"], stdin=subprocess.PIPE, stderr=subprocess.DEVNULL
            ) as upload,
            subprocess.Popen(
                [*curl, f"{url}/large"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
            ) as download,
        ):
            assert upload.stdin is not None
            assert download.stdout is not None
            upload.stdin.write(b"x" * (1 << 20))
            upload.stdin.flush()
            assert download.stdout.read(1000)
            until(lambda: len(listed(device.mountpoint)) == 2, "the upload to begin")
            assert ended(process) == ""
            upload.kill()
            download.kill()
        assert listed(device.mountpoint) == ["large"]


def test_it_waits_for_the_mount_and_keeps_nobody_from_unmounting(tmp_path: Path) -> None:
    with Device(tmp_path) as device:
        device.create(3).mount()
        (device.mountpoint / "file").write_text("x")
        password = new_user(device)
        process, said = start(device)
        served = Served(device, process, said["urls"][0], said["certificate"], password)
        assert served.curl("/file") == b"x"
        device.umount()
        with pytest.raises(subprocess.CalledProcessError) as failed:
            served.curl("/file")
        assert b"503" in failed.value.stderr
        device.mount()
        assert served.curl("/file") == b"x"
        assert "is not mounted" in ended(process)
