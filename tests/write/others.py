"""The tree of a rig as other devices see it."""

from __future__ import annotations

from tests.tree.replay import Reader, read_content
from tests.tree.rig import Rig

__all__ = ["Others"]


class Others:
    """What other devices see."""

    def __init__(self, rig: Rig) -> None:
        self.rig = rig
        self.reader = Reader()

    def __call__(self) -> dict[bytes, bytes]:
        """The files of the root folder and their bytes."""
        self.reader.catch_up(self.rig.db)
        found = {}
        for path, identity in self.reader.tree().items():
            content = self.reader.nodes[identity].content
            read = self.rig.plaintexts.__getitem__
            found[path[0]] = b"" if content is None else read_content(content, read)
        return found
