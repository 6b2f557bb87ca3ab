"""The certificate by which clients know the server: its own, for the names and addresses of this machine.

Key and certificate are in two files that only this user can read. The key stays; the certificate is made
again when it ends soon, or lacks a name or an address that this machine has now.
"""

from __future__ import annotations

import datetime
import ipaddress
import socket
from pathlib import Path
from typing import Final, NamedTuple, TypeAlias

import ifaddr
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from hybrisfs.client import HybrisError
from hybrisfs.secret_file import write_secret

__all__ = ["Certificate", "certificate", "names_of_machine"]

_Names: TypeAlias = frozenset[str]

_LASTS: Final = datetime.timedelta(days=800)  # Apple's systems take none for more than 825 days
_RENEWED: Final = datetime.timedelta(days=90)  # before the end
_PAST: Final = datetime.timedelta(days=1)  # clocks of clients are not always right
_MOST_NAMES: Final = 64


class Certificate(NamedTuple):
    """Where it is, how a person compares it, and whether it has just been made."""

    chain: Path
    key: Path
    fingerprint: str
    is_new: bool


def names_of_machine() -> _Names:
    """How others may call this machine: its name, also with `.local`, and its addresses."""
    name = socket.gethostname().partition(".")[0].lower()
    names = {"localhost", "127.0.0.1", "::1"}
    if name and name.isascii() and len(name) < 64:
        names |= {name, f"{name}.local"}
    for adapter in ifaddr.get_adapters():
        for one in adapter.ips:
            address = ipaddress.ip_address(one.ip if isinstance(one.ip, str) else one.ip[0])
            if not address.is_link_local:
                names.add(str(address))
    return frozenset(sorted(names)[:_MOST_NAMES])


def certificate(folder: Path, names: _Names, now: datetime.datetime) -> Certificate:
    """The certificate in a folder of this user only, made if need be. Raises HybrisError, OSError."""
    key_path, path = folder / "tls-key.pem", folder / "tls-certificate.pem"
    key = _key(key_path)
    found = _read(path)
    is_new = found is None or not _is_good(found, key, names, now)
    if is_new or found is None:
        found = _make(key, names, now)
        write_secret(path, found.public_bytes(serialization.Encoding.PEM))
    digest = found.fingerprint(hashes.SHA256()).hex().upper()
    fingerprint = ":".join(digest[start : start + 2] for start in range(0, len(digest), 2))
    return Certificate(path, key_path, fingerprint, is_new)


def _key(path: Path) -> ec.EllipticCurvePrivateKey:
    if not path.exists():
        made = ec.generate_private_key(ec.SECP256R1())
        write_secret(
            path,
            made.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.NoEncryption(),
            ),
        )
    try:
        found = serialization.load_pem_private_key(path.read_bytes(), None)
    except ValueError as error:
        raise HybrisError(
            f"{path} is not a key", str(error), "Remove it: the next start makes another one."
        ) from error
    if not isinstance(found, ec.EllipticCurvePrivateKey):
        raise HybrisError(
            f"{path} is another kind of key", "", "Remove it: the next start makes another one."
        )
    return found


def _read(path: Path) -> x509.Certificate | None:
    try:
        return x509.load_pem_x509_certificate(path.read_bytes())
    except (FileNotFoundError, ValueError):
        return None


def _is_good(
    found: x509.Certificate, key: ec.EllipticCurvePrivateKey, names: _Names, now: datetime.datetime
) -> bool:
    if found.public_key() != key.public_key() or found.not_valid_after_utc - now < _RENEWED:
        return False
    if found.not_valid_before_utc > now:
        return False
    said = found.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    known = {*said.get_values_for_type(x509.DNSName), *map(str, said.get_values_for_type(x509.IPAddress))}
    return names <= known


def _make(key: ec.EllipticCurvePrivateKey, names: _Names, now: datetime.datetime) -> x509.Certificate:
    who = x509.Name(
        [
            x509.NameAttribute(NameOID.COMMON_NAME, f"HybrisFS on {socket.gethostname()}"[:64]),
            x509.NameAttribute(NameOID.ORGANIZATION_NAME, "HybrisFS"),
        ]
    )
    usage = x509.KeyUsage(
        digital_signature=True,
        key_cert_sign=True,  # systems that let a person trust it want a CA
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        crl_sign=False,
        encipher_only=False,
        decipher_only=False,
    )
    return (
        x509.CertificateBuilder()
        .subject_name(who)
        .issuer_name(who)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _PAST)
        .not_valid_after(now + _LASTS)
        .add_extension(
            x509.SubjectAlternativeName([_general(name) for name in sorted(names)]), critical=False
        )
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_constraints(names), critical=True)
        .add_extension(usage, critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )


def _constraints(names: _Names) -> x509.NameConstraints:
    """Who trusts the certificate trusts it for this machine only, also when its key is stolen."""
    permitted: list[x509.GeneralName] = []
    for name in sorted(names):
        try:
            permitted.append(x509.IPAddress(ipaddress.ip_network(name)))
        except ValueError:
            permitted.append(x509.DNSName(name))
    return x509.NameConstraints(permitted, None)


def _general(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)
