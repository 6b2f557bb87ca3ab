"""A session bus of a test's own: a real D-Bus."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

_CONFIG = """<!DOCTYPE busconfig PUBLIC "-//freedesktop//DTD D-BUS Bus Configuration 1.0//EN"
 "http://www.freedesktop.org/standards/dbus/1.0/busconfig.dtd">
<busconfig><type>session</type><listen>unix:path=%s</listen>
<policy context="default"><allow send_destination="*" eavesdrop="true"/><allow eavesdrop="true"/>
<allow own="*"/></policy></busconfig>
"""


@pytest.fixture
def bus(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    program = shutil.which("dbus-daemon")
    assert program, "dbus-daemon is not installed"
    (tmp_path / "bus.conf").write_text(_CONFIG % (tmp_path / "bus"))
    bus = subprocess.Popen(
        [program, "--nofork", "--print-address", f"--config-file={tmp_path / 'bus.conf'}"],
        stdout=subprocess.PIPE,
        text=True,
    )
    yield bus
    bus.kill()
    bus.communicate()


@pytest.fixture
def address(bus: subprocess.Popen[str], monkeypatch: pytest.MonkeyPatch) -> str:
    assert bus.stdout is not None
    address = bus.stdout.readline().strip()
    monkeypatch.setenv("DBUS_SESSION_BUS_ADDRESS", address)
    return address
