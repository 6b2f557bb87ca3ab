"""Whether what a device signs keeps the order in which its programs wrote.

Others take a device's updates in their order, so they see its programs' writes in theirs if each update,
with those before it, holds all that was changed before the latest change that it holds (Depot 5.1: the
writes of a correct node are seen in its order). What the device itself notes about first and latest changes
is not asked.
"""

from __future__ import annotations

from sync import decode_signed
from tests.tree.rig import Rig

__all__ = ["Order"]


class Order:
    """Watches one life of a device's daemon."""

    def __init__(self, rig: Rig) -> None:
        self.rig = rig
        self._mark = rig.fs.changes.mark
        self._count = 0
        # Of each register that was changed: the numbers of the first and the latest unsigned change.
        self._open: dict[bytes, tuple[int, int]] = dict.fromkeys(rig.fs.changes.unsigned, (0, 0))
        self._clock = self._newest()
        self._drop = rig.fs.changes.drop
        rig.fs.changes.mark = self._marked  # type: ignore[method-assign]
        rig.fs.changes.drop = self._dropped  # type: ignore[method-assign]

    def _marked(self, key: bytes, ino: int) -> None:
        self._mark(key, ino)
        if ino in self.rig.fs.changes.aside:
            self._open.pop(key, None)  # it stays here
        elif key[:1] in b"pac":  # what a program can see; where packs are is told apart from it
            self._count += 1
            first, _ = self._open.get(key, (self._count, 0))
            self._open[key] = first, self._count

    def _dropped(self, key: bytes) -> None:
        self._drop(key)
        self._open.pop(key, None)

    def _newest(self) -> int:
        query = "SELECT ifnull(max(clock), 0) FROM log WHERE chunk_high IS NOT NULL"
        clock: int = self.rig.db.rows.execute(query).fetchone()[0]
        return clock

    def check(self) -> None:
        """Call after each round of the publisher, before a program does anything more."""
        rows = self.rig.db.rows.execute(
            "SELECT bytes FROM log WHERE chunk_high IS NOT NULL AND clock > ? AND bytes IS NOT NULL "
            "ORDER BY clock",
            (self._clock,),
        ).fetchall()
        self._clock = self._newest()
        changes = self.rig.fs.changes
        waiting = {key for key, *_ in changes.spans()}
        self._open = {key: span for key, span in self._open.items() if key in waiting or rows}
        for (data,) in rows:
            signed = {key for key, _ in decode_signed(data).writes} - waiting
            reach = max((self._open.pop(key)[1] for key in signed & self._open.keys()), default=-1)
            if not self.rig.publisher._postponed:  # that may be passed over
                early = {key for key, span in self._open.items() if span[0] <= reach and key in waiting}
                assert not early, f"an update leaves out what was changed before: {sorted(early)}"
        self._open = {key: span for key, span in self._open.items() if key in waiting}
