"""What demanding programs ask of a disk: databases, build tools, editors that save in their own ways."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from tests.system.device import Device
from tests.system.postgres import Postgres
from tests.system.shell import run, tool
from tests.system.trees import make_tree, snapshot

_MODULES = 12


def test_git_rebases_and_has_a_second_worktree(shared_device: Device, folder: Path) -> None:
    tool("git")
    repository, second = folder / "repository", folder / "second"
    run("git", "init", "--quiet", "--initial-branch=main", repository)
    text = repository / "text"

    def commit(line: str) -> None:
        with text.open("a") as file:
            file.write(line + "\n" * 4)
        run("git", "add", "text", cwd=repository)
        run("git", "commit", "--quiet", "-m", line, cwd=repository)

    commit("first")
    run("git", "branch", "topic", cwd=repository)
    for number in range(4):
        commit(f"main {number}")
    run("git", "worktree", "add", "--quiet", second, "topic", cwd=repository)
    for number in range(4):
        (second / f"file{number}").write_text("new\n")
        run("git", "add", "--all", cwd=second)
        run("git", "commit", "--quiet", "-m", f"topic {number}", cwd=second)
    run("git", "rebase", "--quiet", "main", cwd=second)
    run("git", "gc", "--quiet", "--aggressive", "--prune=now", cwd=repository)
    shared_device.remount()
    run("git", "fsck", "--strict", "--full", cwd=repository)
    log = run("git", "log", "--format=%s", "topic", cwd=repository).split("\n")[:-1]
    assert log == [*(f"topic {n}" for n in (3, 2, 1, 0)), *(f"main {n}" for n in (3, 2, 1, 0)), "first"]
    assert run("git", "status", "--porcelain", cwd=second) == ""


def test_make_with_many_jobs_builds_a_library_and_a_program(folder: Path) -> None:
    tool("make")
    tool("cc")
    objects = " ".join(f"m{number}.o" for number in range(_MODULES))
    (folder / "Makefile").write_text(
        f"prog: main.o libm.a\n\tcc -o $@ main.o libm.a\nlibm.a: {objects}\n\tar rcs $@ {objects}\n"
        "%.o: %.c\n\tcc -MMD -c $<\n-include *.d\n"
    )
    for number in range(_MODULES):
        (folder / f"m{number}.c").write_text(f"int m{number}(void) {{ return {number}; }}\n")
    declared = "".join(f"int m{number}(void);\n" for number in range(_MODULES))
    called = " + ".join(f"m{number}()" for number in range(_MODULES))
    (folder / "main.c").write_text(f"{declared}int main(void) {{ return {called}; }}\n")
    run("make", "--jobs=4", cwd=folder)
    assert subprocess.run([folder / "prog"], check=False).returncode == sum(range(_MODULES))
    assert "up to date" in run("make", "--jobs=4", cwd=folder)


def test_dpkg_packs_and_unpacks(folder: Path, tmp_path: Path) -> None:
    tool("dpkg-deb")
    package = tmp_path / "package"
    (package / "DEBIAN").mkdir(parents=True)
    make_tree(package / "opt", seed=9, files=30)
    (package / "DEBIAN" / "control").write_text(
        "Package: sample\nVersion: 1\nArchitecture: all\nMaintainer: Test <test@example.org>\n"
        "Description: files of every kind\n"
    )
    run("dpkg-deb", "--build", package, folder / "sample.deb")
    run("dpkg", "-x", folder / "sample.deb", folder / "here")
    run("dpkg", "-x", folder / "sample.deb", tmp_path / "there")
    assert snapshot(folder / "here") == snapshot(tmp_path / "there")


_WRITES_SAFELY = """
import fcntl, os, sys
folder, name, text = sys.argv[1:]
os.chdir(folder)
lock = os.open(f".~lock.{name}#", os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
fcntl.lockf(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
os.write(lock, b"somebody")
new = os.open("lu1234.tmp", os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
os.write(new, text.encode())
os.fchmod(new, os.stat(name).st_mode & 0o777)
os.fsync(new)
os.close(new)
os.rename("lu1234.tmp", name)
here = os.open(".", os.O_RDONLY | os.O_DIRECTORY)
os.fsync(here)
os.close(lock)
os.unlink(f".~lock.{name}#")
"""


def test_a_document_saved_as_office_programs_do_survives_a_kill(device: Device) -> None:
    """Lock file, temporary file, rename over the document, fsync of the folder."""
    folder = device.mountpoint / "documents"
    folder.mkdir()
    document = folder / "letter.odt"
    document.write_text("old")
    document.chmod(0o640)
    for number in range(3):
        text = f"new {number} " * 5000
        run(sys.executable, "-c", _WRITES_SAFELY, folder, document.name, text)
        device.kill()
        device.mount()
        assert document.read_text() == text
        assert stat.S_IMODE(document.stat().st_mode) == 0o640
        # The lock file's removal came after the last fsync; it may be back, but whole.
        assert {path.name for path in folder.iterdir()} - {f".~lock.{document.name}#"} == {document.name}
        (folder / f".~lock.{document.name}#").unlink(missing_ok=True)


def test_an_editor_that_backs_up_by_renaming_and_locks_by_symlink(folder: Path) -> None:
    """As emacs does: a dangling link `.#name`, the old file renamed to `name~`, a new one in its place."""
    text, lock, backup = folder / "notes", folder / ".#notes", folder / "notes~"
    text.write_text("one")
    before = text.stat()
    for content in ("two", "three"):
        lock.symlink_to("user@host.1234:1700000000")
        assert lock.readlink() == Path("user@host.1234:1700000000")
        with pytest.raises(FileExistsError):
            lock.symlink_to("another")
        old = text.read_text()
        text.rename(backup)
        with text.open("x") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        lock.unlink()
        assert (text.read_text(), backup.read_text()) == (content, old)
    assert text.stat().st_ino != before.st_ino
    assert sorted(path.name for path in folder.iterdir()) == ["notes", "notes~"]


def test_vim_finds_the_swap_file_of_one_that_was_killed(folder: Path) -> None:
    tool("vim")
    text, swap = folder / "letter", folder / ".letter.swp"
    text.write_text("one\n")
    script = ["-c", "call setline(1, 'unsaved')", "-c", "preserve", "-c", "!kill -9 $PPID"]
    subprocess.run(["vim", "-u", "NONE", "-es", *script, text], check=False, timeout=60)
    assert swap.exists()
    assert text.read_text() == "one\n"
    run("vim", "-u", "NONE", "-es", "-r", text, "-c", "wq!")
    assert text.read_text() == "unsaved\n"


def test_rsync_changes_a_file_in_place(shared_device: Device, folder: Path, tmp_path: Path) -> None:
    tool("rsync")
    source, copy = tmp_path / "image", folder / "image"
    content = bytearray(os.urandom(1_500_000))
    source.write_bytes(content)
    run("rsync", "--times", source, copy)
    number = copy.stat().st_ino
    shared_device.forget()
    number_after = copy.stat().st_ino
    with copy.open("rb") as reader:
        for offset in (0, 700_000, 1_499_990):
            content[offset : offset + 10] = b"0123456789"
        source.write_bytes(content[:1_400_000] + b"longer" * 50_000)
        run("rsync", "--inplace", "--no-whole-file", "--ignore-times", "--times", source, copy)
        assert reader.read() == source.read_bytes()
    assert (copy.stat().st_ino, number_after) == (number, number)
    assert copy.stat().st_mtime_ns == source.stat().st_mtime_ns


def test_tar_keeps_holes_and_devices(shared_device: Device, folder: Path, tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    with (source / "sparse").open("wb") as file:
        file.seek(40_000_000)
        file.write(b"in the middle")
        file.truncate(90_000_000)
    os.mkfifo(source / "fifo")
    if os.geteuid() == 0:
        os.mknod(source / "null", stat.S_IFCHR | 0o666, os.makedev(1, 3))
        os.mknod(source / "disk", stat.S_IFBLK | 0o660, os.makedev(8, 17))
    run("tar", "--sparse", "--format=posix", "-cf", folder / "all.tar", "-C", source, ".")
    (folder / "out").mkdir()
    run("tar", "--sparse", "-xpf", folder / "all.tar", "-C", folder / "out")
    shared_device.remount()
    assert snapshot(folder / "out") == snapshot(source)
    for name in ("null", "disk"):
        if (source / name).exists():
            assert (folder / "out" / name).stat().st_rdev == (source / name).stat().st_rdev
    assert (folder / "out" / "sparse").stat().st_blocks * 512 < 3_000_000  # it is kept in windows of 1 MiB
    run("tar", "--sparse", "-cf", folder / "again.tar", "-C", folder / "out", ".")
    assert (folder / "again.tar").stat().st_size < 3_000_000


# -- a database server, which refuses to be run by root ----------------------------------------------------


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_postgresql_keeps_its_books(everybodys: Device) -> None:
    """initdb, pgbench by two clients, a crash of the server, and the sums agree."""
    folder = everybodys.mountpoint / "database"
    folder.mkdir()
    server = Postgres(folder)
    server.make()
    try:
        server.transfers(100)
        server.stop("immediate")
        server.start()
        assert server.transactions() == 200
    finally:
        server.stop()
    server.check()
