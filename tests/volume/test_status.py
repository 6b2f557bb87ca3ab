"""What a volume tells of itself in sentences."""

from __future__ import annotations

from hybrisfs.volume.status import notices_of

DAY = 86_400.0


def test_a_fork_is_told_of_for_a_week() -> None:
    devices = [{"name": "desk", "forked": False}, {"name": "laptop", "forked": True, "forked_at": 100 * DAY}]
    [notice] = notices_of(devices, 101 * DAY)
    assert notice.startswith("laptop has forked its history on ")
    assert notices_of(devices, 106.9 * DAY)
    assert not notices_of(devices, 107 * DAY)
