"""The latest values of registers as they are stored: the tables `register` and `writer`.

A row of `register` is one of the values that nothing supersedes, with the stamp of the update that wrote it:
its clock, and the number that `writer` gives its branch. Which values supersede which, `Registers` knows
(`hybrisfs.log`), which alone writes them. All other code here reads only the stored rows.

`RegisterTable` remembers which number is which branch's. The functions read a snapshot as well as the open
transaction. Rows that a function gives by the hundred thousand are plain tuples, read as the caller goes on.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from hybrisfs.kinds import (
    ADMISSION,
    ATTRIBUTES,
    CONTENT,
    KINDS,
    MEMBER,
    NODE,
    PLACE,
    Kind,
    Trait,
    having,
    sql_node,
)
from hybrisfs.registers.tree import place_key, removed_place, slot_of
from hybrisfs.registers.values import Stamp, Value
from hybrisfs.state.bulk import insert_many, select_many, select_with
from hybrisfs.state.database import Reader, RowWriter
from sync import Rename

__all__ = [
    "PLACES",
    "NodeValues",
    "RegisterTable",
    "Said",
    "Stamped",
    "after",
    "all_values",
    "beginnings",
    "branches_by_number",
    "forget_older",
    "is_anything_said_of",
    "keys_of_node",
    "keys_with_several",
    "note_said",
    "rename_said",
    "rows_beginning",
    "rows_of_kind",
    "said_of_kin",
    "said_of_kind",
    "some_latest_value",
    "stamped_of_kind",
    "stamps_of_key",
    "stamps_of_keys",
    "value_at",
    "values_of_kind",
    "values_on_branch",
]

_OF_MEMBERS: Final = having(Trait.MEMBERS)
PLACES: Final = PLACE.sql_rows()  # as the index `register_place` has it
_COLUMNS: Final = "clock, writer, value"
_NODES: Final = (
    "SELECT p.key, p.value, p.clock, p.writer, a.value, c.value, c.clock, c.writer FROM register p "
    f"LEFT JOIN register a ON a.key = {ATTRIBUTES.sql_key(sql_node('p.key'))} "
    f"LEFT JOIN register c ON c.key = {CONTENT.sql_key(sql_node('p.key'))} "
    f"WHERE {PLACE.sql_rows('p.key')} AND "
)
_CHILDREN: Final = _NODES + "p.value >= ? AND p.value < ? ORDER BY p.value"
_REMOVED: Final = _NODES + "substr(p.value, -1) = x'00'"  # no name ends so
_SEVERAL: Final = " UNION ALL ".join(
    [
        f"SELECT {sql_node()} FROM register WHERE {kind.sql_rows()} GROUP BY key HAVING count(*) > 1"
        for kind in KINDS
        if Trait.TREE in kind.traits
    ]
    + [f"SELECT {sql_node()} FROM register WHERE {PLACES} AND substr(key, 18) <> x'00'"]
)
_NOT_SHOWN: Final = (
    f"SELECT DISTINCT {sql_node()} FROM register WHERE {PLACES} "
    f"AND NOT EXISTS (SELECT 1 FROM node WHERE id = {sql_node()})"
)
_HIGHEST: Final = 0xFF
_ABOVE_SLOTS: Final = b"\xff" * 10  # no slot in a key is encoded so


class Stamped(NamedTuple):
    """A value of a register, with its key."""

    key: bytes
    stamp: Stamp
    value: bytes | None


class NodeValues(NamedTuple):
    """A value of a place register, and of each other register of its node: all, where each has one value. The
    stamps as `RegisterTable.stamp` takes them."""

    key: bytes
    value: bytes
    clock: int
    writer: int
    attr: bytes | None
    content: bytes | None
    content_clock: int | None
    content_writer: int | None


class RegisterTable:
    """The registers of one volume, under its lock or of a snapshot."""

    def __init__(self, database: Reader) -> None:
        self._db = database
        self._branches = branches_by_number(database)
        self._numbers: dict[bytes, int] = {branch: number for number, branch in self._branches.items()}

    # -- looking up ------------------------------------------------------------------------------

    def values(self, key: bytes) -> list[Value]:
        """The latest values of one register, in no order."""
        rows = self._db.execute(f"SELECT {_COLUMNS} FROM register WHERE key = ?", (key,))
        return [self._value(*row) for row in rows]

    def with_prefix(self, prefix: bytes) -> dict[bytes, list[Value]]:
        """The registers whose keys begin with *prefix*, which does not end in 0xff."""
        return self._grouped("key >= ? AND key < ?", prefix, after(prefix))

    def places_beginning(self, value: bytes) -> dict[bytes, list[Value]]:
        """Values of place registers that begin with *value* (of each register, only these values)."""
        end = after(value)
        if end is None:
            return self._grouped(f"{PLACES} AND value >= ?", value)
        return self._grouped(f"{PLACES} AND value >= ? AND value < ?", value, end)

    def some_places(self, first: bytes, last: bytes | None, most: int) -> list[bytes]:
        """Keys of up to so many values of place registers from *first* on and below *last*; None: of none."""
        rows = self._db.execute(
            f"SELECT key FROM register WHERE {PLACES} AND value >= ? AND value < ? LIMIT ?",
            (first, last, most),
        )
        return [key for (key,) in rows.fetchall()]

    def shown_beginning(self, value: bytes) -> set[bytes]:
        """The nodes that the view shows, among those of which place registers begin with *value*."""
        end = after(value)
        below = "" if end is None else "AND value < ? "
        rows = self._db.execute(
            f"WITH named (id) AS (SELECT {sql_node()} FROM register WHERE {PLACES} AND value >= ? "
            f"{below}) SELECT id FROM named WHERE EXISTS (SELECT 1 FROM node n WHERE n.id = named.id) "
            "OR EXISTS (SELECT 1 FROM joined j WHERE j.id = named.id)",
            (value,) if end is None else (value, end),
        )
        return {node for (node,) in rows}

    def all_values(self, keys: Iterable[bytes]) -> dict[bytes, list[Value]]:
        """The latest values of many registers, those without any left out. *keys*: each once."""
        return self._collected(select_with(self._db, f"key, {_COLUMNS}", "register", "key", keys))

    def between(self, first: bytes, last: bytes) -> dict[bytes, list[Value]]:
        """The latest values of the registers with keys from *first* to *last*."""
        return self._grouped("key >= ? AND key <= ?", first, last)

    def linked(self, nodes: Iterable[bytes]) -> set[bytes]:
        """Those of *nodes* that have place registers besides that of slot 0."""
        query = (
            "WITH wanted (first, last) AS (VALUES {}) SELECT first FROM wanted WHERE EXISTS "
            "(SELECT 1 FROM register WHERE key > first AND key < last)"
        )
        ranges = [(place_key(node, 0), PLACE.key(node, _ABOVE_SLOTS)) for node in nodes]
        return {first[NODE] for (first,) in select_many(self._db, query, ranges)}

    def removed_slots(self, node: bytes) -> set[int]:
        """The slots of a node whose place some device has removed, others perhaps not."""
        prefix = PLACE.key(node)
        rows = self._db.execute(
            "SELECT key, value FROM register WHERE key >= ? AND key < ?", (prefix, after(prefix))
        )
        return {slot_of(key) for key, value in rows if removed_place(value) is not None}

    def contested(self, places: Mapping[bytes, bytes]) -> set[bytes]:
        """Those of *places*, given by the key of a register and how its value begins, with which values of
        other registers begin, too."""
        query = (
            "WITH wanted (own, low, high) AS (VALUES {}) SELECT own FROM wanted WHERE EXISTS "
            f"(SELECT 1 FROM register WHERE {PLACES} AND value >= low AND value < high AND key <> own)"
        )
        rows = [(key, value, after(value)) for key, value in places.items()]
        return {own for (own,) in select_many(self._db, query, rows)}

    def count_beginning(self, values: Iterable[bytes]) -> dict[bytes, int]:
        """How many place registers have a value that begins with each of *values*, if any has."""
        query = (
            "WITH wanted (low, high) AS (VALUES {}) SELECT low, count(DISTINCT key) "
            f"FROM wanted CROSS JOIN register WHERE {PLACES} AND value >= low AND value < high GROUP BY low"
        )
        return dict(select_many(self._db, query, [(value, after(value)) for value in values]))

    # -- all nodes of a tree ---------------------------------------------------------------------

    def children(self, directory: bytes) -> Iterator[NodeValues]:
        """What place registers say to be in a directory, those of one name one after the other."""
        # What follows the directory is the length of a name, of one or two bytes.
        return map(NodeValues._make, self._db.execute(_CHILDREN, (directory, directory + b"\xff\xff")))

    def removals(self) -> Iterator[NodeValues]:
        """The places that have been removed."""
        return map(NodeValues._make, self._db.execute(_REMOVED))

    def with_several(self) -> set[bytes]:
        """The nodes of which a register has several values, or that have a place of another slot than 0."""
        return {node for (node,) in self._db.execute(_SEVERAL)}

    def not_shown(self) -> list[bytes]:
        """The nodes with place registers that the view does not show."""
        return [node for (node,) in self._db.execute(_NOT_SHOWN).fetchall()]

    def _collected(self, rows: Iterable[tuple[Any, ...]]) -> dict[bytes, list[Value]]:
        found: dict[bytes, list[Value]] = {}
        for key, *row in rows:
            found.setdefault(key, []).append(self._value(*row))
        return found

    def _grouped(self, condition: str, *arguments: bytes | None) -> dict[bytes, list[Value]]:
        query = f"SELECT key, {_COLUMNS} FROM register WHERE {condition}"
        return self._collected(self._db.execute(query, arguments).fetchall())

    def _value(self, clock: int, writer: int, value: bytes | None) -> Value:
        return Value(Stamp(clock, self._branches[writer]), value)

    # -- stamps ----------------------------------------------------------------------------------

    def stamp(self, clock: int, writer: int) -> Stamp:
        """The stamp of a value whose row has these columns."""
        return Stamp(clock, self._branches[writer])

    def number_of(self, stamp: Stamp) -> int:
        """The stamp as one number, as the view stores it: never 0."""
        return stamp.clock << 16 | self._number(stamp.branch)

    def _number(self, branch: bytes) -> int:
        number = self._numbers.get(branch)
        if number is None:
            cursor = self._db.execute("INSERT INTO writer (branch) VALUES (?)", (branch,))
            number = self._numbers[branch] = int(cursor.lastrowid or 0)
            self._branches[number] = branch
        return number

    def _rows(self, keys: Iterable[bytes]) -> Iterator[tuple[bytes, int, int]]:
        """Key, clock and writer of the latest values of registers, each of which is given once."""
        yield from select_with(self._db, "key, clock, writer", "register", "key", keys)

    def _highest(self, kind: Kind) -> bytes:
        """The highest key of a kind; empty when there is none."""
        (key,) = self._db.execute(f"SELECT max(key) FROM register WHERE {kind.sql_rows()}").fetchone()
        return key or b""

    # -- writing ---------------------------------------------------------------------------------

    def _take_out(self, rows: Sequence[tuple[bytes, int, int]]) -> None:
        """Remove the values with these keys, clocks and writers."""
        self._note_membership(rows)
        self._db.executemany("DELETE FROM register WHERE key = ? AND clock = ? AND writer = ?", rows)

    def _put_in(self, rows: Sequence[tuple[bytes, int, int, bytes | None]]) -> None:
        """Store values: keys, clocks, writers, and what was written."""
        self._note_membership(rows)
        insert_many(self._db, "INSERT OR REPLACE INTO register (key, clock, writer, value) VALUES {}", rows)

    def _note_membership(self, rows: Iterable[tuple[Any, ...]]) -> None:
        """Registers with these keys, which are first in the rows, change."""
        if isinstance(self._db, RowWriter) and not _OF_MEMBERS.isdisjoint({key[0] for key, *_ in rows}):
            self._db.membership += 1

    def _rename(self, old: int, above: int, new: int) -> list[tuple[bytes, int]]:
        """Let the values of branch number *old* with a clock above *above* be those of branch number *new*:
        their keys and clocks."""
        rows: list[tuple[bytes, int]] = self._db.execute(
            "SELECT key, clock FROM register WHERE writer = ? AND clock > ?", (old, above)
        ).fetchall()
        self._note_membership(rows)
        self._db.execute("UPDATE register SET writer = ? WHERE writer = ? AND clock > ?", (new, old, above))
        return rows


def branches_by_number(db: Reader) -> dict[int, bytes]:
    """The branches by the numbers that rows of `register` and `past` name them with."""
    return dict(db.execute("SELECT number, branch FROM writer").fetchall())


def values_of_kind(db: Reader, kind: Kind) -> Iterator[bytes | None]:
    """The latest values of all registers of a kind."""
    for (value,) in db.execute(f"SELECT value FROM register WHERE {kind.sql_rows()}"):
        yield value


def some_latest_value(db: Reader, key: bytes) -> bytes | None:
    """One of the latest values of a register; None also when it has none."""
    row = db.execute("SELECT value FROM register WHERE key = ?", (key,)).fetchone()
    return None if row is None else row[0]


def keys_of_node(db: Reader, kind: Kind, node: bytes) -> set[bytes]:
    """The registers of a kind of one node."""
    first = kind.key(node)
    rows = db.execute("SELECT key FROM register WHERE key >= ? AND key < ?", (first, after(first)))
    return {key for (key,) in rows}


def stamped_of_kind(db: Reader, kind: Kind) -> list[Stamped]:
    """The latest values of all registers of a kind, with their keys and stamps."""
    rows = db.execute(
        "SELECT r.key, w.branch, r.clock, r.value FROM register r JOIN writer w ON w.number = r.writer "
        f"WHERE {kind.sql_rows('r.key')}"
    )
    return [Stamped(key, Stamp(clock, branch), value) for key, branch, clock, value in rows.fetchall()]


def stamps_of_keys(db: Reader, keys: Collection[bytes]) -> list[tuple[bytes, Stamp]]:
    """The stamps of the latest values of a few registers, with their keys."""
    rows = db.execute(
        "SELECT r.key, w.branch, r.clock FROM register r JOIN writer w ON w.number = r.writer "
        f"WHERE r.key IN ({', '.join('?' * len(keys))})",
        tuple(keys),
    )
    return [(key, Stamp(clock, branch)) for key, branch, clock in rows.fetchall()]


def rows_beginning(db: Reader, prefix: bytes, above: bytes) -> Iterator[tuple[bytes, int, int, bytes]]:
    """Key, clock, number of the branch, and value of the registers whose keys begin with *prefix* and come
    after *above*; by key. Those without a value are left out."""
    return db.execute(
        "SELECT key, clock, writer, value FROM register WHERE key >= ? AND key > ? AND key < ? "
        "AND value IS NOT NULL ORDER BY key",
        (prefix, above, after(prefix)),
    )


def rows_of_kind(db: Reader, kind: Kind | None) -> Iterator[tuple[bytes, int, int, bytes | None]]:
    """Key, clock, number of the branch, and value of all registers of a kind, or of all kinds, by key."""
    condition = "" if kind is None else f"WHERE {kind.sql_rows()} "
    return db.execute(f"SELECT key, clock, writer, value FROM register {condition}ORDER BY key")


def keys_with_several(db: Reader, prefix: bytes) -> list[bytes]:
    """The keys that begin with *prefix* of the registers that have several values, in order."""
    rows = db.execute(
        "SELECT key FROM register WHERE key >= ? AND key < ? GROUP BY key HAVING count(*) > 1 ORDER BY key",
        (prefix, after(prefix)),
    )
    return [key for (key,) in rows]


def after(prefix: bytes) -> bytes | None:
    """The least bytes that are above all that begin with *prefix*; None when there are none."""
    if prefix and prefix[-1] != _HIGHEST:
        return prefix[:-1] + bytes((prefix[-1] + 1,))
    stripped = prefix.rstrip(b"\xff")
    return stripped[:-1] + bytes((stripped[-1] + 1,)) if stripped else None


# -- what members have said in registers whose every value matters: the table `said` --------------------
# A row says that the update with this clock on this branch wrote the value to the register of this key. So
# the values that the author of a decision had seen can be found again. `hybrisfs.members` knows which values
# count.
# *begins* in a row: what was said before on this branch is not known, or not any more.


class Said(NamedTuple):
    """A value of a register, with branch and clock of the update that wrote it."""

    key: bytes
    branch: bytes
    clock: int
    value: bytes


def note_said(db: RowWriter, said: Said, *, begins: bool) -> None:
    """Note a value. *begins*: see above."""
    db.membership += said.key[0] in _OF_MEMBERS
    db.execute(
        "INSERT OR REPLACE INTO said (key, branch, clock, value, begins) VALUES (?, ?, ?, ?, ?)",
        (*said, begins),
    )


def forget_older(db: RowWriter, key: bytes, branch: bytes, kept: int) -> None:
    """Of a register, keep the newest values of a branch, so many, and forget the others."""
    oldest = db.execute(
        "SELECT clock FROM said WHERE key = ? AND branch = ? ORDER BY clock DESC LIMIT 2 OFFSET ?",
        (key, branch, kept - 1),
    ).fetchall()
    if len(oldest) < 2:
        return
    db.membership += key[0] in _OF_MEMBERS
    first = (key, branch, oldest[0][0])
    db.execute("DELETE FROM said WHERE key = ? AND branch = ? AND clock < ?", first)
    db.execute("UPDATE said SET begins = 1 WHERE key = ? AND branch = ? AND clock = ?", first)


def rename_said(db: RowWriter, rename: Rename) -> None:
    """A branch of the log has another name now, above a clock."""
    db.membership += 1
    db.execute(
        "UPDATE said SET branch = ? WHERE branch = ? AND clock > ?", (rename.new, rename.old, rename.above)
    )


def beginnings(db: Reader) -> list[tuple[bytes, int]]:
    """Branch and clock of the values before which something is not known."""
    return db.execute("SELECT branch, clock FROM said WHERE begins").fetchall()


def values_on_branch(db: Reader, key: bytes, branch: bytes) -> set[bytes]:
    """All that a branch has said in a register."""
    rows = db.execute("SELECT value FROM said WHERE key = ? AND branch = ?", (key, branch))
    return {value for (value,) in rows}


def all_values(db: Reader, key: bytes) -> list[bytes]:
    """All that was said in a register, by clock and branch."""
    rows = db.execute("SELECT value FROM said WHERE key = ? ORDER BY clock, branch", (key,))
    return [value for (value,) in rows.fetchall()]


def stamps_of_key(db: Reader, key: bytes) -> list[tuple[bytes, int]]:
    """Branch and clock of all that was said in a register, by these."""
    return db.execute("SELECT branch, clock FROM said WHERE key = ?", (key,)).fetchall()


def value_at(db: Reader, key: bytes, branch: bytes, clock: int) -> bytes:
    """What an update has said in a register, as `stamps_of_key` tells."""
    (value,) = db.execute(
        "SELECT value FROM said WHERE key = ? AND branch = ? AND clock = ?", (key, branch, clock)
    ).fetchone()
    return bytes(value)


def said_of_kind(db: Reader, kind: Kind) -> list[Said]:
    """All that was said in registers of a kind, by key, branch and clock."""
    rows = db.execute(
        f"SELECT key, branch, clock, value FROM said WHERE {kind.sql_rows()} ORDER BY key, branch, clock"
    )
    return list(map(Said._make, rows))


def said_of_kin(db: Reader) -> list[Said]:
    """All that was said of members and of their inviters, by clock."""
    rows = db.execute(
        f"SELECT key, branch, clock, value FROM said WHERE {ADMISSION.sql_rows()} OR {MEMBER.sql_rows()} "
        "ORDER BY clock"
    )
    return list(map(Said._make, rows))


def is_anything_said_of(db: Reader, kind: Kind, device: bytes) -> bool:
    """Whether anything was said in registers of a kind whose keys begin with this device."""
    first = kind.key(device)
    row = db.execute("SELECT 1 FROM said WHERE key >= ? AND key < ? LIMIT 1", (first, after(first)))
    return row.fetchone() is not None
