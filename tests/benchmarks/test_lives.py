"""What is counted in the lives of many devices is what these devices do."""

from __future__ import annotations

import pytest

from benchmarks.lives import live


@pytest.mark.parametrize("linked", [False, True])
def test_devices_at_rest_announce_themselves_and_look_every_five_minutes(linked: bool) -> None:
    life = live(5, linked=linked, steady=600.0)
    # A head on each cloud every quarter of an hour, but of a device that fell asleep before it wrote.
    assert 0.75 * 3 * 96 <= life.idle.puts <= 3 * 96
    assert life.idle.gets == pytest.approx(2 * 5 * 288, rel=0.2), "those of all, itself included, on f+1"
    assert life.writing.puts == pytest.approx(144 * 7, rel=0.3), "2 packs, 2 segments and 3 heads for a file"
    assert (life.idle.linked > 0) == linked
    assert life.catching_up.down > 0


def test_a_pack_goes_when_the_device_that_sleeps_is_back() -> None:
    life = live(5, linked=False, steady=60.0)
    assert life.consent is not None and life.consent_asleep is not None
    assert life.consent < 3600
    assert 8 * 3600 <= life.consent_asleep < 9 * 3600
