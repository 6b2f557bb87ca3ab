"""What another device made and no cloud is known to have: it stays here, counts, and is taken over."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from hybrisfs.environment import SYSTEM, Environment
from hybrisfs.state.unplaced import UnplacedContent
from hybrisfs.tree.residency import State, Unplaced
from hybrisfs.write.layout import ChunkLimits
from tests.merge.fleet import Fleet
from tests.tree.invariants import check_accounts
from tests.tree.rig import Rig, small_chunks

CONTENT = os.urandom(9000)
NOTHING = UnplacedContent(0, 0, ())


class Linked:
    """A device that wrote a file while all clouds were down, and one that has heard of it over a link."""

    def __init__(self, environment: Environment = SYSTEM) -> None:
        self.fleet = Fleet(2, environment=lambda _: environment)
        self.author, self.near = self.fleet.devices
        self.author.write("file", CONTENT)
        self.tell()

    @property
    def rig(self) -> Rig:
        return self.near.rig

    @property
    def unplaced(self) -> Unplaced:
        return Unplaced(self.rig.fs)

    def tell(self) -> None:
        while self.author.rig.publish(everything=True):
            pass
        self.near.receive(self.author.log())

    def read(self, few: int | None = None) -> None:
        """Let the bytes come over the link, as a program that reads has them come."""
        with self.rig.fs.state.transaction() as tx:
            rows = self.rig.db.rows.execute("SELECT number, id FROM chunk WHERE segment IS NULL").fetchall()
            for number, identity in rows[:few]:
                tx.chunks.keep(number, self.author.rig.plaintexts[identity])

    def state(self) -> State:
        return self.rig.reading.residency.state(self.rig.tx, self.near.at("file"))

    def restart(self) -> None:
        self.near.rig = self.rig.reopen()


@pytest.fixture
def linked() -> Iterator[Linked]:
    one = Linked()
    yield one
    one.fleet.discard()


def test_it_counts_whether_it_is_here_or_not(linked: Linked) -> None:
    author = linked.author.key.device_id
    assert linked.unplaced.count(linked.rig.tx) == UnplacedContent(1, len(CONTENT), (author,))
    linked.read()
    assert linked.unplaced.count(linked.rig.tx) == UnplacedContent(1, len(CONTENT), (author,))
    assert linked.state() is State.UPLOADING
    linked.fleet.send(0, 1)
    assert linked.unplaced.count(linked.rig.tx) == NOTHING
    assert linked.state() is State.DURABLE


def test_content_that_is_not_here_and_on_no_cloud_is_not_called_cloud_only(linked: Linked) -> None:
    assert linked.state() is State.UPLOADING
    linked.fleet.send(0, 1)
    assert linked.state() is State.CLOUD_ONLY


@pytest.mark.parametrize("restarted", [False, True])
def test_no_eviction_takes_it(linked: Linked, restarted: bool) -> None:
    linked.read()
    linked.rig.commit()
    if restarted:
        linked.restart()
    rig = linked.rig
    check_accounts(rig, [])
    rig.room.drop_all()
    rig.room.evict(1 << 40)
    numbers = [number for (number,) in rig.db.rows.execute("SELECT number FROM chunk")]
    assert rig.room.evict_chunks(numbers) == 0
    assert linked.near.read("file") == CONTENT
    assert linked.state() is State.UPLOADING
    check_accounts(rig, [])
    linked.fleet.send(0, 1)
    check_accounts(rig, [])
    rig.room.drop_all()
    assert linked.state() is State.CLOUD_ONLY


def test_a_part_of_a_file_that_is_here_stays_among_cache(linked: Linked) -> None:
    """The rest of its segment goes as holes."""
    linked.author.rig.chunker.limits = ChunkLimits(4096)
    linked.author.write("cache", os.urandom(40_000))
    linked.fleet.send(0, 1)
    linked.near.read("cache")
    linked.author.write("late", CONTENT)
    linked.tell()
    linked.read()
    before = linked.rig.journal.bytes
    freed, _ = linked.rig.room.drop_all()
    assert 30_000 < freed < before
    linked.rig.clouds.down = True
    assert linked.near.read("late") == CONTENT


def test_what_no_file_names_any_more_goes_when_there_is_no_other_room(linked: Linked) -> None:
    linked.read()
    linked.author.remove("file")
    linked.tell()
    rig = linked.rig
    assert linked.unplaced.count(linked.rig.tx) == NOTHING
    rig.room.evict(1 << 40, shortage=False)
    assert rig.db.rows.execute("SELECT count(*) FROM chunk WHERE segment IS NOT NULL").fetchone() == (1,)
    rig.room.evict(1 << 40)
    assert rig.journal.bytes == 0
    check_accounts(rig, [])


def test_the_budget_is_kept_although_nothing_may_go(linked: Linked) -> None:
    """What finds no room is not kept; the author still has it."""
    linked.rig.journal.budget = 4096
    linked.read()
    assert linked.rig.journal.bytes <= 4096
    assert linked.unplaced.count(linked.rig.tx).files == 1
    check_accounts(linked.rig, [])


def test_it_is_taken_over_by_whoever_holds_it_when_its_author_is_away(linked: Linked) -> None:
    author, near = linked.author.key.device_id, linked.near.key.device_id
    unplaced = linked.unplaced
    assert not unplaced.take_over(linked.rig.tx, [author]), "nothing of it is here"
    linked.read()
    assert not unplaced.take_over(linked.rig.tx, [near])
    assert unplaced.take_over(linked.rig.tx, [author])
    check_accounts(linked.rig, [])
    assert unplaced.count(linked.rig.tx) == NOTHING and linked.state() is State.UPLOADING
    linked.rig.pack()
    assert linked.rig.unpacked() == 0
    check_accounts(linked.rig, [])


def test_a_long_file_counts_and_is_taken_over_with_its_lists(linked: Linked) -> None:
    linked.author.rig.chunker.limits = small_chunks()
    linked.author.write("long", b"".join(os.urandom(4096) for _ in range(8)))
    linked.tell()
    assert linked.unplaced.count(linked.rig.tx).size == len(CONTENT) + 8 * 4096
    linked.read()  # the lists
    with linked.rig.fs.state.transaction() as tx:
        assert linked.rig.fs.received.lacking(tx, linked.near.at("long")) is None
    linked.read()
    assert linked.unplaced.count(linked.rig.tx).size == len(CONTENT) + 8 * 4096
    assert linked.unplaced.take_over(linked.rig.tx, [linked.author.key.device_id])
    linked.rig.pack()
    assert linked.unplaced.count(linked.rig.tx) == NOTHING
    check_accounts(linked.rig, [])


def test_what_was_there_before_may_be_asked_for_alone(linked: Linked) -> None:
    unplaced = linked.unplaced
    before = unplaced.newest(linked.rig.tx)
    assert unplaced.is_left(linked.rig.tx, before)
    linked.author.rig.pack()
    linked.author.write("later", b"x" * 100)
    linked.tell()
    assert not unplaced.is_left(linked.rig.tx, before) and unplaced.is_left(linked.rig.tx)


def test_counting_takes_a_small_part_of_the_time() -> None:
    """What was counted before is told again in the rest of the time, but for nothing at all."""
    now = step = 0.0

    def look_at_clock() -> float:
        nonlocal now
        now += step
        return now

    linked = Linked(Environment(monotonic=look_at_clock))
    unplaced, step = linked.unplaced, 5.0
    assert unplaced.count(linked.rig.tx).files == 1
    step = 0.0
    linked.author.write("more", b"x" * 100)
    linked.tell()
    assert unplaced.count(linked.rig.tx).files == unplaced.count(linked.rig.tx).files == 1
    now, step = 60.0, 5.0
    assert unplaced.count(linked.rig.tx).files == 2
    step = 0.0
    linked.fleet.send(0, 1)
    assert unplaced.count(linked.rig.tx) == NOTHING
    linked.fleet.discard()
