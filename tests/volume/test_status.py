"""What a volume tells of itself in sentences."""

from __future__ import annotations

from hybrisfs.volume.status import notices_of
from tests.facts import device_of

DAY = 86_400.0


def test_a_fork_is_told_of_for_a_week() -> None:
    devices = [device_of(), device_of(name="laptop", forked=True, forked_at=100 * DAY)]
    [notice] = notices_of(devices, 101 * DAY)
    assert notice.startswith("laptop has forked its history on ")
    assert notices_of(devices, 106.9 * DAY)
    assert not notices_of(devices, 107 * DAY)


def test_who_never_agrees_to_a_deletion_is_named_after_a_week() -> None:
    ghost = device_of(id="ab" * 16, name="old phone", unanswered_since=100 * DAY)
    tardy = device_of(id="cd" * 16, name="den (cdcdcdcd)", unanswered_since=90 * DAY, last_seen=90 * DAY)
    assert not notices_of([ghost, device_of()], 106.9 * DAY)
    [notice] = notices_of([ghost, device_of()], 107 * DAY)
    assert notice.startswith("what no file needs any more is not deleted from the clouds since 1970-04-11: ")
    assert "old phone has not agreed to that, and has not been seen here yet" in notice
    assert "hybrisfs device remove 'old phone'" in notice
    [notice] = notices_of([tardy], 107 * DAY)
    assert "and was last seen on 1970-04-01" in notice
    assert "hybrisfs device remove cdcdcdcd" in notice
