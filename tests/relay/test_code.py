"""The code that devices are given."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from backends.relay import RelayStore, pin_of, port_of
from hybrisfs.client import UsageError
from relay.code import RelayCode

CODE = RelayCode("nas.example", 8017, "home", bytes(range(32)), "a" * 32)


@pytest.mark.parametrize("host", ["nas.example", "192.0.2.7", "2001:db8::7"])
def test_a_code_comes_back_and_is_the_url_of_a_cloud(host: str) -> None:
    code = RelayCode(host, 1234, "home", bytes(range(32)), "a" * 32)
    assert RelayCode.decode(code.encode()) == code
    address = RelayStore.kind.parse(code.url)
    assert (address.host, port_of(address), address.path) == (host, 1234, "home")
    assert pin_of(address) == code.pin
    assert code.token not in code.url


def test_white_space_and_capitals_do_not_matter() -> None:
    text = CODE.encode().upper()
    assert RelayCode.decode(f" {text[:20]}\n{text[20:]}\t") == CODE


def test_each_changed_letter_is_found() -> None:
    text = CODE.encode()
    for at in range(len(text)):
        changed = text[:at] + ("b" if text[at] == "a" else "a") + text[at + 1 :]
        with pytest.raises(UsageError):
            RelayCode.decode(changed)
        with pytest.raises(UsageError):
            RelayCode.decode(text[:at])


@given(st.text(max_size=300))
@example("hfr1-")
@example("hfr1-" + "a" * 3000)
@example("hfs1-abc")
def test_nonsense_is_refused_and_not_quoted(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        RelayCode.decode(text)
    if len(text) > 20:
        assert text not in str(caught.value)


def test_the_token_does_not_show() -> None:
    assert CODE.token not in repr(CODE)
