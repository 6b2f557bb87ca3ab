"""The messages of a pairing over TCP, for devices on one network.

A message is a frame: u32 its length, and the message. Before a message of a connection has proved genuine,
the connection costs a thread and a few KiB, and not for long: there are few of them at a time, fewer still
of one host, each has a few seconds for its first frame and is dropped when that does not open under the code.
Nothing more is read from it before that is known, so that strangers cannot fill the memory while a person
thinks.
"""

from __future__ import annotations

import contextlib
import ipaddress
import logging
import socket
import struct
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from hybrisfs.environment import Environment
from hybrisfs.pairing.code import Address
from hybrisfs.pairing.exchange import Deliver
from hybrisfs.pairing.handshake import MAX_MESSAGE
from hybrisfs.pairing.mailbox import MAX_JOINER_MESSAGE, MAX_NUMBER
from hybrisfs.peers.listener import host_of, plain_address

if TYPE_CHECKING:
    from zeroconf import Zeroconf

__all__ = ["SERVICE", "Connection", "Dialer", "LanLimits", "Listener", "announce", "find", "local_addresses"]

log = logging.getLogger(__name__)

_LENGTH: Final = struct.Struct(">I")
_TIMEVAL: Final = struct.Struct("@ll")  # struct timeval
_CONNECT: Final = 3.0  # seconds
_MAX_REDIALS: Final = 5  # connections to one address that end without a word
_MAX_CONNECTIONS: Final = 8
_MAX_OF_HOST: Final = 2  # connections; one host cannot keep the others out
_MAX_DIALED: Final = 32  # addresses, from the code and from mDNS


class LanLimits(Struct, frozen=True):
    """See `hybrisfs.environment.Limits`."""

    first_frame: float = 10.0
    """Seconds within which the first message of a connection must have come."""
    send: int = 10
    """Seconds for which a message may wait to be sent."""
    redial: float = 2.0
    """Seconds between two attempts to reach an address."""


class Connection:
    """A `Link` over one connected socket. `run` reads it until it ends."""

    def __init__(
        self, sock: socket.socket, name: str, deliver: Deliver, limit: int, environment: Environment
    ) -> None:
        self.name = name
        self.heard = 0
        """How many messages came."""
        self._judged = threading.Event()
        self._closed = False
        self._socket = sock
        self._deliver = deliver
        self._limit = limit
        self._monotonic = environment.monotonic
        limits = environment.limits.of(LanLimits)
        self._first_frame = limits.first_frame
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, _TIMEVAL.pack(limits.send, 0))
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)

    def send(self, message: bytes) -> None:
        try:
            self._socket.sendall(_LENGTH.pack(len(message)) + message)
        except OSError as error:
            log.debug("%s: cannot send: %s", self.name, error)
            self.close()

    def accepted(self, number: int) -> None:
        """Read on: the next frame is the next message."""
        self._judged.set()

    def refuse(self, reply: bytes | None) -> None:
        if reply is not None:
            self.send(reply)
        self.close()

    def close(self) -> None:
        """End the connection, which ends `run`. From any thread, any number of times."""
        self._closed = True
        with contextlib.suppress(OSError):  # it has ended already
            self._socket.shutdown(socket.SHUT_RDWR)
        self._judged.set()

    def run(self) -> None:
        """Read frames and deliver them; returns when the connection has ended."""
        try:
            with self._socket:
                deadline: float | None = self._monotonic() + self._first_frame
                # What has arrived can still be read after a shutdown: so there is a flag.
                while self.heard < MAX_NUMBER and not self._closed:
                    (length,) = _LENGTH.unpack(self._read(_LENGTH.size, deadline))
                    if length > self._limit:
                        raise OSError(f"a frame of {length} bytes")
                    message = self._read(length, deadline)
                    self.heard += 1
                    self._deliver(self, self.heard, message)
                    self._judged.wait()
                    deadline = None
        except OSError as error:
            log.debug("%s: ends: %s", self.name, error)
        self._deliver(self, self.heard + 1, None)

    def _read(self, length: int, deadline: float | None) -> bytes:
        """Exactly so many bytes, before *deadline* (monotonic). Raises OSError."""
        parts = bytearray()
        while len(parts) < length:
            left = 0.0 if deadline is None else deadline - self._monotonic()
            if deadline is not None and left <= 0:
                raise TimeoutError("nothing is said")
            microseconds = 0 if deadline is None else max(1, int(left * 1e6))  # 0: for ever
            timeout = _TIMEVAL.pack(*divmod(microseconds, 1_000_000))
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, timeout)
            part = self._socket.recv(length - len(parts))
            if not part:
                raise ConnectionResetError("the other side has hung up")
            parts += part
        return bytes(parts)


class Listener:
    """The inviter's port, on all addresses of this machine; open from construction to `close`."""

    def __init__(self, environment: Environment) -> None:
        """Raises OSError when no port can be opened."""
        try:
            self._socket = socket.create_server(("", 0), family=socket.AF_INET6, dualstack_ipv6=True)
        except (OSError, ValueError):  # this machine has no IPv6, or not on one port with IPv4
            self._socket = socket.create_server(("", 0))
        self._environment = environment
        self.port: int = self._socket.getsockname()[1]
        self._lock = threading.Lock()
        self._closing = False
        self._connections: dict[threading.Thread, tuple[str, Connection]] = {}  # the host first
        self._acceptor: threading.Thread | None = None

    @property
    def addresses(self) -> tuple[Address, ...]:
        """Where others on the network reach it, for the code."""
        return tuple((host, self.port) for host in local_addresses())

    def start(self, deliver: Deliver) -> None:
        """Accept joiners."""
        self._acceptor = threading.Thread(
            target=self._accept, args=(deliver,), name="pairing listener", daemon=True
        )
        self._acceptor.start()

    def close(self) -> None:
        """End all connections and threads. Idempotent."""
        with self._lock:
            self._closing = True
            connections = list(self._connections.items())
        with contextlib.suppress(OSError):  # not connected, says Linux, and wakes the acceptor nevertheless
            self._socket.shutdown(socket.SHUT_RDWR)
        if self._acceptor is not None:
            self._acceptor.join()
        self._socket.close()
        for thread, (_, connection) in connections:
            connection.close()
            thread.join()

    def _accept(self, deliver: Deliver) -> None:
        while True:
            try:
                sock, where = self._socket.accept()
            except OSError as error:
                if self._closing:
                    return
                log.warning("cannot accept a machine that wants to join: %s", error)
                self._environment.sleep(0.1)  # no descriptors are left, perhaps
                continue
            peer = plain_address(*where)
            host = host_of(peer)
            name = f"the local network ({peer[0]})"
            connection = Connection(sock, name, deliver, MAX_JOINER_MESSAGE, self._environment)
            thread = threading.Thread(
                target=self._converse, args=(connection,), name="pairing joiner", daemon=True
            )
            with self._lock:
                same = sum(other == host for other, _ in self._connections.values())
                if self._closing or same >= _MAX_OF_HOST or len(self._connections) >= _MAX_CONNECTIONS:
                    sock.close()
                    continue
                self._connections[thread] = host, connection
                thread.start()

    def _converse(self, connection: Connection) -> None:
        try:
            connection.run()
        finally:
            with self._lock:
                del self._connections[threading.current_thread()]


class Dialer:
    """The joiner's side: a thread per address tries again and again to reach the inviter and says *hello*."""

    def __init__(self, hello: bytes, deliver: Deliver, environment: Environment) -> None:
        self._hello = hello
        self._environment = environment
        self._limits = environment.limits.of(LanLimits)
        self._deliver = deliver
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._threads: dict[Address, threading.Thread] = {}
        self._connections: set[Connection] = set()

    def dial(self, address: Address) -> None:
        """Try this address from now on. An address that is tried already is ignored, as is one too many."""
        with self._lock:
            if self._stop.is_set() or address in self._threads or len(self._threads) >= _MAX_DIALED:
                return
            thread = threading.Thread(
                target=self._keep_dialing, args=(address,), name=f"pairing with {address[0]}", daemon=True
            )
            self._threads[address] = thread
            thread.start()

    def keep(self, chosen: object) -> None:
        """Dial no more and drop all connections but *chosen*."""
        with self._lock:
            self._stop.set()
            dropped = [connection for connection in self._connections if connection is not chosen]
        for connection in dropped:
            connection.close()

    def close(self) -> None:
        """End all connections and threads. Idempotent."""
        self.keep(None)
        for thread in list(self._threads.values()):
            thread.join()

    def _keep_dialing(self, address: Address) -> None:
        redials = 0
        while not self._stop.is_set() and redials < _MAX_REDIALS:
            try:
                sock = socket.create_connection(address, _CONNECT)
            except (OSError, UnicodeError) as error:
                log.debug("cannot reach %s: %s", address, error)
            else:
                sock.settimeout(None)
                name = f"the local network ({address[0]})"
                connection = Connection(sock, name, self._deliver, MAX_MESSAGE, self._environment)
                if not self._converse(connection):
                    return
                redials += 1
            self._stop.wait(self._limits.redial)

    def _converse(self, connection: Connection) -> bool:
        """Talk until the connection ends; returns whether it is worth another try."""
        with self._lock:
            if self._stop.is_set():
                connection.close()
            self._connections.add(connection)
        connection.send(self._hello)
        connection.run()
        with self._lock:
            self._connections.discard(connection)
        return connection.heard == 0


def local_addresses() -> list[str]:
    """The addresses of this machine that others may reach: no loopback, no link-local ones."""
    import ifaddr  # only needed when a code is made

    found: list[str] = []
    for adapter in ifaddr.get_adapters():
        for entry in adapter.ips:
            text = entry.ip if isinstance(entry.ip, str) else entry.ip[0]
            address = ipaddress.ip_address(text)
            if not (address.is_loopback or address.is_link_local or address.is_unspecified):
                found.append(str(address))
    return found


# -- finding the inviter on the local network by multicast DNS (RFC 6762) and DNS-SD (RFC 6763) ---------
# The inviter is the service instance INVITE._hybrisfs-pair._tcp.local., INVITE being `code.invite_id` in hex:
# a random name to all who do not have the code. Networks often block multicast, and machines may
# lack permission for it; then the addresses in the code and the clouds have to do.


SERVICE: Final = "_hybrisfs-pair._tcp.local."
_QUESTION: Final = 1000  # milliseconds that an answer may take before it is asked again
_MAX_ANSWERS: Final = 16  # addresses taken from one answer


def announce(invite: bytes, addresses: Sequence[Address], stop: threading.Event) -> None:
    """Tell the network that the inviter is at *addresses*, which have one port, until *stop* is set."""
    if not addresses:
        return
    hosts, port = [host for host, _ in addresses], addresses[0][1]
    with _multicast() as zeroconf:
        if zeroconf is None:
            return
        from zeroconf import Error, ServiceInfo

        name = invite.hex()
        info = ServiceInfo(
            SERVICE, f"{name}.{SERVICE}", port=port, server=f"{name}.local.", parsed_addresses=hosts
        )
        try:
            zeroconf.register_service(info)
        except (OSError, Error) as error:
            log.info("not announced by mDNS: %s", error)
        stop.wait()


def find(invite: bytes, found: Callable[[Address], None], stop: threading.Event) -> None:
    """Ask the network for the inviter, and hand every address it is said to have to *found*, until *stop*."""
    with _multicast() as zeroconf:
        if zeroconf is None:
            return
        from zeroconf import Error

        while not stop.is_set():
            try:
                info = zeroconf.get_service_info(SERVICE, f"{invite.hex()}.{SERVICE}", _QUESTION)
            except (OSError, Error) as error:
                log.info("cannot ask by mDNS: %s", error)
                info = None
            if info is not None and info.port:
                for host in info.parsed_scoped_addresses()[:_MAX_ANSWERS]:
                    found((host, info.port))
            stop.wait(_QUESTION / 1000)


@contextlib.contextmanager
def _multicast() -> Iterator[Zeroconf | None]:
    """The library's sockets and thread; None when this machine cannot do multicast."""
    from zeroconf import Error, Zeroconf

    hosts = local_addresses()
    if not hosts:
        yield None
        return
    try:
        zeroconf = Zeroconf(interfaces=hosts)
    except (OSError, Error, RuntimeError) as error:
        log.info("no mDNS on this machine: %s", error)
        yield None
        return
    try:
        yield zeroconf
    finally:
        zeroconf.close()
