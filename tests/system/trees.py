"""Trees with every kind of file, and an exact account of what a folder holds."""

from __future__ import annotations

import hashlib
import os
import random
import stat
from pathlib import Path
from typing import NamedTuple

__all__ = ["Entry", "fsync_tree", "make_tree", "snapshot"]


class Entry(NamedTuple):
    """What must come back of one file or folder. `links` counts names for files only."""

    kind: int
    mode: int
    owner: tuple[int, int]
    modified_ns: int
    size: int
    links: int
    content: str
    attributes: tuple[tuple[str, bytes], ...]


def _entry(path: bytes) -> Entry:
    facts = os.lstat(path)
    kind = stat.S_IFMT(facts.st_mode)
    content = ""
    if kind == stat.S_IFREG:
        with open(path, "rb") as file:
            content = hashlib.file_digest(file, "blake2b").hexdigest()
    elif kind == stat.S_IFLNK:
        content = os.readlink(path).hex()  # noqa: PTH115 - a path of bytes
    names = [] if kind == stat.S_IFLNK else sorted(os.listxattr(path, follow_symlinks=False))
    regular = kind == stat.S_IFREG
    return Entry(
        kind,
        stat.S_IMODE(facts.st_mode),
        (facts.st_uid, facts.st_gid),
        facts.st_mtime_ns,
        facts.st_size if regular else 0,
        facts.st_nlink if regular else 0,
        content,
        tuple((name, os.getxattr(path, name)) for name in names if name.startswith("user.")),
    )


def snapshot(folder: Path) -> dict[bytes, Entry]:
    """Relative path -> entry, for everything below `folder`; reads every byte."""
    top = os.fsencode(folder)
    found = {}
    for parent, folders, files in os.walk(top, onerror=_fail):
        for name in (*folders, *files):
            path = os.path.join(parent, name)  # noqa: PTH118 - paths of bytes
            try:
                found[os.path.relpath(path, top)] = _entry(path)
            except OSError as error:
                error.filename = error.filename or path
                raise
    return found


def _fail(error: OSError) -> None:
    raise error


_SIZES = (0, 1, 100, 4095, 4096, 4097, 70_000, 1 << 20, (1 << 20) + 1, 3_500_000)


def make_tree(folder: Path, *, seed: int, files: int = 60) -> None:
    """Files of awkward sizes, empty folders, links, odd names, modes, times and attributes."""
    choose = random.Random(seed)
    folder.mkdir(exist_ok=True)
    folders = [folder]
    for number in range(max(3, files // 8)):
        child = choose.choice(folders) / f"folder {number}"
        child.mkdir()
        folders.append(child)
    for number in range(files):
        path = choose.choice(folders) / f"file-{number}.{choose.choice(['txt', 'bin', 'ü', ''])}"
        size = _SIZES[number % len(_SIZES)]
        path.write_bytes(choose.randbytes(size) if number % 2 else b"line of text\n" * (size // 13))
        path.chmod(choose.choice([0o644, 0o600, 0o755, 0o444]))
        stamp = choose.randrange(10**18, 17 * 10**17)
        os.utime(path, ns=(stamp, stamp))
    (folder / "empty folder").mkdir()
    (folder / "link").symlink_to("folder 0/nowhere")
    (folder / "first name").write_bytes(b"linked")
    (folder / "second name").hardlink_to(folder / "first name")
    with open(os.fsencode(folder) + b"/not \xff\xfe utf-8", "wb") as odd:
        odd.write(b"odd")
    os.mkfifo(folder / "fifo")
    os.setxattr(folder / "first name", "user.note", b"\x00\xffbinary")
    # Old times everywhere: rsync takes times within the present second for equal.
    for number, path in enumerate([*folder.glob("*"), *reversed(folders)]):
        os.utime(path, ns=(10**18 + number, 10**18 + number), follow_symlinks=False)


def fsync_tree(folder: Path) -> None:
    """Call fsync on every file and folder, as a careful program does."""
    for parent, _, names in os.walk(os.fsencode(folder)):
        for path in (*(os.path.join(parent, name) for name in names), parent):  # noqa: PTH118 - paths of bytes
            if stat.S_IFMT(os.lstat(path).st_mode) in (stat.S_IFREG, stat.S_IFDIR):
                descriptor = os.open(path, os.O_RDONLY)
                try:
                    os.fsync(descriptor)
                finally:
                    os.close(descriptor)
