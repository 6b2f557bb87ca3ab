"""Names: what rename(2), link(2) and the others promise, and their errors."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from hybrisfs.state.schema import ROOT_INO
from hybrisfs.tree.names import RENAME_EXCHANGE, RENAME_NOREPLACE
from tests.tree.rig import Rig


@contextmanager
def fails_with(number: int) -> Iterator[None]:
    with pytest.raises(OSError) as caught:
        yield
    assert errno.errorcode[caught.value.errno or 0] == errno.errorcode[number]


def names(rig: Rig, folder: int = ROOT_INO) -> set[bytes]:
    return {name for _, name, _ in rig.fs.names.list(rig.tx, folder, 0, 1000)}


def test_a_directory_counts_its_subdirectories(rig: Rig) -> None:
    outer = rig.mkdir(b"outer")
    inner = rig.mkdir(b"inner", outer)
    rig.make(b"file", parent=outer)
    assert [rig.fs.get(rig.tx, ino).nlink for ino in (ROOT_INO, outer, inner)] == [3, 3, 2]
    rig.fs.rename(rig.tx, outer, b"inner", ROOT_INO, b"moved", 0)
    assert [rig.fs.get(rig.tx, ino).nlink for ino in (ROOT_INO, outer)] == [4, 2]
    rig.fs.rmdir(rig.tx, ROOT_INO, b"moved")
    assert rig.fs.get(rig.tx, ROOT_INO).nlink == 3


def test_removing(rig: Rig) -> None:
    folder = rig.mkdir(b"folder")
    rig.make(b"file", parent=folder)
    with fails_with(errno.ENOTEMPTY):
        rig.fs.rmdir(rig.tx, ROOT_INO, b"folder")
    with fails_with(errno.EISDIR):
        rig.fs.unlink(rig.tx, ROOT_INO, b"folder")
    with fails_with(errno.ENOTDIR):
        rig.fs.rmdir(rig.tx, folder, b"file")
    with fails_with(errno.ENOENT):
        rig.fs.unlink(rig.tx, ROOT_INO, b"nothing")
    rig.fs.unlink(rig.tx, folder, b"file")
    rig.fs.rmdir(rig.tx, ROOT_INO, b"folder")
    assert names(rig) == set()
    with fails_with(errno.ESTALE):
        rig.fs.forget(rig.tx, folder)
        rig.fs.get(rig.tx, folder)


@pytest.mark.parametrize(
    "name, number",
    [
        *((name, errno.EINVAL) for name in (b"", b".", b"..", b"a/b", b"a\0b")),
        (b"x" * 256, errno.ENAMETOOLONG),
    ],
)
def test_what_is_no_name(rig: Rig, name: bytes, number: int) -> None:
    with fails_with(number):
        rig.make(name)
    rig.make(b"ok")
    with fails_with(number):
        rig.fs.rename(rig.tx, ROOT_INO, b"ok", ROOT_INO, name, 0)
    assert names(rig) == {b"ok"}


def test_a_name_is_given_once(rig: Rig) -> None:
    one = rig.make(b"one")
    with fails_with(errno.EEXIST):
        rig.make(b"one")
    with fails_with(errno.EEXIST):
        rig.fs.link(rig.tx, one.ino, ROOT_INO, b"one")
    with fails_with(errno.ENOTDIR):
        rig.make(b"x", parent=one.ino)


def test_rename_replaces_like_by_like_only(rig: Rig) -> None:
    folder, full = rig.mkdir(b"folder"), rig.mkdir(b"full")
    rig.make(b"inside", parent=full)
    rig.make(b"file", b"content")
    with fails_with(errno.EISDIR):
        rig.fs.rename(rig.tx, ROOT_INO, b"file", ROOT_INO, b"folder", 0)
    with fails_with(errno.ENOTDIR):
        rig.fs.rename(rig.tx, ROOT_INO, b"folder", ROOT_INO, b"file", 0)
    with fails_with(errno.ENOTEMPTY):
        rig.fs.rename(rig.tx, ROOT_INO, b"folder", ROOT_INO, b"full", 0)
    with fails_with(errno.EEXIST):
        rig.fs.rename(rig.tx, ROOT_INO, b"file", ROOT_INO, b"folder", RENAME_NOREPLACE)
    with fails_with(errno.EINVAL):
        rig.fs.rename(rig.tx, ROOT_INO, b"file", ROOT_INO, b"folder", 4)
    rig.fs.rename(rig.tx, ROOT_INO, b"full", ROOT_INO, b"folder", 0)
    assert names(rig) == {b"file", b"folder"}
    assert names(rig, full) == {b"inside"}
    with fails_with(errno.ESTALE):
        rig.fs.forget(rig.tx, folder)
        rig.fs.get(rig.tx, folder)


@pytest.mark.parametrize("flags", [0, RENAME_EXCHANGE])
def test_a_directory_does_not_move_into_itself(rig: Rig, flags: int) -> None:
    outer = rig.mkdir(b"outer")
    inner = rig.mkdir(b"inner", outer)
    rig.make(b"deep", parent=inner)
    with fails_with(errno.EINVAL):
        rig.fs.rename(rig.tx, ROOT_INO, b"outer", inner, b"deep" if flags else b"new", flags)
    assert names(rig) == {b"outer"}


def test_exchange(rig: Rig) -> None:
    folder = rig.mkdir(b"folder")
    subfolder = rig.mkdir(b"sub", folder)
    rig.make(b"file", b"content")
    rig.fs.rename(rig.tx, ROOT_INO, b"file", folder, b"sub", RENAME_EXCHANGE)
    assert rig.find(b"file").ino == subfolder
    assert rig.read(rig.find(b"sub", folder)) == b"content"
    assert [rig.fs.get(rig.tx, ino).nlink for ino in (ROOT_INO, folder)] == [4, 2]
    with fails_with(errno.ENOENT):
        rig.fs.rename(rig.tx, ROOT_INO, b"file", ROOT_INO, b"nothing", RENAME_EXCHANGE)


def test_a_name_that_stays_is_listed_once_whatever_it_comes_to_mean(rig: Rig) -> None:
    """A listing goes on by numbers: the name keeps its own, whoever has it."""
    for name in (b"first", b"between", b"last"):
        rig.make(name, name)

    def order() -> list[tuple[int, bytes]]:
        return [(number, name) for number, name, _ in rig.fs.names.list(rig.tx, ROOT_INO, 0, 1000)]

    before = order()
    rig.fs.rename(rig.tx, ROOT_INO, b"first", ROOT_INO, b"last", RENAME_EXCHANGE)
    assert order() == before
    assert (rig.read(rig.find(b"first")), rig.read(rig.find(b"last"))) == (b"last", b"first")
    rig.fs.rename(rig.tx, ROOT_INO, b"last", ROOT_INO, b"first", RENAME_EXCHANGE)
    assert order() == before

    rig.make(b"new", b"another")
    rig.fs.rename(rig.tx, ROOT_INO, b"new", ROOT_INO, b"first", 0)
    assert order() == before
    rig.fs.rename(rig.tx, ROOT_INO, b"last", ROOT_INO, b"first", 0)
    assert order() == before[:2]


@pytest.mark.parametrize("flags", [0, RENAME_EXCHANGE])
def test_two_names_of_one_file_are_left_alone(rig: Rig, flags: int) -> None:
    one = rig.make(b"one", b"content")
    rig.fs.link(rig.tx, one.ino, ROOT_INO, b"two")
    for old, new in ((b"one", b"two"), (b"one", b"one")):
        rig.fs.rename(rig.tx, ROOT_INO, old, ROOT_INO, new, flags)
    assert names(rig) == {b"one", b"two"}
    assert rig.find(b"two").nlink == 2


def test_links(rig: Rig) -> None:
    folder = rig.mkdir(b"folder")
    one = rig.make(b"one", b"content")
    with fails_with(errno.EPERM):
        rig.fs.link(rig.tx, folder, ROOT_INO, b"other")
    rig.fs.link(rig.tx, one.ino, folder, b"two")
    rig.fs.unlink(rig.tx, ROOT_INO, b"one")
    assert rig.read(rig.find(b"two", folder)) == b"content"
    handle = rig.fs.open(rig.tx, one.ino, os.O_RDONLY)
    rig.fs.unlink(rig.tx, folder, b"two")
    with fails_with(errno.ENOENT):
        rig.fs.link(rig.tx, one.ino, ROOT_INO, b"revived")
    rig.fs.release(rig.tx, handle)


def test_nothing_comes_into_a_removed_directory(rig: Rig) -> None:
    folder = rig.mkdir(b"folder")
    rig.make(b"file")
    gone = rig.fs.get(rig.tx, folder)
    rig.fs.rmdir(rig.tx, ROOT_INO, b"folder")
    assert gone.orphan
    with fails_with(errno.ENOENT):
        rig.make(b"x", parent=folder)
    with fails_with(errno.ENOENT):
        rig.fs.rename(rig.tx, ROOT_INO, b"file", folder, b"x", 0)
    assert names(rig) == {b"file"}


def test_the_group_of_a_setgid_directory_is_inherited(rig: Rig) -> None:
    folder = rig.fs.make(rig.tx, ROOT_INO, b"shared", stat.S_IFDIR | 0o2775, 1, 77).ino
    file = rig.fs.make(rig.tx, folder, b"file", stat.S_IFREG | 0o644, 5, 5)
    inner = rig.fs.make(rig.tx, folder, b"inner", stat.S_IFDIR | 0o755, 5, 5)
    assert (file.uid, file.gid, inner.gid) == (5, 77, 77)
    assert inner.mode & stat.S_ISGID


def test_a_listing_goes_on_where_it_was_whatever_happens_meanwhile(rig: Rig) -> None:
    for number in range(10):
        rig.make(b"%d" % number)
    first = rig.fs.names.list(rig.tx, ROOT_INO, 0, 4)
    rig.fs.unlink(rig.tx, ROOT_INO, b"2")
    rig.fs.unlink(rig.tx, ROOT_INO, b"3")
    rig.make(b"new")
    rest = rig.fs.names.list(rig.tx, ROOT_INO, first[-1][0], 100)
    seen = [name for _, name, _ in first + rest]
    assert sorted(seen) == sorted({b"%d" % number for number in range(10)} | {b"new"})


def test_symlinks_and_special_files(rig: Rig) -> None:
    target = b"../somewhere/\xff"
    link = rig.fs.make(rig.tx, ROOT_INO, b"link", stat.S_IFLNK | 0o777, 1, 1, target=target)
    rig.fs.make(rig.tx, ROOT_INO, b"fifo", stat.S_IFIFO | 0o600, 1, 1)
    rig.fs.make(rig.tx, ROOT_INO, b"disk", stat.S_IFBLK | 0o600, 1, 1, rdev=0x0801)
    with fails_with(errno.ENAMETOOLONG):
        rig.fs.make(rig.tx, ROOT_INO, b"long", stat.S_IFLNK | 0o777, 1, 1, target=b"x" * 4096)
    assert link.size == len(target)
    rig = rig.reopen()
    assert rig.find(b"link").target == target
    assert stat.S_ISFIFO(rig.find(b"fifo").mode)
    assert rig.find(b"disk").rdev == 0x0801
    assert (rig.fs.total_files, rig.fs.content.total_bytes) == (0, 0)
    rig.discard()
