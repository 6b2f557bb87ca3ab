"""Files against a model: bytes stay what they are, whatever programs, pipeline, cache and crashes do.

The model of a file is a bytearray. After each step every file reads as its model, and the accounts agree
(`invariants`). A crash leaves the model as of the last commit, a power cut as of the last durable commit.
"""

from __future__ import annotations

import os
import tempfile
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from hybrisfs.dispersal.errors import ChunkUnavailable
from hybrisfs.dispersal.pack import EncodedPack
from hybrisfs.environment import Limits
from hybrisfs.state.database import DatabaseLimits
from hybrisfs.state.journal import JournalFullError
from hybrisfs.state.schema import ROOT_INO
from hybrisfs.tree.content import Missing
from hybrisfs.tree.inodes import Inode, InodeLimits
from hybrisfs.tree.names import RENAME_EXCHANGE
from hybrisfs.write.cut import Cut, CutLimits, FileSnapshot
from hybrisfs.write.publish import Publisher
from tests.state.disk import ForgetfulDisk
from tests.tree.invariants import check_accounts, check_chunks, check_published
from tests.tree.replay import Reader, read_content
from tests.tree.rig import SMALL_BLOCKS, FakeClouds, Rig, small_chunks

CHUNK: Final = 64
NAMES: Final = (b"a", b"b", b"c", b"d")
_KEEP, _PUNCH, _ZERO = 1, 3, 16

around_chunks = st.builds(lambda n, off: max(0, n * CHUNK + off), st.integers(0, 6), st.integers(-2, 2))
offsets = around_chunks | st.integers(0, 6 * CHUNK)
lengths = around_chunks.map(lambda n: max(n, 1)) | st.integers(1, 80)
picks = st.integers(0, 7)


@dataclass(eq=False)
class ModelFile:
    """A file as programs see it."""

    data: bytearray = field(default_factory=bytearray)
    handles: int = 0

    def write(self, offset: int, data: bytes) -> None:
        self.resize(max(len(self.data), offset + len(data)))
        self.data[offset : offset + len(data)] = data

    def resize(self, size: int) -> None:
        if size < len(self.data):
            del self.data[size:]
        else:
            self.data.extend(bytes(size - len(self.data)))


@dataclass
class Saved:
    """The names and bytes at one commit."""

    names: dict[bytes, ModelFile]
    data: dict[ModelFile, bytes]


class StoppedError(BaseException):
    """The process of the publisher was killed in the middle of a round."""


class PausingPublisher(Publisher):
    """Runs its rounds in a thread of its own that stops before and after each file until told to go on."""

    def begin(self) -> None:
        self.cut: Cut | None = None
        self._turn = threading.Semaphore(0)
        self._reached = threading.Semaphore(0)
        self._killed = False
        pool = ThreadPoolExecutor(1)
        self._running = pool.submit(self.publish_round)
        self._running.add_done_callback(lambda _: self._reached.release())
        pool.shutdown(wait=False)
        self._reached.acquire()

    @property
    def done(self) -> bool:
        return self._running.done()

    def result(self) -> None:
        """Raises what the round has raised."""
        self.cut = None
        self._running.result()

    def _make_value(self, cut: Cut, snapshot: FileSnapshot) -> None:
        self.cut = cut
        self._hold()
        super()._make_value(cut, snapshot)
        self._hold()

    def _hold(self) -> None:
        self._reached.release()
        self._turn.acquire()
        if self._killed:
            raise StoppedError

    def go_on(self) -> None:
        """Let it run to the next stop."""
        self._turn.release()
        self._reached.acquire()

    def kill(self) -> None:
        while not self.done:
            self._killed = True
            self.go_on()
        self.cut = None


class ContentMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.names: dict[bytes, ModelFile] = {}
        self.handles: dict[int, ModelFile] = {}
        self.step = 0
        self.checks = 0
        self.history: dict[bytes, list[bytes]] = {}
        self.expected: dict[bytes, tuple[ModelFile, bytes]] = {}
        self.publisher: PausingPublisher | None = None
        self.clouds = FakeClouds()
        folder = Path(tempfile.mkdtemp(prefix="hybrisfs-machine-"))
        self.disk = ForgetfulDisk(
            folder,
            Limits(
                InodeLimits(most_loaded=4), small_chunks(CHUNK), SMALL_BLOCKS, DatabaseLimits(redo_bytes=4096)
            ),
        )
        self.adopt(Rig(folder, self.clouds, segment_size=16 * CHUNK, environment=self.disk.environment))
        self.rig.commit()

    def adopt(self, rig: Rig) -> None:
        """A process has begun."""
        self.rig = rig
        self.reader = Reader()
        self.reader.catch_up(rig.db)
        self.disk.watch(rig.directory)

        def note_durable() -> None:
            self.durable = self.committed

        rig.db.after_commit = self.note_commit
        rig.db.after_durable = note_durable

    def note_commit(self) -> None:
        """What there is now survives a kill."""
        files = {*self.names.values(), *self.handles.values()}
        self.committed = Saved(dict(self.names), {file: bytes(file.data) for file in files})

    def teardown(self) -> None:
        try:
            self.clouds.down = False
            if self.publisher is not None:
                self.finish_round()
            for name, file in self.names.items():
                assert self.rig.read(self.rig.find(name)) == file.data
        finally:
            if self.publisher is not None:
                self.publisher.kill()
            self.rig.abandon()

    # -- helpers ---------------------------------------------------------------------------------

    def handle(self, pick: int) -> tuple[int, ModelFile]:
        numbers = sorted(self.handles)
        number = numbers[pick % len(numbers)]
        return number, self.handles[number]

    def named(self, pick: int) -> tuple[bytes, ModelFile]:
        names = sorted(self.names)
        name = names[pick % len(names)]
        return name, self.names[name]

    def content(self, kind: int, length: int) -> bytes:
        """Zeros, a byte that makes equal chunks, or bytes that occur nowhere else."""
        if kind < 2:
            return bytes([kind]) * length
        self.step += 1
        return bytes((self.step * 37 + at * 11) % 255 + 1 for at in range(length))

    def write_at(self, number: int, offset: int, data: bytes) -> None:
        file = self.handles[number]
        try:
            with self.rig.fs.state.transaction() as tx:
                assert self.rig.fs.write(tx, self.rig.fs.handle(number), offset, data) == len(data)
        except JournalFullError:
            assert not self.rig.journal.fits(len(data))
            return
        file.write(offset, data)

    def expect(self, inode: Inode, file: ModelFile) -> None:
        """What is here reads as the model says."""
        assert inode.size == len(file.data)
        with self.rig.fs.state.transaction() as tx:
            data = self.rig.fs.read(tx, inode, 0, 1 << 20)
        if not isinstance(data, Missing):
            assert data == file.data

    # -- programs --------------------------------------------------------------------------------

    @initialize(length=lengths)
    def first_file(self, length: int) -> None:
        self.create(0, 2, length)

    @precondition(lambda self: len(self.names) < len(NAMES) and len(self.handles) < 6)
    @rule(pick=picks, kind=st.integers(0, 4), length=lengths)
    def create(self, pick: int, kind: int, length: int) -> None:
        free = [name for name in NAMES if name not in self.names]
        name = free[pick % len(free)]
        with self.rig.fs.state.transaction() as tx:
            _, number = self.rig.fs.create(tx, ROOT_INO, name, 0o644, 1, 1, os.O_RDWR)
        self.names[name] = self.handles[number] = ModelFile(handles=1)
        self.write_at(number, 0, self.content(kind, length))

    @precondition(lambda self: self.names and len(self.handles) < 6)
    @rule(pick=picks, flags=st.sampled_from([os.O_RDWR, os.O_RDONLY, os.O_WRONLY | os.O_TRUNC]))
    def open(self, pick: int, flags: int) -> None:
        name, file = self.named(pick)
        with self.rig.fs.state.transaction() as tx:
            number = self.rig.fs.open(tx, self.rig.find(name).ino, flags)
        if flags & os.O_TRUNC:
            file.resize(0)
        self.handles[number] = file
        file.handles += 1

    @precondition(lambda self: self.handles)
    @rule(pick=picks)
    def release(self, pick: int) -> None:
        number, file = self.handle(pick)
        with self.rig.fs.state.transaction() as tx:
            self.rig.fs.release(tx, number)
        del self.handles[number]
        file.handles -= 1

    @precondition(lambda self: self.handles)
    @rule(pick=picks, offset=offsets, kind=st.integers(0, 5), length=lengths)
    def write(self, pick: int, offset: int, kind: int, length: int) -> None:
        self.write_at(self.handle(pick)[0], offset, self.content(kind, length))

    @precondition(lambda self: self.handles)
    @rule(pick=picks, kind=st.integers(0, 5), length=lengths)
    def append(self, pick: int, kind: int, length: int) -> None:
        number, file = self.handle(pick)
        if len(file.data) < 1000:
            self.write_at(number, len(file.data), self.content(kind, length))

    @precondition(lambda self: self.handles)
    @rule(pick=picks, at=st.integers(0, 500), kind=st.integers(0, 5), length=st.integers(1, 20))
    def overwrite(self, pick: int, at: int, kind: int, length: int) -> None:
        number, file = self.handle(pick)
        if file.data:
            self.write_at(number, at % len(file.data), self.content(kind, length))

    @precondition(lambda self: self.names)
    @rule(pick=picks, size=offsets)
    def truncate(self, pick: int, size: int) -> None:
        name, file = self.named(pick)
        with self.rig.fs.state.transaction() as tx:
            self.rig.fs.truncate(tx, self.rig.find(name), size)
        file.resize(size)

    @precondition(lambda self: self.handles)
    @rule(
        pick=picks,
        mode=st.sampled_from([0, _KEEP, _PUNCH, _ZERO, _ZERO | _KEEP]),
        offset=offsets,
        length=lengths,
    )
    def allocate(self, pick: int, mode: int, offset: int, length: int) -> None:
        number, file = self.handle(pick)
        with self.rig.fs.state.transaction() as tx:
            self.rig.fs.allocate(tx, self.rig.fs.handle(number), mode, offset, length)
        if not mode & _KEEP:
            file.resize(max(len(file.data), offset + length))
        if mode & ~_KEEP:
            end = min(offset + length, len(file.data))
            file.data[offset:end] = bytes(max(end - offset, 0))

    @precondition(lambda self: self.handles)
    @rule(pick=picks, offset=offsets, length=lengths)
    def read(self, pick: int, offset: int, length: int) -> None:
        number, file = self.handle(pick)
        try:
            found = self.rig.read(self.rig.fs.handle(number), offset, length)
        except ChunkUnavailable:
            assert self.clouds.down
        else:
            assert found == file.data[offset : offset + length]

    @precondition(lambda self: self.handles)
    @rule(pick=picks)
    def seek(self, pick: int) -> None:
        """SEEK_DATA and SEEK_HOLE walk the file; what they call a hole holds nothing."""
        number, file = self.handle(pick)
        inode, at, size = self.rig.fs.handle(number), 0, len(file.data)
        while at < size:
            with self.rig.fs.state.transaction() as tx:
                hole = self.rig.fs.content.seek(tx, inode, at, os.SEEK_HOLE)
                assert at <= hole <= size
                try:
                    data = self.rig.fs.content.seek(tx, inode, hole, os.SEEK_DATA) if hole < size else size
                except OSError:
                    data = size
            assert not any(file.data[hole:data])
            assert at < data
            at = data

    # -- names -----------------------------------------------------------------------------------

    @precondition(lambda self: self.names)
    @rule(pick=picks)
    def unlink(self, pick: int) -> None:
        name, _ = self.named(pick)
        with self.rig.fs.state.transaction() as tx:
            self.rig.fs.unlink(tx, ROOT_INO, name)
        del self.names[name]

    @precondition(lambda self: self.names)
    @rule(pick=picks, to=st.sampled_from(NAMES))
    def rename(self, pick: int, to: bytes) -> None:
        name, file = self.named(pick)
        with self.rig.fs.state.transaction() as tx:
            self.rig.fs.rename(tx, ROOT_INO, name, ROOT_INO, to, 0)
        if self.names.get(to) is not file:
            del self.names[name]
            self.names[to] = file

    @precondition(lambda self: self.names)
    @rule(pick=picks, other=picks)
    def exchange(self, pick: int, other: int) -> None:
        (one, first), (two, second) = self.named(pick), self.named(other)
        with self.rig.fs.state.transaction() as tx:
            self.rig.fs.rename(tx, ROOT_INO, one, ROOT_INO, two, RENAME_EXCHANGE)
        self.names[one], self.names[two] = second, first

    @precondition(lambda self: self.names and len(self.names) < len(NAMES))
    @rule(pick=picks, to=picks)
    def link(self, pick: int, to: int) -> None:
        name, file = self.named(pick)
        free = [one for one in NAMES if one not in self.names]
        new = free[to % len(free)]
        with self.rig.fs.state.transaction() as tx:
            self.rig.fs.link(tx, self.rig.find(name).ino, ROOT_INO, new)
        self.names[new] = file

    # -- the background --------------------------------------------------------------------------

    @precondition(lambda self: self.publisher is None)
    @rule(everything=st.booleans(), patience=st.booleans())
    def begin_round(self, everything: bool, patience: bool) -> None:
        rig = self.rig
        self.publisher = PausingPublisher(
            rig.fs, rig.chunker, rig.sharing.signer, rig.sharing.receiver, rig.signals
        )
        if everything:
            rig.signals.begin_flush()
        self.publisher.limits = CutLimits() if patience else CutLimits(hold_seconds=0.0)
        self.expected = self.what_may_be_published()
        self.publisher.begin()
        if everything:
            rig.signals.end_flush()
        if self.publisher.done:
            self.end_round()

    @precondition(lambda self: self.publisher is not None)
    @rule()
    def go_on(self) -> None:
        assert self.publisher is not None
        self.publisher.go_on()
        if self.publisher.done:
            self.end_round()

    @precondition(lambda self: self.publisher is not None)
    @rule()
    def finish_round(self) -> None:
        while self.publisher is not None:
            self.go_on()

    @rule(everything=st.booleans())
    def publish(self, everything: bool) -> None:
        """A round that nothing comes between."""
        if self.publisher is not None:
            self.finish_round()
        self.begin_round(everything, True)
        if self.publisher is not None:
            self.finish_round()

    def end_round(self) -> None:
        assert self.publisher is not None
        publisher, self.publisher = self.publisher, None
        publisher.result()
        self.reader.catch_up(self.rig.db)
        self.reader.tree()
        self.check_cut()
        if not self.clouds.down:
            check_published(self.rig, self.reader)

    def what_may_be_published(self) -> dict[bytes, tuple[ModelFile, bytes]]:
        """Of each name now: its file, and the file's bytes."""
        return {name: (file, bytes(file.data)) for name, file in self.names.items()}

    def check_cut(self) -> None:
        """What stands under a name is what stood there at the moment of this cut, or of an earlier one."""
        for path, identity in self.reader.tree().items():
            content = self.reader.nodes[identity].content
            data = b"" if content is None else read_content(content, self.rig.plaintexts.__getitem__)
            self.history.setdefault(path[0], [])
            assert self.reader.nodes[identity].attr is not None
            known = [bytes(one) for one in self.history[path[0]]]
            at_cut = self.expected.get(path[0])
            assert (at_cut is not None and at_cut[1] == data) or data in known, f"{path} was never like this"
            self.history[path[0]].append(data)

    @rule(meanwhile=st.none() | st.integers(0, 3), pick=picks)
    def pack(self, meanwhile: int | None, pick: int) -> None:
        """Upload all, while programs and the room maker go on."""
        if self.clouds.down:
            return

        def go_on(_: EncodedPack) -> None:
            if meanwhile is not None:
                (self.unlink_any, self.drop_cache, self.evict_all, self.write_any)[meanwhile](pick)

        self.clouds.before_put = go_on
        self.rig.pack()
        self.clouds.before_put = lambda _: None

    def unlink_any(self, pick: int) -> None:
        if self.names:
            self.unlink(pick)

    def evict_all(self, _: int) -> None:
        self.evict(1 << 20)

    def write_any(self, pick: int) -> None:
        if self.handles:
            self.write(pick, pick * 20, 3, CHUNK)
        if self.publisher is None:
            self.publish(True)

    @rule(room=st.none() | st.integers(0, 200))
    def shortage(self, room: int | None) -> None:
        """The cache may hold so many bytes more."""
        self.rig.journal.budget = 1 << 30 if room is None else self.rig.journal.bytes + room

    @rule()
    def commit(self) -> None:
        self.rig.commit()

    @rule()
    def commit_without_sync(self) -> None:
        """The commit is there for a crash, not yet for a power cut."""
        with self.rig.fs.state.transaction() as tx:
            self.rig.journal.sync()
            self.rig.fs.commit(tx)

    @precondition(lambda self: self.handles)
    @rule(
        pick=picks,
        writes=st.lists(
            st.tuples(offsets, st.integers(0, 5), lengths, st.booleans()), min_size=1, max_size=4
        ),
        new=st.booleans(),
        end=st.integers(0, 3),
    )
    def sync_by_records(
        self, pick: int, writes: list[tuple[int, int, int, bool]], new: bool, end: int
    ) -> None:
        """Fsyncs that need no commit; the power may fail before the last of them are done."""
        self.rig.state.prepare_records()
        self.rig.commit()
        if new and len(self.names) < len(NAMES) and len(self.handles) < 6:
            self.create(pick, 2, CHUNK)
        number, _ = self.handle(pick)
        for offset, kind, length, is_durable in writes:
            self.write_at(number, offset, self.content(kind, length))
            with self.rig.fs.state.transaction() as tx:
                recorded = self.rig.fs.record(tx)
            if recorded:
                self.note_commit()
                if is_durable:
                    assert self.rig.state.sync_records()
                    self.durable = self.committed
        if end == 0:
            self.crash()
        elif end == 1:
            self.cut_power()

    @rule(_=st.just(0))
    def drop_cache(self, _: int) -> None:
        self.rig.room.drop_all()

    @rule(wanted=st.integers(1, 3000))
    def evict(self, wanted: int) -> None:
        self.rig.room.evict(wanted)

    @rule(down=st.booleans())
    def weather(self, down: bool) -> None:
        self.clouds.down = down

    # -- restarts --------------------------------------------------------------------------------

    @rule()
    def restart(self) -> None:
        if self.publisher is not None:
            self.finish_round()
        self.adopt(self.rig.reopen())
        self.begin_anew(None)

    @rule()
    def crash(self) -> None:
        self.adopt(self.rig.crashed(before_leaving=self.kill_publisher))
        self.begin_anew(self.committed)

    @rule()
    def cut_power(self) -> None:
        self.adopt(self.rig.powerless(self.disk, before_leaving=self.kill_publisher))
        self.begin_anew(self.durable)

    def kill_publisher(self) -> None:
        if self.publisher is not None:
            self.publisher.kill()
            self.publisher = None

    def begin_anew(self, saved: Saved | None) -> None:
        """Nothing is open any more; with *saved*, the model becomes what a crash has left of it."""
        self.handles.clear()
        if saved is not None:
            self.names = dict(saved.names)
            self.clouds.down = False
            for name, file in self.names.items():
                file.data[:] = saved.data[file]
                assert self.rig.read(self.rig.find(name)) == file.data, f"{name!r} after a crash"
        for file in self.names.values():
            file.handles = 0
        self.rig.commit()

    # -- what always holds -----------------------------------------------------------------------

    @invariant()
    def reads_like_the_model(self) -> None:
        with self.rig.fs.state.transaction() as tx:
            entries = self.rig.fs.names.list(tx, ROOT_INO, 0, 100)
        assert sorted(name for _, name, _ in entries) == sorted(self.names)
        for name, file in self.names.items():
            self.expect(self.rig.find(name), file)
        for number, file in self.handles.items():
            self.expect(self.rig.fs.handle(number), file)

    @invariant()
    def accounts_agree(self) -> None:
        # Not at every step: it writes into the database what would otherwise be in memory only.
        self.checks += 1
        if self.checks % 3:
            return
        cut = self.publisher.cut if self.publisher is not None else None
        with self.rig.fs.state.transaction():
            check_accounts(self.rig, cut.files if cut is not None else [])
            check_chunks(self.rig)


TestContent = ContentMachine.TestCase
TestContent.settings = settings(
    max_examples=settings().max_examples,
    stateful_step_count=40,
    phases=set(Phase) - {Phase.explain},
)
