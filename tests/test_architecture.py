"""Which package may import which, which may read environment variables or ask the system for the time, where
the letters of registers and SQL stand (docs/internals), checked in the source itself."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from hybrisfs.kinds import KINDS

REPOSITORY = Path(__file__).resolve().parents[1]
OURS = ("backends", "benchmarks", "cli", "dashboard", "gateway", "hybrisfs", "sync", "tests")
PRODUCT = ("backends", "cli", "dashboard", "gateway", "hybrisfs", "sync")

# Package: all that it may import of ours.
ONLY = {
    "sync": ("sync",),
    "backends": ("backends",),
    "cli": ("cli", "dashboard.server", "gateway.server", "hybrisfs.api", "hybrisfs.client"),
    "dashboard": (
        "dashboard",
        "hybrisfs.api",
        "hybrisfs.client",
        "hybrisfs.environment",
        "hybrisfs.http_server",
    ),
    "gateway": ("gateway", "hybrisfs.api", "hybrisfs.client", "hybrisfs.http_server"),
    "hybrisfs": ("hybrisfs", "sync", "backends"),
    "hybrisfs.api": ("hybrisfs.api", "hybrisfs.errors"),
    "hybrisfs.fuse": ("hybrisfs.fuse",),
    "hybrisfs.peers": ("hybrisfs.peers", "hybrisfs.environment", "hybrisfs.errors", "sync"),
}

# Package: what it must not import.
NEVER = dict.fromkeys(
    ("hybrisfs.members", "hybrisfs.merge", "hybrisfs.registers", "hybrisfs.state", "hybrisfs.tree"),
    ("hybrisfs.fuse", "hybrisfs.dispersal", "backends"),
)

# The packages and modules of `hybrisfs`, from the bottom up: each imports what is in rows above it only.
LAYERS = (
    (
        "bounded",
        "chunk_namer",
        "core_dumps",
        "environment",
        "errors",
        "fuse",
        "http_server",
        "kinds",
        "polling",
        "process",
    ),
    ("shown", "topic", "wire"),
    ("api", "dispersal", "peers", "registers", "stages"),
    ("exposition", "history", "home", "keys", "state", "verdict"),
    ("events", "keyring", "recovery", "systemd"),
    ("members", "service_manager"),
    ("log",),
    ("state.state",),  # the lock, and the transaction with all tables, the log and the members
    ("tree",),
    ("merge",),
    ("read", "receive"),
    ("checkpoint", "mirror", "versions"),
    ("write",),
    ("mount", "settings"),
    ("kv", "pairing", "sharing", "stores"),
    ("parts",),
    ("admit", "gc"),
    ("clouds",),
    ("verify",),
    ("volume",),
    ("daemon",),
    ("doctor",),
    ("client",),
)

# What the `Environment` gives. All of `hybrisfs` takes it from there, but for these, for the reason beside.
OF_THE_SYSTEM = re.compile(
    r"time\.(time|monotonic|perf_counter|process_time|thread_time|clock_gettime|sleep)(_ns)?"
    r"|datetime\.(datetime|date)\.(now|utcnow|today)"
    r"|os\.(urandom|getrandom|fsync|fdatasync|sync|f?statvfs|cpu_count|sched_getaffinity)"
    r"|os\.(fork|forkpty|system|popen|posix_spawnp?|exec\w+|spawn\w+)"
    r"|shutil\.disk_usage|uuid\.uuid\w+|secrets\.\w+|(random\.(?!Random$)\w+)"
    r"|subprocess\.(Popen|run|call|check_call|check_output|getoutput|getstatusoutput)"
)
OF_NOW = ("time.localtime", "time.gmtime", "time.ctime", "time.asctime", "random.Random")
"""Likewise when they are called without an argument, and `time.strftime` with one."""
USE_THE_SYSTEM = {
    "hybrisfs.environment": "it is where the others have it from",
    "hybrisfs.client": "runs in the process of the command, and has no volume",
    "hybrisfs.daemon": "is the process: what it starts and waits for is there before a volume and after it",
    "hybrisfs.doctor": "looks at this machine",
    "hybrisfs.fuse": "has fusermount3 mount, and asks whether something is mounted",
    "hybrisfs.service_manager": "has systemd begin and end the daemon",
    "hybrisfs.admit.rebuild": "no volume is open, the day is part of a name",
    "hybrisfs.peers.tls": "certificates and salts, beside OpenSSL, which draws from the system alone",
    "hybrisfs.recovery.sealed_key": "passphrases and salts are to be foreseen by no environment",
    "hybrisfs.kv.seal": "ids of new stores, drawn before there is one",
    "hybrisfs.kv.service_containers": "names of owners, unique among all machines",
    "hybrisfs.kv.service_metadata": "ids of new stores, unique among all machines",
    "hybrisfs.kv.opening": "the day is part of the name of what is set aside",
    "hybrisfs.kv.shared": "measures a service for a person",
}
# Threads that wait for so many seconds by an event, not by `Environment.wait`.
WAIT_BY_THE_SYSTEM = {
    "hybrisfs.daemon": "see above",
    "hybrisfs.kv.collect": "a thread of its own, which a test calls past",
    "hybrisfs.kv.etcd_client": "waits for a network",
    "hybrisfs.kv.service_writes": "waits for a network",
    "hybrisfs.kv.zookeeper_client": "waits for a network",
    "hybrisfs.mirror.worker": "waits for what the kernel tells of a folder",
    "hybrisfs.pairing.lan": "waits for a network",
    "hybrisfs.peers.discovery": "waits for a network",
    "hybrisfs.peers.listener": "waits for a network",
    "hybrisfs.receive.pull": "a person's command waits for clouds",
    "hybrisfs.sharing.sharing": "waits for clouds when a volume is opened",
}

# Machines that own no thread, socket, clock, lock or SQL, as modules or packages: all that they may import
# beside `OF_MACHINES`.
MACHINES = {
    "hybrisfs.checkpoint.agree": (
        "hybrisfs.checkpoint.limits.CheckpointLimits",
        "hybrisfs.state.checkpoints.Recorded",
    ),
    "hybrisfs.dispersal.bucket": (),
    "hybrisfs.dispersal.get": ("hybrisfs.dispersal.put",),
    "hybrisfs.dispersal.put": (),
    "hybrisfs.gc.protocol": ("hybrisfs.registers.ballots",),
    "hybrisfs.mirror.plan": ("hybrisfs.mirror.model",),
    "hybrisfs.pairing.handshake": ("cryptography", "hybrisfs.pairing.errors"),
    "hybrisfs.pairing.protocol": (
        "hybrisfs.pairing.code.PairingCode",
        "hybrisfs.pairing.errors",
        "hybrisfs.pairing.handshake",
        "hybrisfs.pairing.messages",
    ),
    "hybrisfs.peers.frames": ("hybrisfs.peers.errors", "struct"),
    "hybrisfs.peers.targets": ("hybrisfs.peers.settings", "random.Random"),
    "hybrisfs.write.missing": (),
    "hybrisfs.write.relay": ("hybrisfs.write.missing",),
    "sync": ("blake3", "functools", "itertools", "nacl", "re", "struct", "zstandard"),
}
OF_MACHINES = ("__future__", "abc", "collections", "dataclasses", "enum", "sync", "typing")

READS_THE_ENVIRONMENT = {
    "hybrisfs.home",
    "hybrisfs.fuse.mounting",  # hands it on to fusermount3
}


def modules(package: str) -> list[Path]:
    found = sorted((REPOSITORY / package.replace(".", "/")).rglob("*.py"))
    assert found, package
    return found


def whole_product() -> Iterator[tuple[str, str]]:
    """The name and the source of each of its modules."""
    for package in PRODUCT:
        for module in modules(package):
            yield name_of(module), module.read_text()


def name_of(module: Path) -> str:
    return ".".join(module.relative_to(REPOSITORY).with_suffix("").parts).removesuffix(".__init__")


def imports(source: str, module: str) -> Iterator[str]:
    """The dotted names of ours that a module imports, at whatever place in it."""
    for node in ast.walk(ast.parse(source)):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{module} imports relatively"
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        yield from (name for name in names if name.split(".")[0] in OURS)


def within(name: str, packages: tuple[str, ...]) -> bool:
    return any(name == package or name.startswith(f"{package}.") for package in packages)


@pytest.mark.parametrize("package", ONLY)
def test_imports_only_what_it_may(package: str) -> None:
    wrong = [
        f"{name_of(module)} imports {name}"
        for module in modules(package)
        for name in imports(module.read_text(), name_of(module))
        if not within(name, ONLY[package])
    ]
    assert wrong == []


@pytest.mark.parametrize("package", NEVER)
def test_imports_nothing_that_it_must_not(package: str) -> None:
    wrong = [
        f"{name_of(module)} imports {name}"
        for module in modules(package)
        for name in imports(module.read_text(), name_of(module))
        if within(name, NEVER[package])
    ]
    assert wrong == []


def below(name: str) -> str:
    """The package or module of `hybrisfs` to which a dotted name leads; empty for another one."""
    if within(name, ("hybrisfs.state.state",)):
        return "state.state"
    return name.split(".")[1] if name.startswith("hybrisfs.") else ""


def test_every_layer_imports_lower_ones_only() -> None:
    levels = {name: level for level, row in enumerate(LAYERS) for name in row}
    places = {module: below(name_of(module)) for module in modules("hybrisfs")}
    assert set(places.values()) == {"", *levels}
    wrong = [
        f"{name_of(module)} imports {name}"
        for module, own in places.items()
        for name in imports(module.read_text(), name_of(module))
        if (other := below(name)) in levels and other != own and levels[own] <= levels[other]
    ]
    assert wrong == []


def test_no_module_imports_itself_through_others() -> None:
    names = dict(whole_product())
    left = {
        name: {one if one in names else one.rpartition(".")[0] for one in imports(source, name)}
        & names.keys()
        for name, source in names.items()
    }
    while bottom := {name for name, wanted in left.items() if not wanted - {name}}:
        left = {name: wanted - bottom for name, wanted in left.items() if name not in bottom}
    assert left == {}


def reads_the_environment(source: str) -> bool:
    """Whether a module reads environment variables."""
    found: list[str] = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Attribute):
            found.append(node.attr)
        elif isinstance(node, ast.ImportFrom):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.Call) and ast.unparse(node.func) == "getattr":
            found += [str(one.value) for one in node.args if isinstance(one, ast.Constant)]
    return not {"environ", "environb", "getenv", "getenvb"}.isdisjoint(found)


def test_the_environment_is_read_in_one_place() -> None:
    assert {name for name, source in whole_product() if reads_the_environment(source)} == (
        READS_THE_ENVIRONMENT
    )


@pytest.mark.parametrize(
    "source",
    [
        "import os\nos.environ['HOME']",
        "import os as system\nsystem.getenv('HOME')",
        "from os import environ",
        "from os import getenvb as read",
        "values = getattr(os, 'environ')",
    ],
)
def test_no_way_to_read_the_environment_escapes(source: str) -> None:
    assert reads_the_environment(source)


def test_nobody_waits_for_few_descriptors_only() -> None:
    """`select.select` fails with those above 1,023; `hybrisfs.polling` does not."""
    wrong = [
        name for name, source in whole_product() if any(one == "select.select" for one, _ in used(source))
    ]
    assert wrong == []


@pytest.mark.parametrize("package", ["cli", "dashboard", "gateway"])
def test_the_daemon_is_asked_by_records_only(package: str) -> None:
    wrong = [
        f"{name_of(module)}: {ast.unparse(node)}"
        for module in modules(package)
        for node in ast.walk(ast.parse(module.read_text()))
        if isinstance(node, ast.Attribute) and ast.unparse(node).endswith("client.exchange")
    ]
    assert wrong == []


def meanings(tree: ast.AST) -> dict[str, str]:
    """What the names that are imported in a module stand for."""
    found: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                found[alias.asname or alias.name.split(".")[0]] = (
                    alias.name if alias.asname else alias.name.split(".")[0]
                )
        elif isinstance(node, ast.ImportFrom):
            found |= {alias.asname or alias.name: f"{node.module}.{alias.name}" for alias in node.names}
    return found


def nodes_of_types(tree: ast.AST) -> set[int]:
    """The nodes of a module that only say of what type something is."""
    roots: list[ast.expr | None] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.AnnAssign | ast.arg):
            roots.append(node.annotation)
        elif isinstance(node, ast.FunctionDef):
            roots.append(node.returns)
    return {id(part) for root in roots if root is not None for part in ast.walk(root)}


def dotted(node: ast.expr) -> tuple[str, list[str]]:
    """The name and the attributes of it that a node is; no name for what begins with another expression."""
    rest: list[str] = []
    while isinstance(node, ast.Attribute):
        rest.insert(0, node.attr)
        node = node.value
    return (node.id if isinstance(node, ast.Name) else ""), rest


def used(source: str) -> Iterator[tuple[str, ast.Call | None]]:
    """What a module uses of others, by its dotted name, and the call if it is called there."""
    tree = ast.parse(source)
    names, types = meanings(tree), nodes_of_types(tree)
    calls = {id(node.func): node for node in ast.walk(tree) if isinstance(node, ast.Call)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute | ast.Name) and id(node) not in types:
            first, rest = dotted(node)
            if first in names:
                yield ".".join((names[first], *rest)), calls.get(id(node))


def asks_the_system(source: str) -> list[str]:
    """What a module takes from the system that belongs to `hybrisfs.environment`."""

    def is_of_now(name: str, call: ast.Call | None) -> bool:
        if call is None or call.keywords:
            return False
        return len(call.args) < (2 if name == "time.strftime" else 1 if name in OF_NOW else 0)

    return [name for name, call in used(source) if OF_THE_SYSTEM.fullmatch(name) or is_of_now(name, call)]


def waits_by_the_system(source: str) -> list[str]:
    """Where a module waits for so many seconds with a condition or an event of its own."""
    tree = ast.parse(source)
    names = meanings(tree)
    own: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign | ast.AnnAssign) and isinstance(node.value, ast.Call):
            first, dot, rest = ast.unparse(node.value.func).partition(".")
            if f"{names.get(first, first)}{dot}{rest}" in ("threading.Condition", "threading.Event"):
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                own |= {ast.unparse(one) for one in targets}
        elif (
            isinstance(node, ast.arg)
            and node.annotation is not None
            and ast.unparse(node.annotation) in ("threading.Condition", "threading.Event")
        ):
            own |= {node.arg, f"self._{node.arg}"}
    return [
        ast.unparse(node)
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and ast.unparse(node.func.value) in own
        and (
            (node.func.attr == "wait" and (node.args or node.keywords))
            or (node.func.attr == "wait_for" and len(node.args) + len(node.keywords) > 1)
        )
    ]


def imports_of(source: str) -> list[str]:
    """All that a module imports, by its dotted name."""
    return [
        f"{node.module}.{alias.name}" if isinstance(node, ast.ImportFrom) else alias.name
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Import | ast.ImportFrom)
        for alias in node.names
    ]


@pytest.mark.parametrize("name", MACHINES)
def test_machines_do_no_io(name: str) -> None:
    file = REPOSITORY / f"{name.replace('.', '/')}.py"
    wrong = [
        f"{name_of(module)} imports {one}"
        for module in ([file] if file.exists() else modules(name))
        for one in imports_of(module.read_text())
        if not within(one, (*OF_MACHINES, *MACHINES[name]))
    ]
    assert wrong == []
    assert [one for one in imports_of("import os, sync\nfrom threading import Lock") if one != "sync"]


@pytest.mark.parametrize(
    ("does", "allowed"), [(asks_the_system, USE_THE_SYSTEM), (waits_by_the_system, WAIT_BY_THE_SYSTEM)]
)
def test_the_surroundings_are_given(does: Callable[[str], list[str]], allowed: dict[str, str]) -> None:
    found = {name_of(module): what for module in modules("hybrisfs") if (what := does(module.read_text()))}
    assert {name: what for name, what in found.items() if not within(name, tuple(allowed))} == {}
    assert [one for one in allowed if not any(within(name, (one,)) for name in found)] == []


@pytest.mark.parametrize(
    "source",
    [
        "import time\ntime.monotonic()",
        "import time\nclock = time.time_ns",
        "import time as t\nt.monotonic()",
        "import time\ntime.clock_gettime(time.CLOCK_BOOTTIME)",
        "import time\ntime.localtime()",
        "import time\ntime.strftime('%Y')",
        "from time import strftime\nstrftime('%Y')",
        "from datetime import datetime as moment\nmoment.now(UTC)",
        "import datetime\ndatetime.date.today()",
        "from os import urandom\nurandom(1)",
        "from os import urandom as draw\ndef f(draw=draw): ...",
        "import os\nos.fdatasync(1)",
        "import os\nos.statvfs('/')",
        "import os\nos.cpu_count()",
        "import random\nrandom.choice(x)",
        "import random\nrandom.Random()",
        "import secrets\nsecrets.token_hex(8)",
        "import subprocess\nsubprocess.run(['ls'])",
        "from subprocess import Popen\nPopen(['ls'])",
    ],
)
def test_no_way_to_ask_the_system_escapes(source: str) -> None:
    assert asks_the_system(source)


@pytest.mark.parametrize(
    "source",
    [
        "import time\ntime.localtime(now)",
        "import time\ntime.strftime('%Y', moment)",
        "from random import Random\nRandom(7)",
        "import subprocess\ndef f(start: Callable[..., subprocess.Popen[bytes]]) -> None: ...",
        "import subprocess\nstart(['ls'], stdin=subprocess.PIPE)",
    ],
)
def test_what_is_no_question_to_the_system_may_stand(source: str) -> None:
    assert not asks_the_system(source)


@pytest.mark.parametrize(
    "source",
    [
        "self._a = threading.Condition()\nself._a.wait(1.0)",
        "self._a: Final = threading.Condition()\nself._a.wait_for(done, timeout=1.0)",
        "from threading import Event as Flag\nstop = Flag()\nstop.wait(timeout=1.0)",
        "def f(stop: threading.Event) -> None:\n    stop.wait(1.0)",
        "def f(self, stop: threading.Event) -> None:\n    self._stop = stop\n    self._stop.wait(1.0)",
    ],
)
def test_no_way_to_wait_escapes(source: str) -> None:
    assert waits_by_the_system(source)
    assert not waits_by_the_system(
        "self._a = threading.Condition()\nself._a.wait()\nself._wait(self._a, f, 1)"
    )


@pytest.mark.parametrize(
    "source",
    [
        "import hybrisfs.daemon.main",
        "from hybrisfs.daemon import main",
        "from hybrisfs import daemon",
        "def late():\n    from hybrisfs.daemon.main import main",
        "if TYPE_CHECKING:\n    import hybrisfs.daemon",
    ],
)
def test_no_way_to_write_an_import_escapes(source: str) -> None:
    assert any(within(name, ("hybrisfs.daemon",)) for name in imports(source, "x"))


# -- the letters of kinds of registers -----------------------------------------------------------------

LETTERS = bytes(KINDS)
IN_SQL = re.compile(rf"x'(?:{'|'.join(f'{letter:02x}' for letter in LETTERS)})'", re.IGNORECASE)
# What is no letter of a register there.
OTHER_LETTERS = {
    "hybrisfs.daemon.supervisor": "a word that it says",
    "hybrisfs.fuse.session": "a word of a protocol",
    "hybrisfs.kv.service_metadata": "keys of a service",
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
    found = {
        name
        for name, source in whole_product()
        if any(spells_a_kind(node) for node in ast.walk(ast.parse(source)))
    }
    assert found == OTHER_LETTERS.keys()


@pytest.mark.parametrize(
    "source",
    ["b'p'", "b'pac'", "ord('c')", "\"key >= x'70'\"", "f\"{x} IN (x'6D', {y})\"", "key[1:17]"],
)
def test_no_way_to_write_a_letter_escapes(source: str) -> None:
    assert any(spells_a_kind(node) for node in ast.walk(ast.parse(source)))


# -- SQL on the tables of chunks -------------------------------------------------------------------------

NAMES_CHUNKS = re.compile(
    r"\b(?:FROM|INTO|UPDATE|JOIN|TABLE|ON|EXISTS)\s+(?:chunk|spare|condemned)\b"
    r"|^(?:chunk|spare)(?:$|(?: [a-z])? (?:CROSS|GROUP|JOIN|LEFT|ON|ORDER|WHERE)\b)"
)
OWNS_CHUNKS = ("hybrisfs.state", "hybrisfs.state.schema", "hybrisfs.state.migration")
# Parts of such SQL.
FRAGMENTS = ("CHUNK_COLUMNS", "EVICTABLE", "IS_ASIDE", "IS_SHOWN", "ONLY_HERE", "ON_CLOUDS")


def texts(tree: ast.AST) -> Iterator[str]:
    """The strings in a module that are no docstrings; what stands between braces in one is left out."""
    prose = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    parts = {id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in node.values}
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            yield "".join(str(part.value) for part in node.values if isinstance(part, ast.Constant))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in prose | parts:
            yield node.value


def names_chunks(source: str) -> bool:
    """Whether SQL in it names a table of chunks, or is put together from its columns."""
    return any(NAMES_CHUNKS.search(text) for text in texts(ast.parse(source))) or any(
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
    tree = ast.parse(source)
    return (
        any(IS_SQL.search(text) for text in texts(tree))
        or any(
            isinstance(node, ast.Attribute) and node.attr in (*RUNS_SQL, *MAKES_SQL)
            for node in ast.walk(tree)
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


# -- the transaction is the lock (docs/adr/022) --------------------------------------------------------------

# They have the whole database, before or after the life of the volume.
OWN_THE_DATABASE = ("hybrisfs.admit.join", "hybrisfs.admit.rebuild", "hybrisfs.admit.reserve_log")
# The transaction makes the objects of these, and of `hybrisfs.state`: no others are made with what runs SQL.
ARE_MADE_OF_ROWS = ("hybrisfs.log", "hybrisfs.members")
# Three live as long as one transaction; the last one has an exchange of `sync` read the log, and takes the
# transaction round each of its calls.
KEEP_THE_TRANSACTION = (
    "hybrisfs.gc.assembly",
    "hybrisfs.merge.origins",
    "hybrisfs.merge.unsigned",
    "hybrisfs.sharing.peering",
)


def reaches_rows(source: str) -> bool:
    """Whether a module gets rows of a database past the transaction."""
    return any(
        isinstance(node, ast.Attribute)
        and node.attr in ("connection", "rows")
        and ast.unparse(node.value).rpartition(".")[2] in ("database", "_database", "Database")
        for node in ast.walk(ast.parse(source))
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
        for node in ast.walk(ast.parse(source))
    )


def keeps_writer(source: str) -> bool:
    """Whether an object of a module is made with what reaches rows."""
    tree = ast.parse(source)
    kinds = {
        one.asname or one.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module == "hybrisfs.state.database"
        for one in node.names
        if one.name in ("Reader", "RowWriter")
    }
    return any(
        isinstance(node, ast.FunctionDef)
        and node.name == "__init__"
        and any(isinstance(one.annotation, ast.Name) and one.annotation.id in kinds for one in node.args.args)
        for node in ast.walk(tree)
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

    return list(look(ast.parse(source), given=False, where=""))


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
        for block in ast.walk(ast.parse(source))
        if isinstance(block, ast.With)
        and any(ast.unparse(item.context_expr).endswith("transaction()") for item in block.items)
        for call in ast.walk(block)
    )


def test_nothing_waits_for_a_commit_while_it_holds_the_lock() -> None:
    assert [name_of(one) for one in modules("hybrisfs") if commits_under_the_lock(one.read_text())] == []
    assert commits_under_the_lock("with a, self.state.transaction() as tx:\n    self.committer.commit_now()")
    assert commits_under_the_lock("with state.log_transaction() as tx:\n    committer.commit_now()")
    assert not commits_under_the_lock("with state.transaction() as tx:\n    pass\ncommitter.commit_now()")


def test_only_cuts_and_arrivals_add_to_the_log_in_several_transactions() -> None:
    """All others use `State.log_transaction`, which has the order of the two locks."""
    found = {name_of(one) for one in modules("hybrisfs") if ".cutting" in one.read_text()}
    assert found == {"hybrisfs.state.state", "hybrisfs.write.publish", "hybrisfs.receive.take"}
