r"""What the S3 gateway writes beside values: the attributes of a value, and the list of an object's parts.

The attributes of a value

    "S3"    so that attributes of other writers are not taken for these
    1       format (1)
    1       kind: "O" an object, "U" an upload, "P" a part of an upload
    MessagePack: an array with the fields of the record below, in its order

The value of an object in parts is a MessagePack array of its parts, each an array like the attributes of a
part. An object is in parts when it was uploaded in parts, or has more bytes than a value may have.

The values of parts, called pieces, and what belongs to uploads, have keys of their own in the container:

    .hybrisfs-s3/uploads/ID                            an upload, from its beginning; an empty value
    .hybrisfs-s3/parts/ID/NUMBER                       the latest upload of a part; an empty value
    .hybrisfs-s3/pieces/ID/NUMBER-ATTEMPT-INDEX        bytes of a part; each key is written once

Who may delete what is said in gateway/collector.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Annotated, Final, Literal, TypeAlias, TypeVar

import msgspec
from msgspec import Meta

__all__ = [
    "MOST_PARTS",
    "RESERVED",
    "ObjectAttributes",
    "Part",
    "Upload",
    "attributes_of",
    "decode_parts",
    "encode",
    "encode_parts",
    "is_in_parts",
    "part_key",
    "part_of",
    "part_prefix",
    "piece_prefix",
    "upload_key",
    "upload_of",
]

RESERVED: Final = ".hybrisfs-s3/"
"""The beginning of keys that no S3 client may use, and that none sees."""
MOST_PARTS: Final = 10_000
_MAGIC: Final = b"S3\x01"
_MOST_BYTES: Final = 1 << 50
_MOST_PIECES: Final = 1_000_000  # of an object: as many as 10,000 parts of 5 GiB have, and some

_Id: TypeAlias = Annotated[str, Meta(pattern=r"\A[0-9a-f]{32}\Z")]
_Size: TypeAlias = Annotated[int, Meta(ge=0, le=_MOST_BYTES)]
_Record = TypeVar("_Record", bound="_Base")


class _Base(msgspec.Struct, array_like=True, forbid_unknown_fields=True, frozen=True):
    pass


class ObjectAttributes(_Base, frozen=True):
    """What is known of an object."""

    etag: Annotated[str, Meta(pattern=r"\A[0-9a-f]{32}(-[0-9]{1,5})?\Z")]
    """The MD5 of its bytes in hexadecimal; of one that was uploaded in parts as S3 makes it."""
    headers: dict[str, str]
    """Content-Type and the like, by lower-case names."""
    metadata: dict[str, str]
    """The user's, by lower-case names without x-amz-meta-."""
    upload: _Id | None = None
    """Of which upload it has parts; None when the value is the object."""
    size: _Size = 0
    """Of an object in parts, in bytes."""


class Upload(_Base, frozen=True):
    """An object that is coming in, or has come."""

    key: str
    state: Literal["open", "complete", "settled", "ended"]
    """It takes parts; the key has been given the object; and nothing is left that it does not need; or it
    was given up."""
    multipart: bool
    """Its client knows it, and may go on with it later."""
    headers: dict[str, str]
    metadata: dict[str, str]


class Part(_Base, frozen=True):
    """A part, in pieces of the same size but for the last."""

    number: Annotated[int, Meta(ge=1, le=MOST_PARTS)]
    md5: Annotated[bytes, Meta(min_length=16, max_length=16)]
    size: _Size
    """In bytes."""
    piece: Annotated[int, Meta(ge=1, le=_MOST_BYTES)]
    """The size of a piece in bytes."""
    attempt: Annotated[str, Meta(pattern=r"\A[0-9a-f]{16}\Z")]
    """Of all uploads of this part the one that made these pieces."""

    def pieces(self, upload: str) -> list[tuple[str, int]]:
        """The keys of its pieces, and their sizes in bytes."""
        prefix = f"{piece_prefix(upload)}{self.number:05}-{self.attempt}-"
        starts = range(0, self.size, self.piece) if self.size else range(1)
        return [
            (f"{prefix}{index:05}", min(self.piece, self.size - start)) for index, start in enumerate(starts)
        ]


_KINDS: Final[dict[type[_Base], bytes]] = {ObjectAttributes: b"O", Upload: b"U", Part: b"P"}


def upload_key(upload: str) -> str:
    """The key of the record of an upload."""
    return f"{RESERVED}uploads/{upload}"


def part_prefix(upload: str) -> str:
    """What the keys of an upload's parts begin with."""
    return f"{RESERVED}parts/{upload}/"


def part_key(upload: str, number: int) -> str:
    """The key of the record of a part."""
    return f"{part_prefix(upload)}{number:05}"


def piece_prefix(upload: str) -> str:
    """What the keys of an upload's pieces begin with."""
    return f"{RESERVED}pieces/{upload}/"


def encode(record: _Base) -> bytes:
    """The attributes that say this."""
    return _MAGIC + _KINDS[type(record)] + msgspec.msgpack.encode(record)


def attributes_of(attributes: bytes) -> ObjectAttributes | None:
    """What the attributes of an object say; None when the gateway has not written them."""
    return _decoded(attributes, ObjectAttributes)


def upload_of(attributes: bytes) -> Upload | None:
    """Likewise, of an upload."""
    return _decoded(attributes, Upload)


def part_of(attributes: bytes) -> Part | None:
    """Likewise, of a part."""
    return _decoded(attributes, Part)


def is_in_parts(attributes: bytes) -> bool:
    """Whether the value with these attributes is but a list of parts."""
    found = attributes_of(attributes)
    return found is not None and found.upload is not None


def encode_parts(parts: Sequence[Part]) -> bytes:
    """The value of an object in parts."""
    return msgspec.msgpack.encode(parts)


def decode_parts(value: bytes) -> list[Part]:
    """Raises ValueError when it is not a list of parts."""
    try:
        parts = msgspec.msgpack.decode(value, type=list[Part])
    except msgspec.DecodeError as error:
        raise ValueError(f"no list of parts: {error}") from error
    if not 0 < len(parts) <= MOST_PARTS or any(one.number >= other.number for one, other in pairwise(parts)):
        raise ValueError("no list of parts in order")
    if sum(-(-one.size // one.piece) for one in parts) > _MOST_PIECES:
        raise ValueError(f"a list of parts with more than {_MOST_PIECES:,} pieces")
    return parts


def _decoded(attributes: bytes, kind: type[_Record]) -> _Record | None:
    start = _MAGIC + _KINDS[kind]
    if not attributes.startswith(start):
        return None
    try:
        return msgspec.msgpack.decode(attributes[len(start) :], type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
