"""The puller: a real thread over local folders that misbehave."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import pytest
from msgspec.structs import replace

from backends.file import FileStore
from backends.store import MAX_PAGE, Page, Store
from hybrisfs.dispersal.engine import Cloud, Engine
from hybrisfs.dispersal.probe import Look, Missing, Polled, Unchanged
from hybrisfs.dispersal.ranking import Timing
from hybrisfs.environment import SYSTEM, Environment, Limits
from hybrisfs.receive.pull import Memory, Puller, PullLimits, Sightings
from hybrisfs.stages import Signals, Stage, Wake
from hybrisfs.state.database import Database
from sync import DeviceKey, Members, VersionVector, head_name
from sync.beacons import Sighting
from sync.follow import ANNOUNCE_SECONDS, SHORTEST_PAUSE, FollowLimits
from sync.update import SignedUpdate, decode_signed
from tests.adversary import READS, Fault, FaultyStore
from tests.dispersal.fakes import CALM, HASTY, SEALER, TABLES
from tests.state.test_sightings import open_state
from tests.surroundings import Surroundings
from tests.sync.publisher import Publisher
from tests.sync.support import BOX_KEY, KEYS, NOON, VOLUME, Device

A, B, _, OWN = KEYS
PATIENCE = 30.0


HASTE = Limits(PullLimits(FollowLimits(shortest_pause=0.01, first_retry=0.01), head_seconds=2.0))
"""Pauses are short."""


class Watched:
    """The clouds as a puller sees them: *looks* are what it asked of them, *answers* what they said."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.get_object = engine.get_object
        self.list_objects = engine.list_objects
        self.accuse = engine.accuse
        self.looks: list[Sequence[Look]] = []
        self.answers: list[Polled] = []

    @property
    def followed(self) -> tuple[int, ...]:
        return self._engine.followed

    @property
    def f(self) -> int:
        return self._engine.f

    def poll_objects(self, looks: Sequence[Look], *, limit: int, timeout: float) -> dict[Look, Polled]:
        self.looks.append(looks)
        answers = self._engine.poll_objects(looks, limit=limit, timeout=timeout)
        self.answers += answers.values()
        return answers


class Here:
    """This device: its clouds, its log, and a puller that feeds it."""

    def __init__(
        self,
        base: Path,
        timing: Timing = CALM,
        memory: Memory | None = None,
        *,
        environment: Environment | None = None,
        faulty: Callable[[Store, int], FaultyStore] = FaultyStore,
    ) -> None:
        if memory is None:
            Database.create(base / "volume.db", VOLUME)
            memory = Sightings(open_state(base))
        self.memory = memory
        self.stores = []
        for number in range(3):
            store = faulty(FileStore(f"file://{base}/{number}"), number)
            store.initialise()
            self.stores.append(store)
        clouds = [Cloud(number, f"c{number}", store) for number, store in enumerate(self.stores)]
        self.engine = Engine(clouds, 1, SEALER, TABLES, timing=timing, environment=SYSTEM)
        self.watched = Watched(self.engine)
        self.signals = Signals(environment or Environment(limits=HASTE))
        self.device = Device(OWN)
        self.members = Members([A.public, OWN.public])
        self.changed = threading.Condition()
        self.refuse = 0
        self.attempts = 0
        self.failure: OSError | None = None
        self.puller = Puller(
            self.watched,
            VOLUME,
            BOX_KEY,
            OWN.device_id,
            self.signals,
            self,
            memory,
            self,
        )
        stage = Stage("pull", self.puller.step, self.signals.waiting(Wake.LOOK))
        self.thread = threading.Thread(target=stage.run, args=(self.signals, lambda error: False))

    # -- as `FollowedLog` and `GrantSource` --------------------------------------------------------

    is_shut_out = False

    def fetch(self, writer: bytes, epoch: bytes) -> bool:
        return False

    def followed(self) -> Members:
        return self.members

    def announce_seconds(self) -> float:
        return ANNOUNCE_SECONDS

    def vector(self) -> VersionVector:
        return self.device.state.vector

    def holds(self, device: bytes, start: bytes) -> bool:
        return any(
            update.header.writer == device and update.hash.startswith(start) for update in self.device.order
        )

    def receive_pulled(self, updates: Sequence[bytes]) -> bool:
        with self.changed:
            self.changed.notify_all()
            self.attempts += 1
            if self.failure is not None:
                raise self.failure
            if self.attempts <= self.refuse:
                return False
            for data in updates:
                self.device.receive(decode_signed(data))
            return True

    def wait_for(self, done: Callable[[], object]) -> None:
        """Look around until `done`."""
        with self.changed:
            for _ in range(3000):
                if done():
                    return
                self.puller.look_now()
                self.changed.wait(0.01)
        raise AssertionError("it does not happen")

    def has(self, updates: Sequence[SignedUpdate]) -> Callable[[], bool]:
        return lambda: all(self.holds(u.header.writer, u.hash) for u in updates)

    def publish(self, device: Publisher, count: int = 1, *, time_ns: int = NOON) -> None:
        device.write_more(count)
        for name, data in device.ship(time_ns):
            for store in self.stores:
                store.put(name, data)

    def close(self) -> None:
        self.signals.stop()
        self.engine.close()
        if self.thread.ident is not None:
            self.thread.join(PATIENCE)
            assert not self.thread.is_alive()


@pytest.fixture
def here(tmp_path: Path) -> Iterator[Here]:
    one = Here(tmp_path)
    yield one
    one.close()


@pytest.fixture
def still(tmp_path: Path) -> Iterator[tuple[Here, Surroundings]]:
    """One for which time passes only when a test says so; it runs no thread."""
    around = Surroundings(Environment(monotonic=lambda: 0.0))
    one = Here(tmp_path, environment=around.environment)
    yield one, around
    one.close()


def test_what_another_device_publishes_is_received(here: Here) -> None:
    a = Publisher(A)
    here.publish(a, 3)
    here.thread.start()
    assert here.puller.wait_until_looked(PATIENCE)
    assert here.has(a.order)(), "what is there at the start is received before anything else happens"
    for _ in range(3):
        here.publish(a, 2)
        here.wait_for(here.has(a.order))
    assert [update.data for update in here.device.order] == [update.data for update in a.order]


@pytest.mark.parametrize("kind", ["lose", "corrupt", "truncate", "pad", "swap", "fail"])
def test_one_cloud_may_misbehave(here: Here, kind: str) -> None:
    a = Publisher(A)
    here.publish(a, 3)
    here.stores[1].faults = [Fault(kind, operations=READS)]  # type: ignore[arg-type]
    here.thread.start()
    here.wait_for(here.has(a.order))
    here.publish(a, 1)
    here.wait_for(here.has(a.order))
    here.wait_for(lambda: here.stores[1].calls != [])
    assert {one.name for one in here.engine.health() if one.state == "lying"} <= {"c1"}


def test_a_cloud_that_alters_heads_is_named_until_it_is_right_again(here: Here) -> None:
    a = Publisher(A)
    here.publish(a)
    here.stores[2].faults = [Fault("corrupt", prefix="heads/")]
    here.thread.start()
    assert here.puller.wait_until_looked(PATIENCE)
    assert [one.state for one in here.engine.health()] == ["ok", "ok", "lying"]
    here.wait_for(lambda: any("on cloud 2 is wrong" in doubt for doubt in here.puller.doubts()))
    here.stores[2].faults = []
    here.wait_for(lambda: not here.puller.doubts())


def times_loaded(base: Path, faults: Sequence[Fault], doubts: int) -> int:
    """How often the members are loaded to follow twenty devices of which a cloud shows something wrong."""
    base.mkdir()
    here, loaded = Here(base, environment=Environment(monotonic=lambda: 0.0)), 0

    def members() -> Members:
        nonlocal loaded
        loaded += 1
        return here.members

    many = [DeviceKey.from_seed(bytes((3, number)) + bytes(30)) for number in range(20)]
    here.members = Members([OWN.public, *(key.public for key in many)])
    for key in many:
        here.publish(Publisher(key, here.members))
    here.stores[2].faults = faults
    here.followed = members  # type: ignore[method-assign]
    here.puller.step()
    assert len(here.puller.doubts()) == doubts
    here.close()
    return loaded


def test_heads_that_are_wrong_load_no_members(tmp_path: Path) -> None:
    """There may be a thousand members, and a cloud may show something else for each of them."""
    wrong = [Fault("corrupt", prefix="heads/")]
    assert times_loaded(tmp_path / "honest", [], 0) == times_loaded(tmp_path / "wrong", wrong, 20)


def test_a_cloud_that_rolls_back_is_named(here: Here) -> None:
    a = Publisher(A)
    here.publish(a)
    ((name, old),) = [(name, data) for name, data in a.ship(NOON) if name.startswith("heads/")]
    here.publish(a, time_ns=NOON + 1)
    here.thread.start()
    assert here.puller.wait_until_looked(PATIENCE)
    here.stores[0].put(name, old)
    here.wait_for(lambda: any("an earlier one" in doubt for doubt in here.puller.doubts()))
    assert [one.state for one in here.engine.health()] == ["lying", "ok", "ok"]


def test_a_segment_that_is_nowhere_is_told_and_found_when_it_turns_up(here: Here) -> None:
    a = Publisher(A)
    here.publish(a)
    here.publish(a)
    for store in here.stores:
        store.faults = [Fault("lose", prefix="log/")]
    here.thread.start()
    assert here.puller.wait_until_looked(PATIENCE)
    assert any("no cloud has it" in doubt for doubt in here.puller.doubts())
    for store in here.stores:
        store.faults = []
    here.wait_for(here.has(a.order))
    here.wait_for(lambda: not here.puller.doubts())


def test_all_clouds_may_be_away_for_a_while(here: Here) -> None:
    a = Publisher(A)
    here.publish(a)
    for store in here.stores:
        store.faults = [Fault("fail")]
    here.thread.start()
    here.wait_for(lambda: all(store.calls[-1].fault == "fail" for store in here.stores))
    assert not here.puller.wait_until_looked(0.0)
    for store in here.stores:
        store.faults = []
    here.wait_for(here.has(a.order))
    assert here.puller.wait_until_looked(PATIENCE)
    assert not here.puller.doubts()


def test_what_was_not_received_is_brought_again(here: Here) -> None:
    a = Publisher(A)
    here.publish(a)
    here.refuse = 2
    here.thread.start()
    here.wait_for(here.has(a.order))
    here.failure = OSError("disk full")
    here.publish(a)
    seen = here.attempts
    here.wait_for(lambda: here.attempts > seen + 1)
    here.failure = None
    here.wait_for(here.has(a.order))


def test_a_device_that_joins_later_is_followed_too(here: Here) -> None:
    a, b = Publisher(A), Publisher(B)
    here.publish(a)
    here.publish(b)
    here.thread.start()
    here.wait_for(here.has(a.order))
    assert [one.device_id for one in here.puller.devices()] == [a.id]
    here.members = Members([A.public, B.public, OWN.public])
    here.wait_for(here.has(b.order))


def test_a_head_that_names_two_branches_leads_to_both(here: Here) -> None:
    a = Publisher(A)
    here.publish(a)
    backup = a.restored()
    here.publish(a, 2)
    here.publish(backup)
    here.thread.start()
    here.wait_for(here.has(backup.order))
    backup.receive_all([update for update in a.order if not backup.holds_update(update)])
    here.publish(backup)
    here.wait_for(here.has(a.order))


def test_what_is_known_of_a_device(here: Here) -> None:
    a = Publisher(A)
    here.publish(a, 2, time_ns=1000)
    here.thread.start()
    here.wait_for(here.has(a.order))
    here.device.write()
    here.wait_for(lambda: [one.lag for one in here.puller.devices()] == [1])
    (one,) = here.puller.devices()
    assert (one.device_id, one.last_seen_ns, one.vector) == (a.id, 1000, a.state.vector)
    assert one.suspect
    here.puller.heard(a.id, 2**63 - 1)
    here.wait_for(lambda: [one.suspect for one in here.puller.devices()] == [False])


def test_what_was_seen_survives_a_restart(tmp_path: Path, here: Here) -> None:
    a = Publisher(A)
    here.publish(a, 2, time_ns=1000)
    here.thread.start()
    here.wait_for(lambda: here.memory.load().get(a.id) is not None and bool(here.puller.heads()))
    here.wait_for(lambda: here.memory.load()[a.id].seen_ns == 1000)
    here.close()
    again = Here(tmp_path, memory=here.memory)
    until = threading.Event()
    for store in again.stores:
        store.faults = [Fault("stall", until=until)]
    again.thread.start()
    again.wait_for(lambda: bool(again.puller.devices()))
    (one,) = again.puller.devices()
    assert (one.last_seen_ns, one.vector, one.suspect) == (1000, a.state.vector, False)
    assert again.puller.heads()[a.id].vector == a.state.vector
    until.set()
    again.close()


class FullDisk:
    """Keeps what was seen of the devices, once there is room."""

    def __init__(self, memory: Memory) -> None:
        self.load = memory.load
        self._store = memory.store
        self.has_room = False

    def store(self, sightings: Mapping[bytes, Sighting]) -> None:
        if not self.has_room:
            raise OSError("no room")
        self._store(sightings)


def test_a_disk_that_is_full_does_not_end_the_following(tmp_path: Path) -> None:
    Database.create(tmp_path / "volume.db", VOLUME)
    memory = FullDisk(Sightings(open_state(tmp_path)))
    here = Here(tmp_path, memory=memory)
    a = Publisher(A)
    here.publish(a)
    here.thread.start()
    here.wait_for(here.has(a.order))
    here.publish(a)
    here.wait_for(here.has(a.order))
    assert memory.load() == {}
    memory.has_room = True
    here.wait_for(lambda: memory.load().get(a.id) is not None)
    here.close()


def test_when_causes_are_missing_all_heads_are_asked_for_at_once(still: tuple[Here, Surroundings]) -> None:
    here, around = still

    def asked() -> list[int]:
        """How many clouds each look asks for the head of the other."""
        here.watched.looks.clear()
        here.puller.step()
        name = head_name(A.device_id)
        return [sum(one.name == name for one in looks) for looks in here.watched.looks]

    a = Publisher(A)
    assert asked() == [3], "at the start all are asked"
    around.passed += 1000.0
    assert asked() == [2], "f + 1 are enough"
    here.publish(a)
    around.passed += 1000.0
    here.refuse = 1
    assert asked() == [2]
    assert here.attempts == 1
    around.passed += SHORTEST_PAUSE
    assert asked() == [3]


def test_changes_made_here_quicken_the_pace(still: tuple[Here, Surroundings]) -> None:
    here, around = still

    def looks() -> int:
        here.watched.looks.clear()
        here.puller.step()
        return len(here.watched.looks)

    assert looks()
    around.passed = 1000.0
    assert looks()
    around.passed += 50.0
    assert not looks(), "nothing has happened for a long time"
    here.signals.changes_made()
    assert looks()


def test_heads_that_have_not_changed_are_not_transferred_again(still: tuple[Here, Surroundings]) -> None:
    here, around = still
    here.publish(Publisher(A))
    here.puller.step()
    here.watched.answers.clear()
    around.passed += 1000.0
    here.puller.step()
    kinds = {type(answer) for answer in here.watched.answers}
    assert kinds == {Unchanged, Missing}, "the other's head, and there is none of our own"


class Hanging:
    """The cloud that is the first to be asked for something never answers to that."""

    def __init__(self, operation: str) -> None:
        self.hang = Fault("stall", operations=frozenset({operation}))
        self.first: FaultyStore | None = None
        self._lock = threading.Lock()

    def asked(self, store: FaultyStore, operation: str) -> None:
        with self._lock:
            if operation in self.hang.operations and self.first is None:
                self.first = store
                store.faults = [self.hang]

    def store(self, store: Store, number: int) -> FaultyStore:
        return OneOfThem(store, number, self)


class OneOfThem(FaultyStore):
    def __init__(self, store: Store, number: int, hanging: Hanging) -> None:
        super().__init__(store, number)
        self._hanging = hanging

    def get(self, name: str, *, limit: int) -> bytes:
        self._hanging.asked(self, "get")
        return super().get(name, limit=limit)

    def get_if_changed(self, name: str, tag: str | None, *, limit: int) -> tuple[bytes, str] | None:
        self._hanging.asked(self, "get_if_changed")
        return super().get_if_changed(name, tag, limit=limit)

    def list(self, prefix: str, *, after: str = "", limit: int = MAX_PAGE) -> Page:
        self._hanging.asked(self, "list")
        return super().list(prefix, after=after, limit=limit)


@pytest.mark.parametrize("operation", ["get_if_changed", "get", "list"])
def test_a_cloud_that_hangs_delays_neither_news_nor_the_end(tmp_path: Path, operation: str) -> None:
    hanging = Hanging(operation)
    here = Here(tmp_path, replace(HASTY, get=PATIENCE), faulty=hanging.store)
    a = Publisher(A)
    here.publish(a)
    backup = a.restored()
    here.publish(a)
    here.publish(backup)
    here.thread.start()
    here.wait_for(here.has(backup.order))
    backup.receive_all([update for update in a.order if not backup.holds_update(update)])
    here.publish(backup)
    here.wait_for(here.has([*a.order, *backup.order]))
    here.wait_for(lambda: hanging.first and any(one.fault == "stall" for one in hanging.first.calls))
    here.close()
    hanging.hang.until.set()
