"""Finding devices on the local network."""

from __future__ import annotations

import os
import queue
import socket
import threading
from typing import cast

import pytest
from zeroconf import Error, ServiceBrowser, ServiceInfo, Zeroconf

from hybrisfs.environment import Environment
from hybrisfs.peers.discovery import SERVICE_TYPE, Discovery, parse_name
from hybrisfs.peers.settings import Address, PeerSettings
from hybrisfs.peers.tls import PeerIdentity
from tests.network import alone, ip, needs_networks
from tests.peers.support import LONG, Device, Local, identity, key, running, settings
from tests.system.deadline import until

DAY = 86400.0
ON_LOOPBACK = PeerSettings(interfaces=("127.0.0.1",), look_every=0.02)


class Air:
    """Stands for the network and the library: hands out responders, and keeps what they announce."""

    def __init__(self) -> None:
        self.broken: Exception | None = None
        self.announced: queue.Queue[ServiceInfo] = queue.Queue()
        self.attempts = threading.Semaphore(0)
        self.open = 0
        self.known: dict[str, ServiceInfo] = {}
        self.asked: list[str] = []

    def responder(self, addresses: list[str]) -> Zeroconf:
        self.attempts.release()
        if self.broken:
            raise self.broken
        self.open += 1
        return cast("Zeroconf", self)

    def add_service_listener(self, type_: str, listener: object) -> None:
        assert isinstance(listener, Discovery)

    def register_service(self, info: ServiceInfo) -> None:
        self.announced.put(info)

    def get_service_info(self, type_: str, name: str, timeout: int) -> ServiceInfo | None:
        self.asked.append(name)
        return self.known.get(name)

    def close(self) -> None:
        self.open -= 1


@pytest.fixture
def air() -> Air:
    return Air()


class Found(Local):
    """Collects what is seen."""

    def __init__(self, *numbers: int) -> None:
        super().__init__(*(numbers or (1, 2)))
        self.queue: queue.Queue[tuple[bytes, tuple[Address, ...]]] = queue.Queue()

    def seen(self, device: bytes, addresses: tuple[Address, ...]) -> None:
        self.queue.put((device, addresses))


def discovery(
    air: Air,
    found: Found,
    who: PeerIdentity | None = None,
    now: float = 0.0,
    configured: PeerSettings = ON_LOOPBACK,
) -> Discovery:
    return Discovery(
        who or identity(1),
        4711,
        found,
        configured,
        Environment(time_ns=lambda: int(now * 1e9)),
        air.responder,
    )


def announcement(air: Air, who: PeerIdentity, now: float = 0.0) -> ServiceInfo:
    """What a device announces."""
    device = discovery(air, Found(), who, now=now)
    device.start()
    info = air.announced.get(timeout=LONG)
    device.close()
    return info


def test_an_announcement_tells_strangers_nothing(air: Air) -> None:
    info = announcement(air, identity(2))
    tags = parse_name(info.name)
    assert tags == (identity(1).volume_tag(0), identity(1).device_tag(key(2).device_id, 0))
    assert not info.properties
    assert socket.gethostname() not in str(info)
    assert key(2).device_id.hex()[:8] not in str(info) and identity(1).volume.hex()[:8] not in str(info)
    assert (info.parsed_addresses(), info.port) == (["127.0.0.1"], 4711)
    assert air.open == 0


@pytest.mark.parametrize("skew", [-DAY, 0.0, DAY])
def test_members_recognise_each_other_across_midnight(air: Air, skew: float) -> None:
    found = Found()
    info = announcement(air, identity(2), now=100 * DAY + skew)
    air.known[info.name] = info
    discovery(air, found, now=100 * DAY).add_service(air.responder([]), SERVICE_TYPE, info.name)
    assert found.queue.get(timeout=LONG) == (key(2).device_id, (("127.0.0.1", 4711),))


@pytest.mark.parametrize(
    "who",
    [identity(3), identity(2, secret=bytes(32)), identity(2, volume=bytes(16))],
    ids=["no member", "another secret", "another volume"],
)
def test_others_are_not_even_asked(air: Air, who: PeerIdentity) -> None:
    found = Found()
    info = announcement(air, who)
    discovery(air, found).add_service(cast("Zeroconf", air), SERVICE_TYPE, info.name)
    assert found.queue.empty()
    assert air.asked == []


def test_a_device_finds_its_clone_but_not_itself(air: Air) -> None:
    clone = announcement(air, identity(1))
    found = Found()
    device = discovery(air, found)
    device.start()
    own = air.announced.get(timeout=LONG)
    air.known = {info.name: info for info in (own, clone)}
    device.add_service(cast("Zeroconf", air), SERVICE_TYPE, own.name)
    assert found.queue.empty()
    device.add_service(cast("Zeroconf", air), SERVICE_TYPE, clone.name)
    assert found.queue.get(timeout=LONG)[0] == key(1).device_id
    device.close()


def test_a_device_that_does_not_answer_is_left_alone(air: Air) -> None:
    found = Found()
    info = announcement(air, identity(2))
    discovery(air, found).update_service(cast("Zeroconf", air), SERVICE_TYPE, info.name)
    assert found.queue.empty()


@pytest.mark.parametrize("name", ["", "x", "a-b-c." + SERVICE_TYPE, "-" * 60, "\udcff-\0-x"])
def test_names_of_others_are_no_names_of_ours(name: str) -> None:
    assert parse_name(name) is None


@pytest.mark.parametrize("error", [OSError("no multicast"), RuntimeError("no such address"), Error("odd")])
def test_without_multicast_it_is_tried_until_it_works(
    air: Air, caplog: pytest.LogCaptureFixture, error: Exception
) -> None:
    air.broken = error
    device = discovery(air, Found())
    device.start()
    for _ in range(3):
        assert air.attempts.acquire(timeout=LONG)
    assert not device.announced
    air.broken = None
    assert air.announced.get(timeout=LONG).port == 4711
    device.close()
    assert device.announced
    assert len([r for r in caplog.records if "cannot be found" in r.message]) == 1


@needs_networks
def test_it_is_announced_anew_when_interfaces_change(air: Air) -> None:
    def work() -> None:
        ip("link", "add", "one", "type", "veth", "peer", "name", "other")  # down, so without link-local ones
        ip("address", "add", "192.0.2.1/24", "dev", "one")
        device = discovery(air, Found(), configured=PeerSettings(look_every=0.02))
        device.start()
        assert air.announced.get(timeout=LONG).parsed_addresses() == ["192.0.2.1"]
        ip("address", "add", "2001:db8::1/64", "dev", "one", "nodad")
        assert air.announced.get(timeout=LONG).parsed_addresses() == ["192.0.2.1", "2001:db8::1"]
        ip("address", "flush", "dev", "one")  # asleep: nothing to announce on
        until(lambda: air.open == 0, "the announcement to be taken back")
        ip("address", "add", "198.51.100.1/24", "dev", "one")
        assert air.announced.get(timeout=LONG).parsed_addresses() == ["198.51.100.1"]
        device.close()

    alone(work)
    assert air.open == 0


def test_it_is_announced_under_new_tags_every_day(air: Air) -> None:
    now = [0.0]
    today = Environment(time_ns=lambda: int(now[0] * 1e9))
    device = Discovery(identity(1), 1, Found(1), ON_LOOPBACK, today, air.responder)
    device.start()
    first = parse_name(air.announced.get(timeout=LONG).name)
    now[0] = DAY
    second = parse_name(air.announced.get(timeout=LONG).name)
    device.close()
    assert first is not None and second is not None
    assert set(first).isdisjoint(second)


def test_new_members_make_it_look_again(air: Air) -> None:
    device = discovery(air, Found())
    device.start()
    air.announced.get(timeout=LONG)
    device.look_again()
    air.announced.get(timeout=LONG)
    device.close()


def multicast_works() -> bool:
    """Whether this machine carries multicast DNS to itself."""
    found = threading.Event()
    kind = "_hfs-probe._tcp.local."
    responder = Zeroconf()
    try:
        responder.register_service(
            ServiceInfo(kind, f"{os.urandom(4).hex()}.{kind}", 1, addresses=[bytes(4)])
        )
        other = Zeroconf()
        ServiceBrowser(other, kind, handlers=[lambda **event: found.set()])
        try:
            return found.wait(3)
        finally:
            other.close()
    except OSError:
        return False
    finally:
        responder.close()


def test_devices_find_each_other_for_real() -> None:
    if not multicast_works():
        pytest.skip("no multicast on this machine")
    a = Device(1, settings=settings(discover=True))
    b = Device(2, settings=settings(discover=True))
    with running(a, b):
        a.wait_linked(b)
        b.wait_linked(a)
        a.write(b"found you")
        b.wait_for(b"found you")
    assert [t.name for t in threading.enumerate() if "hybrisfs" in t.name or "peer" in t.name] == []
