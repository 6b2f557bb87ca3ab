"""The log of signed updates in the database: signing our own, accepting others', and what `sync.LogState`
asks.

The state in memory follows from the tables `log` and `log_branch` alone. Nothing of an own update leaves the
device before the transaction that holds it is durable: a device that signed two updates with one predecessor
would fork itself.

The *own chain* is the path of updates signed with this device's key that its next update will follow. It
holds all that the device signed, unless it was restored from a backup and has gone on from there
(`sync.LogTree.newest`), and all that it has shipped as its own.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final, Protocol

from hybrisfs.environment import Environment
from hybrisfs.state.bulk import insert_many, select_with
from hybrisfs.state.database import RowWriter
from hybrisfs.state.moments import Moments
from hybrisfs.state.stored_log import branches, end_of_segment, hash_of, vector_of
from hybrisfs.topic import Topic
from sync import (
    HASH_SIZE,
    PREFIX_SIZE,
    Accepted,
    Bound,
    DecodeError,
    DeviceKey,
    Known,
    LimitError,
    LogRow,
    LogState,
    Members,
    Outcome,
    Reason,
    Refused,
    Rename,
    SignedUpdate,
    Successor,
    UpdateStamp,
    VersionVector,
    Write,
    decode_signed,
)
from sync.log_index import IndexEntry
from sync.log_tree import Placed

__all__ = ["LogRows", "UpdateLog"]

_FORKED: Final = 2  # tips
_LAST: Final = b"\xff" * (HASH_SIZE - PREFIX_SIZE)
_KNOWN: Final = "device, branch, clock, hash, vector"
_INSERT: Final = (
    "INSERT INTO log (branch, clock, device, hash, chunk_high, vector, time, bytes, moment) VALUES {}"
)


class LogRows:
    """The rows of accepted updates. Many may be stored at a time, but before anybody looks for one."""

    def __init__(self, database: RowWriter) -> None:
        self.database: Final = database
        self._unstored: list[tuple[object, ...]] = []
        self._deferring = False

    @contextmanager
    def deferred(self) -> Iterator[None]:
        """Within this context, rows that are added wait until a query needs them, or `store` is called."""
        self._deferring = True
        try:
            yield
        finally:
            self._deferring = False

    def add(self, row: tuple[object, ...]) -> None:
        """One more."""
        self._unstored.append(row)
        if not self._deferring:
            self.store()

    def store(self) -> None:
        """Store those that wait."""
        rows, self._unstored = self._unstored, []
        insert_many(self.database, _INSERT, rows)

    def drop(self) -> None:
        """Forget those that wait."""
        self._unstored.clear()

    def read(self, query: str, parameters: tuple[object, ...]) -> sqlite3.Cursor:
        """Run a query on the log."""
        self.store()
        return self.database.execute(query, parameters)

    def vector_of(self, branch: bytes, clock: int) -> VersionVector | None:
        """The full dependency vector of an accepted update."""
        self.store()
        return vector_of(self.database, branch, clock)


class Limiting(Protocol):
    """Says which updates limit devices, as `hybrisfs.members.role_table.Roles` does."""

    def binds(self, update: SignedUpdate) -> Collection[bytes]:
        """See `sync.AcceptedLog.binds`."""


class UpdateLog:
    """All accepted updates of one volume, under the volume's lock."""

    def __init__(
        self,
        rows: LogRows,
        environment: Environment,
        members: Members,
        key: DeviceKey,
        limiting: Limiting | None = None,
    ) -> None:
        """*limiting*: None when all updates are of one device."""
        self.grew = Topic[[]]()
        """There are updates more; called with the volume's lock held."""
        self._rows = rows
        self._db = rows.database
        self._key = key
        self._members = members
        self._limiting = limiting
        self.volume: bytes = rows.database.meta("volume")
        self.environment: Final = environment
        self._moments = Moments(rows.read, environment)
        self._through: bytes | None = None  # the hash of the update that a segment in the making ends with
        self._bounds: dict[bytes, Sequence[Bound]] = {}
        self._has_signed = False
        self.state = self._load()

    def _load(self) -> LogState:
        self._moments.clear()
        known = branches(self._db)
        tips = (
            self._db.execute(
                f"SELECT {_KNOWN} FROM log WHERE branch = ? ORDER BY clock DESC LIMIT 1", (branch.id,)
            ).fetchone()
            for branch in known
        )
        state = LogState(
            self.volume, self._members, self, known, (_known(row) for row in tips if row), self._bound_to()
        )
        for device, bounds in self._bounds.items():
            state.bind(device, bounds)
        return state

    def _bound_to(self) -> tuple[bytes, int] | None:
        """(branch, clock) of the newest update that the own chain has to lead through."""
        found: list[tuple[bytes, int]] = self._db.execute(
            "SELECT branch, clock FROM (SELECT branch, clock FROM log WHERE chunk_high IS NOT NULL "
            "ORDER BY clock DESC LIMIT 1) UNION ALL SELECT branch, clock FROM log WHERE hash = ?",
            (self._through,),
        ).fetchall()
        shipped = self._db.execute("SELECT name FROM log_segment ORDER BY first DESC LIMIT 1").fetchone()
        end = end_of_segment(self._db, shipped[0]) if shipped else None
        if end is not None:
            found.append((end.branch, end.clock))
        return max(found, key=lambda one: one[1], default=None)

    @property
    def device(self) -> bytes:
        return self._key.device_id

    @property
    def members(self) -> Members:
        """Whose updates are accepted now."""
        return self._members

    def set_members(self, members: Members) -> None:
        """From now on updates by these are accepted."""
        self.state.set_members(members)
        self._members = members

    def bind(self, device: bytes, bounds: Sequence[Bound]) -> None:
        """From now on updates of the device are to depend on these."""
        self._bounds[device] = bounds
        self.state.bind(device, bounds)

    def sign(self, writes: Sequence[Write], time_ns: int, chunk_high: int) -> SignedUpdate:
        """Sign *writes* as one transaction and store it. It names no chunk above *chunk_high*."""
        with self._all_or_nothing():
            if not self._has_signed:  # the first that is signed here tells whose the log is
                self._has_signed = True
                self._db.membership += 1
            accepted = self.state.next_update(writes, time_ns, self._key)
            self._store(accepted, chunk_high)
            return accepted.update

    def accept(self, data: bytes) -> Outcome:
        """Accept and store a signed update that came from anywhere, or say why not."""
        try:
            signed = decode_signed(data)
        except DecodeError as error:
            return Refused(Reason.MALFORMED, str(error))
        return self.accept_signed(signed)

    def accept_signed(self, signed: SignedUpdate, *, verified: bool = False) -> Outcome:
        """Like `accept`, of an update that is decoded already. *verified*: the caller has checked the
        signature, as it may without the volume's lock."""
        try:
            outcome = self.state.accept(signed, verified=verified)
            if isinstance(outcome, Accepted):
                self._store(outcome, None)
            return outcome
        except BaseException:
            self._reload()
            raise

    @contextmanager
    def deferred(self) -> Iterator[None]:
        """Within this context, rows of accepted updates are stored many at a time: at its end, or when a
        query needs them. The caller keeps the volume's lock, so that no transaction ends before."""
        try:
            with self._rows.deferred():
                yield
        finally:
            with self._all_or_nothing():
                self._rows.store()

    @contextmanager
    def _all_or_nothing(self) -> Iterator[None]:
        """The state in memory must not be ahead of the stored one."""
        try:
            yield
        except BaseException:
            self._reload()
            raise

    def _reload(self) -> None:
        self._rows.store()
        self.state = self._load()

    def _store(self, accepted: Accepted, chunk_high: int | None) -> None:
        header = accepted.update.header
        row = (
            accepted.branch,
            header.clock,
            header.writer,
            header.hash,
            chunk_high,
            accepted.dependencies.encode(),
            header.time_ns,
            accepted.update.data,
            self._moments.date(accepted.branch, header.clock, header.time_ns, accepted.dependencies),
        )
        if header.prev_clock and not accepted.forks:
            self._rows.add(row)
            return
        self._rows.store()
        self._db.execute("SAVEPOINT branches")
        try:
            self._store_branches(accepted.renames)
            insert_many(self._db, _INSERT, [row])
        except BaseException:
            self._db.execute("ROLLBACK TO branches")
            raise
        finally:
            self._db.execute("RELEASE branches")

    def moment_of(self, branch: bytes, clock: int) -> int:
        """The moment of an accepted update, ns since the epoch; 0 when there is no such one."""
        return self._moments.of(branch, clock)

    def forks(self) -> dict[bytes, int]:
        """The devices that have forked, each with the moment at which the youngest of its branches begins."""
        found: dict[bytes, int] = {}
        for branch in self.state.branches:
            if branch.parent is not None:
                query = "SELECT moment FROM log WHERE branch = ? ORDER BY clock LIMIT 1"
                row = self._rows.read(query, (branch.id,)).fetchone()
                found[branch.device] = max(row[0] if row else 0, found.get(branch.device, 0))
        return found

    def forked_headers(self, device: bytes) -> tuple[bytes, bytes] | None:
        """Two updates of a device that follow the same one, each from its header on; None when it has not
        forked, or too much of it is bare."""
        children: dict[tuple[bytes | None, int], list[bytes]] = {}
        for branch in self.state.branches:
            if branch.device == device and branch.parent is not None:
                first = self.successor_of(branch.id, 0)
                if first is not None and first.data is not None:
                    children.setdefault((branch.parent, branch.above), []).append(first.data)
        return next(((found[0], found[1]) for found in children.values() if len(found) > 1), None)

    def has_rejoined(self, device: bytes) -> bool:
        """Whether one branch of a device goes on from the ends of all its others: so does one that was
        restored from a backup and has got its log back. True also when it has not forked."""
        tips = [tip for tip in self.state.tips() if tip.device == device]
        return len(tips) < _FORKED or any(
            all(other is one or one.dependencies[other.branch] >= other.clock for other in tips)
            for one in tips
        )

    @contextmanager
    def adopting(self) -> Iterator[None]:
        """Like `deferred`, for what a checkpoint names: when that raises LimitError, nothing has changed."""
        self._db.execute("SAVEPOINT adoption")
        try:
            with self.deferred():
                yield
        except LimitError:
            self._db.execute("ROLLBACK TO adoption")
            self._rows.drop()
            self.state = self._load()
            raise
        finally:
            self._db.execute("RELEASE adoption")
            self._db.membership += 1

    def adopt(self, entry: IndexEntry, prev: bytes, causes: Sequence[bytes]) -> Placed:
        """Take in an update that a checkpoint names and that is not here, which follows and depends on those
        with these hashes; within `adopting`. Raises what `LogTree.adopt` raises."""
        placed = self.state.adopt(entry.device, entry.clock, entry.hash, prev, causes)
        if entry.prev is None or placed.siblings:
            self._rows.store()
            self._store_branches(placed.renames)
        vector = placed.dependencies.encode()
        moment = self._moments.date(placed.branch, entry.clock, entry.time_ns, placed.dependencies)
        row = (
            placed.branch,
            entry.clock,
            entry.device,
            entry.hash,
            None,
            vector,
            entry.time_ns,
            None,
            moment,
        )
        self._rows.add(row)
        return placed

    def _store_branches(self, renames: Iterable[Rename]) -> None:
        for rename in renames:
            self._rename(rename)
        self._db.membership += 1
        self._db.execute("DELETE FROM log_branch")
        self._db.executemany(
            "INSERT INTO log_branch (id, device, parent, above) VALUES (?, ?, ?, ?)",
            [(one.id, one.device, one.parent, one.above) for one in self.state.branches],
        )

    def _rename(self, rename: Rename) -> None:
        self._moments.clear()
        self._db.execute(
            "UPDATE log SET branch = ? WHERE branch = ? AND clock > ?", (rename.new, rename.old, rename.above)
        )
        rows = self._db.execute(  # what depends on an update has a higher clock
            "SELECT number, vector FROM log WHERE clock > ? AND instr(vector, ?)", (rename.above, rename.old)
        ).fetchall()
        self._db.executemany(
            "UPDATE log SET vector = ? WHERE number = ?",
            [(VersionVector.decode(vector).renamed([rename]).encode(), number) for number, vector in rows],
        )

    # -- the own chain ---------------------------------------------------------------------------

    def own_tip(self) -> Known | None:
        """The newest update of the own chain."""
        return self.state.newest(self.device)

    def own_tips(self) -> list[Known]:
        """The newest update of each branch of this device: the own chain's first, then the newest first."""
        own = self.own_tip()
        tips = [tip for tip in self.state.tips() if tip.device == self.device]
        return sorted(tips, key=lambda tip: (tip != own, -tip.clock, tip.hash))

    def own_after(self, clock: int, limit: int) -> list[tuple[int, int, int]]:
        """(clock, chunk_high, size in bytes) of up to *limit* updates of the own chain above *clock*: the
        first ones that are not bare, and consecutive."""
        found: list[tuple[int, int, int]] = []
        for branch, end in self._own_chain():
            for *row, size in self._rows.read(
                "SELECT clock, ifnull(chunk_high, 0), length(bytes) FROM log "
                "WHERE branch = ? AND clock > ? AND clock <= ? ORDER BY clock",
                (branch, clock, end),
            ):
                if len(found) >= limit or (size is None and found):
                    return found
                if size is not None:
                    found.append((row[0], row[1], size))
        return found

    def own_between(self, first: int, last: int) -> list[bytes]:
        """The updates of the own chain from clock *first* to *last*, in order, but for bare ones."""
        found: list[bytes] = []
        for branch, end in self._own_chain():
            rows = self._rows.read(
                "SELECT bytes FROM log WHERE branch = ? AND clock BETWEEN ? AND ? AND bytes IS NOT NULL "
                "ORDER BY clock",
                (branch, first, min(end, last)),
            )
            found += [row[0] for row in rows]
        return found

    def go_on_through(self, clock: int) -> None:
        """Keep to what the own chain is up to that clock: others are about to get it. What a device
        that was restored from a backup wrote before may come back on several branches."""
        branch = next(branch for branch, end in self._own_chain() if clock <= end)
        self.state.go_on_through(branch, clock)
        self._through = self._rows.read(
            "SELECT hash FROM log WHERE branch = ? AND clock = ?", (branch, clock)
        ).fetchone()[0]

    def _own_chain(self) -> list[tuple[bytes, int]]:
        """The branches of the own chain and the clocks at which they end, oldest first."""
        tip = self.own_tip()
        if tip is None:
            return []
        return self.path(tip)[::-1]

    # -- looking up ------------------------------------------------------------------------------

    def own_branches(self) -> set[bytes]:
        """The branches of this device."""
        return {one.id for one in self.state.branches if one.device == self.device}

    def tips(self) -> list[Known]:
        """The newest update of each branch that no other branch grows from: together they imply all."""
        return self.state.tips()

    def history(self) -> bytes:
        """The history hash at the tips: equal hashes mean equal logs."""
        return self.state.history()

    def path(self, known: Known) -> list[tuple[bytes, int]]:
        """(branch, clock) of an update and of each fork point below it, newest first."""
        return self.path_through(known.branch, known.clock)

    def path_through(self, branch: bytes, clock: int) -> list[tuple[bytes, int]]:
        """The same, of the update on *branch* at that clock."""
        return self.state.branches.path(branch, clock)

    def after(
        self, path: Sequence[tuple[bytes, int]], clock: int
    ) -> Iterator[tuple[int, bytes, bytes | None]]:
        """Clock, hash and bytes of the updates of a path above that clock, in order; a bare one has none."""
        for branch, end in reversed(path):
            yield from self._rows.read(
                "SELECT clock, hash, bytes FROM log WHERE branch = ? AND clock > ? AND clock <= ? "
                "ORDER BY clock",
                (branch, clock, end),
            )

    def next_whole(self, path: Sequence[tuple[bytes, int]], clock: int) -> int | None:
        """The clock of the first update of a path above that clock that is not bare; None when there is
        none."""
        query = (
            "SELECT min(clock) FROM log WHERE branch = ? AND clock > ? AND clock <= ? AND bytes IS NOT NULL"
        )
        rows = (self._rows.read(query, (branch, clock, end)) for branch, end in reversed(path))
        return next((found for row in rows for (found,) in row if found is not None), None)

    def signed_with(self, device: bytes) -> list[bytes]:
        """The updates that a device has signed, in the order in which they were accepted, but for bare
        ones."""
        query = "SELECT bytes FROM log WHERE device = ? AND bytes IS NOT NULL ORDER BY number"
        return [data for (data,) in self._rows.read(query, (device,))]

    def newest_below(self, branch: bytes, clock: int) -> Known | None:
        """The newest update on *branch* with at most this clock."""
        row = self._rows.read(
            f"SELECT {_KNOWN} FROM log WHERE branch = ? AND clock <= ? ORDER BY clock DESC LIMIT 1",
            (branch, clock),
        ).fetchone()
        return _known(row) if row else None

    def missing(self, known: VersionVector, after: int, size: int) -> list[LogRow]:
        """Updates with a number above *after* that *known* does not cover, in the order in which they were
        accepted: about *size* bytes of them, at least one if there is any. A bare one is the last."""
        rows: list[LogRow] = []
        start = self._first_missing(known, after)
        if start is None:
            return rows
        for number, branch, clock, device, identity, length in self._rows.read(
            "SELECT number, branch, clock, device, hash, length(bytes) FROM log WHERE number >= ? "
            "ORDER BY number",
            (start,),
        ):
            if clock <= known[branch]:
                continue
            size -= length or 0
            if size < 0 and rows:
                break
            data = self._rows.read("SELECT bytes FROM log WHERE number = ?", (number,)).fetchone()[0]
            rows.append(LogRow(number, UpdateStamp(device, clock, identity[:PREFIX_SIZE]), branch, data))
            if data is None:
                break
        return rows

    def _first_missing(self, known: VersionVector, after: int) -> int | None:
        """The number of the first update that `missing` returns."""
        first: list[int] = []
        for branch, clock in self.state.vector.items():
            if clock > known[branch]:
                newest, oldest = (
                    self._rows.read(
                        "SELECT number FROM log WHERE branch = ? AND clock >= ? ORDER BY clock LIMIT 1",
                        (branch, low),
                    ).fetchone()[0]
                    for low in (clock, known[branch] + 1)
                )
                if newest > after:
                    first.append(max(oldest, after + 1))
        return min(first, default=None)

    def update_at(self, branch: bytes, clock: int) -> bytes | None:
        """The bytes of an accepted update, None also when it is bare."""
        row = self._rows.read(
            "SELECT bytes FROM log WHERE branch = ? AND clock = ?", (branch, clock)
        ).fetchone()
        return row[0] if row else None

    def vector_of(self, branch: bytes, clock: int) -> VersionVector | None:
        """The full dependency vector of an accepted update."""
        return self._rows.vector_of(branch, clock)

    def binds(self, update: SignedUpdate) -> Collection[bytes]:
        return () if self._limiting is None else self._limiting.binds(update)

    def hash_of(self, branch: bytes, clock: int) -> bytes | None:
        self._rows.store()
        return hash_of(self._db, branch, clock)

    def find(self, prefix: bytes) -> Known | None:
        row = self._rows.read(
            f"SELECT {_KNOWN} FROM log WHERE hash BETWEEN ? AND ? LIMIT 1",
            (prefix + bytes(len(_LAST)), prefix + _LAST),
        ).fetchone()
        return _known(row) if row else None

    def known(self, hashes: Iterable[bytes]) -> set[bytes]:
        """Those of *hashes* that are of accepted updates."""
        self._rows.store()
        return {identity for (identity,) in select_with(self._db, "hash", "log", "hash", hashes)}

    def successor_of(self, branch: bytes, clock: int) -> Successor | None:
        row = self._rows.read(
            "SELECT hash, bytes FROM log WHERE branch = ? AND clock > ? ORDER BY clock LIMIT 1",
            (branch, clock),
        ).fetchone()
        return Successor(*row) if row else None

    def signed_by(self, branch: bytes, clock: int) -> tuple[bytes, int] | None:
        """Which device signed an accepted update, and when by its clock, ns since the epoch."""
        row: tuple[bytes, int] | None = self._rows.read(
            "SELECT device, time FROM log WHERE branch = ? AND clock = ?", (branch, clock)
        ).fetchone()
        return row


def _known(row: tuple[bytes, bytes, int, bytes, bytes]) -> Known:
    device, branch, clock, identity, vector = row
    return Known(device, branch, clock, identity, VersionVector.decode(vector))
