"""Clients of one register and its clouds, in an order that chance decides; up to t clouds lie or are silent.

Each request takes place at one moment, its answer arrives at another. A client may stop for ever at any
moment; what it has sent may still arrive, or be lost.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any, Final

from hybrisfs.cloud_registers.conditional import write_if
from hybrisfs.cloud_registers.names import Names, Version
from hybrisfs.cloud_registers.register import Draft, Found, Part, Register
from hybrisfs.cloud_registers.rounds import Answer, Ask, Pause, Protocol, Round, RoundFailedError, Within
from hybrisfs.cloud_registers.thresholds import Thresholds
from tests.kv.linearizability import Operation, deleted, read, replaced, unless, wrote

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

    def names(self) -> tuple[str, ...]:
        names = tuple(sorted(self.past if self.lie == "revives" else self.objects))
        self.before.append(names)
        if self.lie == "is behind":
            return self.chance.choice(self.before)
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


class Whole:
    """Objects that say which value they are of; those of different clouds differ."""

    def __init__(self) -> None:
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

    def ask(self, count: int) -> None:
        fresh = list(self.round.asks)[self.asked : self.asked + count]
        for cloud in fresh:
            pace = self.chance.choice((1.0, 1.0, 1.0, 0.2, 0.01))
            self.tasks.append(Task(cloud, requests_of(self.round.asks[cloud]), pace))
        self.asked += len(fresh)

    @property
    def is_over(self) -> bool:
        return self.round.enough(self.answers)


class Client:
    """One operation that goes on."""

    def __init__(
        self, chance: Random, name: str, draft: Draft | None, protocol: Protocol[Any], called: int
    ) -> None:
        self.chance = chance
        self.name = name
        self.draft = draft
        self.called = called
        self.protocol = protocol
        self.result: Any = None
        self.error: Exception | None = None
        self.is_over = False
        self.running: list[_Running] = []
        self._go_on(lambda: next(protocol))

    def _go_on(self, step: Callable[[], Any]) -> None:
        try:
            steps = step()
            while isinstance(steps, Pause | Within):
                steps = self.protocol.send(())
        except StopIteration as end:
            self.result, self.is_over = end.value, True
        except RefusedError as error:
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

    def __post_init__(self) -> None:
        self.chance = Random(self.seed)
        self.clouds = [Cloud(self.chance) for _ in range(self.thresholds.clouds)]
        for cloud, lie in zip(self.chance.sample(self.clouds, len(self.liars)), self.liars, strict=True):
            cloud.lie = lie
        self.codec = Whole()
        self.names = NAMES.of_register("box", b"key")
        self.moment = 0
        self.clients: list[Client] = []
        self.adrift: list[Task] = []
        self.history: list[Operation] = []
        self.complete: list[tuple[int, Version]] = []

    def register(self) -> Register:
        order = list(range(len(self.clouds)))
        self.chance.shuffle(order)
        return Register(self.names, order, self.thresholds, self.codec)

    # -- operations

    def begin(self, kind: str) -> None:
        register = self.register()
        write = self.chance.randrange(1, 1 << 40)
        draft = None if kind in ("get", "clear") else self.codec.draft(
            write, None if kind == "delete" else f"v{write}", self.thresholds.k
        )  # fmt: skip
        match kind:
            case "get":
                protocol: Protocol[Any] = register.read(Part.VALUE)
            case "put":
                protocol = register.write(draft)  # type: ignore[arg-type]
            case "clear":
                ready = [version for moment, version in self.complete if self._may_clear(moment)]
                if not ready:
                    return
                protocol = register.clear(self.chance.choice(ready), self.chance.choice(register.clouds))
            case "delete" | "if absent":
                live = kind == "delete"
                protocol = write_if(register, draft, lambda found: _check(found, live))  # type: ignore[arg-type]
            case _:
                seen = self.chance.choice(self.complete)[1].write if self.complete else 0
                draft.expected = seen  # type: ignore[union-attr]
                protocol = write_if(register, draft, lambda found: _check_write(found, seen))  # type: ignore[arg-type]
        self.clients.append(Client(self.chance, kind, draft, protocol, self._tick()))

    def _may_clear(self, moment: int) -> bool:
        """A version may be followed by a deletion when no conditional write is older (`KEPT_SECONDS`)."""
        return all(
            one.called > moment for one in self.clients if one.name in ("delete", "if absent", "if match")
        )

    def _tick(self) -> int:
        self.moment += 1
        return self.moment

    def _ended(self, client: Client) -> None:
        self.clients.remove(client)
        returned = self._tick()
        effect = self._effect(client)
        if effect is not None:
            self.history.append(Operation(f"{client.name} {client.result}", client.called, returned, effect))
        if client.error is None and isinstance(client.result, Version):
            self.complete.append((returned, client.result))

    def _effect(self, client: Client) -> Any:
        value = None if client.draft is None else self.codec.values[client.draft.verifier]
        match client.name:
            case "clear":
                return None
            case "get":
                found = client.result
                live = found is not None and found.version.live
                return read(KEY, self.codec.value(found) if live else None)
            case "put":
                return wrote({KEY: value})
            case "delete":
                return deleted(KEY, client.error is None)
            case "if absent":
                return unless(KEY, None) if client.error is not None else replaced(KEY, None, value)
            case _:
                seen = self.codec.values.get(client.draft.expected.to_bytes(16)) or "never"  # type: ignore[union-attr]
                return unless(KEY, seen) if client.error is not None else replaced(KEY, seen, value)

    def die(self, client: Client) -> None:
        """Nobody hears of it again; what it has written may show."""
        self.clients.remove(client)
        for one in client.running:
            self.adrift += one.tasks
        draft = client.draft
        if draft is not None and draft.exposed:
            effect = self._effect(client)
            self.history.append(Operation(f"{client.name}, unknown", client.called, None, effect))

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
                task.names = cloud.names()
            case _:
                task.data = cloud.get(what.name, what.size)
        return bool(task.left)


def _check(found: Version | None, live: bool) -> None:
    if (found is not None and found.live) != live:
        raise RefusedError


def _check_write(found: Version | None, write: int) -> None:
    if found is None or not found.live or found.write != write:
        raise RefusedError
