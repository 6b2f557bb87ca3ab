"""Connects to the members that have no link: one thread looks what is due, few short-lived ones dial."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Final

from hybrisfs.environment import Environment
from hybrisfs.peers.errors import PeerError
from hybrisfs.peers.handshakes import Handshakes, LocalPeer
from hybrisfs.peers.settings import Address, PeerSettings, Place, Relay, format_place
from hybrisfs.peers.targets import Targets

__all__ = ["Connector"]

log = logging.getLogger(__name__)

_MAX_DIALING: Final = 8
_IDLE: Final = 5.0
_SLEPT: Final = 5.0


class Connector:
    """Works from `start` to `close`. Every other method returns at once and may be called by any thread."""

    def __init__(
        self,
        handshakes: Handshakes,
        settings: PeerSettings,
        local: LocalPeer,
        environment: Environment,
    ) -> None:
        self._handshakes = handshakes
        self._local = local
        self._boot_time = environment.boot_time
        self._monotonic = environment.monotonic
        self._wait = environment.wait
        self._changed = threading.Condition()
        self._woken = False
        self._targets = Targets(settings, environment.chance())
        self._targets.configure(settings.addresses, self._monotonic())
        self._dialers: set[threading.Thread] = set()
        self._closing = False
        self._thread = threading.Thread(target=self._run, name="peers-connect", daemon=True)

    def start(self) -> None:
        """Begin to connect."""
        self._thread.start()

    def close(self, deadline: float) -> None:
        """Stop, and wait until *deadline* (monotonic); `Handshakes.close` ends what is under way."""
        with self._changed:
            self._closing = True
            self._wake()
            threads = [*self._dialers, self._thread]
        for thread in threads:
            if thread.ident is not None:
                thread.join(max(0.0, deadline - self._monotonic()))

    def configure(self, addresses: Iterable[Address]) -> None:
        """Replace the user's addresses."""
        self._change(lambda now: self._targets.configure(addresses, now))

    def relayed(self, relays: Collection[Relay], delays: Mapping[bytes, float]) -> None:
        """Replace the relays, and the devices that they lead to; a new one is called in so many seconds."""
        self._change(
            lambda now: self._targets.relayed(relays, {one: now + delay for one, delay in delays.items()})
        )

    def seen(self, device: bytes, addresses: Iterable[Address], delay: float = 0.0) -> None:
        """A device is at these addresses: connect in *delay* seconds unless it comes by itself."""
        self._change(lambda now: self._targets.seen(device, addresses, now + delay))

    def lost(self, device: bytes, stable: bool) -> None:
        """The last link with a device ended."""
        self._change(lambda now: self._targets.lost(device, stable, now))

    def keep_members(self, members: Collection[bytes]) -> None:
        """The members have changed."""
        self._change(lambda now: self._targets.keep_members(members))

    def hurry(self) -> None:
        """Try everything again now: the network has changed."""
        self._change(self._targets.hurry)

    def _change(self, change: Callable[[float], None]) -> None:
        with self._changed:
            change(self._monotonic())
            self._wake()

    def _wake(self) -> None:
        self._woken = True
        self._changed.notify()

    def _run(self) -> None:
        asleep = self._asleep()
        while True:
            if self._asleep() - asleep > _SLEPT:
                log.info("the machine slept: connecting to the other machines again")
                asleep = self._asleep()
                self._local.slept()
                self.hurry()
            with self._changed:
                if self._closing:
                    return
                self._woken = False
                linked = self._local.linked()
                for place in self._targets.take_due(
                    self._monotonic(), linked, _MAX_DIALING - len(self._dialers)
                ):
                    self._start_dialing(place)
                due = self._targets.next_due(linked)
                wait = _IDLE if due is None else max(0.0, due - self._monotonic())
                full = len(self._dialers) >= _MAX_DIALING
                self._wait(self._changed, lambda: self._woken, _IDLE if full else min(wait or 1.0, _IDLE))

    def _asleep(self) -> float:
        return self._boot_time() - self._monotonic()

    def _start_dialing(self, place: Place) -> None:
        thread = threading.Thread(target=self._dial, args=(place,), name="peer-dial", daemon=True)
        self._dialers.add(thread)
        thread.start()

    def _dial(self, place: Place) -> None:
        meeting = None
        try:
            meeting = self._handshakes.dial(place)
        except PeerError as error:
            log.debug("no machine at %s: %s", format_place(place), error)
        with self._changed:
            if meeting is None:
                self._targets.failed(place, self._monotonic())
            else:
                self._targets.met(place, meeting.device_id)
        if meeting is not None:
            self._local.met(meeting)
        with self._changed:
            self._dialers.discard(threading.current_thread())
            self._wake()
