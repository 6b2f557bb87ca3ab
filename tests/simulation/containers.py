"""Containers on the clouds in the life of a volume: what devices do with their keys, and what must hold.

In some lives there are clouds enough, of which as many lie as the protocol allows. Devices create containers,
write, append, delete, read, list and scrub, by the product's own stores (`key_clouds` says what goes on at
the same time). They are killed in the middle of it, sleep, and lose their lines. It must hold:

* all that was answered is linearizable, each container by itself, and the list of containers;
* nothing fails for another reason than the weather, and nothing at all when the weather is fair;
* what was repaired is right on each cloud that does not lie;
* a device that was removed does not open what is written afterwards.

All of it follows from the seed, by chances of its own. Its clouds are beside those of the log, see `badness`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from math import inf
from random import Random
from threading import Condition as Turn
from typing import TYPE_CHECKING, Final

from hybrisfs.dispersal.errors import CloudsUnavailable, IntegrityError, UnreadableHereError
from hybrisfs.environment import Environment
from hybrisfs.errors import HybrisError
from hybrisfs.kv.cloud_keys import _RefusedError
from hybrisfs.kv.cloud_place import CloudPlace
from hybrisfs.kv.cloud_store import CloudStore
from hybrisfs.kv.errors import NoSuchContainerError
from hybrisfs.quorums.thresholds import PASIS, POWERSTORE
from tests.kv.linearizability import Effect, Operation, is_linearizable, read
from tests.simulation.container_calls import BUSY, KEYS, REGISTRY, Alone, Call, Calls, Daemon
from tests.simulation.key_clouds import Asker, KeyClouds, KilledError
from tests.tree.rig import Rig

if TYPE_CHECKING:
    from tests.simulation.simulator import Simulation

__all__ = ["Containers"]

_LIVES: Final = 0.2  # of all have containers on the clouds
_PLACES: Final = (
    (POWERSTORE, 4, 1, 1), (POWERSTORE, 4, 1, 1), (POWERSTORE, 5, 1, 1), (POWERSTORE, 7, 2, 2),
    (PASIS, 3, 1, 0), (PASIS, 5, 1, 1), (PASIS, 6, 1, 1), (PASIS, 6, 2, 0),
)  # fmt: skip
_OPERATIONS: Final = 22  # of a life on average, however long it is
_NAMES: Final = ("box", "shed")
_KINDS: Final = {
    "get": 4, "put": 4, "put if absent": 2, "put if the same": 4, "put if present": 1, "delete": 4,
    "append": 2, "list": 2, "tput": 1, "clear": 1, "scrub": 0.3, "create": 0.4, "containers": 0.3,
}  # fmt: skip
_ALONE: Final = ("get", "put", "put", "put if absent", "put if the same", "delete", "list", "list")
_MOST_ALONE: Final = 4  # protocols that are under way at a time
_DEEPEST: Final = 3  # calls in each other
_GOES_ON: Final = 0.25  # of the turns of others: a protocol alone takes a step
_CALLS: Final = 0.006  # somebody calls a store
_DIES: Final = 0.0004
_RESTS: Final = 0.03  # of the steps of a protocol alone: nothing of it moves while others do something
_MOST_RESTED: Final = 40  # calls and returns of others
_LOOKS_AGAIN: Final = 0.5  # of all that was read somebody reads at once again
_MEETS: Final = 0.5  # of all calls are about a key, or a container, of a protocol alone
_NOT_KNOWN: Final = "it is not known whether this was written"


class Containers:
    """The containers on the clouds of one simulation; none in most lives."""

    def __init__(self, simulation: Simulation, seed: int) -> None:
        self._simulation = simulation
        self._chance = chance = Random(f"containers {seed}")
        self._exist = chance.random() < _LIVES
        protocol, count, t, b = chance.choice(_PLACES)
        self._place = CloudPlace(protocol, tuple(range(count)), t, b)
        clocks = simulation.clocks
        self._clouds = KeyClouds(chance, count, b, lambda: clocks.passed)
        self._every = simulation.seconds / _OPERATIONS
        self._due = chance.expovariate(1 / self._every)
        self._daemons: dict[int, Daemon] = {}
        self._alone: list[Alone] = []
        self._depth = 0
        self._moment = 0
        self._fair_since: float = inf
        self._calls = Calls(self._clouds, self._place, chance)
        self._histories: dict[str, list[Operation]] = {name: [] for name in (REGISTRY, *_NAMES)}

    # -- what happens ----------------------------------------------------------------------------

    def turn(self, now: float) -> None:
        """What is due by now."""
        while self._exist and self._due <= now:
            self._due += self._chance.expovariate(1 / self._every)
            self._bury()
            if self._chance.random() < 0.3:
                self._clouds.change(self._simulation.count)
            if self._chance.random() < 0.1 and self._simulation.world.bad:
                self._damage()
            if self._chance.random() < 0.3 and len(self._alone) < _MOST_ALONE:
                self._begin_alone()
            for _ in range(self._chance.randrange(30)):
                self._step_alone()
            if self._simulation.honest:
                self._call(self._chance.choice(self._simulation.honest))

    def _daemon(self, number: int) -> Daemon:
        """That of a device; another one after each restart."""
        rig = self._simulation.world.fleet[number].rig
        found = self._daemons.get(number)
        if found is None or found.rig is not rig or found.asker.is_dead:
            asker = Asker(self._clouds, number, self._environment(number), self._others)
            found = self._daemons[number] = Daemon(number, rig, asker, self._open(rig, asker))
        return found

    def _open(self, rig: Rig, asker: Asker) -> CloudStore:
        return CloudStore(self._place, asker, rig.ring.keys.first.values, rig.ring.values, rig.sharing)

    def _environment(self, number: int) -> Environment:
        clouds, chance = self._clouds, self._chance
        return Environment(
            lambda: self._simulation.clocks.day_ns(number),
            clouds.time,
            chance.randbytes,
            wait=_look_once,
            sleep=clouds.sleep,
            boot_time=clouds.time,
        )

    def _bury(self) -> None:
        """Daemons that were killed since, and those of devices that turned bad, go on no more."""
        bad, fleet = self._simulation.world.bad, self._simulation.world.fleet
        for number, daemon in self._daemons.items():
            if number in bad or fleet[number].rig is not daemon.rig:
                daemon.asker.is_dead = True
        for one in [one for one in self._alone if one.call.daemon.asker.is_dead]:
            self._kill(one)

    def _others(self) -> None:
        """Others take their turn while a store waits for clouds."""
        clouds, chance = self._clouds, self._chance
        clouds.go_on()
        if clouds.is_fair:
            return
        dice = chance.random()
        if dice < _GOES_ON:
            self._step_alone()
        elif dice < _GOES_ON + _CALLS and self._depth < _DEEPEST:
            self._call(chance.choice(self._simulation.honest))
        elif dice > 1 - _DIES:
            number = chance.choice(sorted(self._daemons))
            self._note(f"{number} is killed")
            self._daemons[number].asker.is_dead = True
            for one in [one for one in self._alone if one.call.daemon.number == number]:
                self._kill(one)

    def _note(self, what: str) -> None:
        self._simulation.note(f"containers: {what}")

    def _tick(self) -> int:
        self._moment += 1
        return self._moment

    # -- calls of stores -------------------------------------------------------------------------

    def _call(self, number: int, kind: str = "", container: str = "", key: str = "") -> None:
        """A device calls its store; others may do so before it has returned."""
        chance = self._chance
        daemon = self._daemon(number)
        place = chance.choice(_NAMES), chance.choice(KEYS)
        if self._alone and chance.random() < _MEETS:
            other = chance.choice(self._alone).call
            place = other.container, other.key if other.kind != "list" else place[1]
        kind = kind or chance.choices(list(_KINDS), list(_KINDS.values()))[0]
        call = Call(daemon, kind, container or place[0], key or place[1], self._tick())
        self._depth += 1
        outcome = "is killed"
        try:
            effect = self._calls.carry_out(call)
            outcome = "returns"
            if effect is not None:
                self._histories[call.container].append(self._operation(call, effect))
        except KilledError:
            self._unknown(call)
        except NoSuchContainerError:
            outcome = "finds no container"
            self._histories[REGISTRY].append(self._operation(call, read(call.container, None)))
            if chance.random() < 0.5 and not self._clouds.is_fair:
                self._call(number, "create", call.container)
        except (HybrisError, CloudsUnavailable, IntegrityError) as error:
            outcome = str(error)
            self._failed(call, error)
        finally:
            self._depth -= 1
            self._note(f"{number}: {call.kind} {call.container}/{call.key}, from {call.called}, {outcome}")
        if call.kind == "get" and chance.random() < _LOOKS_AGAIN and not self._clouds.is_fair:
            self._call(chance.choice(self._simulation.honest), "get", call.container, call.key)

    def _failed(self, call: Call, error: Exception) -> None:
        """Raises what is not of the weather, and all that was begun in fair weather."""
        if isinstance(error, HybrisError) and error.what == _NOT_KNOWN:
            self._unknown(call)
        elif isinstance(error, HybrisError) and self._only_reads(call.daemon):
            return
        elif call.called > self._fair_since or not _is_of_the_weather(error):
            raise error

    def _only_reads(self, daemon: Daemon) -> bool:
        try:
            daemon.rig.sharing.require_writer()
        except HybrisError:
            return True
        return False

    def _operation(self, call: Call, effect: Effect) -> Operation:
        return Operation(f"{call.daemon.number} {call.kind} {call.key}", call.called, self._tick(), effect)

    def _unknown(self, call: Call) -> None:
        if call.perhaps is not None:
            name = f"{call.daemon.number} {call.kind} {call.key}, perhaps"
            self._histories[call.container].append(Operation(name, call.called, None, call.perhaps))

    # -- protocols alone -------------------------------------------------------------------------

    def _begin_alone(self) -> None:
        """A device begins an operation on a key that takes its time."""
        chance = self._chance
        if not self._simulation.honest:
            return
        daemon = self._daemon(chance.choice(self._simulation.honest))
        name = chance.choice(_NAMES)
        found = None
        with suppress(HybrisError, CloudsUnavailable, IntegrityError, KilledError):
            found = daemon.store._find(name)
        if found is None or self._only_reads(daemon):
            return
        call = Call(daemon, chance.choice(_ALONE), name, chance.choice(KEYS), self._tick())
        self._note(f"{daemon.number} begins: {call.kind} {name}/{call.key}, at {call.called}")
        self._alone.append(self._calls.started(call, found.id))

    def _step_alone(self) -> None:
        awake = [one for one in self._alone if one.rests_until <= self._moment or self._clouds.is_fair]
        if awake:
            one = self._chance.choice(awake)
            one.protocol.step()
            if self._chance.random() < _RESTS:
                one.rests_until = self._moment + self._chance.randrange(_MOST_RESTED)
            if one.protocol.is_over:
                self._end_alone(one)

    def _end_alone(self, one: Alone) -> None:
        self._alone.remove(one)
        call, outcome = one.call, "returns"
        try:
            effect = one.finish(one.protocol.result)
        except _RefusedError:
            effect = one.finish(None)
        except KilledError:
            outcome = "is killed"
            return
        except (HybrisError, CloudsUnavailable, IntegrityError) as error:
            outcome = str(error)
            if one.draft is not None and one.draft.exposed:
                self._unknown(call)
            else:
                self._failed(call, error)
            return
        finally:
            self._note(f"{call.daemon.number}: {call.kind} {call.key}, begun at {call.called}, {outcome}")
        self._histories[call.container].append(self._operation(call, effect))

    def _kill(self, one: Alone) -> None:
        self._alone.remove(one)
        one.protocol.die()
        if one.draft is None or one.draft.exposed:
            self._unknown(one.call)

    # -- bad members -----------------------------------------------------------------------------

    def _damage(self) -> None:
        """A bad member, which has the keys, writes to a key what no correct device writes."""
        number = self._chance.choice(sorted(self._simulation.world.bad))
        rig = self._simulation.world.fleet[number].rig
        asker = Asker(self._clouds, number, self._environment(number), self._clouds.go_on)
        store = self._open(rig, asker)
        with suppress(HybrisError, CloudsUnavailable, IntegrityError):
            found = store._find(self._chance.choice(_NAMES))
            if found is not None:
                self._calls.damage(store, found.id)
                self._note(f"{number}, which is bad, damages a key")

    # -- in the end ------------------------------------------------------------------------------

    def check(self) -> None:
        """All that does not lie works from now on: what was done, and what is there."""
        if not self._exist:
            return
        self._bury()
        self._clouds.clear_up()
        self._fair_since = self._tick()
        while self._alone:
            self._step_alone()
        honest = self._simulation.honest
        for number in honest:
            for kind, name, key in _in_the_end():
                self._call(number, kind, name, key)
        self._check_repair(honest[0])
        self._check_removed(honest[0])
        for name, history in self._histories.items():
            assert is_linearizable(history), _told(name, history)

    def _check_repair(self, number: int) -> None:
        daemon = self._daemon(number)
        assert self._calls.repair(daemon) == [], "what was repaired is wrong"

    def _check_removed(self, number: int) -> None:
        """Who was removed has the keys of the names, but not those of what is written now."""
        bad = self._simulation.badness.shut_out()
        daemon = self._daemon(number)
        if not bad or self._only_reads(daemon) or not self._histories[_NAMES[0]]:
            return
        self._call(number, "create", _NAMES[0])
        self._call(number, "put", _NAMES[0], "secret")
        for one in bad:
            asker = Asker(self._clouds, one, self._environment(one), self._clouds.go_on)
            store = self._open(self._simulation.world.fleet[one].rig, asker)
            try:
                store.get(_NAMES[0], "secret")
            except UnreadableHereError:
                continue
            raise AssertionError(f"{one}, which was removed, reads what was written afterwards")


def _is_of_the_weather(error: Exception) -> bool:
    """Whether it may happen when clouds are away, others write all the time, or keys have not come yet."""
    busy = isinstance(error, HybrisError) and error.what in BUSY
    return busy or isinstance(error, CloudsUnavailable | UnreadableHereError)


def _in_the_end() -> Sequence[tuple[str, str, str]]:
    calls = [("containers", _NAMES[0], KEYS[0])]
    for name in _NAMES:
        calls += [("list", name, KEYS[0]), *(("get", name, key) for key in KEYS)]
    return calls


def _look_once(condition: Turn, done: Callable[[], bool], seconds: float | None) -> bool:
    return done()


def _told(name: str, history: Sequence[Operation]) -> str:
    lines = [f"{one.called}-{one.returned} {one.name}" for one in sorted(history, key=lambda one: one.called)]
    return "\n".join([f"the history of {name or 'the list of containers'} is not linearizable:", *lines])
