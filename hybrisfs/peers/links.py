"""Which links stay: one per member that runs, the same one on both sides."""

from __future__ import annotations

import threading
from typing import Final, Protocol, TypeVar

__all__ = ["LinkTable", "Linked"]

_MAX_PER_DEVICE: Final = 4


class Linked(Protocol):
    """What is looked at in a link."""

    @property
    def device_id(self) -> bytes:
        """The other device."""

    @property
    def instance(self) -> bytes:
        """Differs for every start of the other device's service."""

    @property
    def outgoing(self) -> bool:
        """Whether this side connected."""

    @property
    def age(self) -> float:
        """Seconds since the link came about."""


AnyLink = TypeVar("AnyLink", bound=Linked)


class LinkTable(dict[bytes, list[AnyLink]]):
    """Device -> its links, those in use last. Guarded by its `lock`.

    A device that was cloned, or restored from a backup elsewhere, may run twice: its instances are told
    apart, and each may have a link. Otherwise there is one: two devices may connect to each other at the same
    time, or one through two addresses. Each then sees both links, perhaps in different order, and both must
    close the same one, without asking each other:

    * A link that is older than any attempt to connect can be is dead: its other side has given it up.
    * Of links opened by different sides, the one opened by the lower device id stays (or the lower instance,
      as two may have the same id).
    * Of links opened by the same side, the first one that this side saw stays. The other side uses the newer
      one for as long as both are there.
    """

    def __init__(self, own_id: bytes, own_instance: bytes, longest_attempt: float) -> None:
        """*longest_attempt* is how many seconds connecting may take on any device."""
        super().__init__()
        self._own = own_id, own_instance
        self._longest_attempt = longest_attempt
        self.lock = threading.Lock()

    def admit(self, new: AnyLink) -> list[AnyLink]:
        """Enter a link. The result are those to be closed as duplicates, which may be the new one."""
        with self.lock:
            stay: list[AnyLink] = []
            close: list[AnyLink] = []
            for old in self.get(new.device_id, []):
                if old.instance != new.instance or self._outlives(old, new):
                    stay.append(old)
                else:
                    close.append(old)
            if any(old.instance == new.instance and not self._coexist(old, new) for old in stay):
                close.append(new)
            else:
                stay.append(new)
            while len(stay) > _MAX_PER_DEVICE:
                close.append(stay.pop(0))
            self[new.device_id] = stay
            return close

    def remove(self, link: AnyLink) -> bool:
        """Forget a link that ended. True when it was the last one with its device."""
        with self.lock:
            rest = [other for other in self.get(link.device_id, []) if other is not link]
            if rest:
                self[link.device_id] = rest
                return False
            return self.pop(link.device_id, None) is not None

    def all(self) -> list[AnyLink]:
        """Every link."""
        with self.lock:
            return [link for links in self.values() for link in links]

    def current(self) -> list[AnyLink]:
        """One link for every device that has any, or every instance of it."""
        with self.lock:
            return [
                link for links in self.values() for link in {link.instance: link for link in links}.values()
            ]

    def devices(self) -> frozenset[bytes]:
        """The devices that have a link."""
        with self.lock:
            return frozenset(self)

    def _outlives(self, old: AnyLink, new: AnyLink) -> bool:
        if old.age > self._longest_attempt:
            return False
        return old.outgoing == new.outgoing or self._opener(old) < self._opener(new)

    def _coexist(self, old: AnyLink, new: AnyLink) -> bool:
        return not old.outgoing and not new.outgoing

    def _opener(self, link: AnyLink) -> tuple[bytes, bytes]:
        return self._own if link.outgoing else (link.device_id, link.instance)
