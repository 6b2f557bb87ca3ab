"""Is everything safe? The judgement by what `status` says."""

from __future__ import annotations

from typing import Any, Literal

import pytest

from hybrisfs.api.status import MachinesOnly, VolumeStatus
from hybrisfs.verdict import Level, judge, machines_only
from tests.facts import status_of


def volume(
    states: str,
    *,
    pending: int = 0,
    held: Literal["paused", "metered"] | None = None,
    f: int = 1,
    **different: Any,
) -> VolumeStatus:
    clouds = [{"name": f"cloud-{n}", "state": state} for n, state in enumerate(states.split())]
    facts = status_of(clouds=clouds, pending_files=pending, f=f, **different)
    facts.transfers.held = held
    return facts


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
        (volume("ok refusing ok"), "degraded"),
        (volume("ok down refusing"), "danger"),
        (volume("ok down lying", pending=1, held="paused"), "danger"),
        (volume("down ok ok", f=0), "danger"),
    ],
)
def test_levels(facts: VolumeStatus, level: Level) -> None:
    assert judge(facts).level == level


def test_what_it_follows_from() -> None:
    verdict = judge(volume("ok full down", pending=1))
    assert [one.name for one in verdict.unwritable] == ["cloud-1", "cloud-2"]
    assert [one.name for one in verdict.unreadable] == ["cloud-2"]
    assert (verdict.needed, verdict.working, verdict.pending) == (2, 1, True)


@pytest.mark.parametrize("lacking", [{"files": 1, "devices": ["ada"]}, {"files": 0, "devices": ["ada"]}])
def test_what_only_machines_hold_is_not_safe(lacking: dict[str, Any]) -> None:
    found = {"bytes": 0, **lacking}
    facts = volume("ok ok ok", machines_only=found)
    assert judge(facts).level == "pending" and judge(facts).pending
    assert judge(volume("ok full full", machines_only=found)).level == "short"
    facts.machines_only = MachinesOnly(0, 0, [])
    assert judge(facts).level == "safe"
    assert machines_only(facts.machines_only) is None
    assert machines_only(None) is None


def test_a_device_that_was_removed_is_told_that_first() -> None:
    for states in ("ok ok ok", "down down down"):
        assert judge(volume(states, pending=1, removed=True)).level == "removed"
    assert judge(volume("ok ok ok", removed=False)).level == "safe"


def test_changes_of_names_alone_are_pending_too() -> None:
    assert judge(volume("ok ok ok", pending_bytes=7)).pending
