"""Where to connect to, and when: addresses with their backoff. Sans-IO: the time comes with every call."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from random import Random
from typing import Final

from msgspec import Struct

from hybrisfs.peers.settings import Address, PeerSettings, Place, Relay, Through

__all__ = ["Targets"]

_MAX_PER_DEVICE: Final = 8
_JITTER: Final = 0.3


class _Target(Struct):
    device: bytes | None
    configured: bool
    due: float
    failures: int = 0
    dialing: bool = False


class Targets:
    """Addresses that the user gave, that devices announced, and at which they were met; and relays, through
    which all members may be reached. Not thread-safe.

    A place is tried when it is due and its device, as far as it is known, has no link; an address also when
    the device has a link through a relay. It becomes due later each time it fails, by up to `last_retry`
    seconds and some at random, so that devices do not march in step.
    """

    def __init__(self, settings: PeerSettings, chance: Random) -> None:
        self._first = settings.first_retry
        self._last = settings.last_retry
        self._chance = chance
        self._targets: dict[Place, _Target] = {}

    def configure(self, addresses: Iterable[Address], now: float) -> None:
        """The user's addresses, in place of the earlier ones; all are due at once."""
        wanted = set(addresses)
        for address, target in list(self._targets.items()):
            if target.configured and address not in wanted:
                if target.device is None:
                    del self._targets[address]
                else:
                    target.configured = False
        for address in wanted:
            target = self._targets.setdefault(address, _Target(None, True, now))
            target.configured = True
            self._hurry(target, now)

    def relayed(self, relays: Collection[Relay], dues: Mapping[bytes, float]) -> None:
        """These relays, in place of the earlier ones, lead to these devices; a new place is due at the time
        that is given for its device."""
        wanted = {Through(relay, device): due for relay in relays for device, due in dues.items()}
        for place in [one for one in self._targets if isinstance(one, Through) and one not in wanted]:
            del self._targets[place]
        for place, due in wanted.items():
            self._targets.setdefault(place, _Target(place.device, False, due))

    def seen(self, device: bytes, addresses: Iterable[Address], now: float) -> None:
        """A device announced itself, or was met, at these addresses: they are due at *now*."""
        for address in list(addresses)[:_MAX_PER_DEVICE]:
            target = self._targets.pop(address, None) or _Target(device, False, now)
            target.device = device
            self._hurry(target, now)
            self._targets[address] = target
        theirs = [a for a, one in self._targets.items() if one.device == device and isinstance(a, tuple)]
        for address in theirs[: max(0, len(theirs) - _MAX_PER_DEVICE)]:
            if not self._targets[address].configured:
                del self._targets[address]

    def keep_members(self, members: Collection[bytes]) -> None:
        """Forget what belongs to devices that are not members, but for the user's addresses."""
        for address, target in list(self._targets.items()):
            if target.device is not None and target.device not in members:
                if target.configured:
                    target.device = None
                else:
                    del self._targets[address]

    def hurry(self, now: float) -> None:
        """The world has changed: everything is due."""
        for target in self._targets.values():
            self._hurry(target, now)

    def take_due(self, now: float, linked: Mapping[bytes, bool], most: int) -> list[Place]:
        """At most *most* places to connect to now; each is to be reported on later. *linked* says whether a
        device's link is direct.

        Of a device one address at a time, and one relay.
        """
        dialing = {_kind(place, target) for place, target in self._targets.items() if target.dialing}
        taken: list[Place] = []
        for place, target in self._targets.items():
            if len(taken) >= most:
                break
            if target.dialing or target.due > now or _is_needless(place, target, linked):
                continue
            if target.device is not None and _kind(place, target) in dialing:
                continue
            target.dialing = True
            dialing.add(_kind(place, target))
            taken.append(place)
        return taken

    def next_due(self, linked: Mapping[bytes, bool]) -> float | None:
        """When `take_due` may have more, unless something else happens before."""
        waiting = [
            target.due
            for place, target in self._targets.items()
            if not target.dialing and not _is_needless(place, target, linked)
        ]
        return min(waiting, default=None)

    def met(self, address: Place, device: bytes) -> None:
        """Connecting to the place led to this device. Only a link that lasts makes up for failures."""
        if target := self._targets.get(address):
            target.dialing = False
            target.device = device

    def failed(self, address: Place, now: float) -> None:
        """Connecting to the place did not work."""
        if target := self._targets.get(address):
            target.dialing = False
            self._delay(target, now)

    def lost(self, device: bytes, stable: bool, now: float) -> None:
        """The link with a device ended; *stable* when it had lasted for long enough to trust it."""
        for target in self._targets.values():
            if target.device == device:
                if stable:
                    target.failures = 0
                    target.due = now + self._random(self._first)
                else:
                    self._delay(target, now)

    def _hurry(self, target: _Target, now: float) -> None:
        target.failures = 0
        target.due = now

    def _delay(self, target: _Target, now: float) -> None:
        wait = min(self._last, self._first * 2 ** min(target.failures, 16))
        target.failures += 1
        target.due = now + wait * (1 - _JITTER) + self._random(wait * _JITTER)

    def _random(self, span: float) -> float:
        return self._chance.uniform(0, span)


def _kind(place: Place, target: _Target) -> tuple[bytes | None, bool]:
    return target.device, isinstance(place, Through)


def _is_needless(place: Place, target: _Target, linked: Mapping[bytes, bool]) -> bool:
    """Whether its device has a link that is as good."""
    is_direct = linked.get(target.device) if target.device is not None else None
    return is_direct is not None and (is_direct or isinstance(place, Through))
