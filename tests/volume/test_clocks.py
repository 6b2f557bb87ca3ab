"""Clocks that are set wrong: nothing is lost by it, and people are told."""

from __future__ import annotations

import time

import pytest

from hybrisfs.sharing.agreement import clock_doubts
from sync import DeviceKey, Head, VersionVector
from tests.volume.device import Device

_YEAR_NS = 365 * 86400 * 10**9
_OWN, _OTHER = (DeviceKey.from_seed(bytes([number]) * 32).device_id for number in (1, 2))


def _head(device: bytes, time_ns: int) -> Head:
    return Head(bytes(16), device, time_ns, time_ns, VersionVector(), (), None)


_AHEAD = "the clock of desk is {} ahead of this machine's: one of the two is set wrong"


@pytest.mark.parametrize(
    ("device", "ahead", "told"),
    [
        (_OTHER, 0, None),
        (_OTHER, 9 * 60, None),
        (_OTHER, -365 * 86400, None),
        (_OTHER, 3600, _AHEAD.format("60 minutes")),
        (_OTHER, 20 * 365 * 86400, _AHEAD.format("20 years")),
        (_OWN, 3 * 86400, "this machine's clock has gone back by 3 days: is it set right?"),
    ],
)
def test_a_head_from_the_future_tells_of_a_wrong_clock(device: bytes, ahead: int, told: str | None) -> None:
    now = 1_795_000_000 * 10**9
    heads = {device: _head(device, now + ahead * 10**9)}
    assert clock_doubts(heads, _OWN, now, lambda _: "desk") == ([told] if told else [])


@pytest.mark.parametrize("years", [-10, 10])
def test_a_clock_that_jumps_by_years_loses_nothing(device: Device, years: int) -> None:
    device.write("before", b"written before")
    device.sync()
    device.around.ahead_ns = years * _YEAR_NS
    device.write("after", b"written after")
    device.write("before", b"written again")
    device.sync()
    device.reopen()
    assert (device.read("before"), device.read("after")) == (b"written again", b"written after")
    device.sync()
    assert not device.fsck(clouds=True).problems
    if years < 0:
        device.write("more", b"")
        device.sync()
    device.around.ahead_ns = 0
    device.write("at last", b"the clock is right again")
    device.sync()
    device.volume.drop_cache()
    assert (device.read("before"), device.read("after")) == (b"written again", b"written after")
    assert not device.fsck(clouds=True).problems


def test_status_tells_of_a_clock_that_was_set_back(device: Device) -> None:
    device.around.ahead_ns = 5 * _YEAR_NS
    device.write("file", b"content")
    device.sync()
    device.close()
    device.around.ahead_ns = 0
    device.reopen()

    def told() -> bool:
        warnings = device.volume.status().warnings
        assert isinstance(warnings, list)
        return any("clock has gone back by 5 years" in one for one in warnings)

    assert device.volume.signals.wait_until(told, time.monotonic() + 30, step=0.1)
