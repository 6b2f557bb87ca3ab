"""All machines are lost; the clouds and a passphrase bring the folder back, by the command line alone."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

from tests.system.clouds import away
from tests.system.conftest import MakeDevice
from tests.system.deadline import until
from tests.system.device import REPOSITORY, Device
from tests.system.pairing import all_sound, names
from tests.system.trees import Entry, make_tree, snapshot

SOURCES = REPOSITORY / "packaging"


def _secret(device: Device, passphrase: str) -> str:
    path = device.root / "passphrase"
    path.write_text(passphrase)
    return str(path)


def _recover(
    device: Device, clouds: list[Path], passphrase: str, *options: str
) -> subprocess.CompletedProcess[str]:
    urls = [word for cloud in clouds for word in ("--cloud", cloud.as_uri())]
    return device.attempt("recover", *urls, "--passphrase-file", _secret(device, passphrase), *options)


def _lose(device: Device) -> None:
    device.kill()
    device.close()
    shutil.rmtree(device.home)


def test_home_is_deleted_and_everything_comes_back(make_device: MakeDevice, tmp_path: Path) -> None:
    old = make_device("old").create(3).mount()
    made = json.loads(old.run("recovery", "make", "--page", str(tmp_path / "kit.html"), "--json"))
    passphrase = made["passphrase"]
    assert passphrase not in (tmp_path / "kit.html").read_text()
    make_tree(old.mountpoint / "tree", seed=7, files=60)
    shutil.copytree(SOURCES, old.mountpoint / "sources")
    old.sync()
    until(lambda: old.attempt("recovery", "show").returncode == 0, "the kit to be on all clouds")
    tree = snapshot(old.mountpoint)
    for kept in (old.home / "state" / "daemon.log", *(old.home / "config").rglob("*.json")):
        assert passphrase not in kept.read_text()
    _lose(old)

    new = make_device("new")
    with away(old.clouds[0]):
        done = _recover(new, old.clouds[1:], passphrase, "--name", "phoenix", "--json")
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout)["missing"] == [old.clouds[0].as_uri()]
        new.clouds = old.clouds
        new.mount()
        until(lambda: _snapshot(new.mountpoint) == tree, "everything to be back")
        assert _differences(SOURCES, new.mountpoint / "sources") == ""
    (new.mountpoint / "written afterwards").write_text("by the new machine")
    new.sync()
    assert "phoenix" in names(new)
    until(lambda: new.bad_clouds() == set(), "the cloud to be used again")
    until(
        lambda: json.loads(new.attempt("recovery", "show", "--json").stdout)["kits"][0]["used"],
        "its use to show",
    )
    all_sound([new])


def _snapshot(folder: Path) -> dict[bytes, Entry] | None:
    try:
        return snapshot(folder)
    except (FileNotFoundError, NotADirectoryError):  # changed while it was read
        return None


def _differences(expected: Path, found: Path) -> str:
    """What `diff -r` says, and what it could not read."""
    done = subprocess.run(
        ["diff", "-r", str(expected), str(found)], capture_output=True, text=True, check=False
    )
    return done.stdout + done.stderr
