"""IDs of what is in a real volume: those of the bytes, whatever was known of them before."""

from __future__ import annotations

import errno
import os
import stat
import tempfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hybrisfs.content_ids import LEAF, content_id, file_hash, folder_hash, kind_of, leaf_hash, special_hash
from hybrisfs.errors import HybrisError, UsageError, failure
from hybrisfs.state.schema import ROOT_INO
from hybrisfs.state.state import Transaction
from hybrisfs.tree.content import Missing
from hybrisfs.tree.inodes import Inode
from tests.system.deadline import until
from tests.tree.unlocked import unlocked
from tests.volume.device import PATIENCE, Device, two_devices
from tests.volume.test_versions import remove, sign


@pytest.fixture
def device(tmp_path: Path) -> Iterator[Device]:
    device = Device(tmp_path)
    yield device
    device.close()


class Reads:
    """How many bytes were read for IDs."""

    def __init__(self) -> None:
        self.bytes = 0

    def __call__(self, read: int) -> None:
        self.bytes = read


def id_of(
    device: Device, path: str = "", at: str | None = None, tell: Callable[[int], None] | None = None
) -> str:
    return device.volume.content_ids.of((path, at), tell or Reads())


def read_all(device: Device, ino: int) -> bytes:
    while True:
        with device.volume.fs.state.transaction() as tx:
            inode = device.volume.fs.get(tx, ino)
            lacking = device.volume.fs.received.lacking(tx, inode)
            data = device.volume.fs.read(tx, inode, 0, inode.size) if lacking is None else lacking
        if not isinstance(data, Missing):
            return data
        device.volume.fetcher.fetch(data.chunks)


def hashed(device: Device, ino: int = ROOT_INO) -> tuple[str, bytes]:
    """Kind and hash of a node, of which nothing is taken as known."""
    fs = device.volume.fs
    with fs.state.transaction() as tx:
        inode = fs.get(tx, ino)
        fs.flush(tx)
        below = tx.execute("SELECT name, ino FROM place WHERE parent = ?", (ino,)).fetchall()
    kind = kind_of(inode.mode)
    if kind == "d":
        return kind, folder_hash((name, *hashed(device, one)) for name, one in below)
    if kind not in "fx":
        return kind, special_hash(kind, inode.target or b"", inode.rdev)
    data = read_all(device, ino)
    leaves = [leaf_hash(data[start : start + LEAF]) for start in range(0, len(data), LEAF)]
    return kind, file_hash(len(data), leaves)


def make(device: Device, name: str, mode: int, target: bytes | None = None, folder: int = ROOT_INO) -> Inode:
    with device.volume.fs.state.transaction() as tx:
        return device.volume.fs.make(tx, folder, name.encode(), mode, 1, 1, target=target)


def change(device: Device, path: str, offset: int, data: bytes) -> None:
    fs = device.volume.fs
    with fs.state.transaction() as tx:
        inode = fs.locate(tx, path.encode().split(b"/"))
        assert inode is not None
        handle = fs.open(tx, inode.ino, os.O_WRONLY)
    device.write_at(handle, offset, data)
    with fs.state.transaction() as tx:
        fs.release(tx, handle)


def test_an_id_is_that_of_the_bytes(device: Device) -> None:
    device.write("a", b"hello")
    assert id_of(device, "a") == content_id("f", file_hash(5, [leaf_hash(b"hello")]))
    folder = make(device, "d", stat.S_IFDIR | 0o755)
    make(device, "to a", stat.S_IFLNK | 0o777, b"../a", folder.ino)
    make(device, "pipe", stat.S_IFIFO | 0o644, None, folder.ino)
    assert id_of(device, "") == content_id(*hashed(device))
    assert id_of(device, "d/to a") == content_id("l", special_hash("l", b"../a", 0))
    with pytest.raises(HybrisError, match="there is no none in the volume"):
        id_of(device, "none")


def test_only_what_changed_is_read(device: Device) -> None:
    """Of a large file the stretches that were written; of files with bytes that are known, nothing."""
    big = os.urandom(6 * LEAF + 5)
    device.write("big", big)
    device.write("small", b"x" * 1000)
    sign(device)
    reads = Reads()
    before = id_of(device, "", None, reads)
    assert reads.bytes >= 6 * LEAF
    reads = Reads()
    assert id_of(device, "", None, reads) == before
    assert reads.bytes == 0
    device.write("copy", big)
    change(device, "big", 3 * LEAF + 7, b"new")
    sign(device)
    reads = Reads()
    after = id_of(device, "", None, reads)
    assert after == content_id(*hashed(device)) != before
    assert reads.bytes <= 2 * LEAF


def test_what_was_read_before_a_restart_is_known(device: Device) -> None:
    device.write("big", os.urandom(4 * LEAF))
    sign(device)
    before = id_of(device)
    device.reopen()
    reads = Reads()
    assert id_of(device, "", None, reads) == before
    assert reads.bytes == 0


def test_a_file_that_was_evicted_is_fetched(device: Device) -> None:
    for number in range(70):
        device.write(f"f{number}", b"%d" % number * 500)
    device.sync()
    device.volume.room.drop_all()
    assert id_of(device) == content_id(*hashed(device))


def test_the_past_has_the_ids_that_it_had(device: Device) -> None:
    folder = make(device, "d", stat.S_IFDIR | 0o755)
    make(device, "e", stat.S_IFDIR | 0o755, None, folder.ino)
    device.write("a", os.urandom(2 * LEAF + 1))
    moment = sign(device)
    before = id_of(device)
    change(device, "a", 0, b"new")
    device.write("b", b"")
    later = sign(device)
    after = id_of(device)
    reads = Reads()
    assert id_of(device, "", moment, reads) == before
    assert id_of(device, f".hybrisfs/at/{moment}", None, reads) == before
    assert id_of(device, "d", moment) == id_of(device, "d")
    assert id_of(device, "", later) == after
    assert reads.bytes == 0
    found = device.volume.content_ids.compare((f".hybrisfs/at/{moment}", None), ("", None), Reads())
    assert [(one.what, one.path) for one in found.differences] == [("changed", b"a"), ("added", b"b")]
    assert (found.first, found.second) == (before, after)
    with pytest.raises(HybrisError, match="there was no b then"):
        id_of(device, "b", moment)
    with pytest.raises(UsageError, match="not a moment"):
        id_of(device, "b", "soon")


def has_id(device: Device, wanted: str) -> bool:
    device.volume.signals.look_around()
    return id_of(device) == wanted


def test_equal_trees_have_equal_ids_on_all_devices(tmp_path: Path) -> None:
    with two_devices(tmp_path) as (first, second):
        first.write("a", os.urandom(3 * LEAF))
        first.write("b", b"b")
        before = id_of(first)
        first.sync()
        until(lambda: has_id(second, before), "the second to hear of the files")
        assert before == content_id(*hashed(second))
        second.write("b", b"other")
        after = id_of(second)
        second.sync()
        until(lambda: has_id(first, after), "the first to hear of the change")
        assert after == content_id(*hashed(first)) != before


def test_what_changes_while_it_is_read_is_read_again(device: Device) -> None:
    """An ID is that of one moment: the file was overwritten after its first bytes were read."""
    device.write("a", os.urandom(3 * LEAF))
    device.write("b", b"b")
    made: list[int] = []

    def tell(read: int) -> None:
        if not made:
            made.append(read)
            change(device, "a", 0, b"other")
            device.write("b", b"c")

    assert id_of(device, "", None, tell) == content_id(*hashed(device))
    assert made


@pytest.mark.parametrize("asked", ["a", ""])
def test_what_is_removed_while_it_is_read_is_not_there(device: Device, asked: str) -> None:
    device.write("a", os.urandom(3 * LEAF))

    def tell(read: int) -> None:
        with suppress(OSError):
            remove(device, "a")

    if asked:
        with pytest.raises(HybrisError, match="there is no a in the volume"):
            id_of(device, asked, None, tell)
    else:
        assert id_of(device, asked, None, tell) == content_id("d", folder_hash([]))


def test_what_changes_all_the_time_has_no_id(device: Device) -> None:
    device.write("a", os.urandom(2 * LEAF))

    def tell(read: int) -> None:
        change(device, "a", LEAF, os.urandom(10))

    with pytest.raises(HybrisError, match="changes all the time"):
        id_of(device, "a", None, tell)
    assert id_of(device, "a") == content_id(*hashed(device, node(device, "a")))


def node(device: Device, path: str) -> int:
    with device.volume.fs.state.transaction() as tx:
        inode = device.volume.fs.locate(tx, [one for one in path.encode().split(b"/") if one])
        assert inode is not None
        return inode.ino


def test_many_changes_are_settled_piece_by_piece(device: Device) -> None:
    folder = make(device, "d", stat.S_IFDIR | 0o755)
    world = World(device)
    for number in range(30):
        world.write("d", f"f{number}", 1)
    id_of(device)
    for number in range(30):
        world.write("d", f"f{number}", 2)
    turns = 1
    with device.volume.fs.state.transaction() as tx:
        device.volume.fs.flush(tx)
        while not tx.known_ids.settle(7):
            turns += 1
        assert tx.known_ids.find(folder.ino) is None
    assert turns == 5
    assert id_of(device) == content_id(*hashed(device))


def test_nothing_is_noted_while_nobody_asks(device: Device) -> None:
    """What changes after an ID was made is noted once for each file that had one, and no other."""
    device.write("a", b"a")
    id_of(device)
    for number in range(50):
        device.write("a", b"%d" % number)
        device.write(f"new{number}", b"")
        device.volume.committer.commit_now()
    (noted,) = unlocked(device.volume.fs).execute("SELECT count(*) FROM changed_id").fetchone()
    assert noted == 2  # the file and the folder


_PATHS = ["", "d", "d/e", "d/e/g"]
_NAMES = ["a", "b"]
_STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("write"), st.sampled_from(_PATHS), st.sampled_from(_NAMES), st.integers(0, 5)),
        st.tuples(st.just("program"), st.sampled_from(_PATHS), st.sampled_from(_NAMES), st.booleans()),
        st.tuples(st.just("remove"), st.sampled_from(_PATHS), st.sampled_from(_NAMES)),
        st.tuples(
            st.just("move"),
            st.sampled_from(_PATHS),
            st.sampled_from(["a", "d", "e", "g"]),
            st.sampled_from(_PATHS),
            st.sampled_from(["a", "b", "d", "e", "g"]),
        ),
        st.tuples(st.just("link"), st.sampled_from(_PATHS), st.sampled_from(_NAMES), st.sampled_from(_PATHS)),
        st.tuples(st.just("sign")),
    ),
    max_size=20,
)


class World:
    """What programs do; steps that make no sense raise OSError."""

    def __init__(self, device: Device) -> None:
        self.device = device
        self.fs = device.volume.fs

    def make_folders(self) -> None:
        for path in _PATHS[1:]:
            above, _, name = path.rpartition("/")
            make(self.device, name, stat.S_IFDIR | 0o755, None, node(self.device, above))

    def write(self, folder: str, name: str, size: int) -> None:
        with self.fs.state.transaction() as tx:
            parent = self._folder(tx, folder)
            inode = self.fs.lookup(tx, parent, name.encode())
            if inode is None:
                _, handle = self.fs.create(tx, parent, name.encode(), 0o644, 1, 1, os.O_WRONLY)
            else:
                handle = self.fs.open(tx, inode.ino, os.O_WRONLY)
            self.fs.write(tx, self.fs.handle(handle), size, b"x" * size)
            self.fs.release(tx, handle)

    def program(self, folder: str, name: str, may: bool) -> None:
        with self.fs.state.transaction() as tx:
            inode = self._at(tx, folder, name)
            self.fs.attributes.change(tx, inode, mode=0o755 if may else 0o644)

    def remove(self, folder: str, name: str) -> None:
        with self.fs.state.transaction() as tx:
            self.fs.unlink(tx, self._folder(tx, folder), name.encode())

    def move(self, folder: str, name: str, to: str, new: str) -> None:
        with self.fs.state.transaction() as tx:
            source, target = self._folder(tx, folder), self._folder(tx, to)
            self.fs.rename(tx, source, name.encode(), target, new.encode(), 0)

    def link(self, folder: str, name: str, to: str) -> None:
        with self.fs.state.transaction() as tx:
            inode = self._at(tx, folder, name)
            if not inode.is_directory:
                self.fs.link(tx, inode.ino, self._folder(tx, to), b"another name")

    def sign(self) -> None:
        assert self.device.volume.uploads.wait_signed(PATIENCE)
        self.device.volume.committer.commit_now()

    def check_id(self, path: str) -> None:
        with self.fs.state.transaction() as tx:
            ino = self._folder(tx, path)
        assert id_of(self.device, path) == content_id(*hashed(self.device, ino))

    def _folder(self, tx: Transaction, path: str) -> int:
        inode = self.fs.locate(tx, [one for one in path.encode().split(b"/") if one])
        if inode is None:
            raise failure(errno.ENOENT)
        return inode.ino

    def _at(self, tx: Transaction, folder: str, name: str) -> Inode:
        inode = self.fs.lookup(tx, self._folder(tx, folder), name.encode())
        if inode is None:
            raise failure(errno.ENOENT)
        return inode


@settings(max_examples=40)
@given(_STEPS, st.booleans(), st.sampled_from(_PATHS))
def test_whatever_programs_do_ids_are_those_of_the_bytes(
    steps: list[tuple[object, ...]], commits: bool, asked: str
) -> None:
    """Of the root and one folder after each step. Changes are committed before, or not."""
    with tempfile.TemporaryDirectory() as root:
        device = Device(Path(root))
        try:
            world = World(device)
            world.make_folders()
            for what, *rest in [*steps, ("sign",)]:
                with suppress(OSError):  # what makes no sense
                    getattr(world, str(what))(*rest)
                if commits:
                    device.volume.committer.commit_now()
                for path in (asked, ""):
                    with suppress(OSError):
                        world.check_id(path)
        finally:
            device.close()
