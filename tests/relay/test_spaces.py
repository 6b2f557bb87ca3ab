"""The spaces of a relay, the file they are in, and its certificate."""

from __future__ import annotations

import ssl
import stat
from pathlib import Path

import pytest

from hybrisfs.client import HybrisError, UsageError
from relay.files import certificate
from relay.spaces import Spaces


def test_the_token_of_a_space_opens_it_and_no_other(tmp_path: Path) -> None:
    spaces = Spaces(tmp_path / "relay")
    home = spaces.add("home", "nas", 8017, 0, 1.0)
    work = spaces.add("work", "nas", 8017, 5, 2.0)
    assert spaces.opened("home", home.token) == home
    assert spaces.opened("work", home.token) is None
    assert spaces.opened("else", home.token) is None
    assert spaces.opened("else", "") is None
    assert spaces.opened("home", "\u00e9") is None
    assert spaces.all() == [home, work]


def test_another_process_sees_what_has_changed(tmp_path: Path) -> None:
    spaces, seen = Spaces(tmp_path), Spaces(tmp_path)
    before = spaces.add("home", "nas", 8017, 0, 1.0)
    assert seen.opened("home", before.token) == before
    after = spaces.renew("home")
    assert seen.opened("home", before.token) is None
    assert seen.opened("home", after.token) == after
    spaces.remove("home")
    assert seen.opened("home", after.token) is None


def test_only_its_user_can_read_the_tokens(tmp_path: Path) -> None:
    Spaces(tmp_path / "relay").add("home", "nas", 8017, 0, 1.0)
    certificate(tmp_path / "relay")
    assert stat.S_IMODE((tmp_path / "relay").stat().st_mode) == 0o700
    for name in ("spaces.json", "tls-key.pem"):
        assert stat.S_IMODE((tmp_path / "relay" / name).stat().st_mode) == 0o600


@pytest.mark.parametrize("name", ["", "A", "a_b", "-a", "a-", "a/b", "..", "a" * 33])
def test_a_bad_name_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(UsageError, match="cannot name a space"):
        Spaces(tmp_path).add(name, "nas", 8017, 0, 1.0)


def test_a_name_that_is_taken_and_one_that_is_not_there(tmp_path: Path) -> None:
    spaces = Spaces(tmp_path)
    spaces.add("home", "nas", 8017, 0, 1.0)
    with pytest.raises(UsageError, match="already"):
        spaces.add("home", "nas", 8017, 0, 1.0)
    for wrong in (spaces.get, spaces.renew, spaces.remove):
        with pytest.raises(UsageError, match="relay list"):
            wrong("work")


@pytest.mark.parametrize("content", [b"", b"{", b'{"version": 2, "spaces": []}', b'{"version": 1}', b"\xff"])
def test_a_damaged_file_opens_nothing(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "spaces.json").write_bytes(content)
    with pytest.raises(HybrisError, match="damaged"):
        Spaces(tmp_path).opened("home", "token")


def test_the_certificate_stays_the_same(tmp_path: Path) -> None:
    first, again = certificate(tmp_path), certificate(tmp_path)
    assert first == again
    ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(first.chain, first.key)
    first.chain.write_text("nonsense")
    with pytest.raises(HybrisError, match="is not a certificate"):
        certificate(tmp_path)
