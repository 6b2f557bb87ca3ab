"""Who keeps a mount busy."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from hybrisfs.mount.mountpoint import Holder, describe_holders, find_holders

MOUNT = Path("/home/a/Cloud")


def process(
    proc: Path, pid: int, name: str, *, cwd: str = "/", files: tuple[str, ...] = (), maps: str = ""
) -> None:
    folder = proc / str(pid)
    (folder / "fd").mkdir(parents=True)
    (folder / "comm").write_text(f"{name}\n")
    (folder / "maps").write_text(maps)
    for link, target in (("cwd", cwd), ("root", "/"), ("exe", f"/usr/bin/{name}")):
        (folder / link).symlink_to(target)
    for number, target in enumerate(files):
        (folder / "fd" / str(number)).symlink_to(target)


def test_working_directories_open_files_and_mappings_count(tmp_path: Path) -> None:
    process(tmp_path, 1, "init", files=("/dev/null", "socket:[77]", "/home/a/Cloudy/x"))
    process(tmp_path, 30, "bash", cwd="/home/a/Cloud")
    process(tmp_path, 4, "vim", files=("/dev/pts/0", "/home/a/Cloud/sub/text"))
    process(
        tmp_path,
        5,
        "tool",
        maps="7f00-7f10 r--p 00000000 00:2b 12    /home/a/Cloud/lib x.so (deleted)\n7f20-7f30 rw-p 0 0:0 0\n",
    )
    (tmp_path / "self").mkdir()
    assert find_holders(MOUNT, tmp_path) == [
        Holder(4, "vim", "/home/a/Cloud/sub/text"),
        Holder(5, "tool", "/home/a/Cloud/lib x.so (deleted)"),
        Holder(30, "bash", "/home/a/Cloud"),
    ]


def test_who_cannot_be_looked_at_is_left_out(tmp_path: Path) -> None:
    (tmp_path / "7").mkdir()
    (tmp_path / "7" / "cwd").symlink_to("/home/a/Cloud")
    assert find_holders(MOUNT, tmp_path) == []


def test_a_real_process_is_found(tmp_path: Path) -> None:
    with subprocess.Popen(["sleep", "60"], cwd=tmp_path) as child:
        [found] = [one for one in find_holders(tmp_path) if one.pid != os.getpid()]
        child.kill()
    assert found == Holder(child.pid, found.program, str(tmp_path))


@pytest.mark.parametrize(("count", "end"), [(0, ""), (1, "uses /m/0"), (6, "uses /m/4, and 1 more")])
def test_few_are_named(count: int, end: str) -> None:
    assert describe_holders([Holder(n, "p", f"/m/{n}") for n in range(count)]).endswith(end)
