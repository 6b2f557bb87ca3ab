"""Which package may import which, and which may read environment variables or ask the system for the time
(docs/internals), checked in the source itself. What has one owner is in `test_owners.py`."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[1]
PRODUCT = ("backends", "cli", "dashboard", "gateway", "hybrisfs", "relay", "serving", "sync", "tray")
OURS = (*PRODUCT, "benchmarks", "tests")

# Package: all that it may import of ours.
ONLY = {
    "serving": (
        "serving",
        "hybrisfs.registers.served",
        "hybrisfs.api",
        "hybrisfs.client",
        "hybrisfs.door",
        "hybrisfs.http_server",
        "hybrisfs.listening",
        "hybrisfs.qr",
        "hybrisfs.secret_file",
    ),
    "relay": (
        "relay",
        "backends",
        "hybrisfs.client",
        "hybrisfs.dispersal.errors",
        "hybrisfs.dispersal.share",
        "hybrisfs.door",
        "hybrisfs.http_server",
        "hybrisfs.listening",
        "hybrisfs.peers.lines",
        "hybrisfs.secret_file",
        "sync",
    ),
    "sync": ("sync",),
    "tray": ("tray", "hybrisfs.api", "hybrisfs.client", "hybrisfs.environment"),
    "backends": ("backends",),
    "cli": (
        "cli",
        "dashboard.server",
        "gateway.server",
        "hybrisfs.api",
        "hybrisfs.client",
        "hybrisfs.content_ids",
        "hybrisfs.listening",
        "hybrisfs.qr",
        "relay",
        "serving.server",
        "serving.sftp_server",
        "serving.start",
        "tray.session",
    ),
    "dashboard": (
        "dashboard",
        "hybrisfs.api",
        "hybrisfs.client",
        "hybrisfs.environment",
        "hybrisfs.http_server",
    ),
    "gateway": ("gateway", "hybrisfs.api", "hybrisfs.client", "hybrisfs.http_server", "hybrisfs.listening"),
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
        "content_ids",
        "core_dumps",
        "door",
        "environment",
        "errors",
        "fuse",
        "http_server",
        "kinds",
        "polling",
        "process",
        "secret_file",
    ),
    ("listening", "qr", "shown", "topic", "wire"),
    ("api", "dispersal", "peers", "registers", "stages"),
    ("quorums", "exposition", "history", "home", "keys", "prices", "state", "verdict"),
    ("events", "keyring", "recovery"),
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
    ("local_parts",),
    ("exchange",),
    ("parts",),
    ("admit", "gc"),
    ("clouds",),
    ("parcels", "verify"),
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
    "hybrisfs.door": "runs in the process of a server, and has no volume",
    "hybrisfs.secret_file": "likewise",
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
    "hybrisfs.kv.zookeeper_session": "waits for a network",
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
    "hybrisfs.checkpoint.adopt": ("hybrisfs.checkpoint.limits.CheckpointLimits",),
    "hybrisfs.checkpoint.agree": (
        "hybrisfs.checkpoint.limits.CheckpointLimits",
        "hybrisfs.state.checkpoints.Recorded",
    ),
    "hybrisfs.dispersal.bucket": (),
    "hybrisfs.dispersal.get": ("hybrisfs.dispersal.put",),
    "hybrisfs.dispersal.put": (),
    "hybrisfs.gc.protocol": ("hybrisfs.registers.proposals",),
    "hybrisfs.kv.grpc_calls": ("h2", "re", "urllib.parse"),
    "hybrisfs.members.kinship": ("functools",),
    "hybrisfs.members.removal": ("hybrisfs.kinds.VOTE", "hybrisfs.members.kinship"),
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
OF_MACHINES = ("__future__", "abc", "collections", "dataclasses", "enum", "msgspec", "sync", "typing")

READS_THE_ENVIRONMENT = {
    "cli.main",  # NO_COLOR, which is about the terminal
    "cli.merge_tool",  # which names the program of a person, and is handed on to it
    "hybrisfs.home",
    "hybrisfs.fuse.mounting",  # hands it on to fusermount3
}


def modules(package: str) -> list[Path]:
    found = sorted((REPOSITORY / package.replace(".", "/")).rglob("*.py"))
    assert found, package
    return found


@cache
def text_of(module: Path) -> str:
    return module.read_text()


@cache
def nodes(source: str) -> tuple[ast.AST, ...]:
    """All nodes of a module. They are kept: to read the whole product once more takes longer than a test."""
    return tuple(ast.walk(ast.parse(source)))


def whole_product() -> Iterator[tuple[str, str]]:
    """The name and the source of each of its modules."""
    for package in PRODUCT:
        for module in modules(package):
            yield name_of(module), text_of(module)


def name_of(module: Path) -> str:
    return ".".join(module.relative_to(REPOSITORY).with_suffix("").parts).removesuffix(".__init__")


def imports(source: str, module: str) -> Iterator[str]:
    """The dotted names of ours that a module imports, at whatever place in it."""
    for node in nodes(source):
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
        for name in imports(text_of(module), name_of(module))
        if not within(name, ONLY[package])
    ]
    assert wrong == []


@pytest.mark.parametrize("package", NEVER)
def test_imports_nothing_that_it_must_not(package: str) -> None:
    wrong = [
        f"{name_of(module)} imports {name}"
        for module in modules(package)
        for name in imports(text_of(module), name_of(module))
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
        for name in imports(text_of(module), name_of(module))
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
    for node in nodes(source):
        if isinstance(node, ast.Attribute):
            found.append(node.attr)
        elif isinstance(node, ast.ImportFrom):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "getattr":
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


@pytest.mark.parametrize("package", ["cli", "dashboard", "gateway", "serving", "tray"])
def test_the_daemon_is_asked_by_records_only(package: str) -> None:
    wrong = [
        f"{name_of(module)}: {ast.unparse(node)}"
        for module in modules(package)
        for node in nodes(text_of(module))
        if isinstance(node, ast.Attribute)
        and node.attr == "exchange"
        and ast.unparse(node).endswith("client.exchange")
    ]
    assert wrong == []


def meanings(source: str) -> dict[str, str]:
    """What the names that are imported in a module stand for."""
    found: dict[str, str] = {}
    for node in nodes(source):
        if isinstance(node, ast.Import):
            for alias in node.names:
                found[alias.asname or alias.name.split(".")[0]] = (
                    alias.name if alias.asname else alias.name.split(".")[0]
                )
        elif isinstance(node, ast.ImportFrom):
            found |= {alias.asname or alias.name: f"{node.module}.{alias.name}" for alias in node.names}
    return found


def nodes_of_types(source: str) -> set[int]:
    """The nodes of a module that only say of what type something is."""
    roots: list[ast.expr | None] = []
    for node in nodes(source):
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
    names, types = meanings(source), nodes_of_types(source)
    calls = {id(node.func): node for node in nodes(source) if isinstance(node, ast.Call)}
    for node in nodes(source):
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
    names = meanings(source)
    own: set[str] = set()
    for node in nodes(source):
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
        for node in nodes(source)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and (
            (node.func.attr == "wait" and (node.args or node.keywords))
            or (node.func.attr == "wait_for" and len(node.args) + len(node.keywords) > 1)
        )
        and ast.unparse(node.func.value) in own
    ]


def imports_of(source: str) -> list[str]:
    """All that a module imports, by its dotted name."""
    return [
        f"{node.module}.{alias.name}" if isinstance(node, ast.ImportFrom) else alias.name
        for node in nodes(source)
        if isinstance(node, ast.Import | ast.ImportFrom)
        for alias in node.names
    ]


@pytest.mark.parametrize("name", MACHINES)
def test_machines_do_no_io(name: str) -> None:
    file = REPOSITORY / f"{name.replace('.', '/')}.py"
    wrong = [
        f"{name_of(module)} imports {one}"
        for module in ([file] if file.exists() else modules(name))
        for one in imports_of(text_of(module))
        if not within(one, (*OF_MACHINES, *MACHINES[name]))
    ]
    assert wrong == []
    assert [one for one in imports_of("import os, sync\nfrom threading import Lock") if one != "sync"]


def forgets_its_environment(source: str) -> list[str]:
    """The functions of a module that take the system for an environment unless they are given another."""
    return [
        node.name
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.FunctionDef)
        and any(ast.unparse(one) == "SYSTEM" for one in (*node.args.defaults, *node.args.kw_defaults) if one)
    ]


def test_nobody_forgets_the_environment() -> None:
    """A volume in virtual time must not have a part that looks at the clock of the machine."""
    found = {
        name_of(module): what
        for module in modules("hybrisfs")
        if (what := forgets_its_environment(module.read_text()))
    }
    assert found == {
        "hybrisfs.client": ["connect"],  # where the commands begin, which know no environment
    }


@pytest.mark.parametrize(
    ("does", "allowed"), [(asks_the_system, USE_THE_SYSTEM), (waits_by_the_system, WAIT_BY_THE_SYSTEM)]
)
def test_the_surroundings_are_given(does: Callable[[str], list[str]], allowed: dict[str, str]) -> None:
    found = {name_of(module): what for module in modules("hybrisfs") if (what := does(text_of(module)))}
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
