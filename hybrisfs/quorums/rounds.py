"""A round of a protocol: the same question to several clouds, until enough have answered.

A protocol is a generator. It yields the rounds that go on at the same time, and gets their answers, so it
reads as in the paper. It does no IO: a `ProtocolRunner` asks the clouds. That of the product is in `runner`;
the tests have others, which ask models of clouds.

    answers = yield [Round({cloud: Ask(prefix=...), ...}, need(quorum))]

A reader that trusts nothing yet asks all clouds, and waits until each has answered or failed (`ask_all`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Iterable, Mapping, Sequence
from itertools import islice
from typing import Final, TypeAlias, TypeVar
from typing import Protocol as Interface

from msgspec import Struct

from hybrisfs.dispersal.errors import CloudsUnavailable, FindingKind
from hybrisfs.environment import Environment
from sync.codec import Buffer

__all__ = [
    "Answer",
    "Ask",
    "Pause",
    "Protocol",
    "ProtocolRunner",
    "Read",
    "Round",
    "RoundFailedError",
    "Steps",
    "Within",
    "ask_all",
    "need",
    "side_by_side",
]

S = TypeVar("S")
T = TypeVar("T")

_AT_ONCE: Final = 32


class Read(Struct, frozen=True):
    """The first *size* bytes of an object."""

    name: str
    size: int
    whole: bool = False
    """The whole object, which has at most *size* bytes."""


class Ask(Struct, frozen=True):
    """Requests to one cloud, each after the one before: put and delete objects, list names, read an
    object."""

    puts: tuple[tuple[str, Buffer], ...] = ()
    deletes: tuple[str, ...] = ()
    prefix: str | None = None
    will_do: Callable[[Sequence[str]], bool] | None = None
    """Whether the first names are enough, and the rest is not to be listed."""
    pages: int = 64
    """How many pages of names are taken at most; no correct client leaves so many objects of one key."""
    read: Read | None = None


class Answer(Struct, frozen=True):
    """What a cloud has answered: the names, or the bytes; nothing to puts alone."""

    names: tuple[str, ...] = ()
    data: bytes = b""
    fault: FindingKind | None = None
    """Only in rounds of `ask_all`: the kind of failure, if this is not an answer, and ..."""
    reason: str = ""
    """... the reason, for people."""


class Round(Struct, frozen=True):
    """Questions by cloud, the best first."""

    asks: Mapping[int, Ask]
    enough: Callable[[Mapping[int, Answer]], bool]
    """Whether these answers end the round."""
    first: int | None = None
    """How many clouds are asked at first. Each of the others is asked when one of these is late, has failed,
    or is wrong. None: all are asked, again and again."""
    accept: Callable[[int, Answer], bool] = lambda _cloud, _answer: True
    """Whether a cloud's answer is right; only such answers count."""
    forgiving: bool = False
    """Whether a failure counts as an answer: see `ask_all`."""


class Pause(Struct, frozen=True, order=True):
    """Wait for a random time before the next round, longer each time: others are at the same key."""

    attempt: int


class Within(Struct, frozen=True, order=True):
    """What follows has to be over after so many seconds, in which the machine's sleep counts."""

    seconds: float


class RoundFailedError(CloudsUnavailable):
    """No cloud is left that could be asked: of a round that has a `first` only. *kinds* are those of what is
    wrong, for each cloud that has not given a right answer."""

    def __init__(self, what: str, reasons: Mapping[str, str], kinds: Collection[FindingKind]) -> None:
        super().__init__(what, reasons)
        self.kinds = kinds

    @property
    def denials(self) -> int:
        """How many clouds have answered, and gave nothing that is right."""
        return sum(kind != "unreadable" for kind in self.kinds)


Steps: TypeAlias = Sequence[Round] | Pause | Within
Protocol: TypeAlias = Generator[Steps, Sequence[Mapping[int, Answer]], T]
"""A protocol, which returns a T."""


class ProtocolRunner(Interface):
    """Runs protocols, and what goes with them. Thread-safe."""

    @property
    def environment(self) -> Environment:
        """The surroundings in which it works."""

    def has(self, cloud: int) -> bool:
        """Whether the volume has this cloud."""

    def order(self, clouds: Sequence[int], size: int) -> list[int]:
        """These clouds, the best to get *size* bytes from first; those that are not there any more last."""

    def run(self, what: str, protocol: Protocol[T]) -> T:
        """Run a protocol to its end; *what* it does, for people.

        Raises what it raises, and CloudsUnavailable when too few clouds are left, or answer in time.
        """

    def each(self, work: Callable[[S], T], items: Sequence[S]) -> list[T]:
        """What *work* makes of each item; it may be called for several at the same time."""

    def start(self, name: str, work: Callable[[], object]) -> Callable[[], object]:
        """Begin work beside all else; a function that waits for its end."""


def need(count: int) -> Callable[[Mapping[int, Answer]], bool]:
    """That so many clouds have answered."""
    return lambda answers: len(answers) >= count


def side_by_side(protocols: Iterable[Protocol[T]]) -> Protocol[list[T]]:
    """Carry out protocols at the same time: their next rounds go on together, those of some protocols after
    those of others when there are many. One that pauses, or limits the time, waits until the others do, too,
    or have ended. An error of one ends all."""
    running = list(protocols)
    steps: dict[int, Steps] = {}
    results: dict[int, T] = {}

    def go_on(number: int, answers: Sequence[Mapping[int, Answer]] | None) -> None:
        try:
            # A generator that has not begun takes nothing but None.
            steps[number] = next(running[number]) if answers is None else running[number].send(answers)
        except StopIteration as end:
            steps.pop(number, None)
            results[number] = end.value

    try:
        for number in range(len(running)):
            go_on(number, None)
        while steps:
            rounds = {number: one for number, one in steps.items() if not isinstance(one, Pause | Within)}
            if rounds:
                now = dict(islice(rounds.items(), _AT_ONCE))
                answers = iter((yield [one for some in now.values() for one in some]))
                for number, some in now.items():
                    go_on(number, list(islice(answers, len(some))))
                continue
            limits = [one for one in steps.values() if isinstance(one, Within)]
            pauses = [one for one in steps.values() if isinstance(one, Pause)]
            together: Steps = min(limits) if limits else max(pauses)
            yield together
            for number in [number for number, one in steps.items() if isinstance(one, type(together))]:
                go_on(number, ())
    finally:
        for one in running:
            one.close()
    return [results[number] for number in range(len(running))]


def ask_all(asks: Mapping[int, Ask]) -> Round:
    """The round in which each cloud answers or fails; a failure is an answer with a fault."""
    return Round(asks, need(len(asks)), forgiving=True)
