"""Many updates are checked in a process of its own."""

from __future__ import annotations

import select
import signal
import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from hybrisfs.environment import Environment, Limits
from hybrisfs.receive.check import CheckedUpdate, CheckLimits, UpdateCheck, UpdateChecker
from sync import DeviceKey, SignedHeader, Update, UpdateStamp, decode_signed, encode_signed
from sync.codec import ZERO_HASH

FEW, MANY = 20, 600  # checked by the caller, and by the process
DEVICES = [DeviceKey.from_seed(bytes([number]) * 32) for number in (1, 2, 3)]
KEYS = {one.device_id: one.public for one in DEVICES[:2]}  # the third is not a member


class Processes:
    """Starts processes as the system does, but with this Python, and remembers them."""

    def __init__(self) -> None:
        self.python = sys.executable
        self.started: list[subprocess.Popen[bytes]] = []

    def start(self, command: Sequence[str], **options: Any) -> subprocess.Popen[bytes]:
        self.started.append(subprocess.Popen([self.python, *command[1:]], **options))
        return self.started[-1]


@pytest.fixture
def processes() -> Processes:
    return Processes()


@pytest.fixture
def started(processes: Processes) -> list[subprocess.Popen[bytes]]:
    """The processes that have been started."""
    return processes.started


def checkers(processes: Processes, *limits: object) -> Iterator[UpdateChecker]:
    environment = Environment(processors=lambda: 2, start=processes.start, limits=Limits(*limits))
    one = UpdateChecker(environment)
    yield one
    one.close()


@pytest.fixture
def checker(processes: Processes) -> Iterator[UpdateChecker]:
    yield from checkers(processes)


@pytest.fixture
def hasty(processes: Processes) -> Iterator[UpdateChecker]:
    """Its process ends as soon as there is nothing to do."""
    yield from checkers(processes, CheckLimits(idle_seconds=0.25))


def update(number: int) -> bytes:
    """Updates of different shapes; every seventh is not signed, every eleventh is cut off."""
    device = DEVICES[number % 3]
    first = number % 2
    causes = [UpdateStamp(bytes([one]) * 16, 300 + one, bytes([one + 1]) * 16) for one in range(number % 4)]
    writes = [(b"key %d" % one, b"value %d" % number if one % 5 else None) for one in range(number % 13)]
    data = encode_signed(
        Update(
            volume=b"v" * 16,
            writer=device.device_id,
            clock=number + 1,
            prev_clock=first * number,
            prev=b"p" * 32 if first else ZERO_HASH,
            deps=tuple(causes),
            history=bytes([number % 256]) * 32,
            time_ns=number,
            writes=[*writes, (b"more", b"x" * 300)],
        ),
        device,
    )
    if number % 11 == 0:
        return data[:-1]
    at = len(decode_signed(data).header.data) - 1
    return data if number % 7 else data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]


def expected(number: int) -> CheckedUpdate | None:
    data = update(number)
    return (
        None if number % 11 == 0 else CheckedUpdate(decode_signed(data), number % 7 != 0 and number % 3 != 2)
    )


UPDATES = [update(number) for number in range(MANY)]
EXPECTED = [expected(number) for number in range(MANY)]


def nothing(hashes: Iterable[bytes]) -> set[bytes]:
    """What is known already."""
    return set()


def handed_over(checker: UpdateChecker) -> UpdateCheck:
    return checker.check(UPDATES, KEYS, nothing)


def begin(checker: UpdateChecker, started: list[subprocess.Popen[bytes]]) -> None:
    """Have the process started, and wait until it is ready."""
    assert handed_over(checker).result() == EXPECTED
    assert (answers := started[-1].stdout) is not None
    assert select.select([answers], [], [], 60)[0]


def test_few_are_checked_without_a_process(
    checker: UpdateChecker, started: list[subprocess.Popen[bytes]]
) -> None:
    assert checker.check(UPDATES[:FEW], KEYS, nothing).result() == EXPECTED[:FEW]
    assert started == []


def test_signatures_of_what_is_known_are_not_checked(checker: UpdateChecker) -> None:
    one, other = UPDATES[1], UPDATES[3]
    known = {decode_signed(one).hash}
    found = checker.check([one, other], KEYS, known.intersection).result()
    assert [each and each.signed for each in found] == [False, True]


def test_many_are_checked_by_one_process(
    checker: UpdateChecker, started: list[subprocess.Popen[bytes]]
) -> None:
    begin(checker, started)
    for check in [handed_over(checker) for _ in range(3)]:
        found = check.result()
        assert found == EXPECTED
        headers = [one.update.header for one in found if one is not None]
        assert {type(header) for header in headers} == {SignedHeader}
        assert {type(cause) for header in headers for cause in header.deps} == {UpdateStamp}
    assert len(started) == 1


def test_results_may_be_asked_for_in_any_order_by_any_thread(
    checker: UpdateChecker, started: list[subprocess.Popen[bytes]]
) -> None:
    begin(checker, started)

    def ask() -> bool:
        asked = [handed_over(checker) for _ in range(3)]
        return all(one.result() == EXPECTED for one in reversed(asked))

    with ThreadPoolExecutor(4) as threads:
        assert all(one.result() for one in [threads.submit(ask) for _ in range(8)])
    assert len(started) == 1


def test_one_large_update_is_as_many_small_ones(
    checker: UpdateChecker, started: list[subprocess.Popen[bytes]]
) -> None:
    writes = [(b"key %d" % one, b"x" * 100) for one in range(5000)]
    large = encode_signed(
        Update(b"v" * 16, DEVICES[0].device_id, 1, 0, ZERO_HASH, (), bytes(32), 1, writes), DEVICES[0]
    )
    begin(checker, started)
    for _ in range(2):
        found = checker.check([large], KEYS, nothing).result()
        assert found == [CheckedUpdate(decode_signed(large), True)]
    assert len(started) == 1


def test_the_process_ends_with_the_checker(
    checker: UpdateChecker, started: list[subprocess.Popen[bytes]]
) -> None:
    begin(checker, started)
    asked = handed_over(checker)
    checker.close()
    assert [one.returncode for one in started] == [-signal.SIGKILL]
    assert asked.result() == EXPECTED
    assert handed_over(checker).result() == EXPECTED
    assert len(started) == 1


def test_the_process_ends_when_there_has_been_nothing_to_do(
    hasty: UpdateChecker, started: list[subprocess.Popen[bytes]]
) -> None:
    handed_over(hasty).result()
    assert started[0].wait(60) == 0
    assert handed_over(hasty).result() == EXPECTED


def test_a_process_that_dies_is_done_without(
    checker: UpdateChecker, started: list[subprocess.Popen[bytes]]
) -> None:
    begin(checker, started)
    asked = [handed_over(checker) for _ in range(2)]
    started[0].send_signal(signal.SIGKILL)
    asked += [handed_over(checker) for _ in range(2)]
    assert all(one.result() == EXPECTED for one in asked)
    assert started[0].wait(60) == -signal.SIGKILL
    assert all(handed_over(checker).result() == EXPECTED for _ in range(3))
    assert len(started) == 2


def test_a_process_that_ends_with_answers_nobody_has_read_is_done_without(
    checker: UpdateChecker, started: list[subprocess.Popen[bytes]]
) -> None:
    begin(checker, started)
    handed_over(checker)
    assert started[0].stdin is not None and started[0].stdout is not None
    assert select.select([started[0].stdout], [], [], 60)[0]  # the answer is more than fits into a pipe
    started[0].send_signal(signal.SIGINT)
    reads_no_more = select.poll()
    reads_no_more.register(started[0].stdin, 0)
    assert reads_no_more.poll(60_000)
    assert handed_over(checker).result() == EXPECTED
    assert started[0].wait(60) == -signal.SIGKILL


def test_a_process_that_stands_still_does_not_keep_the_checker_from_ending(
    checker: UpdateChecker, started: list[subprocess.Popen[bytes]]
) -> None:
    begin(checker, started)
    started[0].send_signal(signal.SIGSTOP)
    assert started[0].stdin is not None
    reads = select.poll()
    reads.register(started[0].stdin, select.POLLOUT)
    with ThreadPoolExecutor(1) as threads:
        asked = threads.submit(lambda: [handed_over(checker) for _ in range(3)])
        while reads.poll(0):
            pass
        checker.close()
        assert all(one.result() == EXPECTED for one in asked.result(60))


def test_a_process_that_is_interrupted_ends(
    checker: UpdateChecker, started: list[subprocess.Popen[bytes]]
) -> None:
    """As by Ctrl-C, which all of a terminal's processes get."""
    begin(checker, started)
    handed_over(checker).result()
    started[0].send_signal(signal.SIGINT)
    assert started[0].wait(60) == 0
    assert handed_over(checker).result() == EXPECTED


def test_a_process_that_cannot_be_started_is_done_without(
    checker: UpdateChecker, processes: Processes
) -> None:
    processes.python = "/nowhere/python"
    assert handed_over(checker).result() == EXPECTED


@pytest.mark.parametrize("words", [r"\0\0\0\4junk", r"\0\0\0\0\0\0\0\4junk"])
def test_a_process_that_answers_nonsense_is_done_without(
    checker: UpdateChecker,
    processes: Processes,
    started: list[subprocess.Popen[bytes]],
    tmp_path: Path,
    words: str,
) -> None:
    mad = tmp_path / "python"
    mad.write_text(f"#!/bin/sh\nprintf '{words}'\nexec cat > /dev/null\n")
    mad.chmod(0o755)
    processes.python = str(mad)
    begin(checker, started)
    assert handed_over(checker).result() == EXPECTED
    assert started[0].wait(60) == -signal.SIGKILL
    assert handed_over(checker).result() == EXPECTED


def test_nothing_waits_for_a_process_that_does_not_become_ready(
    checker: UpdateChecker, processes: Processes, tmp_path: Path
) -> None:
    slow = tmp_path / "python"
    slow.write_text("#!/bin/sh\nexec sleep 3600\n")
    slow.chmod(0o755)
    processes.python = str(slow)
    for _ in range(3):
        assert handed_over(checker).result() == EXPECTED


@pytest.mark.parametrize("count", [FEW, MANY])
def test_who_waits_hears_of_a_failure(checker: UpdateChecker, count: int) -> None:
    def fails(hashes: Iterable[bytes]) -> set[bytes]:
        raise OSError("the disk is gone")

    with pytest.raises(OSError, match="the disk is gone"):
        checker.check(UPDATES[:count], KEYS, fails).result()
