"""The driver of relays, against a real one: the contract, and what is particular to relays."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

import pytest

from backends.body import Timing
from backends.errors import AuthError, CorruptError, PermanentError
from backends.relay import RelayStore
from backends.store import Store
from relay.files import certificate
from tests.backends.conformance import Conformance
from tests.backends.faulty_server import Answer, AnsweringServer, Request
from tests.backends.network_conformance import HttpConformance
from tests.backends.servers import FixedCredentials, Server

PIN = 64 * "0"


class Impostor(AnsweringServer):
    """Gives prepared answers by HTTPS, with the certificate in a folder."""

    def __init__(self, folder: Path, answer: Answer | Callable[[Request], Answer]) -> None:
        made = certificate(folder)
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._context.load_cert_chain(made.chain, made.key)
        super().__init__(answer)

    def _serve(self, connection: socket.socket) -> None:
        with self._context.wrap_socket(connection, server_side=True) as secure:
            self._adopt(secure)
            super()._serve(secure)


class TestRelayStore(HttpConformance, Conformance):
    """The contract holds."""

    clock_skew = Answer(401, {"Date": "Thu, 01 Jan 2026 00:00:00 GMT"})

    @pytest.fixture(autouse=True)
    def _answering_with_its_certificate(self, server: Server) -> None:
        self.answering = partial(Impostor, folder_of(server))

    @pytest.fixture
    def server(self, relay_server: Server) -> Server:
        return relay_server

    def open(self, url: str, secrets: Mapping[str, str], timing: Timing | None = None) -> Store:
        return RelayStore(url, FixedCredentials(secrets), timing)

    def test_folders_of_one_bucket_do_not_see_each_other(self, server: Server) -> None:
        """A space has no folders; spaces do not see each other."""
        one, other = (self.open(server.url(), server.secrets) for _ in range(2))
        one.initialise()
        other.initialise()
        one.put("object", b"one")
        assert other.list("").entries == ()
        other.put("object", b"other")
        other.delete("object")
        assert one.get("object", limit=3) == b"one"


def folder_of(server: Server) -> Path:
    """Where the relay keeps its files."""
    arguments = server.process.args
    assert isinstance(arguments, list)
    return Path(arguments[arguments.index("--folder") + 1])


@pytest.fixture
def store(relay_server: Server) -> Store:
    made = RelayStore(relay_server.url(), FixedCredentials(relay_server.secrets))
    made.initialise()
    return made


def test_another_certificate_is_refused(relay_server: Server, tmp_path: Path) -> None:
    """Whoever else answers at the address of the relay gets neither a token nor an object."""
    with Impostor(tmp_path, Answer()) as other:
        store = RelayStore(
            relay_server.url(authority=other.authority), FixedCredentials(relay_server.secrets)
        )
        with pytest.raises(PermanentError, match="another certificate"):
            store.put("object", b"data")
        assert other.requests == []


def test_without_a_token_nothing_is_asked(relay_server: Server) -> None:
    store = RelayStore(relay_server.url(), FixedCredentials({}))
    with pytest.raises(AuthError, match="no token"):
        store.list("")


@pytest.mark.parametrize(
    "url",
    [
        "relay://host/space",
        f"relay://host/space?pin={PIN[1:]}",
        f"relay://host/space?pin={PIN[1:]}A",
        f"relay://host?pin={PIN}",
        f"relay://host/one/two?pin={PIN}",
        f"relay://host/Space?pin={PIN}",
        f"relay://me@host/space?pin={PIN}",
        f"relay://host/space?pin={PIN}&more=1",
    ],
)
def test_a_malformed_url_is_refused(url: str) -> None:
    with pytest.raises(PermanentError, match=r"write relay://host:8017|known: pin"):
        RelayStore(url)


LISTINGS = [
    b'{"objects": [["p2", 1], ["p1", 1]], "more": false}',
    b'{"objects": [["p1", 1], ["p1", 1]], "more": false}',
    b'{"objects": [["z", 1]], "more": false}',
    b'{"objects": [["p1", 1], ["p2", 1], ["p3", 1]], "more": false}',
    b'{"objects": [], "more": true}',
    b'{"objects": [["p1", -1]], "more": false}',
    b'{"objects": [["p1", 1]]}',
    b'{"objects": [["p1", 1]], "more": false, "x": 1}',
]


@pytest.mark.parametrize("listing", LISTINGS)
def test_a_listing_that_lies_is_found_out(relay_server: Server, listing: bytes) -> None:
    """Out of order, twice, of another prefix, more than was asked for, without end, without sense."""
    with Impostor(folder_of(relay_server), Answer(body=listing)) as liar:
        store = RelayStore(relay_server.url(authority=liar.authority), FixedCredentials(relay_server.secrets))
        with pytest.raises(CorruptError):
            store.list("p", limit=2)


def test_a_part_is_not_taken_from_a_whole(relay_server: Server) -> None:
    with Impostor(folder_of(relay_server), Answer(body=b"abcdef")) as liar:
        store = RelayStore(relay_server.url(authority=liar.authority), FixedCredentials(relay_server.secrets))
        with pytest.raises(CorruptError):
            store.get_range("object", 0, 6)


def test_a_part_of_another_length_is_not_taken(relay_server: Server) -> None:
    with Impostor(folder_of(relay_server), Answer(206, body=b"abc")) as liar:
        store = RelayStore(relay_server.url(authority=liar.authority), FixedCredentials(relay_server.secrets))
        with pytest.raises(CorruptError):
            store.get_range("object", 0, 6)


def test_what_is_not_what_its_name_says_is_refused(store: Store) -> None:
    for name in (
        f"packs/ab/{'ab' * 32}.0",
        f"log/{'0' * 32}/{'1'.zfill(16)}-{'0' * 16}",
        f"heads/{'0' * 32}",
        f"checkpoints/{'0' * 64}",
    ):
        with pytest.raises(PermanentError, match="422"):
            store.put(name, b"something else")
        assert store.list(name).entries == ()
