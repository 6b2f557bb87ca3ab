"""The parts of a volume that open first: what works on this disk alone, without clouds and links.

The rest of a volume opens on top of them: see `hybrisfs.parts` and `hybrisfs.volume.opening`.
"""

from __future__ import annotations

from msgspec import Struct

from hybrisfs.chunk_namer import ChunkNamer
from hybrisfs.keyring import KeyRing
from hybrisfs.receive.take import Upcoming
from hybrisfs.sharing.sharing import AwaitedLog, Sharing
from hybrisfs.stages import Signals
from hybrisfs.state.database import Database
from hybrisfs.state.journal import Journal
from hybrisfs.state.state import State
from hybrisfs.state.unplaced import remove_unnamed_segments
from hybrisfs.tree.commit import Committer
from hybrisfs.tree.filesystem import FileSystem
from hybrisfs.versions.contents import forget_lost

__all__ = ["LocalParts", "open_local_parts"]


class LocalParts(Struct, frozen=True):
    """State, tree, and what is shared with other devices: no cloud, no link, no face, no thread."""

    ring: KeyRing
    signals: Signals
    fs: FileSystem
    sharing: Sharing
    committer: Committer


def open_local_parts(
    database: Database,
    journal: Journal,
    namer: ChunkNamer,
    ring: KeyRing,
    owner: tuple[int, int],
    awaited_log: AwaitedLog,
    deletion_share: float,
    upcoming: Upcoming,
) -> LocalParts:
    """*owner*: user and group of what other devices make. The rest: see `Sharing`."""
    state = State(database, journal, namer, ring.keys.device)
    signals = Signals(database.environment)
    with state.transaction() as tx:
        fs = FileSystem(tx, state, owner=owner)
        remove_unnamed_segments(tx, journal)
        tx.chunks.dropped.listen(forget_lost)
        sharing = Sharing(tx, fs, ring, signals, deletion_share, awaited_log, upcoming)
    fs.changes.begun.listen(signals.changes_made)
    fs.ignored.unread.listen(signals.content_wanted)
    return LocalParts(ring, signals, fs, sharing, Committer(fs, signals))
