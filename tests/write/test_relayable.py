"""Data before the metadata that names it, also when it is another device's."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from hybrisfs.state.chunk_states import ELSEWHERE
from hybrisfs.write.relayer import RelayGate
from tests.merge.fleet import Fleet
from tests.tree.rig import small_chunks


class Gate:
    """What the second device may relay of the first one's updates."""

    def __init__(self) -> None:
        self.fleet = Fleet(2)
        self.author, self.near = self.fleet.devices
        rig = self.near.rig
        self.gate = RelayGate(rig.fs, rig.signals)

    def publish(self) -> None:
        """The author signs an update; its chunks stay at home."""
        while self.author.rig.publish(everything=True):
            pass

    def count(self, *, take_over: bool = False, forgo: bool = False) -> int:
        """Hand over all updates; how many may go on."""
        updates = self.author.log()
        self.near.receive(updates)
        with self.near.rig.fs.state.transaction() as tx:
            return self.gate.count(tx, updates, take_over=take_over, forgo=forgo)

    def bring(self, few: int | None = None) -> None:
        """Let the chunks that only the author holds be here too."""
        near = self.near.rig
        with near.fs.state.transaction() as tx:
            rows = near.db.rows.execute("SELECT number, id FROM chunk WHERE segment IS NULL").fetchall()
            for number, identity in rows[:few]:
                tx.chunks.keep(number, self.author.rig.plaintexts[identity])

    def taken_over(self) -> int:
        return self.near.rig.unpacked()


@pytest.fixture
def gate() -> Iterator[Gate]:
    one = Gate()
    yield one
    one.fleet.discard()


def test_what_names_no_chunk_may_go(gate: Gate) -> None:
    gate.author.mkdir("folder")
    gate.publish()
    gate.author.write("empty", b"")
    gate.publish()
    assert gate.count() == len(gate.author.log()) == 2


def test_nothing_overtakes_a_content_that_waits(gate: Gate) -> None:
    gate.author.mkdir("before")
    gate.publish()
    gate.author.write("file", b"content")
    gate.publish()
    gate.author.mkdir("after")
    gate.publish()
    assert gate.count() == 1
    gate.author.rig.pack()
    assert gate.count() == len(gate.author.log())


def test_what_is_here_is_taken_over_once_and_counts_when_the_clouds_have_it(gate: Gate) -> None:
    gate.author.write("file", b"content")
    gate.publish()
    assert gate.count(take_over=True) == 0
    assert gate.taken_over() == 0, "its bytes are not here"
    gate.bring()
    assert gate.count() == 0
    assert gate.taken_over() == 0, "nobody asked for it"
    assert gate.count(take_over=True) == 0
    pins = gate.near.rig.journal.dirty_pieces.copy()
    assert gate.taken_over() == 1 and pins.total() == 1
    assert gate.count(take_over=True) == 0
    assert gate.near.rig.journal.dirty_pieces == pins
    gate.near.rig.pack()
    assert gate.count() == 1
    assert gate.near.rig.journal.dirty_pieces.total() == 0


def test_all_chunks_that_are_here_are_taken_over_at_once(gate: Gate) -> None:
    gate.author.rig.chunker.limits = small_chunks()
    gate.author.write("file", b"".join(bytes([n]) * 4096 for n in range(4)))
    gate.publish()
    gate.count()
    gate.bring(3)
    assert gate.count(take_over=True) == 0
    assert gate.taken_over() == 3


def test_a_content_that_was_replaced_is_not_waited_for(gate: Gate) -> None:
    gate.author.write("file", b"draft")
    gate.publish()
    assert gate.count() == 0
    gate.author.write("file", b"final")
    gate.publish()
    assert gate.count() == 0
    near = gate.near.rig
    with near.fs.state.transaction() as tx:
        ((final,),) = near.db.rows.execute("SELECT chunk FROM file_chunk").fetchall()
        tx.chunks.keep(final, b"final")
    assert gate.count(take_over=True) == 0
    near.pack()
    assert gate.count() == 2
    assert near.db.rows.execute("SELECT count(*) FROM chunk WHERE pack = ?", (ELSEWHERE,)).fetchone() == (1,)


def test_a_file_that_is_gone_is_not_waited_for(gate: Gate) -> None:
    gate.author.write("scratch", b"content")
    gate.publish()
    assert gate.count() == 0
    gate.author.remove("scratch")
    gate.publish()
    assert gate.count() == 2


def test_one_of_two_names_that_is_gone_does_not_free_the_file(gate: Gate) -> None:
    gate.author.write("one", b"content")
    gate.author.link("one", "two")
    gate.publish()
    gate.author.remove("one")
    gate.publish()
    assert gate.count() == 0


def test_the_chunks_of_a_long_list_are_looked_at_too(gate: Gate) -> None:
    gate.author.rig.chunker.limits = small_chunks()
    gate.author.write("file", b"".join(bytes([n]) * 4096 for n in range(8)))
    gate.publish()
    gate.count()
    pages = gate.near.rig.db.rows.execute("SELECT count(*) FROM content_page").fetchone()[0]
    assert pages > 1
    gate.bring()
    near = gate.near.rig
    assert gate.count(take_over=True) == 0
    near.pack()
    assert near.db.rows.execute("SELECT count(*) FROM chunk WHERE pack = ?", (ELSEWHERE,)).fetchone() == (0,)
    assert gate.count(take_over=True) == 0, "the list is there, what it lists is not"
    with near.fs.state.transaction() as tx:
        assert near.fs.received.lacking(tx, gate.near.at("file")) is None
    gate.bring()
    assert gate.count(take_over=True) == 0
    near.pack()
    assert gate.count() == 1


def test_a_list_that_cannot_be_had_is_not_waited_for_without_end(gate: Gate) -> None:
    """A member says that the list is in some pack, where it is not."""
    gate.author.rig.chunker.limits = small_chunks()
    gate.author.write("file", b"".join(bytes([n]) * 4096 for n in range(8)))
    gate.publish()
    gate.count()
    near = gate.near.rig
    near.db.rows.execute("UPDATE chunk SET pack = 1 WHERE pack = ?", (ELSEWHERE,))
    assert gate.count(take_over=True, forgo=True) == 0
    gate.gate.unreadable.update(gate.gate.unread)
    assert gate.count(take_over=True, forgo=True) == 1
    assert gate.count(take_over=True) == 0
