"""The certificate of the server."""

from __future__ import annotations

import datetime
import stat
import subprocess
from pathlib import Path

import pytest

from hybrisfs.client import HybrisError
from serving.certificate import certificate, names_of_machine

NOW = datetime.datetime(2026, 11, 29, tzinfo=datetime.UTC)
NAMES = frozenset({"localhost", "box.local", "127.0.0.1", "::1", "192.0.2.7"})


def test_it_stays_until_it_ends_soon_or_lacks_a_name(tmp_path: Path) -> None:
    first = certificate(tmp_path, NAMES, NOW)
    assert first.is_new
    for path in (first.chain, first.key):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    key = first.key.read_bytes()
    later = certificate(tmp_path, NAMES - {"192.0.2.7"}, NOW + datetime.timedelta(days=600))
    assert (later.is_new, later.fingerprint) == (False, first.fingerprint)
    other = certificate(tmp_path, NAMES | {"192.0.2.8"}, NOW)
    assert (other.is_new, other.fingerprint != first.fingerprint) == (True, True)
    ends = certificate(tmp_path, NAMES, NOW + datetime.timedelta(days=720))
    assert ends.is_new
    assert first.key.read_bytes() == key


def test_openssl_finds_it_good_for_these_names_only(tmp_path: Path) -> None:
    made = certificate(tmp_path, NAMES, datetime.datetime.now(datetime.UTC))

    def verify(*words: str) -> bool:
        command = ["openssl", "verify", "-purpose", "sslserver", "-CAfile", str(made.chain), *words]
        return subprocess.run([*command, str(made.chain)], capture_output=True, check=False).returncode == 0

    assert verify("-verify_hostname", "box.local")
    assert verify("-verify_ip", "192.0.2.7")
    assert not verify("-verify_hostname", "bank.example")
    shown = subprocess.run(
        ["openssl", "x509", "-noout", "-fingerprint", "-sha256", "-in", str(made.chain)],
        capture_output=True,
        text=True,
        check=True,
    )
    assert shown.stdout.strip().lower() == f"sha256 fingerprint={made.fingerprint}".lower()


def test_who_steals_its_key_can_be_no_other_site(tmp_path: Path) -> None:
    """It is a CA for those who trust it, but for the names of this machine only."""
    made = certificate(tmp_path, NAMES, datetime.datetime.now(datetime.UTC))
    for name, code in (("bank.example", 2), ("box.local", 0)):
        leaf = tmp_path / name
        request = [
            "openssl",
            "req",
            "-x509",
            "-newkey",
            "rsa:2048",
            "-nodes",
            "-keyout",
            f"{leaf}.key",
            "-subj",
            f"/CN={name}",
        ]
        signed = [
            "-CA",
            str(made.chain),
            "-CAkey",
            str(made.key),
            "-addext",
            f"subjectAltName=DNS:{name}",
            "-addext",
            "basicConstraints=critical,CA:false",
            "-out",
            str(leaf),
        ]
        subprocess.run([*request, *signed], check=True, capture_output=True)
        verified = subprocess.run(
            ["openssl", "verify", "-CAfile", str(made.chain), str(leaf)],
            capture_output=True,
            text=True,
            check=False,
        )
        assert verified.returncode == code, verified.stderr
    assert (
        "permitted subtree violation"
        in subprocess.run(
            ["openssl", "verify", "-CAfile", str(made.chain), str(tmp_path / "bank.example")],
            capture_output=True,
            text=True,
            check=False,
        ).stderr
    )


def test_damaged_files(tmp_path: Path) -> None:
    first = certificate(tmp_path, NAMES, NOW)
    first.chain.write_text("nonsense")
    assert certificate(tmp_path, NAMES, NOW).is_new
    first.key.write_text("nonsense")
    with pytest.raises(HybrisError, match="is not a key"):
        certificate(tmp_path, NAMES, NOW)


def test_this_machine_has_names() -> None:
    assert {"localhost", "127.0.0.1", "::1"} <= names_of_machine()
