"""The values of a volume's key-value store, and the scratch files in which they travel."""

from __future__ import annotations

import hashlib
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Final, NamedTuple

from msgspec import Struct

from gateway.conversations import Conversations
from gateway.errors import S3Error
from gateway.listing import Page
from gateway.preconditions import matches
from hybrisfs.api.key_value import (
    Found,
    FoundKey,
    KeyNeed,
    KvDeleteRequest,
    KvGetRequest,
    KvPageRequest,
    KvPutRequest,
    KvStatRequest,
    KvTputRequest,
    Need,
    Write,
)
from hybrisfs.api.objects import ObjectAttributes, attributes_of
from hybrisfs.client import HybrisError

__all__ = ["GatewayLimits", "Intake", "Scratch", "Stored", "Values", "WriteConditions", "stored"]

_MISSING: Final = "no such key"
_SCRATCH: Final = "value-"
_BATCH: Final = 200  # keys deleted in one transaction
_BUFFER: Final = 1 << 20  # bytes


class GatewayLimits(Struct, frozen=True):
    """How much, and for how long."""

    piece: int = 64 << 20
    """Bytes of a value: an object with more is kept in parts."""
    largest: int = 5 << 30
    """Bytes of one upload."""
    least_part: int = 5 << 20
    """Bytes of a part that is not the last one."""
    expires: float = 7 * 86_400.0
    """Seconds after which an upload is given up in which nothing happens."""
    sweep_seconds: float = 86_400.0
    """Between two looks for what is left over."""
    retry_seconds: float = 60.0
    """After one that failed."""
    workers: int = 24
    """Requests to the daemon at a time."""


class Scratch:
    """Files that only this user can read, which the gateway and the daemon hand each other."""

    def __init__(self, folder: Path) -> None:
        """*folder* is for these alone: what an earlier process has left there is removed. Raises OSError."""
        self._folder = folder
        for left in folder.glob(f"{_SCRATCH}*"):
            left.unlink(missing_ok=True)

    def file(self, buffer: int = 0) -> IO[bytes]:
        """An empty file that vanishes when it is closed, with a buffer of so many bytes. Raises OSError."""
        return tempfile.NamedTemporaryFile(dir=self._folder, prefix=_SCRATCH, buffering=buffer)


class Stored(NamedTuple):
    """A value as a client of S3 sees it."""

    key: str
    tag: str
    etag: str
    size: int
    written: float | None
    upload: str | None
    """Of which upload it has parts; None when the value is the object."""
    attributes: ObjectAttributes | None


def stored(key: str, found: Found) -> Stored:
    """The object that a value is. One that others wrote has its tag as ETag, which is like no MD5."""
    said = attributes_of(found.attributes)
    if said is None:
        return Stored(key, found.tag, found.tag, found.size, found.written, None, None)
    size = found.size if said.upload is None else said.size
    return Stored(key, found.tag, said.etag, size, found.written, said.upload, said)


class WriteConditions(NamedTuple):
    """What must be true of a key for a write to it."""

    match: str | None = None
    none_match: str | None = None

    def need(self, before: Stored | None) -> Need | None:
        """The same in the words of the store, if it is true now. Raises S3Error if not."""
        if self.none_match is not None:
            if self.none_match.strip() != "*":
                raise S3Error("NotImplemented", "If-None-Match of a write can only be *")
            if before is not None:
                raise S3Error("PreconditionFailed", "there is such an object")
            return Need(version=0)
        if self.match is None:
            return None
        if before is None:
            raise S3Error("NoSuchKey", "there is no such object")
        if not matches(self.match, before.etag):
            raise S3Error("PreconditionFailed", "the object has another ETag")
        return Need(tag=before.tag)


class Values:
    """Asks the daemon. Thread-safe. Methods raise HybrisError."""

    def __init__(self, volume: str, conversations: Conversations, scratch: Scratch) -> None:
        self.volume = volume
        self.call = conversations.call
        self.scratch = scratch
        self._empty = scratch.file()

    @property
    def nothing(self) -> str:
        """The path of a file without content."""
        return self._empty.name

    def find(self, bucket: str, key: str) -> Found | None:
        """What is known of a value; None when there is none."""
        try:
            return self.call(KvStatRequest(self.volume, bucket, key))
        except HybrisError as error:
            if error.reported == _MISSING:
                return None
            raise

    def stored(self, bucket: str, key: str) -> Stored | None:
        """The object of a key; None when there is none."""
        found = self.find(bucket, key)
        return None if found is None else stored(key, found)

    def page(self, bucket: str, prefix: str, after: str | None) -> Page:
        """The first keys with a prefix behind one."""
        found = self.call(KvPageRequest(self.volume, bucket, prefix, after))
        return Page(found.keys, found.more)

    def all(self, bucket: str, prefix: str) -> Iterator[FoundKey]:
        """All keys with a prefix, reserved ones too."""
        after, more = None, True
        while more:
            page = self.page(bucket, prefix, after)
            yield from page.keys
            more = page.more
            after = page.keys[-1].key if page.keys else None

    def put(self, bucket: str, key: str, path: str, attributes: bytes, need: Need | None = None) -> None:
        """Store the content of a file. Raises ConditionError."""
        self.call(KvPutRequest(self.volume, bucket, key, path, need, attributes))

    def write(self, writes: list[Write], needs: list[KeyNeed]) -> None:
        """Write several keys at one moment. Raises ConditionError."""
        self.call(KvTputRequest(self.volume, writes, needs))

    @contextmanager
    def fetched(
        self, bucket: str, key: str, *, list_of_parts: bool = False
    ) -> Iterator[tuple[Found, IO[bytes]]]:
        """A value in a file that vanishes with the context."""
        with self.scratch.file() as file:
            yield self.fetch(bucket, key, file, list_of_parts=list_of_parts), file

    def fetch(self, bucket: str, key: str, file: IO[bytes], *, list_of_parts: bool = False) -> Found:
        """Write a value to a scratch file."""
        request = KvGetRequest(self.volume, bucket, key, file.name, list_of_parts=list_of_parts)
        return self.call(request)

    def delete(self, bucket: str, key: str, need: Need | None = None) -> bool:
        """Whether there was something to be deleted. Raises ConditionError."""
        return self.call(KvDeleteRequest(self.volume, bucket, key, need)).existed

    def delete_all(self, bucket: str, keys: Sequence[str]) -> None:
        """Delete keys, some at a time."""
        for start in range(0, len(keys), _BATCH):
            self.write([Write(bucket, key) for key in keys[start : start + _BATCH]], [])

    def close(self) -> None:
        """Remove the scratch file that is always there."""
        self._empty.close()


class Intake(ABC):
    """A body on its way to the store: spooled to a file of at most *piece* bytes at a time. Not thread-safe.

    Its feeder calls `pass_on`, in a thread, whenever it is full and there is more.
    """

    def __init__(self, values: Values, bucket: str, limits: GatewayLimits) -> None:
        self._values = values
        self._bucket = bucket
        self._limits = limits
        self._file = values.scratch.file(_BUFFER)
        self._in_file = 0
        self._md5 = hashlib.md5(usedforsecurity=False)
        self.size = 0

    @property
    def full(self) -> bool:
        """Whether nothing more goes into the file."""
        return self._in_file == self._limits.piece

    @property
    def md5(self) -> bytes:
        """Of all that was fed."""
        return self._md5.digest()

    def feed(self, data: memoryview) -> memoryview:
        """Take as much as goes into the file; return the rest. Raises S3Error, OSError."""
        part = data[: self._limits.piece - self._in_file]
        self.size += len(part)
        if self.size > self._limits.largest:
            raise S3Error("EntityTooLarge", f"at most {self._limits.largest:,} bytes at a time")
        self._file.write(part)
        self._md5.update(part)
        self._in_file += len(part)
        return data[len(part) :]

    def feed_all(self, data: memoryview) -> None:
        """Take all of it, for which it may wait."""
        while data:
            if self.full:
                self.pass_on()
            data = self.feed(data)

    @abstractmethod
    def pass_on(self) -> None:
        """Store what is in the file as a piece, and empty the file. Raises HybrisError, OSError."""

    def discard(self) -> None:
        """Forget it, or what is left of it. Idempotent."""
        self._file.close()

    def _path(self) -> str:
        """Of the file, complete."""
        self._file.flush()
        return self._file.name

    def _empty_file(self) -> None:
        self._file.seek(0)
        self._file.truncate()
        self._in_file = 0
