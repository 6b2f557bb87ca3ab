"""The pinner: what is pinned comes, and stays."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Sequence
from unittest import mock

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from hybrisfs.dispersal.pack import ChunkLocation
from hybrisfs.environment import SYSTEM
from hybrisfs.read.evict import RoomLimits
from hybrisfs.read.pin import PinLimits, Pinner
from hybrisfs.registers.tree import Content, Run, content_key
from hybrisfs.stages import Pause, Stage, Wake
from hybrisfs.state.pins import Measure
from tests.merge.fleet import Fleet
from tests.read.full import nothing_can_be_added
from tests.surroundings import limited
from tests.tree.invariants import check_accounts, check_chunks
from tests.tree.rig import SEALER, SMALL_BLOCKS, Rig, small_chunks

PATIENCE = 30.0


@pytest.fixture
def fleet(request: pytest.FixtureRequest) -> Iterator[Fleet]:
    """Two devices, with limits if a test gives some."""
    environment = limited(request.param) if hasattr(request, "param") else SYSTEM
    one = Fleet(2, environment=lambda _: environment)
    yield one
    one.discard()


def pinner_of(rig: Rig) -> Pinner:
    return Pinner(rig.fs, rig.fetcher, rig.room, rig.reading.copies, rig.signals, rig.committer)


def bring_pinned(rig: Rig, pinner: Pinner | None = None) -> bool:
    rig.commit()
    done = (pinner or pinner_of(rig)).pin_round()
    rig.commit()
    return done


def test_nothing_is_fetched_that_is_not_pinned(fleet: Fleet) -> None:
    fleet[0].write("file", b"content")
    fleet.send(0, 1)
    assert bring_pinned(fleet[1].rig)
    assert not fleet.clouds.gets


def test_a_pinned_folder_comes_and_is_read_without_clouds(fleet: Fleet) -> None:
    fleet[0].rig.chunker.limits = small_chunks(512)
    fleet[0].mkdir("music")
    fleet[0].mkdir("music/album")
    fleet[0].write("music/album/long", bytes(range(256)) * 40)  # the list of its chunks has to come, too
    fleet[0].write("music/short", b"la")
    fleet[0].write("other", b"not wanted" * 200)
    fleet.send(0, 1)
    rig = fleet[1].rig
    rig.fs.pins.add(rig.tx, fleet[1].at("music"))
    pinner = pinner_of(rig)
    assert bring_pinned(rig, pinner)
    assert bring_pinned(rig, pinner)  # now it is known what the long file is made of
    assert bring_pinned(rig, pinner)
    assert pinner.kept == Measure(2, 256 * 40 + 2 - 19 * 512, 0)  # equal chunks count once
    assert pinner.trouble is None
    fleet.clouds.down = True
    assert fleet[1].read("music/album/long") == bytes(range(256)) * 40
    assert fleet[1].read("music/short") == b"la"


def test_what_comes_later_is_kept_as_well(fleet: Fleet) -> None:
    fleet[0].mkdir("music")
    fleet[0].write("loose", b"moved in later")
    fleet.send(0, 1)
    rig = fleet[1].rig
    rig.fs.pins.add(rig.tx, fleet[1].at("music"))
    assert bring_pinned(rig)
    assert not fleet.clouds.gets
    fleet[0].write("music/new", b"new content")
    fleet.send(0, 1)
    fleet[1].move("loose", "music/moved")
    assert bring_pinned(rig)
    fleet.clouds.down = True
    assert fleet[1].read("music/new") == b"new content"
    assert fleet[1].read("music/moved") == b"moved in later"


def test_while_the_clouds_are_down_it_is_said_and_tried_again(fleet: Fleet) -> None:
    fleet[0].mkdir("music")
    for number in range(20):
        fleet[0].write(f"music/{number}", b"%d" % number * 1000)
    fleet.send(0, 1)
    rig = fleet[1].rig
    rig.fs.pins.add(rig.tx, fleet[1].at("music"))
    pinner = pinner_of(rig)
    fleet.clouds.down = True
    assert not bring_pinned(rig, pinner)
    assert pinner.trouble
    assert len(fleet.clouds.gets) <= 24  # it gives up, instead of asking for each
    fleet.clouds.down = False
    assert bring_pinned(rig, pinner)
    assert pinner.trouble is None


@pytest.mark.parametrize("fleet", [PinLimits(fetchers=1)], indirect=True)
def test_one_chunk_that_cannot_be_had_does_not_keep_the_others(fleet: Fleet) -> None:
    fleet[0].mkdir("music")
    for number in range(6):
        fleet[0].write(f"music/{number}", b"%d" % number * 1000)
        fleet.send(0, 1)  # a pack of its own
    rig = fleet[1].rig
    rig.fs.pins.add(rig.tx, fleet[1].at("music"))
    lost = next(iter(fleet.clouds.packs))

    def lose_one(locations: Sequence[ChunkLocation]) -> None:
        fleet.clouds.down = any(one.pack_id == lost for one in locations)

    pinner = pinner_of(rig)
    fleet.clouds.before_get = lose_one
    assert not bring_pinned(rig, pinner)
    assert not bring_pinned(rig, pinner)
    assert pinner.kept == Measure(6, 6000, 1000)


def test_what_nobody_has_told_the_place_of_is_waited_for(fleet: Fleet) -> None:
    fleet[0].write("file", b"content")
    fleet[0].rig.publish(everything=True)
    fleet[1].receive(fleet[0].log())
    rig = fleet[1].rig
    rig.fs.pins.add(rig.tx, fleet[1].at("file"))
    pinner = pinner_of(rig)
    assert bring_pinned(rig, pinner)
    assert pinner.kept == Measure(1, 7, 7)
    assert not fleet.clouds.gets
    fleet.send(0, 1)
    assert bring_pinned(rig, pinner)
    fleet.clouds.down = True
    assert fleet[1].read("file") == b"content"


def test_a_pinned_folder_that_grows_beyond_the_budget_leaves_room_for_the_rest(fleet: Fleet) -> None:
    fleet[0].mkdir("music")
    fleet.send(0, 1)
    rig = fleet[1].rig
    rig.journal.budget = 100_000
    rig.fs.pins.add(rig.tx, fleet[1].at("music"))
    for number in range(10):
        fleet[0].write(f"music/{number}", os.urandom(15_000))
        fleet.send(0, 1)  # a pack of its own
    pinner = pinner_of(rig)
    for _ in range(2):
        assert not bring_pinned(rig, pinner)
        assert "more is pinned than 80% of the cache's budget" in str(pinner.trouble)
        assert 0 < rig.journal.bytes <= 80_000
    rig.journal.budget = 1_000_000
    assert bring_pinned(rig, pinner)
    rig.journal.budget = 100_000
    assert not bring_pinned(rig, pinner)


def test_a_list_of_chunks_that_is_none_is_an_error_like_another(fleet: Fleet) -> None:
    fleet[0].write("text", b"this is not a list of chunks")
    fleet[0].write("file", b"content")
    fleet[0].sign()
    run = Run(25, SEALER.chunk_id(b"this is not a list of chunks"))
    content = Content(25, 1, [run]).encode()
    fleet[0].rig.updates.sign([(content_key(fleet[0].at("file").id), content)], 0, 0)
    fleet[1].receive(fleet[0].log())
    rig = fleet[1].rig
    rig.fs.pins.add(rig.tx, fleet[1].at("file"))
    pinner = pinner_of(rig)
    assert not bring_pinned(rig, pinner)
    assert pinner.trouble == "Input/output error"


@pytest.mark.parametrize("fleet", [RoomLimits(patience_seconds=0.0)], indirect=True)
def test_without_room_nothing_is_fetched_in_vain(fleet: Fleet) -> None:
    fleet[0].write("file", b"content")
    fleet.send(0, 1)
    rig = fleet[1].rig
    rig.fs.pins.add(rig.tx, fleet[1].at("file"))
    pinner = pinner_of(rig)
    fleet[1].write("pending", b"what no cloud has yet")
    budget = rig.journal.budget
    rig.journal.budget = rig.journal.bytes + 7
    assert not bring_pinned(rig, pinner)
    assert "no room" in str(pinner.trouble)
    assert not fleet.clouds.gets
    rig.journal.budget = budget
    with nothing_can_be_added(rig):
        assert not bring_pinned(rig, pinner)
    assert "kept" in str(pinner.trouble)
    assert bring_pinned(rig, pinner)


def test_the_thread_comes_when_it_is_called_and_ends_when_told(fleet: Fleet) -> None:
    fleet[0].write("file", b"content")
    fleet.send(0, 1)
    rig = fleet[1].rig
    pinner = pinner_of(rig)
    looked, kept = threading.Event(), threading.Event()

    def step() -> Pause:
        pause = pinner.step()
        looked.set()
        if rig.fs.pins and not rig.db.rows.execute("SELECT 1 FROM chunk WHERE segment IS NULL").fetchone():
            kept.set()
        return pause

    stage = Stage("pin", step, rig.signals.waiting(Wake.CONTENT), moves=True)
    thread = threading.Thread(target=stage.run, args=(rig.signals, lambda error: False))
    thread.start()
    try:
        assert looked.wait(PATIENCE)
        with rig.fs.state.transaction() as tx:
            rig.fs.pins.add(tx, fleet[1].at("file"))
        rig.commit()
        rig.signals.content_wanted()
        assert kept.wait(PATIENCE)
    finally:
        rig.signals.stop()
        thread.join(PATIENCE)
    assert not thread.is_alive()


@pytest.mark.parametrize("fleet", [PinLimits(commit_every=3600.0)], indirect=True)
def test_what_a_linked_device_tells_is_seen_before_the_next_commit(fleet: Fleet) -> None:
    fleet[0].mkdir("music")
    fleet.send(0, 1)
    rig = fleet[1].rig
    rig.fs.pins.add(rig.tx, fleet[1].at("music"))
    rig.commit()
    pinner = pinner_of(rig)

    def seen(name: str) -> int:
        fleet[0].write(f"music/{name}", b"content of " + name.encode())
        fleet.send(0, 1)
        assert pinner.pin_round()
        return pinner.kept.files

    assert seen("while there is no link") == 0
    rig.signals.brisk = True
    assert seen("then") == 2
    assert seen("too soon") == 2


def test_a_commit_that_fails_leaves_what_was_committed_to_be_looked_at(fleet: Fleet) -> None:
    fleet[0].write("file", b"content")
    fleet.send(0, 1)
    rig = fleet[1].rig
    rig.fs.pins.add(rig.tx, fleet[1].at("file"))
    rig.commit()
    fleet[1].write("other", b"uncommitted")
    rig.signals.brisk = True
    pinner = pinner_of(rig)
    full = mock.Mock(side_effect=OSError(28, "the disk is full"))
    rig.db.before_commit = full
    assert pinner.pin_round()
    full.assert_called()
    assert pinner.kept.files == 1


def test_what_a_linked_device_has_comes_many_at_once(fleet: Fleet) -> None:
    fleet[0].mkdir("music")
    for number in range(20):
        fleet[0].write(f"music/{number}", b"%d" % number * 1000)
    fleet[0].rig.publish(everything=True)
    fleet[1].receive(fleet[0].log())  # where the chunks are on the clouds nobody knows yet
    rig = fleet[1].rig
    rig.fs.pins.add(rig.tx, fleet[1].at("music"))
    asked: list[int] = []

    def ask(identities: Sequence[bytes], _seconds: float) -> list[bytes | None]:
        asked.append(len(identities))
        return [fleet[0].rig.plaintexts[one] for one in identities]

    pinner = pinner_of(rig)
    rig.signals.brisk = True
    rig.links.ask = ask
    assert bring_pinned(rig, pinner)
    assert asked == [20]
    fleet.clouds.down = True
    for number in range(20):
        assert fleet[1].read(f"music/{number}") == b"%d" % number * 1000
    assert bring_pinned(rig, pinner)
    assert pinner.kept.missing == 0


@pytest.mark.parametrize(
    "fleet", [PinLimits(fetchers=1, slice_chunks=1, commit_every=0.0, looking_share=0.0)], indirect=True
)
def test_what_comes_to_be_wanted_is_asked_for_in_the_same_round_and_nothing_twice(fleet: Fleet) -> None:
    fleet[0].mkdir("music")
    for number in range(4):
        fleet[0].write(f"music/{number}", b"%d" % number * 1000)
    fleet[0].rig.publish(everything=True)
    fleet[1].receive(fleet[0].log())
    rig = fleet[1].rig
    rig.fs.pins.add(rig.tx, fleet[1].at("music"))
    rig.commit()
    asked: list[bytes] = []
    calls = 0

    def ask(identities: Sequence[bytes], _seconds: float) -> list[bytes | None]:
        nonlocal calls
        calls += 1
        if not asked:  # while the first one is under way, another device tells of more
            fleet[0].write("music/more", b"more" * 1000)
            fleet[0].rig.publish(everything=True)
            fleet[1].receive(fleet[0].log())
            rig.commit()
            rig.signals.content_wanted()
        asked.extend(identities)
        return [fleet[0].rig.plaintexts[one] for one in identities]

    pinner = pinner_of(rig)
    rig.signals.brisk = True
    rig.links.ask = ask
    assert pinner.pin_round()
    assert len(asked) == calls == 5
    fleet.clouds.down = True
    assert fleet[1].read("music/more") == b"more" * 1000


@pytest.mark.parametrize("fleet", [PinLimits(fetchers=1, slice_chunks=1, looking_share=0.0)], indirect=True)
def test_what_could_not_be_had_is_not_tried_again_in_the_same_round(fleet: Fleet) -> None:
    fleet[0].mkdir("music")
    for number in range(3):
        fleet[0].write(f"music/{number}", b"%d" % number * 1000)
        fleet.send(0, 1)
    rig = fleet[1].rig
    rig.fs.pins.add(rig.tx, fleet[1].at("music"))
    rig.commit()
    fleet.clouds.down = True
    tried: list[bytes] = []

    def note(locations: Sequence[ChunkLocation]) -> None:
        tried.extend(one.chunk_id for one in locations)
        rig.signals.content_wanted()

    fleet.clouds.before_get = note

    pinner = pinner_of(rig)
    assert not pinner.pin_round()
    assert len(tried) == len(set(tried)) == 3


FOLDERS = (b"a", b"b", b"c")
paths = st.tuples(st.sampled_from(FOLDERS), st.sampled_from((b"x", b"y", b"z")))


class Keeping(RuleBasedStateMachine):
    """Whatever is done, what is pinned and has come stays readable without any cloud, and nothing is lost."""

    def __init__(self) -> None:
        super().__init__()
        limits = limited(small_chunks(256), SMALL_BLOCKS)
        self.rig = Rig(segment_size=2048, budget=1 << 20, environment=limits)
        self.folders = {name: self.rig.mkdir(name) for name in FOLDERS}
        self.files: dict[tuple[bytes, bytes], bytes] = {}
        self.counter = 0

    def teardown(self) -> None:
        self.rig.discard()

    def inode_at(self, path: tuple[bytes, bytes]) -> int:
        return self.rig.find(path[1], self.folders[path[0]]).ino

    @initialize()
    def begin(self) -> None:
        self.write((b"a", b"x"), 700)

    @rule(path=paths, size=st.integers(0, 1500))
    def write(self, path: tuple[bytes, bytes], size: int) -> None:
        self.counter += 1
        content = (b"%d " % self.counter * (size // 2 + 1))[:size]
        if path in self.files:
            handle = self.rig.fs.open(self.rig.tx, self.inode_at(path), os.O_WRONLY | os.O_TRUNC)
            self.rig.fs.write(self.rig.tx, self.rig.fs.handle(handle), 0, content)
            self.rig.fs.release(self.rig.tx, handle)
        else:
            self.rig.make(path[1], content, self.folders[path[0]])
        self.files[path] = content

    @rule(path=paths, to=paths)
    def move(self, path: tuple[bytes, bytes], to: tuple[bytes, bytes]) -> None:
        if path in self.files and path != to:
            self.rig.fs.rename(self.rig.tx, self.folders[path[0]], path[1], self.folders[to[0]], to[1], 0)
            self.files[to] = self.files.pop(path)

    @rule(path=paths)
    def remove(self, path: tuple[bytes, bytes]) -> None:
        if self.files.pop(path, None) is not None:
            self.rig.fs.unlink(self.rig.tx, self.folders[path[0]], path[1])

    @rule()
    def upload(self) -> None:
        self.rig.publish()
        self.rig.pack()

    @rule(folder=st.sampled_from(FOLDERS))
    def pin(self, folder: bytes) -> None:
        self.rig.fs.pins.add(self.rig.tx, self.rig.find(folder))

    @rule(folder=st.sampled_from(FOLDERS))
    def unpin(self, folder: bytes) -> None:
        self.rig.fs.pins.remove(self.rig.tx, self.rig.find(folder))

    @rule(shortage=st.booleans(), size=st.sampled_from((1, 4000, 1 << 40)))
    def evict(self, shortage: bool, size: int) -> None:
        self.rig.room._thinned.clear()
        self.rig.room.evict(size, shortage=shortage)

    @rule(folder=st.sampled_from(FOLDERS))
    def evict_folder(self, folder: bytes) -> None:
        rows = self.rig.db.rows.execute(
            "SELECT f.chunk FROM place p JOIN file_chunk f ON f.ino = p.ino WHERE p.parent = ?",
            (self.folders[folder],),
        ).fetchall()
        self.rig.room.evict_chunks([number for (number,) in rows])
        bring_pinned(self.rig)

    @rule()
    def bring_and_evict_all(self) -> None:
        """What is kept by what is pinned now can be read although everything else has gone."""
        assert bring_pinned(self.rig)
        self.rig.room.drop_all()
        self.rig.clouds.down = True
        for path, content in self.files.items():
            if self.is_pinned(path[0]):
                assert self.rig.read(self.rig.find(path[1], self.folders[path[0]])) == content
        self.rig.clouds.down = False

    @rule()
    def restart(self) -> None:
        self.rig = self.rig.reopen()

    @rule()
    def crash(self) -> None:
        self.rig.commit()
        self.rig = self.rig.crashed()

    def is_pinned(self, folder: bytes) -> bool:
        row = self.rig.db.rows.execute(
            "SELECT 1 FROM hoard h JOIN node n ON n.id = h.id WHERE n.ino = ?", (self.folders[folder],)
        ).fetchone()
        return row is not None

    @invariant()
    def nothing_is_lost(self) -> None:
        for (folder, name), content in self.files.items():
            inode = self.rig.find(name, self.folders[folder])
            assert self.rig.fs.content.total_bytes >= len(content)
            assert inode.size == len(content)

    @rule()
    def read_all(self) -> None:
        for (folder, name), content in self.files.items():
            assert self.rig.read(self.rig.find(name, self.folders[folder])) == content
        check_accounts(self.rig, [])
        check_chunks(self.rig)


TestKeeping = Keeping.TestCase
TestKeeping.settings = settings(max_examples=40, stateful_step_count=25, deadline=None)
