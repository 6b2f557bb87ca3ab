"""Is the log sound? Each update is verified as when it was accepted (`sync.log`), with what it stands on."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from typing import Final, NamedTuple

from hybrisfs.members.role_table import Roles
from hybrisfs.merge.authority import counting
from hybrisfs.state.database import Snapshot
from hybrisfs.state.stored_log import (
    StoredUpdate,
    branches,
    hash_of,
    update_beginning,
    updates_in_order,
    vector_of,
)
from sync import (
    PREFIX_SIZE,
    ZERO_HASH,
    Branches,
    DecodeError,
    SignedHeader,
    SignedUpdate,
    UpdateStamp,
    VersionVector,
    branch_id,
    decode_signed,
    history_hash,
)

__all__ = ["LogRow", "LogCheck", "Vectors"]

_MOST_VECTORS: Final = 4096


class LogRow(NamedTuple):
    """An update as the log has it, with those of its writes that count."""

    branch: bytes
    clock: int
    update: SignedUpdate


class _Cause(NamedTuple):
    """An update that another one names."""

    number: int
    branch: bytes
    clock: int
    device: bytes
    hash: bytes
    vector: VersionVector


class Vectors:
    """The dependencies of recorded updates; the latest look-ups are cached."""

    def __init__(self, db: Snapshot) -> None:
        self._db = db
        self._recent: OrderedDict[tuple[bytes, int], VersionVector | None] = OrderedDict()

    def of(self, branch: bytes, clock: int) -> VersionVector | None:
        """The full dependency vector of an update; None when there is none that makes sense."""
        at = branch, clock
        if at not in self._recent:
            try:
                self._recent[at] = vector_of(self._db, branch, clock)
            except DecodeError:
                self._recent[at] = None
            if len(self._recent) > _MOST_VECTORS:
                self._recent.popitem(last=False)
        return self._recent[at]


class LogCheck:
    """One pass over the log in *db*, a snapshot of the database of *volume* on the device *device*.

    *public_keys*: of the members.
    """

    def __init__(
        self,
        db: Snapshot,
        volume: bytes,
        device: bytes,
        public_keys: Mapping[bytes, bytes],
    ) -> None:
        self._db = db
        self._volume = volume
        self._device = device
        self._public_keys = public_keys
        self._branches = Branches()
        self._roles = Roles(db)
        self._newest: dict[bytes, _Cause] = {}  # by branch, of the updates seen so far

    def branches(self) -> Iterator[str]:
        """What is wrong with the table of branches; call it before `updates`."""
        rows = branches(self._db)
        waiting = [row for row in rows if row.parent is None and row.id == row.device and row.above == 0]
        while waiting:
            branch = waiting.pop()
            self._branches.add(branch)
            waiting += [row for row in rows if row.parent == branch.id and row.device == branch.device]
        for row in rows:
            if row.id not in self._branches:
                yield f"branch {row.id.hex()} of machine {row.device.hex()} grows from nothing"

    def updates(self, wrong: Callable[[str], None]) -> Iterator[LogRow | None]:
        """The updates in order, None for bare ones and what cannot be decoded; *wrong* hears what is wrong
        with each."""
        for row in updates_in_order(self._db):
            name = f"update {row.clock} of machine {row.device.hex()}"
            if row.data is None:
                self._newest[row.branch] = _cause(row[:5], row.vector)
                yield None
                continue
            try:
                update = decode_signed(row.data)
            except DecodeError as error:
                wrong(f"{name}: {error}")
                yield None
                continue
            try:
                problem = self._problem(row, update.header)
                self._newest[row.branch] = _cause(row[:5], row.vector)
            except (DecodeError, LookupError) as error:
                problem = f"what is recorded of it makes no sense ({error})"
            if problem:
                wrong(f"{name}: {problem}")
            yield LogRow(row.branch, row.clock, counting(update, row.vector, self._roles))

    def _problem(self, row: StoredUpdate, header: SignedHeader) -> str | None:
        if header.volume != self._volume:
            return f"it belongs to volume {header.volume.hex()}"
        public = self._public_keys.get(header.writer)
        if public is None:
            return "its writer is not a member"
        if not header.verify(public):
            return "its signature is wrong"
        if (header.writer, header.clock, header.hash) != (row.device, row.clock, row.hash):
            return "the columns beside it describe another update"
        if row.chunk_high is not None and header.writer != self._device:
            return "it is recorded as signed on this machine, which is not its writer"
        prev = self._previous(header)
        if prev is None or not prev.number < row.number:
            return "it does not follow the one before"
        if not self._is_next(row, prev):
            return f"it is recorded on branch {row.branch.hex()}, where it does not belong"
        return self._wrong_causes(row, header, prev)

    def _previous(self, header: SignedHeader) -> _Cause | None:
        if header.prev == ZERO_HASH:
            return _Cause(0, header.writer, 0, header.writer, ZERO_HASH, VersionVector())
        found = self._find(header.prev)
        stamp = header.writer, header.prev_clock
        return found if found is not None and (found.device, found.clock) == stamp else None

    def _find(self, beginning: bytes) -> _Cause | None:
        """The update whose hash begins so."""
        for cause in self._newest.values():
            if cause.hash.startswith(beginning):
                return cause
        update = update_beginning(self._db, beginning)
        return None if update is None else _cause(update[:5], update.vector)

    def _is_next(self, row: StoredUpdate, prev: _Cause) -> bool:
        """Whether the update stands right above the one that it follows, or begins a branch there."""
        branch = self._branches[row.branch]
        newest = self._newest.get(row.branch)
        if newest is not None:
            return newest.hash == prev.hash
        if branch.parent is None:
            return prev.number == 0
        grows = (branch.parent, branch.above) == (prev.branch, prev.clock)
        return grows and row.branch == branch_id(prev.branch, row.hash)

    def _wrong_causes(self, row: StoredUpdate, header: SignedHeader, prev: _Cause) -> str | None:
        known = prev.vector.with_entry(prev.branch, prev.clock) if prev.clock else prev.vector
        entries: dict[bytes, int] = {}
        causes: list[_Cause] = []
        for stamp in header.deps:
            cause = self._find(stamp.prefix)
            if cause is None or UpdateStamp(cause.device, cause.clock, cause.hash[:PREFIX_SIZE]) != stamp:
                return f"it depends on update {stamp}, which is not here"
            if not cause.number < row.number:
                return f"it depends on update {stamp}, which comes after it"
            causes.append(cause)
            for branch, clock in self._branches.path(cause.branch, cause.clock):
                if clock > max(known[branch], entries.get(branch, 0)):
                    entries[branch] = clock
        full = known.with_entries(entries.items())
        if not all(full.covers(cause.vector) for cause in causes):
            return "it omits what its causes depend on"
        if full.encode() != row.vector:
            return "its dependencies differ from the recorded ones"
        if header.clock != full.highest + 1:
            return f"its clock should be {full.highest + 1}"
        if header.history != self._history(full):
            return "its writer saw another history than the one recorded here"
        return None

    def _history(self, vector: VersionVector) -> bytes:
        return history_hash(
            (self._branches[branch].device, clock, self._hash(branch, clock))
            for branch, clock in self._branches.leaves(vector)
        )

    def _hash(self, branch: bytes, clock: int) -> bytes:
        newest = self._newest.get(branch)
        if newest is not None and newest.clock == clock:
            return newest.hash
        identity = hash_of(self._db, branch, clock)
        if identity is None:
            raise LookupError(f"update {clock} of branch {branch.hex()} is not here")
        return identity


def _cause(facts: tuple[int, bytes, int, bytes, bytes], vector: bytes) -> _Cause:
    return _Cause(*facts, VersionVector.decode(vector))
