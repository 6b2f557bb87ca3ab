"""Content on demand: two machines over one volume, the second of which holds what it needs."""

from __future__ import annotations

import errno
import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.system.clouds import away
from tests.system.deadline import until
from tests.system.device import Device, is_mounted
from tests.system.pairing import pair
from tests.system.trees import make_tree, snapshot

FILMS = ("first film", "second film", "third film", "last film")
SIZE = 8 << 20


@pytest.fixture(scope="module")
def maker(shared_device: Device) -> Device:
    """The device that makes everything. It is off while the other is tried: only clouds give that content."""
    make_tree(shared_device.mountpoint / "tree", seed=8, files=60)
    for name in FILMS:
        (shared_device.mountpoint / name).write_bytes(os.urandom(SIZE))
    return shared_device


@pytest.fixture(scope="module")
def reader(maker: Device, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Device]:
    """A device that knows all names and holds no content."""
    root = tmp_path_factory.mktemp("reader")
    with Device(root) as device:
        pair(maker, device, "reader")
        maker.sync()
        device.mount()
        until(lambda: (device.mountpoint / FILMS[-1]).exists(), "the names to arrive")
        maker.stop()
        yield device
    if not is_mounted(device.mountpoint):
        shutil.rmtree(root, ignore_errors=True)


def state(path: Path) -> str:
    return os.getxattr(path, "user.hybrisfs.state").decode()


def pinned(path: Path) -> str:
    return os.getxattr(path, "user.hybrisfs.pinned").decode()


def commit(path: Path) -> None:
    """Have all that the device knows so far outlive its daemon."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def test_what_is_pinned_is_here_without_any_cloud(maker: Device, reader: Device) -> None:
    tree, film = reader.mountpoint / "tree", reader.mountpoint / FILMS[0]
    assert state(film) == "cloud-only"
    assert pinned(tree) == "no"
    facts = json.loads(reader.run("pin", "--wait", "--timeout", "60", "--json", str(tree)))
    assert facts["done"] is True
    assert facts["paths"][0]["files"] > 0
    reader.cache_drop()
    reader.remount()
    assert pinned(tree) == "yes"
    assert pinned(next(path for path in tree.iterdir() if path.is_dir())) == "inherited"
    with away(*reader.clouds):
        before = snapshot(tree)
        with pytest.raises(OSError, match=os.strerror(errno.EIO)):
            film.read_bytes()
    assert state(film) == "cloud-only"
    maker.mount()
    assert snapshot(maker.mountpoint / "tree") == before

    (maker.mountpoint / "tree" / "later").write_bytes(b"later" * 10_000)
    later = tree / "later"
    until(later.exists, "what came later to arrive")
    maker.sync()
    until(lambda: state(later) == "durable", "it to be fetched")
    commit(later)  # a kill may take what was fetched a moment ago
    maker.stop()
    reader.kill()
    reader.mount()
    with away(*reader.clouds):
        assert later.read_bytes() == b"later" * 10_000
    reader.run("unpin", str(tree))
    freed = json.loads(reader.run("evict", "--json", str(tree)))["paths"][0]
    assert freed["freed_bytes"] > 0
    assert freed["pinned_bytes"] == freed["pending_bytes"] == 0
    assert state(later) == "cloud-only"
    assert later.read_bytes() == b"later" * 10_000
    assert reader.fsck().returncode == 0


def test_the_state_of_a_file_and_who_may_change_it(reader: Device) -> None:
    film = reader.mountpoint / FILMS[1]
    assert len(film.read_bytes()) == SIZE
    assert state(film) == "durable"
    assert os.listxattr(film) == []
    with pytest.raises(PermissionError):
        os.setxattr(film, "user.hybrisfs.state", b"durable")
    with pytest.raises(PermissionError):
        os.removexattr(film, "user.hybrisfs.pinned")
    copy = reader.root / "copy"
    subprocess.run(["cp", "-a", film, copy], check=True)
    assert os.listxattr(copy) == []
    new = reader.mountpoint / "new"
    with new.open("wb") as file:
        file.write(b"new")
        file.flush()
        assert state(new) == "local"
    until(lambda: state(new) in ("uploading", "durable"), "the kernel to tell that it is closed")
    reader.sync()
    assert state(new) == "durable"
    with away(*reader.clouds):
        new.write_bytes(b"newer")
        until(lambda: state(new) == "local", "the clouds to be missed")
    with pytest.raises(OSError, match=os.strerror(errno.ENODATA)):
        state(reader.mountpoint / "tree")


def test_indexers_read_what_is_here_and_pull_nothing(reader: Device) -> None:
    film = reader.mountpoint / FILMS[2]
    indexer = reader.root / "tumblerd"
    shutil.copy(shutil.which("cat") or "", indexer)
    refused = subprocess.run([indexer, film], capture_output=True, check=False)
    assert refused.returncode != 0
    assert os.strerror(errno.EPERM).encode() in refused.stderr
    assert refused.stdout == b""
    assert state(film) == "cloud-only"
    assert len(film.read_bytes()) == SIZE
    assert len(subprocess.run([indexer, film], capture_output=True, check=True).stdout) == SIZE
    indexed = reader.mountpoint / "indexed"
    subprocess.run([indexer, film], stdout=indexed.open("wb"), check=True)
    assert indexed.stat().st_size == SIZE


def test_a_path_through_a_symbolic_link_and_one_elsewhere(reader: Device) -> None:
    link = reader.root / "link"
    link.symlink_to(reader.mountpoint)
    reader.run("pin", "--wait", str(link / FILMS[3]))
    assert pinned(reader.mountpoint / FILMS[3]) == "yes"
    done = reader.attempt("pin", str(reader.root))
    assert done.returncode == 1
    assert "is in no mounted volume" in done.stderr
    listed = json.loads(reader.run("pin", "--json"))["pins"]
    assert [one["path"] for one in listed] == [str(reader.mountpoint / FILMS[3])]
