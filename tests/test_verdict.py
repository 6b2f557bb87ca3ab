"""Is everything safe? The judgement by what `status` says."""

from __future__ import annotations

from typing import Any

import pytest

from hybrisfs.verdict import Level, judge


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


def test_changes_of_names_alone_are_pending_too() -> None:
    assert judge({**volume("ok ok ok"), "pending_bytes": 7}).pending
    assert judge({**volume("ok ok ok"), "transfers": None}).level == "safe"
