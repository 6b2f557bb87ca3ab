"""The log of signed updates in the database: signing our own, and what `sync.LogState` asks of it.

An update and the state that follows from it are stored in one transaction, and nothing of an update leaves
the device before that transaction is durable: a device that signed two updates with one predecessor would
fork itself.
"""

from __future__ import annotations

from collections.abc import Sequence

from hybrisfs.store.database import Database
from sync import DeviceKey, LogState, Members, SignedUpdate, VersionVector, Write
from sync.codec import Reader, Writer

__all__ = ["UpdateLog"]


class UpdateLog:
    """All accepted updates of one volume, under the volume's lock."""

    def __init__(self, database: Database, members: Members, key: DeviceKey) -> None:
        self._db = database
        self._key = key
        self._members = members
        self.volume: bytes = database.meta("volume")
        self.state = self._load()

    def _load(self) -> LogState:
        stored: bytes = self._db.meta("log_state")
        if not stored:
            return LogState(self.volume, self._members, self)
        return LogState.decode(stored, self._members, self)

    @property
    def device(self) -> bytes:
        return self._key.device_id

    def sign(self, writes: Sequence[Write], time_ns: int, chunk_high: int) -> SignedUpdate:
        """Sign *writes* as one transaction and store it. It names no chunk above *chunk_high*."""
        try:
            return self._sign(writes, time_ns, chunk_high)
        except BaseException:
            self.state = self._load()  # it must not be ahead of what is stored
            raise

    def _sign(self, writes: Sequence[Write], time_ns: int, chunk_high: int) -> SignedUpdate:
        update = self.state.next_update(writes, time_ns, self._key)
        header = update.header
        tip = self.state.tip(header.writer)
        assert tip is not None
        vector = Writer()
        tip.dependencies.write_to(vector)
        self._db.execute(
            "INSERT INTO log (writer, clock, hash, vector, chunk_high, bytes) VALUES (?, ?, ?, ?, ?, ?)",
            (header.writer, header.clock, header.hash, vector.getvalue(), chunk_high, update.data),
        )
        self._db.set_meta("log_state", self.state.encode())
        return update

    def own_after(self, clock: int, limit: int) -> list[tuple[int, int, int]]:
        """(clock, chunk_high, size in bytes) of up to *limit* own updates above *clock*, in order."""
        return self._db.execute(
            "SELECT clock, chunk_high, length(bytes) FROM log WHERE writer = ? AND clock > ? "
            "ORDER BY clock LIMIT ?",
            (self.device, clock, limit),
        ).fetchall()

    def own_between(self, first: int, last: int) -> list[bytes]:
        """The own updates from clock *first* to *last*, in order."""
        rows = self._db.execute(
            "SELECT bytes FROM log WHERE writer = ? AND clock BETWEEN ? AND ? ORDER BY clock",
            (self.device, first, last),
        )
        return [row[0] for row in rows]

    # -- what sync.LogState asks -----------------------------------------------------------------

    def hash_of(self, writer: bytes, clock: int) -> bytes | None:
        row = self._db.execute(
            "SELECT hash FROM log WHERE writer = ? AND clock = ?", (writer, clock)
        ).fetchone()
        return row[0] if row else None

    def vector_of(self, writer: bytes, clock: int) -> VersionVector | None:
        row = self._db.execute(
            "SELECT vector FROM log WHERE writer = ? AND clock = ?", (writer, clock)
        ).fetchone()
        return VersionVector.read_from(Reader(row[0])) if row else None

    def successor_of(self, writer: bytes, clock: int) -> bytes | None:
        row = self._db.execute(
            "SELECT bytes FROM log WHERE writer = ? AND clock > ? ORDER BY clock LIMIT 1", (writer, clock)
        ).fetchone()
        return row[0] if row else None
