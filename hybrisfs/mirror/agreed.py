"""The state of both sides of a mirror when they last were equal: a database of its own for each mirror.

It is written only after what it says is durable on both sides. `generation` counts the commits; the volume's
own database keeps the same count (`mirror.volume_side`), which may be ahead by one after a crash, but is
never behind unless that database is older than this one.
"""

from __future__ import annotations

import contextlib
import json
import sqlite3
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

from msgspec import Struct

from hybrisfs.errors import DamagedError, NewerFormatError
from hybrisfs.mirror.model import PERMISSIONS, Agreed, Facts, Kind, Seen, Side, parent_of

__all__ = ["AgreedTable", "Settings", "read_settings"]

_FORMAT: Final = 1
_BUSY_SECONDS: Final = 30.0
_SEEN: Final = ("id", "stamp", "kind", "mode", "mtime", "size", "content", "xattrs", "links")
_COLUMNS: Final = ", ".join(f"{side}_{name}" for side in ("local", "volume") for name in _SEEN)
_SCHEMA: Final = """
-- One row. `format`: of this database; `settings`: JSON, see `Settings`; `generation`: see the module.
CREATE TABLE mirror (
    format     INTEGER NOT NULL,
    settings   TEXT NOT NULL,
    generation INTEGER NOT NULL
);
-- Paths are relative to the mirror, without a slash in front; `parent` is b'' for what is at its root. Both
-- sides have the same columns. `id`: inode number (8 bytes, big-endian), id of the node; `stamp`: see the
-- module of the side; `kind`: mirror.model.Kind; `mode`: permissions (once with set-ID and sticky bits, which
-- count no more); `mtime`: ns since the epoch; `content`:
-- its identity, 32 bytes, of a link its target; `xattrs`: digest of the extended attributes; `links`: number
-- of names.
CREATE TABLE agreed (
    path   BLOB PRIMARY KEY,
    parent BLOB NOT NULL,
    local_id BLOB NOT NULL, local_stamp BLOB NOT NULL,
    local_kind INTEGER NOT NULL, local_mode INTEGER NOT NULL, local_mtime INTEGER NOT NULL,
    local_size INTEGER NOT NULL, local_content BLOB, local_xattrs BLOB NOT NULL, local_links INTEGER NOT NULL,
    volume_id BLOB NOT NULL, volume_stamp BLOB NOT NULL,
    volume_kind INTEGER NOT NULL, volume_mode INTEGER NOT NULL, volume_mtime INTEGER NOT NULL,
    volume_size INTEGER NOT NULL, volume_content BLOB, volume_xattrs BLOB NOT NULL,
    volume_links INTEGER NOT NULL
) WITHOUT ROWID;
CREATE INDEX agreed_in ON agreed (parent);
CREATE INDEX agreed_local ON agreed (local_id);
CREATE INDEX agreed_volume ON agreed (volume_id);
"""


class Settings(Struct, frozen=True):
    """A mirror as it was made."""

    id: str
    """32 hexadecimal digits; the marker in the folder says the same."""
    directory: Path
    at: str
    """The folder of the volume, as it was called when the mirror was made."""
    root: bytes
    """The id of that folder's node."""
    ignore: tuple[str, ...] = ()

    def encode(self) -> str:
        record = {
            "id": self.id,
            "directory": str(self.directory),
            "at": self.at,
            "root": self.root.hex(),
            "ignore": list(self.ignore),
        }
        return json.dumps(record)

    @staticmethod
    def decode(text: str) -> Settings:
        """Raises ValueError."""
        record = json.loads(text)
        try:
            directory, ignore = Path(record["directory"]), record["ignore"]
            settings = Settings(
                record["id"], directory, record["at"], bytes.fromhex(record["root"]), tuple(ignore)
            )
        except (KeyError, TypeError) as error:
            raise ValueError("malformed settings of a mirror") from error
        texts = (settings.id, settings.at, *settings.ignore)
        if not directory.is_absolute() or not all(isinstance(one, str) for one in texts):
            raise ValueError("malformed settings of a mirror")
        return settings


def read_settings(path: Path) -> Settings:
    """Those of the mirror whose database is at *path*, in use or not. Raises sqlite3.Error, ValueError."""
    with contextlib.closing(sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True)) as connection:
        (text,) = connection.execute("SELECT settings FROM mirror").fetchone() or ("",)
        return Settings.decode(text)


class AgreedTable:
    """The open database of one mirror. For one thread at a time."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._db = connection
        text, self.generation = connection.execute("SELECT settings, generation FROM mirror").fetchone()
        self.settings = Settings.decode(text)

    @staticmethod
    def create(path: Path | str, settings: Settings) -> AgreedTable:
        """Make a new one. Raises OSError or sqlite3.Error."""
        connection = _connect(path)
        connection.executescript(_SCHEMA)
        connection.execute("INSERT INTO mirror VALUES (?, ?, 0)", (_FORMAT, settings.encode()))
        connection.commit()
        return AgreedTable(connection)

    @staticmethod
    def open(path: Path) -> AgreedTable:
        """Raises DamagedError or NewerFormatError."""
        connection = _connect(path)
        try:
            (form,) = connection.execute("SELECT format FROM mirror").fetchone()
            if form > _FORMAT:
                raise NewerFormatError(f"{path} is of a later version of this program")
            return AgreedTable(connection)
        except (sqlite3.DatabaseError, TypeError, ValueError) as error:
            connection.close()
            raise DamagedError(
                f"the record of a mirror, {path}, is damaged",
                str(error),
                "Remove that file, and add the mirror again: both sides are merged, nothing is removed.",
            ) from error

    def close(self) -> None:
        self._db.close()

    # -- reading ---------------------------------------------------------------------------------

    def get(self, path: bytes) -> Agreed | None:
        row = self._db.execute(f"SELECT {_COLUMNS} FROM agreed WHERE path = ?", (path,)).fetchone()
        return None if row is None else _agreed(row)

    def children(self, parent: bytes) -> dict[bytes, Agreed]:
        """The agreed states of all names in a directory, by path."""
        rows = self._db.execute(f"SELECT path, {_COLUMNS} FROM agreed WHERE parent = ?", (parent,))
        return {row[0]: _agreed(row[1:]) for row in rows}

    def named(self, side: Side, identity: bytes) -> list[bytes]:
        """All paths under which something was known on one side."""
        rows = self._db.execute(f"SELECT path FROM agreed WHERE {side.value}_id = ?", (identity,))
        return [path for (path,) in rows]

    def folders(self, path: bytes) -> list[bytes]:
        """What both sides have as folders at *path* and below it."""
        query = "SELECT path FROM agreed WHERE local_kind = ? AND (path = ? OR (path > ? AND path < ?))"
        return [one for (one,) in self._db.execute(query, (int(Kind.DIRECTORY), *_below(path)))]

    def count(self) -> int:
        found: int = self._db.execute("SELECT count(*) FROM agreed").fetchone()[0]
        return found

    # -- changing --------------------------------------------------------------------------------

    def put(self, path: bytes, agreed: Agreed) -> None:
        """What both sides have at *path*. Nothing is agreed any more of what was below a folder that is none
        now: else it would count as removed as soon as there is such a folder again."""
        if agreed.local.facts.kind is not Kind.DIRECTORY:
            self._db.execute("DELETE FROM agreed WHERE path > ? AND path < ?", _below(path)[1:])
        values = (path, parent_of(path), *_row(agreed.local), *_row(agreed.volume))
        self._db.execute(f"INSERT OR REPLACE INTO agreed VALUES ({', '.join('?' * len(values))})", values)

    def forget(self, paths: Iterable[bytes]) -> None:
        """Forget the agreed states of these, and of all below them."""
        for path in paths:
            self._db.execute("DELETE FROM agreed WHERE path = ? OR (path > ? AND path < ?)", _below(path))

    def forget_all(self) -> None:
        """Start over: both sides are merged."""
        self._db.execute("DELETE FROM agreed")

    def rename(self, old: bytes, new: bytes) -> None:
        """Let the agreed states of *old*, and of all below it, hold for *new*."""
        self.forget([new])
        self._db.execute(
            "UPDATE agreed SET path = CAST(? || substr(path, ?) AS BLOB), "
            "parent = CASE WHEN path = ? THEN ? ELSE CAST(? || substr(parent, ?) AS BLOB) END "
            "WHERE path = ? OR (path > ? AND path < ?)",
            (new, len(old) + 1, old, parent_of(new), new, len(old) + 1, *_below(old)),
        )

    def commit(self, generation: int) -> None:
        """Make durable what was changed; the volume's database holds this generation already."""
        self._db.execute("UPDATE mirror SET generation = ?", (generation,))
        self._db.commit()
        self.generation = generation

    def undo(self) -> None:
        """Forget what was changed since the last commit."""
        self._db.rollback()


def _connect(path: Path | str) -> sqlite3.Connection:
    connection = sqlite3.connect(path, timeout=_BUSY_SECONDS, check_same_thread=False)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    return connection


def _below(path: bytes) -> tuple[bytes, bytes, bytes]:
    """A path, and the bounds of what is below it: a 0 comes right after a slash."""
    return path, path + b"/", path + b"0"


def _row(seen: Seen) -> tuple[Any, ...]:
    facts = seen.facts
    return (
        seen.identity, seen.stamp, int(facts.kind), facts.mode, facts.mtime, facts.size, facts.content,
        facts.xattrs, seen.links,
    )  # fmt: skip


def _agreed(row: tuple[Any, ...]) -> Agreed:
    return Agreed(_seen(row[: len(_SEEN)]), _seen(row[len(_SEEN) :]))


def _seen(row: tuple[Any, ...]) -> Seen:
    identity, stamp, kind, mode, mtime, size, content, xattrs, links = row
    return Seen(identity, stamp, Facts(Kind(kind), mode & PERMISSIONS, mtime, size, content, xattrs), links)
