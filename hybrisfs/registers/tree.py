"""The registers of the tree: their keys and the values that travel in updates.

A node's facets are registers (docs/internals/log-and-merge.md). Formats, with the codec's integers:

=========  ==============================================  ==================================================
register   key                                             value
=========  ==============================================  ==================================================
place      ``p`` node id (16), slot (varint)               parent id (16), name (blob <= 255), and, unless
                                                           both are void, flags (u8: 1 removed, 2 yields),
                                                           former (blob, 0 or 16)
attr       ``a`` node id (16)                              mode, uid, gid, rdev (varints), mtime (u64, two's
                                                           complement ns), target (blob <= 4095), count of
                                                           xattrs (varint), each name (blob), value (blob),
                                                           in ascending order of the names
content    ``c`` node id (16)                              size (varint), depth (u8), runs (see below)
pack       ``k`` pack id (32)                              k (u8), n (u8), cloud of each share (n x u8),
                                                           count (varint), each chunk id (32), offset,
                                                           sealed length, length (varints)
rewritten  ``w`` pack id (32)                              version u8 = 1, count (varint <= 64), ids of packs
=========  ==============================================  ==================================================

Content runs, up to the end of the value: length (varint), then 32 bytes of chunk id; a length whose
lowest bit is 1 is a hole and has no id. (The length is the number shifted right by one.) A run that shows
a chunk from byte *skip* on, which is at least 1, has a byte 0 and *skip* (varint) before it. With
depth 1 the runs name chunks that hold the runs themselves, in order; their lengths are the bytes
of the file that each covers, and none has a *skip*.

A node is removed by a place with `removed` 1, which still says where it was: if a device has edited it at the
same time, it stands there again. `former` is the directory that a directory was moved from. A place that
`yields` was written while another node had the name: it leaves the name to a place that does not.

A pack is rewritten by an update that names the packs that hold its chunks from then on, in their
registers, and names them in its `rewritten`.
"""

from __future__ import annotations

import stat
from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import Final, NamedTuple

from msgspec import Struct

from hybrisfs.kinds import (
    ASSIGNMENT,
    ATTRIBUTES,
    CONTENT,
    NODE,
    NODE_ID_SIZE,
    PACK,
    PLACE,
    REWRITTEN,
    Trait,
    having,
)
from sync.codec import DecodeError, Reader, Writer

__all__ = [
    "assignment_key",
    "MAX_FILE_SIZE",
    "MAX_NAME",
    "MAX_TARGET",
    "PLAIN_TAIL",
    "Attr",
    "Content",
    "PackRecord",
    "PackedChunk",
    "Place",
    "Rewritten",
    "Run",
    "attr_key",
    "beginning",
    "beginning_of",
    "content_key",
    "content_of",
    "decode_runs",
    "encode_runs",
    "is_of_tree",
    "is_one_chunk",
    "is_plain_place",
    "pack_key",
    "place_key",
    "plain_owner",
    "removed_place",
    "rewritten_key",
    "slot_of",
]

MAX_FILE_SIZE: Final = 1 << 42
"""Bytes; no file is larger on any device."""

MAX_NAME: Final = 255
MAX_TARGET: Final = 4095
MAX_XATTR_VALUE: Final = 65536
MAX_XATTRS: Final = 1024
MAX_XATTRS_SIZE: Final = 1 << 20  # of all names and values of one node
_KINDS: Final = frozenset(
    (stat.S_IFREG, stat.S_IFDIR, stat.S_IFLNK, stat.S_IFIFO, stat.S_IFSOCK, stat.S_IFCHR, stat.S_IFBLK)
)
_NODE_ID: Final = NODE_ID_SIZE
_ONE_BYTE: Final = 0x80  # a varint below that is one byte
_NODE_KEY: Final = NODE.stop  # bytes of a key that holds the id of a node and no more
_ONE_PER_NODE: Final = having(Trait.TREE) - {PLACE}
PLAIN_TAIL: Final = bytes(10)
"""How attributes go on after `rdev` when there is neither a target nor an xattr, but for the time."""

_PLAIN: Final = len(PLAIN_TAIL)
_NO_NAMES: Final = (b"", b".", b"..")
_MOST_OWNER: Final = 18  # bytes of mode, uid, gid and rdev
_CHUNK_ID: Final = 32
_REMOVED: Final = 1
_YIELDS: Final = 2
_MAX_SLOT: Final = (1 << 63) - 1  # as SQLite stores it
_MAX_RUN: Final = MAX_FILE_SIZE << 1 | 1
_LEAST_RUN: Final = 2  # one byte, by the number that stands for it
_PART: Final = 0  # where the length of a run stands
_MAX_SKIP: Final = 1 << 24  # as the length of a chunk, see `PackedChunk`
_MAX_REWRITTEN: Final = 64
_VERSION: Final = 1
_U64: Final = (1 << 64) - 1


def place_key(node: bytes, slot: int) -> bytes:
    if slot == 0:
        return PLACE.prefix + node + b"\0"
    return Writer().raw(PLACE.prefix).raw(node).varint(slot).getvalue()


def slot_of(key: bytes) -> int:
    """The slot in the key of a place register."""
    slot = shift = 0
    for byte in key[_NODE_KEY:]:
        slot |= (byte & 0x7F) << shift
        shift += 7
    return slot


def is_of_tree(key: bytes) -> bool:
    """Whether it is the key of a place, attributes or content, in the one form that correct devices write."""
    if len(key) == _NODE_KEY:
        return key[0] in _ONE_PER_NODE
    if len(key) == _NODE_KEY + 1 and key[_NODE_KEY] == 0:  # of slot 0, as most are
        return key[0] == PLACE
    if PLACE.has_form(key) and key[0] == PLACE:
        slot = slot_of(key)
        return slot <= _MAX_SLOT and place_key(key[NODE], slot) == key
    return False


def beginning(parent: bytes, name: bytes) -> bytes:
    """How the values of place registers begin that name this place, of nodes that stand or stood there."""
    if len(name) < _ONE_BYTE:
        return b"%b%c%b" % (parent, len(name), name)
    return Writer().raw(parent).blob(name).getvalue()


def beginning_of(value: bytes) -> bytes:
    """How the values begin that name the same place as *value*; some part of one that is not a place."""
    if len(value) <= _NODE_ID:
        return value
    start, length = _NODE_ID + 1, value[_NODE_ID]
    if length >= _ONE_BYTE:
        length = length & 0x7F | int.from_bytes(value[start : start + 1], "big") << 7
        start += 1
    return value[: start + length]


def attr_key(node: bytes) -> bytes:
    return ATTRIBUTES.prefix + node


def content_key(node: bytes) -> bytes:
    return CONTENT.prefix + node


def assignment_key(node: bytes, area: bytes) -> bytes:
    """The register that says whether a node belongs to an area (`hybrisfs.members.roles`)."""
    return ASSIGNMENT.key(node, area)


def pack_key(pack: bytes) -> bytes:
    return PACK.prefix + pack


def rewritten_key(pack: bytes) -> bytes:
    return REWRITTEN.prefix + pack


class Place(NamedTuple):
    """Where a node stands, or stood when it was *removed*: in directory *parent* (its id), under *name*."""

    parent: bytes
    name: bytes
    removed: bool = False
    former: bytes = b""
    yields: bool = False

    def encode(self) -> bytes:
        start = beginning(self.parent, self.name)
        flags = self.removed * _REMOVED | self.yields * _YIELDS
        if flags or self.former:
            return start + Writer().u8(flags).blob(self.former).getvalue()
        return start

    def left(self) -> Place:
        """What a removal says of the node that stood here."""
        return self._replace(removed=True, former=b"")

    def restored(self) -> Place:
        """The place of a node that was removed from here, or not, and stands here again."""
        return self._replace(removed=False, former=b"")

    @staticmethod
    def decode(value: bytes) -> Place:
        """Raises DecodeError."""
        if is_plain_place(value):
            return Place(value[:_NODE_ID], value[_NODE_ID + 1 :])
        reader = Reader(value)
        place = Place(reader.raw(16), reader.blob(MAX_NAME))
        if reader.remaining:
            flags = reader.u8()
            removed, yields = bool(flags & _REMOVED), bool(flags & _YIELDS)
            place = Place(place.parent, place.name, removed, reader.blob(16), yields)
            if place.encode() != value or len(place.former) not in (0, 16):
                raise DecodeError("a place that is not in the one canonical form")
        reader.end()
        return _checked(place)


def removed_place(value: bytes | None) -> Place | None:
    """The place from which *value*, of a place register, says that its node was removed; None when it says
    something else."""
    if value is None or (len(value) > _NODE_ID and len(value) == _NODE_ID + 1 + value[_NODE_ID]):
        return None  # directory and name only, as most are
    try:
        place = Place.decode(value)
    except DecodeError:
        return None
    return place if place.removed else None


def is_plain_place(value: bytes) -> bool:
    """Whether a value of a place register is one of those that tell directory and name only, as most are."""
    if len(value) <= _NODE_ID or value[_NODE_ID] >= _ONE_BYTE or len(value) != _NODE_ID + 1 + value[_NODE_ID]:
        return False
    name = value[_NODE_ID + 1 :]
    return b"/" not in name and b"\0" not in name and name not in _NO_NAMES


def _checked(place: Place) -> Place:
    name = place.name
    if b"/" in name or b"\0" in name or name in _NO_NAMES:
        raise DecodeError(f"not a file name: {place.name!r}")
    return place


class Attr(NamedTuple):
    """What `stat` and `getxattr` say of a node, but for its size."""

    mode: int
    uid: int
    gid: int
    rdev: int
    mtime: int
    target: bytes = b""
    xattrs: tuple[tuple[bytes, bytes], ...] = ()

    def encode(self) -> bytes:
        out = Writer().varint(self.mode).varint(self.uid).varint(self.gid).varint(self.rdev)
        out.u64(self.mtime & _U64).blob(self.target).varint(len(self.xattrs))
        for name, value in self.xattrs:
            out.blob(name).blob(value)
        return out.getvalue()

    @staticmethod
    def decode(value: bytes) -> Attr:
        """Raises DecodeError."""
        plain = plain_owner(value)
        owner = None if plain is None else _owner(plain)
        if owner is not None:
            return Attr(*owner, int.from_bytes(value[-_PLAIN:-2], "big", signed=True))
        reader = Reader(value)
        mode, uid, gid, rdev = _read_owner(reader)
        mtime = reader.u64()
        target = reader.blob(MAX_TARGET)
        count = reader.varint(MAX_XATTRS)
        xattrs = _read_xattrs(reader, count) if count else ()
        reader.end()
        if mtime >= 1 << 63:
            mtime -= 1 << 64
        return Attr(mode, uid, gid, rdev, mtime, target, xattrs)


def plain_owner(value: bytes) -> bytes | None:
    """What should be mode, uid, gid and rdev of attributes with neither a target nor an xattr, as most are;
    None when these are others."""
    if value.endswith(b"\0\0") and _PLAIN < len(value) <= _MOST_OWNER + _PLAIN:
        return value[:-_PLAIN]
    return None


def _read_owner(reader: Reader) -> tuple[int, int, int, int]:
    mode, uid, gid = reader.varint(0xFFFF), reader.varint(0xFFFFFFFF), reader.varint(0xFFFFFFFF)
    rdev = reader.varint(0xFFFFFFFF)
    if stat.S_IFMT(mode) not in _KINDS:
        raise DecodeError(f"no kind of file has mode {mode:o}")
    return mode, uid, gid, rdev


@lru_cache(maxsize=512)
def _owner(data: bytes) -> tuple[int, int, int, int] | None:
    """Mode, owner, group and device, if the bytes are these and no more; few different ones are in a tree."""
    reader = Reader(data)
    try:
        owner = _read_owner(reader)
        reader.end()
    except DecodeError:
        return None
    return owner


def _read_xattrs(reader: Reader, count: int) -> tuple[tuple[bytes, bytes], ...]:
    xattrs = tuple((reader.blob(MAX_NAME), reader.blob(MAX_XATTR_VALUE)) for _ in range(count))
    if any(one >= other for (one, _), (other, _) in pairwise(xattrs)):
        raise DecodeError("extended attributes out of order")
    if sum(len(name) + len(content) for name, content in xattrs) > MAX_XATTRS_SIZE:
        raise DecodeError(f"more than {MAX_XATTRS_SIZE} bytes of extended attributes")
    return xattrs


class Run(NamedTuple):
    """*length* bytes of a file: those of a chunk from byte *skip* on, or a hole when *chunk* is None."""

    length: int
    chunk: bytes | None
    skip: int = 0

    @property
    def reach(self) -> int:
        """The bytes of the chunk up to the end of the run: it has at least so many."""
        return self.skip + self.length


def encode_runs(runs: Iterable[Run]) -> bytes:
    out = Writer()
    for length, chunk, skip in runs:
        if chunk is None:
            out.varint(length << 1 | 1)
            continue
        if skip:
            out.u8(_PART).varint(skip)
        out.varint(length << 1).raw(chunk)
    return out.getvalue()


def decode_runs(data: bytes) -> list[Run]:
    """Raises DecodeError."""
    return _read_runs(Reader(data))


def _read_runs(reader: Reader) -> list[Run]:
    runs: list[Run] = []
    while reader.remaining:
        head = reader.varint(_MAX_RUN)
        skip = 0
        if head == _PART:
            skip, head = reader.varint(_MAX_SKIP), reader.varint(_MAX_RUN)
            if not skip or head & 1:
                raise DecodeError("a part that is none")
        if head < _LEAST_RUN:
            raise DecodeError("a run of no bytes")
        runs.append(Run(head >> 1, None if head & 1 else reader.raw(_CHUNK_ID), skip))
    return runs


class Content(NamedTuple):
    """The bytes of a file: *runs* of chunks (depth 0), or of chunks that hold the runs (depth 1)."""

    size: int
    depth: int
    runs: Sequence[Run]

    def encode(self) -> bytes:
        return Writer().varint(self.size).u8(self.depth).raw(encode_runs(self.runs)).getvalue()

    @staticmethod
    def decode(value: bytes) -> Content:
        """Raises DecodeError."""
        if size := _size_of_one(value):
            return Content(size, 0, [Run(size, value[-_CHUNK_ID:])])
        reader = Reader(value)
        size, depth = reader.varint(MAX_FILE_SIZE), reader.u8()
        if depth > 1:
            raise DecodeError(f"content of depth {depth}")
        runs = _read_runs(reader)
        if sum([run.length for run in runs]) != size:
            raise DecodeError("content runs do not add up to the size")
        if depth and any(run.skip for run in runs):
            raise DecodeError("a part of a list of chunks")
        return Content(size, depth, runs)


def content_of(value: bytes | None) -> Content:
    """The content that a register shows. What no correct device can have written counts as an empty file, on
    all devices."""
    try:
        return Content(0, 0, ()) if value is None else Content.decode(value)
    except DecodeError:
        return Content(0, 0, ())


def is_one_chunk(value: bytes) -> bool:
    """Whether a value of a content register is one of those that name a single chunk, as most are."""
    return _size_of_one(value) > 0


def _size_of_one(value: bytes) -> int:
    """The bytes of a content that is a single chunk; 0 of any other, and of what is none."""
    reader = Reader(value)
    try:
        size = reader.varint(MAX_FILE_SIZE)
        if reader.varint() or size << 1 != reader.varint() or reader.remaining != _CHUNK_ID:
            return 0
    except DecodeError:
        return 0
    return size


class PackedChunk(NamedTuple):
    """A chunk's place in the shares of a pack."""

    id: bytes
    offset: int
    sealed: int
    length: int


class PackRecord(Struct, frozen=True):
    """Which chunks a pack holds, and the number of the cloud that holds each of its shares."""

    k: int
    n: int
    placement: bytes
    chunks: Sequence[PackedChunk]

    def encode(self) -> bytes:
        out = Writer().u8(self.k).u8(self.n).raw(self.placement).varint(len(self.chunks))
        for chunk in self.chunks:
            out.raw(chunk.id).varint(chunk.offset).varint(chunk.sealed).varint(chunk.length)
        return out.getvalue()

    @staticmethod
    def decode(value: bytes) -> PackRecord:
        reader = Reader(value)
        k, n = reader.u8(), reader.u8()
        if not 1 <= k <= n <= 32:
            raise DecodeError(f"impossible code {k} of {n}")
        placement = reader.raw(n)
        chunks = [
            PackedChunk(
                reader.raw(32), reader.varint(1 << 40), reader.varint(1 << 24), reader.varint(1 << 24)
            )
            for _ in range(reader.varint(65536))
        ]
        reader.end()
        return PackRecord(k, n, placement, chunks)


class Rewritten(Struct, frozen=True):
    """The packs that hold the chunks of an earlier one, as far as they are needed."""

    packs: tuple[bytes, ...]

    def encode(self) -> bytes:
        out = Writer().u8(_VERSION).varint(len(self.packs))
        for pack in self.packs:
            out.raw(pack)
        return out.getvalue()

    @staticmethod
    def decode(value: bytes) -> Rewritten:
        """Raises DecodeError."""
        reader = Reader(value)
        if reader.u8() != _VERSION:
            raise DecodeError("a record of a rewritten pack of another version")
        packs = tuple(reader.raw(32) for _ in range(reader.varint(_MAX_REWRITTEN)))
        reader.end()
        return Rewritten(packs)
