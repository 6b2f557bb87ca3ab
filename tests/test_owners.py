"""What has one owner: the letters of registers, SQL, the transaction and the lock, commits (docs/internals),
checked in the source itself."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator

import pytest

from hybrisfs.kinds import KINDS
from tests.test_architecture import (
    imports,
    imports_of,
    modules,
    name_of,
    nodes,
    text_of,
    used,
    whole_product,
    within,
)

# -- the letters of kinds of registers -----------------------------------------------------------------

LETTERS = bytes(KINDS)
IN_SQL = re.compile(rf"x'(?:{'|'.join(f'{letter:02x}' for letter in LETTERS)})'", re.IGNORECASE)
# What is not a letter of a register there.
OTHER_LETTERS = {
    "hybrisfs.daemon.supervisor": "a word that it says",
    "hybrisfs.merge.losses": "a folder of git",
    "hybrisfs.merge.samples": "how files of some formats begin",
    "hybrisfs.kv.service_metadata": "keys of a service",
    "hybrisfs.kv.service_updates": "keys of a service",
    "hybrisfs.kv.service_writes": "keys of a service",
    "hybrisfs.kv.zookeeper_tree": "keys of a service",
}


def spells_a_kind(node: ast.AST) -> bool:
    """Whether it writes down letters of kinds of registers, or where the node is in a key."""
    match node:
        case ast.Constant(value=bytes() as value):
            return bool(value) and not set(value) - set(LETTERS)
        case ast.Constant(value=str() as value):
            return IN_SQL.search(value) is not None
        case ast.Call(func=ast.Name(id="ord"), args=[ast.Constant(value=str() as value)]):
            return ord(value) in LETTERS
        case ast.Slice(lower=ast.Constant(value=1), upper=ast.Constant(value=17)):
            return True
    return False


def test_the_letters_of_registers_stand_in_their_table_only() -> None:
    found = {name for name, source in whole_product() if any(spells_a_kind(node) for node in nodes(source))}
    assert found == OTHER_LETTERS.keys()


@pytest.mark.parametrize(
    "source",
    ["b'p'", "b'pac'", "ord('c')", "\"key >= x'70'\"", "f\"{x} IN (x'6D', {y})\"", "key[1:17]"],
)
def test_no_way_to_write_a_letter_escapes(source: str) -> None:
    assert any(spells_a_kind(node) for node in nodes(source))


# -- SQL on the tables of chunks -------------------------------------------------------------------------

NAMES_CHUNKS = re.compile(
    r"\b(?:FROM|INTO|UPDATE|JOIN|TABLE|ON|EXISTS)\s+(?:chunk|spare|condemned)\b"
    r"|^(?:chunk|spare)(?:$|(?: [a-z])? (?:CROSS|GROUP|JOIN|LEFT|ON|ORDER|WHERE)\b)"
)
OWNS_CHUNKS = ("hybrisfs.state", "hybrisfs.state.schema", "hybrisfs.state.migration")
# Parts of such SQL.
FRAGMENTS = ("CHUNK_COLUMNS", "EVICTABLE", "IS_ASIDE", "IS_SHOWN", "ONLY_HERE", "ON_CLOUDS")


def texts(source: str) -> Iterator[str]:
    """The strings in a module that are no docstrings; what stands between braces in one is left out."""
    prose = {id(node.value) for node in nodes(source) if isinstance(node, ast.Expr)}
    parts = {id(part) for node in nodes(source) if isinstance(node, ast.JoinedStr) for part in node.values}
    for node in nodes(source):
        if isinstance(node, ast.JoinedStr):
            yield "".join(str(part.value) for part in node.values if isinstance(part, ast.Constant))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in prose | parts:
            yield node.value


def names_chunks(source: str) -> bool:
    """Whether SQL in it names a table of chunks, or is put together from its columns."""
    return any(NAMES_CHUNKS.search(text) for text in texts(source)) or any(
        name.rpartition(".")[2] in FRAGMENTS for name in imports(source, "x")
    )


def test_sql_on_chunks_stands_with_their_owner() -> None:
    wrong = [
        name for name, source in whole_product() if names_chunks(source) and not within(name, OWNS_CHUNKS)
    ]
    assert wrong == []


@pytest.mark.parametrize(
    "source",
    [
        "db.execute('SELECT 1 FROM chunk WHERE id = ?')",
        "db.execute(f'SELECT {columns} FROM spare s')",
        "QUERY = 'SELECT 1 FROM pack p ' f'JOIN chunk c ON {x}'",
        "QUERY = 'DELETE FROM ' 'chunk'",
        "QUERY = f'UPDATE chunk SET {x}'",
        "select_with(db, 'id', 'chunk', 'id', ids)",
        "CHUNKS = 'chunk c WHERE c.pack = 0'",
        "from hybrisfs.state.chunk_states import ON_CLOUDS",
    ],
)
def test_no_way_to_name_a_table_of_chunks_escapes(source: str) -> None:
    assert names_chunks(source)
    assert not names_chunks('"""FROM chunk"""')
    assert not names_chunks("QUERY = 'SELECT chunk FROM file_chunk'")


# -- SQL with the owner of the state -----------------------------------------------------------------------

# The state of the volume, what its queries are made of, and databases of their own.
OWN_DATABASES = ("hybrisfs.kinds", "hybrisfs.kv", "hybrisfs.mirror.agreed", "hybrisfs.state")
IS_SQL = re.compile(
    r"\b(?:SELECT|INSERT|REPLACE INTO|UPDATE \w+ SET|DELETE FROM|FROM|WHERE|VALUES(?=[\s(])|CREATE|PRAGMA"
    r"|SAVEPOINT)\b"
)
RUNS_SQL = ("execute", "executemany", "executescript")
# Parts of such SQL.
MAKES_SQL = ("PLACES", "sql_key", "sql_node", "sql_prefix", "sql_rows")


def holds_sql(source: str) -> bool:
    """Whether a module holds SQL or parts of it, runs some, or has some run."""
    return (
        any(IS_SQL.search(text) for text in texts(source))
        or any(
            isinstance(node, ast.Attribute) and node.attr in (*RUNS_SQL, *MAKES_SQL) for node in nodes(source)
        )
        or any(
            within(name, ("hybrisfs.state.bulk",)) or name.rpartition(".")[2] in MAKES_SQL
            for name in imports(source, "x")
        )
    )


def test_sql_stands_with_the_owner_of_the_state() -> None:
    wrong = [
        name for name, source in whole_product() if holds_sql(source) and not within(name, OWN_DATABASES)
    ]
    assert wrong == []


# Modules that catch what SQLite raises.
CATCH_SQLITE = (
    "hybrisfs.admit.damaged_database",
    "hybrisfs.admit.local_copy",
    "hybrisfs.daemon.service",
    "hybrisfs.doctor.examination",
    "hybrisfs.errors",
    "hybrisfs.stores.own_places",
    "hybrisfs.tree.commit",
)


def test_sqlite_is_used_by_who_owns_a_database() -> None:
    found = {
        name
        for name, source in whole_product()
        if any(within(one, ("sqlite3",)) for one in imports_of(source)) and not within(name, OWN_DATABASES)
    }
    assert found == set(CATCH_SQLITE)
    opened = [
        f"{name}: {one}"
        for name, source in whole_product()
        if name in CATCH_SQLITE
        for one, _ in used(source)
        if within(one, ("sqlite3.connect", "sqlite3.Connection", "sqlite3.Cursor"))
    ]
    assert opened == []


@pytest.mark.parametrize(
    "source",
    [
        "db.execute(query)",
        "rows = members.find('WHERE state = ?')",
        "from hybrisfs.state.bulk import select_with",
        "from hybrisfs.state.registers import PLACES",
        "QUERY = f'SELECT {x} ' 'FROM log'",
        "QUERY = 'INSERT OR IGNORE INTO epoch VALUES (?)'",
        "QUERY = 'UPDATE said ' 'SET begins = 1'",
        "f'WHERE {PLACE.sql_rows()}'",
        "run = db.executemany",
    ],
)
def test_no_way_to_write_sql_escapes(source: str) -> None:
    assert holds_sql(source)
    assert not holds_sql('"""SELECT 1 FROM log"""')
    assert not holds_sql("log.info('rows were updated from where they are')")


# -- one walk from a node to its path ----------------------------------------------------------------------


def puts_names_in_order(source: str) -> bool:
    """Whether a path is made of names that were met on the way up."""
    return any(
        isinstance(node, ast.Call)
        and re.fullmatch(r"b?['\"]/['\"]\.join|\w*Path", ast.unparse(node.func))
        and any(re.search(r"\breversed\(|\[::-1\]", ast.unparse(one)) for one in node.args)
        for node in ast.walk(ast.parse(source))
    )


def test_one_function_walks_from_a_node_to_its_path() -> None:
    found = [name_of(one) for one in modules("hybrisfs") if puts_names_in_order(one.read_text())]
    assert found == ["hybrisfs.state.shown_nodes"]
    assert puts_names_in_order("os.fsdecode(b'/'.join(reversed(names)))")
    assert puts_names_in_order("PurePosixPath(*reversed(names))")


# -- the transaction is the lock (docs/adr/022) --------------------------------------------------------------

# They have the whole database, before or after the life of the volume.
OWN_THE_DATABASE = ("hybrisfs.admit.join", "hybrisfs.admit.rebuild", "hybrisfs.admit.reserve_log")
# The transaction makes the objects of these, and of `hybrisfs.state`: no others are made with what runs SQL.
ARE_MADE_OF_ROWS = ("hybrisfs.log", "hybrisfs.members")
# Three live as long as one transaction; the last one has an exchange of `sync` read the log, and takes the
# transaction round each of its calls.
KEEP_THE_TRANSACTION = (
    "hybrisfs.gc.participant",
    "hybrisfs.merge.origins",
    "hybrisfs.merge.unsigned",
    "hybrisfs.exchange.peering",
)


def reaches_rows(source: str) -> bool:
    """Whether a module gets rows of a database past the transaction."""
    return any(
        isinstance(node, ast.Attribute)
        and node.attr in ("connection", "rows")
        and ast.unparse(node.value).rpartition(".")[2] in ("database", "_database", "Database")
        for node in nodes(source)
    )


def keeps_transaction(source: str) -> bool:
    """Whether a module stores the transaction or a table of it, or makes a part of an object with a table."""

    def is_part(value: ast.expr) -> bool:
        while isinstance(value, ast.Attribute):
            value = value.value
        return isinstance(value, ast.Name) and value.id == "tx"

    def is_kept(value: ast.expr) -> bool:
        if isinstance(value, ast.Tuple):
            return any(map(is_kept, value.elts))
        if isinstance(value, ast.Call) and ast.unparse(value.func)[0].isupper():
            return any(isinstance(one, ast.Attribute) and is_part(one) for one in value.args)
        return is_part(value)

    return any(
        isinstance(node, ast.Assign | ast.AnnAssign)
        and node.value is not None
        and is_kept(node.value)
        and any(
            isinstance(part, ast.Attribute)
            for target in (node.targets if isinstance(node, ast.Assign) else [node.target])
            for part in (target.elts if isinstance(target, ast.Tuple) else [target])
        )
        for node in nodes(source)
    )


def keeps_writer(source: str) -> bool:
    """Whether an object of a module is made with what reaches rows."""
    kinds = {
        one.asname or one.name
        for node in nodes(source)
        if isinstance(node, ast.ImportFrom) and node.module == "hybrisfs.state.database"
        for one in node.names
        if one.name in ("Reader", "RowWriter")
    }
    return any(
        isinstance(node, ast.FunctionDef)
        and node.name == "__init__"
        and any(isinstance(one.annotation, ast.Name) and one.annotation.id in kinds for one in node.args.args)
        for node in nodes(source)
    )


def uses_what_has_ended(source: str) -> list[str]:
    """The functions in which `tx` stands beside the blocks that give it: the lock is not held there."""

    def is_given(node: ast.AST) -> bool:
        if isinstance(node, ast.With):
            return any("tx" in ast.unparse(one.optional_vars) for one in node.items if one.optional_vars)
        if isinstance(node, ast.FunctionDef | ast.Lambda):
            every = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
            return any(one.arg == "tx" for one in every)
        return False

    def look(node: ast.AST, *, given: bool, where: str) -> Iterator[str]:
        given = given or is_given(node)
        where = node.name if isinstance(node, ast.FunctionDef) else where
        if isinstance(node, ast.Name) and node.id == "tx" and isinstance(node.ctx, ast.Load) and not given:
            yield where
        for child in ast.iter_child_nodes(node):
            yield from look(child, given=given, where=where)

    return list(look(nodes(source)[0], given=False, where=""))


def test_no_transaction_is_used_after_its_end() -> None:
    found = [f"{name}: {where}" for name, source in whole_product() for where in uses_what_has_ended(source)]
    assert found == []
    after = "def f(self):\n    with self.state.transaction() as tx:\n        pass\n    return tx.packs"
    assert uses_what_has_ended(after) == ["f"]
    assert not uses_what_has_ended(after.replace("(self)", "(self, tx)"))
    assert not uses_what_has_ended(after.replace("    return", "        return"))


@pytest.mark.parametrize(
    ("does", "allowed"),
    [
        (reaches_rows, OWN_THE_DATABASE),
        (keeps_transaction, KEEP_THE_TRANSACTION),
        (keeps_writer, ()),
    ],
)
def test_rows_are_reached_by_a_transaction(does: Callable[[str], bool], allowed: tuple[str, ...]) -> None:
    found = {
        name
        for name, source in whole_product()
        if does(source)
        and not within(name, ("hybrisfs.state", "hybrisfs.kv"))
        and not (does is keeps_writer and within(name, ARE_MADE_OF_ROWS))
    }
    assert found == set(allowed)


def test_no_way_around_the_transaction_escapes() -> None:
    assert reaches_rows("self._database.rows.execute(query)")
    assert keeps_transaction("self._tx = tx")
    assert keeps_transaction("self._packs = tx.packs")
    assert keeps_transaction("self.a, self.b = 1, tx.packs.condemned")
    assert not keeps_transaction("self._seq = tx.pending.newest()")
    assert not keeps_transaction("packs = tx.packs")
    assert keeps_transaction("self._machine = RelayMachine(updates, tx.segments)")
    assert not keeps_transaction("self.changes = Changes(tx)"), "made in it"
    imported = "from hybrisfs.state.database import Reader as Rows\n"
    assert keeps_writer(f"{imported}def __init__(self, db: Rows) -> None: ...")
    assert not keeps_writer("def __init__(self, reader: Reader) -> None: ...")


# -- commits wait for each other, so none may hold what another one waits for --------------------------------


def commits_under_the_lock(source: str) -> bool:
    """Whether a block that holds the transaction commits as `Committer.commit_now` does."""
    return any(
        isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr == "commit_now"
        for block in nodes(source)
        if isinstance(block, ast.With)
        and any(ast.unparse(item.context_expr).endswith("transaction()") for item in block.items)
        for call in ast.walk(block)
    )


def test_nothing_waits_for_a_commit_while_it_holds_the_lock() -> None:
    assert [name_of(one) for one in modules("hybrisfs") if commits_under_the_lock(text_of(one))] == []
    assert commits_under_the_lock("with a, self.state.transaction() as tx:\n    self.committer.commit_now()")
    assert commits_under_the_lock("with state.log_transaction() as tx:\n    committer.commit_now()")
    assert not commits_under_the_lock("with state.transaction() as tx:\n    pass\ncommitter.commit_now()")


def test_only_cuts_and_arrivals_add_to_the_log_in_several_transactions() -> None:
    """All others use `State.log_transaction`, which has the order of the two locks."""
    found = {name_of(one) for one in modules("hybrisfs") if ".cutting" in text_of(one)}
    assert found == {"hybrisfs.state.state", "hybrisfs.write.publish", "hybrisfs.receive.take"}
