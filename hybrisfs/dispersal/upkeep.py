"""Looking at single objects on single clouds, and putting them right (docs/internals/placement.md)."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import NamedTuple, TypeVar

from msgspec import Struct

from backends.errors import TransientError
from backends.store import Store
from backends.versions import MAX_VERSIONS, older_versions
from hybrisfs.dispersal.chunks import fetch_header, sample_share, share_check
from hybrisfs.dispersal.cloud import Answer, CloudStatus
from hybrisfs.dispersal.clouds import Clouds, Interrupt, OperationLoop
from hybrisfs.dispersal.erasure import fragment_length, join, split
from hybrisfs.dispersal.errors import Finding, IntegrityError
from hybrisfs.dispersal.probe import Owed, all_names, check
from hybrisfs.dispersal.ranking import Operation
from hybrisfs.dispersal.reader import Readable, older_bytes
from hybrisfs.dispersal.share import (
    INDEX_OFFSET,
    MAX_SHARE,
    MAX_TABLE,
    PREFIX_SIZE,
    Table,
    TableEntry,
    TableSealer,
    hash_fragment,
    parse_header,
    share_name,
    verify_share,
)
from sync.codec import Buffer

__all__ = ["PackRebuild", "Repair", "Upkeep", "WrongObject", "candidates", "restore"]

T = TypeVar("T")

_GLANCE = 16  # bytes; less than any object has that is put with `put_pack` or holds a part of the log
_NUMBERS = 256  # numbers of clouds are below
_TRIES = 3  # so many failures in a row make a cloud count as down


class WrongObject(NamedTuple):
    """An object that a cloud is known to have lost or altered."""

    cloud: int
    name: str


class Upkeep:
    """What scrub and repair need of the clouds of one engine. Thread-safe; blocks for a bounded time.

    A cloud that is known to be down is not asked: what is not asked counts as unreadable.
    """

    def __init__(self, clouds: Clouds, tables: TableSealer, get_timeout: float, put_timeout: float) -> None:
        self._clouds = clouds
        self._tables = tables
        self._get_timeout = get_timeout
        self._put_timeout = put_timeout

    def look_at_share(self, cloud: int, pack_id: bytes, index: int) -> Finding | None:
        """Read and verify a whole share; return what is wrong with it."""
        return self.look_at(
            cloud, share_name(pack_id, index), MAX_SHARE, share_check(self._tables, pack_id, index)
        )

    def sample_share(
        self,
        cloud: int,
        pack_id: bytes,
        index: int,
        *,
        most: float = math.inf,
        expected: int = 0,
        acknowledged: bool = True,
    ) -> Finding | None:
        """Read and verify the header of a share and one random fragment; return what is wrong.

        Of fragments no more than *most* bytes are read on average: with 0 only the header is. That takes one
        request if the sealed table has at most the *expected* bytes. Unless the share was *acknowledged*,
        the cloud is not to blame when it lacks it.
        """
        return self._refused(cloud, share_name(pack_id, index)) or sample_share(
            self._clouds,
            cloud,
            self._tables,
            pack_id,
            index,
            self._get_timeout,
            most=most,
            expected=expected,
            acknowledged=acknowledged,
        )

    def gather_share(self, cloud: int, pack_id: bytes, index: int, rebuild: PackRebuild) -> Finding | None:
        """Read a whole share into `rebuild`; return what is wrong with it."""
        check = share_check(self._tables, pack_id, index)
        return self.look_at(
            cloud, share_name(pack_id, index), MAX_SHARE, check, lambda data: rebuild.take(index, data)
        )

    def look_at(
        self,
        cloud: int,
        name: str,
        limit: int,
        verify: Callable[[bytes], object],
        take: Callable[[bytes], object] | None = None,
        *,
        acknowledged: bool = True,
    ) -> Finding | None:
        """Read and verify an object that the cloud acknowledged; return what is wrong with it.

        `verify` is kept for later looks at a wrong object. `take` verifies in its place now, and is not kept.
        Unless it is *acknowledged*, the cloud is not to blame when it lacks the object.
        """
        found = self._refused(cloud, name)
        if found is not None:
            return found
        owed = Owed(self._clouds[cloud], name, limit, verify, acknowledged)
        for _ in range(_TRIES):
            found = check(self._clouds, owed, self._get_timeout, take)
            if found is None or found.kind != "unreadable" or self.is_down(cloud):
                break
        return found

    def holders(self, name: str) -> frozenset[int]:
        """The clouds that have acknowledged some version of an object since the start, if it was put with
        `Engine.put_everywhere`. Each of them has that version or a later one."""
        return frozenset(port.number for port in self._clouds if port.has_acknowledged(name))

    def recall(
        self,
        cloud: int,
        name: str,
        limit: int,
        take: Callable[[bytes], object],
        most: int = MAX_VERSIONS,
    ) -> bool:
        """Offer `take` what the cloud keeps of an object that is missing or wrong now, at most so many
        versions, the newest first; whether it has accepted something. It raises ValueError or IntegrityError
        for what is wrong."""

        def fetch(store: Readable, name: str) -> bytes:
            return store.get(name, limit=limit)

        timeout = self._get_timeout
        listed = self._call(cloud, "get", 0, lambda store: older_versions(store, name, most), None, timeout)
        for version in listed.value or ():
            read = partial(older_bytes, name=name, version=version, fetch=fetch)
            size = min(max(version.size, 0), limit)  # as the cloud claims
            data = self._call(cloud, "get", size, read, None, timeout).value
            with contextlib.suppress(IntegrityError, ValueError):
                if data is not None:
                    take(data)
                    return True
        return False

    def with_older(self, cloud: int, finding: Finding | None) -> Finding | None:
        """What is wrong, and whether the cloud keeps the right object as an older version."""
        expected = finding.expected if finding is not None else None
        if finding is None or expected is None:
            return finding
        return replace(finding, older=self.recall(cloud, *expected))

    def is_there(self, cloud: int, name: str) -> bool | None:
        """Whether the cloud has something under the name of an object, by its first bytes; None when it does
        not tell. Nothing is held against it."""
        if self._refused(cloud, name) is not None:
            return None
        answer = self._call(
            cloud, "get", _GLANCE, lambda store: store.get_range(name, 0, _GLANCE), None, self._get_timeout
        )
        if answer.missing or answer.corrupt:
            return False
        return None if answer.error is not None else True

    def shows(self, cloud: int, name: str, data: Buffer) -> bool:
        """Whether the cloud shows an object of this length, at least, with the same bytes at the end. Nothing
        is held against it."""
        if self._refused(cloud, name) is not None:
            return False
        with memoryview(data) as view:
            offset, end = len(view) - _GLANCE, bytes(view[-_GLANCE:])
        answer = self._call(
            cloud,
            "get",
            _GLANCE,
            lambda store: store.get_range(name, offset, _GLANCE),
            None,
            self._get_timeout,
        )
        return answer.value == end

    def find_shares(self, pack_id: bytes, n: int) -> tuple[int, ...]:
        """Look on all clouds for the shares of a pack of *n*: a cloud for each, one that does not exist for a
        share that none shows; nothing when none shows any. Nothing is held against any cloud."""
        found = [self.find_share(pack_id, index) for index in range(n)]
        if not any(cloud is not None for cloud in found):
            return ()
        absent = iter(number for number in range(_NUMBERS, _NUMBERS + n))
        return tuple(next(absent) if cloud is None else cloud for cloud in found)

    def find_share(self, pack_id: bytes, index: int) -> int | None:
        """A cloud that shows a share; None when none does."""
        name = share_name(pack_id, index)
        return next((port.number for port in self._clouds if self.is_there(port.number, name)), None)

    def table(self, cloud: int, pack_id: bytes, index: int) -> Table | None:
        """What a share says that its pack holds; None when that cannot be read, or is not of this pack.
        Nothing is held against the cloud."""
        name = share_name(pack_id, index)
        if self._refused(cloud, name) is not None:
            return None
        fetch = partial(fetch_header, name=name)
        header = self._call(cloud, "get", MAX_TABLE, fetch, None, self._get_timeout).value
        if header is None:
            return None
        try:
            return parse_header(header, self._tables, pack_id)[1]
        except IntegrityError:
            return None

    def put(self, cloud: int, name: str, data: Buffer) -> str | None:
        """Put an object on one cloud; return None when it is acknowledged, else why it is not."""
        return self._write(cloud, len(data), lambda store: store.put(name, data), name)

    def put_if_absent(self, cloud: int, name: str, data: Buffer) -> str | None:
        """Put an object on one cloud unless there is one; return None when that is acknowledged, else why it
        is not."""
        return self._write(cloud, len(data), lambda store: store.put_if_absent(name, data), name)

    def delete(self, cloud: int, names: Sequence[str]) -> str | None:
        """Delete objects from one cloud; return None when they are gone, else why some may not be.

        A cloud that has refused lately is not asked: see `refused_deletion`.
        """
        refused = self.refused_deletion(cloud)
        if refused is not None:
            return refused
        answer = self._call(
            cloud, "put", 0, lambda store: store.delete_many(names), None, self._put_timeout, deletes=True
        )
        return answer.reason if answer.error is not None else None

    def refused_deletion(self, cloud: int) -> str | None:
        """Why a cloud has lately refused to let this device delete anything, None when it has not. Then
        another device is to do that, one whose credentials have the right."""
        return self._clouds[cloud].refused_deletion() if cloud in self._clouds else None

    def refusing(self) -> set[int]:
        """The clouds that have lately refused to let this device delete anything."""
        return {port.number for port in self._clouds if port.refused_deletion() is not None}

    def names(self, cloud: int, prefix: str, most: int) -> list[str] | None:
        """Return the names that a cloud claims to have, at most `most`; None when it does not tell."""
        call = partial(all_names, prefix=prefix, most=most)
        return self._call(cloud, "get", 0, call, None, self._get_timeout).value

    def read(self, cloud: int, name: str, limit: int) -> Answer[bytes]:
        """Read a small object of one cloud. Nothing is held against the cloud."""
        return self._call(
            cloud, "get", _GLANCE, lambda store: store.get(name, limit=limit), None, self._get_timeout
        )

    def all_signing(self) -> list[int]:
        """Return all clouds that can make URLs for others, if they work now or not."""
        return [port.number for port in self._clouds if port.signs]

    def signing(self, size: int) -> list[int]:
        """Return the clouds that take objects and can make URLs for others, the best for objects of `size`
        bytes first."""
        return [cloud for cloud in self.order(size) if self._clouds[cloud].signs]

    def signed_urls(
        self, cloud: int, names: Sequence[str], seconds: int, content_type: str
    ) -> Answer[list[str]]:
        """URLs by which everybody who has them can read objects of a cloud that signs, for so long; see
        `backends.store.signed_url`."""
        return self._clouds[cloud].signed_urls(names, seconds, content_type)

    def _write(self, cloud: int, size: int, call: Callable[[Store], object], key: str | None) -> str | None:
        answer = self._call(cloud, "put", size, call, key, self._put_timeout)
        return answer.reason if answer.error is not None else None

    def _call(
        self,
        cloud: int,
        operation: Operation,
        size: int,
        call: Callable[[Store], T],
        key: str | None,
        timeout: float,
        *,
        deletes: bool = False,
    ) -> Answer[T]:
        if cloud not in self._clouds:
            return Answer(None, TransientError("", operation, "", "it is no longer configured"))
        port = self._clouds[cloud]
        stalled = port.stalled()
        if stalled is not None:
            return Answer(None, TransientError(port.url, operation, "", stalled))
        with OperationLoop[Answer[T]](self._clouds.operations, timeout) as loop:
            job = port.submit(operation, size, call, loop.report, clock=loop.clock, key=key, deletes=deletes)
            loop.track(port, job)
            event = loop.wait()
            if isinstance(event, Interrupt):
                reason = loop.explain(event, [cloud])[cloud]
                return Answer(None, TransientError(port.url, operation, "", reason))
        return event

    def by_name(self, reasons: Mapping[int, str]) -> dict[str, str]:
        """Return reasons by cloud number as reasons by name."""
        return self._clouds.by_name(reasons)

    def is_configured(self, cloud: int) -> bool:
        """Whether the cloud is one of the volume's still."""
        return cloud in self._clouds

    def is_down(self, cloud: int) -> bool:
        """Whether the cloud is not configured any more, or is known to answer nothing now."""
        return cloud not in self._clouds or self._clouds[cloud].status().state in ("down", "refusing")

    def failures(self, cloud: int) -> int:
        """How many requests to the cloud have failed since the start."""
        return self._clouds[cloud].traffic.counters().failed if cloud in self._clouds else 0

    def takes_objects(self, cloud: int) -> bool:
        """Whether it makes sense to put something on this cloud now."""
        return self._clouds.takes_writes(cloud) and not self.is_down(cloud) and not self._clouds[cloud].full

    def order(self, size: int) -> list[int]:
        """Return the clouds that take objects, the best for objects of `size` bytes first."""
        return [cloud for cloud in self._clouds.order("put", size) if self.takes_objects(cloud)]

    def wrong_objects(self) -> list[WrongObject]:
        """Return what reads, check-ups and scrubs have found wrong, the longest known first."""
        return [WrongObject(port.number, name) for port in self._clouds for name in port.offences()]

    def excuse(self, cloud: int, name: str) -> None:
        """The cloud need not have this object any more: it is somewhere else."""
        if cloud in self._clouds:
            self._clouds[cloud].cleared(name)

    def _refused(self, cloud: int, name: str) -> Finding | None:
        if cloud not in self._clouds:
            return Finding("unreadable", f"{name}: cloud {cloud} is no longer configured")
        status: CloudStatus = self._clouds[cloud].status()
        if status.state in ("down", "refusing") and not self._clouds[cloud].probe_due():
            return Finding("unreadable", f"{name} cannot be read: {status.reason}")
        return None


# -- putting an object back onto a cloud that has lost or altered it ------------------------------------


class Repair(Struct, frozen=True):
    """An object that was wrong on a cloud: where it is now, or why it could not be repaired."""

    cloud: int
    finding: Finding
    now_at: int | None
    failure: str = ""


def candidates(
    upkeep: Upkeep, cloud: int, holders: Container[int], size: int, *, writable: Container[int], move: bool
) -> list[int]:
    """The clouds that may take an object of *cloud*: itself first, others only with *move*.

    *holders* have a part of the same thing already; only *writable* clouds are known to be ours.
    """
    found = [cloud] if upkeep.takes_objects(cloud) and cloud in writable else []
    if move:
        found += [one for one in upkeep.order(size) if one not in holders and one in writable]
    return found


def restore(
    upkeep: Upkeep,
    name: str,
    data: bytes,
    targets: Sequence[int],
    check: Callable[[int], Finding | None],
) -> int | str:
    """Put an object on the first of *targets* that takes it and then gives it back; which, or why none."""
    reason = "no cloud can take it now"
    for target in targets:
        refusal = upkeep.put(target, name, data)
        if refusal is None:
            found = check(target)
            if found is None:
                return target
            refusal = found.what
        reason = refusal
    return reason


# -- rebuilding the shares of a pack from what is good in the others (PASIS 4.2, Pond 4.5) --------------
# The pack id proves the table and the table proves every fragment, so a share that is damaged in one place
# still gives what is good in it: a pack can be rebuilt when every chunk has k good fragments anywhere.


class PackRebuild:
    """Takes the shares of one pack as clouds return them, until all others follow. Not thread-safe.

    Holds the shares that it was given and needs: at most n of them, of a pack that was bounded when made.
    """

    def __init__(self, pack_id: bytes, tables: TableSealer) -> None:
        self._pack_id = pack_id
        self._tables = tables
        self._table: Table | None = None
        self._header = b""
        self._good: dict[int, dict[int, memoryview]] = {}  # fragments by entry number, then by index

    @property
    def table(self) -> Table | None:
        """What the pack holds, once a share has proved it."""
        return self._table

    @property
    def complete(self) -> bool:
        """Whether every share can be made from what is here."""
        table = self._table
        return table is not None and all(
            len(self._good.get(number, {})) >= table.k for number in range(len(table.entries))
        )

    def take(self, index: int, data: bytes) -> None:
        """Keep what is good in share `index`. Raises IntegrityError when anything of it is wrong."""
        problems = verify_share(data, self._pack_id, index, self._tables)
        prefix, table = parse_header(data, self._tables, self._pack_id)
        if index >= table.n:
            raise IntegrityError(f"a pack of {table.n} shares has no share {index}")
        if self._table is None:
            self._table, self._header = table, data[: PREFIX_SIZE + prefix.table_size]
        # The fragments tell by their hashes which share they belong to, whatever the prefix claims.
        position = 0 if table.k == 1 else index
        view = memoryview(data)
        for number, entry in enumerate(table.entries):
            fragment = view[entry.offset : entry.offset + fragment_length(table.k, entry.sealed_length)]
            if hash_fragment(fragment) == table.fragment_hash(entry, position):
                self._good.setdefault(number, {})[position] = fragment
        if problems:
            more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
            raise IntegrityError(problems[0] + more)

    def share(self, index: int) -> bytes:
        """Return share `index`, proven. Raises IntegrityError when too little is known of the pack."""
        table = self._table
        position = 0 if table is None or table.k == 1 else index
        if table is None or index >= table.n or not (self.complete or self._holds(table, position)):
            raise IntegrityError(f"too little of pack {self._pack_id.hex()[:16]} is left to rebuild a share")
        header = bytearray(self._header)
        header[INDEX_OFFSET] = position
        fragments = [
            self._fragment(table, number, entry, position) for number, entry in enumerate(table.entries)
        ]
        return b"".join((header, *fragments))

    def _holds(self, table: Table, position: int) -> bool:
        """Whether every fragment of that share is here as it was written."""
        return all(position in self._good.get(number, {}) for number in range(len(table.entries)))

    def _fragment(self, table: Table, number: int, entry: TableEntry, position: int) -> Buffer:
        good = self._good[number]
        if position in good:
            return good[position]
        sealed = join(table.k, table.n, good, entry.sealed_length)
        fragment = split(table.k, table.n, sealed)[position]
        if hash_fragment(fragment) != table.fragment_hash(entry, position):
            raise IntegrityError(f"pack {self._pack_id.hex()[:16]} was written with fragments that disagree")
        return fragment
