r"""The objects of a value in a container on the clouds, one for each cloud.

    object
    1       format (1)
    2       size of the metadata in bytes, as encoded below
    2       size of the sealed metadata in bytes
    ...     the metadata, sealed (`kv.seal`)
    ...     the share of this cloud; none when the value is in the metadata, or the key was deleted

    metadata
    1       format (1)
    varint  when it was written: milliseconds since the epoch, by the clock of the machine that wrote it
    blob    the key
    1       0: the key was deleted, and this is all; 1: the value is here; 2: it is in shares
    blob    attributes: what else the writer says of the value
    blob    the value; kind 1 only
    varint  size of the value in bytes        \
    varint  size of the sealed value in bytes  |
    1       n: the number of shares            | kind 2 only
    varint  n times: the cloud of share i      |
    16      n times: keyed hash of share i    /

The name of the object has a keyed hash of all before the share, and says how many shares give the value
(`quorums.names`). So each part is proven before it is used.
"""

from __future__ import annotations

import struct
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple

from hybrisfs.dispersal.erasure import MAX_FRAGMENTS, fragment_length, join, split
from hybrisfs.dispersal.errors import IntegrityError
from hybrisfs.environment import Environment
from hybrisfs.kv.record import MAX_KEY, MAX_VALUE
from hybrisfs.kv.seal import SEAL_OVERHEAD, ValueSealer
from hybrisfs.quorums.names import NONCE_SIZE, VERIFIER_SIZE, Names, Version
from hybrisfs.quorums.register import METADATA_SIZE, Draft
from hybrisfs.registers.entries import MAX_ATTRIBUTES
from sync.codec import Buffer, DecodeError, Reader, Writer

__all__ = ["Metadata", "ObjectCodec", "Shares"]

_FORMAT: Final = 1
_HEAD: Final = struct.Struct(">BHH")
_DELETED: Final = 0
_HERE: Final = 1
_SHARED: Final = 2
_SMALL: Final = 4096  # bytes; values up to that are in the metadata
_MOST_KNOWN: Final = 20_000
_MOST_CLOUD: Final = 1 << 16
_MOST_TIME: Final = (1 << 63) - 1


class Shares(NamedTuple):
    """How a value is dispersed: `clouds[i]` has share i."""

    size: int
    sealed: int
    clouds: tuple[int, ...]
    checksums: tuple[bytes, ...]


class Metadata(NamedTuple):
    """What the objects of a version say of it."""

    written: int
    key: str
    attributes: bytes = b""
    value: bytes | None = None
    """If it is here."""
    shares: Shares | None = None
    """If it is not; neither: the key was deleted."""

    @property
    def size(self) -> int:
        """Of the value, in bytes."""
        return len(self.value or b"") if self.shares is None else self.shares.size

    def encode(self) -> bytes:
        out = Writer().u8(_FORMAT).varint(self.written).blob(self.key.encode())
        if self.shares is not None:
            shares = self.shares
            out.u8(_SHARED).blob(self.attributes).varint(shares.size).varint(shares.sealed)
            out.u8(len(shares.clouds))
            for cloud in shares.clouds:
                out.varint(cloud)
            for checksum in shares.checksums:
                out.raw(checksum)
        elif self.value is not None:
            out.u8(_HERE).blob(self.attributes).blob(self.value)
        else:
            out.u8(_DELETED)
        return out.getvalue()

    @staticmethod
    def decode(data: bytes) -> Metadata:
        """Raises DecodeError."""
        reader = Reader(data)
        if reader.u8() != _FORMAT:
            raise DecodeError("metadata of another format")
        written = reader.varint(_MOST_TIME)
        try:
            key = reader.blob(MAX_KEY).decode()
        except UnicodeDecodeError as error:
            raise DecodeError("a key that is not text") from error
        kind = reader.u8()
        if kind not in (_DELETED, _HERE, _SHARED):
            raise DecodeError(f"a value of unknown kind {kind}")
        found = Metadata(written, key)
        if kind != _DELETED:
            found = found._replace(attributes=reader.blob(MAX_ATTRIBUTES))
        if kind == _HERE:
            found = found._replace(value=reader.blob(_SMALL))
        elif kind == _SHARED:
            size, sealed, n = reader.varint(MAX_VALUE), reader.varint(MAX_VALUE + SEAL_OVERHEAD), reader.u8()
            if not 1 <= n <= MAX_FRAGMENTS:
                raise DecodeError(f"a value in {n} shares")
            clouds = tuple(reader.varint(_MOST_CLOUD) for _ in range(n))
            checksums = tuple(reader.raw(VERIFIER_SIZE) for _ in range(n))
            found = found._replace(shares=Shares(size, sealed, clouds, checksums))
        reader.end()
        return found


class ObjectCodec:
    """Makes objects of values and values of objects, see `quorums.register.Codec`. Thread-safe."""

    def __init__(self, names: Names, sealer: ValueSealer, environment: Environment) -> None:
        self._names = names
        self._sealer = sealer
        self._random_bytes = environment.random_bytes
        self._lock = threading.Lock()
        self._known: OrderedDict[Version, Metadata] = OrderedDict()  # versions never change

    def draft(
        self,
        key: str,
        value: bytes | None,
        attributes: bytes,
        written: int,
        k: int,
        clouds: Sequence[int],
    ) -> Draft:
        """A version with this value, None for a deletion, of which *k* of the *clouds* give the shares."""
        write = int.from_bytes(self._random_bytes(8)) >> 1
        metadata, shares = Metadata(written, key), dict.fromkeys(clouds, memoryview(b""))
        if value is None:
            k = 0
        elif len(value) <= _SMALL:
            k, metadata = 1, metadata._replace(attributes=attributes, value=value)
        else:
            sealed = self._sealer.seal(write, value)
            pieces = split(k, len(clouds), sealed)
            checksums = tuple(map(self._names.checksum, pieces))
            shares = {cloud: memoryview(piece) for cloud, piece in zip(clouds, pieces, strict=True)}
            metadata = metadata._replace(
                attributes=attributes, shares=Shares(len(value), len(sealed), tuple(clouds), checksums)
            )
        encoded = metadata.encode()
        sealed_metadata = self._sealer.seal(write, encoded)
        head = _HEAD.pack(_FORMAT, len(encoded), len(sealed_metadata)) + sealed_metadata
        return Draft(
            write=write,
            k=k,
            size=len(head) + len(shares[clouds[0]]),
            verifier=self._names.verifier(head),
            nonce=self._random_bytes(NONCE_SIZE),
            objects=lambda cloud: b"".join((head, shares[cloud])),
        )

    def marker(self) -> Draft:
        """See `Codec`."""
        write = int.from_bytes(self._random_bytes(8)) >> 1
        return Draft(write, 0, 0, bytes(VERIFIER_SIZE), self._random_bytes(NONCE_SIZE), lambda _cloud: b"")

    def is_right(self, version: Version, cloud: int, data: bytes) -> bool:
        """See `Codec`. Raises IntegrityError when this device has not the key that opens it."""
        head = self._head(version, data)
        if head is None:
            return False
        if len(data) < version.size:
            return len(data) == min(version.size, METADATA_SIZE)
        shares, share = self.metadata(version, data).shares, data[len(head) :]
        if shares is None:
            return not share
        return cloud in shares.clouds and (
            self._names.checksum(share) == shares.checksums[shares.clouds.index(cloud)]
        )

    def metadata(self, version: Version, data: bytes) -> Metadata:
        """What an object, or its beginning, says. Raises IntegrityError."""
        with self._lock:
            known = self._known.get(version)
        if known is not None:
            return known
        head = self._head(version, data)
        if head is None:
            raise IntegrityError("it is not the object that was written")
        _, size, _ = _HEAD.unpack_from(head)
        try:
            found = Metadata.decode(self._sealer.open(version.write, head[_HEAD.size :], size))
        except DecodeError as error:
            raise IntegrityError(str(error)) from error
        live = found.value is not None or found.shares is not None
        if live != version.live or (found.shares is not None and version.k > len(found.shares.clouds)):
            raise IntegrityError("it says something else than its name")
        with self._lock:
            self._known[version] = found
            if len(self._known) > _MOST_KNOWN:
                self._known.popitem(last=False)
        return found

    def known(self, version: Version) -> Metadata | None:
        """What its objects say, if one was seen lately."""
        with self._lock:
            return self._known.get(version)

    def value(self, version: Version, parts: Mapping[int, bytes]) -> tuple[bytes, Metadata]:
        """The value, from enough objects that are right. Raises IntegrityError."""
        metadata = self.metadata(version, next(iter(parts.values())))
        if metadata.shares is None:
            return metadata.value or b"", metadata
        sealed = self._sealed(version, metadata.shares, parts)
        return self._sealer.open(version.write, sealed, metadata.shares.size), metadata

    def _sealed(self, version: Version, shares: Shares, parts: Mapping[int, bytes]) -> Buffer:
        length = fragment_length(version.k, shares.sealed)
        pieces: dict[int, Buffer] = {
            shares.clouds.index(cloud): memoryview(data)[len(data) - length :]
            for cloud, data in parts.items()
        }
        try:
            sealed = join(version.k, len(shares.clouds), pieces, shares.sealed)
        except ValueError as error:
            raise IntegrityError(str(error)) from error
        pieces = dict(enumerate(split(version.k, len(shares.clouds), sealed)))
        if tuple(map(self._names.checksum, pieces.values())) != shares.checksums:
            # Otherwise other shares might give another value: validated cross checksum, PASIS 4.2.3.
            raise IntegrityError("its writer has not made its shares of one value")
        return sealed

    def rebuild(self, version: Version, parts: Mapping[int, bytes]) -> Callable[[int], Buffer]:
        """See `Codec`. Raises IntegrityError."""
        first = next(iter(parts.values()))
        shares = self.metadata(version, first).shares
        head = self._head(version, first) or b""
        if shares is None:
            return lambda _: head
        pieces = split(version.k, len(shares.clouds), self._sealed(version, shares, parts))
        return lambda cloud: b"".join((head, pieces[shares.clouds.index(cloud)]))

    def _head(self, version: Version, data: bytes) -> bytes | None:
        """All before the share, if it is what was written."""
        if len(data) < _HEAD.size:
            return None
        format_, _, sealed = _HEAD.unpack_from(data)
        head = data[: _HEAD.size + sealed]
        is_right = format_ == _FORMAT and self._names.verifier(head) == version.verifier
        return head if is_right else None
