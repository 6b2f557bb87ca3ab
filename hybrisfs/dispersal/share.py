"""The share object: what one cloud holds of a pack (PASIS 4.2 cross checksum, Pond self-verifying fragments).

    share object
    offset  size  field
    0       8     magic "hfsshare"
    8       2     format version, u16 (2)
    10      1     share index, u8: which fragment of every chunk this is; 0 when k = 1, where all are equal
    11      1     k, u8: fragments needed to rebuild a chunk
    12      1     n, u8: fragments written
    13      4     length T of the sealed table, u32
    17      T     sealed table, the same bytes in every share of the pack
    17+T    ...   fragment of chunk 0, fragment of chunk 1, ... each ceil(sealed length / k) bytes

    sealed table
    0       4     epoch: whose table key seals it
    4       32    synthetic IV: BLAKE3 of the table, keyed
    36      T-52  table, encrypted with AES-256-GCM under a key and nonce derived from the IV
    T-16    16    GCM tag

    table
    0       4     number of chunks, u32 (1 to 65,536)
    4       ...   per chunk: chunk id (32), plaintext length u32, sealed length u32,
                  fragment hashes: BLAKE3 (32) of each fragment, one when k = 1 and n otherwise
    ...     ...   zeros up to a multiple of 1,024 bytes, so that the size tells little about the count

    pack id = BLAKE3("hybrisfs pack" | k | n | sealed table)

All integers are big-endian. The pack id covers the table, and the table covers every fragment: with
the id and the key, any share can be checked; with the key alone, a share says again what the database knew
about the pack.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from blake3 import blake3
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from msgspec import Struct

from hybrisfs.dispersal.erasure import MAX_FRAGMENTS, fragment_length
from hybrisfs.dispersal.errors import IntegrityError, NewerVersionError, UnreadableHereError
from hybrisfs.dispersal.seal import CHUNK_ID_SIZE, KEY_SIZE, MAX_CHUNK, MAX_SEALED, SEAL_OVERHEAD
from sync import EPOCH_SIZE, SealKeys
from sync.codec import Buffer

__all__ = [
    "INDEX_OFFSET",
    "MAX_CHUNKS",
    "MAX_PACK",
    "MAX_SHARE",
    "MAX_TABLE",
    "PREFIX_SIZE",
    "Prefix",
    "Table",
    "TableEntry",
    "TableSealer",
    "encode_header",
    "hash_fragment",
    "pack_id_of",
    "parse_header",
    "parse_prefix",
    "parse_share_name",
    "sealed_table_size",
    "share_name",
    "verify_share",
]

MAX_PACK = 16 << 20  # bytes of sealed chunks
MAX_CHUNKS = 65_536
MAX_TABLE = 16 << 20  # bytes of a sealed table

_MAGIC = b"hfsshare"
_VERSION = 2
_PREFIX = struct.Struct(">8sHBBBI")
PREFIX_SIZE = _PREFIX.size
INDEX_OFFSET = 10
_COUNT = struct.Struct(">I")
_ENTRY = struct.Struct(f">{CHUNK_ID_SIZE}sII")
_HASH_SIZE = 32
_IV_SIZE = 32
_TABLE = EPOCH_SIZE + _IV_SIZE
_TAG_SIZE = 16
_PAD = 1024
# A fragment may be padded by less than k bytes per chunk.
MAX_SHARE = PREFIX_SIZE + MAX_TABLE + MAX_PACK + MAX_CHUNKS

_SHARE_NAME = re.compile(r"packs/([0-9a-f]{2})/(\1[0-9a-f]{62})\.(0|[1-9][0-9]?)")


def share_name(pack_id: bytes, index: int) -> str:
    """Return the object name of the share at position `index` of a placement.

    The position is part of the name: a put that was given up but still reaches the cloud later can then
    never replace another share of the same pack there.
    """
    digits = pack_id.hex()
    return f"packs/{digits[:2]}/{digits}.{index}"


def parse_share_name(name: str) -> tuple[bytes, int] | None:
    """Return (pack id, position) of an object name, or None when it names no share."""
    match = _SHARE_NAME.fullmatch(name)
    if match is None or int(match[3]) >= MAX_FRAGMENTS:
        return None
    return bytes.fromhex(match[2]), int(match[3])


class TableEntry(NamedTuple):
    """One chunk of a pack. `offset` is where its fragment begins in each share object."""

    chunk_id: bytes
    length: int
    offset: int
    sealed_length: int
    hashes: bytes


class Table(Struct, frozen=True):
    """What a pack holds, as proven by its pack id. `share_size` is the size of each share object."""

    pack_id: bytes
    k: int
    n: int
    share_size: int
    entries: Sequence[TableEntry]

    def fragment_hash(self, entry: TableEntry, index: int) -> bytes:
        """Return the hash that fragment `index` of a chunk must have."""
        at = 0 if self.k == 1 else index * _HASH_SIZE
        return entry.hashes[at : at + _HASH_SIZE]


class Prefix(NamedTuple):
    """The clear part of a share; nothing of it is proven before the table is."""

    position: int
    k: int
    n: int
    table_size: int


def hash_fragment(fragment: Buffer) -> bytes:
    """Return the 32-byte hash by which a table knows a fragment."""
    return blake3(fragment).digest()


def pack_id_of(k: int, n: int, sealed_table: Buffer) -> bytes:
    """Return the 32-byte name of the pack with this code and table."""
    return blake3(b"hybrisfs pack%c%c" % (k, n)).update(sealed_table).digest()


class TableSealer:
    """Encrypts tables with the volume's table keys. Within an epoch equal tables seal to equal bytes."""

    def __init__(self, table_keys: SealKeys) -> None:
        self._keys = table_keys

    def seal(self, table: Buffer) -> bytes:
        """Return the sealed table."""
        newest = self._keys.newest()
        iv_key, cipher_key = _table_keys(newest.key)
        iv = blake3(table, key=iv_key).digest(_IV_SIZE)
        cipher, nonce = _table_cipher(cipher_key, iv)
        return newest.epoch + iv + cipher.encrypt(nonce, table, None)

    def open(self, sealed: Buffer) -> bytes:
        """Return the table; raises IntegrityError when it was not sealed with these keys."""
        view = memoryview(sealed)
        key = self._keys.find(bytes(view[:EPOCH_SIZE]))
        if key is None:
            raise UnreadableHereError("share table is sealed with a key that this machine was not given")
        cipher, nonce = _table_cipher(_table_keys(key)[1], view[EPOCH_SIZE:_TABLE])
        try:
            return cipher.decrypt(nonce, view[_TABLE:], None)
        except InvalidTag:
            raise IntegrityError("share table does not decrypt: altered, or of another volume") from None


def _table_keys(table_key: bytes) -> tuple[bytes, bytes]:
    """The key of the IV, and that of the cipher."""
    material = blake3(b"hybrisfs sealed table", key=table_key).digest(2 * KEY_SIZE)
    return material[:KEY_SIZE], material[KEY_SIZE:]


def _table_cipher(key: bytes, iv: Buffer) -> tuple[AESGCM, bytes]:
    material = blake3(iv, key=key).digest(KEY_SIZE + 12)
    return AESGCM(material[:KEY_SIZE]), material[KEY_SIZE:]


def _hashes_size(k: int, n: int) -> int:
    return _HASH_SIZE if k == 1 else n * _HASH_SIZE


def _padded_table_size(count: int, k: int, n: int) -> int:
    size = _COUNT.size + count * (_ENTRY.size + _hashes_size(k, n))
    return -(-size // _PAD) * _PAD


def sealed_table_size(count: int, k: int, n: int) -> int:
    """Return the bytes of the sealed table of a pack of `count` chunks."""
    return _TABLE + _padded_table_size(count, k, n) + _TAG_SIZE


def encode_header(
    tables: TableSealer, k: int, n: int, chunks: Iterable[tuple[bytes, int, int, bytes]]
) -> tuple[bytes, bytes]:
    """Return (pack id, header of share 0) for chunks of (id, length, sealed length, fragment hashes).

    The headers of the other shares differ in the byte at `INDEX_OFFSET` only.
    """
    rows = [_ENTRY.pack(chunk_id, length, sealed) + hashes for chunk_id, length, sealed, hashes in chunks]
    table = (_COUNT.pack(len(rows)) + b"".join(rows)).ljust(_padded_table_size(len(rows), k, n), b"\0")
    sealed_table = tables.seal(table)
    if len(sealed_table) > MAX_TABLE:
        raise ValueError(f"a table of {len(sealed_table)} bytes is above the limit of {MAX_TABLE}")
    prefix = _PREFIX.pack(_MAGIC, _VERSION, 0, k, n, len(sealed_table))
    return pack_id_of(k, n, sealed_table), prefix + sealed_table


def parse_prefix(data: Buffer) -> Prefix:
    """Read the first PREFIX_SIZE bytes of a share. Raises IntegrityError or NewerVersionError."""
    if len(data) < PREFIX_SIZE:
        raise IntegrityError(f"share ends after {len(data)} bytes")
    magic, version, index, k, n, table_size = _PREFIX.unpack_from(data)
    if magic != _MAGIC:
        raise IntegrityError("not a share: wrong magic bytes")
    if version != _VERSION:
        raise NewerVersionError(
            f"share has format version {version}, this program reads {_VERSION}: update it"
        )
    if not 1 <= k <= n <= MAX_FRAGMENTS or index >= n or (k == 1 and index):
        raise IntegrityError(f"share claims index {index} of an impossible {k}-of-{n} code")
    if not sealed_table_size(1, k, n) <= table_size <= MAX_TABLE:
        raise IntegrityError(f"share claims a table of {table_size} bytes")
    return Prefix(index, k, n, table_size)


def parse_header(data: Buffer, tables: TableSealer, pack_id: bytes | None = None) -> tuple[Prefix, Table]:
    """Read and prove the header at the start of `data`.

    With `pack_id` the header must be the one of that pack. Raises IntegrityError or NewerVersionError.
    """
    prefix = parse_prefix(data)
    end = PREFIX_SIZE + prefix.table_size
    if len(data) < end:
        raise IntegrityError(f"share ends inside its table, after {len(data)} bytes")
    sealed_table = memoryview(data)[PREFIX_SIZE:end]
    found = pack_id_of(prefix.k, prefix.n, sealed_table)
    if pack_id is not None and found != pack_id:
        raise IntegrityError(f"share belongs to pack {found.hex()[:16]}, not {pack_id.hex()[:16]}")
    entries, share_size = _decode_table(tables.open(sealed_table), prefix.k, prefix.n, end)
    return prefix, Table(found, prefix.k, prefix.n, share_size, entries)


def _decode_table(table: bytes, k: int, n: int, offset: int) -> tuple[list[TableEntry], int]:
    if len(table) < _COUNT.size:
        raise IntegrityError("share table has no chunk count")
    count = _COUNT.unpack_from(table)[0]
    if not 1 <= count <= MAX_CHUNKS or len(table) != _padded_table_size(count, k, n):
        raise IntegrityError(f"share table of {len(table)} bytes cannot list {count} chunks")
    hashes_size = _hashes_size(k, n)
    entries = []
    at = _COUNT.size
    total = 0
    for _ in range(count):
        chunk_id, length, sealed = _ENTRY.unpack_from(table, at)
        at += _ENTRY.size
        if not 0 < length <= MAX_CHUNK or not SEAL_OVERHEAD < sealed <= MAX_SEALED:
            raise IntegrityError(f"share table lists a chunk of {length} bytes sealed to {sealed}")
        entries.append(TableEntry(chunk_id, length, offset, sealed, table[at : at + hashes_size]))
        at += hashes_size
        total += sealed
        offset += fragment_length(k, sealed)
    if total > MAX_PACK or any(table[at:]):
        raise IntegrityError("share table is too large or not padded with zeros")
    return entries, offset


def verify_share(data: Buffer, pack_id: bytes, index: int, tables: TableSealer) -> list[str]:
    """Return what is wrong with a whole object that should be share `index` of a pack; [] if nothing."""
    try:
        prefix, table = parse_header(data, tables, pack_id)
    except IntegrityError as error:
        return [str(error)]
    if table.k > 1 and prefix.position != index:
        return [f"it is share {prefix.position}, not share {index}"]
    if len(data) != table.share_size:
        return [f"it has {len(data)} bytes instead of {table.share_size}"]
    problems = []
    view = memoryview(data)
    for number, entry in enumerate(table.entries):
        fragment = view[entry.offset : entry.offset + fragment_length(table.k, entry.sealed_length)]
        if hash_fragment(fragment) != table.fragment_hash(entry, index):
            problems.append(f"fragment of chunk {number} ({entry.chunk_id.hex()[:16]}) is altered")
    return problems
