"""Clients of some registers and their clouds, in an order that chance decides; up to t clouds
lie or are silent.

Each request takes place at one moment, its answer arrives at another. A client may stop for ever at any
moment; what it has sent may still arrive, or be lost.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from random import Random
from typing import Any, Final

from hybrisfs.environment import Environment
from hybrisfs.errors import HybrisError
from hybrisfs.quorums.names import Names, Version
from hybrisfs.quorums.reading import read as read_register
from hybrisfs.quorums.register import Draft, Found, Part, Register
from hybrisfs.quorums.rounds import Answer, Ask, Pause, Protocol, Round, RoundFailedError, Within
from hybrisfs.quorums.snapshot import Holds, take_snapshot
from hybrisfs.quorums.thresholds import Thresholds
from hybrisfs.quorums.transaction import Member, Transaction, tidy, write_if
from tests.kv.linearizability import Operation, State, deleted, read, replaced, unless, wrote

KEY: Final = "key"
NAMES: Final = Names(b"n" * 32, b"s" * 16)
LIES: Final = (
    "hides",
    "is behind",
    "corrupts",
    "forgets",
    "revives",
    "is silent",
    "shows all but the newest",
)


class RefusedError(Exception):
    """The condition of a write does not hold."""


@dataclass
class Cloud:
    """Objects by name, and how it lies."""

    chance: Random
    lie: str = ""
    objects: dict[str, bytes] = field(default_factory=dict)
    past: dict[str, bytes] = field(default_factory=dict)
    before: list[tuple[str, ...]] = field(default_factory=list)

    def put(self, name: str, data: bytes) -> None:
        if self.lie == "forgets" and self.chance.random() < 0.5:
            return
        self.objects[name] = self.past[name] = data

    def delete(self, name: str) -> None:
        self.objects.pop(name, None)

    def names(self, prefix: str = "") -> tuple[str, ...]:
        everything = tuple(sorted(self.past if self.lie == "revives" else self.objects))
        self.before.append(everything)
        if self.lie == "is behind":
            everything = self.chance.choice(self.before)
        names = tuple(name for name in everything if name.startswith(prefix))
        if self.lie == "hides":
            return tuple(name for name in names if self.chance.random() < 0.5)
        if self.lie == "shows all but the newest":
            return names[1:]
        return names

    def get(self, name: str, size: int) -> bytes | None:
        data = (self.past if self.lie == "revives" else self.objects).get(name)
        if data is not None and self.lie == "corrupts":
            return bytes(len(data))
        return None if data is None else data[:size]

    def answer(self, ask: Ask) -> Answer:
        """Do all that is asked at once."""
        for name, data in ask.puts:
            self.put(name, bytes(data))
        for name in ask.deletes:
            self.delete(name)
        names = () if ask.prefix is None else self.names(ask.prefix)
        if ask.read is None:
            return Answer(names)
        found = self.get(ask.read.name, ask.read.size)
        return Answer(names, fault="missing") if found is None else Answer(names, found)


class Whole:
    """Objects that say which value they are of; those of different clouds differ."""

    def __init__(self, chance: Random) -> None:
        self.chance = chance
        self.values: dict[bytes, str] = {}

    def draft(self, write: int, value: str | None, k: int) -> Draft:
        verifier = write.to_bytes(16)
        self.values[verifier] = value or ""
        return Draft(
            write, k if value is not None else 0, 40, verifier, (write + 1).to_bytes(16),
            lambda cloud: self.object(verifier, cloud),
        )  # fmt: skip

    def object(self, verifier: bytes, cloud: int) -> bytes:
        return f"{verifier.hex()}{cloud}".ljust(40).encode()

    def is_right(self, version: Version, cloud: int, data: bytes) -> bool:
        return data == self.object(version.verifier, cloud)

    def value(self, found: Found) -> str:
        """What the parts say; nobody's value when one of them is wrong."""
        count = found.version.needed
        right = [cloud for cloud, data in found.parts.items() if self.is_right(found.version, cloud, data)]
        return self.values[found.version.verifier] if len(right) >= count else "wrong"

    def rebuild(self, version: Version, parts: Mapping[int, bytes]) -> Callable[[int], bytes]:
        assert len(parts) >= version.needed
        return lambda cloud: self.object(version.verifier, cloud)

    def marker(self) -> Draft:
        write = self.chance.randrange(1, 1 << 40)
        nonce = self.chance.randbytes(16)
        return Draft(write, 0, 0, bytes(16), nonce, lambda cloud: b"")


@dataclass
class Task:
    """Requests to one cloud that are under way."""

    cloud: int
    left: list[tuple[str, Any]]
    pace: float
    names: tuple[str, ...] = ()
    data: bytes | None = b""


def requests_of(ask: Ask) -> list[tuple[str, Any]]:
    """What a cloud is asked for, in order."""
    puts = [("put", (name, bytes(data))) for name, data in ask.puts]
    lists = [] if ask.prefix is None else [("list", ask.prefix)]
    reads = [] if ask.read is None else [("read", ask.read)]
    return [*puts, *(("delete", name) for name in ask.deletes), *lists, *reads]


@dataclass
class _Running:
    round: Round
    chance: Random
    tasks: list[Task] = field(default_factory=list)
    answers: dict[int, Answer] = field(default_factory=dict)
    asked: int = 0

    def __post_init__(self) -> None:
        self.pace = self.chance.choice((1.0, 1.0, 0.03))  # of those that go on together one may be slow

    def ask(self, count: int) -> None:
        fresh = list(self.round.asks)[self.asked : self.asked + count]
        for cloud in fresh:
            pace = self.pace * self.chance.choice((1.0, 1.0, 1.0, 0.2, 0.01))
            self.tasks.append(Task(cloud, requests_of(self.round.asks[cloud]), pace))
        self.asked += len(fresh)

    @property
    def is_over(self) -> bool:
        return self.round.enough(self.answers)


class Client:
    """One operation that goes on."""

    protocol: Protocol[Any]

    def __init__(self, chance: Random, name: str, key: str, called: int) -> None:
        self.chance = chance
        self.name = name
        self.key = key
        self.called = called
        self.drafts: dict[str, Draft] = {}
        self.transaction: Transaction | None = None
        self.wanted: dict[str, bool] = {}
        """Of a transaction: keys that must have a value, or must not."""
        self.before = ""
        """The value that it depends on."""
        self.result: Any = None
        self.error: Exception | None = None
        self.is_over = False
        self.running: list[_Running] = []

    def start(self, protocol: Protocol[Any]) -> None:
        self.protocol = protocol
        self._go_on(lambda: next(protocol))

    def __str__(self) -> str:
        return f"{self.name} {self.key} {self.wanted} {self.result or self.error!r} {self.before}"

    def _go_on(self, step: Callable[[], Any]) -> None:
        try:
            steps = step()
            while isinstance(steps, Pause | Within):
                steps = self.protocol.send(())
        except StopIteration as end:
            self.result, self.is_over = end.value, True
        except (RefusedError, HybrisError) as error:
            self.error, self.is_over = error, True
        else:
            self.running = [_Running(one, self.chance) for one in steps]
            for one in self.running:
                one.ask(len(one.round.asks) if one.round.first is None else one.round.first)

    def look(self) -> list[Task]:
        """Begin the next rounds when these are over; what of these is still under way."""
        if self.is_over:
            return []
        failed = any(
            not one.is_over and not one.tasks and one.asked == len(one.round.asks)
            for one in self.running
            if one.round.first is not None
        )
        if failed or all(one.is_over for one in self.running):
            left = [task for one in self.running for task in one.tasks]
            answers = [one.answers for one in self.running]
            if failed:
                self._go_on(lambda: self.protocol.throw(RoundFailedError("no cloud is left", {}, ())))
            else:
                self._go_on(lambda: self.protocol.send(answers))
            return left
        return []


@dataclass
class World:
    """All of it."""

    seed: int
    thresholds: Thresholds
    liars: Sequence[str] = ()
    """How some clouds lie."""
    keys: Sequence[str] = (KEY,)

    def __post_init__(self) -> None:
        self.chance = Random(self.seed)
        self.clouds = [Cloud(self.chance) for _ in range(self.thresholds.clouds)]
        for cloud, lie in zip(self.chance.sample(self.clouds, len(self.liars)), self.liars, strict=True):
            cloud.lie = lie
        self.codec = Whole(self.chance)
        self.moment = 0
        self.clients: list[Client] = []
        self.adrift: list[Task] = []
        self.history: list[Operation] = []
        self.complete: list[tuple[int, str, Version]] = []
        self.ended: list[tuple[int, bytes]] = []
        """Transactions, and ..."""
        self.numbers: dict[str, list[tuple[int, str]]] = {}
        """... by key, which values have been read with which number."""

    def register(self, key: str) -> Register:
        return self.register_at(NAMES.of_register("box", key.encode()).prefix)

    def holds(self) -> Holds:
        """Those of the container, as a device sees them that has not looked yet."""
        clouds = range(len(self.clouds))
        return Holds(
            NAMES.of_holds("box"), clouds, self.thresholds, Environment(boot_time=lambda: float(self.moment))
        )

    def register_at(self, prefix: str) -> Register:
        order = list(range(len(self.clouds)))
        self.chance.shuffle(order)
        return Register(NAMES.at(prefix), order, self.thresholds, self.codec)

    # -- operations

    def begin(self, kind: str) -> None:
        client = Client(self.chance, kind, self.chance.choice(self.keys), self._tick())
        protocol = self._protocol(client)
        if protocol is not None:
            self.clients.append(client)
            if client.drafts and self.chance.random() < 0.5:  # the others know no holds
                protocol = self.holds().waiting(protocol)
            client.start(protocol)

    def _protocol(self, client: Client) -> Protocol[Any] | None:
        register = self.register(client.key)
        match client.name:
            case "get":
                return read_register(register, Part.VALUE)
            case "clear":
                ready = [one for one in self.complete if self._may_clear(one[0])]
                if not ready:
                    return None
                _, client.key, version = self.chance.choice(ready)
                return self.register(client.key).clear(version, self.chance.choice(register.clouds))
            case "tidy":
                ended = [commitment for moment, commitment in self.ended if self._may_clear(moment)]
                if not ended:
                    return None
                commitment = self.chance.choice(ended)
                return tidy(register.transaction(commitment), commitment, self.chance.choice(register.clouds))
            case "list":
                number = self.chance.randrange(1 << 64)
                return take_snapshot(
                    self.register_at, NAMES.of_container("box"), divide, self.holds(), number
                )
            case "together":
                return self._together(client)
        draft = client.drafts[client.key] = self._draft(None if client.name == "delete" else "v")
        match client.name:
            case "put":
                return register.write(draft)
            case "delete" | "if absent":
                live = client.name == "delete"
                return write_if(register, draft, lambda found: _check(found, live))
            case "if match":
                of_key = [version for _, key, version in self.complete if key == client.key]
                seen = self.chance.choice(of_key).write if of_key else 0
                client.before = self.codec.values.get(seen.to_bytes(16)) or "never"
                return write_if(register, draft, lambda found: _check_write(found, seen))
            case _:
                number, client.before = self.chance.choice(self.numbers.get(client.key, [(0, "never")]))
                return write_if(register, draft, lambda found: _check_number(found, number))

    def _together(self, client: Client) -> Protocol[Any]:
        """A transaction that deletes a key or writes it, and depends on it or not, for each."""
        members = []
        for key in self.keys:
            is_written = key == client.key or self.chance.random() < 0.6
            if is_written:
                client.drafts[key] = self._draft(self.chance.choice(("v", "v", "v", None)))
            if not is_written or self.chance.random() < 0.1:
                client.wanted[key] = self.chance.random() < 0.5
            members.append(
                Member(
                    self.register(key),
                    client.drafts.get(key),
                    partial(_check, live=client.wanted[key]) if key in client.wanted else lambda found: None,
                )
            )
        client.transaction = Transaction(members)
        return client.transaction.write()

    def _draft(self, kind: str | None) -> Draft:
        write = self.chance.randrange(1, 1 << 40)
        return self.codec.draft(write, None if kind is None else f"{kind}{write}", self.thresholds.k)

    def _may_clear(self, moment: int) -> bool:
        """A version may be followed by a deletion when no write with ballots is older (`KEPT_SECONDS`)."""
        return all(
            one.called > moment
            for one in self.clients
            if one.name not in ("get", "put", "clear", "tidy", "list")
        )

    def _tick(self) -> int:
        self.moment += 1
        return self.moment

    def _ended(self, client: Client) -> None:
        self.clients.remove(client)
        returned = self._tick()
        effect = self._effect(client)
        if effect is not None:
            self.history.append(Operation(f"{client}", client.called, returned, effect))
        if client.transaction is not None:
            self.ended += [(returned, one) for one in client.transaction.ended]
        if client.error is not None:
            return
        if client.name == "get" and client.result is not None:
            found = client.result
            if found.version.live:
                value = self.codec.value(found)
                self.numbers.setdefault(client.key, []).append((found.version.time.version, value))
        if client.name == "together":
            for key, version in zip(client.drafts, client.result, strict=True):
                self.complete.append((returned, key, version))
        elif isinstance(client.result, Version):
            self.complete.append((returned, client.key, client.result))

    def _effect(self, client: Client) -> Any:
        values = {key: self.codec.values[one.verifier] or None for key, one in client.drafts.items()}
        key, failed = client.key, client.error is not None
        match client.name:
            case "clear" | "tidy":
                return None
            case "get":
                found = client.result
                live = found is not None and found.version.live
                return read(key, self.codec.value(found) if live else None)
            case "list":
                if failed:
                    return None
                found = client.result.latest
                seen = {
                    one: self.codec.values[found[prefix].verifier]
                    for one in self.keys
                    if (prefix := self.register(one).names.prefix) in found and found[prefix].live
                }
                return lambda state: state if dict(state) == seen else None
            case "together":
                return together(client.wanted, None if failed else values)
            case "put":
                return wrote(values)
            case "delete":
                return deleted(key, not failed)
            case "if absent":
                return unless(key, None) if failed else replaced(key, None, values[key])
            case "if match":
                return unless(key, client.before) if failed else replaced(key, client.before, values[key])
            case _:  # "if version": a refusal may be due to another value with that number
                return None if failed else replaced(key, client.before, values[key])

    def die(self, client: Client) -> None:
        """Nobody hears of it again; what it has written may show."""
        self.clients.remove(client)
        for one in client.running:
            self.adrift += one.tasks
        exposing = [client.transaction] if client.transaction is not None else client.drafts.values()
        if any(one.exposed for one in exposing):
            effect = self._effect(client)
            if effect is not None:
                self.history.append(Operation(f"{client}, unknown", client.called, None, effect))

    # -- the order of things

    def run(self, kinds: Sequence[str], count: int, *, at_once: int = 4, deaths: float = 0.01) -> None:
        """Run so many operations of these kinds, some at the same time, until all have ended."""
        begun = 0
        for _ in range(200_000):
            while begun < count and len(self.clients) < at_once and self.chance.random() < 0.2:
                self.begin(self.chance.choice(kinds))
                begun += 1
            if begun == count and not self.clients:
                return
            for client in list(self.clients):
                self.adrift += [
                    one for one in client.look() if one.left and one.left[0][0] in ("put", "delete")
                ]
                if client.is_over:
                    self._ended(client)
            if self.clients and self.chance.random() < deaths / 10:
                self.die(self.chance.choice(self.clients))
            self._step()
        raise AssertionError("it does not end")

    def _step(self) -> None:
        choices = [(one, task) for client in self.clients for one in client.running for task in one.tasks]
        if self.adrift and self.chance.random() < 0.1:
            task = self.chance.choice(self.adrift)
            if self.chance.random() < 0.2 or not self._request(task):
                self.adrift.remove(task)
            return
        late = [
            one
            for client in self.clients
            for one in client.running
            if one.round.first is not None and one.asked < len(one.round.asks)
        ]
        if late and (self.chance.random() < 0.05 or not choices):
            self.chance.choice(late).ask(1)
        elif choices:
            ((one, task),) = self.chance.choices(choices, [task.pace for _, task in choices])
            if self.clouds[task.cloud].lie == "is silent":
                return
            if task.left:
                self._request(task)
            else:
                one.tasks.remove(task)
                answer = None if task.data is None else Answer(task.names, task.data)
                if answer is not None and one.round.accept(task.cloud, answer):
                    one.answers[task.cloud] = answer
                elif one.round.first is not None:
                    one.ask(1)

    def _request(self, task: Task) -> bool:
        """Let the next request of a task take place; whether any is left."""
        cloud = self.clouds[task.cloud]
        if not task.left:
            return False
        kind, what = task.left.pop(0)
        match kind:
            case "put":
                cloud.put(*what)
            case "delete":
                cloud.delete(what)
            case "list":
                task.names = cloud.names(what)
            case _:
                task.data = cloud.get(what.name, what.size)
        return bool(task.left)


def divide(answer: Answer) -> dict[str, Answer]:
    return {prefix: Answer(tuple(names)) for prefix, names in NAMES.registers("box", answer.names).items()}


def together(wanted: Mapping[str, bool], values: Mapping[str, str | None] | None) -> Any:
    """A transaction that needs some keys to have values or none. *values*: what it wrote; None: it was
    refused."""

    def effect(state: State) -> State | None:
        holds = all((key in state) == live for key, live in wanted.items())
        if values is None:
            return None if holds else state
        return wrote(values)(state) if holds else None

    return effect


def _check(found: Found | None, live: bool) -> None:
    if (found is not None and found.version.live) != live:
        raise RefusedError


def _check_write(found: Found | None, write: int) -> None:
    if found is None or not found.version.live or found.version.write != write:
        raise RefusedError


def _check_number(found: Found | None, number: int) -> None:
    if found is None or not found.version.live or found.version.time.version != number or not found.is_only:
        raise RefusedError
