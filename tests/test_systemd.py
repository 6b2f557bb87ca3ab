"""The service manager hears what it should, where there is one."""

from __future__ import annotations

import logging
import os
import socket
from pathlib import Path

import pytest

from hybrisfs.service_manager import JournalFormatter, notify


@pytest.mark.parametrize("abstract", [False, True])
def test_the_state_is_sent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, abstract: bool) -> None:
    name = f"hybrisfs-test-{os.getpid()}" if abstract else str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind("\0" + name if abstract else name)
        monkeypatch.setenv("NOTIFY_SOCKET", "@" + name if abstract else name)
        notify("READY=1")
        assert manager.recv(100) == b"READY=1"


def test_nothing_happens_without_a_service_manager(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NOTIFY_SOCKET", raising=False)
    notify("READY=1")


def test_a_dead_service_manager_is_only_logged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "nobody"))
    with caplog.at_level(logging.WARNING):
        notify("STOPPING=1")
    assert "STOPPING=1" in caplog.text


def test_every_line_in_the_journal_has_its_priority() -> None:
    formatter = JournalFormatter()

    def line(level: int, text: str) -> str:
        return formatter.format(logging.LogRecord("x", level, __file__, 1, text, None, None))

    assert line(logging.CRITICAL, "a\nb") == "<2>x: a\n<2>b"
    assert line(logging.ERROR, "a") == "<3>x: a"
    assert line(logging.WARNING, "a") == "<4>x: a"
    assert line(logging.INFO, "a") == "<6>x: a"
    assert line(logging.DEBUG, "a") == "<7>x: a"
