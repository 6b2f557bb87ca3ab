"""Ordinary programs do on the mount what they do on a disk."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from tests.system.device import Device
from tests.system.shell import run, tool
from tests.system.trees import make_tree, snapshot


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tree on the plain disk."""
    tree = tmp_path_factory.mktemp("source") / "tree"
    make_tree(tree, seed=1)
    return tree


def test_cp_keeps_everything_even_after_the_cache_is_gone(
    shared_device: Device, folder: Path, source: Path
) -> None:
    run("cp", "-a", source, folder / "copy")
    assert snapshot(folder / "copy") == snapshot(source)
    shared_device.forget()
    assert snapshot(folder / "copy") == snapshot(source)
    assert run("diff", "-r", "--no-dereference", "--exclude=fifo", source, folder / "copy") == ""


def test_rsync_sees_no_difference_after_its_own_copy(folder: Path, source: Path) -> None:
    tool("rsync")
    run("rsync", "-aHX", f"{source}/", folder / "copy")
    again = run("rsync", "-aHX", "--checksum", "--itemize-changes", f"{source}/", folder / "copy")
    assert again == ""
    assert snapshot(folder / "copy") == snapshot(source)


def test_tar_packs_and_unpacks(folder: Path, source: Path) -> None:
    run("tar", "--xattrs", "-cf", folder / "all.tar", "-C", source, ".")
    (folder / "out").mkdir()
    run("tar", "--xattrs", "-xpf", folder / "all.tar", "-C", folder / "out")
    assert snapshot(folder / "out") == snapshot(source)


def test_git_clone_commit_gc_and_fsck(shared_device: Device, folder: Path, tmp_path: Path) -> None:
    tool("git")
    origin, clone = tmp_path / "origin", folder / "clone"
    run("git", "init", "--quiet", "--initial-branch=main", origin)
    for number in range(200):
        (origin / f"file{number}.c").write_text(f"int f{number}(void) {{ return {number}; }}\n" * 20)
    run("git", "add", ".", cwd=origin)
    run("git", "commit", "--quiet", "-m", "Import", cwd=origin)
    run("git", "clone", "--quiet", "--no-hardlinks", origin, clone)
    assert run("git", "status", "--porcelain", cwd=clone) == ""
    (clone / "file7.c").write_text("changed\n")
    (clone / "new.c").write_text("new\n")
    assert run("git", "status", "--porcelain", cwd=clone) == " M file7.c\n?? new.c\n"
    run("git", "checkout", "--quiet", "-b", "topic", cwd=clone)
    run("git", "add", "--all", cwd=clone)
    run("git", "commit", "--quiet", "-m", "Change", cwd=clone)
    run("git", "checkout", "--quiet", "main", cwd=clone)
    assert (clone / "file7.c").read_text() != "changed\n"
    run("git", "merge", "--quiet", "topic", cwd=clone)
    run("git", "gc", "--quiet", "--prune=now", cwd=clone)
    shared_device.forget()
    run("git", "fsck", "--strict", "--full", cwd=clone)
    assert run("git", "status", "--porcelain", cwd=clone) == ""
    assert (clone / "file7.c").read_text() == "changed\n"


_MAKEFILE = """\
prog: main.o part.o
\tcc -o $@ main.o part.o
%.o: %.c part.h
\tcc -c $<
"""


def test_make_builds_rebuilds_what_changed_and_nothing_else(folder: Path) -> None:
    tool("make")
    tool("cc")
    (folder / "Makefile").write_text(_MAKEFILE)
    (folder / "part.h").write_text("int part(void);\n")
    (folder / "part.c").write_text('#include "part.h"\nint part(void) { return 41; }\n')
    (folder / "main.c").write_text(
        '#include <stdio.h>\n#include "part.h"\nint main(void) { printf("%d\\n", part()); }\n'
    )
    run("make", cwd=folder)
    assert run(folder / "prog") == "41\n"
    assert "up to date" in run("make", cwd=folder)
    (folder / "part.c").write_text('#include "part.h"\nint part(void) { return 42; }\n')
    rebuilt = run("make", cwd=folder)
    assert "-c part.c" in rebuilt
    assert "-c main.c" not in rebuilt
    assert run(folder / "prog") == "42\n"


@pytest.mark.parametrize("backup", ["backupcopy=yes", "backupcopy=no", "writebackup"])
def test_vim_saves(folder: Path, backup: str) -> None:
    tool("vim")
    text = folder / "letter.txt"
    text.write_text("one\ntwo\n")
    text.chmod(0o640)
    run("vim", "-u", "NONE", "-es", "-c", f"set {backup}", "-c", "%s/two/three/", "-c", "wq", text)
    assert text.read_text() == "one\nthree\n"
    assert text.stat().st_mode & 0o777 == 0o640
    assert [path.name for path in folder.iterdir()] == ["letter.txt"]


_SQLITE_WRITER = """
import sqlite3, sys
path, mode, name, rows = sys.argv[1:]
db = sqlite3.connect(path, timeout=60, isolation_level=None)
db.execute(f"PRAGMA journal_mode={mode}")
db.execute("PRAGMA synchronous=FULL")
for row in range(int(rows)):
    db.execute("BEGIN IMMEDIATE")
    count = db.execute("SELECT count FROM total").fetchone()[0]
    db.execute("INSERT INTO entry VALUES (?, ?, ?)", (name, row, "x" * 3000))
    db.execute("UPDATE total SET count = ?", (count + 1,))
    db.execute("COMMIT")
"""


@pytest.mark.parametrize("mode", ["wal", "delete", "truncate", "persist"])
def test_two_sqlite_processes_lose_no_row(shared_device: Device, folder: Path, mode: str) -> None:
    path, rows = folder / "data.db", 60
    with sqlite3.connect(path) as db:
        assert db.execute(f"PRAGMA journal_mode={mode}").fetchone() == (mode,)
        db.execute("CREATE TABLE entry (writer TEXT, row INTEGER, text TEXT)")
        db.execute("CREATE TABLE total (count INTEGER)")
        db.execute("INSERT INTO total VALUES (0)")
    db.close()
    writers = [
        subprocess.Popen([sys.executable, "-c", _SQLITE_WRITER, path, mode, name, str(rows)]) for name in "ab"
    ]
    assert [writer.wait(timeout=120) for writer in writers] == [0, 0]
    shared_device.remount()
    db = sqlite3.connect(path)
    try:
        assert db.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        assert db.execute("SELECT count FROM total").fetchone() == (2 * rows,)
        assert db.execute("SELECT writer, count(DISTINCT row) FROM entry GROUP BY writer").fetchall() == [
            ("a", rows),
            ("b", rows),
        ]
    finally:
        db.close()
