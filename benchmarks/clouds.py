"""`python -m benchmarks.clouds`: Hybris's Experiments 1 and 2 over emulated lines to four S3 servers.

There are six parts; `--only` chooses one:

* *latency* (Experiment 1): how long PUT and GET take through our engine, with whole copies (k=1) and erasure
  coding (k=2), beside each single cloud through its own SDK, as it comes and without `Expect: 100-continue`,
  and beside DepSky-A and DepSky-EC, see `benchmarks.depsky`.
* *faces*: the content of files, which is packs, beside the key-value store with its metadata on this device
  and without a cache, over the same clouds; and beside the two fastest of them through their SDK, at once.
* *home*: the same as *latency*, while all clouds share one line of 100 Mbit/s, as those of a household do.
* *tampering*, *stalling* (Experiment 2): GET while the fastest cloud tampers with all it returns, or answers
  nothing at all.
* *finding*: the very read that finds such a fault, for each size with engines of its own.

All systems take turns, each round begins with another one. The first requests decide which clouds the engine
takes to be the fastest, and these may have bad luck. So every part is started anew several times, each with
new engines and empty clouds, and the worst start has to meet the targets. `--add` adds to the starts that
were measured before.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeAlias

from rich.console import Console

from backends.store import Store
from benchmarks.clouds_page import (
    AT_ONCE,
    CODES,
    DEPSKY,
    FACES,
    SIZES,
    STALLING,
    TAMPERING,
    F,
    Samples,
    Starts,
    clouds_page,
    draw_clouds,
)
from benchmarks.corpus import work_folder
from benchmarks.depsky import DepSky
from benchmarks.dispersed import Dispersed, Keyed, Stored
from benchmarks.pages import draw_again, options_of, publish
from benchmarks.report import machine, terminal
from benchmarks.wan import Distance, FarCloud, Wan, far_clouds
from tests.adversary import READS, Fault, FaultyStore

_DISTANCES: Final = (
    Distance("amber", 20, 200),
    Distance("birch", 35, 150),
    Distance("cedar", 60, 100),
    Distance("denim", 90, 60),
)
_HOME: Final = 100  # Mbit/s
_AT_HOME: Final = tuple(Distance(one.name, one.round_trip, _HOME, "home") for one in _DISTANCES)
_WARM_UPS: Final = 6  # rounds in which connections are made and the engine gets to know the clouds
_LARGE: Final = 3  # times, are the rounds fewer that have 10 MB
_SEED: Final = 1

System: TypeAlias = "_Single | Dispersed | DepSky | Keyed"


def _seconds(action: Callable[[], object]) -> float:
    begun = time.perf_counter()
    action()
    return time.perf_counter() - begun


class _Single:
    """One cloud through its own SDK. `asks`: as it comes, it asks for leave before it sends a body."""

    def __init__(self, cloud: FarCloud, *, asks: bool = True) -> None:
        self._client: Any = cloud.sdk(asks=asks)
        self._bucket = cloud.bucket

    def put(self, key: str, data: bytes) -> None:
        self._client.put_object(Bucket=self._bucket, Key=key, Body=data)

    def get(self, key: str) -> bytes:
        data: bytes = self._client.get_object(Bucket=self._bucket, Key=key)["Body"].read()
        return data

    def close(self) -> None:
        self._client.close()


def _turns(names: Sequence[str], number: int) -> list[str]:
    """The systems in this round's order."""
    first = number % len(names)
    return [*names[first:], *names[:first]]


def _sizes(number: int) -> dict[str, int]:
    """The sizes of this round."""
    has_large = number % _LARGE == 0
    return {size: length for size, length in SIZES.items() if has_large or length < max(SIZES.values())}


def _add(samples: Samples, operation: str, system: str, seconds: float) -> None:
    samples.setdefault(operation, {}).setdefault(system, []).append(seconds)


@contextmanager
def _faces(wan: Wan, root: Path) -> Iterator[dict[str, System]]:
    """Ours, as packs and as values of a key-value store, beside the fastest clouds."""
    names = [one.distance.name for one in wan.clouds]
    with ExitStack() as stack:
        found: dict[str, System] = {
            one.distance.name: stack.enter_context(closing(_Single(one, asks=False)))
            for one in wan.clouds[: F + 1]
        }
        for name, k in CODES.items():
            packs = Dispersed(names, _connected(wan), F, k)
            found[name] = stack.enter_context(closing(packs))
            keyed = Keyed(root / f"k{k}.db", names, _connected(wan), F, k)
            found[FACES[name]] = stack.enter_context(closing(keyed))
        yield found


@contextmanager
def _systems(wan: Wan, liars: list[FaultyStore] | None = None) -> Iterator[dict[str, System]]:
    """Ours and DepSky's, with drivers of their own. With *liars*, the first cloud of each is one of these."""

    def stores() -> list[Store]:
        first, *others = _connected(wan)
        if liars is None:
            return [first, *others]
        liars.append(FaultyStore(first, _SEED))
        return [liars[-1], *others]

    names = [one.distance.name for one in wan.clouds]
    with ExitStack() as stack:
        found: dict[str, System] = {
            name: stack.enter_context(closing(Dispersed(names, stores(), F, k))) for name, k in CODES.items()
        }
        for name, coded in DEPSKY.items():
            found[name] = stack.enter_context(closing(DepSky(stores(), F, coded=coded)))
        yield found


def _connected(wan: Wan) -> list[Store]:
    """A driver per cloud that has loaded its library and been there, as one of a mounted volume has."""
    stores: list[Store] = [one.store() for one in wan.clouds]
    for store in stores:
        store.initialise()
    return stores


def _put(system: System, key: str, data: bytes) -> Stored | None:
    if isinstance(system, Dispersed):
        return system.put(data)
    system.put(key, data)
    return None


def _get(system: System, key: str, stored: Stored | None) -> bytes:
    if isinstance(system, Dispersed):
        assert stored is not None
        return system.get(stored)
    return system.get(key)


def _settle(system: System, clouds: Sequence[int]) -> None:
    """Let an earlier operation of DepSky end, outside of what is measured: it is not ours to slow it down."""
    if isinstance(system, DepSky):
        system.settle(clouds)


def _check(found: bytes, data: bytes, system: str) -> None:
    if found != data:
        raise SystemExit(f"what was read is not what was written: {system}")


def latency(wan: Wan, rounds: int, console: Console) -> Samples:
    """PUT and GET of new objects, all systems in turns."""
    with ExitStack() as stack:
        singles, lean = (
            {one.distance.name: stack.enter_context(closing(_Single(one, asks=asks))) for one in wan.clouds}
            for asks in (True, False)
        )
        systems: dict[str, System] = {**singles, **stack.enter_context(_systems(wan))}
        return _in_turns(systems, lean, range(len(wan.clouds)), rounds, console)


def faces(wan: Wan, rounds: int, console: Console) -> Samples:
    """The same, of ours as packs and as values."""
    with work_folder("clouds-faces") as root, _faces(wan, root) as systems:
        return _in_turns(systems, {}, range(len(wan.clouds)), rounds, console)


def _in_turns(
    systems: Mapping[str, System],
    lean: Mapping[str, System],
    everywhere: Sequence[int],
    rounds: int,
    console: Console,
) -> Samples:
    """*lean*: systems of the same names that put at once. Stops the run when a wrong byte comes back."""
    samples: Samples = {}
    for number in range(-_WARM_UPS, rounds):
        for size, length in _sizes(number).items():
            for name in _turns([*systems], number):
                system, key, data = systems[name], f"{length}-{number}", os.urandom(length)
                begun = time.perf_counter()
                stored = _put(system, key, data)
                put = time.perf_counter() - begun
                _settle(system, everywhere)
                begun = time.perf_counter()
                found = _get(system, key, stored)
                get = time.perf_counter() - begun
                _settle(system, everywhere)
                _check(found, data, name)
                at_once = _seconds(partial(_put, lean[name], key, data)) if name in lean else 0
                if number >= 0:
                    _add(samples, f"PUT {size}", name, put)
                    _add(samples, f"GET {size}", name, get)
                    if at_once:
                        _add(samples, f"PUT {size}{AT_ONCE}", name, at_once)
        console.print(f"[dim]{_round(number, rounds)}[/]")
    return samples


def _round(number: int, rounds: int) -> str:
    return f"round {number + 1} of {rounds}" if number >= 0 else "warming up"


def _strike(wan: Wan, fault: str, liars: Sequence[FaultyStore], stack: ExitStack) -> None:
    """From now on the first cloud is faulty, until the block ends."""
    if fault == TAMPERING:
        for liar in liars:
            liar.faults = [Fault("corrupt", operations=READS)]
    else:
        wan.lines.stall(0, stalled=True)
        stack.callback(lambda: wan.lines.stall(0, stalled=False))


def with_fault(wan: Wan, fault: str, rounds: int, console: Console) -> Samples:
    """GET of objects that were written before the first cloud began to tamper, or went silent; a new one in
    each round. All know all latencies by then.

    The engine chooses the clouds of an object by its latest latencies. So one object would tell little.
    """
    samples: Samples = {}
    honest = range(1, len(wan.clouds))
    with ExitStack() as stack:
        singles = {one.distance.name: stack.enter_context(closing(_Single(one))) for one in wan.clouds[1:3]}
        liars: list[FaultyStore] = []
        systems: dict[str, System] = {**singles, **stack.enter_context(_systems(wan, liars))}
        written = _write(systems, rounds, range(len(wan.clouds)))
        _strike(wan, fault, liars, stack)
        for number in range(rounds):
            for size in _sizes(number):
                for name in _turns([*systems], number):
                    one = written[size, number]
                    begun = time.perf_counter()
                    found = _get(systems[name], one.key, one.stored[name])
                    taken = time.perf_counter() - begun
                    _settle(systems[name], honest)
                    _check(found, one.data, name)
                    _add(samples, f"GET {size}", name, taken)
            console.print(f"[dim]{fault}, {_round(number, rounds)}[/]")
    return samples


class _Written(NamedTuple):
    """An object that every system has: under `key`, or for ours at `stored[system]`."""

    key: str
    data: bytes
    stored: Mapping[str, Stored | None]


def _write(
    systems: Mapping[str, System], rounds: int, clouds: Sequence[int]
) -> dict[tuple[str, int], _Written]:
    """Objects of each size with every system, one for each round, after some rounds of practice."""
    written = {}
    for number in range(-_WARM_UPS, rounds):
        for size, length in _sizes(number).items():
            data, key = os.urandom(length), f"{length}-{number}"
            stored = {}
            for name, system in systems.items():
                stored[name] = _put(system, key, data)
                _settle(system, clouds)
                if number < 0 or isinstance(system, Dispersed):
                    _get(system, key, stored[name])
                    _settle(system, clouds)
            if number >= 0:
                written[size, number] = _Written(key, data, stored)
    return written


def _first_that_asks(system: Dispersed, cloud: FaultyStore, written: Sequence[tuple[bytes, Stored]]) -> float:
    """Seconds of the first read that asks a cloud: not every object is there, or is read from there."""
    for data, stored in written:
        calls = len(cloud.calls)
        begun = time.perf_counter()
        found = system.get(stored)
        taken = time.perf_counter() - begun
        _check(found, data, "ours")
        if any(call.operation in READS for call in cloud.calls[calls:]):
            return taken
    raise SystemExit("no read has asked the faulty cloud")


def finding(wan: Wan, console: Console) -> Samples:
    """The read that finds a fault, of ours: "FAULT, GET SIZE" -> system -> seconds."""
    samples: Samples = {}
    names = [one.distance.name for one in wan.clouds]
    for fault in (TAMPERING, STALLING):
        for size, length in SIZES.items():
            for name, k in CODES.items():
                first, *others = _connected(wan)
                liar = FaultyStore(first, _SEED)
                with ExitStack() as stack:
                    system = stack.enter_context(closing(Dispersed(names, [liar, *others], F, k)))
                    written = []
                    for _ in range(2 * _WARM_UPS):
                        data = os.urandom(length)
                        written.append((data, system.put(data)))
                        system.get(written[-1][1])
                    _strike(wan, fault, [liar], stack)
                    taken = _first_that_asks(system, liar, written[_WARM_UPS:])
                _add(samples, f"{fault}, GET {size}", name, taken)
                console.print(f"[dim]{fault}, {size}, {name}: {1000 * taken:.0f} ms[/]")
    return samples


_PARTS: Final[dict[str, Callable[[Wan, int, Console], Samples]]] = {
    "latency": latency,
    "faces": faces,
    "home": latency,
    TAMPERING: lambda wan, rounds, console: with_fault(wan, TAMPERING, rounds, console),
    STALLING: lambda wan, rounds, console: with_fault(wan, STALLING, rounds, console),
    "finding": lambda wan, _rounds, console: finding(wan, console),
}


def _start(part: str, rounds: int, console: Console) -> dict[str, Any]:
    """One start of a part, and in which circumstances."""
    facts = machine()
    lines = _AT_HOME if part == "home" else _DISTANCES
    with work_folder("clouds") as root, far_clouds(root, lines) as wan:
        samples = _PARTS[part](wan, rounds, console)
    return {"load": facts["load_average"], "date": facts["date"], "samples": samples}


def _former(folder: Path) -> Starts:
    """What was measured before."""
    path = folder / "clouds.json"
    return dict(json.loads(path.read_text()).get("starts", {})) if path.exists() else {}


def main(argv: list[str] | None = None) -> None:
    """Measure, print, and write clouds.json, .md and plots to benchmarks/results."""
    parser = options_of("clouds", __doc__, draws=True)
    parser.add_argument("--only", action="append", choices=[*_PARTS], help="a part; may be given again")
    parser.add_argument("--rounds", type=int, default=10, metavar="N", help="rounds (default 10)")
    parser.add_argument("--starts", type=int, default=3, metavar="N", help="fresh starts (default 3)")
    parser.add_argument("--add", action="store_true", help="keep the starts that were measured before")
    options = parser.parse_args(argv)
    if options.starts < 1:
        parser.error("at least one start")
    if options.rounds < _LARGE + 1:
        parser.error(
            f"at least {_LARGE + 1} rounds: of these two have 10 MB, and the first is not like others"
        )
    if options.draw:
        draw_again("clouds", options.results, draw_clouds)
        return
    console = terminal()
    starts = _former(options.results) if options.add else {}
    for number in range(options.starts):
        for part in options.only or _PARTS:
            console.print(f"Start {number + 1} of {options.starts}: {part}")
            starts.setdefault(part, []).append(_start(part, options.rounds, console))
    publish(clouds_page(starts, _DISTANCES, _HOME, _WARM_UPS), options.results, draw_clouds)


if __name__ == "__main__":
    main()
