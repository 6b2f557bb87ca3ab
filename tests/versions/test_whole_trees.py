"""The moments that `.hybrisfs/at` lists."""

from __future__ import annotations

from hybrisfs.versions.retention import DEFAULT_RETENTION, parse_retention
from hybrisfs.versions.tree import format_moment, whole_trees
from tests.merge.fleet import Device
from tests.versions.support import Clock, past_tree


def listed(device: Device, clock: Clock, rule: str = "default") -> list[str]:
    device.rig.commit()
    with device.rig.db.snapshot() as db:
        found = whole_trees(db, parse_retention(rule), clock.now)
    assert found == sorted(found, reverse=True)
    return [format_moment(one) for one in found]


def change(device: Device, clock: Clock, seconds: float) -> None:
    """Something, and time passes."""
    device.write("file", b"%d" % clock.now)
    device.sign()
    clock.tick(seconds)


def test_the_first_change_is_there_a_second_later(clock: Clock) -> None:
    [device] = clock.fleet(1).devices
    assert format_moment(clock.now) == "2027-01-15T08:00Z"
    change(device, clock, 0.5)
    assert listed(device, clock) == []
    clock.tick(0.5)
    assert listed(device, clock) == ["2027-01-15T08:00:01Z"]


def test_minutes_of_the_last_hour_and_hours_before(clock: Clock) -> None:
    [device] = clock.fleet(1).devices
    change(device, clock, 7 * 60)
    change(device, clock, 3 * 60)
    change(device, clock, 3 * 3600)
    assert listed(device, clock) == ["2027-01-15T09:00Z", "2027-01-15T08:10:01Z"]
    change(device, clock, 90)
    change(device, clock, 20)
    assert listed(device, clock) == [
        "2027-01-15T11:11:31Z",
        "2027-01-15T11:11Z",
        "2027-01-15T09:00Z",
    ]


def test_what_is_listed_is_what_was(clock: Clock) -> None:
    [device] = clock.fleet(1).devices
    contents = {}
    for _ in range(40):
        contents[clock.now] = b"%d" % clock.now
        change(device, clock, 1777)
    device.rig.commit()
    with device.rig.db.snapshot() as db:
        found = whole_trees(db, DEFAULT_RETENTION, clock.now)
    assert len(found) > 20
    for moment in found:
        assert (
            past_tree(device, moment)["file"].content
            == contents[max(one for one in contents if one <= moment)]
        )


def test_older_than_the_rule_keeps_all_are_midnights_only(clock: Clock) -> None:
    [device] = clock.fleet(1).devices
    for _ in range(6):
        change(device, clock, 12 * 3600)
    assert [one for one in listed(device, clock, "all:6h") if "T00:00Z" not in one] == [
        "2027-01-17T20:00:01Z"
    ]
    assert listed(device, clock, "off") == []
    assert all(one.endswith("T00:00Z") for one in listed(device, clock, "all:0h,daily:7d"))


def test_there_are_never_very_many(clock: Clock) -> None:
    [device] = clock.fleet(1).devices
    for _ in range(10):
        change(device, clock, 3600)
    device.rig.commit()
    with device.rig.db.snapshot() as db:
        few, all_ = (whole_trees(db, DEFAULT_RETENTION, clock.now, most) for most in (3, 1000))
    assert (few, len(all_)) == (all_[:3], 11)
