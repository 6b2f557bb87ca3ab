"""Group commit: nobody is forgotten, whoever is interrupted."""

from __future__ import annotations

import threading
from collections.abc import Sequence

import pytest

from hybrisfs.environment import SYSTEM
from hybrisfs.errors import HybrisError
from hybrisfs.kv.transaction import GroupCommit, Request

_PATIENCE = 60.0


def started(requests: Sequence[Request[int]]) -> list[threading.Thread]:
    threads = [threading.Thread(target=one.wait, daemon=True) for one in requests]
    for thread in threads:
        thread.start()
    return threads


def assert_ended(threads: Sequence[threading.Thread]) -> None:
    for thread in threads:
        thread.join(_PATIENCE)
        assert not thread.is_alive()


class _Interrupted:
    """A lock whose first acquisition is interrupted."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._lock.acquire()
        self._calls = 0

    def acquire(self) -> bool:
        self._calls += 1
        if self._calls == 1:
            raise KeyboardInterrupt
        return self._lock.acquire()

    def release(self) -> None:
        self._lock.release()


@pytest.mark.parametrize("first", [False, True], ids=["before it is served", "afterwards"])
def test_who_is_interrupted_keeps_nobody_waiting(first: bool) -> None:
    requests = [Request(number) for number in range(4)]
    requests[1]._turn = _Interrupted()  # type: ignore[assignment]
    others = started([requests[0], *requests[2:]])
    if first:
        Request.served(requests)
    with pytest.raises(KeyboardInterrupt):
        requests[1].wait()
    if not first:
        Request.served(requests)
    assert_ended(others)


def test_every_client_gets_its_own_result_or_error() -> None:
    sizes: list[int] = []

    def commit(requests: Sequence[Request[int]]) -> None:
        sizes.append(len(requests))
        for one in requests:
            one.result = one.action * 2
            if one.action % 10 == 0:
                one.error = HybrisError(str(one.action))

    group = GroupCommit("group", commit, SYSTEM)
    wrong: list[object] = []

    def client(number: int) -> None:
        for action in range(number, 2000, 20):
            try:
                result = group.do(action)
            except HybrisError as error:
                result = str(error)
            if result != (str(action) if action % 10 == 0 else action * 2):
                wrong.append((action, result))

    threads = [threading.Thread(target=client, args=(number,)) for number in range(20)]
    for thread in threads:
        thread.start()
    assert_ended(threads)
    group.close()
    assert wrong == []
    assert sum(sizes) == 2000
    with pytest.raises(HybrisError, match="closed"):
        group.do(1)


def test_a_commit_that_fails_fails_for_all(caplog: pytest.LogCaptureFixture) -> None:
    def commit(requests: Sequence[Request[int]]) -> None:
        raise OSError(28, "full")

    group = GroupCommit("group", commit, SYSTEM)
    for _ in range(2):
        with pytest.raises(OSError, match="full"):
            group.do(1)
    group.close()
    group.close()
    assert not caplog.records
