"""hybrisfs versions id and diff on a mount: what the daemon says is what programs read."""

from __future__ import annotations

import os
from pathlib import Path

from hybrisfs.content_ids import DiskTree, content_id
from tests.system.device import Device
from tests.system.shell import run
from tests.system.trees import make_tree


def identify(device: Device, path: Path) -> str:
    return device.run("versions", "id", str(path)).strip()


def differing(device: Device, first: Path, second: Path) -> list[str]:
    """What the command lists, which says by its exit code that something differs."""
    done = device.attempt("versions", "diff", str(first), str(second))
    assert done.returncode == 1, done.stderr
    return str(done.stdout).split()


def read(path: Path) -> str:
    """The ID of what a program reads there."""
    tree = DiskTree.read(os.fsencode(path), lambda read: None)
    return content_id(tree.kind, tree.digest)


def test_the_id_is_that_of_what_programs_read(shared_device: Device, folder: Path, tmp_path: Path) -> None:
    tree = folder / "tree"
    make_tree(tree, seed=3, files=100)
    (tree / "program").write_text("#!/bin/sh\n")
    (tree / "program").chmod(0o755)
    (tree / "to a program").symlink_to("program")
    os.mkfifo(tree / "pipe")
    (tree / os.fsdecode(b"bytes \xff\xfe")).touch()
    with (tree / "sparse").open("wb") as file:
        file.seek(5 << 20)
        file.write(b"end")
    before = identify(shared_device, tree)
    assert before == read(tree)
    shared_device.sync()
    run("cp", "-a", tree, folder / "copy")
    assert identify(shared_device, folder / "copy") == before
    assert shared_device.run("versions", "diff", str(tree), str(folder / "copy")).startswith("They are equal")
    with (folder / "copy/sparse").open("r+b") as file:
        file.write(b"other")
    (folder / "copy/program").chmod(0o644)
    (folder / "copy/pipe").unlink()
    assert differing(shared_device, tree, folder / "copy") == [
        "removed",
        "pipe",
        "changed",
        "program",
        "changed",
        "sparse",
    ]
    assert identify(shared_device, folder / "copy") == read(folder / "copy")


def test_a_copy_on_another_disk_is_compared(shared_device: Device, folder: Path, tmp_path: Path) -> None:
    make_tree(folder / "tree", seed=4, files=30)
    run("cp", "-a", folder / "tree", tmp_path / "copy")
    assert "equal" in shared_device.run("versions", "diff", str(folder / "tree"), str(tmp_path / "copy"))
    (tmp_path / "copy/new").touch()
    assert differing(shared_device, folder / "tree", tmp_path / "copy") == ["added", "new"]
    identity = identify(shared_device, folder / "tree")
    assert shared_device.attempt("versions", "verify", identity, str(tmp_path / "copy")).returncode == 1
