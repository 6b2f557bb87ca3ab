"""Who gets through TLS, and who does not."""

from __future__ import annotations

import contextlib
import datetime
import os
import socket
import ssl
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from hybrisfs.peers import tls as tls_module
from hybrisfs.peers.channel import SecureChannel, SocketWire
from hybrisfs.peers.errors import ChannelError, PeerError, StrangerError
from hybrisfs.peers.frames import Hello
from hybrisfs.peers.handshakes import Meeting, meet
from hybrisfs.peers.tls import ALPN, PeerIdentity, TlsIdentity
from sync import Members
from tests.peers.support import LONG, identity, key, members, tcp_pair, within

HELLO = Hello(b"instance", 7)
HELLO_TOO = Hello(b"another ", 8)
ADDRESS = ("192.0.2.1", 1)


def run_meeting(
    connection: socket.socket, who: PeerIdentity, outgoing: bool, allowed: Members, hello: Hello = HELLO
) -> Meeting | PeerError:
    left = within(LONG)
    try:
        return meet(SocketWire(connection), ADDRESS, outgoing, TlsIdentity(who), lambda: allowed, hello, left)
    except PeerError as error:
        connection.close()
        return error


def introduce(
    server: PeerIdentity,
    client: PeerIdentity,
    servers_members: Members | None = None,
    clients_members: Members | None = None,
    hellos: tuple[Hello, Hello] = (HELLO_TOO, HELLO),
) -> tuple[Meeting | PeerError, Meeting | PeerError]:
    """What each side of an attempt makes of it: the server's view, the client's view."""
    views: list[Meeting | PeerError] = []
    everybody = members(1, 2, 3)

    def serve(connection: socket.socket) -> None:
        views.append(run_meeting(connection, server, False, servers_members or everybody, hellos[0]))

    with tcp_pair() as (near, far):
        thread = threading.Thread(target=serve, args=(far,))
        thread.start()
        view = run_meeting(near, client, True, clients_members or everybody, hellos[1])
        thread.join()
        return views[0], view


def served(talk: Callable[[socket.socket], None]) -> Meeting | PeerError:
    """The view of device 1 as the server of whoever does *talk*."""
    views: list[Meeting | PeerError] = []
    with tcp_pair() as (near, far):
        thread = threading.Thread(
            target=lambda: views.append(run_meeting(far, identity(1), False, members(1, 2, 3)))
        )
        thread.start()
        talk(near)
        near.close()
        thread.join()
    return views[0]


def test_members_meet_and_know_each_other() -> None:
    server, client = introduce(identity(1), identity(2))
    assert isinstance(server, Meeting) and isinstance(client, Meeting)
    assert (server.device_id, client.device_id) == (key(2).device_id, key(1).device_id)
    assert (server.outgoing, client.outgoing) == (False, True)
    assert (server.hello, client.hello) == (HELLO, HELLO_TOO)
    assert client.channel.tls.version() == "TLSv1.3"


def test_who_has_another_secret_is_refused_before_a_certificate_is_shown() -> None:
    server, client = introduce(identity(1), identity(2, secret=bytes(32)))
    assert isinstance(server, ChannelError) and isinstance(client, ChannelError)
    assert "unrecognized name" in str(client)


def test_a_member_of_another_volume_with_the_same_secret_is_refused() -> None:
    server, client = introduce(identity(1), identity(2, volume=bytes(16)))
    assert isinstance(server, ChannelError) and isinstance(client, ChannelError)


class Overheard(PeerIdentity):
    """A device without the secret that has overheard a server name."""

    def server_name(self) -> str:
        return identity(2).server_name()


def test_who_overheard_a_server_name_still_needs_a_certificate() -> None:
    stranger = identity(2, secret=bytes(32))
    overhearing = Overheard(stranger.volume, stranger.device, stranger.secret)
    server, client = introduce(identity(1), overhearing)
    assert isinstance(server, ChannelError) and isinstance(client, ChannelError)
    assert "certificate verify failed" in str(client)


class Welcoming(PeerIdentity):
    """A device that lets everybody in."""

    def knows(self, server_name: str) -> bool:
        return True


def test_a_server_that_lets_everybody_in_is_refused_by_the_client() -> None:
    stranger = identity(1, secret=bytes(32))
    _, client = introduce(Welcoming(stranger.volume, stranger.device, stranger.secret), identity(2))
    assert isinstance(client, ChannelError)
    assert "certificate verify failed" in str(client)


def test_a_removed_member_that_has_the_secret_is_refused() -> None:
    server, client = introduce(identity(1), identity(2), servers_members=members(1, 3))
    assert isinstance(server, StrangerError)
    assert key(2).device_id.hex() in str(server)
    assert isinstance(client, ChannelError)


def test_a_server_that_is_no_member_any_more_is_refused() -> None:
    server, client = introduce(identity(1), identity(2), clients_members=members(2, 3))
    assert isinstance(client, StrangerError)
    assert isinstance(server, ChannelError)


def test_a_device_refuses_itself() -> None:
    server, client = introduce(identity(1), identity(1), hellos=(HELLO, HELLO))
    assert isinstance(server, StrangerError) and isinstance(client, StrangerError)


def test_a_clone_of_a_device_meets_it() -> None:
    server, client = introduce(identity(1), identity(1))
    assert isinstance(server, Meeting) and isinstance(client, Meeting)


def test_a_members_certificate_is_worthless_without_its_key() -> None:
    """OpenSSL itself refuses to load the pair, so the impostor has to sign with his own key, and fails."""
    anchor = Ed25519PrivateKey.from_private_bytes(identity(2).derive("anchor"))
    public = Ed25519PrivateKey.from_private_bytes(key(2).seed).public_key()
    with pytest.raises(ssl.SSLError, match="KEY_VALUES_MISMATCH"):
        tls_module._load_key(
            ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT),
            tls_module._leaf(anchor, public),
            Ed25519PrivateKey.generate(),
        )


def test_a_handshake_played_again_is_refused() -> None:
    """All bytes that a member once sent, its certificate and proof among them, give nobody anything."""
    recorded = bytearray()
    views: list[Meeting | PeerError] = []

    def relay(source: socket.socket, sink: socket.socket, record: bytearray | None) -> None:
        while data := source.recv(65536):
            if record is not None:
                record += data
            sink.sendall(data)

    with tcp_pair() as (client, left), tcp_pair() as (right, server):
        relays = [
            threading.Thread(target=relay, args=(left, right, recorded), daemon=True),
            threading.Thread(target=relay, args=(right, left, None), daemon=True),
            threading.Thread(
                target=lambda: views.append(run_meeting(server, identity(1), False, members(1, 2), HELLO_TOO))
            ),
        ]
        for thread in relays:
            thread.start()
        first = run_meeting(client, identity(2), True, members(1, 2))
        relays[2].join()
        assert isinstance(first, Meeting) and isinstance(views[0], Meeting)
        for end in (client, server):
            end.shutdown(socket.SHUT_RDWR)
        for thread in relays[:2]:
            thread.join(LONG)

    def replay(connection: socket.socket) -> None:
        connection.sendall(recorded)
        with contextlib.suppress(ConnectionError):
            while connection.recv(65536):
                pass

    assert isinstance(served(replay), ChannelError)


def test_a_man_in_the_middle_with_a_certificate_of_his_own_is_refused() -> None:
    """A removed member that still has the secret stands between two members."""
    server, client = introduce(identity(9), identity(2))
    assert isinstance(client, StrangerError)
    assert isinstance(server, ChannelError)
    server, client = introduce(identity(1), identity(9), clients_members=members(1, 9))
    assert isinstance(server, StrangerError)
    assert isinstance(client, ChannelError)


def client_context() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.set_alpn_protocols([ALPN])
    return context


def attempt(context: ssl.SSLContext, name: str | None) -> Callable[[socket.socket], None]:
    def talk(connection: socket.socket) -> None:
        with pytest.raises((OSError, EOFError)):  # ssl.SSLError is an OSError
            wrapped = context.wrap_socket(connection, server_hostname=name)
            if not wrapped.recv(1):
                raise EOFError

    return talk


def test_who_asks_for_no_name_is_refused() -> None:
    assert isinstance(served(attempt(client_context(), None)), ChannelError)


def test_who_shows_no_certificate_is_refused() -> None:
    view = served(attempt(client_context(), identity(2).server_name()))
    assert isinstance(view, ChannelError)
    assert "peer did not return a certificate" in str(view)


def test_older_tls_is_refused() -> None:
    context = client_context()
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    view = served(attempt(context, identity(2).server_name()))
    assert isinstance(view, ChannelError)
    assert "unsupported protocol" in str(view)


@pytest.mark.parametrize("protocols", [None, ["http/1.1"]])
def test_another_protocol_is_refused(protocols: list[str] | None) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    if protocols:
        context.set_alpn_protocols(protocols)
    anchor = Ed25519PrivateKey.from_private_bytes(identity(2).derive("anchor"))
    device = Ed25519PrivateKey.from_private_bytes(key(2).seed)
    tls_module._load_key(context, tls_module._leaf(anchor, device.public_key()), device)
    assert isinstance(served(attempt(context, identity(2).server_name())), PeerError)


@pytest.mark.parametrize(
    "garbage",
    [b"", b"GET / HTTP/1.1\r\n\r\n", bytes(1000), b"\x16\x03\x01" + os.urandom(70_000)],
    ids=["nothing", "http", "zeros", "a flood"],
)
def test_garbage_is_refused(garbage: bytes) -> None:
    def talk(connection: socket.socket) -> None:
        try:
            connection.sendall(garbage)
            connection.shutdown(socket.SHUT_WR)
        except OSError:
            pass

    assert isinstance(served(talk), ChannelError)


def test_a_handshake_without_end_is_refused() -> None:
    """A hello that announces 90,000 bytes, which OpenSSL would wait for, comes record by record."""

    def talk(connection: socket.socket) -> None:
        hello = b"\x01" + (90_000).to_bytes(3, "big") + bytes(79_996)
        with contextlib.suppress(OSError):
            for start in range(0, len(hello), 16_000):
                connection.sendall(b"\x16\x03\x01" + (16_000).to_bytes(2, "big") + hello[start:][:16_000])
            while connection.recv(65536):
                pass

    view = served(talk)
    assert isinstance(view, ChannelError)
    assert "no handshake" in str(view)


def test_silence_ends_with_the_deadline() -> None:
    with tcp_pair() as (near, _):
        channel = SecureChannel(SocketWire(near), TlsIdentity(identity(1)).server)
        with pytest.raises(ChannelError, match="in time"):
            channel.handshake(lambda: 0.0)


def test_certificates_say_nothing_about_whom_they_belong_to() -> None:
    anchor = Ed25519PrivateKey.from_private_bytes(identity(1).derive("anchor"))
    leaf = tls_module._leaf(anchor, Ed25519PrivateKey.from_private_bytes(key(1).seed).public_key())
    assert leaf.subject.rfc4514_string() == "CN=device"
    assert leaf.not_valid_before_utc.year == 1970
    assert leaf.not_valid_after_utc > datetime.datetime(9000, 1, 1, tzinfo=datetime.UTC)


def test_the_key_is_never_in_a_file_in_clear(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    seen: list[bytes] = []
    original = Path.unlink

    def unlink(path: Path) -> None:
        seen.append(path.read_bytes())
        original(path)

    monkeypatch.setattr(Path, "unlink", unlink)
    TlsIdentity(identity(1))
    assert len(seen) == 2
    assert all(b"ENCRYPTED PRIVATE KEY" in text and b"BEGIN PRIVATE KEY" not in text for text in seen)
    assert list(tmp_path.iterdir()) == []
