"""Files of the relay that only its user can read, and its certificate."""

from __future__ import annotations

import datetime
import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from hybrisfs.client import HybrisError
from hybrisfs.secret_file import write_secret

__all__ = ["Certificate", "alone", "certificate"]

_FROM: Final = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_UNTIL: Final = datetime.datetime(9999, 12, 31, 23, 59, 59, tzinfo=datetime.UTC)  # "none", RFC 5280 4.1.2.5


class Certificate(NamedTuple):
    """Where certificate and key are, and the SHA-256 hash by which devices know the certificate."""

    chain: Path
    key: Path
    pin: bytes


def certificate(folder: Path) -> Certificate:
    """The certificate of a relay, made if it is not there. It never changes, as devices know it by its hash:
    names and dates in it mean nothing. Raises HybrisError, OSError."""
    key_path, path = folder / "tls-key.pem", folder / "tls-certificate.pem"
    with alone(folder):
        if not path.exists():
            _make(key_path, path)
    try:
        found = x509.load_pem_x509_certificate(path.read_bytes())
    except ValueError as error:
        raise HybrisError(
            f"{path} is not a certificate",
            str(error),
            "Bring it back from a backup. If you remove it, another is made, and machines need new codes.",
        ) from error
    return Certificate(path, key_path, found.fingerprint(hashes.SHA256()))


def _make(key_path: Path, path: Path) -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    plain = serialization.NoEncryption()
    write_secret(
        key_path, key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, plain)
    )
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "HybrisFS relay")])
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(_FROM)
        .not_valid_after(_UNTIL)
        .sign(key, hashes.SHA256())
    )
    write_secret(path, made.public_bytes(serialization.Encoding.PEM))


@contextmanager
def alone(folder: Path) -> Iterator[None]:
    """No other process changes the files of the relay in this context. Makes the folder. Raises OSError."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    path = folder / "change.lock"
    with open(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)) as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
