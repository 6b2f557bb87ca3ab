"""The folder driver: the contract, and what is particular to folders."""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from backends.errors import (
    AuthError,
    CorruptError,
    FullError,
    MissingError,
    MissingRootError,
    OversizeError,
    PermanentError,
    StoreError,
    TransientError,
)
from backends.file import FileStore
from backends.store import Store, dismantle
from tests.backends.conformance import Conformance, all_names


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "disk" / "cloud"


@pytest.fixture
def store(root: Path) -> Store:
    store = FileStore(root.as_uri())
    store.initialise()
    return store


class TestFileStore(Conformance):
    """The contract holds."""


def every_operation(store: Store) -> list[Callable[[], object]]:
    return [
        lambda: store.put("dir/object", b"data"),
        lambda: store.put_if_absent("dir/object", b"data"),
        lambda: store.get("dir/object", limit=10),
        lambda: store.get_range("dir/object", 0, 1),
        lambda: store.get_if_changed("dir/object", None, limit=10),
        lambda: store.delete("dir/object"),
        lambda: store.list(""),
    ]


def spool(root: Path) -> list[str]:
    return sorted(path.name for path in (root / ".hybrisfs").iterdir())


def test_a_missing_root_is_never_recreated(store: Store, root: Path) -> None:
    store.put("dir/object", b"data")
    root.rename(root.with_name("unplugged"))
    for operation in every_operation(store):
        with pytest.raises(MissingRootError, match=r"is gone.*mounted"):
            operation()
        assert not root.exists()
    root.with_name("unplugged").rename(root)
    assert store.get("dir/object", limit=10) == b"data"


def test_an_empty_mount_point_is_not_taken_for_the_cloud(store: Store, root: Path) -> None:
    root.rename(root.with_name("unplugged"))
    root.mkdir()
    for operation in every_operation(store):
        with pytest.raises(MissingRootError, match=r"not the one that was set up.*mounted"):
            operation()
    assert list(root.iterdir()) == []


def test_a_file_in_place_of_the_root(store: Store, root: Path) -> None:
    root.rename(root.with_name("unplugged"))
    root.write_bytes(b"")
    for operation in every_operation(store):
        with pytest.raises(MissingRootError):
            operation()


def test_initialise_makes_parents_and_is_idempotent(tmp_path: Path) -> None:
    store = FileStore((tmp_path / "a" / "b" / "c").as_uri())
    store.initialise()
    store.put("object", b"data")
    FileStore(store.url).initialise()
    assert store.get("object", limit=4) == b"data"


def test_files_being_written_are_never_listed_and_leave_nothing(store: Store, root: Path) -> None:
    (root / ".hybrisfs" / "0123456789abcdef").write_bytes(b"half")
    store.put("object", b"data")
    assert store.put_if_absent("object", b"data") is False
    assert all_names(store) == ["object"]
    assert spool(root) == ["0123456789abcdef"]


def test_leftovers_of_dead_writers_are_removed_after_a_day(root: Path, store: Store) -> None:
    for name, age in (("old", 25 * 3600), ("young", 23 * 3600)):
        path = root / ".hybrisfs" / name
        path.write_bytes(b"half")
        now = path.stat().st_mtime
        os.utime(path, (now - age, now - age))
    store.put("object", b"data")
    assert spool(root) == ["young"]


@pytest.mark.parametrize(
    ("call", "code", "expected"),
    [
        ("write", errno.ENOSPC, FullError),
        ("write", errno.EDQUOT, FullError),
        ("write", errno.EIO, TransientError),
        ("fsync", errno.EIO, TransientError),
        ("fsync", errno.ENOSPC, FullError),
        ("rename", errno.ENOSPC, FullError),
        ("rename", errno.EACCES, AuthError),
        ("rename", errno.EROFS, PermanentError),
        ("open", errno.EACCES, AuthError),
        ("open", errno.EMFILE, TransientError),
        ("open", errno.EROFS, PermanentError),
    ],
)
def test_a_failing_write_is_sorted_and_leaves_the_old_object(
    store: Store,
    root: Path,
    monkeypatch: pytest.MonkeyPatch,
    call: str,
    code: int,
    expected: type[StoreError],
) -> None:
    store.put("object", b"old")

    def fail(*_: object, **__: object) -> int:
        raise OSError(code, os.strerror(code))

    with monkeypatch.context() as patch:
        patch.setattr(os, call, fail)
        with pytest.raises(StoreError) as caught:
            store.put("object", b"new")
    assert type(caught.value) is expected
    assert os.strerror(code) in str(caught.value)
    assert store.url in str(caught.value)
    assert store.get("object", limit=10) == b"old"
    assert spool(root) == []


def test_short_writes_are_continued(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    write = os.write
    monkeypatch.setattr(os, "write", lambda fd, data: write(fd, bytes(data[:3])))
    store.put("object", b"0123456789")
    assert store.get("object", limit=10) == b"0123456789"


class Syncing(FileStore):
    """A cloud that tells what is synced, as it is just then."""

    def __init__(self, root: Path, told: Callable[[Path], None]) -> None:
        super().__init__(root.as_uri())
        self._told = told

    def _sync(self, descriptor: int) -> None:
        self._told(Path(f"/proc/self/fd/{descriptor}").readlink())
        super()._sync(descriptor)


@pytest.mark.parametrize("put", [FileStore.put, FileStore.put_if_absent])
def test_what_is_acknowledged_was_synced_in_order(
    store: Store, root: Path, put: Callable[[FileStore, str, bytes], object]
) -> None:
    """File content before its name, and each new folder's entry before the acknowledgement."""
    order: list[tuple[str, bool]] = []

    def told(path: Path) -> None:
        there = (root / "a/b/object").exists()
        order.append((".hybrisfs" if path.parent.name == ".hybrisfs" else path.name, there))
        if path.is_file():
            assert path.read_bytes() == b"data"

    syncing = Syncing(root, told)
    put(syncing, "a/b/object", b"data")
    assert order == [("cloud", False), ("a", False), (".hybrisfs", False), ("b", True)]
    (root / "a/b/object").unlink()
    order.clear()
    put(syncing, "a/b/object", b"data")
    assert order == [(".hybrisfs", False), ("b", True)]


def test_put_if_absent_without_hard_links(store: Store, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_links(*_: object, **__: object) -> None:
        raise PermissionError(errno.EPERM, "no hard links here")

    monkeypatch.setattr(os, "link", no_links)
    assert store.put_if_absent("dir/object", b"first") is True
    assert store.put_if_absent("dir/object", b"second") is False
    assert store.get("dir/object", limit=10) == b"first"
    assert spool(root) == []


def make_folder(path: Path) -> None:
    path.mkdir()


def make_fifo(path: Path) -> None:
    os.mkfifo(path)


def make_socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))


def make_symlink(path: Path) -> None:
    outside = path.parents[1] / "outside"
    outside.write_bytes(b"secret outside")
    path.symlink_to(outside)


@pytest.mark.parametrize("make", [make_folder, make_fifo, make_socket, make_symlink])
def test_something_else_in_an_objects_place(store: Store, root: Path, make: Callable[[Path], None]) -> None:
    make(root / "object")
    with pytest.raises(CorruptError):
        store.get("object", limit=100)
    with pytest.raises(CorruptError):
        store.get_range("object", 0, 1)
    with pytest.raises(CorruptError):
        store.get_if_changed("object", None, limit=100)
    assert all_names(store) == []


@pytest.mark.parametrize("make", [make_fifo, make_socket, make_symlink])
def test_overwriting_heals_what_is_no_folder(store: Store, root: Path, make: Callable[[Path], None]) -> None:
    make(root / "object")
    store.put("object", b"data")
    assert store.get("object", limit=10) == b"data"
    assert [path for path in root.parent.glob("outside") if path.read_bytes() != b"secret outside"] == []


def test_a_folder_in_an_objects_place_is_kept(store: Store, root: Path) -> None:
    store.put("dir/object", b"data")
    with pytest.raises(CorruptError):
        store.put("dir", b"")
    with pytest.raises(CorruptError):
        store.delete("dir")
    assert store.get("dir/object", limit=10) == b"data"
    assert spool(root) == []


def test_symbolic_links_are_not_followed_out(store: Store, root: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "object").write_bytes(b"secret")
    (root / "link").symlink_to(outside)
    for operation in (
        lambda: store.get("link/object", limit=10),
        lambda: store.put("link/object", b"x"),
        lambda: store.put("link/new", b"x"),
        lambda: store.delete("link/object"),
    ):
        with pytest.raises(CorruptError):
            operation()
    assert all_names(store) == []
    assert sorted(path.name for path in outside.iterdir()) == ["object"]
    assert (outside / "object").read_bytes() == b"secret"


def test_a_file_where_a_folder_should_be(store: Store, root: Path) -> None:
    (root / "dir").write_bytes(b"")
    for operation in every_operation(store)[:6]:
        with pytest.raises(CorruptError):
            operation()


def test_foreign_files_are_left_out_of_lists(store: Store, root: Path) -> None:
    for name in (".DS_Store", "Thumbs.db", "lost+found", "a b"):
        (root / name).write_bytes(b"")
    (root / "Foreign").mkdir()
    (root / "Foreign" / "object").write_bytes(b"")
    (root / os.fsdecode(b"\xff")).mkdir()
    store.put("object", b"")
    assert all_names(store) == ["object"]


def test_folders_nested_without_end_do_not_exhaust_anything(store: Store, root: Path) -> None:
    deep = root
    for _ in range(200):
        deep = deep / "d"
    deep.mkdir(parents=True)
    (deep / "object").write_bytes(b"")
    assert all_names(store) == []


@pytest.mark.parametrize("path", ["with space", "per%cent", "hash#question?", "ümläut"])
def test_odd_folder_names(tmp_path: Path, path: str) -> None:
    store = FileStore((tmp_path / path).as_uri())
    store.initialise()
    store.put("object", b"data")
    assert (tmp_path / path / "object").read_bytes() == b"data"


@pytest.mark.parametrize(
    "url",
    [
        "file://server/share",
        "file:///",
        "file://",
        "file:relative",
        "file:///a?b",
        "file:///a#b",
        "file:///a%00b",
        "file:///a/../b",
        "file://[",
        "http:///a",
    ],
)
def test_malformed_urls(url: str) -> None:
    with pytest.raises(PermanentError, match="file:///"):
        FileStore(url)


def test_a_missing_object_is_no_missing_root(store: Store) -> None:
    with pytest.raises(MissingError):
        store.get("dir/object", limit=1)


class Changing(FileStore):
    """A cloud with a file that somebody makes longer or shorter while it is read."""

    def __init__(self, root: Path, length: int) -> None:
        super().__init__(root.as_uri())
        self._file, self._length = root / "object", length

    def _regular_size(self, descriptor: int) -> int:
        size = super()._regular_size(descriptor)
        os.truncate(self._file, self._length)
        return size


def test_an_object_that_grows_while_it_is_read(store: Store, root: Path) -> None:
    store.put("object", b"x" * 10)
    with pytest.raises(OversizeError):
        Changing(root, 100).get("object", limit=50)


def test_an_object_that_shrinks_while_it_is_read(store: Store, root: Path) -> None:
    store.put("object", b"x" * 100)
    with pytest.raises(CorruptError):
        Changing(root, 10).get_range("object", 0, 50)


def test_a_folder_that_vanishes_under_a_write_is_worth_another_try(store: Store, root: Path) -> None:
    def told(path: Path) -> None:
        if path.is_file():
            (root / "dir").rmdir()

    with pytest.raises(TransientError):
        Syncing(root, told).put("dir/object", b"")


def test_a_folder_made_anew_is_synced_anew(store: Store, root: Path) -> None:
    synced: list[str] = []
    syncing = Syncing(root, lambda path: synced.append(path.name))
    syncing.put("dir/object", b"")
    (root / "dir" / "object").unlink()
    (root / "dir").rmdir()
    synced.clear()
    syncing.put("dir/object", b"")
    assert synced[0] == "cloud"


# -- a place that is given up ----------------------------------------------------------------------------


def test_a_place_goes_with_its_empty_folders(store: Store, root: Path) -> None:
    for name in ("packs/ab/one", "packs/cd/two", "heads/three"):
        store.put(name, b"data")
        store.delete(name)
    (root / ".hybrisfs" / "left over").write_bytes(b"of a writer that died")
    assert dismantle(store, ["packs", "heads", "none"])
    assert not root.exists() and root.parent.exists()


@pytest.mark.parametrize("foreign", ["file", "packs/file", "packs/ab/file", "other/"])
def test_what_is_not_ours_stays_in_a_place_that_goes(store: Store, root: Path, foreign: str) -> None:
    store.put("packs/ab/one", b"data")
    store.delete("packs/ab/one")
    (root / foreign).parent.mkdir(exist_ok=True)
    if foreign.endswith("/"):
        (root / foreign).mkdir()
    else:
        (root / foreign).write_bytes(b"not ours")
    assert not dismantle(store, ["packs"])
    assert (root / foreign).exists() and not (root / ".hybrisfs").exists()
    with pytest.raises(MissingRootError):
        dismantle(store, ["packs"])


def test_a_link_in_a_place_that_goes_is_not_followed(store: Store, root: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere" / "empty").mkdir(parents=True)
    (root / "packs").symlink_to(tmp_path / "elsewhere")
    assert not dismantle(store, ["packs"])
    assert (tmp_path / "elsewhere" / "empty").is_dir()


def test_objects_keep_a_place(store: Store, root: Path) -> None:
    store.put("packs/ab/one", b"data")
    assert not dismantle(store, ["packs"])
    assert (root / "packs" / "ab" / "one").read_bytes() == b"data"
