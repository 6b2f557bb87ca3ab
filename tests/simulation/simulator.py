"""The scheduler: everything that happens, happens at a virtual time that follows from the seed alone."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from itertools import combinations, count
from random import Random
from typing import Final

from tests.merge.fleet import member_of
from tests.merge.world import World
from tests.simulation.badness import Badness
from tests.simulation.cloud import Clouds, Mood
from tests.simulation.containers import Containers
from tests.simulation.courier import Courier
from tests.simulation.determinism import Clocks, environments
from tests.simulation.history import decoded, operations
from tests.simulation.liar import Liar
from tests.simulation.watchdog import Watchdog
from tests.sync.fjc import Operation

__all__ = ["Simulation"]

_MOST_DEVICES: Final = 8
_F: Final = 1
_HOUR: Final = 3600.0
_DAY: Final = 24 * _HOUR
_YEARS: Final = 20 * 365 * _DAY
_PROGRAMS: Final = {
    "write": 6, "write_same": 2, "append": 14, "mkdir": 3, "symlink": 1, "remove": 4, "rename": 6, "link": 2,
    "chmod": 1, "xattr": 1, "open_file": 6, "read_open": 3, "write_open": 8, "sync_open": 3, "close_file": 2,
    "look": 3, "save": 4, "unaware": 4,
}  # fmt: skip
_LABELS: Final = 0.3  # of programs: after so many of them one labels something, or takes a label away
_RULES: Final = 0.05  # of programs in some lives: after so many of them somebody changes an ignore rule
_KEYS: Final = 0.2  # of programs: after so many of them one writes keys
# Mean virtual seconds between two events of a kind, for each device, link or cloud.
_PROGRAM_EVERY: Final = 10.0
_BURST_EVERY: Final = 30.0
_SIGN_EVERY: Final = 12.0
_SHIP_EVERY: Final = 15.0
_PULL_EVERY: Final = 12.0
_COMMIT_EVERY: Final = 20.0
_TALK_EVERY: Final = 60.0
_LINK_CHANGES_EVERY: Final = 120.0
_MOOD_CHANGES_EVERY: Final = 80.0
_LIE_EVERY: Final = 20.0
_REST_ROUNDS: Final = 6
_REST_SECONDS: Final = 30.0
# For each device, in a life of whatever length: how often something happens that is rare.
_CRASHES: Final = 0.4
_RESTARTS: Final = 0.2
_BACKUPS: Final = 0.5
_RESTORES: Final = 0.5
_MOST_RESTORED: Final = 3  # times; others need not take in more branches of a device
_CLOCK_JUMPS: Final = 0.2
_SLEEPS: Final = 0.15
_RESTS: Final = 1.25  # when all stand still for a moment, as checkpoints want it; for all together


class Simulation:
    """One life of a volume: two to eight devices, links that come and go, clouds and members that lie.

    `run` goes through all of it. `trace` tells what was done, in order.
    """

    def __init__(self, seed: int, clocks: Clocks, kinds: Sequence[str] = ()) -> None:
        """*kinds*: what bad members forge, see `Turncoat`."""
        self.random = Random(seed)
        self._labelling = Random(f"label {seed}")
        self._keying = Random(f"keys {seed}")
        self._ruling = Random(f"rules {seed}")
        self._has_rules = seed % 3 == 0
        self.count = min(2 + int(self.random.expovariate(1.1)), _MOST_DEVICES)
        self.seconds = min(20.0 + self.random.expovariate(1 / 40.0), 600.0)
        self.clocks = clocks
        self.trace: list[str] = []
        self.lives: dict[str, list[Operation]] = {}  # of devices whose daemon has ended
        self.restored: set[int] = set()
        self._times_restored = Counter[int]()
        self.bodies: dict[bytes, bytes] = {}  # of all updates that may be known through checkpoints only
        self.clouds = Clouds(self.random, count=2 * _F + 1, f=_F, copies=_F + 1)
        self.liar = self._invite_liar() if self.random.random() < 0.35 else None
        guests = [self.liar.member] if self.liar else []
        self.world = World(self.count, guests, environments(seed, clocks))
        self.badness = Badness(self, seed, kinds)
        self.containers = Containers(self, seed)
        self.watchdog = Watchdog(lambda: [one.rig.db.rows._connection for one in self.world.fleet.devices])
        self._order = count()
        self._begun = self.clocks.passed
        self._events: list[tuple[float, int, float, Callable[[], None]]] = []
        self._links = dict.fromkeys(combinations(range(self.count), 2), True)
        self._couriers: dict[int, Courier] = {}
        self._plan()
        for device in range(self.count):
            if self.random.random() < 0.2:
                self._back_up(device)

    @property
    def honest(self) -> list[int]:
        """The numbers of the devices that are not bad."""
        return [number for number in range(self.count) if number not in self.world.bad]

    @property
    def faulty(self) -> set[bytes]:
        """The ids of those who lie, or did not keep to what is right."""
        bad = {self.world.fleet[number].key.device_id for number in self.world.bad}
        return bad | ({self.liar.id} if self.liar is not None else set())

    def _invite_liar(self) -> Liar:
        return Liar(Random(self.random.random()), [member_of(number) for number in range(self.count)])

    def courier(self, device: int) -> Courier:
        """What the device's daemon has for the clouds; another one after each restart."""
        rig = self.world.fleet[device].rig
        found = self._couriers.get(device)
        if found is None or found.rig is not rig:
            found = self._couriers[device] = Courier(rig, self.clouds)
        return found

    # -- what will happen ------------------------------------------------------------------------

    def _plan(self) -> None:
        for device in range(self.count):
            self._plan_device(device)
        for pair in self._links:
            self._repeat(_TALK_EVERY, partial(self._talk, pair))
            self._repeat(_LINK_CHANGES_EVERY, partial(self._change_link, pair))
        for number in self.clouds.numbers:
            self._repeat(_MOOD_CHANGES_EVERY, partial(self._change_mood, number))
        self._repeat(self.seconds / _RESTS, self._rest)
        if self.liar is not None:
            self._repeat(_LIE_EVERY, self._lie)
        for every, action in self.badness.plan():
            self._repeat(every, action)

    def _plan_device(self, device: int) -> None:
        for every, action in (
            (_PROGRAM_EVERY, self._program),
            (_BURST_EVERY, self._burst),
            (_SIGN_EVERY, partial(self.sign, everything=False)),
            (_COMMIT_EVERY, self._commit),
            (_SHIP_EVERY, self.ship),
            (_PULL_EVERY, self.pull),
            (self.seconds / _CRASHES, self._crash),
            (self.seconds / _RESTARTS, self._reopen),
            (self.seconds / _BACKUPS, self._back_up),
            (self.seconds / _RESTORES, self._restore),
            (self.seconds / _CLOCK_JUMPS, self._jump),
            (self.seconds / _SLEEPS, self._sleep),
        ):
            self._repeat(every, partial(self._unless_bad, device, action))

    def _unless_bad(self, device: int, action: Callable[[int], None]) -> None:
        if device not in self.world.bad:
            action(device)

    def _repeat(self, every: float, action: Callable[[], None], since: float = 0.0) -> None:
        due = since + self.random.expovariate(1 / every)
        heapq.heappush(self._events, (due, next(self._order), every, action))

    def run(self) -> None:
        """Let it live; what is there in the end is for `healing` to judge."""
        now = 0.0
        while self._events[0][0] < self.seconds:
            due, _, every, action = heapq.heappop(self._events)
            self.clocks.pass_by(due - now)
            now = due
            self.containers.turn(now)
            with self.watchdog.watch(str(action)):
                self.badness.turn(now)
                action()
            self._repeat(every, action, now)

    def end(self) -> None:
        self.world.end()

    def note(self, what: str) -> None:
        self.trace.append(f"{self.clocks.passed - self._begun:10.2f} {what}")

    # -- programs --------------------------------------------------------------------------------

    def _burst(self, device: int) -> None:
        """Programs do much within no time, with rounds of the publisher in between."""
        for _ in range(self.random.randrange(3, 9)):
            self._program(device)
            if self.random.random() < 0.25:
                self.sign(device, everything=False)

    def _program(self, device: int) -> None:
        random = self.random
        name = random.choices(list(_PROGRAMS), list(_PROGRAMS.values()))[0]
        pick, other, few = random.randrange(30), random.randrange(30), random.randrange(4)
        arguments: tuple[int, ...]
        if name in ("read_open", "write_open", "sync_open", "close_file"):
            arguments = (pick,)
        elif name == "look":
            arguments = (device,)
        elif name == "write":
            arguments = (device, pick, few, random.choice((0, 0, 0, 1, 9, 14)))
        elif name in ("write_same", "symlink"):
            arguments = (device, pick, few, other % 2)
        elif name in ("rename", "link"):
            arguments = (device, pick, other, few)
        elif name in ("mkdir", "chmod", "xattr", "save", "unaware"):
            arguments = (device, pick, few)
        else:
            arguments = (device, pick)
        self._do(name, getattr(self.world, name), *arguments)
        if self._labelling.random() < _LABELS:
            self._label(device)
        if self._keying.random() < _KEYS:
            self._write_keys(device)
        if self._has_rules and self._ruling.random() < _RULES:
            self._do(
                "ignore", self.world.ignore, device, self._ruling.randrange(3), self._ruling.randrange(2)
            )

    def _write_keys(self, device: int) -> None:
        """Write or delete some of a few keys, so that devices meet, by chances of their own."""
        picks = self._keying.randrange(4), self._keying.randrange(4)
        if self._keying.random() < 0.3:
            self._do("delete", self.world.delete, device, picks[0])
        else:
            self._do("put", self.world.put, device, *picks)

    def _label(self, device: int) -> None:
        """Change the labels of one of a few nodes, so that devices meet, by chances of their own."""
        picks = self._labelling.randrange(3), self._labelling.randrange(9)
        match self._labelling.randrange(8):
            case 0:
                self._do("unlabel", self.world.unlabel, device, *picks)
            case 1 | 2 | 3 | 4:  # one takes away what another one wants
                self._do("unlabel", self.world.unlabel, self._labelling.choice(self.honest), *picks)
                self._do("label", self.world.label, device, *picks)
            case _:
                self._do("label", self.world.label, device, *picks)

    def _do(self, name: str, action: Callable[..., None], *arguments: int) -> None:
        self.note(f"{name}{arguments}")
        action(*arguments)

    # -- the daemon ------------------------------------------------------------------------------

    def sign(self, device: int, *, everything: bool = True) -> None:
        """Rounds of the publisher, which may hold back open files unless *everything* is wanted."""
        self.badness.act_on_removals(device)
        self._do("sign", partial(self.world.sign, everything=everything), device)

    def _commit(self, device: int) -> None:
        self._do("commit", self.world.commit, device)

    def ship(self, device: int, *, flush: bool = False) -> None:
        self.note(f"ship({device}) {self._weather()}")
        courier = self.courier(device)
        courier.flush() if flush else courier.ship()

    def look_for_lacking(self, device: int) -> None:
        self.note(f"look for lacking({device})")
        self.courier(device).look_for_lacking()

    def pull(self, device: int, *, everything: bool = False) -> None:
        self.note(f"pull({device}) {self._weather()}")
        courier = self.courier(device)
        courier.look() if everything else courier.pull()
        self.world.received(device)

    def look_at_checkpoints(self, device: int) -> None:
        self.note(f"checkpoints({device})")
        self.remember_bodies()
        self.courier(device).look_at_checkpoints()
        self.world.received(device)

    def _take_over(self, device: int, other: int) -> None:
        """A device asks another one for its checkpoint, over a link."""
        self.note(f"{device} asks {other} for its checkpoint")
        self.remember_bodies()
        asked = self.courier(other)  # it may begin now: by its own clock
        self.courier(device).take_over(asked)
        self.world.received(device)

    def remember_bodies(self) -> None:
        for device in self.world.fleet.devices:
            self.bodies.update((decoded(data).hash, data) for data in device.log())

    def _rest(self) -> None:
        """Programs do nothing for a while, mostly in fair weather, so that all come to stand at one vector.
        Two such times make two checkpoints, and devices drop what the first one covers. Afterwards a device
        may be set back, and take in a checkpoint."""
        self.note("all rest")
        if self.random.random() < 0.7:
            self.clouds.set_moods(
                Mood.WELL, [number for number in self.clouds.numbers if number not in self.clouds.liars]
            )
        self._stand_still()
        if self.random.random() < 0.5:
            self._program(self.random.choice(self.honest))
            self._stand_still()
        if len(self.honest) < 2:
            return
        device, other = self.random.sample(self.honest, 2)
        if self.world.has_backup(device) and self.random.random() < 0.5:
            self._restore(device)
            if self.random.random() < 0.3:
                self.sign(device)  # so that it forks
            if self.random.random() < 0.8:
                self._take_over(device, other)

    def _stand_still(self) -> None:
        for _ in range(_REST_ROUNDS):
            for device in self.honest:
                self.sign(device)
                self.ship(device, flush=True)
                self.pull(device, everything=True)
                self.look_at_checkpoints(device)
            self.clocks.pass_by(_REST_SECONDS)

    def _weather(self) -> str:
        return ", ".join(cloud.mood.value for cloud in self.clouds.all)

    def send(self, sender: int, receiver: int, number: int = 0, seed: int = 0) -> None:
        self.world.commit(sender)
        if self.world.fleet[sender].bare() - self.world.fleet[receiver].knows():
            self._take_over(receiver, sender)
        self._do("send", self.world.send, sender, receiver, number, seed)

    def _talk(self, pair: tuple[int, int]) -> None:
        if not self._links[pair]:
            return
        if not self.world.bad.isdisjoint(pair):
            self.badness.talk(pair)
            return
        for sender, receiver in (pair, pair[::-1]):
            seed = self.random.choice((0, 0, self.random.randrange(1, 1000)))
            self.send(sender, receiver, self.random.randrange(9), seed)

    def _change_link(self, pair: tuple[int, int]) -> None:
        self._links[pair] = not self._links[pair]
        self.note(f"link {pair} {'up' if self._links[pair] else 'down'}")

    def _change_mood(self, number: int) -> None:
        self.clouds.change_mood(number)
        self.note(f"clouds: {self._weather()}")

    # -- what befalls a device -------------------------------------------------------------------

    def _crash(self, device: int) -> None:
        self._remember_life(device)
        self._do("crash", self.world.crash, device)

    def _reopen(self, device: int) -> None:
        self._do("reopen", self.world.reopen, device)

    def _back_up(self, device: int) -> None:
        self._do("back_up", self.world.back_up, device)

    def _restore(self, device: int) -> None:
        """It goes on from its backup; what it signed since is somewhere, with its chunks, and comes back."""
        others = [other for other in self.honest if other != device]
        if not self.world.has_backup(device) or not others or self.badness.collects:
            return
        if self._times_restored[device] == _MOST_RESTORED:
            return
        self._times_restored[device] += 1
        self.sign(device)
        self.send(device, self.random.choice(others))
        self._remember_life(device)
        self.restored.add(device)
        self._do("restore", self.world.restore, device)

    def _remember_life(self, device: int) -> None:
        self.remember_bodies()
        self.lives[f"{device} until {self.clocks.passed}"] = operations(self.world.fleet[device], self.bodies)

    def _jump(self, device: int) -> None:
        reach = self.random.choice((0.0, 9.0, _DAY, _YEARS))
        ahead = self.random.uniform(-reach, reach)
        self.clocks.set_ahead(device, ahead)
        self.note(f"the clock of {device} is {ahead:.0f} s ahead")

    def _sleep(self, device: int) -> None:
        """The device is suspended for up to a day, in which the others do nothing, asleep or not."""
        seconds = self.random.uniform(_HOUR, _DAY)
        sleepers = [one for one in range(self.count) if one == device or self.random.random() < 0.5]
        for one in sleepers:
            self.clocks.suspend(one, seconds)
        self.clocks.pass_by(seconds)
        self.note(f"{sleepers} have slept for {seconds:.0f} s")

    # -- a member that lies ----------------------------------------------------------------------

    def _lie(self) -> None:
        liar = self.liar
        assert liar is not None
        one, other = self.random.sample(range(self.count), 2)
        if not self.world.bad.isdisjoint((one, other)):
            return
        kind = self.random.randrange(6)
        if kind == 0:
            self.note("the liar forks")
            for receiver, log in zip((one, other), liar.fork(), strict=True):
                self.hand(receiver, log, "the liar")
        elif kind == 1:
            self.note("the liar listens")
            self.world.commit(one)
            liar.hear(self.world.fleet[one].log())
        elif kind == 2:
            self.note("the liar puts a head on the clouds")
            liar.put_head(self.clouds, self.clocks.time_ns())
        else:
            self.hand(one, liar.tell(), "the liar")

    def hand(self, receiver: int, updates: list[bytes], who: str) -> None:
        """Somebody gives a device updates, or what he says are some."""
        known = set(self.world.fleet[receiver].log())
        self.note(f"{who} tells {receiver}")
        self.world.hand(receiver, [update for update in updates if update not in known])
