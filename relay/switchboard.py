"""Connects lines (`hybrisfs.peers.lines`): a device that calls with one that waits under the tag it calls.

The table has no sockets and no clock; `relay.line` has them. A line is in one of these states:

    asked      it has not said yet what it wants
    waiting    under the tag of its space; told so now and then, which also keeps a NAT from forgetting it
    connected  to one other line: what either says goes to the other, as it is
    over       it is to be closed
"""

from __future__ import annotations

from collections import Counter
from typing import Final, Protocol, TypeAlias

from msgspec import Struct

from hybrisfs.peers.lines import LineRequest, Role, Said

__all__ = ["Caller", "Switchboard", "SwitchboardLimits"]

_Tag: TypeAlias = tuple[str, bytes]
"""A space and a tag in it."""
_Key: TypeAlias = tuple[str, str]
"""A space and its token."""


class SwitchboardLimits(Struct, frozen=True):
    """How many lines there may be."""

    of_space: int = 512
    of_tag: int = 4
    """That wait: a device that slept, or lost its network, leaves one behind until that is noticed."""


class Caller(Protocol):
    """A line, as the table sees it."""

    def say(self, said: Said) -> None:
        """Tell the device something."""

    def connect(self, other: Caller) -> None:
        """From now on what it says is for the other one."""

    def end(self) -> None:
        """Close it, when what it was told has gone out."""


_LIMITS: Final = SwitchboardLimits()


class Switchboard:
    """The table. Used by one thread."""

    def __init__(self, limits: SwitchboardLimits = _LIMITS) -> None:
        self._limits = limits
        self._spaces: dict[Caller, _Key] = {}
        self._counts: Counter[str] = Counter()
        self._waiting: dict[_Tag, list[Caller]] = {}
        self._tags: dict[Caller, _Tag] = {}

    def ask(self, line: Caller, request: LineRequest | None) -> None:
        """A line asks for something; None: it has asked for what it may not have."""
        if request is None:
            self._refuse(line, Said.REFUSED)
        elif self._counts[request.space] >= self._limits.of_space:
            self._refuse(line, Said.FULL)
        elif request.role is Role.WAIT:
            self._enter(line, request)
            self._wait(line, (request.space, request.tag))
        else:
            self._call(line, request)

    def gone(self, line: Caller) -> None:
        """A line was closed."""
        self._stop_waiting(line)
        key = self._spaces.pop(line, None)
        if key is not None:
            self._counts[key[0]] -= 1

    def remind(self) -> None:
        """Tell all that wait that they still do."""
        for lines in list(self._waiting.values()):
            for line in list(lines):
                line.say(Said.WAITING)

    def keep(self, opened: frozenset[_Key]) -> None:
        """End the lines that have come with another token than one of these, or for another space."""
        for line in [one for one, key in self._spaces.items() if key not in opened]:
            line.end()

    def _refuse(self, line: Caller, why: Said) -> None:
        line.say(why)
        line.end()

    def _enter(self, line: Caller, request: LineRequest) -> None:
        self._spaces[line] = request.space, request.token
        self._counts[request.space] += 1

    def _wait(self, line: Caller, tag: _Tag) -> None:
        lines = self._waiting.setdefault(tag, [])
        lines.append(line)
        self._tags[line] = tag
        line.say(Said.WAITING)
        while len(lines) > self._limits.of_tag:
            oldest = lines[0]
            self._stop_waiting(oldest)
            oldest.end()

    def _call(self, line: Caller, request: LineRequest) -> None:
        lines = self._waiting.get((request.space, request.tag))
        if not lines:
            self._refuse(line, Said.NOBODY)
            return
        other = lines[-1]  # the newest: those before may be dead
        self._stop_waiting(other)
        self._enter(line, request)
        for one, its_other in ((line, other), (other, line)):
            one.connect(its_other)
            one.say(Said.CONNECTED)

    def _stop_waiting(self, line: Caller) -> None:
        tag = self._tags.pop(line, None)
        if tag is not None:
            self._waiting[tag].remove(line)
            if not self._waiting[tag]:
                del self._waiting[tag]
