"""What the tests of the direct channel share: devices, connections, a fake log exchange, and waiting."""

from __future__ import annotations

import contextlib
import hashlib
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from msgspec.structs import replace

from hybrisfs.environment import SYSTEM
from hybrisfs.peers.frames import Hello
from hybrisfs.peers.handshakes import Meeting
from hybrisfs.peers.service import PeerService
from hybrisfs.peers.settings import Address, PeerCallbacks, PeerSettings
from hybrisfs.peers.tls import PeerIdentity
from sync import Action, Alarm, Deliver, DeviceKey, Failed, Members, Send

LONG = 20.0
"""Seconds after which a test gives up waiting for what should come at once."""

QUICK = PeerSettings(
    discover=False,
    connect_timeout=2.0,
    handshake_timeout=5.0,
    keepalive=0.2,
    silence=10.0,
    grace=0.3,
    first_retry=0.05,
    last_retry=0.5,
    tick=0.1,
)

VOLUME = bytes(range(16))
SECRET = bytes(range(32))


def within(seconds: float) -> Callable[[], float]:
    """How many of these seconds are left."""
    deadline = time.monotonic() + seconds
    return lambda: deadline - time.monotonic()


def key(number: int) -> DeviceKey:
    """The same device key for the same number."""
    return DeviceKey.from_seed(bytes([number]) * 32)


def identity(number: int, volume: bytes = VOLUME, secret: bytes = SECRET) -> PeerIdentity:
    return PeerIdentity(volume, key(number), secret)


def members(*numbers: int) -> Members:
    return Members(key(number).public for number in numbers)


class Local:
    """Device 1 as its parts see it: it is linked with nobody, and keeps whom it met."""

    def __init__(self, *numbers: int) -> None:
        self._members = members(*numbers)
        self.meetings: list[Meeting] = []

    def members(self) -> Members:
        return self._members

    def hello(self) -> Hello:
        return Hello(bytes(8), 0)

    def linked(self) -> Mapping[bytes, bool]:
        return {}

    def met(self, meeting: Meeting) -> None:
        self.meetings.append(meeting)

    def seen(self, device: bytes, addresses: tuple[Address, ...]) -> None:
        """Nobody connects."""

    def slept(self) -> None:
        """There are no links to drop."""


@contextlib.contextmanager
def tcp_pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    """Two ends of a TCP connection over loopback."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        near = socket.create_connection(server.getsockname()[:2], LONG)
        far, _ = server.accept()
        far.settimeout(LONG)
    with near, far:
        yield near, far


def chunk_id(data: bytes) -> bytes:
    """Stands for the keyed hash."""
    return hashlib.sha256(data).digest()


class Log:
    """Stands for a device's log: a set of opaque updates, with something to wait on."""

    def __init__(self) -> None:
        self.changed = threading.Condition()
        self.updates: dict[bytes, None] = {}

    def add(self, *updates: bytes) -> bool:
        """True when any was new."""
        with self.changed:
            before = len(self.updates)
            self.updates.update(dict.fromkeys(updates))
            self.changed.notify_all()
            return len(self.updates) > before

    def all(self) -> list[bytes]:
        with self.changed:
            return list(self.updates)


class FakeExchange:
    """Speaks like a log exchange: `have` and hashes, `update` and one update; more for tests of failures."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._peer_has: set[bytes] | None = None

    def begin(self) -> Sequence[bytes]:
        return [b"have" + b"".join(chunk_id(update) for update in self._log.all())]

    def receive(self, message: bytes) -> Sequence[Action]:
        kind, body = message[:4], message[4:]
        if kind == b"have":
            self._peer_has = {body[at : at + 32] for at in range(0, len(body), 32)}
            return [Send(message) for message in self.advanced()]
        if kind == b"upd:":
            if self._peer_has is not None:
                self._peer_has.add(chunk_id(body))
            return [Deliver((body,))]
        if kind == b"warn":
            return [Alarm("the states differ")]
        return [Failed("an unknown message")]

    def advanced(self) -> Sequence[bytes]:
        if self._peer_has is None:
            return []
        new = [update for update in self._log.all() if chunk_id(update) not in self._peer_has]
        self._peer_has.update(chunk_id(update) for update in new)
        return [b"upd:" + update for update in new]


@dataclass
class Device:
    """A device with its service, and what it holds and was told."""

    number: int
    settings: PeerSettings = QUICK
    members: Members = field(default_factory=lambda: members(1, 2, 3))
    identity: PeerIdentity | None = None
    log: Log = field(default_factory=Log)
    chunks: dict[bytes, bytes] = field(default_factory=dict)
    asked: list[bytes] = field(default_factory=list)
    beacons: list[tuple[bytes, bytes]] = field(default_factory=list)
    alarms: list[tuple[bytes, str]] = field(default_factory=list)
    service: PeerService = field(init=False)

    def __post_init__(self) -> None:
        self.identity = self.identity or identity(self.number)
        self.id = self.identity.device.device_id
        self.service = self.new_service()

    def new_service(self) -> PeerService:
        assert self.identity is not None
        return PeerService(self.identity, self.members, self.callbacks(), self.settings, environment=SYSTEM)

    def callbacks(self) -> PeerCallbacks:
        return PeerCallbacks(
            new_exchange=lambda device: FakeExchange(self.log),
            receive_updates=self._receive,
            receive_beacon=lambda device, data: self._told(self.beacons, (device, data)),
            raise_alarm=lambda device, reason: self._told(self.alarms, (device, reason)),
            read_chunk=self._read_chunk,
            verify_chunk=lambda wanted, data: chunk_id(data) == wanted,
            links_changed=self._notify,
        )

    def _read_chunk(self, wanted: bytes) -> bytes | None:
        self.asked.append(wanted)
        return self.chunks.get(wanted)

    def _receive(self, device: bytes, updates: tuple[bytes, ...]) -> None:
        if self.log.add(*updates):
            self.service.advanced()

    def _told(self, where: list[tuple[bytes, bytes]] | list[tuple[bytes, str]], what: object) -> None:
        where.append(what)  # type: ignore[arg-type]
        self._notify()

    def _notify(self) -> None:
        with self.log.changed:
            self.log.changed.notify_all()

    def close(self) -> None:
        """Close the service that it has now, which need not be the first."""
        self.service.close()

    def write(self, *updates: bytes) -> None:
        self.log.add(*updates)
        self.service.advanced()

    def fetch(self, wanted: bytes) -> bytes | None:
        """A chunk from the devices that it is linked with."""
        (found,) = self.service.fetch_chunks([wanted], LONG)
        return found

    def put_chunk(self, data: bytes) -> bytes:
        self.chunks[chunk_id(data)] = data
        return chunk_id(data)

    def wait(self, condition: Callable[[], bool]) -> None:
        """Until *condition* holds; it is looked at whenever something happened to this device."""
        deadline = time.monotonic() + LONG
        with self.log.changed:
            while not condition():
                assert self.log.changed.wait(deadline - time.monotonic()), "it never came about"

    def wait_linked(self, *others: Device) -> None:
        wanted = {other.id for other in others}
        self.wait(lambda: {status.device_id for status in self.service.status()} == wanted)

    def wait_for(self, *updates: bytes) -> None:
        self.wait(lambda: set(updates) <= set(self.log.updates))


@contextlib.contextmanager
def running(*devices: Device) -> Iterator[None]:
    """Start the devices' services, and close them at the end, whatever happened."""
    with contextlib.ExitStack() as stack:
        for device in devices:
            device.service.start()
            stack.callback(Device.close, device)
        yield


def knows(device: Device, *others: Device, host: str = "127.0.0.1") -> None:
    """Configure the addresses of running devices."""
    device.service.set_addresses([(host, other.service.port) for other in others])


def settings(**changes: object) -> PeerSettings:
    return replace(QUICK, **changes)
