"""Room that is shared: nobody takes more than there is, and nobody is overtaken for ever."""

from __future__ import annotations

import signal
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hybrisfs.bounded import Room


@given(size=st.integers(1, 10), amounts=st.lists(st.integers(0, 15), max_size=30))
def test_no_more_is_taken_than_there_is(size: int, amounts: list[int]) -> None:
    room, lock, used, most = Room(size), threading.Lock(), 0, 0

    def use(amount: int) -> None:
        nonlocal used, most
        taken = min(amount, size)
        with room.taken(amount):
            with lock:
                used += taken
                most = max(most, used)
            with lock:
                used -= taken

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(use, amounts))
    assert most <= size
    with room.taken(size):  # all of it is there again
        pass


def test_a_large_one_is_not_overtaken_by_small_ones() -> None:
    room, order = Room(4), list[int]()

    def use(amount: int) -> None:
        with room.taken(amount):
            order.append(amount)

    with ThreadPoolExecutor(3) as pool:
        with room.taken(1):
            large = pool.submit(use, 4)
            _until_so_many_wait(room, 1)
            small = [pool.submit(use, 1) for _ in range(2)]
            _until_so_many_wait(room, 3)
            assert not order
        for one in (large, *small):
            one.result(20)
    assert order == [4, 1, 1]


def test_one_that_is_interrupted_while_it_waits_lets_the_others_go_on() -> None:
    room, main = Room(1), threading.main_thread()

    def interrupt() -> None:
        _until_so_many_wait(room, 1)
        assert main.ident is not None
        signal.pthread_kill(main.ident, signal.SIGINT)

    with ThreadPoolExecutor(1) as pool, room.taken(1):
        interrupting = pool.submit(interrupt)
        with pytest.raises(KeyboardInterrupt), room.taken(1):
            pass
        interrupting.result(20)
    with room.taken(1):
        pass


def _until_so_many_wait(room: Room, count: int) -> None:
    while len(room._line) < count:
        pass
