"""What is not as it should be, read from what `hybrisfs status` tells of a volume. Pure."""

from __future__ import annotations

from typing import Final, NamedTuple, TypeAlias

from hybrisfs.api.status import AnyVolume, UnusableVolume, VolumeStatus
from hybrisfs.shown import shown
from hybrisfs.verdict import judge

__all__ = ["Condition", "Facts", "conditions"]

Facts: TypeAlias = AnyVolume

_TROUBLED: Final = {
    "down": "cannot be reached",
    "auth": "refuses the credentials",
    "lying": "returns other things than were put there",
    "full": "is full",
}


class Condition(NamedTuple):
    """`state` tells one trouble from another of the same topic; `text` says it to a person, in a sentence."""

    state: str
    text: str
    ended: str  # what is said when it is over


def conditions(facts: Facts) -> dict[str, Condition]:
    """What is wrong now, by topic: `volume`, `removed`, `mount`, `clouds`, `cloud/NAME`, `device/ID`,
    `fork/ID`, `charge/ID`, `conflicts`, `warning/TEXT` and `error`."""
    found: dict[str, Condition] = {}
    if isinstance(facts, UnusableVolume):
        found["volume"] = Condition(
            "unusable", f"it cannot be used: {_last_error(facts)}", "it can be used again"
        )
        return found
    if facts.removed:
        found["removed"] = Condition(
            "",
            "this device was removed from the volume: what changes here reaches no other device",
            "this device belongs to the volume again",
        )
    missing = facts.missing_mount
    if missing is not None:
        why = missing.reason.partition("\n")[0]
        found["mount"] = Condition(
            why,
            f"it is not mounted at {missing.directory}, as it should be: {why}",
            "it is as it should be",
        )
    _look_at_clouds(facts, found)
    _look_at_devices(facts, found)
    conflicts = facts.conflicts
    if conflicts:
        some = "1 conflict is" if conflicts == 1 else f"{conflicts} conflicts are"
        found["conflicts"] = Condition(
            "", f"{some} to be settled: hybrisfs conflicts list", "all conflicts are settled"
        )
    for warning in facts.warnings:
        found[f"warning/{warning}"] = Condition("", warning, f"over: {warning}")
    if facts.last_error:
        found["error"] = Condition(_last_error(facts), f"an error: {_last_error(facts)}", "the error is gone")
    return found


def _last_error(facts: Facts) -> str:
    return facts.last_error or "see the log"


def _look_at_clouds(facts: VolumeStatus, found: dict[str, Condition]) -> None:
    clouds = facts.clouds
    for cloud in clouds:
        name, state = cloud.name, cloud.state
        if state in _TROUBLED:
            reason = f": {cloud.reason}" if cloud.reason else ""
            found[f"cloud/{name}"] = Condition(
                state, f"{name} {_TROUBLED[state]}{reason}", f"{name} is well again"
            )
    verdict = judge(facts)
    if verdict.level == "danger":
        away = f"{len(verdict.unreadable)} of {len(clouds)} clouds are away"
        found["clouds"] = Condition(
            "unreadable",
            f"{away}: what is not on this machine may be unreadable",
            "everything can be read again",
        )


def _look_at_devices(facts: VolumeStatus, found: dict[str, Condition]) -> None:
    for device in facts.devices:
        name = shown(device.name)
        if device.suspect:
            found[f"device/{device.id}"] = Condition(
                "suspect",
                f"changes of {name} may be missing here: it has not been heard of for too long",
                f"{name} has been heard of again",
            )
        if device.forked:
            found[f"fork/{device.id}"] = Condition(
                "forked",
                f"{name} has forked its history: it was restored from a backup, or copied. Both are kept",
                f"{name} belongs to the volume no longer",
            )
        for charge in device.charges:
            if charge.kind != "fork":
                found[f"charge/{device.id}"] = Condition(
                    "misbehaved",
                    f"{name} {charge.what}. It may have been taken over: hybrisfs device proof {name}",
                    f"{name} belongs to the volume no longer",
                )
