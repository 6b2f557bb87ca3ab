"""What clients of S3 ask of buckets and objects, answered by the key-value store. All of it may wait."""

from __future__ import annotations

import contextlib
import re
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import IO, Final, NamedTuple

from gateway.collector import Collector
from gateway.conversations import Conversations
from gateway.documents import Deletion
from gateway.errors import S3Error, translated
from gateway.listing import Listed, list_keys
from gateway.preconditions import Preconditions, Span
from gateway.uploads import Description, ObjectIntake, PartIntake
from gateway.values import GatewayLimits, Intake, Scratch, Stored, Values, WriteConditions, stored
from hybrisfs.api.key_value import ON_DEVICE, KvContainersRequest, KvCreateRequest, KvDropRequest, Need
from hybrisfs.api.objects import RESERVED, Part, decode_parts
from hybrisfs.client import Client, ConditionError, HybrisError

__all__ = ["Objects", "Reading", "Stretch"]

_SERVED: Final = re.compile(r"[A-Za-z0-9._-]{1,255}")
_NEW: Final = re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]")
_MOST_KEY: Final = 1024  # bytes
_TRIES: Final = 16
_BLOCK: Final = 1 << 20  # bytes
_DELETING: Final = 8  # keys at a time
_USUAL: Final = GatewayLimits()


class Stretch(NamedTuple):
    """Bytes of an object that are in one value: its key, None for the object's own, and which bytes of it."""

    piece: str | None
    start: int
    end: int


class Reading:
    """An object that is being read: a context manager, in which all of it stays readable. For one thread at a
    time."""

    def __init__(
        self,
        values: Values,
        bucket: str,
        found: Stored,
        file: IO[bytes],
        parts: Sequence[Part],
        hold: ExitStack,
    ) -> None:
        self.stored = found
        self._values = values
        self._bucket = bucket
        self._file = file
        self._parts = parts
        self._hold = hold

    def stretches(self, span: Span) -> Iterator[Stretch]:
        """Where these bytes are."""
        if self.stored.upload is None:
            yield Stretch(None, *span)
            return
        begin = 0
        for part in self._parts:
            for key, size in part.pieces(self.stored.upload):
                start, end = max(span.start - begin, 0), min(span.end - begin, size)
                if start < end:
                    yield Stretch(key, start, end)
                begin += size

    def opened(self, stretch: Stretch) -> IO[bytes]:
        """The file with the value that has these bytes, at the first of them. Raises S3Error, HybrisError."""
        if stretch.piece is not None:
            self._file.seek(0)
            self._file.truncate()
            try:
                found = self._values.fetch(self._bucket, stretch.piece, self._file)
            except HybrisError as error:
                if translated(error).code != "NoSuchKey":
                    raise
                raise S3Error("InternalError", f"a part of {self.stored.key} is missing") from error
            if found.size < stretch.end:
                raise S3Error("InternalError", f"a part of {self.stored.key} has another size")
        self._file.seek(stretch.start)
        return self._file

    def __enter__(self) -> Reading:
        return self

    def __exit__(self, *_: object) -> None:
        self._hold.close()


class Objects:
    """The buckets of a volume. Thread-safe. Methods raise S3Error, HybrisError, and OSError."""

    def __init__(
        self,
        volume: str,
        connect: Callable[[], Client],
        scratch: Path,
        *,
        limits: GatewayLimits = _USUAL,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """*scratch* is a folder for this gateway alone, that only this user can read. *clock* tells seconds
        since the epoch."""
        self.limits = limits
        self._conversations = Conversations(connect)
        self._values = Values(volume, self._conversations, Scratch(scratch))
        self.collector = Collector(self._values, limits, clock)
        self.uploads = self.collector.uploads
        self._deleting = ThreadPoolExecutor(_DELETING, "delete")
        self._thread = threading.Thread(target=self.collector.run, name="collect", daemon=True)

    def start(self) -> None:
        """Begin to delete what is left over."""
        self._thread.start()

    def close(self) -> None:
        """End the work in the background, and all conversations with the daemon: who waits for an answer gets
        DaemonError."""
        self.collector.stop()
        self._conversations.close()
        if self._thread.is_alive():
            self._thread.join()
        self._deleting.shutdown()
        self._values.close()

    # -- buckets ---------------------------------------------------------------------------------

    def buckets(self) -> list[str]:
        """Those that clients can name."""
        names = self._values.call(KvContainersRequest(self._values.volume)).containers
        return list(filter(_SERVED.fullmatch, names))

    def check_bucket(self, bucket: str) -> None:
        """Raises S3Error when there is no such bucket."""
        if bucket not in self.buckets():
            raise S3Error("NoSuchBucket", "there is no such bucket")

    def create_bucket(self, bucket: str) -> None:
        """Make a bucket, of a name that S3 allows."""
        if not _NEW.fullmatch(bucket):
            raise S3Error("InvalidBucketName", "3 to 63 lower-case letters, digits, dots and dashes")
        self._values.call(KvCreateRequest(self._values.volume, bucket, ON_DEVICE))

    def drop_bucket(self, bucket: str) -> None:
        """Remove a bucket without objects; uploads to it are given up."""
        self.check_bucket(bucket)
        if self.list(bucket, "", "", None, 1).keys:
            raise S3Error("BucketNotEmpty", "the bucket has objects")
        self.collector.empty(bucket)
        self._values.call(KvDropRequest(self._values.volume, bucket))

    # -- reading ---------------------------------------------------------------------------------

    def list(self, bucket: str, prefix: str, delimiter: str, after: str | None, limit: int) -> Listed:
        """See `gateway.listing.list_keys`."""
        return list_keys(
            lambda last: self._values.page(bucket, prefix, last), prefix, delimiter, after, limit
        )

    def head(self, bucket: str, key: str) -> Stored:
        """What is known of an object."""
        found = self._values.stored(bucket, check_key(key))
        if found is None:
            raise S3Error("NoSuchKey", "there is no such object")
        return found

    def read(self, bucket: str, key: str, conditions: Preconditions) -> Reading:
        """An object as it is now, if the conditions hold of it."""
        check_key(key)
        if conditions.any:
            found = self.head(bucket, key)
            conditions.check(found.etag, found.written)
        for _ in range(_TRIES):
            hold = ExitStack()
            with ExitStack() as undo:
                undo.enter_context(hold)
                reading = self._read(bucket, key, hold)
                if reading is not None:
                    conditions.check(reading.stored.etag, reading.stored.written)
                    undo.pop_all()
                    return reading
        raise S3Error("ServiceUnavailable", "the object is replaced all the time")

    def _read(self, bucket: str, key: str, hold: ExitStack) -> Reading | None:
        """None when it was replaced since it was looked up."""
        file = hold.enter_context(self._values.scratch.file())
        found = stored(key, self._values.fetch(bucket, key, file, list_of_parts=True))
        if found.upload is None:
            return Reading(self._values, bucket, found, file, (), hold)
        hold.enter_context(self.collector.sparing(bucket, found.upload))
        now = self._values.stored(bucket, key)  # see `gateway.collector`
        if now is None or now.upload != found.upload:
            return None
        try:
            parts = decode_parts(file.read())
        except ValueError as error:
            raise S3Error("InternalError", f"the list of parts of {key} cannot be read") from error
        return Reading(self._values, bucket, found, file, parts, hold)

    # -- writing ---------------------------------------------------------------------------------

    def intake(self, bucket: str, key: str, description: Description) -> ObjectIntake:
        """What takes the bytes of a new object."""
        description.check(check_key(key))
        return ObjectIntake(self._values, bucket, self.limits, self.uploads, key, description)

    def begin_upload(self, bucket: str, key: str, description: Description) -> str:
        """Begin an upload in parts; return its id."""
        description.check(check_key(key))
        return self.uploads.begin(bucket, key, description, multipart=True)

    def part_intake(self, bucket: str, key: str, upload: str, number: int) -> PartIntake:
        """What takes the bytes of a part."""
        found = self.uploads.open(bucket, key, upload)
        return PartIntake(self._values, bucket, self.limits, found, number)

    def copy(self, source: Reading, span: Span, intake: Intake) -> None:
        """Feed a part of an object to an intake."""
        for stretch in source.stretches(span):
            file, left = source.opened(stretch), stretch.end - stretch.start
            while left:
                data = file.read(min(left, _BLOCK))
                if not data:
                    raise S3Error("InternalError", "the source ends too early")
                intake.feed_all(memoryview(data))
                left -= len(data)

    def delete(self, bucket: str, key: str, match: str | None = None) -> None:
        """Delete an object, if there is one; with *match*, only one with such an ETag."""
        check_key(key)
        for _ in range(_TRIES):
            found = self._values.stored(bucket, key)
            need = WriteConditions(match).need(found)
            if found is None:
                return
            with contextlib.suppress(ConditionError):
                # Of this very one, so that its parts are known.
                self._values.delete(bucket, key, need or Need(tag=found.tag))
                self.uploads.replaced(bucket, found)
                return
        raise S3Error("ServiceUnavailable", "the object is replaced all the time")

    def delete_many(self, bucket: str, deletions: Sequence[Deletion]) -> Iterator[S3Error | None]:
        """Delete several objects; tell of each why it is still there, if it is, in their order."""

        def attempt(one: Deletion) -> S3Error | None:
            try:
                self.delete(bucket, one.key, one.etag)
            except S3Error as error:
                return error
            except HybrisError as error:
                return translated(error)
            return None

        return self._deleting.map(attempt, deletions)


def check_key(key: str) -> str:
    """Return *key*. Raises S3Error unless clients may use it."""
    if len(key.encode("utf-8")) > _MOST_KEY:
        raise S3Error("KeyTooLongError", f"a key has at most {_MOST_KEY:,} bytes")
    if not key or "\0" in key or key.startswith(RESERVED):
        raise S3Error("InvalidArgument", f"a key has a byte other than 0, and does not begin with {RESERVED}")
    return key
