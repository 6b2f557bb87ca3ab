"""What follows from signed updates: do registers, packs, versions and contents say what the updates say?

One pass over the log is enough, and nothing of it need be remembered: a value that an update wrote is there,
or a value that is there depends on that update. Of bare updates nobody knows here what they wrote.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from hybrisfs.chunk_namer import ChunkNamer
from hybrisfs.kinds import ATTRIBUTES, ID, KINDS, PACK, VOTE, Trait, having
from hybrisfs.log import is_kept
from hybrisfs.members.members import Member, member_key
from hybrisfs.members.role_table import Roles
from hybrisfs.merge.authority import counting, described, fault
from hybrisfs.registers.node_id import kind_of
from hybrisfs.registers.tree import Content, PackRecord, Run, content_of, encode_runs
from hybrisfs.registers.values import Stamp
from hybrisfs.state.checks import (
    count_values,
    is_spare_in,
    newest_value,
    rows_of_key,
    values_of_no_update,
    values_with_signers,
)
from hybrisfs.state.database import Snapshot
from hybrisfs.state.disposals import is_condemned
from hybrisfs.state.file_chunks import ContentTable, chunk_named, is_known, pages_of_file, parts_of_file
from hybrisfs.state.members import Membership, member_rows
from hybrisfs.state.packs import PackTable
from hybrisfs.state.registers import branches_by_number, is_anything_said_of
from hybrisfs.state.stored_log import body_of
from hybrisfs.state.versions import all_versions, kept_contents
from hybrisfs.verify.log_check import LogRow, Vectors
from hybrisfs.versions.contents import named_chunks
from sync import DecodeError, decode_signed

__all__ = ["ContentCheck", "PackCheck", "RegisterCheck", "check_versions", "count_without_bytes"]

_MOST_NAMED: Final = 20


class RegisterCheck:
    """Compares `register` in *db* with the updates that it is shown, in order."""

    def __init__(self, db: Snapshot, vectors: Vectors) -> None:
        self._db = db
        self._vectors = vectors
        self._branches = branches_by_number(db)
        self._numbers = {branch: number for number, branch in self._branches.items()}
        self._found = 0

    def compare(self, entry: LogRow) -> Iterator[str]:
        """Differences between the registers and this update, in words."""
        number = self._numbers.get(entry.branch)
        for key, value in entry.update.writes:
            if not is_kept(key):
                continue
            rows = rows_of_key(self._db, key)
            mine = next((row[2:] for row in rows if row[:2] == (entry.clock, number)), None)
            superseded = any(self._supersedes(row[0], row[1], entry) for row in rows)
            wrong = None
            if mine is None:
                if not superseded and not _may_be_twisted(key):
                    wrong = "the value that update {} of machine {} wrote is missing"
            else:
                self._found += 1
                if mine != (value,):
                    wrong = "the value is not the one that update {} of machine {} wrote"
                elif superseded:
                    wrong = "the value that update {} of machine {} wrote was superseded and is still there"
            if wrong is not None:
                writer = entry.update.header.writer.hex()
                yield f"{described(key)}: {wrong.format(entry.clock, writer)}"

    def _supersedes(self, clock: int, writer: int, entry: LogRow) -> bool:
        """Whether a value with this stamp depends on the update."""
        branch = self._branches.get(writer)
        if branch is None or clock <= entry.clock:
            return False
        if branch == entry.branch:
            return True
        vector = self._vectors.of(branch, clock)
        return vector is not None and vector[entry.branch] >= entry.clock

    def finish(self) -> Iterator[str]:
        """Values in the registers that no update has written."""
        stored = count_values(self._db)
        extra = stored.values - stored.bare - self._found - self._count_void()
        if extra:
            yield from self._strangers()
            yield f"{extra} values of registers are not as any update says"
        yield from self._members()

    def _count_void(self) -> int:
        """Values that an earlier version took, and that break a rule of this one."""
        return sum(
            fault(device, key, value) is not None
            for kind in KINDS
            if Trait.TREE not in kind.traits
            for key, value, device in values_with_signers(self._db, kind)
        )

    def _strangers(self) -> Iterator[str]:
        """Some values of updates that are not in the log."""
        for key, clock in values_of_no_update(self._db, _MOST_NAMED):
            yield f"{described(key)}: its value is of an update {clock} that is not in the log"

    def _members(self) -> Iterator[str]:
        """Members whose rows differ from their own statements or from the registers."""
        for device, public, name, state, *_ in member_rows(self._db):
            if Member(public, name).device != device:
                yield f"member {device.hex()}: the public key is not that of the machine"
                continue
            signed = _member(newest_value(self._db, member_key(device)))
            if signed is None or signed.device != device:
                continue
            if signed.name != name:
                yield f"member {device.hex()}: called {name!r} here, but {signed.name!r} by its register"
            left = state in (Membership.MEMBER, Membership.RESERVE)
            if signed.removed and left and not is_anything_said_of(self._db, VOTE, device):
                yield f"member {device.hex()}: belongs to the volume here, but was removed by its register"


def _may_be_twisted(key: bytes) -> bool:
    """Whether these may be attributes that do not count because they change the kind of the node."""
    return key[0] == ATTRIBUTES and kind_of(key[ID]) is None


def _member(value: bytes | None) -> Member | None:
    try:
        return Member.decode(value or b"")
    except DecodeError:
        return None


# -- does the database have packs and chunks where the signed updates of all devices say? ---------------


class PackCheck:
    """Compares `pack` and `chunk` in *db* with the updates that it is shown, in order."""

    def __init__(self, db: Snapshot) -> None:
        self._db = db
        self._packs = PackTable(db)
        self._wrong: dict[bytes, str] = {}  # a later update may agree with the database
        self._right: set[bytes] = set()  # packs whose chunks are where an update says

    def compare(self, entry: LogRow) -> None:
        """Take note of what an update says of packs."""
        for key, value in entry.update.writes:
            if key[0] != PACK:
                continue
            try:
                record = PackRecord.decode(value or b"")
            except DecodeError:
                continue  # no correct device has written it, and none makes anything of it
            wrong = self._difference(key[ID], record, entry)
            if wrong is None:
                self._wrong.pop(key, None)
            elif wrong:
                self._wrong[key] = f"pack {key[ID].hex()}: {wrong}"

    def finish(self) -> list[str]:
        """Where the database differs from the last update of each pack, in words."""
        return list(self._wrong.values())

    def _difference(self, pack: bytes, signed: PackRecord, entry: LogRow) -> str | None:
        """How the database differs, in words; nothing when another update decides that."""
        found = self._packs.find(pack)
        if found is None:
            return "it has no record"
        if not found.n:
            return None  # it has ended, which is for good
        said = Stamp(entry.clock, entry.branch)
        if said > found.stamp and (found.k, found.n) != (signed.k, signed.n):
            return ""  # no pack ever has another code: it was passed over
        misplaced = None if pack in self._right else self._misplaced(found.number, signed)
        if misplaced is None:
            self._right.add(pack)  # who says something else of its chunks later is passed over
        if said < found.stamp:
            return ""
        if (found.k, found.n, found.placement) != (signed.k, signed.n, signed.placement):
            return "its place on the clouds is not the one signed"
        return misplaced

    def _misplaced(self, number: int, signed: PackRecord) -> str | None:
        for chunk in signed.chunks:
            found = chunk_named(self._db, chunk.id)
            if found is None:
                continue  # nobody needed it any more when the pack was recorded
            if found.is_elsewhere and not self._may_be_elsewhere(number, chunk.id):
                return f"chunk {chunk.id.hex()} is in it, but it is not known where that is"
            if found.pack == number and (found.offset, found.sealed) != (chunk.offset, chunk.sealed):
                return f"chunk {chunk.id.hex()} is not where the pack says"
        return None

    def _may_be_elsewhere(self, pack: int, chunk: bytes) -> bool:
        """Whether a chunk is not read from a pack, as that may be deleted or the clouds have lost it."""
        return is_condemned(self._db, pack) or is_spare_in(self._db, pack, chunk)


# -- are the versions that are kept what updates said, and can they be read? ----------------------------


_VERSIONED = having(Trait.VERSIONED)


def check_versions(db: Snapshot) -> Iterator[str]:
    """What is wrong with the versions in the snapshot *db*, in words."""
    writes: dict[bytes, bytes | None] | None = None
    update: tuple[bytes | None, int] = (None, -1)
    roles = Roles(db)
    for key, clock, branch, value, is_latest in all_versions(db):
        if key[0] not in _VERSIONED or not is_kept(key):
            yield f"{described(key)}: is noted as a version, and is nothing that has any"
            continue
        if (branch, clock) != update:
            update, writes = (branch, clock), _writes(db, roles, branch, clock)
        if is_latest:
            yield f"{described(key)}: what update {clock} wrote is noted as a version and is true still"
        elif writes is not None and writes.get(key) != value:
            yield f"{described(key)}: the version of update {clock} is not what that wrote"


def _writes(db: Snapshot, roles: Roles, branch: bytes | None, clock: int) -> dict[bytes, bytes | None] | None:
    """The writes of an update; None when they are unknown here."""
    body = body_of(db, branch, clock)
    if body is None:
        return {}
    return None if body.data is None else dict(counting(decode_signed(body.data), body.vector, roles).writes)


def count_without_bytes(db: Snapshot) -> int:
    """How many versions cannot be read any more. That is not an error: either they were overwritten before a
    cloud had them and given up to make room, or a log that was read again names versions that were dropped
    long ago."""
    return sum(
        not all(is_known(db, chunk) for chunk in named_chunks(value)[0]) for (value,) in kept_contents(db)
    )


# -- is the content that the view shows of a file the one of a register value? --------------------------


class ContentCheck:
    """Compares rows of files in *db* with values of content registers."""

    def __init__(self, db: Snapshot, namer: ChunkNamer) -> None:
        self._db = db
        self._namer = namer

    def problem(self, ino: int, size: int, value: bytes | None) -> str | None:
        """How the file *ino* of *size* bytes differs from *value*, in words."""
        signed = content_of(value)
        if signed.size != size:
            return f"it has {size} bytes, {signed.size} were signed"
        unlisted = ContentTable(self._db).value_unlisted(ino)
        if unlisted is not None:
            if unlisted != value:
                return "its list of chunks, which has yet to be read, is not the one signed"
            return (
                None
                if not signed.depth or self._has_pages(ino, signed)
                else "a chunk of its list of chunks has no record"
            )
        same = (
            self._is_listed(ino, size, signed)
            if signed.depth
            else list(signed.runs) == list(self._runs(ino, size))
        )
        return None if same else "its content is not the one signed"

    def _has_pages(self, ino: int, signed: Content) -> bool:
        pages = pages_of_file(self._db, ino)
        return all(run.chunk is None or run.chunk in pages for run in signed.runs)

    def _is_listed(self, ino: int, size: int, signed: Content) -> bool:
        """Whether the runs, cut into pages like the signed ones, are what the chunks of these hold."""
        runs = self._runs(ino, size)
        for page in signed.runs:
            batch: list[Run] = []
            left = page.length
            while left > 0 and (run := next(runs, None)) is not None:
                batch.append(run)
                left -= run.length
            if left != 0 or self._namer.chunk_id(encode_runs(batch)) != page.chunk:
                return False
        return next(runs, None) is None

    def _runs(self, ino: int, size: int) -> Iterator[Run]:
        at = 0
        for offset, length, skip, identity in parts_of_file(self._db, ino):
            if offset > at:
                yield Run(offset - at, None)
            yield Run(length, identity, skip)
            at = offset + length
        if at < size:
            yield Run(size - at, None)
