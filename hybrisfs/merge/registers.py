"""The registers of the tree: for each key the set of its logically latest values (Depot 4.1).

A write supersedes the values that its update depends on; what is left stands side by side. The rules that
make one tree of it are in `hybrisfs.merge.rules`. Registers of packs are not kept here: they become rows of
`pack` and `chunk`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final, NamedTuple

from hybrisfs.kinds import CONTENT, KINDS, NODE, PLACE, ROLE, Kind, Trait, having, sql_node
from hybrisfs.members.minutes import Minutes
from hybrisfs.members.role_table import Roles
from hybrisfs.merge.history import Ended, History, is_removal
from hybrisfs.merge.supersession import Supersession, Written
from hybrisfs.registers.tree import is_of_tree, place_key, removed_place, slot_of
from hybrisfs.registers.values import Stamp, Value
from hybrisfs.state.bulk import insert_many, select_many, select_with
from hybrisfs.state.database import Database
from sync import Rename, VersionVector

__all__ = ["PLACES", "Merged", "Registers", "after", "is_kept"]

PLACES: Final = PLACE.sql_rows()  # as the index `register_place` has it
_COLUMNS: Final = "clock, writer, value"
_TREE: Final = having(Trait.TREE)
_ELSEWHERE: Final = having(Trait.ELSEWHERE)
_KIN: Final = having(Trait.KIN)
_SAID: Final = having(Trait.SAID)
_HIGHEST: Final = 0xFF
_ABOVE_SLOTS: Final = b"\xff" * 10  # no slot in a key is encoded so
_DELETE: Final = "DELETE FROM register WHERE key = ? AND clock = ? AND writer = ?"
_INSERT: Final = "INSERT OR REPLACE INTO register (key, clock, writer, value) VALUES {}"


def is_kept(key: bytes) -> bool:
    """Whether a register is kept here: not those of packs, nor what no correct device calls a register of the
    tree, which nobody could show."""
    return is_of_tree(key) if key[0] in _TREE else key[0] not in _ELSEWHERE


class Merged(NamedTuple):
    """What becomes of a register when two sets of values are merged."""

    key: bytes
    gone: Sequence[Stamp]
    """Stamps of values here that the other set supersedes."""
    come: Sequence[Value]
    """Values of the other set that nothing here supersedes."""


class Registers:
    """The register table of one volume, under the volume's lock."""

    def __init__(
        self,
        database: Database,
        on_contents: Callable[[Iterable[bytes]], None] = lambda values: None,
        history: History | None = None,
    ) -> None:
        """*on_contents* is told of the values of content registers that are written, *history* of each value
        that is superseded."""
        self._db = database
        self.roles = Roles(database)
        self.minutes = Minutes(database, self.roles)
        self._history = history
        self._on_contents = on_contents
        rows = database.execute("SELECT number, branch FROM writer").fetchall()
        self._branches: dict[int, bytes] = dict(rows)
        self._numbers: dict[bytes, int] = {branch: number for number, branch in rows}

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
        """The slots of a node whose place somebody has removed, others perhaps not."""
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

    def _collected(self, rows: Iterable[tuple[Any, ...]]) -> dict[bytes, list[Value]]:
        found: dict[bytes, list[Value]] = {}
        for key, *row in rows:
            found.setdefault(key, []).append(self._value(*row))
        return found

    def _grouped(self, condition: str, *arguments: bytes | None) -> dict[bytes, list[Value]]:
        query = f"SELECT key, {_COLUMNS} FROM register WHERE {condition}"
        return self._collected(self._db.execute(query, arguments).fetchall())

    def everything(self) -> Iterator[tuple[bytes, Value]]:
        """All values, in ascending order of keys and stamps."""
        for key, *row in self._db.execute(f"SELECT key, {_COLUMNS} FROM register ORDER BY key, clock"):
            yield key, self._value(*row)

    def _value(self, clock: int, writer: int, value: bytes | None) -> Value:
        return Value(Stamp(clock, self._branches[writer]), value)

    def stamp(self, clock: int, writer: int) -> Stamp:
        """The stamp of a value whose row has these columns."""
        return Stamp(clock, self._branches[writer])

    def write_own(self, stamp: Stamp, writes: Iterable[tuple[bytes, bytes | None]]) -> None:
        """An own update depends on all that is here: each write supersedes every other value."""
        number = self._number(stamp.writer)
        writes = list(writes)
        before = list(self._rows(key for key, _ in writes))
        if self._history is not None:
            until = self._history.moment(stamp)
            self._end(Ended(key, self.stamp(*row), until) for key, *row in before)
            self._history.removed((key[NODE], until) for key, value in writes if is_removal(key, value))
        self._db.executemany(_DELETE, before)
        insert_many(self._db, _INSERT, [(key, stamp.clock, number, value) for key, value in writes])
        for key, value in writes:
            if key[0] in _SAID:
                self.minutes.note(stamp, key, value)
            elif key[0] == ROLE:
                self.roles.note(stamp, key, value)
        if any(key[0] in _KIN for key, _ in writes):
            self.roles.kin_changed()
        self._heed(writes)

    def write(self, updates: Sequence[Written], renames: Sequence[Rename] = ()) -> dict[bytes, Value | None]:
        """Take in what other devices' updates have written, in the order in which they were accepted. The
        registers written: with their value when they had none before and have one now, else None.

        *renames*: what the log has renamed since, and the stamps of *updates* have not."""
        writers = dict.fromkeys(one.stamp.writer for one in updates)  # in order: numbers are given by it
        numbers = {writer: self._number(writer) for writer in writers}
        before = self._stamps({key for one in updates for key, _ in one.writes})
        change = Supersession(before, self._moment)
        if self._history is not None:
            self._history.renames = renames
        change.take(updates)
        if self._history is not None:
            self._note(self._history, change)
            self._history.renames = ()
        self._db.executemany(
            _DELETE,
            [(key, stamp.clock, self._number(stamp.writer)) for key, stamp in change.superseded],
        )
        insert_many(
            self._db,
            _INSERT,
            [
                (key, stamp.clock, numbers[stamp.writer], value)
                for key, latest in change.come.items()
                for stamp, value in latest
            ],
        )
        self._heed((key, value) for one in updates for key, value in one.writes)
        return {
            key: latest[0] if len(latest) == 1 and key not in before else None
            for key, latest in change.come.items()
        }

    def _stamps(self, keys: Collection[bytes]) -> dict[bytes, list[Stamp]]:
        """The stamps of the latest values of registers."""
        found: dict[bytes, list[Stamp]] = {}
        for key, clock, writer in self._rows(self._perhaps_here(keys)):
            found.setdefault(key, []).append(self.stamp(clock, writer))
        return found

    def _perhaps_here(self, keys: Collection[bytes]) -> list[bytes]:
        """Those of *keys* that are not above all of the tree's that are stored of their kind, as those of new
        nodes are."""
        highest = {int(kind): self._highest(kind) for kind in KINDS if kind in _TREE}
        return [key for key in keys if key <= highest.get(key[0], key)]

    def _highest(self, kind: Kind) -> bytes:
        (key,) = self._db.execute(f"SELECT max(key) FROM register WHERE {kind.sql_rows()}").fetchone()
        return key or b""

    def _rows(self, keys: Iterable[bytes]) -> Iterator[tuple[bytes, int, int]]:
        """Key, clock and writer of the latest values of registers, each of which is given once."""
        yield from select_with(self._db, "key, clock, writer", "register", "key", keys)

    def _moment(self, stamp: Stamp) -> int:
        return 0 if self._history is None else self._history.moment(stamp)

    def _note(self, history: History, change: Supersession) -> None:
        """Let the history know what is superseded, before it leaves its register."""
        self._end(change.ended)
        for key, until, vector in change.concurrent:
            history.end_sooner(key, until, partial(self._covers, vector))
        history.removed(change.removals)

    def _end(self, ended: Iterable[Ended]) -> None:
        if self._history is not None:
            ended = list(ended)
            self._history.end(ended, {one.stamp.writer: self._number(one.stamp.writer) for one in ended})

    def _covers(self, vector: VersionVector, clock: int, writer: int) -> bool:
        return vector[self._branches[writer]] >= clock

    def _heed(self, writes: Iterable[tuple[bytes, bytes | None]]) -> None:
        self._on_contents(value for key, value in writes if key[0] == CONTENT and value is not None)

    def merge(self, changes: Iterable[Merged]) -> None:
        """Take out and put in the values that these tell."""
        changes = list(changes)
        if self._history is not None:
            # By which update nobody can tell any more: one that came before, or with, the new values.
            for one in changes:
                if one.gone and one.come:
                    until = max(self._history.moment(value.stamp) for value in one.come)
                    self._end(Ended(one.key, stamp, until) for stamp in one.gone if until)
        self._db.executemany(
            _DELETE,
            [(one.key, stamp.clock, self._number(stamp.writer)) for one in changes for stamp in one.gone],
        )
        insert_many(
            self._db,
            _INSERT,
            [
                (one.key, value.stamp.clock, self._number(value.stamp.writer), value.value)
                for one in changes
                for value in one.come
            ],
        )
        self._heed((one.key, value.value) for one in changes for value in one.come)

    def rename_branch(self, old: bytes, above: int, new: bytes) -> dict[bytes, list[Stamp]]:
        """Updates of branch *old* with a clock above *above* turned out to be those of branch *new*: the
        stamps that values have no more, by their keys."""
        if old not in self._numbers:
            return {}
        number = self._numbers[old]
        found: dict[bytes, list[Stamp]] = {}
        for key, clock in self._db.execute(
            "SELECT key, clock FROM register WHERE writer = ? AND clock > ?", (number, above)
        ):
            found.setdefault(key, []).append(Stamp(clock, old))
        self._db.execute(
            "UPDATE register SET writer = ? WHERE writer = ? AND clock > ?",
            (self._number(new), number, above),
        )
        if self._history is not None:
            self._history.rename_branch(number, above, self._number(new))
        return found

    def number_of(self, stamp: Stamp) -> int:
        """The stamp as one number, as the view stores it: never 0."""
        return stamp.clock << 16 | self._number(stamp.writer)

    def _number(self, branch: bytes) -> int:
        number = self._numbers.get(branch)
        if number is None:
            cursor = self._db.execute("INSERT INTO writer (branch) VALUES (?)", (branch,))
            number = self._numbers[branch] = int(cursor.lastrowid or 0)
            self._branches[number] = branch
        return number


def after(prefix: bytes) -> bytes | None:
    """The least bytes that are above all that begin with *prefix*; None when there are none."""
    if prefix and prefix[-1] != _HIGHEST:
        return prefix[:-1] + bytes((prefix[-1] + 1,))
    stripped = prefix.rstrip(b"\xff")
    return stripped[:-1] + bytes((stripped[-1] + 1,)) if stripped else None
