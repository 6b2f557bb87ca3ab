"""What is not as it should be, read from what `hybrisfs status` tells of a volume. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, Literal, NamedTuple, TypeAlias

from msgspec import Struct, field

from hybrisfs.api.status import AnyVolume, PanelVolume, UnusableVolume, VolumeStatus
from hybrisfs.events.event import Event, Kind
from hybrisfs.shown import shown
from hybrisfs.verdict import judge, machines_only

__all__ = ["Condition", "Facts", "Happening", "Observer", "conditions", "summary"]

Facts: TypeAlias = AnyVolume

_TROUBLED: Final = {
    "down": "cannot be reached",
    "refusing": "refuses the credentials",
    "lying": "returns other things than were put there",
    "full": "is full",
}


class Condition(NamedTuple):
    """`state` tells one trouble from another of the same topic; `text` says it to a person, in a sentence."""

    state: str
    text: str
    ended: str  # what is said when it is over; "": it lasted so long, and what it was


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
            "this machine was removed from the volume: what changes here reaches no other machine",
            "this machine belongs to the volume again",
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
        found[f"warning/{warning}"] = Condition("", warning, "")
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
                f"changes of {name} may be missing here: it has not been seen for too long",
                f"{name} is back",
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


# -- what has happened between two looks at a volume. Pure: times are given -----------------------------


_LONG: Final = 60.0  # seconds: after a wait as long as that for the clouds, people learn of its end
_MINUTE: Final = 60
_HOUR: Final = 3600
_DAY: Final = 86400


class Happening(NamedTuple):
    """An event without number and time."""

    kind: Kind
    topic: str
    text: str


class _Trouble(Struct):
    state: str
    since: float
    text: str
    ended: str  # see `Condition`


class Observer(Struct):
    """Looks at one volume again and again."""

    _troubles: dict[str, _Trouble] = field(default_factory=dict)
    _devices: dict[str, str] | None = None
    _pending_since: float | None = None
    _conflicts: int = 0
    _rules: Mapping[str, str | None] | None = None
    _merged: frozenset[tuple[str, float]] = frozenset()

    def remember(self, events: Iterable[Event]) -> None:
        """Take trouble that was going on when the last daemon ended for known; *events* in their order."""
        for event in events:
            if event.kind == "trouble":
                self._troubles[event.topic] = _Trouble("", event.time, event.text, "")
            elif event.kind == "over":
                self._troubles.pop(event.topic, None)

    def look(self, facts: Facts, now: float) -> list[Happening]:
        """What has happened since the last look; *now* in seconds since the epoch."""
        return [
            *self._troubled(facts, now),
            *self._more_conflicts(facts),
            *self._members(facts),
            *self._ignore_rules(facts),
            *self._merges(facts),
            *self._safe(facts, now),
        ]

    def date(self, facts: VolumeStatus) -> None:
        """Make `since` of each cloud that is in trouble the moment at which that was first seen."""
        for cloud in facts.clouds:
            trouble = self._troubles.get(f"cloud/{cloud.name}")
            if trouble is not None and trouble.state in ("", cloud.state):
                cloud.since = min(cloud.since, round(trouble.since))

    def _troubled(self, facts: Facts, now: float) -> Iterable[Happening]:
        found = conditions(facts)
        for topic, condition in found.items():
            known = self._troubles.get(topic)
            if known is None or known.state not in ("", condition.state):
                yield Happening("trouble", topic, condition.text)
            since = now if known is None else known.since
            self._troubles[topic] = _Trouble(condition.state, since, condition.text, condition.ended)
        for topic in [topic for topic in self._troubles if topic not in found]:
            over = self._troubles.pop(topic)
            span = _span(now - over.since)
            said = f"{over.ended}, after {span}" if over.ended else f"it lasted {span}: {over.text}"
            yield Happening("over", topic, said)

    def _more_conflicts(self, facts: Facts) -> Iterable[Happening]:
        before, self._conflicts = self._conflicts, facts.conflicts or 0
        more = self._conflicts - before
        if before and more > 0:
            yield Happening("news", "conflicts", "1 more conflict" if more == 1 else f"{more} more conflicts")

    def _members(self, facts: Facts) -> Iterable[Happening]:
        if isinstance(facts, UnusableVolume):
            return
        devices = {one.id: one.name for one in facts.devices}
        before, self._devices = self._devices, devices
        if before is None:
            return
        for device in devices.keys() - before.keys():
            yield Happening("news", f"member/{device}", f"{devices[device]} belongs to the volume now")
        for device in before.keys() - devices.keys():
            yield Happening("news", f"member/{device}", f"{before[device]} belongs to the volume no longer")

    def _ignore_rules(self, facts: Facts) -> Iterable[Happening]:
        """A rule decides for all machines what is not saved, whichever added it."""
        if isinstance(facts, UnusableVolume):
            return
        rules = {one.pattern: one.by for one in facts.ignored.rules}
        before, self._rules = self._rules, rules
        if before is None:
            return
        for pattern in sorted(rules.keys() - before.keys()):
            whose = f", by a rule of {shown(rules[pattern] or 'a machine')}"
            text = f"new files that match {shown(pattern)} stay on the machine that makes them{whose}"
            yield Happening("news", f"ignore/{pattern}", text)
        for pattern in sorted(before.keys() - rules.keys()):
            text = f"files that match {shown(pattern)} are synced: the ignore rule is gone"
            yield Happening("news", f"ignore/{pattern}", text)

    def _merges(self, facts: Facts) -> Iterable[Happening]:
        """Nobody has asked for it, so people learn where the versions are."""
        if isinstance(facts, UnusableVolume):
            return
        before, self._merged = self._merged, frozenset((one.path, one.at) for one in facts.merged)
        for path, _ in sorted(self._merged - before, key=lambda one: one[1]):
            text = f"the changes of two machines in {shown(path)} were merged: both stay as earlier versions"
            yield Happening("news", f"merged/{path}", text)

    def _safe(self, facts: Facts, now: float) -> Iterable[Happening]:
        if isinstance(facts, UnusableVolume):
            return
        if facts.pending_files or facts.pending_bytes or machines_only(facts.machines_only):
            self._pending_since = self._pending_since or now
            return
        since, self._pending_since = self._pending_since, None
        if since is not None and now - since >= _LONG:
            yield Happening("news", "safe", f"everything is safe on the clouds, after {_span(now - since)}")


def _span(seconds: float) -> str:
    for length, unit in ((_DAY, "day"), (_HOUR, "hour"), (_MINUTE, "minute")):
        if seconds >= length:
            number = int(seconds // length)
            return f"{number} {unit}{'' if number == 1 else 's'}"
    return "less than a minute"


# -- one word and one sentence for a panel. Pure --------------------------------------------------------


_SERIOUS: Final = ("volume", "removed", "mount", "clouds", "error")


def summary(facts: Facts) -> PanelVolume:
    """What a panel shows of a volume."""
    found = conditions(facts)
    pending = facts.pending_files or 0
    state: Literal["ok", "busy", "attention", "trouble"]
    if any(topic in found for topic in _SERIOUS):
        state = "trouble"
        text = next(found[topic].text for topic in _SERIOUS if topic in found)
    elif found:
        state, text = "attention", next(iter(found.values())).text
    elif pending or facts.pending_bytes:
        state = "busy"
        text = f"{pending} change{'' if pending == 1 else 's'} on the way to the clouds"
    elif (elsewhere := machines_only(facts.machines_only)) is not None:
        files = elsewhere.files
        some = "1 file is" if files == 1 else f"{files} files are" if files else "changes are"
        state, text = "busy", f"{some} on your machines only, and on no cloud yet"
    else:
        but = " but what ignore rules keep here" if facts.ignored and facts.ignored.files else ""
        state, text = "ok", f"everything is safe on the clouds{but}"
    return PanelVolume(
        name=facts.name,
        state=state,
        text=text,
        pending_files=pending,
        pending_bytes=facts.pending_bytes or 0,
        conflicts=facts.conflicts or 0,
        mountpoint=facts.mountpoint,
        paused=isinstance(facts, VolumeStatus) and facts.transfers.held == "paused",
    )
