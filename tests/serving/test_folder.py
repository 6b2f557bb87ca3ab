"""The served folder: nothing outside is reached, nothing half-made is seen or left."""

from __future__ import annotations

import errno
import os
import stat
import threading
from pathlib import Path

import pytest

from serving.beneath import open_beneath
from serving.folder import Folder
from serving.unfinished import TEMPORARY, Unfinished
from tests.serving.rig import LocalRoot, folder_of, listed


def names(folder: Folder, *path: str) -> list[str]:
    return [one.name for one in folder.entries(path)]


def written(folder: Folder, path: tuple[str, ...], data: bytes) -> None:
    upload = folder.upload(path)
    upload.write(data)
    upload.finish()


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    found = tmp_path / "outside"
    found.mkdir()
    (found / "secret").write_text("secret")
    return found


def test_nothing_outside_is_reached(tmp_path: Path, outside: Path) -> None:
    root, folder = folder_of(tmp_path)
    (root / "inner").mkdir()
    (root / "link").symlink_to(outside)
    (root / "file").symlink_to(outside / "secret")
    (root / "up").symlink_to("..")
    (root / "within").symlink_to("inner")
    os.mkfifo(root / "fifo")
    assert names(folder) == ["inner"]
    for path in (
        ("link",),
        ("link", "secret"),
        ("file",),
        ("up", "outside", "secret"),
        ("within",),
        ("..", "outside", "secret"),
        ("inner", "..", "..", "outside", "secret"),
        ("fifo",),
        ("inner/../../outside/secret",),
    ):
        with pytest.raises(OSError):
            folder.status(path)
        with pytest.raises(OSError):
            folder.read(path).close()
        with pytest.raises(OSError):
            folder.remove(path)
        with pytest.raises(OSError):
            folder.move(path, ("moved",), replace=True)
        with pytest.raises(OSError):
            folder.copy(path, ("copied",), replace=True, with_members=True)
        with pytest.raises(OSError):
            written(folder, path, b"x")
    with pytest.raises(OSError):
        folder.make_folder(("link", "new"))
    assert (outside / "secret").read_text() == "secret"
    assert listed(outside) == ["secret"]
    assert not [name for name in listed(root) if name.startswith(TEMPORARY)]


def test_a_folder_that_becomes_a_link_in_that_moment_leads_nowhere(tmp_path: Path, outside: Path) -> None:
    """Another program swaps a folder for a link and back, as fast as it can."""
    root, folder = folder_of(tmp_path)
    (root / "a").mkdir()
    (root / "a" / "secret").write_text("known")
    (root / "b").symlink_to(outside)
    over = threading.Event()
    swaps = [0]

    def swap() -> None:
        while not over.is_set():
            for one, other in (("a", "c"), ("b", "a"), ("a", "b"), ("c", "a")):
                (root / one).rename(root / other)
            swaps[0] += 1

    swapping = threading.Thread(target=swap)
    swapping.start()
    read = 0
    try:
        while read < 200 or swaps[0] < 200:
            try:
                with folder.read(("a", "secret")) as file:
                    assert file.read() == b"known"
                read += 1
                written(folder, ("a", "new"), b"x")
            except OSError as error:
                assert error.errno in (errno.ENOENT, errno.ELOOP, errno.ENOTDIR)
    finally:
        over.set()
        swapping.join()
    assert listed(outside) == ["secret"]


def test_names_with_slashes_or_zero_bytes_are_none(tmp_path: Path) -> None:
    root, folder = folder_of(tmp_path)
    for name in ("a\0b", "", ".", ".."):
        with pytest.raises(OSError):
            folder.status((name,))
    with pytest.raises(OSError):
        folder.status(("x" * 5000,))
    with LocalRoot(root).open() as descriptor, pytest.raises(OSError, match="link"):
        (root / "absolute").symlink_to("/")
        open_beneath(descriptor, ("absolute", "etc"), os.O_PATH)


def test_the_past_is_not_served(tmp_path: Path) -> None:
    root, folder = folder_of(tmp_path)
    (root / ".hybrisfs").mkdir()
    with pytest.raises(FileNotFoundError):
        folder.status((".hybrisfs",))
    part = Folder(LocalRoot(root, ("part",)), Unfinished(tmp_path / "notes"))
    assert stat.S_ISDIR(part.status((".hybrisfs",)).st_mode)


def test_an_upload_is_seen_whole_or_not_at_all(tmp_path: Path) -> None:
    root, folder = folder_of(tmp_path)
    (root / "file").write_text("old")
    upload = folder.upload(("file",))
    upload.write(b"new")
    assert (root / "file").read_text() == "old"
    assert names(folder) == ["file"]
    [making] = [name for name in listed(root) if name != "file"]
    with pytest.raises(FileNotFoundError):
        folder.status((making,))
    upload.finish()
    assert (root / "file").read_text() == "new"
    broken = folder.upload(("file",))
    broken.write(b"half")
    broken.discard()
    assert ((root / "file").read_text(), listed(root)) == ("new", ["file"])
    assert listed(tmp_path / "notes") == []


def test_a_replaced_file_keeps_mode_and_attributes(tmp_path: Path) -> None:
    root, folder = folder_of(tmp_path)
    (root / "file").write_text("old")
    (root / "file").chmod(0o640)
    os.setxattr(root / "file", "user.colour", b"red")
    written(folder, ("file",), b"new")
    assert stat.S_IMODE((root / "file").stat().st_mode) == 0o640
    assert os.getxattr(root / "file", "user.colour") == b"red"


def test_an_upload_follows_no_link_and_replaces_no_folder(tmp_path: Path, outside: Path) -> None:
    root, folder = folder_of(tmp_path)
    (root / "link").symlink_to(outside / "secret")
    (root / "folder").mkdir()
    for name in ("link", "folder"):
        with pytest.raises(PermissionError):
            written(folder, (name,), b"x")
    assert (outside / "secret").read_text() == "secret"
    assert listed(root) == ["folder", "link"]


def test_what_a_process_that_died_was_making_is_removed(tmp_path: Path) -> None:
    root, folder = folder_of(tmp_path)
    (root / "kept").write_text("x")
    folder.upload(("file",)).write(b"half")
    (tmp_path / "notes" / "making-bad").write_text("[1, {")
    (tmp_path / "notes" / "making-worse").write_text('["kept"]')
    assert len(listed(root)) == 2
    _, later = folder_of(tmp_path)
    later.remove_left(LocalRoot(root))
    assert (listed(root), listed(tmp_path / "notes")) == (["kept"], [])


def test_moves_replace_in_one_step_only_when_asked(tmp_path: Path) -> None:
    root, folder = folder_of(tmp_path)
    (root / "a").write_text("a")
    (root / "b").write_text("b")
    with pytest.raises(FileExistsError):
        folder.move(("a",), ("b",), replace=False)
    folder.move(("a",), ("b",), replace=True)
    assert ((root / "b").read_text(), listed(root)) == ("a", ["b"])
    (root / "d").mkdir()
    (root / "d" / "x").write_text("x")
    folder.move(("b",), ("d",), replace=True)
    assert (root / "d").read_text() == "a"


def test_copies_take_no_links_along_and_are_whole(tmp_path: Path, outside: Path) -> None:
    root, folder = folder_of(tmp_path)
    (root / "d" / "e").mkdir(parents=True)
    (root / "d" / "e" / "f").write_bytes(os.urandom(3 << 20))
    (root / "d" / "link").symlink_to(outside)
    os.utime(root / "d" / "e" / "f", (1, 2))
    folder.copy(("d",), ("copy",), replace=False, with_members=True)
    assert sorted(str(one.relative_to(root / "copy")) for one in (root / "copy").rglob("*")) == ["e", "e/f"]
    assert (root / "copy/e/f").read_bytes() == (root / "d/e/f").read_bytes()
    assert (root / "copy/e/f").stat().st_mtime == 2
    folder.copy(("d",), ("empty",), replace=False, with_members=False)
    assert listed(root / "empty") == []
    folder.remove(("d",))
    assert listed(outside) == ["secret"]


def test_names_that_are_no_text_are_not_listed(tmp_path: Path) -> None:
    root, folder = folder_of(tmp_path)
    for name in (b"\xff", b"a\x01b", "ü".encode()):
        (root / os.fsdecode(name)).write_text("x")
    assert names(folder) == ["ü"]
