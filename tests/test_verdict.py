"""Is everything safe? The judgement by what `status` says."""

from __future__ import annotations

from typing import Any

import pytest

from hybrisfs.verdict import Level, judge, machines_only


def volume(states: str, *, pending: int = 0, held: str | None = None, f: int = 1) -> dict[str, Any]:
    clouds = [{"name": f"cloud-{n}", "state": state} for n, state in enumerate(states.split())]
    transfers = {"held": held}
    return {
        "f": f,
        "k": 1,
        "pending_files": pending,
        "pending_bytes": 0,
        "clouds": clouds,
        "transfers": transfers,
    }


@pytest.mark.parametrize(
    ("facts", "level"),
    [
        (volume("ok ok ok"), "safe"),
        (volume("ok slow ok"), "safe"),
        (volume("ok ok ok", held="paused"), "safe"),
        (volume("ok ok ok", pending=1), "pending"),
        (volume("ok down ok", pending=1), "pending"),
        (volume("ok ok ok", pending=1, held="paused"), "held"),
        (volume("ok down ok", pending=1, held="metered"), "held"),
        (volume("ok full full", pending=1), "short"),
        (volume("ok down full", pending=1), "short"),
        (volume("ok full ok"), "degraded"),
        (volume("ok lying ok"), "degraded"),
        (volume("ok auth ok"), "degraded"),
        (volume("ok down auth"), "danger"),
        (volume("ok down lying", pending=1, held="paused"), "danger"),
        (volume("down ok ok", f=0), "danger"),
    ],
)
def test_levels(facts: dict[str, Any], level: Level) -> None:
    assert judge(facts).level == level


def test_what_it_follows_from() -> None:
    verdict = judge(volume("ok full down", pending=1))
    assert [one["name"] for one in verdict.unwritable] == ["cloud-1", "cloud-2"]
    assert [one["name"] for one in verdict.unreadable] == ["cloud-2"]
    assert (verdict.needed, verdict.working, verdict.pending) == (2, 1, True)


@pytest.mark.parametrize("lacking", [{"files": 1, "devices": ["ada"]}, {"files": 0, "devices": ["ada"]}])
def test_what_only_machines_hold_is_not_safe(lacking: dict[str, Any]) -> None:
    facts = {**volume("ok ok ok"), "machines_only": {"bytes": 0, **lacking}}
    assert judge(facts).level == "pending" and judge(facts).pending
    assert judge({**facts, "clouds": volume("ok full full")["clouds"]}).level == "short"
    nothing = {"files": 0, "bytes": 0, "devices": []}
    assert judge({**facts, "machines_only": nothing}).level == "safe"
    assert machines_only({**facts, "machines_only": nothing}) is None
    assert machines_only(volume("ok")) is None


def test_a_device_that_was_removed_is_told_that_first() -> None:
    for states in ("ok ok ok", "down down down"):
        assert judge({**volume(states, pending=1), "removed": True}).level == "removed"
    assert judge({**volume("ok ok ok"), "removed": False}).level == "safe"


def test_changes_of_names_alone_are_pending_too() -> None:
    assert judge({**volume("ok ok ok"), "pending_bytes": 7}).pending
    assert judge({**volume("ok ok ok"), "transfers": None}).level == "safe"
