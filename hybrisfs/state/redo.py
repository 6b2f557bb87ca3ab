"""The redo log: what an fsync has made durable since the last commit, in the file `volume.db-redo`.

A commit of the database takes two syncs, one of the journal and one of SQLite's log, and of files that grow.
An fsync that comes after a few small writes appends a record here instead, with the rows and the bytes: one
sync of blocks that are there already, which is the least that a disk can be asked for. The next commit, a
second later at most, has the rows as well, and ends all records. They only matter after a crash: then the
next start carries them out on top of the last commit.

Format. The file has a fixed size and begins with zeros where nothing was written. Records stand in it one
after the other from the beginning on:

    rows    u32    length of the rows
    bytes   u32    length of the bytes
    rows           MessagePack: a map
    bytes          the written ranges of journal segments, one after the other
    hash    32     BLAKE3 with the nonce as key, of the hash of the record before it and all of the above

Integers are big-endian. The nonce is 32 random bytes in `meta` of the database, under `redo`; every commit
changes it. The first record follows a hash of zeros. So a record counts only after the commit and the record
that stood before it when it was written. The log ends at the first record that does not count. The rows:

    format  1
    nodes   rows of `node`, to be put there
    places  rows of `place`, which come
    gone    inode and start of rows of `extent`, which go
    extents rows of `extent`, which come, after the others have gone
    pending key, inode and number of changed registers, for `pending`
    seq, files, bytes   values for `meta`
    ranges  segment, position and length of each range of bytes
"""

from __future__ import annotations

import contextlib
import logging
import os
import struct
import threading
import weakref
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec
from blake3 import blake3
from msgspec import Struct

from hybrisfs.environment import Environment, sync_directory
from hybrisfs.errors import DamagedError

__all__ = ["NONCE_SIZE", "ExtentRow", "ExtentRows", "PendingRows", "Range", "Record", "RedoLog"]

log = logging.getLogger(__name__)

_LENGTHS: Final = struct.Struct(">II")
_HASH: Final = 32
NONCE_SIZE: Final = 32
_FORMAT: Final = 1
_PIECE: Final = 1 << 20  # bytes that the new file is written in
_NONE: Final = bytes(_HASH)
_ENCODER: Final = msgspec.msgpack.Encoder()

Range = tuple[int, int, bytes]
"""Segment, position and bytes of something that was written to the journal."""
PendingRows = Sequence[tuple[bytes, int, int]]
"""Key, inode and number of changed registers."""


ExtentRow = tuple[int, int, int, int, int]
"""A row of `extent`."""


class ExtentRows(NamedTuple):
    """What changes in the table `extent`."""

    gone: Sequence[tuple[int, int]] = ()
    """Inode and start of rows that go."""
    come: Sequence[ExtentRow] = ()
    """Rows that come, after the others have gone."""


class Record(Struct, frozen=True):
    """What was done between two fsyncs."""

    nodes: Sequence[tuple[Any, ...]]
    """Rows of `node`, ..."""
    places: Sequence[tuple[Any, ...]]
    """... and those that have come into `place`."""
    extents: ExtentRows
    pending: PendingRows
    seq: int
    files: int
    size: int
    """Of all files, as `bytes` in `meta`."""
    ranges: Sequence[Range]

    def encode(self) -> tuple[bytes, bytes]:
        """The rows and the bytes."""
        rows = {
            "format": _FORMAT,
            "nodes": self.nodes,
            "places": self.places,
            "gone": self.extents.gone,
            "extents": self.extents.come,
            "pending": self.pending,
            "seq": self.seq,
            "files": self.files,
            "bytes": self.size,
            "ranges": [(segment, position, len(data)) for segment, position, data in self.ranges],
        }
        return _ENCODER.encode(rows), b"".join(data for _, _, data in self.ranges)

    @classmethod
    def decode(cls, rows: bytes, data: bytes) -> Record:
        """The record of which these are the rows and the bytes. Raises ValueError and the like."""
        one = msgspec.msgpack.decode(rows)
        if one["format"] != _FORMAT:
            raise ValueError(f"format {one['format']}")
        at, ranges = 0, list[Range]()
        for segment, position, length in one["ranges"]:
            ranges.append((segment, position, data[at : at + length]))
            at += length
        return cls(
            _tuples(one["nodes"]),
            _tuples(one["places"]),
            ExtentRows(_tuples(one["gone"]), _tuples(one["extents"])),
            _tuples(one["pending"]),
            one["seq"],
            one["files"],
            one["bytes"],
            ranges,
        )


def _tuples(rows: list[list[Any]]) -> list[Any]:
    return [tuple(row) for row in rows]


class RedoLog:
    """The redo log of one database. The volume's lock serialises all calls but `prepare` and `sync`.

    Whatever goes wrong with the file, nobody fails: then there are no more records,
    and commits do all the work.
    """

    def __init__(self, path: Path, environment: Environment, size: int) -> None:
        """*size*: of the file, in bytes."""
        self.path = path
        self._environment = environment
        self._size = size
        self._descriptor: int | None = None
        self._broken = False
        self._nonce = _NONE
        self._last = _NONE
        self._end = 0
        self._unsynced = False
        self._sync_lock = threading.Lock()
        self.segments: set[int] = set()
        """The journal segments that extents of the records name."""
        with contextlib.suppress(FileNotFoundError):
            self._use(os.open(path, os.O_RDWR | os.O_CLOEXEC))

    def _use(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._close = weakref.finalize(self, os.close, descriptor)

    @property
    def is_ready(self) -> bool:
        """Whether records can be written."""
        return self._descriptor is not None and not self._broken

    @property
    def is_missing(self) -> bool:
        """Whether there would be records if there were the file."""
        return self._descriptor is None and not self._broken

    def prepare(self) -> None:
        """Make the file if it is not there. Its blocks are written, so that a sync of a record has nothing to
        change but them. From one thread only, without the volume's lock."""
        if not self.is_missing:
            return
        try:
            descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                for start in range(0, self._size, _PIECE):
                    os.pwrite(descriptor, bytes(min(_PIECE, self._size - start)), start)
                self._environment.fsync(descriptor)
                sync_directory(self.path.parent, self._environment)
            except OSError:
                os.close(descriptor)
                self.path.unlink()
                raise
            self._use(descriptor)
        except OSError as error:
            self._give_up(error)

    def begin(self, nonce: bytes) -> None:
        """There was a commit, with which this *nonce* came: what was recorded before counts no more."""
        self._nonce = nonce
        self._last = _NONE
        self._end = 0
        self.segments.clear()

    def append(self, record: Record) -> bool:
        """Write a record, which `sync` makes durable; False when there is no room, and nothing was written.

        The commit that it builds on has been made durable, as records of the one before are overwritten.
        """
        rows, data = record.encode()
        whole = _LENGTHS.pack(len(rows), len(data)) + rows + data
        end = self._end + len(whole) + _HASH
        if self._descriptor is None or self._broken or end > self._size:
            return False
        following = blake3(self._last + whole, key=self._nonce).digest()
        try:
            # All of it lies in the page cache already.
            os.pwrite(self._descriptor, whole + following, self._end)
        except OSError as error:
            self._give_up(error)
            return False
        self._end, self._last, self._unsynced = end, following, True
        self._note_segments(record)
        return True

    def _note_segments(self, record: Record) -> None:
        for row in record.extents.come:
            self.segments.add(row[3])

    def sync(self) -> bool:
        """Make all records durable, and say whether they are. From any thread, without the volume's lock."""
        with self._sync_lock:  # a caller that finds nothing left to sync must know that it has been synced
            if self._broken or self._descriptor is None:
                return False
            if self._unsynced:
                self._unsynced = False
                try:
                    self._environment.fdatasync(self._descriptor)
                except OSError as error:
                    self._give_up(error)
            return not self._broken

    def replay(self, nonce: bytes) -> Iterator[Record]:
        """The records on top of the commit with which this *nonce* came; afterwards others may follow.

        Raises DamagedError when one cannot be read that is as it was written.
        """
        self.begin(nonce)
        while (found := self._next()) is not None:
            rows, data, self._last = found
            try:
                record = Record.decode(rows, data)
            except (ValueError, KeyError, TypeError) as error:
                raise DamagedError(
                    f"{self.path} has a record that this program cannot read", str(error)
                ) from error
            self._end += _LENGTHS.size + len(rows) + len(data) + _HASH
            self._note_segments(record)
            yield record

    def _next(self) -> tuple[bytes, bytes, bytes] | None:
        """Rows, bytes and hash of the next record; None when there is none. Raises OSError."""
        if self._descriptor is None:
            return None
        lengths = os.pread(self._descriptor, _LENGTHS.size, self._end)
        if len(lengths) < _LENGTHS.size:
            return None
        length, size = _LENGTHS.unpack(lengths)
        whole = _LENGTHS.size + length + size
        if not length or self._end + whole + _HASH > os.fstat(self._descriptor).st_size:
            return None
        content = os.pread(self._descriptor, whole + _HASH, self._end)
        expected = blake3(self._last + content[:whole], key=self._nonce).digest()
        if content[whole:] != expected:
            return None
        middle = _LENGTHS.size + length
        return content[_LENGTHS.size : middle], content[middle:whole], expected

    def _give_up(self, error: OSError) -> None:
        self._broken = True
        log.warning("%s cannot be used, fsync is slower without it: %s", self.path, error)

    def close(self) -> None:
        """Close the file."""
        if self._descriptor is not None:
            self._descriptor = None
            self._close()
