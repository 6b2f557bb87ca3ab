"""Through which relays a volume links its devices."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec.structs import replace

from backends.credentials import Secrets
from backends.errors import AuthError
from hybrisfs.exchange.peering import relays_of
from hybrisfs.peers.settings import PeerSettings, Relay
from hybrisfs.settings.config import CloudConfig, VolumeConfig

URL, OTHER = (f"relay://{host}/home?pin={64 * 'a'}" for host in ("nas.example", "[2001:db8::7]:99"))
CONFIG = VolumeConfig(
    "vol", bytes(16), 0, 1, (CloudConfig(0, "disk", "file:///disk"), CloudConfig(1, "nas", URL))
)


class Known:
    """Tokens by URL."""

    def __init__(self, tokens: Mapping[str, str]) -> None:
        self._tokens = tokens

    def lookup(self, url: str) -> Secrets:
        if url not in self._tokens:
            raise AuthError(url, "open", "", "damaged")
        return Secrets({"token": self._tokens[url]})


def test_those_that_are_clouds_and_those_among_the_addresses_each_once() -> None:
    config = replace(CONFIG, links=PeerSettings(relays=(OTHER, URL)))
    assert relays_of(config, Known({URL: "one", OTHER: "other"})) == [
        Relay(("nas.example", 8017), bytes([0xAA] * 32), "home", "one"),
        Relay(("2001:db8::7", 99), bytes([0xAA] * 32), "home", "other"),
    ]


def test_without_a_token_or_with_damaged_secrets_there_is_none() -> None:
    assert relays_of(CONFIG, Known({URL: ""})) == []
    assert relays_of(CONFIG, Known({})) == []


def test_a_url_that_makes_no_sense_is_passed_over() -> None:
    config = replace(CONFIG, clouds=(CloudConfig(0, "bad", "relay://nas"), CloudConfig(1, "nas", URL)))
    assert len(relays_of(config, Known({URL: "one"}))) == 1
