"""Whole services over loopback: links, updates, chunks, beacons, members, loss and return."""

from __future__ import annotations

import os
import socket
import threading
from unittest import mock

import pytest

from hybrisfs.environment import SYSTEM
from hybrisfs.peers.errors import ListenError, PeerError
from hybrisfs.peers.service import PeerService
from hybrisfs.peers.settings import PeerSettings, format_place
from tests.peers.support import LONG, Device, identity, key, knows, members, running, settings


def peer_threads() -> list[str]:
    return [t.name for t in threading.enumerate() if t.name.startswith("peer")]


@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "localhost"])
def test_updates_travel_both_ways(host: str) -> None:
    a, b = Device(1), Device(2)
    a.log.add(b"old of a")
    b.log.add(b"old of b")
    with running(a, b):
        knows(a, b, host=host)
        a.wait_for(b"old of b")
        b.wait_for(b"old of a")
        a.write(b"new of a")
        b.wait_for(b"new of a")
        b.write(b"new of b")
        a.wait_for(b"new of b")
    assert peer_threads() == []


def test_three_devices_in_a_chain() -> None:
    a, b, c = Device(1), Device(2), Device(3)
    with running(a, b, c):
        knows(b, a, c)
        b.wait_linked(a, c)
        a.write(b"from a")
        c.wait_for(b"from a")
        c.write(b"from c")
        a.wait_for(b"from c")


def test_both_connecting_at_once_end_with_one_link_that_works() -> None:
    a, b = Device(1), Device(2)
    with running(a, b):
        knows(a, b)
        knows(b, a)
        for round_ in range(5):
            a.wait_linked(b)
            b.wait_linked(a)
            a.write(b"a %d" % round_)
            b.write(b"b %d" % round_)
            a.wait_for(b"b %d" % round_)
            b.wait_for(b"a %d" % round_)
            if round_ < 4:  # both lose the link at the same moment, and connect again
                a.service.slept()
                b.service.slept()
                a.service._connector.hurry()
                b.service._connector.hurry()


def test_status_tells_who_where_and_how_far() -> None:
    a, b = Device(1), Device(2)
    with running(a, b):
        knows(a, b)
        a.wait_linked(b)
        assert a.fetch(bytes(32)) is None  # its answer comes after the first pong
        (status,) = a.service.status()
        assert (status.device_id, status.place, status.outgoing) == (
            b.id,
            ("127.0.0.1", b.service.port),
            True,
        )
        assert status.round_trip is not None and 0 < status.round_trip < LONG
        b.wait_linked(a)
        (status,) = b.service.status()
        host = format_place(status.place).partition(":")[0]
        assert (status.device_id, host, status.outgoing) == (a.id, "127.0.0.1", False)
    assert a.service.status() == []


def test_chunks_come_from_whoever_has_them() -> None:
    a, b, c = Device(1), Device(2), Device(3)
    large = os.urandom(1 << 20)
    at_b, at_c, nowhere = b.put_chunk(b""), c.put_chunk(large), bytes(32)
    with running(a, b, c):
        knows(a, b, c)
        a.wait_linked(b, c)
        assert a.fetch(at_b) == b""
        assert a.fetch(at_c) == large
        assert a.fetch(nowhere) is None
        assert c.fetch(at_b) is None  # c has no link with b


def test_many_chunks_are_asked_for_at_once_and_the_next_device_for_the_rest() -> None:
    a, b, c = Device(1), Device(2), Device(3)
    at_b = [b.put_chunk(b"b %d" % number) for number in range(50)]
    at_c = [c.put_chunk(b"c %d" % number) for number in range(50)]
    nowhere = bytes(32)
    wanted = [one for pair in zip(at_b, at_c, strict=True) for one in pair] + [nowhere]
    with running(a, b, c):
        knows(a, b, c)
        a.wait_linked(b, c)
        for link in a.service._links.current():  # b is the quickest
            link.round_trip = 0.0 if link.device_id == b.id else 1.0
        found = a.service.fetch_chunks(wanted, LONG)
    assert found == [b.chunks.get(one) or c.chunks.get(one) for one in wanted]
    assert found[-1] is None and None not in found[:-1]
    assert (b.asked, c.asked) == (wanted, [*at_c, nowhere])


def test_a_wrong_chunk_is_passed_over() -> None:
    a, b, c = Device(1), Device(2), Device(3)
    good = c.put_chunk(b"the chunk")
    b.chunks[good] = b"something else"
    with running(a, b, c):
        knows(a, b, c)
        a.wait_linked(b, c)
        for link in a.service._links.current():  # the liar is the quickest
            link.round_trip = 0.0 if link.device_id == b.id else 1.0
        assert a.fetch(good) == b"the chunk"


@pytest.mark.parametrize("quickest", [2, 3])
def test_the_quickest_device_is_asked_first(quickest: int) -> None:
    a, others = Device(1), [Device(2), Device(3)]
    for other in others:
        wanted = other.put_chunk(b"everywhere")
    with running(a, *others):
        knows(a, *others)
        a.wait_linked(*others)
        for link in a.service._links.current():
            link.round_trip = 0.0 if link.device_id == key(quickest).device_id else 1e6
        assert a.fetch(wanted) == b"everywhere"
    assert [other.number for other in others if other.asked] == [quickest]


def test_many_chunks_at_once_by_many_threads() -> None:
    a, b = Device(1), Device(2)
    wanted = [b.put_chunk(os.urandom(20_000)) for _ in range(200)]
    got: list[bytes | None] = []
    with running(a, b):
        knows(a, b)
        a.wait_linked(b)
        threads = [
            threading.Thread(
                target=lambda part=part: got.extend(a.fetch(wanted[at]) for at in range(part, 200, 100))
            )
            for part in range(100)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert sorted(map(bytes, filter(None, got))) == sorted(b.chunks.values())


def test_beacons_reach_those_who_are_linked_and_those_who_come_later() -> None:
    a, b, c = Device(1), Device(2), Device(3)
    with running(a, b, c):
        knows(a, b)
        a.wait_linked(b)
        a.service.send_beacon(b"alive")
        b.wait(lambda: b.beacons == [(a.id, b"alive")])
        knows(c, a)
        c.wait(lambda: c.beacons == [(a.id, b"alive")])


def test_an_alarm_is_handed_on_and_the_link_stays() -> None:
    a, b = Device(1), Device(2)
    with running(a, b):
        knows(a, b)
        a.wait_linked(b)
        a.service._links.current()[0]._send_exchange([b"warn"])
        b.wait(lambda: b.alarms == [(a.id, "the states differ")])
        a.write(b"still here")
        b.wait_for(b"still here")


def test_a_device_that_comes_back_is_linked_again() -> None:
    a, b = Device(1), Device(2)
    with running(a, b):
        knows(a, b)
        a.wait_linked(b)
        port = b.service.port
        b.service.close()
        a.wait_linked()
        a.write(b"meanwhile")
        b.settings = settings(port=port)
        b.service = b.new_service()
        b.service.start()
        b.wait_for(b"meanwhile")


def test_who_was_connected_to_connects_back_to_where_it_met_the_other() -> None:
    """One address configured on one side is enough, whoever is up first after a break."""
    a, b = Device(1), Device(2)
    with running(a, b):
        knows(a, b)
        a.wait_linked(b)
        b.wait_linked(a)
        a.service.set_addresses([])
        a.service._connector.keep_members(frozenset())  # a forgets where b is
        a.service.slept()
        b.wait(lambda: [status.outgoing for status in b.service.status()] == [True])
        b.write(b"through")
        a.wait_for(b"through")


def test_a_member_removed_loses_its_link_and_gets_no_other() -> None:
    a, b = Device(1), Device(2)
    with running(a, b):
        knows(a, b)
        knows(b, a)
        a.wait_linked(b)
        a.service.set_members(members(1, 3))
        a.wait_linked()
        b.wait_linked()
        b.service._connector.hurry()
        with pytest.raises(PeerError, match=r"refused|broke"):
            b.service._handshakes.dial(("127.0.0.1", a.service.port))
        assert a.service.status() == []


@pytest.mark.parametrize("what", ["removed", "closed"])
def test_who_is_met_too_late_gets_no_link(what: str) -> None:
    """The handshake was under way while the device was removed, or the volume closed."""
    a, b = Device(1), Device(2)
    with running(a, b):
        meeting = a.service._handshakes.dial(("127.0.0.1", b.service.port))
        b.wait_linked(a)
        if what == "removed":
            a.service.set_members(members(1, 3))
        else:
            a.service.close()
        a.service.met(meeting)
        assert a.service.status() == []
        b.wait_linked()


def test_a_member_added_is_let_in() -> None:
    a = Device(1, members=members(1))
    b = Device(2)
    with running(a, b):
        knows(b, a)
        with pytest.raises(PeerError, match=r"refused|broke"):
            b.service._handshakes.dial(("127.0.0.1", a.service.port))
        a.service.set_members(members(1, 2))
        a.wait_linked(b)


def test_a_member_of_another_volume_is_refused() -> None:
    a = Device(1)
    other = Device(2, identity=identity(2, volume=bytes(16)))
    with running(a, other):
        knows(other, a)
        with pytest.raises(PeerError, match="handshake"):
            other.service._handshakes.dial(("127.0.0.1", a.service.port))
        assert a.service.status() == []


def test_a_cloned_device_is_linked_like_any_other() -> None:
    """Restored from a backup while the first one still runs: nothing that either writes may be lost."""
    a, clone, c = Device(1), Device(1), Device(3)
    with running(a, clone, c):
        knows(c, a, clone)
        c.wait(lambda: [s.device_id for s in c.service.status()] == [a.id, a.id])
        a.write(b"of the first")
        clone.wait_for(b"of the first")
        knows(a, clone)
        knows(clone, a)
        a.wait(lambda: sorted(s.device_id for s in a.service.status()) == sorted([a.id, c.id]))
        clone.write(b"of the clone")
        a.wait_for(b"of the clone")


def test_an_address_that_leads_to_itself_gives_no_link() -> None:
    a, b = Device(1), Device(2)
    with running(a, b):
        knows(a, a, b)
        a.wait_linked(b)


def test_no_port_is_open_before_the_start_nor_after_the_end() -> None:
    a = Device(1)
    assert a.service.port == 0
    assert peer_threads() == []
    with running(a):
        port = a.service.port
        socket.create_connection(("127.0.0.1", port), LONG).close()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port), LONG)
    a.service.close()


def test_a_port_that_is_taken_is_told() -> None:
    with socket.create_server(("0.0.0.0", 0)) as taken:
        device = Device(1, settings=settings(port=taken.getsockname()[1]))
        with pytest.raises(ListenError, match="another port"):
            device.service.start()
        device.service.close()


def test_closing_is_quick_while_connecting_to_where_nobody_answers() -> None:
    with socket.create_server(("127.0.0.1", 0), backlog=1) as silent:  # connects, and says nothing
        a = Device(1, settings=settings(handshake_timeout=600.0))
        with running(a):
            a.service.set_addresses([silent.getsockname()[:2]])
            connection, _ = silent.accept()
            with connection:
                assert connection.recv(1)
                a.service.close()
    assert peer_threads() == []


def test_the_defaults_are_sound() -> None:
    defaults = PeerSettings()
    assert defaults.keepalive * 2 < defaults.silence <= 15
    assert PeerService(identity(1), members(1), Device(1).callbacks(), environment=SYSTEM).status() == []


def test_when_one_of_two_links_ends_the_other_pushes_what_it_may_have_swallowed() -> None:
    a, b = Device(1), Device(2)
    with running(a, b):
        knows(a, b)
        a.wait_linked(b)
        [link] = a.service._links.all()
        with mock.patch.object(link, "advanced") as advanced:
            duplicate = mock.Mock(device_id=b.id, age=0.0)
            a.service._ended(duplicate, "another link with this machine stays")
        advanced.assert_called_once_with()


def test_the_higher_device_lets_the_lower_connect_unless_that_cannot_know_of_it() -> None:
    lower, higher = sorted((Device(1), Device(2)), key=lambda one: one.id)
    addresses = (("192.0.2.1", 4711),)
    for device, other, announced, waits in (
        (lower, higher, True, False),
        (higher, lower, True, True),
        (higher, lower, False, False),
    ):
        discovery = mock.Mock(announced=announced)
        with (
            mock.patch.object(device.service, "_discovery", discovery),
            mock.patch.object(device.service._connector, "seen") as seen,
        ):
            device.service.seen(other.id, addresses)
        (_, _, delay), _ = seen.call_args
        assert (delay > 0) == waits
