"""Deletes the parts that nobody needs: of objects that were replaced or deleted, and of uploads that have
ended or were abandoned, also when this process died in the midst of anything.

What is needed follows from what is stored (U is the record of an upload, see `hybrisfs.api.objects`):

    there is no U                             nothing: U comes before the first piece, and goes last
    U is "open"                               everything, unless U has expired, or its request has died
    U is "complete", its key names it         the parts in the object's list; then U becomes "settled"
    U is "settled", its key names it          everything
    U is "complete" or "settled", its key     nothing, ever: only an open upload becomes the object of a key
      does not name it; or U is "ended"

"open" ends by a conditional write, of which one takes place: the object's transaction, or giving it up. A
part is recorded only while its upload is open; a part that is uploaded again leaves the pieces of the former
one alone, for an object that is just being made may be made of these. What a late part leaves under an upload
that has ended goes with the next look, or with the object.

A reader that has begun, in this process, is waited for. It counts as begun before it has made sure that the
key still names the upload; the collector looks at the key first, and then at the readers. There is one
gateway of a volume at a time on a machine (`gateway.server`), so nobody else reads or writes the parts of a
bucket whose metadata are on this machine.

Other machines may use a bucket whose metadata are elsewhere. There an upload counts as abandoned by its age
alone. A reader through another machine is not waited for: it gets an error when the object is replaced.
"""

from __future__ import annotations

import contextlib
import logging
import queue
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Final, TypeAlias

from gateway.uploads import OpenUpload, Uploads
from gateway.values import GatewayLimits, Values, stored
from hybrisfs.api.key_value import ON_DEVICE, KvContainersRequest, Need
from hybrisfs.api.objects import RESERVED, decode_parts, part_prefix, piece_prefix, upload_key
from hybrisfs.client import ConditionError, HybrisError

__all__ = ["Collector"]

log = logging.getLogger(__name__)

_Upload: TypeAlias = tuple[str, str]  # bucket, id
_NO_BUCKET: Final = "no such container"


class Collector:
    """`run` is the body of a thread."""

    def __init__(self, values: Values, limits: GatewayLimits, clock: Callable[[], float] = time.time) -> None:
        """*clock* tells seconds since the epoch."""
        self._values = values
        self._limits = limits
        self._clock = clock
        self.uploads = Uploads(values, limits, self.doom)
        self._lock = threading.Lock()
        self._readers = Counter[_Upload]()
        self._waiting: set[_Upload] = set()
        self._doomed = queue.SimpleQueue[_Upload | None]()
        self._shared = frozenset[str]()  # buckets that other machines may use, too
        self._stopping = False

    def doom(self, bucket: str, upload: str) -> None:
        """Have an upload looked at, soon."""
        self._doomed.put((bucket, upload))

    @contextmanager
    def sparing(self, bucket: str, upload: str) -> Iterator[None]:
        """Keep what an object needs, even if its key gets another one."""
        one = (bucket, upload)
        with self._lock:
            self._readers[one] += 1
        try:
            yield
        finally:
            with self._lock:
                self._readers[one] -= 1
                ended = not self._readers[one] and one in self._waiting
                self._readers += Counter()  # drops those that nobody reads any more
                self._waiting.difference_update([one] if ended else [])
            if ended:
                self.doom(bucket, upload)

    # -- the work --------------------------------------------------------------------------------

    def run(self) -> None:
        """Look at everything at once and now and then, and at what is doomed, until `stop`."""
        due = time.monotonic()
        while not self._stopping:
            try:
                doomed = self._doomed.get(timeout=max(0.0, due - time.monotonic()))
            except queue.Empty:
                done = self._attempt(self.sweep)
                due = time.monotonic() + (self._limits.sweep_seconds if done else self._limits.retry_seconds)
                continue
            if doomed is not None and not self._attempt(partial(self.collect, *doomed)):
                due = min(due, time.monotonic() + self._limits.retry_seconds)

    def _attempt(self, work: Callable[[], None]) -> bool:
        try:
            work()
        except (HybrisError, OSError, ValueError) as error:
            if not self._stopping:
                log.warning("parts that nobody needs cannot be deleted now: %s", error)
            return False
        return True

    def stop(self) -> None:
        """Make `run` return, soon. What is left is found at the next start."""
        self._stopping = True
        self._doomed.put(None)

    def sweep(self) -> None:
        """Look at all uploads there are. Raises HybrisError, OSError."""
        found = self._values.call(KvContainersRequest(self._values.volume))
        self._shared = frozenset(
            name for place in found.places if place.metadata != ON_DEVICE for name in place.containers
        )
        for bucket in found.containers:
            try:
                for upload in set(self.uploads.ids(bucket)):
                    try:
                        self.collect(bucket, upload)
                    except ValueError as error:  # a member wrote it; the other uploads are no worse for it
                        log.warning("the upload %r to %r is left alone: %s", upload, bucket, error)
            except HybrisError as error:
                if error.reported != _NO_BUCKET:
                    raise

    def collect(self, bucket: str, upload: str) -> None:
        """Delete what is of no use of an upload. Raises HybrisError, OSError, ValueError for a wrong list."""
        if self._values.find(bucket, upload_key(upload)) is None:
            self._remove_parts(bucket, upload)
            return
        found = self.uploads.find(bucket, upload)
        if found is not None and found.record.state == "open" and self._is_abandoned(bucket, found):
            self.uploads.move(bucket, found, "ended")
            found = self.uploads.find(bucket, upload)
        if found is None or found.record.state == "open":
            return
        if found.record.state != "ended":
            there = self._values.stored(bucket, found.record.key)
            if there is not None and there.upload == upload:
                if found.record.state == "complete":
                    self._settle(bucket, found)
                return
        with self._lock:
            if self._readers[bucket, upload]:
                self._waiting.add((bucket, upload))
                return
        self._remove_parts(bucket, upload)
        with contextlib.suppress(ConditionError):
            self._values.delete(bucket, upload_key(upload), Need(tag=found.tag))

    def empty(self, bucket: str) -> None:
        """Give up all uploads to a bucket that has no objects, and delete what they have stored."""
        for kind in ("pieces", "parts", "uploads"):
            found = self._values.all(bucket, f"{RESERVED}{kind}/")
            self._values.delete_all(bucket, [one.key for one in found])

    def _is_abandoned(self, bucket: str, found: OpenUpload) -> bool:
        """Whether nobody will end it."""
        if not found.record.multipart and bucket not in self._shared:
            return not self.uploads.is_under_way(found.id)
        latest = [
            found.written or 0.0,
            *(one.written or 0.0 for _, one in self.uploads.parts(bucket, found.id)),
        ]
        return self._clock() - max(latest) > self._limits.expires

    def _settle(self, bucket: str, found: OpenUpload) -> None:
        """Delete what has arrived with an object and is none of its parts."""
        with self._values.fetched(bucket, found.record.key, list_of_parts=True) as (facts, file):
            if stored(found.record.key, facts).upload != found.id:
                self.doom(bucket, found.id)
                return
            parts = decode_parts(file.read())
        wanted = {key for part in parts for key, _ in part.pieces(found.id)}
        pieces = [one.key for one in self._values.all(bucket, piece_prefix(found.id))]
        self._values.delete_all(bucket, [key for key in pieces if key not in wanted])
        self._values.delete_all(bucket, [one.key for one in self._values.all(bucket, part_prefix(found.id))])
        self.uploads.move(bucket, found, "settled")

    def _remove_parts(self, bucket: str, upload: str) -> None:
        for prefix in (piece_prefix(upload), part_prefix(upload)):
            self._values.delete_all(bucket, [one.key for one in self._values.all(bucket, prefix)])
