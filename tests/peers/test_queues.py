"""What waits to be sent, and what waits for answers: bounds, order, matching."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from hypothesis import given
from hypothesis import strategies as st

from hybrisfs.environment import SYSTEM, Environment
from hybrisfs.peers.frames import MAX_REQUESTS
from hybrisfs.peers.queues import ADVANCED, ChunkRequests, Last, Outbox, Requests, Serve
from tests.peers.support import LONG


def soon() -> float:
    return time.monotonic() + LONG


def test_messages_overtake_chunks() -> None:
    outbox = Outbox(1 << 20, SYSTEM)
    assert outbox.serve(Serve(1, b"")) and outbox.serve(Serve(2, b""))
    outbox.advanced()
    assert outbox.put(b"one") and outbox.put(b"two")
    taken = [outbox.take(soon()) for _ in range(5)]
    assert taken == [b"one", b"two", ADVANCED, Serve(1, b""), Serve(2, b"")]
    assert outbox.take(time.monotonic()) is None


def test_being_advanced_many_times_counts_once() -> None:
    outbox = Outbox(1 << 20, SYSTEM)
    outbox.advanced()
    outbox.advanced()
    assert outbox.take(soon()) is ADVANCED
    assert outbox.take(time.monotonic()) is None


@given(st.lists(st.integers(0, 60)))
def test_no_more_is_held_than_allowed(sizes: list[int]) -> None:
    outbox = Outbox(500, SYSTEM)
    held = 0
    for size in sizes:
        fits = held <= 500
        assert outbox.put(bytes(size)) == fits
        held += (size + 64) * fits


def test_one_message_may_be_larger_than_the_bound() -> None:
    outbox = Outbox(100, SYSTEM)
    assert outbox.put(b"a pong") and outbox.put(bytes(1000))
    assert not outbox.put(b"")
    assert outbox.take(soon()) and outbox.take(soon())
    assert outbox.put(b"")


def test_requests_are_bounded() -> None:
    outbox = Outbox(1 << 20, SYSTEM)
    assert all(outbox.serve(Serve(number, b"")) for number in range(MAX_REQUESTS))
    assert not outbox.serve(Serve(MAX_REQUESTS, b""))


def test_the_last_word_overtakes_everything_and_stays() -> None:
    outbox = Outbox(1 << 20, SYSTEM)
    outbox.put(b"dropped")
    outbox.serve(Serve(1, b""))
    outbox.close(b"bye")
    outbox.close(b"another bye")
    outbox.put(b"too late")
    assert [outbox.take(soon()) for _ in range(2)] == [Last(b"bye"), Last(b"bye")]
    assert outbox.closed


def test_what_comes_wakes_who_waits() -> None:
    outbox = Outbox(1 << 20, SYSTEM)
    threading.Timer(0, lambda: outbox.put(b"hello")).start()
    assert outbox.take(soon()) == b"hello"


def test_a_request_is_taken_after_the_first_unless_something_overtakes_it() -> None:
    outbox = Outbox(1 << 20, SYSTEM)
    assert outbox.take_serve() is None
    assert outbox.serve(Serve(1, b"")) and outbox.serve(Serve(2, b"")) and outbox.serve(Serve(3, b""))
    assert outbox.take_serve() == Serve(1, b"")
    outbox.put(b"a message")
    assert outbox.take_serve() is None
    assert outbox.take(soon()) == b"a message"
    outbox.advanced()
    assert outbox.take_serve() is None
    assert outbox.take(soon()) is ADVANCED
    assert outbox.take_serve() == Serve(2, b"")
    outbox.close(b"bye")
    assert outbox.take_serve() is None


def begun(requests: ChunkRequests, wanted: int = 1) -> Requests:
    some = requests.begin(wanted, LONG)
    assert some is not None
    return some


def test_answers_find_their_requests_in_any_order() -> None:
    requests = ChunkRequests(SYSTEM)
    several = [begun(requests, 2) for _ in range(3)]
    for some in reversed(several):
        for number in reversed(some.numbers):
            assert requests.answer(number, b"%d" % number)
    for some in several:
        assert requests.wait(some, LONG) == [b"%d" % number for number in some.numbers]


def test_an_answer_to_nothing_is_told() -> None:
    requests = ChunkRequests(SYSTEM)
    assert not requests.answer(0, b"")
    (number,) = begun(requests).numbers
    assert requests.answer(number, None)
    assert not requests.answer(number, b"again")


def test_a_request_given_up_counts_until_it_is_answered() -> None:
    requests = ChunkRequests(SYSTEM)
    first = begun(requests)
    assert requests.wait(first, 0.0) == [None]
    for _ in range(MAX_REQUESTS - 1):
        begun(requests)
    assert requests.begin(1, 0.0) is None
    assert requests.answer(first.numbers[0], b"late")
    begun(requests)


def test_what_is_given_up_keeps_the_answers_that_came() -> None:
    requests = ChunkRequests(SYSTEM)
    some = begun(requests, 2)
    assert requests.answer(some.numbers[1], b"came")
    assert requests.wait(some, 0.0) == [None, b"came"]
    for _ in range(MAX_REQUESTS - 1):
        begun(requests)
    assert requests.begin(1, 0.0) is None


def test_no_more_is_asked_for_than_may_be_open_or_wait_to_be_taken() -> None:
    requests = ChunkRequests(SYSTEM)
    several = []
    while some := requests.begin(1000, 0.0):
        several.append(some)
    assert sum(len(one.numbers) for one in several) == MAX_REQUESTS
    for number in several[0].numbers:
        assert requests.answer(number, bytes(10))
    assert requests.begin(1, 0.0) is None  # answered, but not taken
    assert requests.wait(several[0], LONG) == [bytes(10)] * len(several[0].numbers)
    begun(requests)


class Answering:
    """Surroundings in which an answer comes whenever somebody waits, and time passes with that alone."""

    def __init__(self, answer: Callable[[float], bool]) -> None:
        self.now = 0.0
        self._answer = answer
        self.requests = ChunkRequests(Environment(monotonic=lambda: self.now, wait=self._wait))

    def _wait(self, condition: threading.Condition, done: Callable[[], bool], seconds: float | None) -> bool:
        assert seconds is not None
        assert self._answer(seconds)
        return done()


def test_as_long_as_others_are_answered_nobody_gives_up() -> None:
    answers = [(4.0, "quick", b"first"), (8.0, "slow", b"then")]

    def answer(wait: float) -> bool:
        world.now, name, data = answers.pop(0)
        return world.requests.answer(asked[name].numbers[0], data)

    world = Answering(answer)
    asked = {name: begun(world.requests) for name in ("slow", "quick")}
    assert world.requests.wait(asked["slow"], 5.0) == [b"then"]


def test_who_answers_everything_but_one_request_is_waited_for_in_vain_only_so_long() -> None:
    def answer_another(wait: float) -> bool:
        world.now += min(wait, 1.0)
        return world.requests.answer(begun(world.requests).numbers[0], b"another")

    world = Answering(answer_another)
    ignored = begun(world.requests)
    assert world.requests.wait(ignored, 5.0) == [None]
    assert world.now == 20.0


def test_closing_ends_all_waiting() -> None:
    requests = ChunkRequests(SYSTEM)
    some = begun(requests, 2)
    threading.Timer(0, requests.close).start()
    assert requests.wait(some, 3600) == [None, None]
    assert requests.begin(1, LONG) is None
