"""Finding packs of which nothing, or little, is needed any more.

Every device looks after the packs whose register it wrote last; those of devices that are members no more, or
only read, are looked after by the full member with the lowest id.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Final, NamedTuple

from msgspec import Struct, field

from hybrisfs.dispersal.errors import ChunkUnavailable
from hybrisfs.gc.archive import ArchivePlan
from hybrisfs.gc.limits import GcLimits
from hybrisfs.members.role_table import Roles
from hybrisfs.read.fetch import Fetcher
from hybrisfs.state.database import Snapshot
from hybrisfs.state.disposals import DeletionCandidate, DeletionCandidateTable
from hybrisfs.state.file_chunks import hidden_contents
from hybrisfs.state.packs import KeptPack, PackTable, day_of, needs_of_pack
from hybrisfs.state.state import Transaction
from hybrisfs.state.unplaced import unproven
from hybrisfs.tree.filesystem import FileSystem
from hybrisfs.versions.contents import chunks_of_page, gather_kept, named_chunks

__all__ = ["Found", "Candidate", "Pages", "References", "find_candidates", "remember"]

_ROWS: Final = 256


class Candidate(Struct, frozen=True):
    """A pack that is not worth keeping as it is. *since*: from when on, in ns since the epoch."""

    pack: int
    needed: Needed
    since: int
    k: int
    """How many of its shares are needed to read it."""


class Found(Struct):
    """The result of a look: packs of which nothing is needed, packs of which little is needed, and packs to
    leave alone for now."""

    empty: list[Candidate] = field(default_factory=list)
    sparse: list[Candidate] = field(default_factory=list)
    young: list[Candidate] = field(default_factory=list)
    rested: list[Candidate] = field(default_factory=list)
    """Packs to archive."""
    used_again: list[Candidate] = field(default_factory=list)
    """Archived packs that are to be hot again."""
    met: list[int] = field(default_factory=list)
    """Numbers of packs of which no use was known."""
    claimed: list[int] = field(default_factory=list)
    """Numbers of chunks that are kept, in a pack or on this disk, only because this device has not read them
    where others claim to have put them."""

    def __bool__(self) -> bool:
        return bool(self.empty or self.sparse or self.young or self.rested or self.used_again or self.claimed)


def find_candidates(
    db: Snapshot,
    device: bytes,
    lists: Pages,
    now_ns: int,
    grace_ns: int,
    pause: Callable[[], bool],
    limits: GcLimits,
    plan: ArchivePlan | None,
) -> Found:
    """Look through the packs of *device* in the snapshot *db*. *pause* is called now and then, and says
    whether to go on. *plan*: how packs are archived. Raises what `Pages.read` raises."""
    references = References(db, lists)
    before, doubted = DeletionCandidateTable(db).all(), PackTable(db).doubted()
    found = Found(claimed=unproven(db))
    today = day_of(now_ns)
    for kept, is_mine in _packs(db, device, pause):
        pack = kept.number
        is_used_again = plan is not None and plan.is_used_again(kept)
        if not (is_mine or is_used_again):
            continue
        if not kept.used:
            found.met.append(pack)
        needed = references.of(pack)
        found.claimed += needed.claimed
        if needed.claimed or (needed.live and pack in doubted):
            continue  # that is to be found out first; what may be gone cannot be packed again
        if is_used_again and needed.live:
            found.used_again.append(Candidate(pack, needed, now_ns, kept.k))
            continue
        if not is_mine:
            continue
        if needed.live and (
            needed.dead < limits.least_dead or needed.live >= limits.sparse * (needed.live + needed.dead)
        ):
            if plan is not None and plan.has_rested(kept, today):
                found.rested.append(Candidate(pack, needed, now_ns, kept.k))
            continue
        _, live, since = before.get(pack, (pack, -1, now_ns))
        since = min(since, now_ns) if live == needed.live else now_ns
        candidate = Candidate(pack, needed, since, kept.k)
        if since > now_ns - grace_ns:
            found.young.append(candidate)
        else:
            (found.sparse if needed.live else found.empty).append(candidate)
    return found


def remember(tx: Transaction, found: Found, now_ns: int) -> None:
    """Note what was found, for the next look."""
    candidates = [*found.empty, *found.sparse, *found.young]
    tx.deletion_candidates.replace(
        DeletionCandidate(one.pack, one.needed.live, one.since) for one in candidates
    )
    tx.packs.were_met(found.met, now_ns)


def _packs(db: Snapshot, device: bytes, pause: Callable[[], bool]) -> Iterator[tuple[KeptPack, bool]]:
    """All packs, and whether *device* looks after each."""
    table, last = PackTable(db), 0
    members = table.keepers() - Roles(db).readers()
    lowest = min(members, default=device)
    while packs := table.kept_after(last, _ROWS):
        for pack in packs:
            yield pack, pack.author == device or (pack.author not in members and lowest == device)
        last = packs[-1].number
        if not pause():
            return


# -- what of a pack is needed ---------------------------------------------------------------------------
# Read from a snapshot of the database, so that programs do not wait. What the view does not show, and may
# show again, is in `hidden_contents`. Contents of files that have been removed by all their names count only
# while they are kept as versions (`hybrisfs.versions.contents`): a device that had not seen the removal
# refuses.


class Needed(NamedTuple):
    """The need of one pack: bytes of sealed chunks that are needed and that are not, and the numbers of the
    former. `claimed` are the numbers of other needed chunks, which are read from another pack that members
    name. Until this device has read them there, they count as `live`.
    """

    live: int
    dead: int
    chunks: tuple[int, ...]
    claimed: tuple[int, ...] = ()


class References:
    """What was needed when the snapshot *db* was taken."""

    def __init__(self, db: Snapshot, lists: Pages) -> None:
        """Raises what `Pages.read` raises: then it is unknown what is needed."""
        self._db = db
        self._hidden: set[bytes] = set()
        pages: set[bytes] = set()
        for value in hidden_contents(db):
            named, are_lists = named_chunks(value)
            self._hidden |= named
            if are_lists:
                pages |= named
        for page in pages:
            self._hidden |= chunks_of_page(lists.read(page))
        gather_kept(db, lists)

    def of(self, pack: int) -> Needed:
        """What is needed of the pack with this number. Chunks that stand in another pack, too, and have been
        read from there, are not; nor are those that go to the clouds again."""
        live = dead = 0
        chunks: list[int] = []
        claimed: list[int] = []
        for number, identity, sealed, elsewhere, dispensable, shown in needs_of_pack(self._db, pack):
            if not dispensable and (shown or identity in self._hidden):
                live += sealed
                (claimed if elsewhere else chunks).append(number)
            else:
                dead += sealed
        return Needed(live, dead, tuple(chunks), tuple(claimed))


# -- lists of chunks of long files, which must be read before it is known what their files need --------


class Pages:
    """Reads lists of chunks, from wherever they are. Called without the volume's lock."""

    def __init__(self, fs: FileSystem, fetcher: Fetcher) -> None:
        self._fs = fs
        self._fetcher = fetcher

    def read(self, identity: bytes) -> bytes:
        """The bytes of the list with this id. Raises ChunkUnavailable, OSError."""
        fs = self._fs
        with fs.state.transaction() as tx:
            ref = tx.chunks.find(identity)
            if ref is None:
                raise ChunkUnavailable(f"chunk {identity.hex()[:16]}", {})
            data = tx.chunks.read_whole(ref)
        return self._fetcher.fetch_one(ref) if data is None else data

    def list_files(self) -> bool:
        """Note the chunks of all files in the view. Returns whether any were new.

        Raises ChunkUnavailable, OSError.
        """
        fs = self._fs
        with fs.state.transaction():
            unlisted = fs.received.all_unlisted()
        for ino in unlisted:
            while True:
                with fs.state.transaction() as tx:
                    still = fs.received.is_unlisted(ino)
                    lacking = fs.received.lacking_to_know(tx, fs.inodes.get(tx, ino)) if still else None
                if lacking is None:
                    break
                for ref in lacking.chunks:
                    self._fetcher.fetch_one(ref)
        return bool(unlisted)

    def look_through(self, unread: Iterable[bytes]) -> None:
        """Look for chunks of condemned packs in lists that were named since these were condemned. A list that
        cannot be fetched may name any of them.
        """
        fs = self._fs
        for identity in unread:
            try:
                named = chunks_of_page(self.read(identity))
            except (ChunkUnavailable, OSError):
                named = None
            with fs.state.transaction() as tx:
                if named is None:
                    tx.chunks.condemned.want_all()
                else:
                    tx.chunks.condemned.see_chunks(named)
                tx.chunks.condemned.page_read(identity)
