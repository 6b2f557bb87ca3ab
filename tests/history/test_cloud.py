"""What is remembered of a cloud, in memory and on the disk."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import asdict

from hybrisfs.dispersal.counting import Use
from hybrisfs.dispersal.traffic import Counters
from hybrisfs.environment import SYSTEM
from hybrisfs.history import CloudHistory, HealthRecord, Month

NOON = time.mktime((2026, 11, 22, 12, 0, 0, 0, 0, -1)) // 300 * 300


def test_counters_become_rates_and_means() -> None:
    cloud = CloudHistory("amber")
    cloud.count(NOON, Counters(), "ok")
    cloud.count(NOON + 10, Counters(up=5000, down=100, reads=4, read_seconds=0.2, failed=1), "slow")
    cloud.count(NOON + 20, Counters(up=5000, down=100, reads=4, read_seconds=0.2, failed=1), "nonsense")
    hour = {
        name: values
        for name, values in asdict(cloud.series("hour", NOON + 30, 0)).items()
        if isinstance(values, list)
    }
    assert {name: values[-3:] for name, values in hour.items()} == {
        "up": [0, 500, 0],
        "down": [0, 10, 0],
        "read": [None, 0.05, None],
        "write": [None, None, None],
        "failed": [0, 1, 0],
        "state": [0, 1, 0],
    }
    assert all(len(values) == 360 for values in hour.values())
    day = cloud.series("day", NOON + 300, 0)
    assert (day.up[-1], day.read[-1], day.state[-1]) == (round(5000 / 300), 0.05, 1)
    assert day.up[:-1] == [None] * 287


def test_counters_that_begin_anew_are_counted_from_nothing() -> None:
    cloud = CloudHistory("amber")
    cloud.count(NOON, Counters(up=9000, put=9), "ok")
    cloud.count(NOON + 10, Counters(up=1000, put=1), "ok")
    assert cloud.series("hour", NOON + 20, 0).up[-2:] == [900, 100]
    assert cloud.months == [Month("2026-11", Use(put=10, up=10_000))]


def test_months_follow_each_other() -> None:
    cloud = CloudHistory("amber")
    for days, puts in ((0, 5), (30, 7), (60, 20)):
        cloud.count(NOON + days * 86400, Counters(put=puts), "ok")
    assert cloud.months == [Month("2026-12", Use(put=2)), Month("2027-01", Use(put=13))]


def saved(path: Path) -> HealthRecord:
    history = HealthRecord()
    for tick in range(5):
        history.count(NOON + tick * 10, 7, "amber", Counters(up=tick * 1000, get=tick), "ok")
    history.count(NOON, 3, "birch", Counters(), "down")
    history.save(path, SYSTEM)
    return history


def test_it_survives_a_restart(tmp_path: Path) -> None:
    path = tmp_path / "history.json"
    before = saved(path)
    after = HealthRecord.load(path)
    assert list(after.clouds) == [7, 3]
    for number, cloud in before.clouds.items():
        again = after.clouds[number]
        assert (again.name, again.months) == (cloud.name, cloud.months)
        for span in ("hour", "day"):
            assert again.series(span, NOON + 300, 0) == cloud.series(span, NOON + 300, 0)


def test_no_file_is_no_history(tmp_path: Path) -> None:
    assert HealthRecord.load(tmp_path / "history.json").clouds == {}


def test_clouds_that_went_are_forgotten(tmp_path: Path) -> None:
    history = saved(tmp_path / "history.json")
    history.keep_only({3: None})
    assert list(history.clouds) == [3]


def _nan(facts: Any) -> None:
    facts["clouds"]["7"]["rings"]["hour"][0][1] = float("nan")


def _negative(facts: Any) -> None:
    facts["clouds"]["7"]["rings"]["hour"][0][1] = -1


def _short(facts: Any) -> None:
    facts["clouds"]["7"]["rings"]["day"][0].pop()


def _long(facts: Any) -> None:
    facts["clouds"]["7"]["rings"]["hour"] *= 100


def _state(facts: Any) -> None:
    facts["clouds"]["7"]["rings"]["hour"][0][-1] = 6


def _month(facts: Any) -> None:
    facts["clouds"]["7"]["months"][0]["name"] = "2026-13"


def _count(facts: Any) -> None:
    facts["clouds"]["7"]["months"][0]["get"] = True


def _version(facts: Any) -> None:
    facts["version"] = 2


def _number(facts: Any) -> None:
    facts["clouds"]["seven"] = facts["clouds"].pop("7")


def _name(facts: Any) -> None:
    facts["clouds"]["7"]["name"] = "x" * 1000


@pytest.mark.parametrize(
    "spoil", [_nan, _negative, _short, _long, _state, _month, _count, _version, _number, _name]
)
def test_a_damaged_file_is_refused(tmp_path: Path, spoil: Any) -> None:
    path = tmp_path / "history.json"
    saved(path)
    facts = json.loads(path.read_text())
    spoil(facts)
    path.write_text(json.dumps(facts))
    with pytest.raises(ValueError, match=r"\w"):
        HealthRecord.load(path)


@pytest.mark.parametrize("data", [b"", b"[]", b"{", b'{"version":1,"clouds":[]}', b"[" * 100_000, b"\xff"])
def test_nonsense_is_refused(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "history.json"
    path.write_bytes(data)
    with pytest.raises(ValueError, match=r"\w"):
        HealthRecord.load(path)
