"""What the icon shows and what its menu offers, from what the daemon says to panels. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Final, Literal, NamedTuple, TypeAlias, get_args

import msgspec

from hybrisfs.api.status import PanelFile, PanelVolume

__all__ = ["HIDE", "SEPARATOR", "Entry", "Look", "look", "read_panels"]

State: TypeAlias = Literal["ok", "busy", "attention", "trouble"]

_LONGEST: Final = 1 << 20  # bytes of the file for panels
_MOST_SHOWN: Final = 20  # volumes in the menu
_STATES: Final = get_args(State)  # the worst is last
HIDE: Final = ("hide",)
"""The command that ends this process, and no other one."""


class Entry(NamedTuple):
    """A line of the menu. *command*: what a click runs, `hybrisfs` or `xdg-open` with arguments; nothing for
    a line that only tells something. An empty label is a separator."""

    label: str
    command: tuple[str, ...] = ()


SEPARATOR: Final = Entry("")


class Look(NamedTuple):
    """*status*: as the specification of StatusNotifierItem has it; a passive item is hidden by the panel.
    *command*: what a click on the icon itself runs."""

    icon: State | Literal["stopped"]
    status: Literal["Passive", "Active", "NeedsAttention"]
    text: str
    command: tuple[str, ...]
    entries: tuple[Entry, ...]


def read_panels(path: Path) -> PanelFile | None:
    """What the daemon says; None when there is no daemon, or it says something that this program does not
    know. Raises OSError."""
    try:
        with path.open("rb") as file:
            return msgspec.convert(json.loads(file.read(_LONGEST)), PanelFile)
    except (FileNotFoundError, ValueError, RecursionError):
        return None


def look(panels: PanelFile | None, *, has_volumes: bool) -> Look:
    """What is to be shown. *has_volumes*: whether this user has any, which tells when no daemon runs."""
    if panels is None or not panels.volumes:
        return _stopped() if panels is None and has_volumes else Look("ok", "Passive", "", (), ())
    volumes = sorted(panels.volumes, key=lambda one: (-_STATES.index(one.state), one.name))
    worst = volumes[0]
    text = "\n".join(map(_said_of, volumes[:_MOST_SHOWN]))
    entries = [entry for one in volumes[:_MOST_SHOWN] for entry in _entries_of(one)]
    return Look(
        worst.state,
        "NeedsAttention" if worst.state in ("attention", "trouble") else "Active",
        text,
        _page(worst),
        (*entries, Entry("Hide this icon", HIDE)),
    )


def _stopped() -> Look:
    text = "HybrisFS does not run: nothing that changes is brought to the clouds"
    start = ("hybrisfs", "status")
    return Look(
        "stopped",
        "NeedsAttention",
        text,
        start,
        (Entry(text), Entry("Start it", start), SEPARATOR, Entry("Hide this icon", HIDE)),
    )


def _entries_of(volume: PanelVolume) -> Iterator[Entry]:
    yield Entry(_said_of(volume))
    if volume.mountpoint is not None:
        yield Entry("Open the folder", ("xdg-open", volume.mountpoint))
    yield Entry("Open the page", _page(volume))
    if volume.conflicts:
        yield Entry("Conflicts ...", (*_page(volume), "--section", "conflicts"))
    if volume.paused:
        yield Entry("Resume transfers", ("hybrisfs", "resume", volume.name))
    else:
        yield Entry("Pause transfers for an hour", ("hybrisfs", "pause", volume.name, "--for", "1h"))
        yield Entry("Pause transfers", ("hybrisfs", "pause", volume.name))
    yield SEPARATOR


def _said_of(volume: PanelVolume) -> str:
    return f"{volume.name}: {volume.text}{'; transfers are paused' if volume.paused else ''}"


def _page(volume: PanelVolume) -> tuple[str, ...]:
    return ("hybrisfs", "ui", "--volume", volume.name)
