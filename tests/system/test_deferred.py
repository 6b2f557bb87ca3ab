"""A letter is on the other machine while a film is still on its way to the clouds."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.system.deadline import until
from tests.system.device import Device
from tests.system.pairing import pair
from tests.system.test_linked import configure

FILM = 12 << 20


@pytest.fixture
def apart(tmp_path: Path) -> Iterator[tuple[Device, Device]]:
    """Two devices that meet on the clouds alone."""
    for name in ("one", "other"):
        (tmp_path / name).mkdir()
    with Device(tmp_path / "one") as one, Device(tmp_path / "other") as other:
        one.create().mount()
        pair(one, other, "other")
        one.sync()
        for device in (one, other):
            device.stop()
            configure(device, port=0, addresses=[], discover=False)
            device.mount()
        yield one, other


def test_a_letter_comes_before_a_film(apart: tuple[Device, Device]) -> None:
    one, other = apart
    one.run("limit", one.volume, "--up", "64k")
    film = os.urandom(FILM)
    (one.mountpoint / "film").write_bytes(film)
    (one.mountpoint / "letter").write_bytes(b"short")
    letter = other.mountpoint / "letter"
    until(lambda: letter.exists() and letter.read_bytes() == b"short", "the letter", 60)
    assert (other.mountpoint / "film").stat().st_size == FILM, "its name is there, in its place"
    status = one.status()
    assert status["pending_files"] >= 1 and status["pending_bytes"] > FILM // 2
    assert other.status()["machines_only"]["files"] == 1, "nothing is called safe that is not"
    one.kill()
    one.mount()
    one.run("limit", one.volume, "--up", "off")
    one.sync()
    until(lambda: not other.status()["machines_only"]["files"], "the film")
    assert (other.mountpoint / "film").read_bytes() == film
