"""What a crash leaves in the journal."""

from __future__ import annotations

from hybrisfs.store.database import Database
from hybrisfs.store.journal import Journal

__all__ = ["remove_unknown_segments"]


def remove_unknown_segments(database: Database, journal: Journal) -> None:
    """Delete journal segments that the database does not name: their bytes were never committed."""
    known = {
        row[0] for row in database.execute("SELECT DISTINCT segment FROM chunk WHERE segment IS NOT NULL")
    }
    for number in journal.numbers() - known:
        if not journal.pins[number]:
            journal.remove(number)
