"""Three devices, each with a network of its own, that lose and regain each other and their clouds."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest

from tests.system.clouds import away
from tests.system.deadline import until
from tests.system.group import Group
from tests.system.pairing import same_trees
from tests.system.trees import make_tree, snapshot


@pytest.fixture(autouse=True)
def _in_order(group: Group) -> Iterator[None]:
    """After every test the three devices must agree."""
    yield
    same_trees(group.devices)


def _contents(folder: Path) -> list[str]:
    """What is in the files directly in the folder, whatever they are called."""
    return sorted(path.read_text() for path in folder.iterdir() if path.is_file())


def test_what_one_writes_all_have(group: Group) -> None:
    make_tree(group.a.mountpoint / "tree", seed=11, files=40)
    same_trees(group.devices)
    assert len(snapshot(group.c.mountpoint / "tree")) > 40


def test_clouds_down_the_devices_keep_each_other_in_step(group: Group) -> None:
    with away(*group.clouds):
        make_tree(group.a.mountpoint / "direct", seed=12, files=40)
        until(lambda: (group.b.mountpoint / "direct" / "link").is_symlink(), "the tree to arrive")
        (group.b.mountpoint / "direct" / "of b").write_text("written on b")
        shutil.rmtree(group.c.mountpoint / "direct" / "folder 0", ignore_errors=True)
        tree = same_trees(group.devices)
        assert b"direct/of b" in tree
        assert group.a.bad_clouds() == {cloud.name for cloud in group.clouds}
    group.a.sync()
    group.b.sync()


def test_lan_down_all_goes_through_the_clouds(group: Group) -> None:
    with group.network.without():
        make_tree(group.c.mountpoint / "by cloud", seed=13, files=40)
        until(lambda: (group.a.mountpoint / "by cloud" / "link").is_symlink(), "the tree to arrive")
        (group.a.mountpoint / "by cloud" / "of a").write_text("written on a")
        tree = same_trees(group.devices)
        assert b"by cloud/of a" in tree


def test_both_down_everybody_works_on_and_nothing_is_lost(group: Group) -> None:
    folders = [device.mountpoint / "apart" for device in group.devices]
    folders[0].mkdir()
    for name in ("edited", "renamed", "deleted", "kept"):
        (folders[0] / name).write_text(f"{name} in the beginning")
    same_trees(group.devices)
    with group.network.without(), away(*group.clouds):
        for folder, name in zip(folders, "abc", strict=True):
            (folder / "edited").write_text(f"edited on {name}")
            (folder / "new").write_text(f"new on {name}")
        (folders[0] / "renamed").rename(folders[0] / "renamed by a")
        (folders[1] / "renamed").rename(folders[1] / "renamed by b")
        (folders[0] / "deleted").unlink()
        (folders[1] / "deleted").write_text("deleted, but edited on b")
        (folders[2] / "kept").unlink()
    tree = same_trees(group.devices)
    expected = [f"{what} on {name}" for what in ("edited", "new") for name in "abc"]
    expected += ["deleted, but edited on b", "renamed in the beginning"]
    assert _contents(folders[0]) == sorted(expected)
    assert b"apart/edited" in tree
    assert b"apart/new" in tree
    assert sum(b"(conflict, " in path for path in tree) == 4


def test_labels_that_devices_change_apart_are_a_set(group: Group) -> None:
    a, b, c = group.devices
    file = a.mountpoint / "labelled"
    file.write_text("labelled")
    a.run("label", "add", "kept,taken", str(file))
    same_trees(group.devices)
    with group.network.without(), away(*group.clouds):
        a.run("label", "add", "of a,kept", str(file))
        b.run("label", "remove", "kept,taken", str(b.mountpoint / "labelled"))
        os.setxattr(c.mountpoint / "labelled", "user.hybrisfs.labels", b"kept,taken,of c")
    same_trees(group.devices)
    for device in group.devices:
        assert os.getxattr(device.mountpoint / "labelled", "user.hybrisfs.labels") == b"kept,of a,of c"
        assert device.run("label", "list", "--with", "of c").splitlines() == [
            str(device.mountpoint / "labelled")
        ]


_FILES = 300


def _write_many(folder: Path) -> None:
    for number in range(_FILES):
        (folder / f"{number}").write_bytes(os.urandom(5000))


def _holds(folder: Path, files: int) -> bool:
    return len(list(folder.iterdir())) >= files


def test_a_device_killed_in_mid_exchange_gets_the_rest_later(group: Group) -> None:
    folders = [device.mountpoint / "many" for device in group.devices]
    folders[0].mkdir()
    with ThreadPoolExecutor() as pool:
        until(lambda: folders[2].is_dir(), "the folder to arrive")
        writing = pool.submit(_write_many, folders[0])
        for enough in (20, 150):
            until(partial(_holds, folders[2], enough), f"{enough} files to arrive")
            group.c.kill()
            group.c.mount()
        writing.result()
    assert len(same_trees(group.devices)) >= _FILES


def test_what_a_killed_device_had_made_durable_reaches_the_others(group: Group) -> None:
    folder = group.c.mountpoint / "killed"
    folder.mkdir()
    for number in range(60):
        with (folder / f"{number}").open("wb") as file:
            file.write(os.urandom(3000))
            file.flush()
            os.fsync(file.fileno())
    written = snapshot(folder)
    group.c.kill()
    group.c.mount()
    assert snapshot(folder) == written
    same_trees(group.devices)
    assert snapshot(group.a.mountpoint / "killed") == written
