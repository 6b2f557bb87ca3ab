"""Files become chunks: what other devices then read, of files that change in all ways."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from random import Random

import pytest

from hybrisfs.chunk_namer import ChunkNamer
from hybrisfs.registers.tree import Content, Run
from hybrisfs.tree.inodes import Inode
from hybrisfs.write.cut import FileSnapshot
from hybrisfs.write.layout import ChunkLimits
from tests.surroundings import limited
from tests.tree.invariants import check_accounts, check_chunks, check_published
from tests.tree.rig import SMALL_BLOCKS, Rig, small_chunks
from tests.write.others import Others

LIMITS = ChunkLimits(64, block=4, small=16, parts=6, direct_runs=8, runs_per_page=4)
_PUNCH = 0x03  # FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE


class Edited:
    """A file, what it should hold, and what others see of it."""

    def __init__(self, rig: Rig, random: Random) -> None:
        self.rig = rig
        self.random = random
        self.others = Others(rig)
        self.inode: Inode = rig.make(b"file")
        self.content = bytearray()
        self.meanwhile: list[Callable[[], object]] = []
        """Done before or after the file is cut into chunks."""
        rig.chunker.before = rig.chunker.after = self._do

    def _do(self, _: FileSnapshot) -> None:
        if self.meanwhile and self.random.random() < 0.5:
            self.meanwhile.pop()()

    def write(self, offset: int, data: bytes) -> None:
        with self.rig.fs.state.transaction() as tx:
            handle = self.rig.fs.open(tx, self.inode.ino, os.O_RDWR)
            self.rig.fs.write(tx, self.inode, offset, data)
            self.rig.fs.release(tx, handle)
        self.content.extend(bytes(max(0, offset + len(data) - len(self.content))))
        self.content[offset : offset + len(data)] = data

    def truncate(self, size: int) -> None:
        with self.rig.fs.state.transaction() as tx:
            self.rig.fs.content.truncate(tx, self.inode, size)
        del self.content[size:]
        self.content.extend(bytes(size - len(self.content)))

    def punch(self, offset: int, length: int) -> None:
        with self.rig.fs.state.transaction() as tx:
            self.rig.fs.content.allocate(tx, self.inode, _PUNCH, offset, length)
        end = min(offset + length, len(self.content))
        self.content[offset:end] = bytes(max(0, end - offset))

    def check(self) -> None:
        """Here and on other devices the file holds what it should."""
        while self.rig.publish():
            pass
        assert self.others() == {b"file": bytes(self.content)}
        assert self.rig.read(self.inode) == bytes(self.content)
        assert (
            self.inode.stored
            == self.rig.db.rows.execute(
                "SELECT total(length) FROM file_chunk WHERE ino = ?", (self.inode.ino,)
            ).fetchone()[0]
        )


@pytest.mark.parametrize("seed", range(40))
def test_others_read_what_is_here_after_each_change(seed: int) -> None:
    """With chunks that are dropped now and then, and changes in the midst of a cut."""
    random = Random(seed)
    edited = Edited(Rig(environment=limited(LIMITS, SMALL_BLOCKS)), random)
    edited.write(0, random.randbytes(2000))
    edited.check()

    def change() -> None:
        size = len(edited.content)
        match random.randrange(12):
            case 0:
                edited.truncate(random.randrange(size + 1))
            case 1:
                edited.truncate(size + random.randrange(100))
            case 2:
                edited.punch(random.randrange(size + 1), random.randrange(1, 300))
            case 3:
                edited.write(0, random.randbytes(random.randrange(1, 2500)))
            case 4 | 5:
                edited.write(size, random.randbytes(random.randrange(1, 30)))
            case 6:
                edited.write(random.randrange(size + 1), bytes(random.randrange(1, 200)))
            case _:
                edited.write(random.randrange(size + 1), random.randbytes(random.randrange(1, 12)))

    for _ in range(40):
        for _ in range(random.randrange(1, 4)):
            change()
        edited.meanwhile = [change] if random.random() < 0.3 else []
        if random.random() < 0.2:
            edited.rig.publish()
            edited.rig.pack()
            edited.rig.room.drop_all()
        edited.check()
    check_published(edited.rig, edited.others.reader)
    check_accounts(edited.rig, [])


def test_a_content_of_another_device_has_its_own_list() -> None:
    random = Random(1)
    edited = Edited(Rig(environment=limited(LIMITS, SMALL_BLOCKS)), random)
    edited.write(0, random.randbytes(3000))
    edited.check()
    [(chunk,)] = edited.rig.db.rows.execute("SELECT id FROM chunk WHERE number = 1").fetchall()
    with edited.rig.fs.state.transaction() as tx:
        edited.rig.fs.received.show(
            tx, edited.inode, Content(3064, 0, [Run(3000, None), Run(64, chunk)]).encode()
        )
    edited.content = bytearray(3000) + edited.content[:64]
    edited.write(1500, b"!")
    edited.check()


# -- cut by content ---------------------------------------------------------------------------------------


def chunks_of(rig: Rig, inode: Inode) -> list[int]:
    return [row.length for row in rig.fs.content.base_rows(rig.tx, inode, 0, inode.size)]


def test_a_long_file_is_cut_as_if_all_of_it_were_looked_at_together() -> None:
    rig = Rig(environment=limited(small_chunks(4096), SMALL_BLOCKS))
    content = Random(2).randbytes(200_000)
    inode = rig.make(b"long", content)
    rig.publish()
    assert chunks_of(rig, inode) == list(rig.namer.cut(content, 4096))
    assert len(chunks_of(rig, inode)) > 50 and max(chunks_of(rig, inode)) <= 4096


@pytest.mark.parametrize("change", ["in front", "gone in front", "in the middle", "at the end"])
def test_a_file_that_is_written_again_has_most_of_its_chunks(change: str) -> None:
    rig = Rig(environment=limited(small_chunks(4096), SMALL_BLOCKS))
    content = Random(3).randbytes(200_000)
    rig.make(b"before", content)
    rig.publish()
    (count,) = rig.db.rows.execute("SELECT count(*) FROM chunk").fetchone()
    changed = {
        "in front": b"!" + content,
        "gone in front": content[1:],
        "in the middle": content[:100_000] + b"!!!" + content[100_000:],
        "at the end": content + b"!",
    }
    rig.make(b"after", changed[change])
    rig.publish()
    (more,) = rig.db.rows.execute("SELECT count(*) FROM chunk").fetchone()
    assert 0 < more - count <= 10, "chunks near the change, and pages"


def test_volumes_cut_the_same_file_at_different_places() -> None:
    content = Random(4).randbytes(100_000)
    assert list(ChunkNamer(bytes(32)).cut(content, 4096)) != list(ChunkNamer(b"\1" * 32).cut(content, 4096))


def test_zeros_become_a_hole() -> None:
    rig = Rig(environment=limited(small_chunks(4096), SMALL_BLOCKS))
    content = Random(5).randbytes(5000) + bytes(50_000) + Random(6).randbytes(5000)
    inode = rig.make(b"sparse", content)
    rig.publish()
    assert rig.read(inode) == content
    assert sum(chunks_of(rig, inode)) < 10_000 + 3 * 4096


# -- small files that are cut in groups -------------------------------------------------------------------


def rig_of_small_files() -> Rig:
    return Rig(environment=limited(small_chunks(4096), SMALL_BLOCKS))


def groups_of(rig: Rig) -> list[int]:
    """The sizes of the groups that are cut from now on."""
    sizes: list[int] = []
    cut = rig.chunker.chunk_group

    def chunk_group(group: Sequence[FileSnapshot]) -> list[bytes]:
        sizes.append(len(group))
        return cut(group)

    rig.chunker.chunk_group = chunk_group  # type: ignore[method-assign]
    return sizes


@pytest.mark.parametrize("seed", range(20))
def test_small_files_in_groups_are_what_they_are_alone(seed: int) -> None:
    """Equal and known ones, empty ones, zeros, large ones among them, and changes in the midst of a cut."""
    random = Random(seed)
    rig = rig_of_small_files()
    others, sizes = Others(rig), groups_of(rig)
    known = [random.randbytes(random.randrange(1, 500)) for _ in range(3)]
    expected: dict[bytes, bytes] = {}

    def make(name: bytes) -> None:
        size = random.choice([0, 1, 100, 512, 513, 3000])
        data = random.choice([random.randbytes(size), bytes(size), *known])
        expected[name] = data
        rig.make(name, data)

    def change(snapshot: FileSnapshot) -> None:
        if random.random() < 0.1:
            with rig.fs.state.transaction() as tx:
                rig.fs.content.truncate(tx, snapshot.inode, random.randrange(snapshot.inode.size + 1))

    for number in range(4):
        for file in range(random.randrange(1, 40)):
            make(b"%d-%d" % (number, file))
        if random.random() < 0.5:
            rig.chunker.before = change
        rig.publish()
        rig.chunker.before = lambda _: None
        assert others() == expected
        rig.publish()
        expected = {name: rig.read(rig.find(name)) for name in expected}
        assert others() == expected
        rig.pack()
        rig.room.drop_all()
    assert {name: rig.read(rig.find(name)) for name in expected} == expected
    assert any(size > 1 for size in sizes)
    check_published(rig, others.reader)
    check_accounts(rig, [])
    check_chunks(rig)


def test_a_file_of_a_group_whose_bytes_are_gone_holds_up_no_other() -> None:
    rig = rig_of_small_files()
    others, sizes = Others(rig), groups_of(rig)
    rig.make(b"bad", b"bad")
    [segment] = rig.journal.numbers()
    rig.journal.seal_active()
    rig.make(b"one", b"first")
    rig.make(b"two", b"second")
    os.truncate(rig.journal.directory / f"{segment:08d}.segment", 0)
    rig.publish()
    assert sizes == [3]
    assert others() == {b"one": b"first", b"two": b"second"}


def test_zeros_in_a_group_are_a_hole() -> None:
    rig = rig_of_small_files()
    zeros, one = rig.make(b"zeros", bytes(300)), rig.make(b"one", b"content")
    sizes = groups_of(rig)
    rig.publish()
    assert sizes == [2]
    assert (chunks_of(rig, zeros), chunks_of(rig, one)) == ([], [7])


def test_groups_are_bounded() -> None:
    rig = Rig()
    sizes = groups_of(rig)
    for number in range(200):
        rig.make(b"%d" % number, b"%d" % number)
    rig.publish()
    assert sizes == [64, 64, 64, 8]
    del sizes[:]
    for number in range(12):
        rig.make(b"large-%d" % number, b"%d" % number * (50 << 10))
    rig.publish()
    assert sum(sizes) == 12
    assert max(sizes) <= 10
