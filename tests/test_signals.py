"""Waiting and waking: whoever waits goes on when there is work, and at once when it is time to stop."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from unittest import mock

import pytest

from hybrisfs.environment import Environment
from hybrisfs.stages import Pause, Signals, Wake

FOREVER = 1e6
PATIENCE = 30.0  # far more than it takes: a test that waits that long has failed


class Watched(Signals):
    """`begun` is set when somebody begins to wait."""

    def __init__(self) -> None:
        super().__init__(Environment(wait=self._noticed))
        self.begun = threading.Event()

    def _noticed(
        self, condition: threading.Condition, done: Callable[[], bool], seconds: float | None
    ) -> bool:
        self.begun.set()
        return condition.wait_for(done, seconds)


@pytest.fixture
def signals() -> Watched:
    return Watched()


WAITS: dict[str, Callable[[Signals], bool]] = {
    "changes": lambda signals: signals.wait(Wake.CHANGES, Pause(FOREVER, least=FOREVER)),
    "chunks": lambda signals: signals.wait(Wake.CHUNKS, Pause(FOREVER)),
    "updates": lambda signals: signals.wait(Wake.UPDATES, Pause(FOREVER)),
    "look": lambda signals: signals.wait(Wake.LOOK, Pause(FOREVER)),
    "nothing": lambda signals: signals.wait(None, Pause(FOREVER)),
    "pause": lambda signals: signals.pause(FOREVER),
    "retry": lambda signals: signals.wait_to_retry(FOREVER),
    "until": lambda signals: signals.wait_until(lambda: False, None, step=FOREVER),
}


def waiting(signals: Watched, wait: Callable[[Signals], bool]) -> Future[bool]:
    """A thread that waits; it has begun to."""
    pool = ThreadPoolExecutor(1)
    future = pool.submit(wait, signals)
    pool.shutdown(wait=False)
    assert signals.begun.wait(PATIENCE)
    return future


@pytest.mark.parametrize("name", WAITS)
def test_stop_wakes_everyone(signals: Watched, name: str) -> None:
    future = waiting(signals, WAITS[name])
    signals.stop()
    assert future.result(PATIENCE) is False
    assert WAITS[name](signals) is False  # and nobody waits again


@pytest.mark.parametrize("name", ["changes", "chunks", "updates", "retry"])
def test_a_flush_wakes_those_who_work(signals: Watched, name: str) -> None:
    future = waiting(signals, WAITS[name])
    signals.begin_flush()
    assert future.result(PATIENCE) is True
    assert signals.flushing
    signals.end_flush()
    assert not signals.flushing


def test_more_work_of_a_kind_that_waits_already_disturbs_nobody(signals: Watched) -> None:
    """A program that copies a tree closes thousands of files: the thread that serves it would take turns with
    those of all stages."""
    with mock.patch.object(signals._condition, "notify_all", wraps=signals._condition.notify_all) as notified:
        for _ in range(100):
            signals.changes_made()
        assert notified.call_count == 1
        assert signals.wait(Wake.CHANGES, Pause(FOREVER))
        signals.changes_made()
        signals.chunks_made()
        signals.packed()
        assert notified.call_count == 3


def test_work_wakes_who_does_it(signals: Watched) -> None:
    packer, shipper = waiting(signals, WAITS["chunks"]), waiting(signals, WAITS["updates"])
    signals.chunks_made()
    assert packer.result(PATIENCE) and shipper.result(PATIENCE)
    shipper = waiting(signals, WAITS["updates"])
    signals.packed()
    assert shipper.result(PATIENCE)
    publisher = waiting(signals, lambda signals: signals.wait(Wake.CHANGES, Pause(FOREVER)))
    signals.changes_made()
    assert publisher.result(PATIENCE)


def test_work_that_came_before_the_wait_is_not_missed(signals: Watched) -> None:
    signals.chunks_made()
    assert WAITS["chunks"](signals) and WAITS["updates"](signals)
    signals.changes_made()
    assert signals.wait(Wake.CHANGES, Pause(FOREVER))


def test_changes_are_grouped_until_the_time_given(signals: Watched) -> None:
    signals.changes_made()
    future = waiting(signals, WAITS["changes"])
    signals.changes_made()
    assert not future.done()
    signals.begin_flush()
    assert future.result(PATIENCE)


def test_waiting_for_something_to_come_about(signals: Watched) -> None:
    reached = threading.Event()
    future = waiting(signals, lambda signals: signals.wait_until(reached.is_set, None, step=FOREVER))
    reached.set()
    signals.progressed()
    assert future.result(PATIENCE) is True
    assert signals.wait_until(lambda: False, time.monotonic() - 1) is False


def resting(seconds: float) -> Signals:
    """However long anybody wants to wait, it is so many seconds."""
    return Signals(Environment(wait=lambda condition, done, _: condition.wait_for(done, seconds)))


def test_a_moment_of_rest_wakes_the_publisher_and_lasts_until_it_has_looked() -> None:
    signals = resting(PATIENCE)
    signals.changes_made()
    signals.want_rest(True)
    with ThreadPoolExecutor(2) as pool:
        publisher = pool.submit(WAITS["changes"], signals)
        committer = pool.submit(signals.offer_rest)
        assert publisher.result(PATIENCE)
        assert not committer.done()
        signals.want_rest(False)
        committer.result(PATIENCE)


def test_nobody_waits_for_a_publisher_that_wants_no_rest() -> None:
    resting(FOREVER).offer_rest()
