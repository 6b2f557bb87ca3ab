"""Finding packs of which nothing, or little, is needed any more.

Every device looks after the packs whose register it wrote last; those of devices that are members no more, or
only read, are looked after by the full member with the lowest id.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Final

from hybrisfs.gc.limits import GcLimits
from hybrisfs.gc.pages import Pages
from hybrisfs.gc.references import Needed, References
from hybrisfs.members.role_table import Roles
from hybrisfs.state.disposals import DeletionCandidate, DeletionCandidateTable
from hybrisfs.state.packs import PackTable
from hybrisfs.state.state import Transaction
from hybrisfs.state.unplaced_chunks import unproven
from hybrisfs.tree.filesystem import FileSystem

__all__ = ["Found", "Idle", "find_idle", "remember"]

_ROWS: Final = 256


@dataclass(frozen=True, slots=True)
class Idle:
    """A pack that is not worth keeping as it is. *since*: how long that has been so, ns since the epoch."""

    pack: int
    needed: Needed
    since: int


@dataclass(slots=True)
class Found:
    """What a look found: packs of which nothing, and of which little is needed; those to leave alone yet."""

    empty: list[Idle] = field(default_factory=list)
    sparse: list[Idle] = field(default_factory=list)
    young: list[Idle] = field(default_factory=list)
    claimed: list[int] = field(default_factory=list)
    """Numbers of chunks that are kept, in a pack or on this disk, only because nobody here has read them
    where others say that they are."""

    def __bool__(self) -> bool:
        return bool(self.empty or self.sparse or self.young or self.claimed)


def find_idle(
    db: sqlite3.Connection,
    device: bytes,
    lists: Pages,
    now_ns: int,
    grace_ns: int,
    pause: Callable[[], bool],
    limits: GcLimits,
) -> Found:
    """Look through the packs of *device* in the snapshot *db*. *pause* is called now and then, and tells
    whether to go on. Raises what `Pages.read` raises."""
    references = References(db, lists)
    before, doubted = DeletionCandidateTable(db).all(), PackTable(db).doubted()
    found = Found(claimed=unproven(db))
    for pack in _packs(db, device, pause):
        needed = references.of(pack)
        found.claimed += needed.claimed
        if needed.claimed or (needed.live and pack in doubted):
            continue  # that is to be found out first; what may be gone cannot be packed again
        if needed.live and (
            needed.dead < limits.least_dead or needed.live >= limits.sparse * (needed.live + needed.dead)
        ):
            continue
        _, live, since = before.get(pack, (pack, -1, now_ns))
        since = min(since, now_ns) if live == needed.live else now_ns
        idle = Idle(pack, needed, since)
        if since > now_ns - grace_ns:
            found.young.append(idle)
        else:
            (found.sparse if needed.live else found.empty).append(idle)
    return found


def remember(tx: Transaction, fs: FileSystem, found: Found) -> None:
    """Note what was found, for the next look."""
    idle = [*found.empty, *found.sparse, *found.young]
    tx.deletion_candidates.replace(DeletionCandidate(one.pack, one.needed.live, one.since) for one in idle)


def _packs(db: sqlite3.Connection, device: bytes, pause: Callable[[], bool]) -> Iterator[int]:
    """The packs that *device* looks after."""
    table, last = PackTable(db), 0
    members = table.keepers() - Roles(db).readers()
    lowest = min(members, default=device)
    while authors := table.authors_after(last, _ROWS):
        for pack, author in authors.items():
            if author == device or (author not in members and lowest == device):
                yield pack
        last = max(authors)
        if not pause():
            return
