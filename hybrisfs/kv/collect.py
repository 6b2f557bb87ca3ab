"""Deletes from the clouds what no key refers to any more (Hybris 3.4), also what a crash has left there.

What is to be deleted is in the metadata store before it may be on any cloud, so nothing is searched for.

* **All clouds at once** delete a batch. One that fails, or has not answered some seconds after the others,
  owes the deletion, and the others go on.
* **A cloud that owes something** is not asked with the others. It has a thread of its own until it has
  deleted what it owes, so that it delays nobody.
* **Everything is deleted again**, twice (`repetition.py`). A request to put an object may still be on its
  way when the object is deleted: the daemon was killed, or has given up waiting for the cloud. If it takes
  effect later, a repetition deletes what it has left. The number of a write is never used again, so nothing
  that is deleted once comes to be needed.
"""

from __future__ import annotations

import logging
import sqlite3
import threading
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from msgspec import Struct

from hybrisfs.dispersal.values import Values
from hybrisfs.environment import Environment
from hybrisfs.errors import HybrisError
from hybrisfs.kv.metadata import MetadataStore, Owed
from hybrisfs.kv.repetition import Repetition, pack_writes, unpack_writes
from hybrisfs.kv.values import Uploader
from sync.codec import DecodeError

__all__ = ["CollectLimits", "Collector"]

log = logging.getLogger(__name__)


class CollectLimits(Struct, frozen=True):
    """See `hybrisfs.environment.Limits`."""

    batch: int = 500
    """Writes whose objects are deleted by one request."""
    patience: float = 5.0
    """Seconds after the answers of the others for which a cloud is waited for."""
    retry_pauses: tuple[float, float] = (5.0, 600.0)
    """Seconds, first and longest, after which a cloud is asked again for what it owes."""
    repeat_after: tuple[int, ...] = (20 * 60, 24 * 3600)
    """Seconds between a deletion and the next one of the same objects. S3 refuses requests that were signed
    more than 15 minutes ago."""


class _Late(NamedTuple):
    """A cloud that has not answered is left alone until then (the monotonic clock)."""

    until: float
    pause: float


class Collector:
    """`run` is the body of a thread. Writes are under way from `draw`, or `begin`, to `end`.

    *delay* is for how many seconds deletions are gathered, and
    readers of the old version may finish.
    """

    def __init__(
        self,
        metadata: MetadataStore,
        values: Values,
        uploader: Uploader,
        delay: float,
        environment: Environment,
    ) -> None:
        self._metadata = metadata
        self._values = values
        self._uploader = uploader
        self._delay = delay
        self._limits = environment.limits.of(CollectLimits)
        self._time = environment.time
        self._clock = environment.monotonic
        self._wait = environment.wait
        self._lock = threading.Lock()
        self._under_way = Counter[int]()
        self._collecting = threading.Lock()
        self._wake = threading.Event()
        self._stop = threading.Event()
        self._debtors: dict[int, threading.Thread] = {}  # by cloud
        self._debtor_ended = threading.Condition()  # guards the debtors, and which are late
        self._late: dict[int, _Late] = {}

    def draw(self, count: int, above: int = 0) -> list[int]:
        """Begin so many writes; return their numbers, which are higher than *above*."""
        writes: list[int] = []
        try:
            for _ in range(count):
                write = self._metadata.new_write(above)
                writes.append(write)  # also when the next one fails
        except BaseException:
            self._metadata.ended(writes)
            raise
        self.begin(writes)
        return writes

    def begin(self, writes: Sequence[int]) -> None:
        """These are not garbage although no key refers to them yet."""
        with self._lock:
            self._under_way.update(writes)

    def end(self, writes: Sequence[int]) -> None:
        """These are garbage now unless a key refers to them; what they have replaced is."""
        with self._lock:
            self._under_way.subtract(writes)
            self._under_way += Counter()  # drops those that nobody has under way any more
            over = [write for write in writes if write not in self._under_way]
        self._metadata.ended(over)
        self._wake.set()

    @contextmanager
    def sparing(self, write: int) -> Iterator[None]:
        """The objects of this write are not deleted in this context, even if the key gets another value."""
        self.begin([write])
        try:
            yield
        finally:
            self.end([write])

    def under_way(self) -> frozenset[int]:
        """The writes that have begun and not ended."""
        with self._lock:
            return frozenset(self._under_way)

    def run(self) -> None:
        """Collect whenever something was replaced, or is to be deleted again, until `stop`."""
        first, longest = self._limits.retry_pauses
        pause = first
        timeout: float | None = 0.0  # what an earlier run has left
        while not self._stop.is_set():
            self._wake.wait(timeout)
            if self._stop.wait(self._delay):
                break
            self._wake.clear()
            try:
                left = self.collect()
                timeout = pause if left else self._until_next()
            except (HybrisError, OSError, sqlite3.Error) as error:
                log.warning("what no key refers to cannot be deleted now: %s", error)
                left, timeout = True, pause
            pause = min(pause * 2, longest) if left else first
        with self._debtor_ended:
            debtors = list(self._debtors.values())
        for debtor in debtors:
            debtor.join()

    def stop(self) -> None:
        """Make `run` return, soon. What is left is collected at the next start."""
        self._stop.set()
        self._wake.set()

    def collect(self) -> bool:
        """Delete all that can be deleted now; return whether some cloud still has to delete something that is
        due.

        A cloud that has not answered some seconds after the others goes on by itself.
        """
        with self._collecting:
            self._metadata.gather_garbage()
            self._collect_garbage()
            self._collect_debts({*self._metadata.owing(), *self._due()})
        return bool(self._metadata.owing() or self._due())

    # -- all clouds at once ----------------------------------------------------------------------

    def _collect_garbage(self) -> None:
        after = 0
        while not self._stop.is_set() and not self._metadata.failed:
            # Under the lock nothing begins or ends: a write that is not under way is what the database says.
            with self._lock:
                found = self._metadata.garbage(after, self._limits.batch)
                over = [(*one,) for one in found if one.write not in self._under_way]
            if not found:
                break
            after = found[-1].write
            if over:
                self._delete_everywhere(over)

    def _delete_everywhere(self, writes: Sequence[tuple[int, int]]) -> None:
        names = self._names(writes)
        clouds = self._values.numbers
        asked = self._prompt(clouds)
        undone = self._values.delete(dict.fromkeys(asked, names), self._limits.patience)
        for cloud, one in undone.items():
            log.info("cloud %d will delete %d objects later: %s", cloud, len(names), one.reason)
            if one.late:
                self._note_late(cloud)
        done = asked - undone.keys()
        owed = [Owed(cloud, *write) for cloud in clouds - done for write in writes]
        self._metadata.forget_garbage([write for write, _ in writes], owed, self._again(done, writes, 1))

    def _prompt(self, clouds: frozenset[int]) -> frozenset[int]:
        """Those of the clouds that have nothing else to delete."""
        with self._debtor_ended:
            return clouds - self._metadata.owing().keys() - self._debtors.keys() - self._late.keys()

    def _names(self, writes: Iterable[tuple[int, int]]) -> list[str]:
        return [name for write, count in writes for name in self._uploader.names(write, count)]

    # -- one cloud by itself ---------------------------------------------------------------------

    def _collect_debts(self, clouds: Iterable[int]) -> None:
        """Have each of the clouds delete what it owes and what is to be deleted again, and wait a while."""
        with self._debtor_ended:
            begun = set()
            for cloud in clouds:
                late = self._late.get(cloud)
                if cloud in self._debtors or (late is not None and self._clock() < late.until):
                    continue
                thread = threading.Thread(
                    target=self._pay, args=(cloud,), name=f"kv-collect-{cloud}", daemon=True
                )
                try:
                    thread.start()
                except RuntimeError as error:  # too many threads, or too little memory
                    log.warning("cloud %d is asked later for what it owes: %s", cloud, error)
                    continue
                self._debtors[cloud] = thread
                begun.add(cloud)
            while (owing := begun & self._debtors.keys()) and self._wait(
                self._debtor_ended, lambda: begun & self._debtors.keys() != owing, self._limits.patience
            ):
                pass

    def _pay(self, cloud: int) -> None:
        try:
            while not self._stop.is_set() and not self._metadata.failed and self._pay_some(cloud):
                pass
        except (HybrisError, OSError, sqlite3.Error) as error:
            log.warning("cloud %d cannot delete now what it owes: %s", cloud, error)
        finally:
            with self._debtor_ended:
                del self._debtors[cloud]
                self._debtor_ended.notify_all()

    def _pay_some(self, cloud: int) -> bool:
        """Whether there may be more. A cloud that is no longer the volume's owes nothing."""
        owed = self._metadata.owed(cloud, self._limits.batch)
        if owed:
            # A few that have to wait must not keep the others waiting.
            written = self._values.being_written(cloud)
            owed = [one for one in owed if written.isdisjoint(self._names([(one.write, one.names)]))]
            writes = [(one.write, one.names) for one in owed]
            if not owed or not self._delete(cloud, writes):
                return False
            self._metadata.forget_owed(owed, self._again([cloud], writes, 1))
            return True
        return self._repeat_some(cloud)

    def _repeat_some(self, cloud: int) -> bool:
        """Whether there may be more."""
        writes, taken = list[tuple[int, int]](), list[int]()
        later = dict[int, list[tuple[int, int]]]()
        for one in self._metadata.repetitions(cloud, *self._not_yet_due(), self._limits.batch):
            try:
                unpacked = unpack_writes(one.writes)
            except DecodeError as error:
                log.warning("cloud %d does not delete again what it had to: %s", cloud, error)
                unpacked = []
            if writes and len(writes) + len(unpacked) > self._limits.batch:
                break
            taken.append(one.number)
            writes += unpacked
            later.setdefault(one.times + 1, []).extend(unpacked)
        if not taken or (writes and not self._delete(cloud, writes)):
            return False
        self._metadata.repeat(
            taken, [one for times, some in later.items() for one in self._again([cloud], some, times)]
        )
        return True

    def _delete(self, cloud: int, writes: Sequence[tuple[int, int]]) -> bool:
        """Wait for a cloud to delete the objects of these writes; whether it has, or is not the volume's."""
        if cloud not in self._values.numbers:
            return True
        undone = self._values.delete({cloud: self._names(writes)}).get(cloud)
        if undone is not None and undone.late:
            self._note_late(cloud)
        else:
            with self._debtor_ended:
                self._late.pop(cloud, None)
        return undone is None

    def _note_late(self, cloud: int) -> None:
        first, longest = self._limits.retry_pauses
        with self._debtor_ended:
            before = self._late.get(cloud)
            pause = first if before is None else min(before.pause * 2, longest)
            self._late[cloud] = _Late(self._clock() + pause, pause)

    # -- deleting again --------------------------------------------------------------------------

    def _again(
        self, clouds: Iterable[int], writes: Sequence[tuple[int, int]], times: int
    ) -> list[Repetition]:
        """When the clouds, which have deleted these writes so many times, do it the next time, if ever."""
        if not writes or times > len(self._limits.repeat_after):
            return []
        due = int(self._time()) + self._limits.repeat_after[times - 1]
        packed = pack_writes(writes)
        return [Repetition(cloud, due, times, packed) for cloud in clouds if cloud in self._values.numbers]

    def _not_yet_due(self) -> tuple[int, int]:
        """What is due from the one moment to the other is not due yet. Later ones are of a clock that was
        ahead."""
        now = int(self._time())
        return now + 1, now + max(self._limits.repeat_after, default=0)

    def _due(self) -> set[int]:
        """The clouds that have something to delete again now."""
        start, end = self._not_yet_due()
        return {cloud for cloud, due in self._metadata.first_repetitions().items() if not start <= due <= end}

    def _until_next(self) -> float | None:
        """In how many seconds something is to be deleted again."""
        due = min(self._metadata.first_repetitions().values(), default=None)
        return None if due is None else max(0.0, due - self._time())
