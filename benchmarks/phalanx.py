"""Phalanx, a protocol with signatures, over clouds that run no code, to measure beside ours (PoWerStore 6).

It is ABD with values that verify themselves: 3t+1 clouds keep whole copies, each signed with the time of its
version. A write lists the names on a quorum of 2t+1 and puts the signed value on a quorum. A read lists the
names on a quorum, gets the latest value from one cloud, looks at its signature, and puts it back on a quorum,
whatever it has seen of it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from blake3 import blake3
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from msgspec.structs import replace

from hybrisfs.kv.cloud_objects import ObjectCodec
from hybrisfs.quorums.names import Version
from hybrisfs.quorums.register import Draft, Found, Lists, Part, Register
from hybrisfs.quorums.rounds import Ask, Protocol, Round, need
from sync.codec import Buffer

__all__ = ["FullWriteBack", "Phalanx", "SignedCodec"]

_SIZE: Final = 64  # bytes of a signature


class FullWriteBack(Register):
    """ABD: a reader puts the value back on all clouds, whatever it has seen of it."""

    def complete(self, lists: Lists, part: Part) -> Protocol[Found | None]:
        version = self.latest(lists)
        if version is None:
            return None
        found = yield self._fetch(lists, version, part)
        parts = {cloud: answer.data for cloud, answer in found[0].items()}
        (whole,) = list(parts.values())[:1]
        back = Ask(puts=((self.names.of_version(version), whole),))
        yield [Round(dict.fromkeys(self.clouds, back), need(self.thresholds.quorum))]
        return Found(version, parts, is_only=True)


class Phalanx(FullWriteBack):
    """The same with signatures, for which see the codec."""

    def latest(self, lists: Lists) -> Version | None:
        """What one cloud has is enough: a cloud cannot sign."""
        return max(lists.holders, key=lambda one: (one.time, one.write), default=None)

    def objects(self, version: Version, draft: Draft) -> dict[int, Ask]:
        assert isinstance(self.codec, SignedCodec)
        signed = self.codec.signed(version, draft.objects(self.clouds[0]))
        ask = Ask(puts=((self.names.of_version(version), signed),))
        return dict.fromkeys(self.clouds, ask)


class SignedCodec:
    """Objects with a signature before them, made of those of *codec*."""

    def __init__(self, codec: ObjectCodec) -> None:
        self._codec = codec
        self._key = Ed25519PrivateKey.generate()
        self._public = self._key.public_key()

    def draft(self, key: str, value: bytes, clouds: range) -> Draft:
        """A version with this value, whole on each cloud."""
        draft = self._codec.draft(key, value, b"", 0, 1, clouds)
        return replace(draft, size=_SIZE + draft.size)

    def signed(self, version: Version, data: Buffer) -> bytes:
        """The object of every cloud."""
        return self._key.sign(_statement(version, data)) + bytes(data)

    def is_right(self, version: Version, cloud: int, data: bytes) -> bool:
        """See `Codec`."""
        try:
            self._public.verify(data[:_SIZE], _statement(version, memoryview(data)[_SIZE:]))
        except InvalidSignature:
            return False
        return self._codec.is_right(_inner(version), cloud, data[_SIZE:])

    def rebuild(self, version: Version, parts: Mapping[int, bytes]) -> Callable[[int], Buffer]:
        """See `Codec`."""
        whole = next(iter(parts.values()))
        return lambda _: whole

    def marker(self) -> Draft:
        """See `Codec`."""
        return self._codec.marker()

    def value(self, version: Version, parts: Mapping[int, bytes]) -> bytes:
        """The value, of an object that is right."""
        inner = {cloud: data[_SIZE:] for cloud, data in parts.items()}
        return self._codec.value(_inner(version), inner)[0]


def _inner(version: Version) -> Version:
    """The same version without a signature."""
    return version._replace(size=version.size - _SIZE)


def _statement(version: Version, data: Buffer) -> bytes:
    """What is signed."""
    return repr((version.time, version.write)).encode() + blake3(data).digest()
