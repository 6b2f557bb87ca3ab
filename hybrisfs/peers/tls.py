"""TLS 1.3 between the members of a volume, both sides pinned to their device keys.

Every device makes two certificates. The *anchor* is the same on all members: a self-signed certificate whose
Ed25519 key is derived from the secret that they share. The *leaf* carries the device's own Ed25519 key and is
signed by the anchor. Both sides demand a leaf that the anchor signed, so a side that does not have the secret
fails within the handshake, in OpenSSL. TLS makes each side prove that it has the leaf's key (RFC 8446,
4.4.3). Then, and this alone decides, the leaf's key must be that of a member (`TlsIdentity.peer`): a removed
device may still have the secret.

Before any of this, and before a certificate is shown, the client must ask for a server name that only the
members can make. Nothing in a certificate's names or dates means anything; the
dates span all times, since clocks are set wrong. Sessions are not resumed: every connection proves itself.

The device key signs TLS transcripts here and updates in `sync`. A TLS transcript is signed behind 64 spaces
and a context string, a record of ours behind its magic bytes: neither passes for the other.
"""

from __future__ import annotations

import datetime
import hmac
import os
import ssl
import tempfile
from base64 import b32decode, b32encode
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from blake3 import blake3
from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
    PublicFormat,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from hybrisfs.peers import lines
from hybrisfs.peers.errors import StrangerError
from sync import VOLUME_ID_SIZE, DeviceKey, Members, device_id_of

__all__ = ["ALPN", "SECRET_SIZE", "TAG_SIZE", "PeerIdentity", "TlsIdentity"]

ALPN: Final = "hybrisfs/1"
_FROM: Final = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_UNTIL: Final = datetime.datetime(9999, 12, 31, 23, 59, 59, tzinfo=datetime.UTC)  # "none", RFC 5280 4.1.2.5
_LEAF_SERIAL_BYTES: Final = 16


class TlsIdentity:
    """The contexts with which this device listens and connects. Making one takes a few milliseconds."""

    def __init__(self, identity: PeerIdentity) -> None:
        self._identity = identity
        anchor_key = Ed25519PrivateKey.from_private_bytes(identity.derive("anchor"))
        device_key = Ed25519PrivateKey.from_private_bytes(identity.device.seed)
        anchor = _anchor(anchor_key)
        leaf = _leaf(anchor_key, device_key.public_key())
        self.server = _context(ssl.PROTOCOL_TLS_SERVER, anchor, leaf, device_key)
        self.server.sni_callback = self._refuse_strangers
        self.client = _context(ssl.PROTOCOL_TLS_CLIENT, anchor, leaf, device_key)

    def _refuse_strangers(self, tls: ssl.SSLObject, name: str | None, context: ssl.SSLContext) -> int | None:
        if name is None or not self._identity.knows(name):
            return ssl.ALERT_DESCRIPTION_UNRECOGNIZED_NAME
        return None

    def new_server_name(self) -> str:
        """What to ask a member's server for, once."""
        return self._identity.server_name()

    def tag(self, device: bytes) -> bytes:
        """By which relays know a device of the volume."""
        return self._identity.derive("relay tag", device, lines.TAG_SIZE)

    def peer(self, tls: ssl.SSLObject, members: Members) -> bytes:
        """The id of the member at the other end of a finished handshake. Raises `StrangerError`."""
        if tls.version() != "TLSv1.3" or tls.selected_alpn_protocol() != ALPN:
            raise StrangerError("the other side does not speak this protocol")
        certificate = tls.getpeercert(binary_form=True)
        if certificate is None:
            raise StrangerError("the other side showed no certificate")
        try:
            public = x509.load_der_x509_certificate(certificate).public_key()
        except (ValueError, UnsupportedAlgorithm) as error:
            raise StrangerError("the other side's certificate cannot be read") from error
        if not isinstance(public, Ed25519PublicKey):
            raise StrangerError("the other side's certificate has no machine key")
        key = public.public_bytes(Encoding.Raw, PublicFormat.Raw)
        device = device_id_of(key)
        if members.public_key(device) != key:
            raise StrangerError(f"machine {device.hex()} is not a member of this volume")
        return device


def _anchor(key: Ed25519PrivateKey) -> x509.Certificate:
    public = key.public_key()
    usage = x509.KeyUsage(False, False, False, False, False, True, True, False, False)
    return (
        x509.CertificateBuilder()
        .subject_name(_name("members"))
        .issuer_name(_name("members"))
        .public_key(public)
        .serial_number(1)
        .not_valid_before(_FROM)
        .not_valid_after(_UNTIL)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(usage, critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
        .sign(key, None)
    )


def _leaf(anchor: Ed25519PrivateKey, public: Ed25519PublicKey) -> x509.Certificate:
    usage = x509.KeyUsage(True, False, False, False, False, False, False, False, False)
    roles = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH])
    issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(anchor.public_key())
    return (
        x509.CertificateBuilder()
        .subject_name(_name("device"))
        .issuer_name(_name("members"))
        .public_key(public)
        .serial_number(int.from_bytes(os.urandom(_LEAF_SERIAL_BYTES), "big") | 1)
        .not_valid_before(_FROM)
        .not_valid_after(_UNTIL)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(usage, critical=True)
        .add_extension(roles, critical=False)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
        .add_extension(issuer, critical=False)
        .sign(anchor, None)
    )


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _context(
    protocol: int, anchor: x509.Certificate, leaf: x509.Certificate, key: Ed25519PrivateKey
) -> ssl.SSLContext:
    context = ssl.SSLContext(protocol)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.check_hostname = False
    context.verify_mode = ssl.CERT_REQUIRED
    context.verify_flags |= ssl.VerifyFlags.VERIFY_X509_STRICT
    context.load_verify_locations(cadata=anchor.public_bytes(Encoding.DER))
    context.set_alpn_protocols([ALPN])
    if protocol == ssl.PROTOCOL_TLS_SERVER:
        context.num_tickets = 0
    _load_key(context, leaf, key)
    return context


def _load_key(context: ssl.SSLContext, leaf: x509.Certificate, key: Ed25519PrivateKey) -> None:
    """The `ssl` module reads keys from files only: it gets one encrypted with a password nobody keeps."""
    password = os.urandom(32).hex().encode("ascii")
    sealed = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(password))
    descriptor, path = tempfile.mkstemp(prefix="hybrisfs-tls-")
    try:
        with open(descriptor, "wb") as file:
            file.write(leaf.public_bytes(Encoding.PEM) + sealed)
        context.load_cert_chain(path, password=password)
    finally:
        Path(path).unlink()


# -- what a device shows of itself and of the volume on the network -------------------------------------
# All names here are keyed with a secret that the members of the volume share:
#
#     server name   what a connecting device asks for in the clear first bytes of TLS: 12 random bytes and
#                   16 bytes keyed hash of them, in base32. Two connections have nothing in common.
#     volume tag,   8 bytes keyed hash of the day, and of the day and the device id: what is announced on the
#     device tag    local network. They change with the day, so that nobody is recognised for longer.


SECRET_SIZE: Final = 32
TAG_SIZE: Final = 8
_SALT_SIZE: Final = 12
_PROOF_SIZE: Final = 16


@dataclass(frozen=True, slots=True)
class PeerIdentity:
    """*volume* is the volume's id, *device* this device's key, *secret* 32 bytes that all members have.

    The secret keeps strangers from costing anything; who is let in is decided by the list of members. It
    therefore need not change when a device is removed: devices that have not heard of it yet still meet.
    """

    volume: bytes
    device: DeviceKey
    secret: bytes = field(repr=False)

    def __post_init__(self) -> None:
        if len(self.volume) != VOLUME_ID_SIZE or len(self.secret) != SECRET_SIZE:
            raise ValueError("a volume id or secret of the wrong length")

    def derive(self, purpose: str, data: bytes = b"", length: int = 32) -> bytes:
        """The keyed hash of *data* for *purpose*, a constant; different for every volume."""
        context = f"hybrisfs peers {purpose}\0".encode() + self.volume
        return blake3(context + data, key=self.secret).digest(length)

    def server_name(self) -> str:
        """A fresh name to ask for when connecting to a member."""
        salt = os.urandom(_SALT_SIZE)
        proof = self.derive("server name", salt, _PROOF_SIZE)
        return b32encode(salt + proof).decode("ascii").rstrip("=").lower()

    def knows(self, server_name: str) -> bool:
        """Whether the side that asks for *server_name* has the secret, or has overheard one that has."""
        padding = "=" * (-len(server_name) % 8)
        try:
            raw = b32decode(server_name.upper() + padding)
        except ValueError:
            return False
        salt, proof = raw[:_SALT_SIZE], raw[_SALT_SIZE:]
        return hmac.compare_digest(self.derive("server name", salt, _PROOF_SIZE), proof)

    def volume_tag(self, day: int) -> str:
        """16 hexadecimal digits for the volume on *day*, counted from 1970."""
        return self.derive("volume tag", day.to_bytes(8, "big", signed=True), TAG_SIZE).hex()

    def device_tag(self, device_id: bytes, day: int) -> str:
        """16 hexadecimal digits for a member on *day*."""
        return self.derive("device tag", day.to_bytes(8, "big", signed=True) + device_id, TAG_SIZE).hex()
