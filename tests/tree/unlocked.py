"""The open transaction, for tests in one thread."""

from __future__ import annotations

from hybrisfs.state.state import Transaction
from hybrisfs.tree.filesystem import FileSystem

__all__ = ["unlocked"]


def unlocked(fs: FileSystem) -> Transaction:
    """The transaction without the lock: nobody else changes anything while the test looks."""
    with fs.state.transaction() as tx:
        return tx
