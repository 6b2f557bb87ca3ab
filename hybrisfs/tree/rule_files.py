"""Files called `.hybrisfsignore`: the ignore rules of the folder that each is in.

They are synced like any file, so their bytes may be elsewhere. Until they are here nobody knows what the
rules say (`RuleFiles.unread`).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Final, NamedTuple

from hybrisfs.errors import HybrisError
from hybrisfs.registers.ignore_rules import Rules, parse_pattern
from hybrisfs.state.state import Transaction
from hybrisfs.tree.content import FileBytes, Missing, ReceivedContent
from hybrisfs.tree.inodes import Inode, InodeTable

__all__ = ["RULES_FILE", "RuleFiles"]

RULES_FILE: Final = b".hybrisfsignore"
_MOST_BYTES: Final = 64 << 10  # of a file that are read
_MOST_LINES: Final = 1000
_MOST_KNOWN: Final = 1000  # files that are kept in mind
_NONE: Final = Rules()


class _Known(NamedTuple):
    """What a file says, and by what another content would be noticed."""

    version: tuple[int, int, int]
    rules: Rules


class RuleFiles:
    """Those of one volume, under its lock."""

    def __init__(self, inodes: InodeTable, content: FileBytes, received: ReceivedContent) -> None:
        self._inodes = inodes
        self._content = content
        self._received = received
        self._known: dict[int, _Known] = {}
        self.unread: set[int] = set()
        """The inodes of those that somebody has asked for, and whose bytes are elsewhere."""

    def rules_in(self, tx: Transaction, folder: int) -> Rules | None:
        """The rules of a folder, which may be none; None when they are not known yet."""
        place = tx.places.find(folder, RULES_FILE)
        inode = None if place is None else self._inodes.find(tx, place[0])
        if inode is None or not inode.is_file:
            return _NONE
        known = self._known.get(inode.ino)
        if known is not None and known.version == _version(inode):
            return known.rules
        text = self._read(tx, inode)
        if text is None:
            self.unread.add(inode.ino)
            return None
        if len(self._known) >= _MOST_KNOWN:
            self._known.clear()
        rules = Rules(_patterns(text))
        self._known[inode.ino] = _Known(_version(inode), rules)
        return rules

    def _read(self, tx: Transaction, inode: Inode) -> bytes | None:
        """The first bytes of a file; None when they are elsewhere. Nobody obeys what is damaged."""
        try:
            lacking = self._received.lacking(tx, inode)
            found = lacking or self._content.read(tx, inode, 0, _MOST_BYTES)
        except (OSError, HybrisError):
            return b""
        return None if isinstance(found, Missing) else found

    def have_changed(self, tx: Transaction) -> bool:
        """Whether a file says something else than when it was read last, or can be read now."""
        changed = [
            ino
            for ino, known in self._known.items()
            if (inode := self._inodes.find(tx, ino)) is None or _version(inode) != known.version
        ]
        for ino in changed:
            del self._known[ino]
        come = {ino for ino in self.unread if self._is_here(tx, ino)}
        self.unread -= come
        return bool(changed or come)

    def _is_here(self, tx: Transaction, ino: int) -> bool:
        inode = self._inodes.find(tx, ino)
        return inode is None or inode.orphan or self._read(tx, inode) is not None


def _version(inode: Inode) -> tuple[int, int, int]:
    return inode.content_stamp, inode.size, inode.mtime


def _patterns(text: bytes) -> Iterator[str]:
    """The patterns of a file, one a line; what is none is left out, like comments."""
    for line in text.decode(errors="replace").splitlines()[:_MOST_LINES]:
        with suppress(ValueError):
            yield parse_pattern(line)
