"""The relay itself, over real connections: what strangers and clients out of order get, and lines."""

from __future__ import annotations

import http.client
import os
import socket
import ssl
import threading
from collections.abc import Iterator
from random import Random

import msgspec
import pytest

from backends.address import Address
from backends.relay import RelayStore
from hybrisfs.peers.lines import TAG_SIZE, LineRequest, Role, Said, encode_request
from relay.rooms import MAX_OBJECT
from tests.backends.servers import FixedCredentials, Server

TAG = b"t" * TAG_SIZE
LONG = 30.0


@pytest.fixture
def place(relay_server: Server) -> Address:
    """A space that can hold objects."""
    url = relay_server.url()
    RelayStore(url, FixedCredentials(relay_server.secrets)).initialise()
    return RelayStore.kind.parse(url)


def connected(address: Address) -> ssl.SSLSocket:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    assert address.port is not None
    return context.wrap_socket(socket.create_connection((address.host, address.port), LONG))


def asked(
    address: Address,
    token: str | None,
    method: str,
    path: str,
    body: bytes | None = None,
    headers: dict[str, str] | None = None,
) -> tuple[int, bytes]:
    """What a relay answers; *path* is below the space."""
    client = http.client.HTTPSConnection(address.host, address.port, timeout=LONG)
    client.sock = connected(address)
    login = {} if token is None else {"Authorization": f"Bearer {token}"}
    client.request(method, f"/{address.path}/{path}", body, login | (headers or {}))
    answer = client.getresponse()
    try:
        return answer.status, answer.read()
    finally:
        client.close()


REQUESTS = [
    ("PUT", "", b""),
    ("PUT", "o/object", b"data"),
    ("GET", "o/object", None),
    ("HEAD", "o/object", None),
    ("DELETE", "o/object", None),
    ("POST", "delete", b'["object"]'),
    ("GET", "?prefix=&after=&limit=1", None),
]


@pytest.mark.parametrize("token", [None, "", "b" * 32, "a" * 31, "a" * 33])
@pytest.mark.parametrize("request_of", REQUESTS, ids=lambda one: f"{one[0]} {one[1]}")
def test_without_the_token_nobody_gets_anything(
    relay_server: Server, place: Address, token: str | None, request_of: tuple[str, str, bytes | None]
) -> None:
    asked(place, relay_server.secrets["token"], "PUT", "o/object", b"content")
    status, answer = asked(place, token, *request_of)
    assert status == 401
    assert b"content" not in answer
    assert asked(place, relay_server.secrets["token"], "GET", "o/object") == (200, b"content")


def test_a_space_that_is_not_there_looks_like_a_wrong_token(relay_server: Server, place: Address) -> None:
    other = msgspec.structs.replace(place, path="nothing")
    assert asked(other, "b" * 32, "GET", "o/x") == asked(place, "b" * 32, "GET", "o/x")


@pytest.mark.parametrize(
    ("method", "path", "body", "headers", "status"),
    [
        ("GET", "o/../spaces.json", None, {}, 400),
        ("GET", "o/.hybrisfs/x", None, {}, 400),
        ("GET", "o//x", None, {}, 400),
        ("GET", "o/%2e%2e/x", None, {}, 400),
        ("GET", "o/A", None, {}, 401),
        ("GET", "elsewhere", None, {}, 401),
        ("PATCH", "o/x", b"", {}, 405),
        ("GET", "delete", None, {}, 405),
        ("GET", "o/x", None, {"Range": "bytes=5-4"}, 400),
        ("GET", "o/x", None, {"Range": "bytes=-4"}, 400),
        ("GET", "o/x", None, {"Range": f"bytes=0-{MAX_OBJECT}"}, 400),
        ("PUT", "o/x", b"", {"If-None-Match": '"tag"'}, 400),
        ("PUT", "o/x", None, {"Transfer-Encoding": "chunked"}, 411),
        ("PUT", "o/x", None, {"Content-Length": str(MAX_OBJECT + 1)}, 413),
        ("POST", "delete", b"{}", {}, 400),
        ("POST", "delete", b'["../x"]', {}, 400),
        ("POST", "delete", msgspec.json.encode(["x"] * 1001), {}, 400),
        ("GET", "?prefix=..&after=&limit=1", None, {}, 400),
        ("GET", "?limit=0", None, {}, 400),
        ("GET", "?limit=1001", None, {}, 400),
        ("GET", "?limit=x", None, {}, 400),
    ],
)
def test_what_makes_no_sense_is_refused(
    relay_server: Server,
    place: Address,
    method: str,
    path: str,
    body: bytes | None,
    headers: dict[str, str],
    status: int,
) -> None:
    token = relay_server.secrets["token"]
    assert asked(place, token, method, path, body, headers)[0] == status
    assert asked(place, token, "PUT", "o/x", b"data") == (204, b"")


def test_strangers_who_say_anything_stop_nothing(relay_server: Server, place: Address) -> None:
    chance = Random(7)
    for _ in range(30):
        with connected(place) as stranger:
            stranger.sendall(chance.choice([b"", b"H", b"HFRL", b"PUT / HTTP/1.1\r\n"]) + os.urandom(200))
    with socket.create_connection((place.host, place.port or 0), LONG) as stranger:
        stranger.sendall(os.urandom(500))
    assert asked(place, relay_server.secrets["token"], "PUT", "o/x", b"data") == (204, b"")


# -- lines ----------------------------------------------------------------------------------------------


class End:
    """A device's side of a line."""

    def __init__(self, address: Address, role: Role, token: str, tag: bytes = TAG) -> None:
        self.socket = connected(address)
        self.socket.sendall(encode_request(LineRequest(role, tag, address.path, token)))

    def hear(self, count: int) -> bytes:
        heard = bytearray()
        while len(heard) < count and (data := self.socket.recv(count - len(heard))):
            heard += data
        return bytes(heard)


@pytest.fixture
def line(relay_server: Server, place: Address) -> Iterator[tuple[End, End]]:
    """Two ends that are connected."""
    token = relay_server.secrets["token"]
    waiting = End(place, Role.WAIT, token)
    assert waiting.hear(1) == bytes([Said.WAITING])
    calling = End(place, Role.CALL, token)
    with waiting.socket, calling.socket:
        for end in (waiting, calling):
            assert end.hear(1) == bytes([Said.CONNECTED])
        yield waiting, calling


def test_what_one_end_says_the_other_hears(line: tuple[End, End]) -> None:
    for one, other in (line, line[::-1]):
        one.socket.sendall(b"HFRL is what it says")
        assert other.hear(20) == b"HFRL is what it says"


def test_much_goes_through_though_the_other_end_is_slow_to_take_it(line: tuple[End, End]) -> None:
    one, other = line
    content = os.urandom(30 << 20)
    sending = threading.Thread(target=lambda: one.socket.sendall(content))
    sending.start()
    other.socket.sendall(b"now")
    assert other.hear(len(content)) == content
    sending.join()  # before this thread uses the same socket: TLS sockets are for one thread at a time
    assert one.hear(3) == b"now"


def test_when_one_end_goes_the_other_one_ends(line: tuple[End, End]) -> None:
    one, other = line
    one.socket.sendall(b"bye")
    one.socket.close()
    assert other.hear(4) == b"bye"


def test_a_call_that_nobody_waits_for(relay_server: Server, place: Address) -> None:
    with End(place, Role.CALL, relay_server.secrets["token"]).socket as end:
        assert end.recv(10) == bytes([Said.NOBODY])
        assert end.recv(10) == b""


@pytest.mark.parametrize("role", Role)
def test_a_line_needs_the_token(place: Address, role: Role) -> None:
    with End(place, role, "b" * 32).socket as end:
        assert end.recv(10) == bytes([Said.REFUSED])
        assert end.recv(10) == b""


def test_one_that_waits_and_talks_is_ended(relay_server: Server, place: Address) -> None:
    with End(place, Role.WAIT, relay_server.secrets["token"]).socket as end:
        assert end.recv(1) == bytes([Said.WAITING])
        end.sendall(b"x")
        assert end.recv(1) == b""


def test_a_request_that_comes_in_pieces(relay_server: Server, place: Address) -> None:
    token = relay_server.secrets["token"]
    with connected(place) as slow:
        for byte in encode_request(LineRequest(Role.WAIT, TAG, place.path, token)):
            slow.sendall(bytes([byte]))
        assert slow.recv(1) == bytes([Said.WAITING])
