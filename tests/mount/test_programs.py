"""Recognising programs that may not pull content."""

from __future__ import annotations

import os
import shutil
import subprocess
import threading
from pathlib import Path

import pytest

from hybrisfs.mount.programs import NoFetchPrograms
from hybrisfs.settings.config import DEFAULT_NO_FETCH_PROGRAMS


def process(proc: Path, name: str, executable: str, thread: str = "", number: int = 7) -> None:
    """A process with a second thread, as /proc shows them."""
    for task, comm in ((number, name), (number + 1, thread or name)):
        folder = proc / str(task)
        folder.mkdir()
        (folder / "status").write_text(f"Name:\t{comm}\nTgid:\t{number}\nPid:\t{task}\n")
        (folder / "comm").write_text(f"{comm}\n")
        (folder / "exe").symlink_to(executable)


@pytest.mark.parametrize(
    ("name", "executable"),
    [
        ("tumblerd", "/usr/lib/tumbler-1/tumblerd"),
        ("renamed", "/usr/lib/tumbler-1/tumblerd"),
        ("tracker-miner-f", "/usr/libexec/tracker-miner-fs-3"),  # cut by the kernel
        ("tracker-extract", "/elsewhere"),
        ("gdk-pixbuf-thum", "/usr/bin/gdk-pixbuf-thumbnailer"),
        ("baloo_file_extr", "/elsewhere"),
        ("thumbnail.so", "/usr/lib/kf6/kioworker"),
        ("localsearch-3", "/usr/libexec/localsearch-3"),
    ],
)
def test_those_that_are_known(tmp_path: Path, name: str, executable: str) -> None:
    process(tmp_path, name, executable)
    programs = NoFetchPrograms(DEFAULT_NO_FETCH_PROGRAMS, tmp_path)
    assert programs.includes(7)
    assert programs.includes(8)


@pytest.mark.parametrize(
    ("name", "executable"),
    [
        ("nautilus", "/usr/bin/nautilus"),
        ("bash", "/usr/bin/bash"),
        ("python3", "/usr/bin/python3.11"),
        ("rsync", "/usr/bin/rsync"),
        ("tracker", "/opt/time/tracker"),
        ("a name with sp", "/usr/bin/x"),
    ],
)
def test_those_that_are_not(tmp_path: Path, name: str, executable: str) -> None:
    process(tmp_path, name, executable)
    assert not NoFetchPrograms(DEFAULT_NO_FETCH_PROGRAMS, tmp_path).includes(7)


def test_a_thread_has_the_name_of_its_process(tmp_path: Path) -> None:
    process(tmp_path, "tumblerd", "/elsewhere", thread="pool-worker")
    assert NoFetchPrograms(["tumblerd"], tmp_path).includes(8)
    assert not NoFetchPrograms(["pool-worker"], tmp_path).includes(8)


def test_what_cannot_be_looked_at_is_not_refused(tmp_path: Path) -> None:
    assert not NoFetchPrograms(["*"], tmp_path).includes(7)
    assert not NoFetchPrograms(["*"], tmp_path).includes(0)
    process(tmp_path, "tumblerd", "/elsewhere")
    (tmp_path / "7" / "exe").unlink()  # of another user's process
    assert NoFetchPrograms(["tumblerd"], tmp_path).includes(7)


def test_real_processes(tmp_path: Path) -> None:
    executable = tmp_path / "tumblerd"
    shutil.copy(shutil.which("sleep") or "", executable)
    with subprocess.Popen([executable, "60"]) as running:
        try:
            assert NoFetchPrograms(["tumblerd"]).includes(running.pid)
            assert not NoFetchPrograms(["sleep"]).includes(running.pid)
        finally:
            running.kill()
    found: list[bool] = []
    name = Path(f"/proc/{os.getpid()}/comm").read_text().strip()

    def look() -> None:
        found.append(NoFetchPrograms([name]).includes(threading.get_native_id()))

    thread = threading.Thread(target=look)
    thread.start()
    thread.join()
    assert found == [True]
