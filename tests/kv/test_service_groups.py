"""What several threads ask for at the same time goes together."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor

import pytest

from hybrisfs.environment import Environment
from hybrisfs.kv.service import OutcomeUnknownError, ServiceError
from hybrisfs.kv.service_groups import Groups, Waiting

PATIENCE = 60.0


class Service:
    """Answers with what was asked, times ten, when it is let."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, most: int = 100) -> None:
        self.now = 0.0
        self.groups: Groups[int, int] = Groups(
            most,
            lambda asked: range(min(most, len(asked))),
            self._serve,
            Environment(monotonic=lambda: self.now),
        )
        self.served: list[list[int]] = []
        self.begun = threading.Semaphore(0)
        self.let = threading.Semaphore(0)
        self.waiting = threading.Semaphore(0)
        self.trouble: BaseException | None = None
        wait = Waiting.wait
        self.wait: Callable[[Waiting[int, int]], None] = wait
        """How threads wait; a test may have it do more."""

        def watched(one: Waiting[int, int]) -> None:
            self.waiting.release()
            self.wait(one)

        monkeypatch.setattr(Waiting, "wait", watched)

    def _serve(self, group: Sequence[Waiting[int, int]]) -> None:
        self.served.append([one.asked for one in group])
        self.begun.release()
        assert self.let.acquire(timeout=PATIENCE)
        if self.trouble is not None:
            group[0].answer(group[0].asked * 10)
            raise self.trouble
        for one in group:
            one.answer(one.asked * 10)

    def ask(self, pool: ThreadPoolExecutor, asked: int, *, waits: bool) -> Future[int]:
        """Begin to ask; return when it waits, or is under way."""
        future = pool.submit(self.groups.do, asked)
        assert (self.waiting if waits else self.begun).acquire(timeout=PATIENCE)
        return future

    def ask_all(self, pool: ThreadPoolExecutor, count: int) -> list[Future[int]]:
        """The first is under way, and the others wait."""
        return [self.ask(pool, number, waits=number > 0) for number in range(count)]

    def answer(self, times: int) -> None:
        for _ in range(times):
            self.let.release()


def test_those_that_wait_go_together(monkeypatch: pytest.MonkeyPatch) -> None:
    service = Service(monkeypatch)
    with ThreadPoolExecutor(10) as pool:
        futures = service.ask_all(pool, 6)
        assert service.served == [[0]]
        service.answer(2)
        assert [one.result(PATIENCE) for one in futures] == [0, 10, 20, 30, 40, 50]
    assert service.served == [[0], [1, 2, 3, 4, 5]]
    assert service.groups._leaders == 0


def test_a_full_request_is_made_beside_another_one(monkeypatch: pytest.MonkeyPatch) -> None:
    service = Service(monkeypatch, 3)
    with ThreadPoolExecutor(10) as pool:
        futures = [service.ask(pool, number, waits=number not in (0, 3, 6)) for number in range(8)]
        assert service.served == [[0], [1, 2, 3], [4, 5, 6]]
        service.answer(4)
        assert [one.result(PATIENCE) for one in futures] == [10 * number for number in range(8)]
    assert service.served[3:] == [[7]]
    assert service.groups._leaders == 0


def test_a_small_one_waits_a_moment_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """The service may be far away."""
    service = Service(monkeypatch)
    with ThreadPoolExecutor(10) as pool:
        futures = [service.ask(pool, 0, waits=False), service.ask(pool, 1, waits=True)]
        service.now += 0.005
        futures.append(service.ask(pool, 2, waits=False))
        assert service.served == [[0], [1, 2]]
        futures.append(service.ask(pool, 3, waits=True))
        service.answer(3)
        assert [one.result(PATIENCE) for one in futures] == [0, 10, 20, 30]
    assert service.groups._leaders == 0


class Sleepy(Service):
    """Threads that were answered go on when they are let."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, most: int) -> None:
        super().__init__(monkeypatch, most)
        self.awake = threading.Semaphore(0)
        self.go_on = threading.Semaphore(0)
        wait = self.wait

        def slow(one: Waiting[int, int]) -> None:
            wait(one)
            if one.served:
                self.awake.release()
                assert self.go_on.acquire(timeout=PATIENCE)

        self.wait = slow

    def begin(self, pool: ThreadPoolExecutor) -> list[Future[int]]:
        """Two threads are answered by one request; the first of them, which did not make it, is awake."""
        futures = self.ask_all(pool, 3)
        self.answer(2)
        assert futures[0].result(PATIENCE) == 0
        assert futures[1].result(PATIENCE) == 10
        assert self.awake.acquire(timeout=PATIENCE)
        assert self.begun.acquire(timeout=PATIENCE)
        assert self.served == [[0], [1, 2]]
        return futures[2:]


def test_the_next_request_waits_for_those_that_were_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    """They may ask again at once."""
    service = Sleepy(monkeypatch, 3)
    with ThreadPoolExecutor(10) as pool:
        futures = service.begin(pool) + [service.ask(pool, number, waits=True) for number in (3, 4)]
        service.go_on.release()
        assert service.begun.acquire(timeout=PATIENCE)
        assert service.served[2:] == [[3, 4]]
        service.go_on.release()
        service.answer(1)
        assert [one.result(PATIENCE) for one in futures] == [20, 30, 40]
    assert (service.groups._leaders, service.groups._waking) == (0, 0)


def test_a_full_request_does_not_wait_for_those_that_were_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    service = Sleepy(monkeypatch, 3)
    with ThreadPoolExecutor(10) as pool:
        futures = service.begin(pool) + [service.ask(pool, number, waits=number < 5) for number in (3, 4, 5)]
        assert service.served[2:] == [[3, 4, 5]]
        for _ in range(3):
            service.go_on.release()
        service.answer(1)
        assert [one.result(PATIENCE) for one in futures] == [20, 30, 40, 50]
    assert (service.groups._leaders, service.groups._waking) == (0, 0)


@pytest.mark.parametrize(("seconds", "waits"), [(0.0, True), (0.02, False)])
def test_only_far_services_get_small_requests_beside_each_other(
    monkeypatch: pytest.MonkeyPatch, seconds: float, waits: bool
) -> None:
    service = Service(monkeypatch)
    with ThreadPoolExecutor(10) as pool:
        first = service.ask(pool, 0, waits=False)
        service.now += seconds
        service.answer(1)
        first.result(PATIENCE)
        futures = [service.ask(pool, 1, waits=False)]
        service.now += 0.005
        futures.append(service.ask(pool, 2, waits=waits))
        service.answer(2)
        assert [one.result(PATIENCE) for one in futures] == [10, 20]


def test_an_error_is_that_of_those_without_an_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    service = Service(monkeypatch)
    with ThreadPoolExecutor(10) as pool:
        futures = service.ask_all(pool, 4)
        service.answer(1)
        assert service.begun.acquire(timeout=PATIENCE)
        service.trouble = ServiceError("it was refused")
        service.answer(1)
        assert [one.result(PATIENCE) for one in futures[:2]] == [0, 10]
        for one in futures[2:]:
            with pytest.raises(ServiceError, match="it was refused"):
                one.result(PATIENCE)


def test_nobody_waits_for_a_thread_that_was_interrupted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of what it had asked for others, nobody knows."""
    service = Service(monkeypatch)
    with ThreadPoolExecutor(10) as pool:
        futures = service.ask_all(pool, 3)
        service.answer(1)
        assert service.begun.acquire(timeout=PATIENCE)
        service.trouble = KeyboardInterrupt()
        futures += [service.ask(pool, number, waits=True) for number in (3, 4)]
        service.answer(1)
        assert service.begun.acquire(timeout=PATIENCE)
        service.trouble = None
        service.answer(1)
        with pytest.raises(KeyboardInterrupt):
            futures[1].result(PATIENCE)
        with pytest.raises(OutcomeUnknownError):
            futures[2].result(PATIENCE)
        assert [one.result(PATIENCE) for one in (futures[0], *futures[3:])] == [0, 30, 40]
    assert service.groups._leaders == 0


def test_nobody_waits_for_one_that_was_interrupted_while_it_waited(monkeypatch: pytest.MonkeyPatch) -> None:
    service = Service(monkeypatch)
    wait, is_first = service.wait, threading.Lock()

    def interrupted(one: Waiting[int, int]) -> None:
        wait(one)
        if is_first.acquire(blocking=False):
            raise KeyboardInterrupt

    service.wait = interrupted
    with ThreadPoolExecutor(10) as pool:
        futures = service.ask_all(pool, 4)
        service.answer(2)
        with pytest.raises(KeyboardInterrupt):
            futures[1].result(PATIENCE)
        assert [one.result(PATIENCE) for one in (futures[0], *futures[2:])] == [0, 20, 30]
    assert service.served == [[0], [2, 3]]
    assert (service.groups._leaders, service.groups._waking) == (0, 0)


def test_nobody_waits_for_one_that_was_interrupted_while_it_was_asked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    service = Service(monkeypatch)
    wait, interrupt = service.wait, threading.Semaphore(0)

    def interrupted(one: Waiting[int, int]) -> None:
        if one.asked != 2:
            wait(one)
            return
        assert interrupt.acquire(timeout=PATIENCE)
        raise KeyboardInterrupt

    service.wait = interrupted
    with ThreadPoolExecutor(10) as pool:
        futures = service.ask_all(pool, 4)
        service.answer(1)
        assert service.begun.acquire(timeout=PATIENCE)
        interrupt.release()
        with pytest.raises(KeyboardInterrupt):
            futures[2].result(PATIENCE)
        service.answer(1)
        assert [one.result(PATIENCE) for one in (*futures[:2], futures[3])] == [0, 10, 30]
    assert service.served == [[0], [1, 2, 3]]
    assert (service.groups._leaders, service.groups._waking) == (0, 0)


def test_nobody_waits_for_one_that_was_interrupted_when_it_was_answered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    service = Service(monkeypatch)
    wait = service.wait

    def interrupted(one: Waiting[int, int]) -> None:
        wait(one)
        if one.served and one.asked == 2:
            raise KeyboardInterrupt

    service.wait = interrupted
    with ThreadPoolExecutor(10) as pool:
        futures = service.ask_all(pool, 4)
        service.answer(2)
        with pytest.raises(KeyboardInterrupt):
            futures[2].result(PATIENCE)
        assert [one.result(PATIENCE) for one in (*futures[:2], futures[3])] == [0, 10, 30]
        futures = [service.ask(pool, 5, waits=False)]
        service.answer(1)
        assert futures[0].result(PATIENCE) == 50
    assert (service.groups._leaders, service.groups._waking) == (0, 0)


def test_who_leads_without_being_chosen_leads_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """What it has asked does not go with what others have."""
    service = Service(monkeypatch)
    service.groups._choose = lambda asked: [0]
    with ThreadPoolExecutor(10) as pool:
        futures = [service.ask(pool, 0, waits=False), service.ask(pool, 1, waits=True)]
        service.now += 0.005
        futures.append(service.ask(pool, 2, waits=False))
        service.answer(3)
        assert [one.result(PATIENCE) for one in futures] == [0, 10, 20]
    assert service.served == [[0], [1], [2]]
