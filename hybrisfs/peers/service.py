"""The direct channel of one volume: finds the other members, keeps a link with each, speaks to all of them.

Threads: one accepts, one connects, one looks for others on the network, two for every link, and a few that
end with a handshake. All end with `PeerService.close`.
"""

from __future__ import annotations

import logging
import math
import threading
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final, Protocol, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from hybrisfs.environment import Environment
from hybrisfs.peers.connector import Connector
from hybrisfs.peers.frames import CHUNK_ID_SIZE, INSTANCE_SIZE, MAX_BEACON, Hello, Parting
from hybrisfs.peers.handshakes import Handshakes, Meeting
from hybrisfs.peers.link import Link
from hybrisfs.peers.listener import Listener
from hybrisfs.peers.network import NetworkWatch
from hybrisfs.peers.relay_watch import RelayWatch
from hybrisfs.peers.settings import Address, PeerCallbacks, PeerSettings, Place, Relay, Through, format_place
from hybrisfs.peers.tls import PeerIdentity, TlsIdentity
from sync import Members

if TYPE_CHECKING:
    from hybrisfs.peers.discovery import Discovery

__all__ = ["LinkTable", "Linked", "PeerService", "PeerStatus"]

log = logging.getLogger(__name__)

_CLOSE: Final = 5.0
_COURTESY: Final = 0.3  # seconds by which the higher device id lets the lower one connect first
_SLACK: Final = 5.0


class PeerStatus(Struct, frozen=True):
    """A link, for `status`."""

    device_id: bytes
    place: Place
    """By this device's clock, since the epoch."""
    round_trip: float | None
    """In seconds; None until it was measured."""
    outgoing: bool


class PeerService:
    """Works from `start` to `close`. Any thread may call any method.

    `fetch_chunks` and `close` wait for links, and so must not be called from within a callback.
    """

    def __init__(
        self,
        identity: PeerIdentity,
        members: Members,
        callbacks: PeerCallbacks,
        settings: PeerSettings | None = None,
        *,
        environment: Environment,
    ) -> None:
        """No port is open and no thread runs before `start`."""
        self._identity = identity
        self._members = members
        self._settings = settings = settings or PeerSettings()
        self._reads = threading.BoundedSemaphore(settings.max_served)
        self._callbacks = replace(callbacks, read_chunk=self._read_chunk)
        self._read = callbacks.read_chunk
        self._environment = environment
        self._monotonic = environment.monotonic
        self._instance = environment.random_bytes(INSTANCE_SIZE)
        self._beacon: bytes | None = None
        self._lock = threading.Lock()
        self._closed = False
        attempt = settings.connect_timeout + settings.handshake_timeout + _SLACK
        self._links: LinkTable[Link] = LinkTable(identity.device.device_id, self._instance, attempt)
        self._handshakes = Handshakes(TlsIdentity(identity), self, settings, environment)
        self._connector = Connector(self._handshakes, settings, self, environment)
        own, reached = identity.device.device_id, self._connector.hurry
        self._relays = RelayWatch(self._handshakes, own, settings, environment, reached)
        self._network = NetworkWatch(self._network_came_up, environment)
        self._listener: Listener | None = None
        self._discovery: Discovery | None = None

    def start(self) -> None:
        """Open the port, announce this device, connect to others. Raises `ListenError`."""
        listener = Listener(self._settings.port, self._handshakes.accept)
        self._listener = listener
        listener.start()
        self._connector.start()
        self._network.start()
        if self._settings.discover:
            from hybrisfs.peers.discovery import Discovery  # what it needs takes long to import

            self._discovery = Discovery(
                self._identity, listener.port, self, self._settings, self._environment
            )
            self._discovery.start()

    def close(self) -> None:
        """Tell the others, end all links and threads; returns within a few seconds. Idempotent."""
        with self._lock:
            self._closed = True
        deadline = self._monotonic() + _CLOSE
        self._network.close()
        self._relays.end()
        if self._listener is not None:
            self._listener.close()
        self._handshakes.close(deadline)
        self._relays.join(deadline)
        self._connector.close(deadline)
        links = self._links.all()
        for link in links:
            link.close(Parting.CLOSING, "the volume was closed")
        if self._discovery is not None:
            self._discovery.close()
        for link in links:
            if not link.join(max(0.0, deadline - self._monotonic())):
                link.abandon("the volume was closed")
                log.warning("the link with machine %s is still busy", link.device_id.hex())

    @property
    def port(self) -> int:
        """The port that is open, 0 before `start`."""
        return self._listener.port if self._listener is not None else 0

    def set_members(self, members: Members) -> None:
        """Who may have a link from now on. Links with all others end."""
        with self._lock:
            self._members = members
        for link in self._links.all():
            if link.device_id not in members:
                link.close(Parting.REMOVED, "the machine is no longer a member")
        self._connector.keep_members(frozenset(members))
        self._call_through_relays()
        self._connector.hurry()
        if self._discovery is not None:
            self._discovery.look_again()

    def set_addresses(self, addresses: Iterable[Address]) -> None:
        """Replace the user's addresses."""
        self._connector.configure(tuple(addresses))

    def set_relays(self, relays: Collection[Relay]) -> None:
        """Be reached, and reach the others, through these relays, in place of the earlier ones."""
        self._relays.configure(relays)
        self._call_through_relays()
        for link in self._links.all():
            if isinstance(link.place, Through) and link.place.relay not in relays:
                link.abandon("its relay is used no more")

    def advanced(self) -> None:
        """The local log has grown: push to every linked device. Returns at once."""
        for link in self._links.current():
            link.advanced()

    def send_beacon(self, data: bytes) -> None:
        """Give a sealed head to every linked device, and to each that comes later, until the next call."""
        if len(data) > MAX_BEACON:
            raise ValueError(f"a beacon of {len(data)} bytes, at most {MAX_BEACON} are allowed")
        with self._lock:
            self._beacon = data
        for link in self._links.current():
            link.send_beacon(data)

    def fetch_chunks(self, chunk_ids: Sequence[bytes], patience: float) -> list[bytes | None]:
        """The verified plaintext of each chunk from the quickest device that has it, None where none has.

        Devices that answer nothing are waited for *patience* seconds, all of them together.
        """
        for one in chunk_ids:
            if len(one) != CHUNK_ID_SIZE:
                raise ValueError(f"a chunk id has {CHUNK_ID_SIZE} bytes, not {len(one)}")
        found: list[bytes | None] = [None] * len(chunk_ids)
        lacking = list(range(len(chunk_ids)))
        links = sorted(self._links.current(), key=_latency)
        for link in links:
            if not lacking:
                break
            answers = link.fetch_chunks([chunk_ids[at] for at in lacking], patience / len(links))
            for at, data in zip(lacking, answers, strict=True):
                if data is None:
                    continue
                if self._callbacks.verify_chunk(chunk_ids[at], data):
                    found[at] = data
                else:
                    log.warning("machine %s answered with bytes that are not the chunk", link.device_id.hex())
            lacking = [at for at in lacking if found[at] is None]
        return found

    def status(self) -> list[PeerStatus]:
        """The linked devices, by device id."""
        return [
            PeerStatus(link.device_id, link.place, link.round_trip, link.outgoing)
            for link in sorted(self._links.current(), key=lambda link: link.device_id)
        ]

    def _read_chunk(self, chunk_id: bytes) -> bytes | None:
        with self._reads:
            return self._read(chunk_id)

    # -- what is asked of this device: see `LocalPeer` -----------------------------------------------

    def members(self) -> Members:
        return self._members

    def hello(self) -> Hello:
        return Hello(self._instance, self.port)

    def linked(self) -> Mapping[bytes, bool]:
        return self._links.devices()

    def met(self, meeting: Meeting) -> None:
        link = Link(meeting, self._callbacks, self._settings, self._ended, self._environment)
        with self._lock:
            is_left = (
                isinstance(meeting.place, Through) and meeting.place.relay not in self._relays.configured
            )
            welcome = not self._closed and not is_left and meeting.device_id in self._members
            closing = self._links.admit(link) if welcome else [link]
            if link not in closing:
                if self._beacon is not None:
                    link.send_beacon(self._beacon)
                link.start()
        for other in closing:
            if other is not link:
                other.close(Parting.DUPLICATE, "another link with this machine stays")
        if link in closing:
            meeting.channel.close()
            return
        log.info("linked with machine %s at %s", link.device_id.hex(), format_place(link.place))
        self._callbacks.links_changed()
        if not meeting.outgoing and meeting.hello.port and isinstance(meeting.place, tuple):
            self._connector.seen(link.device_id, [(meeting.place[0], meeting.hello.port)])

    def _ended(self, link: Link, reason: str) -> None:
        """Called by the link's own thread, as the last thing that it does."""
        if self._links.remove(link):
            log.info("the link with machine %s ended: %s", link.device_id.hex(), reason)
            self._connector.lost(link.device_id, link.age > self._settings.stable)
        for other in self._links.current():
            if other.device_id == link.device_id:
                other.advanced()  # what was pushed through the one that ended may not have arrived
        self._callbacks.links_changed()

    def _call_through_relays(self) -> None:
        own = self._identity.device.device_id
        others = [one for one in self._members if one != own]
        delays = {one: 0.0 if own < one else _COURTESY for one in others}
        self._connector.relayed(self._relays.configured, delays)

    def seen(self, device: bytes, addresses: tuple[Address, ...]) -> None:
        first = self._identity.device.device_id < device
        if self._discovery is not None and not self._discovery.announced:
            first = True  # it does not know of this device yet
        self._connector.seen(device, addresses, 0.0 if first else _COURTESY)

    def _network_came_up(self) -> None:
        """Called by the thread that watches the network."""
        log.debug("the network has changed")
        self._connector.hurry()
        self._relays.hurry()
        if self._discovery is not None:
            self._discovery.look_at_network()

    def slept(self) -> None:
        for link in self._links.all():
            link.abandon("this machine slept")
        self._relays.hurry()


def _latency(link: Link) -> float:
    return math.inf if link.round_trip is None else link.round_trip


# -- which links stay: one per member that runs, the same one on both sides -----------------------------


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

    @property
    def is_direct(self) -> bool:
        """Whether no relay is between the two."""


AnyLink = TypeVar("AnyLink", bound=Linked)


class LinkTable(dict[bytes, list[AnyLink]]):
    """Device -> its links, those in use last. Guarded by its `lock`.

    A device that was cloned, or restored from a backup elsewhere, may run twice: each instance has an id of
    its own, and each may have a link. Otherwise there is one: two devices may connect to each other at the
    same time, or one through two addresses. Each then sees both links, perhaps in different order, and both
    must close the same one, without asking each other:

    * A link that is older than any attempt to connect can be is dead: its other side has given it up, or has
      found a direct way.
    * A direct link stays, one through a relay does not.
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

    def devices(self) -> dict[bytes, bool]:
        """The devices that have a link, and whether any of a device's links is direct."""
        with self.lock:
            return {device: any(link.is_direct for link in links) for device, links in self.items()}

    def _outlives(self, old: AnyLink, new: AnyLink) -> bool:
        if old.age > self._longest_attempt:
            return False
        if old.is_direct != new.is_direct:
            return old.is_direct
        return old.outgoing == new.outgoing or self._opener(old) < self._opener(new)

    def _coexist(self, old: AnyLink, new: AnyLink) -> bool:
        return not old.outgoing and not new.outgoing

    def _opener(self, link: AnyLink) -> tuple[bytes, bytes]:
        return self._own if link.outgoing else (link.device_id, link.instance)
