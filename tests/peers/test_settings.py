"""Addresses as the user writes them."""

from __future__ import annotations

import pytest

from hybrisfs.errors import UsageError
from hybrisfs.peers.settings import Address, format_address, parse_address


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("laptop.lan:4711", ("laptop.lan", 4711)),
        ("192.0.2.7:1", ("192.0.2.7", 1)),
        ("[2001:db8::7]:65535", ("2001:db8::7", 65535)),
        ("[fe80::1%eth0]:80", ("fe80::1%eth0", 80)),
    ],
)
def test_addresses_are_read_and_written(text: str, address: Address) -> None:
    assert parse_address(text) == address
    assert format_address(address) == text


@pytest.mark.parametrize(
    "text",
    [
        "",
        "laptop",
        ":80",
        "laptop:",
        "laptop:0",
        "laptop:65536",
        "laptop:-1",
        "2001:db8::7:80",
        "[]:80",
        "a:²",
    ],
)
def test_everything_else_is_refused_with_advice(text: str) -> None:
    with pytest.raises(UsageError, match="not an address"):
        parse_address(text)
