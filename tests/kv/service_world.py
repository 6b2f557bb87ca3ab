"""Machines that use the same service, in random order, one request at a time."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from random import Random
from typing import Final

from hybrisfs.environment import SYSTEM, Environment, Limits
from hybrisfs.errors import HybrisError
from hybrisfs.kv.errors import ContainerExistsError, ContainerInUseError, NoSuchContainerError
from hybrisfs.kv.metadata import Change, Garbage, Owed
from hybrisfs.kv.record import ABSENT, PRESENT, Condition, KeyMetadata, leaving
from hybrisfs.kv.rmds import DeviceMetadata
from hybrisfs.kv.sealed_names import SealedService
from hybrisfs.kv.service import (
    KeyValue,
    OutcomeUnknownError,
    ServiceError,
)
from hybrisfs.kv.service_metadata import ServiceMetadata
from hybrisfs.kv.service_writes import WriteLimits
from tests.kv.rig import new_database
from tests.kv.service_model import (
    Actor,
    Keys,
    Killed,
    LooseClient,
    ModelClient,
    ServiceModel,
    Verdict,
    in_range,
)
from tests.kv.services import in_form, sealer_of

SEEDS: Final = int(os.environ.get("HYBRISFS_SIM_SEEDS", "300")) // 2
PARTS: Final = 4
BOX: Final = "box"
HIDDEN: Final = leaving(BOX, "mark")
KEYS: Final = (b"a", b"b", b"c", b"d")
CHECKSUM: Final = b"c" * 16
LIMITS: Final = WriteLimits(block=3, lease_seconds=10**6, adopt_seconds=0)
ACTORS: Final = 5  # of a process, so that several wait for a request
WEIGHTS: Final = {
    "write": 8,
    "move": 3,
    "list": 3,
    "collect": 4,
    "renew": 2,
    "drop": 1,
    "create": 2,
    "hide": 1,
    "show": 2,
}
LOST: Final = [Verdict.ANSWERED] * 8 + [Verdict.UNANSWERED, Verdict.LATE]
BUSY: Final = {**WEIGHTS, "write": 80, "move": 10}
FAULTS: Final = (
    [Verdict.ANSWERED] * 40
    + [Verdict.UNANSWERED, Verdict.LATE] * 2
    + [Verdict.REFUSED, Verdict.KILLED, Verdict.KILLED_AFTER]
)


class Process:
    """One process of a machine, and what it does."""

    def __init__(self, world: World, machine: Machine) -> None:
        self._world = world
        self.machine = machine
        self.client = world.client(world.model, world.late, world.slow)
        self.store = ServiceMetadata(
            in_form(world.form, self.client, world.environment),
            DeviceMetadata(machine.database, SYSTEM),
            machine.device,
            world.environment,
        )
        self.actors: list[Actor] = []
        self.is_ready = False
        self._is_collecting = False
        self._under_way: set[int] = set()

    def end(self) -> None:
        """As if killed."""
        for actor in self.actors:
            actor.step(Verdict.KILLED)
            assert actor.over
        self.client.is_dead = True
        self.store.close()

    # -- what actors do

    def begin(self) -> None:
        self.store.writes.garbage()
        self.is_ready = True

    def write(self) -> None:
        random, store = self._world.random, self.store
        box = store.container(BOX)
        places = [(box, key) for key in random.sample(KEYS, random.choice((1, 1, 2)))]
        conditions: dict[tuple[int, bytes], Condition] = {}
        if random.random() < 0.3:
            conditions[box, random.choice(KEYS)] = random.choice((ABSENT, PRESENT))
        with self._writing(len(places), random.random() > 0.2) as entries:
            changes = [Change(place, entry) for place, entry in zip(places, entries, strict=True)]
            try:
                made = store.update(changes, conditions)
            except OutcomeUnknownError:
                return
            except HybrisError:
                made = None
            self._world.settled(entries, took_place=made is not None)

    def move(self) -> None:
        place = self.store.container(BOX), self._world.random.choice(KEYS)
        old = self.store.read(place)
        if old is None or not old.live:
            return
        with self._writing(1, True, old.write) as (entry,):
            try:
                moved = self.store.move(place, old, old._replace(moved=entry.write))
            except OutcomeUnknownError:
                return
            except HybrisError:
                moved = False
            self._world.settled([entry], took_place=moved)

    @contextlib.contextmanager
    def _writing(self, count: int, has_value: bool, above: int = 0) -> Iterator[list[KeyMetadata]]:
        """New writes, and with values their objects on the clouds."""
        actor, entries = threading.current_thread(), list[KeyMetadata]()
        assert isinstance(actor, Actor)
        try:
            for _ in range(count):
                actor.is_exclusive = True
                write = self.store.new_write(above)
                actor.is_exclusive = False
                self._world.drawn(write)
                self._under_way.add(write)
                entries.append(entry(write) if has_value else KeyMetadata(0, write))
            if has_value:
                self.store.intend([Garbage(one.write, one.names) for one in entries])
                self._world.upload(actor, entries)
            yield entries
        except Killed:
            raise
        except ServiceError:
            self._ended(entries)
            raise
        else:
            self._ended(entries)

    def _ended(self, entries: list[KeyMetadata]) -> None:
        writes = [one.write for one in entries]
        self._under_way -= {*writes}
        self.store.ended(writes)

    def collect(self) -> None:
        if not self._is_collecting:  # a store's collector does it once at a time
            self._is_collecting = True
            try:
                self._collect()
            finally:
                self._is_collecting = False

    def _collect(self) -> None:
        actor, store, random = threading.current_thread(), self.store, self._world.random
        assert isinstance(actor, Actor)
        store.gather_garbage()
        store.forget_owed(store.owed(0, 1000))  # of an earlier process
        found = [one for one in store.garbage(0, 1000) if one.write not in self._under_way]
        if not found:
            return
        self._world.delete(actor, [one.write for one in found])
        owed = [Owed(0, *one) for one in found if random.random() < 0.1]
        store.forget_garbage([one.write for one in found], owed)
        store.forget_owed(owed)

    def list(self) -> None:
        store, model = self.store, self._world.model
        box, began = store.container(BOX), len(model.moments) - 1
        with store.listing(box, b"", None, 2) as pages:
            found = [(one.key, one.entry) for page in pages for one in page]
        moments = map(self._world.plain, model.moments[began:])
        assert any(found == _live(keys, box) for keys in moments), "that never was"

    def renew(self) -> None:
        self.store.writes.announce()

    def drop(self) -> None:
        with contextlib.suppress(NoSuchContainerError, ContainerInUseError):
            self.store.delete_container(BOX)

    def create(self) -> None:
        if not any(one.startswith(leaving(BOX)) for one in self.store.containers()):
            with contextlib.suppress(ContainerExistsError):
                self.store.create_container(BOX)

    def hide(self) -> None:
        """As a move does when all is copied."""
        with contextlib.suppress(NoSuchContainerError, ContainerExistsError):
            self.store.rename_container(BOX, HIDDEN)

    def show(self) -> None:
        with contextlib.suppress(NoSuchContainerError, ContainerExistsError):
            self.store.rename_container(HIDDEN, BOX)


def _live(keys: Keys, box: int) -> list[tuple[bytes, KeyMetadata]]:
    """The keys of a container that have values."""
    prefix = b"k/%016x/" % box
    entries = [
        (key.removeprefix(prefix), KeyMetadata.decode(keys[key].value))
        for key in in_range(keys, prefix, prefix + b"\xff")
    ]
    return [(key, entry) for key, entry in entries if entry.live]


def _is_container(key: bytes, one: KeyValue, number: bytes) -> bool:
    return key.startswith(b"c/") and one.value == number


def entry(write: int) -> KeyMetadata:
    return KeyMetadata(0, write, 100, 129, 1, (0, 1), (CHECKSUM,))


class Machine:
    def __init__(self, world: World, number: int, folder: Path) -> None:
        folder.mkdir()
        self._world = world
        self.database = new_database(folder)
        self.device = bytes([number]) * 16
        self.process: Process | None = None
        self.sleeps = 0
        """For how many steps it stands still yet."""

    def act(self, weights: Mapping[str, int]) -> None:
        """Begin something."""
        if self.process is None:
            self.process = Process(self._world, self)
        if not self.process.is_ready:
            what: Callable[[], None] = self.process.begin
            if self.process.actors:
                return
        else:
            (name,) = self._world.random.choices([*weights], [*weights.values()])
            what = getattr(self.process, name)
        self.process.actors.append(Actor(what))

    def repeat(self, what: str, times: int) -> None:
        """Begin to do the same so many times."""
        process = self.process = self.process or Process(self._world, self)

        def repeated() -> None:
            for _ in range(times):
                getattr(process, what)()

        process.actors.append(Actor(repeated))

    def kill(self) -> None:
        if self.process is not None:
            self.process.end()
            self.process = None

    def fall_asleep(self) -> None:
        """Stand still for so long that the lease ends."""
        self.sleeps = self._world.random.randrange(150)
        lease = None if self.process is None else self.process.client.lease
        if lease is not None:
            self._world.model.end_lease(lease)


class World:
    def __init__(self, seed: int, service: str, folder: Path, form: str = "plain") -> None:
        self.random = Random(seed)
        self.form = form
        self._sealed: SealedService | None = None
        self._opened: dict[KeyValue, KeyValue] = {}
        self.client = ModelClient if service == "etcd" else LooseClient
        self.model = ServiceModel(self._check, restarting=service == "zookeeper")
        self.late: list[Callable[[], object]] = []
        self._now = 0.0
        self._is_busy = seed % 2 == 1
        """Whether much is written at once, and little goes wrong: then updates go together."""
        self.environment = Environment(monotonic=self._look_at_clock, sleep=self._pass, limits=Limits(LIMITS))
        self._drawn: set[int] = set()
        self._named: set[int] = set()
        self._refused: set[int] = set()
        self._objects: set[int] = set()
        self._deleted: set[int] = set()
        self.machines = [Machine(self, number, folder / f"{number}") for number in range(3)]

    def plain(self, keys: Keys) -> Keys:
        """As members of the volume see it."""
        if self.form == "plain" or b"s" not in keys:
            return keys
        if self._sealed is None:
            client = self.client(self.model, [], lambda: None)
            self._sealed = SealedService(client, sealer_of(client), SYSTEM)
        opened = self._opened
        for one in keys.values():
            if one not in opened:
                is_sealed = one.key.startswith((b"c/", b"k/"))
                opened[one] = self._sealed.plain(one) if is_sealed else one
                assert opened[one].trouble is None
        return {opened[one].key: opened[one] for one in keys.values()}

    def _look_at_clock(self) -> float:
        self._now += 0.003  # a request takes about as long as a near service, or a far one
        return self._now

    def _pass(self, seconds: float) -> None:
        self._now += seconds

    def slow(self) -> None:
        """There was no answer, which took a while."""
        self._pass(self.random.choice((0.5, 0.5, 40.0)))

    # -- what must be

    def drawn(self, write: int) -> None:
        assert write not in self._drawn
        self._drawn.add(write)

    def settled(self, entries: list[KeyMetadata], *, took_place: bool) -> None:
        """A write has ended, with success or without."""
        writes = {one.write for one in entries}
        if took_place:
            assert writes <= self._named, "it said so, and was not there"
        else:
            assert not writes & self._named, "it failed, and was there"
            self._refused |= writes

    def _check(self, before: Keys, after: Keys) -> None:
        before, after = self.plain(before), self.plain(after)
        for key, one in after.items():
            if key.startswith(b"k/") and before.get(key) != one:
                entry = KeyMetadata.decode(one.value)
                assert entry.objects not in self._refused, "a write that failed took place"
                self._named.add(entry.objects)
                number = key[2:][:16]
                names = [name for name, found in after.items() if _is_container(name, found, number)]
                assert names == [b"c/box"], "nobody may write to it"
                if entry.live:
                    assert entry.objects in self._objects - self._deleted, "its objects are gone"
        for key in before.keys() - after.keys():
            if key.startswith(b"k/"):
                assert not KeyMetadata.decode(before[key].value).live, "a value went with its container"

    def _now_named(self) -> set[int]:
        keys = self.plain(self.model.keys)
        entries = [KeyMetadata.decode(one.value) for key, one in keys.items() if key.startswith(b"k/")]
        return {one.objects for one in entries if one.live}

    def upload(self, actor: Actor, entries: list[KeyMetadata]) -> None:
        self._objects |= {one.write for one in entries}
        actor.rest()

    def delete(self, actor: Actor, writes: list[int]) -> None:
        assert not self._now_named() & {*writes}, "a key names what is deleted"
        self._deleted |= {*writes}
        self._objects -= self._deleted
        actor.rest()

    def check_what_is_left(self) -> None:
        assert self._objects - self._now_named() <= self._deleted, "objects that nobody deletes"
        mine = b"/" + self.machines[0].device.hex().encode() + b"/"
        assert not [key for key in self.model.keys if key[:2] in (b"g/", b"f/", b"x/")]
        for kind in (b"b/", b"u/"):
            left = [key for key in self.model.keys if key.startswith(kind)]
            assert all(mine in key for key in left)

    # -- what happens

    def run(self, steps: int) -> None:
        creator = Process(self, Machine(self, 9, self.machines[0].database.parent / "9"))
        creator.create()
        creator.end()
        for _ in range(steps):
            for machine in self.machines:
                machine.sleeps = max(0, machine.sleeps - 1)
            self._happen()
        for machine in self.machines:
            machine.sleeps = 0
        while actors := self._actors():
            self._step(self.random.choice(actors), Verdict.ANSWERED)
        self._clean_up()

    def _clean_up(self) -> None:
        """All processes end, and one that goes on cleans up after them."""
        for machine in self.machines:
            assert machine.process is None or not machine.process.actors, "one waits for ever"
            machine.kill()
        for lease in [*self.model.leases]:
            self.model.end_lease(lease)
        self._arrive(len(self.late) // 2)
        survivor = self.machines[0]
        for what in (
            "begin",
            "create",
            "renew",
            "collect",
            "collect",
            "late",
            "collect",
            "collect",
            "collect",
        ):
            if what == "late":
                self._arrive(len(self.late))
                continue
            survivor.act({what: 1})
            while actors := self._actors():
                self._step(actors[0], Verdict.ANSWERED)
        self.check_what_is_left()
        survivor.kill()

    def list_and_write(self) -> None:
        """One machine lists again and again, while the others write."""
        self.machines[0].repeat("create", 1)
        while actors := self._actors():
            self._step(actors[0], Verdict.ANSWERED)
        for machine, what, times in zip(self.machines, ("list", "write", "write"), (3, 12, 12), strict=True):
            machine.repeat(what, times)
        while actors := self._actors():
            self._step(self.random.choice(actors), Verdict.ANSWERED)
        for machine in self.machines:
            machine.kill()

    def write_together(self) -> None:
        """Many threads of one machine write, and some of another, while answers get lost."""
        self.machines[0].repeat("create", 1)
        while actors := self._actors():
            self._step(actors[0], Verdict.ANSWERED)
        for machine, threads in zip(self.machines, (ACTORS, 2), strict=False):
            for _ in range(threads):
                machine.repeat("write", 4)
        while actors := self._actors():
            if self.random.random() < 0.05:
                self._arrive(1)
            self._step(self.random.choice(actors), self.random.choice(LOST))
        self._clean_up()

    def _happen(self) -> None:
        random, machine = self.random, self.random.choice(self.machines)
        chance = random.random()
        if chance < 0.08 and self._is_busy and random.random() < 0.8:
            chance = 1.0
        if chance < 0.03:
            machine.fall_asleep()
        elif chance < 0.04:
            machine.kill()
        elif chance < 0.08:
            self._arrive(1)
        elif len(self._actors()) < 2 * ACTORS and chance < (0.6 if self._is_busy else 0.25):
            if not machine.sleeps and (machine.process is None or len(machine.process.actors) < ACTORS):
                machine.act(BUSY if self._is_busy else WEIGHTS)
        elif actors := self._actors():
            process, actor = random.choice(actors)
            is_faulty = not self._is_busy or random.random() < 0.4
            verdict = random.choice(FAULTS) if is_faulty else Verdict.ANSWERED
            self._step((process, actor), verdict)
            if verdict in (Verdict.UNANSWERED, Verdict.LATE) and random.random() < 0.5:
                process.machine.fall_asleep()

    def _arrive(self, count: int) -> None:
        for _ in range(min(count, len(self.late))):
            with contextlib.suppress(ServiceError):
                self.late.pop(self.random.randrange(len(self.late)))()

    def _actors(self) -> list[tuple[Process, Actor]]:
        """Those that can go on."""
        able = []
        for machine in self.machines:
            if machine.process is not None and not machine.sleeps:
                actors = [one for one in machine.process.actors if one.is_able]
                exclusive = [one for one in actors if one.is_exclusive]
                able += [(machine.process, one) for one in exclusive or actors]
        return able

    def _step(self, one: tuple[Process, Actor], verdict: Verdict) -> None:
        process, actor = one
        actor.step(verdict)
        if actor.over:
            process.actors.remove(actor)
        if actor.failure is not None and not isinstance(actor.failure, ServiceError | NoSuchContainerError):
            raise actor.failure
        if verdict in (Verdict.KILLED, Verdict.KILLED_AFTER):
            process.machine.kill()
