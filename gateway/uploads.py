"""Objects that come in parts, or are larger than a value.

Their bytes are values of their own, in pieces; see `hybrisfs.api.objects`. An upload is known by a key before
its first piece is stored. One transaction gives the object's key its list of parts, and ends the upload: it
takes place only if the upload is still open, and what the client wants of the key is true. So an object
appears, and is replaced, at one moment. A key of a piece is written once: who has the list of parts finds
these very bytes or none.
"""

from __future__ import annotations

import contextlib
import hashlib
import secrets
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Final, Literal, NamedTuple

import msgspec

from gateway.errors import S3Error
from gateway.listing import entries
from gateway.values import GatewayLimits, Intake, Stored, Values, WriteConditions
from hybrisfs.api.key_value import FoundKey, KeyNeed, Need, Write
from hybrisfs.api.objects import (
    MOST_PARTS,
    RESERVED,
    ObjectAttributes,
    Part,
    Upload,
    encode,
    encode_parts,
    part_key,
    part_of,
    part_prefix,
    piece_prefix,
    upload_key,
    upload_of,
)
from hybrisfs.client import ConditionError, HybrisError

__all__ = ["Description", "ObjectIntake", "OpenUpload", "PartIntake", "Uploads"]

_MOST_METADATA: Final = 2048  # bytes
_MOST_ATTRIBUTES: Final = 4096


class Description(NamedTuple):
    """What a client says of an object: headers that come back with it, and its own names and values."""

    headers: Mapping[str, str]
    metadata: Mapping[str, str]

    def check(self, key: str) -> None:
        """Raises S3Error when it is too long."""
        size = sum(len(name) + len(value) for name, value in self.metadata.items())
        attributes = encode(Upload(key, "complete", True, dict(self.headers), dict(self.metadata)))
        if size > _MOST_METADATA or len(attributes) > _MOST_ATTRIBUTES:
            raise S3Error("MetadataTooLarge", f"metadata may have {_MOST_METADATA:,} bytes")


class OpenUpload(NamedTuple):
    """An upload, and the tag of its value."""

    id: str
    tag: str
    record: Upload
    written: float | None


class Uploads:
    """Thread-safe. *doom* gets the uploads that have to be looked at: some of what they have stored may
    be of no use any more."""

    def __init__(self, values: Values, limits: GatewayLimits, doom: Callable[[str, str], None]) -> None:
        self._values = values
        self._limits = limits
        self._doom = doom
        self._lock = threading.Lock()
        self._under_way: set[str] = set()

    def is_under_way(self, upload: str) -> bool:
        """Whether a request of this process makes the object, so that nobody else may give it up."""
        with self._lock:
            return upload in self._under_way

    # -- the life of an upload -------------------------------------------------------------------

    def begin(self, bucket: str, key: str, description: Description, *, multipart: bool) -> str:
        """Begin an upload; return its id. One that is not *multipart* ends with `release`."""
        upload = secrets.token_hex(16)
        if not multipart:
            with self._lock:
                self._under_way.add(upload)
        record = Upload(key, "open", multipart, dict(description.headers), dict(description.metadata))
        try:
            self._values.put(
                bucket, upload_key(upload), self._values.nothing, encode(record), Need(version=0)
            )
        except HybrisError:
            self.release(bucket, upload)  # it may be there nevertheless
            raise
        return upload

    def release(self, bucket: str, upload: str) -> None:
        """No request makes the object any more."""
        with self._lock:
            self._under_way.discard(upload)
        self._doom(bucket, upload)

    def find(self, bucket: str, upload: str) -> OpenUpload | None:
        """An upload, in whatever state; None when there is no such one."""
        found = self._values.find(bucket, upload_key(upload))
        record = None if found is None else upload_of(found.attributes)
        return (
            None if found is None or record is None else OpenUpload(upload, found.tag, record, found.written)
        )

    def open(self, bucket: str, key: str, upload: str) -> OpenUpload:
        """An upload that takes parts. Raises S3Error."""
        found = self.find(bucket, upload)
        if found is None or found.record.key != key or found.record.state != "open":
            raise _no_such_upload()
        return found

    def all(self, bucket: str, prefix: str) -> Iterator[OpenUpload]:
        """The uploads that clients may go on with, of keys with a prefix, in no useful order."""
        for one in self._values.all(bucket, f"{RESERVED}uploads/"):
            record = upload_of(one.attributes)
            if record is None or not record.multipart or record.state != "open":
                continue
            if record.key.startswith(prefix):
                yield OpenUpload(one.key.rpartition("/")[2], one.tag, record, one.written)

    def ids(self, bucket: str) -> Iterator[str]:
        """All uploads of which there is anything, some twice."""
        # Those with pieces first: the record of an upload is there before its first piece is.
        for kind in ("pieces", "parts", "uploads"):
            prefix = f"{RESERVED}{kind}/"
            read = lambda after, prefix=prefix: self._values.page(bucket, prefix, after)  # noqa: E731
            for key, _ in entries(read, prefix, "/", None, hidden=None):
                yield key.key[len(prefix) :].partition("/")[0]

    def parts(self, bucket: str, upload: str) -> Iterator[tuple[Part, FoundKey]]:
        """The parts that have arrived, in order."""
        for one in self._values.all(bucket, part_prefix(upload)):
            part = part_of(one.attributes)
            if part is not None:
                yield part, one

    def abort(self, bucket: str, key: str, upload: str) -> None:
        """Give an upload up. Raises S3Error."""
        if not self.move(bucket, self.open(bucket, key, upload), "ended"):
            raise _no_such_upload()
        self._doom(bucket, upload)

    def move(self, bucket: str, found: OpenUpload, state: Literal["settled", "ended"]) -> bool:
        """Bring an upload into another state; False when it has changed since it was found."""
        record = msgspec.structs.replace(found.record, state=state)
        key, need = upload_key(found.id), Need(tag=found.tag)
        try:
            self._values.put(bucket, key, self._values.nothing, encode(record), need)
        except ConditionError:
            return False
        return True

    # -- making the object -----------------------------------------------------------------------

    def complete(
        self,
        bucket: str,
        key: str,
        upload: str,
        chosen: Sequence[tuple[int, str]],
        conditions: WriteConditions,
    ) -> str:
        """Make an object of parts by their numbers and ETags; return its ETag. Raises S3Error."""
        found = self.find(bucket, upload)
        if found is None or found.record.key != key:
            raise _no_such_upload()
        if found.record.state != "open":
            # The client may not have heard the answer, and asks again.
            there = self._values.stored(bucket, key)
            if there is None or there.upload != upload:
                raise _no_such_upload()
            return there.etag
        parts = self._chosen(bucket, upload, chosen)
        digests = hashlib.md5(b"".join(part.md5 for part in parts), usedforsecurity=False)
        etag = f"{digests.hexdigest()}-{len(parts)}"
        self.make(bucket, found, parts, etag, conditions)
        self._doom(bucket, upload)
        return etag

    def _chosen(self, bucket: str, upload: str, chosen: Sequence[tuple[int, str]]) -> list[Part]:
        if any(one[0] >= other[0] for one, other in pairwise(chosen)):
            raise S3Error("InvalidPartOrder", "the parts are not in the order of their numbers")
        there = {part.number: part for part, _ in self.parts(bucket, upload)}
        parts = []
        for number, etag in chosen:
            part = there.get(number)
            if part is None or part.md5.hex() != etag:
                raise S3Error("InvalidPart", f"there is no part {number} with the ETag {etag[:80]}")
            parts.append(part)
        if any(part.size < self._limits.least_part for part in parts[:-1]):
            raise S3Error("EntityTooSmall", f"a part has at least {self._limits.least_part:,} bytes")
        return parts

    def make(
        self,
        bucket: str,
        found: OpenUpload,
        parts: Sequence[Part],
        etag: str,
        conditions: WriteConditions,
    ) -> None:
        """Give the key its object, and end the upload, at one moment. Raises S3Error."""
        record = found.record
        before = self._values.stored(bucket, record.key)
        need = conditions.need(before)
        total = sum(part.size for part in parts)
        attributes = ObjectAttributes(etag, record.headers, record.metadata, found.id, total)
        done = msgspec.structs.replace(record, state="complete")
        needs = [KeyNeed(tag=found.tag, container=bucket, key=upload_key(found.id))]
        if need is not None:
            needs.append(KeyNeed(need.version, need.tag, container=bucket, key=record.key))
        with self._values.scratch.file() as file:
            file.write(encode_parts(parts))
            file.flush()
            writes = [
                Write(bucket, record.key, file.name, encode(attributes)),
                Write(bucket, upload_key(found.id), self._values.nothing, encode(done)),
            ]
            try:
                self._values.write(writes, needs)
            except ConditionError as error:
                now = self.find(bucket, found.id)
                if now is None or now.tag != found.tag:
                    raise _no_such_upload() from error
                raise
        self.replaced(bucket, before)

    def replaced(self, bucket: str, before: Stored | None) -> None:
        """An object is not there any more."""
        if before is not None and before.upload is not None:
            self._doom(bucket, before.upload)


def _no_such_upload() -> S3Error:
    return S3Error("NoSuchUpload", "the upload is not there, or has ended")


class _Pieces(Intake):
    """What becomes a part of an upload."""

    _number = 1

    def __init__(self, values: Values, bucket: str, limits: GatewayLimits) -> None:
        super().__init__(values, bucket, limits)
        self._attempt = secrets.token_hex(8)
        self._pieces: list[str] = []

    def _store_piece(self, upload: str) -> None:
        key = f"{piece_prefix(upload)}{self._number:05}-{self._attempt}-{len(self._pieces):05}"
        self._pieces.append(key)
        self._values.put(self._bucket, key, self._path(), b"", Need(version=0))
        self._empty_file()

    def _part(self) -> Part:
        return Part(self._number, self.md5, self.size, self._limits.piece, self._attempt)


class PartIntake(_Pieces):
    """A part of an upload, on its way. Feeding a part that was there already replaces it."""

    def __init__(
        self,
        values: Values,
        bucket: str,
        limits: GatewayLimits,
        upload: OpenUpload,
        number: int,
    ) -> None:
        """Raises S3Error for a number that no part can have."""
        if not 0 < number <= MOST_PARTS:
            raise S3Error("InvalidArgument", f"parts have numbers from 1 to {MOST_PARTS:,}")
        super().__init__(values, bucket, limits)
        self._upload = upload
        self._number = number

    def pass_on(self) -> None:
        self._store_piece(self._upload.id)

    def finish(self) -> str:
        """Make it a part of its upload; return its ETag. Raises S3Error when that has ended."""
        self.pass_on()
        part = self._part()
        own, owner = part_key(self._upload.id, self._number), upload_key(self._upload.id)
        # What was there before stays until the upload ends: one that is being completed may need it. And from
        # here on these pieces stay, unless it is known that nothing names them.
        pieces, self._pieces = self._pieces, []
        try:
            self._values.write(
                [Write(self._bucket, own, self._values.nothing, encode(part))],
                [KeyNeed(tag=self._upload.tag, container=self._bucket, key=owner)],
            )
        except ConditionError as error:
            self._pieces = pieces
            raise _no_such_upload() from error
        return self.md5.hex()

    def discard(self) -> None:
        super().discard()
        if self._pieces:
            pieces, self._pieces = self._pieces, []
            with contextlib.suppress(HybrisError):  # then they go with the upload
                self._values.delete_all(self._bucket, pieces)


class ObjectIntake(_Pieces):
    """An object, on its way: a value, or in parts when it is larger than one."""

    def __init__(
        self,
        values: Values,
        bucket: str,
        limits: GatewayLimits,
        uploads: Uploads,
        key: str,
        description: Description,
    ) -> None:
        super().__init__(values, bucket, limits)
        self._uploads = uploads
        self._key = key
        self._description = description
        self._upload: str | None = None

    def pass_on(self) -> None:
        if self._upload is None:
            self._upload = self._uploads.begin(self._bucket, self._key, self._description, multipart=False)
        self._store_piece(self._upload)

    def finish(self, conditions: WriteConditions) -> str:
        """Give the key its object; return its ETag. Raises S3Error."""
        etag = self.md5.hex()
        if self._upload is not None:
            self.pass_on()
            found = self._uploads.open(self._bucket, self._key, self._upload)
            self._uploads.make(self._bucket, found, [self._part()], etag, conditions)
            return etag
        before = self._values.stored(self._bucket, self._key)
        attributes = ObjectAttributes(etag, dict(self._description.headers), dict(self._description.metadata))
        self._values.put(self._bucket, self._key, self._path(), encode(attributes), conditions.need(before))
        self._uploads.replaced(self._bucket, before)
        return etag

    def discard(self) -> None:
        super().discard()
        if self._upload is not None:
            upload, self._upload = self._upload, None
            self._uploads.release(self._bucket, upload)
