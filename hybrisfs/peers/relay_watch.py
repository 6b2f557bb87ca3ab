"""Keeps a line open to each relay, on which other devices reach this one, also behind a NAT."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection
from typing import Final

from hybrisfs.environment import Environment
from hybrisfs.peers.errors import PeerError
from hybrisfs.peers.handshakes import Handshakes
from hybrisfs.peers.settings import PeerSettings, Relay, format_address

__all__ = ["RelayWatch"]

log = logging.getLogger(__name__)

_QUICK: Final = 8
"""So many calls may come one after the other; a relay that makes up more is asked ever more seldom."""
_JITTER: Final = 0.3


class RelayWatch:
    """One thread per relay, from `configure` to `end`. Its methods may be called from any thread."""

    def __init__(
        self,
        handshakes: Handshakes,
        device: bytes,
        settings: PeerSettings,
        environment: Environment,
        reached: Callable[[], None],
    ) -> None:
        """*device* is this one. *reached* is called when a relay is there that was not before."""
        self._handshakes = handshakes
        self._device = device
        self._settings = settings
        self._monotonic = environment.monotonic
        self._wait = environment.wait
        self._chance = environment.chance()
        self._reached = reached
        self._changed = threading.Condition()
        self._hurries = 0
        self._ended = False
        self._threads: dict[Relay, threading.Thread] = {}

    @property
    def configured(self) -> Collection[Relay]:
        """The relays in use."""
        with self._changed:
            return list(self._threads)

    def configure(self, relays: Collection[Relay]) -> None:
        """Use these relays in place of the earlier ones."""
        with self._changed:
            if self._ended:
                return
            for relay in [one for one in self._threads if one not in relays]:
                del self._threads[relay]
            self._handshakes.wait_at(relays)
            new = [one for one in relays if one not in self._threads]
            for relay in new:
                thread = threading.Thread(target=self._run, args=(relay,), name="peers-relay", daemon=True)
                self._threads[relay] = thread
                thread.start()
            self._changed.notify_all()

    def hurry(self) -> None:
        """Try again now: the network has changed."""
        with self._changed:
            self._hurries += 1
            self._changed.notify_all()

    def end(self) -> None:
        """Wait no longer; `Handshakes.close` ends what is under way."""
        with self._changed:
            self._ended = True
            self._changed.notify_all()

    def join(self, deadline: float) -> None:
        """Wait until *deadline* (monotonic) for the threads to end."""
        for thread in list(self._threads.values()):
            thread.join(max(0.0, deadline - self._monotonic()))

    def _run(self, relay: Relay) -> None:
        failures = quick = 0
        lost = True
        while self._is_wanted(relay):
            begun, hurries = self._monotonic(), self._hurries
            opened = self._reached if lost else _nothing
            try:
                self._handshakes.await_call(relay, self._device, opened)
            except PeerError as error:
                if not lost or not failures:
                    log.info("relay %s: %s", format_address(relay.address), error)
                lasted = self._monotonic() - begun > self._settings.stable
                failures, lost = 1 if lasted else failures + 1, True
                self._pause(relay, failures, hurries)
            else:
                failures, lost = 0, False
                quick = 0 if self._monotonic() - begun > self._settings.stable else quick + 1
                if quick > _QUICK:
                    self._pause(relay, quick - _QUICK, hurries)

    def _is_wanted(self, relay: Relay) -> bool:
        with self._changed:
            return not self._ended and self._threads.get(relay) is threading.current_thread()

    def _pause(self, relay: Relay, failures: int, hurries: int) -> None:
        """Wait ever longer, but no longer than until the network changes after *hurries* changes."""
        longest = min(self._settings.last_retry, self._settings.first_retry * 2 ** min(failures - 1, 16))
        seconds = longest * (1 - _JITTER) + self._chance.uniform(0, longest * _JITTER)
        with self._changed:
            mine = threading.current_thread()
            self._wait(
                self._changed,
                lambda: self._ended or self._hurries != hurries or self._threads.get(relay) is not mine,
                seconds,
            )


def _nothing() -> None:
    pass
