"""What moves between an open volume and its clouds is counted."""

from __future__ import annotations

import os
import time

from tests.volume.device import Device


def test_what_goes_up_and_comes_back_is_counted(device: Device) -> None:
    before = time.time()
    data = os.urandom(1 << 20)
    device.write("song", data)
    device.sync()
    up = device.volume.clouds.traffic()
    assert sum(one.counters.up for one in up) >= 2 * len(data)  # f + k copies
    assert all(one.counters.put > 0 for one in up)
    device.volume.drop_cache()
    assert device.read("song") == data
    down = device.volume.clouds.traffic()
    assert sum(one.counters.down for one in down) - sum(one.counters.down for one in up) >= len(data)
    assert [one.state for one in down] == ["ok"] * 3
    status = device.volume.status(look=False)
    assert all(before - 60 <= one.since <= time.time() + 1 for one in status.clouds)
