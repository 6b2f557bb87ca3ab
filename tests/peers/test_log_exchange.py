"""The real exchange of signed updates over real links, forks included."""

from __future__ import annotations

import threading
from collections.abc import Sequence

from hybrisfs.environment import SYSTEM
from hybrisfs.peers.service import PeerService
from hybrisfs.peers.settings import PeerCallbacks
from hybrisfs.peers.tls import PeerIdentity
from sync import Accepted, Action, DeviceKey, Exchange, decode_signed
from tests.peers.support import LONG, QUICK, SECRET
from tests.sync.support import KEYS, MEMBERS, VOLUME
from tests.sync.support import Device as SyncDevice


class Locked:
    """An exchange that holds the device's lock while it reads the log, as a volume's does."""

    def __init__(self, exchange: Exchange, lock: threading.Condition) -> None:
        self._exchange = exchange
        self._lock = lock

    def begin(self) -> Sequence[bytes]:
        with self._lock:
            return self._exchange.begin()

    def receive(self, message: bytes) -> Sequence[Action]:
        with self._lock:
            return self._exchange.receive(message)

    def advanced(self) -> Sequence[bytes]:
        with self._lock:
            return self._exchange.advanced()


class Node:
    """A device with a signed log and the service that keeps it in step with others."""

    def __init__(self, key: DeviceKey, log: SyncDevice | None = None) -> None:
        self.log = log or SyncDevice(key)
        self.lock = threading.Condition()
        self.alarms: list[str] = []
        callbacks = PeerCallbacks(
            new_exchange=lambda device: Locked(Exchange(self.log, self._state), self.lock),
            receive_updates=self._receive,
            receive_beacon=lambda device, data: None,
            raise_alarm=lambda device, reason: self.alarms.append(reason),
            read_chunk=lambda chunk_id: None,
            verify_chunk=lambda chunk_id, data: False,
        )
        self.service = PeerService(
            PeerIdentity(VOLUME, key, SECRET), MEMBERS, callbacks, QUICK, environment=SYSTEM
        )
        self.service.start()

    def _state(self) -> bytes | None:
        return self.log.state.history()

    def _receive(self, device: bytes, updates: tuple[bytes, ...]) -> None:
        with self.lock:
            news = [isinstance(self.log.receive(decode_signed(data)), Accepted) for data in updates]
            self.lock.notify_all()
        if any(news):
            self.service.advanced()

    def write(self, count: int, value: bytes = b"value") -> None:
        for number in range(count):
            with self.lock:
                self.log.write((b"key %d" % number, value))
            self.service.advanced()

    def knows(self, *others: Node) -> None:
        self.service.set_addresses([("127.0.0.1", other.service.port) for other in others])

    def wait_for(self, count: int) -> None:
        """Until there are at least *count* updates in the log."""
        with self.lock:
            assert self.lock.wait_for(lambda: len(self.log.order) >= count, LONG), len(self.log.order)


def converge(nodes: Sequence[Node], count: int) -> None:
    """Wait until all have *count* updates, and compare what follows from them."""
    for node in nodes:
        node.wait_for(count)
    facts = [node.log.facts() for node in nodes]
    assert all(fact == facts[0] for fact in facts)
    assert all(node.alarms == [] for node in nodes)


def close(nodes: Sequence[Node]) -> None:
    for node in nodes:
        node.service.close()


def test_three_devices_that_write_at_the_same_time_converge() -> None:
    nodes = [Node(key) for key in KEYS[:3]]
    try:
        nodes[0].write(50)
        nodes[1].knows(nodes[0], nodes[2])
        writers = [threading.Thread(target=node.write, args=(50,)) for node in nodes]
        for writer in writers:
            writer.start()
        for writer in writers:
            writer.join()
        converge(nodes, 200)
    finally:
        close(nodes)


def test_a_device_restored_from_a_backup_and_its_original_converge() -> None:
    first, witness = Node(KEYS[0]), Node(KEYS[1])
    nodes = [first, witness]
    try:
        first.write(5)
        with first.lock:
            backup = first.log.clone()
        first.write(5)
        restored = Node(KEYS[0], backup)
        nodes.append(restored)
        restored.write(3, b"of the restored one")
        witness.knows(first, restored)
        converge(nodes, 13)
        assert len(witness.log.state.vector) == 3
    finally:
        close(nodes)


def test_an_exchange_that_was_cut_off_goes_on() -> None:
    nodes = [Node(KEYS[0]), Node(KEYS[1])]
    try:
        nodes[0].write(400)
        nodes[1].knows(nodes[0])
        for wanted in (1, 100):
            nodes[1].wait_for(wanted)
            nodes[1].service.slept()
        nodes[0].write(10)
        converge(nodes, 410)
    finally:
        close(nodes)
