"""What is said to grow with the number of devices does."""

from __future__ import annotations

from benchmarks.scale import measure


def test_heads_and_updates_grow_with_devices_and_an_update_alone_does_not() -> None:
    few, many = measure(2, rounds=1), measure(12, rounds=1)
    assert few.alone == many.alone
    assert few.joining_all < many.joining_all
    # Two vectors are in a head: where it stands, and where it stated a snapshot.
    assert many.head - few.head >= 2 * 10 * 16
