"""Clouds that keep containers, and what asks them: one request after the other, in an order that chance
decides.

The product's stores call a runner and wait for it (`rounds.ProtocolRunner`). Here are no threads, so that a
seed replays. What goes on at the same time comes about in two ways:

* `Asker.run` is what a store calls. Between any two requests of its protocol others get their turn: they may
  call their stores, which end before this call goes on. So calls are in each other, never across.
* `UnderWay` is a protocol alone, as `CloudKeys` makes it. It takes its steps while others call their stores,
  and between these calls, also when a life of the volume has gone on for hours. Of two such either may begin
  first and end first.

Both die at any moment. What a dead device, or a round that is over, has asked a cloud for takes place later,
or never.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from math import inf
from random import Random
from typing import Any, Final, Generic, TypeVar

from hybrisfs.dispersal.errors import CloudsUnavailable, FindingKind, IntegrityError
from hybrisfs.environment import Environment
from hybrisfs.quorums.rounds import Answer, Pause, Protocol, Round, RoundFailedError, Within
from tests.quorums.schedule import Task, requests_of
from tests.simulation.cloud import Cloud, Mood

__all__ = ["Asker", "KeyCloud", "KeyClouds", "KilledError", "UnderWay"]

S = TypeVar("S")
T = TypeVar("T")

_DIGITS: Final = "0123456789abcdefghijklmnopqrstuv"
_LOST: Final = 0.01  # of all answers
_SLOW: Final = 0.2  # of all requests take long: one step in ten is theirs
_ASKED: Final = 3  # times at most in a round
_STALLS: Final = 0.0005  # of all steps: the machine stops for a while
_MOST_STALLED: Final = 200.0  # seconds
_MOST_STEPS: Final = 20_000  # of a call
_LATE: Final = 0.05  # of all steps: something takes place that nobody waits for any more
_FORGOTTEN: Final = 0.2  # of that never does
_MOST_LATE: Final = 40


class KilledError(BaseException):
    """The device that called was killed."""


class KeyCloud(Cloud):
    """A cloud whose lists matter: in its moods it shows what it had at some moment, and what was deleted.

    What it shows begins with the prefix, as the product's backends see to that."""

    def __init__(self, random: Random) -> None:
        super().__init__(random)
        self._ever: dict[str, bytes] = {}

    def put(self, name: str, data: bytes) -> None:
        self._ever[name] = data
        super().put(name, data)

    def get(self, name: str) -> bytes | None:
        return self._ever.get(name) if self.mood is Mood.OLD else super().get(name)

    def list(self, prefix: str) -> list[str]:
        random = self._random
        ever = [name for name in self._ever if name.startswith(prefix)]
        kept = [name for name in self._versions if name.startswith(prefix)]
        match self.mood:
            case Mood.OLD:
                return sorted(ever[: random.randrange(len(ever) + 1)])
            case Mood.MIXED:
                return sorted(ever)
            case Mood.HIDING if random.random() < 0.5:
                return sorted(kept)[1:]
            case Mood.HIDING:
                return sorted(name for name in kept if random.random() < 0.5)
            case Mood.GARBLED:
                return sorted({name if random.random() < 0.7 else self._altered(name) for name in ever})
        return sorted(kept)

    def has(self, name: str) -> bool:
        """Whether it keeps it now."""
        return name in self._versions

    def _altered(self, name: str) -> str:
        at = self._random.randrange(len(name))
        return name[:at] + self._random.choice(_DIGITS) + name[at + 1 :]


class KeyClouds:
    """All clouds of the containers, and the lines of each device to them."""

    def __init__(self, chance: Random, count: int, liars: int, passed: Callable[[], float]) -> None:
        """*liars* of them may lie. *passed*: seconds since some moment."""
        self.chance = chance
        self.all = [KeyCloud(Random(chance.random())) for _ in range(count)]
        self.liars = frozenset(chance.sample(range(count), liars))
        self.cut: set[tuple[int, int]] = set()
        """Devices and clouds without a line."""
        self.is_fair = False
        """Whether no answer gets lost, and no machine stops."""
        self._passed = passed
        self._stalled = 0.0
        self._late: list[Task] = []

    def time(self) -> float:
        """Seconds since some moment; see `Environment.boot_time`."""
        return self._passed() + self._stalled

    def sleep(self, seconds: float) -> None:
        """Let so many seconds pass."""
        self._stalled += seconds

    def change(self, devices: int) -> None:
        """The weather changes: the mood of a cloud, or a line. It is rarely so bad that all stand still."""
        chance = self.chance
        number = chance.randrange(len(self.all))
        cloud = self.all[number]
        if chance.random() < 0.4:
            device = chance.randrange(devices)
            self.cut = {line for line in self.cut if line[0] != device}
            if chance.random() < 0.5:
                self.cut.add((device, number))
        elif number in self.liars:
            cloud.mood = chance.choice(tuple(Mood))
        elif cloud.is_up and chance.random() < 0.5:
            if chance.random() < 0.8:
                self._mend()
            cloud.mood = Mood.DOWN
        else:
            self._mend()

    def _mend(self) -> None:
        for number, cloud in enumerate(self.all):
            if number not in self.liars:
                cloud.mood = Mood.WELL

    def clear_up(self) -> None:
        """All clouds that do not lie are well from now on, and what is late has come or is lost."""
        self.is_fair = True
        self.cut.clear()
        self._mend()
        while self._late:
            self._let_come()

    def request(self, device: int, task: Task) -> bool:
        """Let the next request of a task take place; whether the cloud answers."""
        cloud = self.all[task.cloud]
        if not cloud.is_up or (device, task.cloud) in self.cut:
            return False
        kind, what = task.left.pop(0)
        match kind:
            case "put":
                cloud.put(*what)
            case "delete":
                cloud.delete(what)
            case "list":
                task.names = tuple(cloud.list(what))
            case _:
                data = cloud.get(what.name)
                task.data = None if data is None else data[: what.size]
        return self.is_fair or self.chance.random() >= _LOST

    def leave(self, tasks: Iterable[Task]) -> None:
        """Nobody waits for these any more."""
        self._late += [one for one in tasks if one.left and one.left[0][0] in ("put", "delete")]
        while len(self._late) > _MOST_LATE:
            self._let_come()

    def go_on(self) -> None:
        """Time passes: for a moment, or longer."""
        if self.is_fair:
            return
        if self._late and self.chance.random() < _LATE:
            self._let_come()
        if self.chance.random() < _STALLS:
            self.sleep(self.chance.uniform(1.0, _MOST_STALLED))

    def _let_come(self) -> None:
        task = self._late[self.chance.randrange(len(self._late))]
        lost = self.chance.random() < _FORGOTTEN
        if lost or not self.request(-1, task) or not task.left or task.left[0][0] not in ("put", "delete"):
            self._late.remove(task)


class _Running:
    """A round that goes on."""

    def __init__(self, round_: Round, chance: Random) -> None:
        self.round = round_
        self.tasks: list[Task] = []
        self.answers: dict[int, Answer] = {}
        self.kinds: dict[int, FindingKind] = {}
        self._fresh = list(round_.asks)
        self._asked: dict[int, int] = {}
        self._chance = chance
        self.ask(len(self._fresh) if round_.first is None else round_.first)

    def ask(self, count: int) -> None:
        """Ask so many clouds more."""
        for cloud in self._fresh[:count]:
            self._ask(cloud)
        del self._fresh[:count]

    def _ask(self, cloud: int) -> None:
        self._asked[cloud] = self._asked.get(cloud, 0) + 1
        pace = 0.1 if self._chance.random() < _SLOW else 1.0
        self.tasks.append(Task(cloud, requests_of(self.round.asks[cloud]), pace))

    def take(self, task: Task) -> None:
        """A cloud has answered."""
        self.tasks.remove(task)
        answer = None if task.data is None else Answer(task.names, task.data)
        if answer is not None and self.round.accept(task.cloud, answer):
            self.answers[task.cloud] = answer
            return
        self.kinds[task.cloud] = "missing" if answer is None else "corrupt"
        self.ask(0 if self.round.first is None else 1)

    def fail(self, task: Task) -> None:
        """A cloud, or the line to it, has failed."""
        self.tasks.remove(task)
        self.kinds[task.cloud] = "unreadable"
        if self.round.first is not None:
            self.ask(1)
        elif self._asked[task.cloud] < _ASKED:
            self._ask(task.cloud)

    @property
    def is_over(self) -> bool:
        return self.round.enough(self.answers)

    @property
    def is_hopeless(self) -> bool:
        return not (self.tasks or self._fresh or self.is_over)

    @property
    def may_ask(self) -> bool:
        return bool(self._fresh)


class UnderWay(Generic[T]):
    """A protocol of a device that goes on step by step. `error` is why it has ended without a `result`."""

    def __init__(self, clouds: KeyClouds, device: int, protocol: Protocol[T]) -> None:
        self.is_over = False
        self.error: Exception | None = None
        self._results: list[T] = []
        self._clouds = clouds
        self._device = device
        self._protocol = protocol
        self._until = inf
        self._running: list[_Running] = []
        self._go_on(lambda: next(protocol))

    @property
    def result(self) -> T:
        """What it returned. Raises what it raised."""
        if self.error is not None:
            raise self.error
        return self._results[0]

    def _go_on(self, step: Callable[[], Any]) -> None:
        try:
            steps = step()
            while isinstance(steps, Pause | Within):
                if isinstance(steps, Within):
                    self._until = self._clouds.time() + steps.seconds
                steps = self._protocol.send(())
        except StopIteration as end:
            self._results.append(end.value)
            self.is_over = True
        except Exception as error:  # noqa: BLE001 - whoever waits for it gets it
            self._fail(error)
        else:
            self._running = [_Running(one, self._clouds.chance) for one in steps]

    def _fail(self, error: Exception) -> None:
        self.error = error
        self.die()

    def die(self) -> None:
        """It does not go on; what it has asked for may take place."""
        self.is_over = True
        self._end_rounds()
        self._protocol.close()

    def _end_rounds(self) -> None:
        self._clouds.leave(task for one in self._running for task in one.tasks)
        self._running = []

    def step(self) -> None:
        """A request takes place, or an answer comes, or rounds are over, as in `Runner.run`."""
        hopeless = next((one for one in self._running if one.is_hopeless), None)
        if hopeless is not None and hopeless.round.first is None:
            self._fail(CloudsUnavailable("the clouds are away", {}))
        elif hopeless is not None:
            error = RoundFailedError("no cloud is left", {}, tuple(hopeless.kinds.values()))
            self._end_rounds()
            self._go_on(lambda: self._protocol.throw(error))
        elif not all(one.is_over for one in self._running):
            self._move()
        elif self._clouds.time() >= self._until:
            self._fail(CloudsUnavailable("it took too long", {}))
        else:
            answers = [one.answers for one in self._running]
            self._end_rounds()
            self._go_on(lambda: self._protocol.send(answers))

    def _move(self) -> None:
        chance = self._clouds.chance
        one = chance.choice([one for one in self._running if not one.is_over])
        if one.may_ask and (not one.tasks or chance.random() < 0.05):
            one.ask(1)
            return
        task = chance.choice(one.tasks)
        if task.pace < 1.0 and chance.random() >= task.pace:
            return
        if task.left:
            if not self._clouds.request(self._device, task):
                one.fail(task)
            return
        try:
            one.take(task)
        except IntegrityError as error:
            self._fail(error)


class Asker:
    """Runs the protocols of one life of a device's daemon, see `rounds.ProtocolRunner`."""

    def __init__(
        self, clouds: KeyClouds, device: int, environment: Environment, others: Callable[[], None]
    ) -> None:
        """*others* lets others take their turn."""
        self.environment: Final = environment
        self.is_dead = False
        """Whether the daemon was killed: what it calls goes on no more."""
        self._clouds = clouds
        self._device = device
        self._others = others

    def has(self, cloud: int) -> bool:
        return cloud < len(self._clouds.all)

    def order(self, clouds: Sequence[int], size: int) -> list[int]:
        return self._clouds.chance.sample(list(clouds), len(clouds))

    def run(self, what: str, protocol: Protocol[T]) -> T:
        """Raises KilledError, too."""
        one = UnderWay(self._clouds, self._device, protocol)
        for _ in range(_MOST_STEPS):
            if one.is_over:
                return one.result
            self._others()
            if self.is_dead:
                one.die()
                raise KilledError
            one.step()
        raise AssertionError(f"it does not end, and so {what}")

    def each(self, work: Callable[[S], T], items: Sequence[S]) -> list[T]:
        return [work(item) for item in items]

    def start(self, name: str, work: Callable[[], object]) -> Callable[[], object]:
        """What is to be done beside all else, another event does."""
        return lambda: None
