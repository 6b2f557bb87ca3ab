"""The transaction is the lock: one thread has it at a time, and leaving it commits nothing."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from hybrisfs.state.database import Database
from hybrisfs.state.state import State
from tests.state.test_sightings import open_state


@pytest.fixture
def state(tmp_path: Path) -> Iterator[State]:
    Database.create(tmp_path / "volume.db", bytes(16))
    one = open_state(tmp_path)
    yield one
    one.close()


def committed_files(state: State) -> int:
    with state.snapshot() as db:
        [(files,)] = db.execute("SELECT value FROM meta WHERE key = 'files'")
    return int(files)


def test_another_thread_waits_until_the_block_is_left(state: State) -> None:
    order, begun = list[str](), threading.Event()

    def other() -> None:
        begun.set()
        with state.transaction() as tx:
            order.append(f"other sees {tx.meta('files')}")

    with state.transaction() as tx:
        thread = threading.Thread(target=other)
        thread.start()
        begun.wait()
        tx.set_meta("files", 7)
        order.append("first is done")
    thread.join()
    assert order == ["first is done", "other sees 7"]


def test_a_thread_that_has_it_may_take_it_again(state: State) -> None:
    with state.transaction() as outer, state.transaction() as inner:
        inner.set_meta("files", 1)
        assert outer.meta("files") == 1


def test_an_error_lets_go_of_it_and_undoes_nothing(state: State) -> None:
    with pytest.raises(OSError, match="no room"), state.transaction() as tx:
        tx.set_meta("files", 3)
        raise OSError("no room")
    seen = list[object]()

    def look() -> None:
        with state.transaction() as tx:
            seen.append(tx.meta("files"))

    thread = threading.Thread(target=look)
    thread.start()
    thread.join()
    assert seen == [3]


def test_leaving_it_commits_nothing(state: State) -> None:
    with state.transaction() as tx:
        tx.set_meta("files", 5)
    assert committed_files(state) == 0
    with state.transaction() as tx:
        tx.commit()
    assert committed_files(state) == 5


def test_the_tables_are_of_the_same_transaction(state: State) -> None:
    with state.transaction() as tx:
        tx.nodes.note_nameless(9)
        tx.set_meta("files", 2)
    assert committed_files(state) == 0
    with state.transaction() as tx:
        assert tx.nodes.nameless() == [9]
        tx.commit()
    with state.snapshot() as db:
        assert db.execute("SELECT ino FROM orphan").fetchall() == [(9,)]
