"""Signatures of many updates are checked in a process of its own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

from hybrisfs.pipeline import verify
from hybrisfs.pipeline.verify import SignedBy, Verifier
from sync import DeviceKey

MANY = 600  # more than are checked at once by the caller


@pytest.fixture
def verifier(monkeypatch: pytest.MonkeyPatch) -> Iterator[Verifier]:
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    one = Verifier()
    yield one
    one.close()


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[subprocess.Popen[bytes]]:
    """The processes that have been started."""
    found: list[subprocess.Popen[bytes]] = []

    class Watched(subprocess.Popen[bytes]):
        def __init__(self, *args: object, **kwargs: object) -> None:
            super().__init__(*args, **kwargs)  # type: ignore[call-overload]
            found.append(self)

    monkeypatch.setattr(subprocess, "Popen", Watched)
    return found


def signed(count: int) -> list[SignedBy]:
    """Messages of different lengths by two devices; every seventh is not what was signed."""
    keys = [DeviceKey.from_seed(bytes([number]) * 32) for number in (1, 2)]
    updates = []
    for number in range(count):
        key, message = keys[number % 2], b"%d" % number * (1 + number % 50)
        signature = key.sign(message)
        updates.append((key.public, (b"x" if number % 7 == 0 else b"") + message + signature))
    return updates


def expected(count: int) -> list[bool]:
    return [number % 7 != 0 for number in range(count)]


def test_few_are_checked_without_a_process(
    verifier: Verifier, started: list[subprocess.Popen[bytes]]
) -> None:
    assert list(verifier.check(signed(20)).result()) == expected(20)
    assert started == []


def test_many_are_checked_by_one_process(verifier: Verifier, started: list[subprocess.Popen[bytes]]) -> None:
    futures = [verifier.check(signed(MANY)) for _ in range(3)]
    for future in futures:
        assert [bool(one) for one in future.result(60)] == expected(MANY)
    assert len(started) == 1


def test_the_process_ends_with_the_verifier(
    verifier: Verifier, started: list[subprocess.Popen[bytes]]
) -> None:
    future = verifier.check(signed(MANY))
    verifier.close()
    assert [bool(one) for one in future.result(0)] == expected(MANY)
    assert [one.returncode for one in started] == [0]
    assert [bool(one) for one in verifier.check(signed(MANY)).result(0)] == expected(MANY)


def test_the_process_ends_when_there_has_been_nothing_to_do(
    verifier: Verifier, started: list[subprocess.Popen[bytes]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(verify, "_IDLE_SECONDS", 0.01)
    verifier.check(signed(MANY)).result(60)
    assert started[0].wait(60) == 0
    assert [bool(one) for one in verifier.check(signed(MANY)).result(60)] == expected(MANY)


def test_a_process_that_dies_is_done_without(
    verifier: Verifier, started: list[subprocess.Popen[bytes]]
) -> None:
    verifier.check(signed(MANY)).result(60)
    started[0].send_signal(signal.SIGKILL)
    for _ in range(2):
        assert [bool(one) for one in verifier.check(signed(MANY)).result(60)] == expected(MANY)
    assert started[0].returncode == -signal.SIGKILL


def test_a_process_that_cannot_be_started_is_done_without(
    verifier: Verifier, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    assert [bool(one) for one in verifier.check(signed(MANY)).result(60)] == expected(MANY)
