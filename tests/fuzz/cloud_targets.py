"""Targets of objects on clouds, besides those of the log, and of what servers answer."""

from __future__ import annotations

import zlib
from typing import Final

import zstandard
from blake3 import blake3
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from backends.webdav_client import parse_multistatus
from hybrisfs.admit.kit import decode_kit, kit_name
from hybrisfs.clouds.signpost import decode_signpost, encode_signpost
from hybrisfs.dispersal.erasure import split
from hybrisfs.dispersal.errors import IntegrityError
from hybrisfs.dispersal.seal import Sealer
from hybrisfs.dispersal.share import (
    INDEX_OFFSET,
    PREFIX_SIZE,
    TableSealer,
    encode_header,
    hash_fragment,
    parse_header,
    parse_prefix,
    parse_share_name,
    share_name,
    verify_share,
)
from hybrisfs.kv.record import KeyMetadata
from hybrisfs.kv.repetition import MAX_WRITES, pack_writes, unpack_writes
from hybrisfs.kv.seal import ValueSealer, parse_value_name
from hybrisfs.merge.cloud_records import CloudRecord, cloud_key
from sync.codec import Reader
from sync.identity import SIGNATURE_SIZE
from sync.seal import NONCE_SIZE, open_sealed, seal
from tests.fuzz.target import Target, decoder, text
from tests.recovery.support import SECRET, kit
from tests.sync.support import BOX_KEY, KEYS, MEMBERS, NONCE, VOLUME

__all__ = ["TARGETS"]

_DEDUP: Final = b"n" * 32
_SEALER: Final = Sealer(BOX_KEY, _DEDUP)
_TABLES: Final = TableSealer(BOX_KEY)
_PLAIN: Final = (b"plain text " * 40, bytes(range(256)))
_SEALED_KEY: Final = b"v" * 32
_VALUES: Final = ValueSealer(_SEALED_KEY, b"s" * 16)


def _share(k: int, n: int, index: int) -> tuple[bytes, bytes]:
    """The id of a pack of two chunks, and one of its shares."""
    sealed = [_SEALER.seal(_SEALER.chunk_id(one), one) for one in _PLAIN]
    fragments = [[bytes(one) for one in split(k, n, chunk)] for chunk in sealed]
    rows = [
        (
            _SEALER.chunk_id(plain),
            len(plain),
            len(chunk),
            b"".join(map(hash_fragment, some[: 1 if k == 1 else n])),
        )
        for plain, chunk, some in zip(_PLAIN, sealed, fragments, strict=True)
    ]
    pack, header = encode_header(_TABLES, k, n, rows)
    position = 0 if k == 1 else index
    header = header[:INDEX_OFFSET] + bytes((position,)) + header[INDEX_OFFSET + 1 :]
    return pack, header + b"".join(some[index] for some in fragments)


_COPY: Final = _share(1, 2, 1)
_PIECE: Final = _share(2, 3, 2)


def _verify(pack: bytes, index: int) -> Target:
    share = (_COPY if pack == _COPY[0] else _PIECE)[1]

    def take(data: bytes) -> object:
        problems = verify_share(data, pack, index, _TABLES)
        if problems:
            raise IntegrityError(problems[0])
        assert data == share, "another object passes for this share"
        return problems

    return Target(take, [share], (IntegrityError,))


def _header(data: bytes) -> object:
    prefix, table = parse_header(data, _TABLES)
    assert (prefix.k, prefix.n) == (table.k, table.n)
    return table


def _table_behind_the_seal(table: bytes) -> object:
    """As a member may seal it."""
    sealed = _TABLES.seal(table)
    return _header(_PIECE[1][: PREFIX_SIZE - 4] + len(sealed).to_bytes(4, "big") + sealed)


def _table() -> bytes:
    size = parse_prefix(_PIECE[1]).table_size
    return _TABLES.open(_PIECE[1][PREFIX_SIZE : PREFIX_SIZE + size])


def _chunk(data: bytes) -> object:
    plain = _PLAIN[0]
    found = _SEALER.open(_SEALER.chunk_id(plain), data, len(plain))
    assert found == plain
    return found


def _chunk_body(data: bytes) -> object:
    """Anything under a valid seal, as a member may make it: first whether it is compressed."""
    plain, flags = _PLAIN[0], 2 | (0x80 if data[:1] > b"\x7f" else 0)
    chunk_id = _SEALER.chunk_id(plain)
    newest = BOX_KEY.newest()
    material = blake3(b"hybrisfs sealed chunk%c%b" % (flags, chunk_id), key=newest.key).digest(64)
    nonce = bytes(12)
    body = AESGCM(material[:32]).encrypt(nonce, data[1:], None)
    found = _SEALER.open(chunk_id, b"".join((bytes((flags,)), newest.epoch, nonce, body)), len(plain))
    assert found == plain
    return found


def _compressed(plain: bytes) -> bytes:
    return zstandard.ZstdCompressor(level=1, write_content_size=False).compress(plain)


def _value(data: bytes) -> object:
    found = _VALUES.open(7, data, len(_PLAIN[0]))
    assert found == _PLAIN[0]
    return found


_ENTRIES: Final = (
    KeyMetadata(3, 9),
    KeyMetadata(3, 9, 100, 90, 1, (0, 1), (b"c" * 16,)),
    KeyMetadata(4, 9, 100, 130, 2, (0, 1, 5), (b"c" * 16, b"d" * 16, b"e" * 16), 12),
)


def _repeated(data: bytes) -> None:
    """Behind a checksum that is right."""
    assert len(unpack_writes(zlib.crc32(data).to_bytes(4, "big") + data)) <= MAX_WRITES


def _kit(data: bytes) -> object:
    copy = decode_kit(data, kit_name(SECRET.kit))
    return copy.open(SECRET)


_CLOUDS: Final = [
    (cloud_key(0), CloudRecord("attic", "file:///mnt/a").encode()),
    (cloud_key(1), CloudRecord("far", "s3://bucket/x").encode()),
]
_SIGNPOST: Final = encode_signpost(_CLOUDS, VOLUME, BOX_KEY, KEYS[0], bytes(NONCE_SIZE))
_SIGNPOST_HEADER: Final = 6


def _signpost(data: bytes) -> object:
    return decode_signpost(data, VOLUME, BOX_KEY, MEMBERS)


def _signpost_behind_the_seal(signed: bytes) -> object:
    payload = signed + KEYS[0].sign(_SIGNPOST[:_SIGNPOST_HEADER] + VOLUME + signed)
    return _signpost(seal(_SIGNPOST[:_SIGNPOST_HEADER], VOLUME, payload, BOX_KEY, NONCE))


def _signpost_payload() -> bytes:
    header, rest = _SIGNPOST[:_SIGNPOST_HEADER], _SIGNPOST[_SIGNPOST_HEADER:]
    return open_sealed(Reader(rest), header, VOLUME, BOX_KEY)[:-SIGNATURE_SIZE]


_MULTISTATUS: Final = b"""<?xml version="1.0" encoding="utf-8"?>
<D:multistatus xmlns:D="DAV:"><D:response><D:href>/dav/folder/</D:href><D:propstat><D:prop>
<D:resourcetype><D:collection/></D:resourcetype></D:prop><D:status>HTTP/1.1 200 OK</D:status></D:propstat>
</D:response><D:response><D:href>/dav/folder/file%20name</D:href><D:propstat><D:prop>
<D:getcontentlength>42</D:getcontentlength>
<D:getlastmodified>Mon, 01 Jan 2024 00:00:00 GMT</D:getlastmodified>
<D:resourcetype/></D:prop><D:status>HTTP/1.1 200 OK</D:status></D:propstat></D:response></D:multistatus>
"""


def _multistatus(data: bytes) -> object:
    found = parse_multistatus(data[at : at + 7] for at in range(0, len(data), 7))
    assert found == parse_multistatus([data])
    return found


def _share_name(name: str) -> object:
    found = parse_share_name(name)
    assert found is None or share_name(*found) == name
    return found


TARGETS: Final[dict[str, Target]] = {
    "share, a copy": _verify(_COPY[0], 1),
    "share, a piece": _verify(_PIECE[0], 2),
    "share header": Target(_header, [_COPY[1], _PIECE[1]], (IntegrityError,)),
    "table behind the seal": Target(_table_behind_the_seal, [_table()], (IntegrityError, ValueError)),
    "sealed chunk": Target(_chunk, [_SEALER.seal(_SEALER.chunk_id(_PLAIN[0]), _PLAIN[0])], (IntegrityError,)),
    "chunk behind the seal": Target(
        _chunk_body, [b"\0" + _PLAIN[0], b"\x80" + _compressed(_PLAIN[0])], (IntegrityError,)
    ),
    "sealed value": Target(_value, [_VALUES.seal(7, _PLAIN[0])], (IntegrityError,)),
    "record of a key": decoder(KeyMetadata.decode, [one.encode() for one in _ENTRIES], KeyMetadata.encode),
    "writes that are deleted again": Target(_repeated, [pack_writes([(7, 1), (8, 1), (99, 3)])[4:]]),
    "kit": Target(_kit, [kit()]),
    "signpost": Target(_signpost, [_SIGNPOST]),
    "signpost behind the seal": Target(_signpost_behind_the_seal, [_signpost_payload()]),
    "multistatus": Target(
        _multistatus,
        [_MULTISTATUS],
        (ValueError,),
        [b"<!DOCTYPE a [<!ENTITY b 'c'>]><a>&b;</a>", b"<?xml version='1.0' encoding='utg-8'?><a/>"],
    ),
    "share name": text(_share_name, [share_name(_COPY[0], 0), share_name(_COPY[0], 11)], ()),
    "value name": text(parse_value_name, ["kv/" + "0f" * 16 + "/" + "1e" * 16 + ".3"], ()),
}
