"""What waits to be sent, and what waits for answers: bounds, order, matching."""

from __future__ import annotations

import threading
import time

from hypothesis import given
from hypothesis import strategies as st

from hybrisfs.peers.frames import MAX_REQUESTS
from hybrisfs.peers.outbox import ADVANCED, Last, Outbox, Serve
from hybrisfs.peers.requests import ChunkRequests
from tests.peers.support import LONG


def soon() -> float:
    return time.monotonic() + LONG


def test_messages_overtake_chunks() -> None:
    outbox = Outbox(1 << 20)
    assert outbox.serve(Serve(1, b"")) and outbox.serve(Serve(2, b""))
    outbox.advanced()
    assert outbox.put(b"one") and outbox.put(b"two")
    taken = [outbox.take(soon()) for _ in range(5)]
    assert taken == [b"one", b"two", ADVANCED, Serve(1, b""), Serve(2, b"")]
    assert outbox.take(time.monotonic()) is None


def test_being_advanced_many_times_counts_once() -> None:
    outbox = Outbox(1 << 20)
    outbox.advanced()
    outbox.advanced()
    assert outbox.take(soon()) is ADVANCED
    assert outbox.take(time.monotonic()) is None


@given(st.lists(st.integers(0, 60)))
def test_no_more_is_held_than_allowed(sizes: list[int]) -> None:
    outbox = Outbox(max_queued=500)
    held = 0
    for size in sizes:
        fits = held <= 500
        assert outbox.put(bytes(size)) == fits
        held += (size + 64) * fits


def test_one_message_may_be_larger_than_the_bound() -> None:
    outbox = Outbox(max_queued=100)
    assert outbox.put(b"a pong") and outbox.put(bytes(1000))
    assert not outbox.put(b"")
    assert outbox.take(soon()) and outbox.take(soon())
    assert outbox.put(b"")


def test_requests_are_bounded() -> None:
    outbox = Outbox(1 << 20)
    assert all(outbox.serve(Serve(number, b"")) for number in range(MAX_REQUESTS))
    assert not outbox.serve(Serve(MAX_REQUESTS, b""))


def test_the_last_word_overtakes_everything_and_stays() -> None:
    outbox = Outbox(1 << 20)
    outbox.put(b"dropped")
    outbox.serve(Serve(1, b""))
    outbox.close(b"bye")
    outbox.close(b"another bye")
    outbox.put(b"too late")
    assert [outbox.take(soon()) for _ in range(2)] == [Last(b"bye"), Last(b"bye")]
    assert outbox.closed


def test_what_comes_wakes_who_waits() -> None:
    outbox = Outbox(1 << 20)
    threading.Timer(0, lambda: outbox.put(b"hello")).start()
    assert outbox.take(soon()) == b"hello"


def test_answers_find_their_requests_in_any_order() -> None:
    requests = ChunkRequests()
    numbers = [requests.begin(soon()) for _ in range(3)]
    assert None not in numbers
    for number in reversed(numbers):
        assert number is not None and requests.answer(number, b"%d" % number)
    for number in numbers:
        assert number is not None and requests.wait(number, soon()) == b"%d" % number


def test_an_answer_to_nothing_is_told() -> None:
    requests = ChunkRequests()
    assert not requests.answer(0, b"")
    number = requests.begin(soon())
    assert number is not None and requests.answer(number, None)
    assert not requests.answer(number, b"again")


def test_a_request_given_up_counts_until_it_is_answered() -> None:
    requests = ChunkRequests()
    first = requests.begin(soon())
    assert first is not None and requests.wait(first, time.monotonic()) is None
    for _ in range(MAX_REQUESTS - 1):
        assert requests.begin(soon()) is not None
    assert requests.begin(time.monotonic()) is None
    assert requests.answer(first, b"late")
    assert requests.begin(soon()) is not None


def test_closing_ends_all_waiting() -> None:
    requests = ChunkRequests()
    number = requests.begin(soon())
    assert number is not None
    threading.Timer(0, requests.close).start()
    assert requests.wait(number, time.monotonic() + 3600) is None
    assert requests.begin(soon()) is None
