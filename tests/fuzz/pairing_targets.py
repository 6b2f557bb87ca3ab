"""Targets of pairing: codes, and what two devices say to each other that do not know each other yet."""

from __future__ import annotations

import base64
import zlib
from collections.abc import Callable
from typing import Final

from hybrisfs.keys import SharedKeys
from hybrisfs.members.epochs import write_epochs
from hybrisfs.pairing.code import PairingCode
from hybrisfs.pairing.errors import CodeError, PairingError
from hybrisfs.pairing.handshake import Handshake, Kind
from hybrisfs.pairing.messages import Grant, Offer, Peer, Reveal
from hybrisfs.pairing.protocol import Inviter, Joiner
from sync.codec import Reader, Writer, digest
from tests.fuzz.target import Target, decoder, text
from tests.pairing.support import (
    CODE,
    GRANT,
    INVITER,
    JOINER,
    NOW,
    answer,
    granted,
    introduced,
    inviter,
    joiner,
    seeded,
)

__all__ = ["TARGETS"]

_PREFIX: Final = "hfs1-"
_CHECKSUM_SIZE: Final = 4
_CHECKSUM_CONTEXT: Final = "hybrisfs.pairing 2026-11 code checksum"
_TEXT: Final = CODE.encode()


# -- codes ---------------------------------------------------------------------------------------


def _body_of(code: str) -> bytes:
    digits = code.removeprefix(_PREFIX).upper()
    return base64.b32decode(digits + "=" * (-len(digits) % 8))[:-_CHECKSUM_SIZE]


def _code(text: str) -> object:
    code = PairingCode.decode(text)
    try:
        again = code.encode()
    except (CodeError, ValueError):
        return code  # with a password in a URL, or a URL that is none: such codes are read, but not made
    assert PairingCode.decode(again) == code
    return code


def _below_the_checksum(body: bytes) -> object:
    checked = body + digest(_CHECKSUM_CONTEXT, body, _CHECKSUM_SIZE)
    return _code(_PREFIX + base64.b32encode(checked).decode().rstrip("=").lower())


def _below_the_packing(places: bytes) -> object:
    packer = zlib.compressobj(9, zlib.DEFLATED, -15)
    packed = packer.compress(places) + packer.flush()
    return _below_the_checksum(Writer().raw(CODE.secret).varint(CODE.expires).raw(packed).getvalue())


def _places() -> bytes:
    out = Writer().varint(len(CODE.clouds))
    for url in CODE.clouds:
        out.blob(url.encode())
    out.varint(len(CODE.addresses))
    for host, port in CODE.addresses:
        out.blob(host.encode()).u16(port)
    return out.getvalue()


# -- the two machines ----------------------------------------------------------------------------


def _said() -> list[bytes]:
    """What is said in a pairing that goes well: all messages, in order."""
    one, two = inviter(), joiner()
    hello = two.hello(NOW)
    offer = answer(one, hello)
    reveal = answer(two, offer)
    assert one.receive(reveal, NOW) is None
    grant = granted(one)
    assert two.receive(grant, NOW) is None
    return [hello, offer, reveal, grant, two.done()]


def _waiting() -> Inviter:
    return inviter()


def _answered() -> Inviter:
    one, two = inviter(), joiner()
    one.receive(two.hello(NOW), NOW)
    return one


def _granted() -> Inviter:
    one, _ = introduced()
    granted(one)
    return one


def _asking() -> Joiner:
    two = joiner()
    two.hello(NOW)
    return two


def _compared() -> Joiner:
    return introduced()[1]


def _hears(machine: Callable[[], Inviter | Joiner]) -> Callable[[bytes], object]:
    """Whatever bytes come."""
    return lambda data: machine().receive(data, NOW)


def _hears_sealed(machine: Callable[[], Inviter | Joiner], kind: Kind) -> Callable[[bytes], object]:
    """Whatever somebody says who knows the code, and what was said before."""

    def take(data: bytes) -> object:
        one = machine()
        handshake = one._handshake
        if kind is Kind.HELLO:
            handshake = Handshake(CODE.secret, seeded(9))
        return one.receive(handshake.seal(kind, data), NOW)

    return take


def _opened(machine: Callable[[], Inviter | Joiner], kind: Kind, message: bytes) -> bytes:
    one = machine()
    handshake = Handshake(CODE.secret, seeded(9)) if kind is Kind.HELLO else one._handshake
    return handshake.open(kind, message)


def _shared_keys(data: bytes) -> object:
    """The keys in a grant, with the rest as it should be."""
    whole = GRANT.encode()
    begin = Reader(whole)
    begin.raw(16)
    begin.blob(255)
    start = begin.position
    out = Writer().raw(GRANT.keys.dedup)
    end = start + len(_keys_of(GRANT.keys))
    assert whole[start:end].startswith(out.getvalue())
    return Grant.decode(whole[:start] + data + whole[end:])


def _keys_of(keys: SharedKeys) -> bytes:
    out = Writer().raw(keys.dedup)
    write_epochs(out, keys.epochs)
    return out.getvalue()


_HELLO, _OFFER, _REVEAL, _GRANT, _DONE = _said()
_PEER: Final = Peer(JOINER.public, "desktop")
_FAILED: Final = (PairingError,)
_OFFER_RECORD: Final = Offer(b"e" * 32, Peer(INVITER.public, "laptop"), GRANT.volume, GRANT.name)

TARGETS: Final[dict[str, Target]] = {
    "code": text(_code, [_TEXT, _TEXT.upper(), " ".join(_TEXT)], (CodeError,)),
    "code below the checksum": Target(_below_the_checksum, [_body_of(_TEXT)], (CodeError,)),
    "code below the packing": Target(_below_the_packing, [_places()], (CodeError,)),
    "grant": decoder(Grant.decode, [GRANT.encode()], Grant.encode),
    "keys in a grant": Target(_shared_keys, [_keys_of(GRANT.keys)]),
    "offer": decoder(Offer.decode, [_OFFER_RECORD.encode()], Offer.encode),
    "reveal": decoder(Reveal.decode, [Reveal(b"o" * 32, _PEER).encode()], Reveal.encode),
    "inviter, at first": Target(_hears(_waiting), [_HELLO], _FAILED),
    "inviter, after the offer": Target(_hears(_answered), [_REVEAL], _FAILED),
    "inviter, after the grant": Target(_hears(_granted), [_DONE], _FAILED),
    "inviter, a sealed hello": Target(
        _hears_sealed(_waiting, Kind.HELLO), [_opened(_waiting, Kind.HELLO, _HELLO)], _FAILED
    ),
    "inviter, a sealed reveal": Target(
        _hears_sealed(_answered, Kind.REVEAL), [_opened(_answered, Kind.REVEAL, _REVEAL)], _FAILED
    ),
    "joiner, after its hello": Target(_hears(_asking), [_OFFER], _FAILED),
    "joiner, after the comparison": Target(_hears(_compared), [_GRANT], _FAILED),
    "joiner, a sealed offer": Target(
        _hears_sealed(_asking, Kind.OFFER), [_opened(_asking, Kind.OFFER, _OFFER)], _FAILED
    ),
    "joiner, a sealed grant": Target(
        _hears_sealed(_compared, Kind.GRANT), [_opened(_compared, Kind.GRANT, _GRANT)], _FAILED
    ),
}
