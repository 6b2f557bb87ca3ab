"""`python -m benchmarks.lives`: what many devices of a volume ask of clouds and of each other.

The shipper, relayer, puller and collector of each device are the product's, the clouds are three in memory,
and time is virtual (`tests.simulation`). Every device writes a file every ten minutes. One in five sleeps
meanwhile, and then catches up. Afterwards all rest, and a pack goes that nobody needs any more; one more time
while a device sleeps. Figures are counted, and multiplied up to a day where they say so.
"""

from __future__ import annotations

import heapq
import json
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Collection, Container, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import count
from pathlib import Path
from random import Random
from typing import Final, TypeVar

from benchmarks.pages import Page, Section, options_of, publish
from benchmarks.report import significant, terminal
from hybrisfs.dispersal.probe import Changed, Listing, Look, Polled
from hybrisfs.environment import Environment, Limits
from hybrisfs.gc.limits import GcLimits
from sync.follow import SHORTEST_PAUSE
from sync.head import decode_head
from tests.gc.support import Collecting
from tests.merge.fleet import Fleet
from tests.simulation.cloud import Clouds
from tests.simulation.courier import Courier
from tests.simulation.determinism import Clocks, environments
from tests.tree.rig import VOLUME

__all__ = ["Life", "live"]

T = TypeVar("T")

_COUNTED: Final = ("gets", "puts", "down", "up", "linked")
_F: Final = 1
_COPIES: Final = 2
_DAY: Final = 86_400.0
_WRITE_EVERY: Final = 600.0
_SHIP_EVERY: Final = 20.0  # between rounds of the shipper; linked devices hear at least so often
_BYTES: Final = 4096
_ASLEEP: Final = 5  # one in so many
_SETTLE: Final = 300.0
_STEADY: Final = 600.0
_QUIET: Final = 3600.0  # until rounds are rare
_IDLE: Final = 3600.0
_NIGHT: Final = 8 * 3600.0
_TURN: Final = 60.0  # of the collectors
_MOST_COLLECTING: Final = 20  # devices: with more, a night takes too long
_SHARES: Final = (0.5, 0.9, 1.0)  # of the changes: the median, and so on
_LIVES: Final = ((5, False), (20, False), (50, False), (5, True), (20, True))


@dataclass(frozen=True)
class Traffic:
    """Of one device, on average, in a day: requests to all clouds, and bytes."""

    gets: float
    puts: float
    down: float
    up: float
    linked: float
    """Bytes to other devices."""
    cpu: float
    """Seconds, with the clouds and the clock of the simulation."""


@dataclass(frozen=True)
class Life:
    """Of a volume of so many devices."""

    devices: int
    linked: bool
    writing: Traffic
    idle: Traffic
    catching_up: Traffic
    """Of one device that has slept while the others wrote: not in a day, but in all."""
    delays: tuple[float, ...]
    """Seconds until a device that is awake has the change of another, through the clouds: the median, of nine
    in ten, the longest; none where all are linked."""
    memory: float
    """Bytes for each device, of process and databases."""
    consent: float | None
    """Seconds until a pack that nobody needs is gone; of not too many devices that are not
    linked."""
    consent_asleep: float | None
    """The same, while one device sleeps for a night."""


@dataclass
class _Awaited:
    """An update, and the devices that lack it."""

    author: bytes
    clock: int
    at: float
    by: set[int]


class _Counted(Clouds):
    """Clouds that count."""

    def __init__(self) -> None:
        super().__init__(Random(1), count=2 * _F + 1, f=_F, copies=_COPIES)
        self.liars = frozenset()
        self.count = Counter[str]()

    def _poll(self, look: Look, limit: int) -> Polled:
        found = super()._poll(look, limit)
        self.count["gets"] += 1
        self.count["down"] += len(found.data) if isinstance(found, Changed) else 0
        return found

    def _put(self, name: str, data: bytes, to: Sequence[int], least: int) -> tuple[int, ...]:
        self.count["puts"] += len(to)
        self.count["up"] += len(to) * len(data)
        return super()._put(name, data, to, least)

    def get_object(self, name: str, limit: int, verify: Callable[[bytes], T]) -> T:
        def counted(data: bytes) -> T:
            self.count["gets"] += 1
            self.count["down"] += len(data)
            return verify(data)

        return super().get_object(name, limit, counted)

    def list_objects(self, prefix: str, *, most: int, timeout: float) -> Listing:
        self.count["lists"] += len(self.all)
        return super().list_objects(prefix, most=most, timeout=timeout)

    def put_everywhere(self, name: str, data: bytes, clouds: Container[int] | None = None) -> tuple[int, ...]:
        """As `Clouds`, but that only the newest version is kept, as there are many."""
        for cloud in self.all:
            cloud.delete(name)
        return super().put_everywhere(name, data, None)


class _Fleet:
    """The devices, what brings their updates, and the time."""

    def __init__(self, devices: int, *, linked: bool) -> None:
        self.clocks = Clocks()
        self.clouds = _Counted()
        given = environments(0, self.clocks)

        def environment(number: int) -> Environment:
            return replace(given(number), limits=Limits(GcLimits(least_dead=1)))

        self.fleet = Fleet(devices, environment=environment)
        for device in self.fleet.devices:
            device.rig.tx.versions.keeps = False  # else what nobody sees is needed for its days
        self.linked = linked
        self.asleep: set[int] = set()
        self.cpu = 0.0
        self.couriers = [Courier(one.rig, self.clouds) for one in self.fleet.devices]
        for number, courier in enumerate(self.couriers):
            courier.told.listen(partial(self._told, number))
        self._random = Random(2)
        self._order = count()
        self._events: list[tuple[float, int, int, Callable[[int], float]]] = []
        self._written = Counter[int]()
        self._due = [0.0] * devices  # when a device looks at the clouds
        self._awaited: list[_Awaited] = []
        self.delays: list[float] = []
        """Seconds until a device that is awake has a change of another one."""
        for number in range(devices):
            self._at(self._random.uniform(0, 2), number, self._pull)
            self._at(self._random.uniform(0, _SHIP_EVERY), number, self._ship)
            self._at(self._random.uniform(0, _WRITE_EVERY), number, self._write)
        self.writes = True

    def _at(self, due: float, number: int, action: Callable[[int], float]) -> None:
        heapq.heappush(self._events, (due, next(self._order), number, action))

    def run(self, seconds: float) -> None:
        """Let so much time pass."""
        end = self.clocks.passed + seconds
        while self._events[0][0] < end:
            due, _, number, action = heapq.heappop(self._events)
            self.clocks.pass_by(max(0.0, due - self.clocks.passed))
            begun = time.process_time()
            after = _SHIP_EVERY if number in self.asleep else action(number)
            self.cpu += time.process_time() - begun
            self._at(due + after, number, action)
        self.clocks.pass_by(end - self.clocks.passed)

    def _pull(self, number: int) -> float:
        """A device sees every two seconds whether what it did itself has quickened its pace."""
        if self.clocks.passed >= self._due[number]:
            self._due[number] = self.clocks.passed + self.couriers[number].pull()
            self._note_delays(number)
        return SHORTEST_PAUSE

    def _note_delays(self, number: int) -> None:
        vector = self.fleet[number].rig.updates.state.vector
        for one in self._awaited:
            if number in one.by and vector[one.author] >= one.clock:
                one.by.remove(number)
                self.delays.append(self.clocks.passed - one.at)
        self._awaited = [one for one in self._awaited if one.by]

    def _ship(self, number: int) -> float:
        self.couriers[number].ship()
        return _SHIP_EVERY

    def _write(self, number: int) -> float:
        if self.writes:
            self._written[number] += 1
            device = self.fleet[number]
            self.write(number, f"{device.name} {self._written[number] % 3}")
        return _WRITE_EVERY

    def write(self, number: int, path: str) -> None:
        """The device writes a file, and brings it to the clouds and to those that are linked."""
        device = self.fleet[number]
        rows, packs = device.rig.db.rows, self.fleet.clouds.packs
        (last,) = rows.execute("SELECT ifnull(max(number), 0) FROM log").fetchone()
        before = set(packs)
        device.write(path, self._random.randbytes(_BYTES))
        device.sign()
        for pack in packs.keys() - before:
            self.clouds.count["puts"] += _COPIES
            self.clouds.count["up"] += _COPIES * len(packs[pack].shares[0])
        self.couriers[number].flush()
        self._due[number] = 0.0
        tip = device.rig.updates.own_tip()
        if tip is not None and not self.linked:
            by = set(range(len(self.couriers))) - self.asleep - {number}
            self._awaited.append(_Awaited(device.key.device_id, tip.clock, self.clocks.passed, by))
        signed = rows.execute("SELECT bytes FROM log WHERE number > ? ORDER BY number", (last,)).fetchall()
        for other in self._others(number):
            self.clouds.count["linked"] += sum(len(update) for (update,) in signed)
            self.fleet[other].receive([update for (update,) in signed])

    def _others(self, number: int) -> Collection[int]:
        if not self.linked:
            return ()
        return [one for one in range(len(self.couriers)) if one != number and one not in self.asleep]

    def _told(self, number: int, sealed: bytes) -> None:
        key = self.fleet[number].key
        for other in self._others(number):
            self.clouds.count["linked"] += len(sealed)
            head = decode_head(sealed, VOLUME, key.public, self.fleet[other].rig.ring.segments)
            self.couriers[other].hear(key.device_id, head)

    def take(self, seconds: float) -> Traffic:
        """What there was since the last time, for each device that is awake, as if *seconds* were a day."""
        found, self.clouds.count = self.clouds.count, Counter()
        cpu, self.cpu = self.cpu, 0.0
        share = _DAY / seconds / (len(self.couriers) - len(self.asleep))
        gets, puts, down, up, linked = (found[name] * share for name in _COUNTED)
        return Traffic(gets, puts, down, up, linked, cpu * share)


def _until_gone(fleet: _Fleet, sleeper: int | None) -> float:
    """A device replaces a file and proposes to delete the pack of before. Seconds until it is gone."""
    devices = fleet.fleet.devices
    fleet.write(0, "needless")
    packs = fleet.fleet.clouds.packs
    *_, pack = packs
    devices[0].remove("needless")
    devices[0].sign()
    begun = fleet.clocks.passed
    if not Collecting(devices[0]).look():
        raise SystemExit("each pack is still needed")
    if sleeper is not None:
        fleet.asleep.add(sleeper)
    while pack in packs:
        if fleet.clocks.passed - begun >= _NIGHT:
            fleet.asleep.clear()
        if fleet.clocks.passed - begun > 2 * _NIGHT:
            raise SystemExit("the devices do not agree")
        for number, device in enumerate(devices):
            if number not in fleet.asleep:
                collecting = Collecting(device)
                if collecting.step():
                    fleet.couriers[number].flush()
                collecting.dispose()
        fleet.run(_TURN)
    return fleet.clocks.passed - begun


def live(devices: int, *, linked: bool, steady: float = _STEADY) -> Life:
    """Go through the life of so many devices; *steady*: seconds in which what they write is counted."""
    before = _memory()
    fleet = _Fleet(devices, linked=linked)
    try:
        sleepers = set(range(devices - devices // _ASLEEP, devices))
        fleet.run(_SETTLE)
        fleet.asleep = set(sleepers)
        fleet.take(1)
        fleet.delays.clear()
        fleet.run(steady)
        writing = fleet.take(steady)
        delays = sorted(fleet.delays)
        fleet.writes = False
        fleet.run(_SHIP_EVERY)
        catching_up = _catch_up(fleet, min(sleepers))
        fleet.asleep.clear()
        fleet.run(_QUIET)
        fleet.take(1)
        fleet.run(_IDLE)
        idle = fleet.take(_IDLE)
        memory = (_memory() - before) / devices
        collects = not linked and devices <= _MOST_COLLECTING
        consent = _until_gone(fleet, None) if collects else None
        consent_asleep = _until_gone(fleet, devices - 1) if collects else None
        shares = tuple(delays[int(share * (len(delays) - 1))] for share in _SHARES if delays)
        return Life(devices, linked, writing, idle, catching_up, shares, memory, consent, consent_asleep)
    finally:
        fleet.fleet.discard()


def _catch_up(fleet: _Fleet, number: int) -> Traffic:
    """A device wakes, and takes from the clouds what it has missed."""
    fleet.take(1)
    begun = time.process_time()
    courier, knows = fleet.couriers[number], fleet.fleet[0].knows()
    for _ in range(100):
        courier.look()
        if knows <= fleet.fleet[number].knows():
            break
        fleet.clocks.pass_by(2.0)
    else:
        raise SystemExit("a device does not catch up")
    fleet.cpu = time.process_time() - begun
    return fleet.take(_DAY / (len(fleet.couriers) - len(fleet.asleep)))


def _memory() -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) << 10
    raise LookupError("VmRSS")


def _live_apart(devices: int, *, linked: bool) -> Life:
    command = [sys.executable, "-m", "benchmarks.lives", "--only", str(devices), *["--linked"] * linked]
    found = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    for name in ("writing", "idle", "catching_up"):
        found[name] = Traffic(**found[name])
    return Life(**found)


_OF_TRAFFIC: Final = (
    ("GETs", "gets", 1.0),
    ("PUTs", "puts", 1.0),
    ("MB from the clouds", "down", 1e6),
    ("MB to the clouds", "up", 1e6),
    ("MB to other devices", "linked", 1e6),
    ("CPU s", "cpu", 1.0),
)


def _section(title: str, lives: Sequence[Life], name: str) -> Section:
    return Section(
        title,
        ["", *(f"{one.devices}{', linked' if one.linked else ''}" for one in lives)],
        [
            [label, *(significant(getattr(getattr(one, name), field) / unit) for one in lives)]
            for label, field, unit in _OF_TRAFFIC
        ],
    )


def _minutes(seconds: float | None) -> str:
    return "" if seconds is None else significant(seconds / 60)


def _page(lives: Sequence[Life]) -> Page:
    alone = [one for one in lives if not one.linked]
    delays = Section(
        "Until a change is there, through the clouds",
        ["", *(str(one.devices) for one in alone)],
        [
            [label, *(significant(one.delays[place]) for one in alone)]
            for place, label in enumerate(("median, s", "nine in ten, s", "the longest, s"))
        ],
    )
    rest = Section(
        "Memory, and consent to deletion",
        ["", *(str(one.devices) for one in alone)],
        [
            ["memory of a device, MB", *(significant(one.memory / 1e6) for one in alone)],
            ["until a pack is gone, minutes", *(_minutes(one.consent) for one in alone)],
            [
                f"... while one sleeps for {_NIGHT / 3600:g} hours",
                *(_minutes(one.consent_asleep) for one in alone),
            ],
        ],
    )
    notes = [
        f"Simulated: three clouds in memory, f={_F}, time virtual, the product's shipper, relayer, puller "
        f"and collector. Each device writes {_BYTES} bytes every {_WRITE_EVERY / 60:g} minutes, but one in "
        f"{_ASLEEP} sleeps. Counted for {_STEADY / 60:g} minutes after {_SETTLE / 60:g}, at rest for "
        f"{_IDLE / 3600:g} hour after {_QUIET / 3600:g}, and multiplied up to a day. A look that finds "
        "nothing new is a GET. Contents are not fetched; checkpoints, check-ups and signposts are not in it. "
        "Linked: "
        "each with all. CPU has the simulation's clouds in it. Collectors take a turn each minute, the real "
        "ones every 15 s; memory is without the program's own."
    ]
    sections = [
        _section("A day of a device that writes, as others do", lives, "writing"),
        delays,
        _section("A day of a device at rest", lives, "idle"),
        _section("A device that has slept catches up", lives, "catching_up"),
        rest,
    ]
    return Page("lives", sections, [], notes, {"lives": [asdict(one) for one in lives]})


def main(argv: list[str] | None = None) -> None:
    """Measure, print, and write lives.json and .md to benchmarks/results."""
    parser = options_of("lives", __doc__)
    parser.add_argument("--only", type=int, metavar="DEVICES", help="print the figures of so many as JSON")
    parser.add_argument("--linked", action="store_true", help="with --only: all are linked with each other")
    options = parser.parse_args(argv)
    if options.only:
        print(json.dumps(asdict(live(options.only, linked=options.linked))))
        return
    console = terminal()
    lives = []
    for devices, linked in _LIVES:
        lives.append(_live_apart(devices, linked=linked))
        console.print(f"[dim]{devices} devices are done[/]")
    page = _page(lives)
    publish(page, options.results)


if __name__ == "__main__":
    main()
