"""Values that are dispersed one by one, each under names of its own, and their deletion (Hybris 3.2 to 3.5).

What a value's shares must be is known beforehand, from the metadata store: each object's exact size, so that
a cloud cannot make us take in more (4.4), and its checksum, so that a lie costs one cloud and no decoding.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Final, NamedTuple

from msgspec import Struct

from hybrisfs.dispersal import reader, writer
from hybrisfs.dispersal.cloud import Answer
from hybrisfs.dispersal.clouds import DEADLINE, TIMER, Clouds, Interrupt, OperationLoop
from hybrisfs.dispersal.erasure import fragment_length, join
from hybrisfs.dispersal.errors import CloudsUnavailable, IntegrityError
from hybrisfs.dispersal.reader import Read, Target
from hybrisfs.dispersal.writer import Placement, Write
from sync.codec import Buffer

__all__ = ["StoredValue", "Undone", "Values"]

_INDULGENT: Final = 1 << 30  # rounds; the deadline ends them
_DELETE_SECONDS: Final = 120.0


class StoredValue(Struct, frozen=True):
    """Where a value is: cloud `placement[i]` holds the object `name(i)`, which `checksums[i]` proves.

    `size` is that of the value as it was sealed, in bytes.
    """

    what: str
    name: Callable[[int], str]
    k: int
    size: int
    placement: Sequence[int]
    checksums: Sequence[bytes]
    checksum: Callable[[bytes], bytes]

    @property
    def share_size(self) -> int:
        """The exact size in bytes of each object."""
        return fragment_length(self.k, self.size)

    def verify(self, index: int, data: bytes) -> None:
        """Raise IntegrityError unless `data` is the object of share `index`."""
        if self.checksum(data) != self.checksums[index]:
            raise IntegrityError("it is not the object that was written")


class Undone(NamedTuple):
    """Why a cloud has not deleted everything. One that is *late* has not answered, and may still do it."""

    reason: str
    late: bool = False


class Values:
    """Puts, gets and deletes the shares of values. Thread-safe; blocks for a bounded time only."""

    def __init__(self, clouds: Clouds, put_timeout: float) -> None:
        self._clouds = clouds
        self._put_timeout = put_timeout

    @property
    def numbers(self) -> frozenset[int]:
        """The numbers of the clouds."""
        return frozenset(port.number for port in self._clouds)

    def put(self, what: str, name: Callable[[int], str], shares: Sequence[Buffer], copies: bool) -> Placement:
        """Store each share on a cloud of its own; return the cloud of each. Raises CloudsUnavailable.

        With `copies` all shares are one object with one name.
        """
        write = Write(what, len(shares), len(shares[0]), name, shares.__getitem__, fungible=copies)
        return writer.put(self._clouds, write, self._put_timeout)

    def get(
        self,
        value: StoredValue,
        timeout: float,
        current: Callable[[], bool],
        subscribe: Callable[[Callable[[], None]], AbstractContextManager[object]] | None = None,
    ) -> Buffer:
        """Return the sealed value, proven. Raises CloudsUnavailable.

        `current` says whether the value is still the key's, so that a cloud without it is to blame.
        Without `subscribe` this is the GET of the common case (3.3): every cloud is asked once. With it, that
        of the worst case (3.5): all are asked at once and again until `timeout`, and Superseded is raised
        when the subscription tells of a newer value.
        """
        size = value.share_size
        read = Read(
            what=value.what,
            k=value.k,
            targets=[Target(cloud, value.name(i), owed=True) for i, cloud in enumerate(value.placement)],
            size=size,
            fetch=lambda store, name: store.get(name, limit=size),
            rebuild=lambda parts: _rebuild(value, parts),
            recheck=lambda index: (size, lambda data: value.verify(index, data)),
            failure=CloudsUnavailable,
            blame=lambda parts, _: _wrong(value, parts),
            rounds=_INDULGENT if subscribe else 0,
            eager=subscribe is not None,
            current=current,
            subscribe=subscribe,
        )
        return reader.get(self._clouds, read, timeout)

    def being_written(self, cloud: int) -> set[str]:
        """The objects that a put may still be going on of, also one that nobody waits for any more."""
        return self._clouds[cloud].under_way() if cloud in self._clouds else set()

    def delete(self, wanted: Mapping[int, Iterable[str]], patience: float | None = None) -> dict[int, Undone]:
        """Delete objects by cloud, from all clouds at once; return why, for those that did not do it all.

        With *patience*, those that have not answered so many seconds after the last one that has are not
        waited for. A deleted object is no longer owed. The caller has made sure that no put of it can begin
        any more.
        """
        failed = {cloud: Undone("is no longer configured") for cloud in wanted if cloud not in self._clouds}
        names = {cloud: set(some) for cloud, some in wanted.items() if cloud in self._clouds}
        with OperationLoop[tuple[int, Answer[None]]](self._clouds.operations, _DELETE_SECONDS) as loop:
            waiting = set()
            for cloud, some in names.items():
                refused = self._refused(cloud, some)
                if refused is None:
                    waiting.add(cloud)
                    self._begin(loop, cloud, sorted(some))
                else:
                    failed[cloud] = Undone(refused)
            while waiting:
                if patience is not None:
                    loop.set_timer(patience)
                match loop.wait():
                    case Interrupt() as interrupt:
                        return failed | _undone(loop, interrupt, waiting)
                    case cloud, answer:
                        waiting.discard(cloud)
                        if answer.error is not None:
                            failed[cloud] = Undone(answer.reason)
                        else:
                            for name in names[cloud]:
                                self._clouds[cloud].cleared(name)
        return failed

    def _refused(self, cloud: int, names: set[str]) -> str | None:
        port = self._clouds[cloud]
        if port.stalled() is not None:
            return port.stalled()
        if port.refused_deletion() is not None:
            return port.refused_deletion()
        if port.status().state in ("down", "refusing") and not port.probe_due():
            return port.status().reason
        # A put that nobody waits for any more may still be going on; it would outlive the deletion.
        return "it is still being written" if self.being_written(cloud) & names else None

    def _begin(self, loop: OperationLoop[tuple[int, Answer[None]]], cloud: int, names: Sequence[str]) -> None:
        port = self._clouds[cloud]
        job = port.submit(
            "get",  # a full cloud deletes, too
            0,
            lambda store: store.delete_many(names),
            lambda answer: loop.report((cloud, answer)),
            clock=loop.clock,
            ranked=False,
            deletes=True,
        )
        loop.track(port, job)


def _undone(
    loop: OperationLoop[tuple[int, Answer[None]]], interrupt: Interrupt, waiting: Iterable[int]
) -> dict[int, Undone]:
    if interrupt is TIMER:
        why = f"no answer {loop.timer_length:.0f} s after those of others"
        return dict.fromkeys(waiting, Undone(why, late=True))
    reasons = loop.explain(interrupt, waiting)
    return {cloud: Undone(why, late=interrupt is DEADLINE) for cloud, why in reasons.items()}


def _wrong(value: StoredValue, parts: Mapping[int, bytes]) -> dict[int, str]:
    reason = f"is wrong: it is not the object that was written for {value.what}"
    return {i: reason for i, data in parts.items() if value.checksum(data) != value.checksums[i]}


def _rebuild(value: StoredValue, parts: Mapping[int, bytes]) -> Buffer:
    if _wrong(value, parts):
        raise IntegrityError("it is not the object that was written")
    return join(value.k, len(value.placement), parts, value.size)
