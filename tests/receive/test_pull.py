"""The puller: a real thread over local folders that misbehave."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from queue import SimpleQueue
from unittest import mock

import pytest

from backends.file import FileStore
from hybrisfs.dispersal.engine import Cloud, Engine, Timing
from hybrisfs.dispersal.poll import Look, Polled, Unchanged
from hybrisfs.receive.pull import Puller
from hybrisfs.signals import Signals, Wake
from hybrisfs.stage import Stage
from hybrisfs.state.database import Database
from hybrisfs.state.sightings import SightingTable
from sync import DeviceKey, Members, VersionVector
from sync.follow import Follow
from sync.update import SignedUpdate, decode_signed
from tests.adversary import READS, Fault, FaultyStore
from tests.dispersal.fakes import CALM, HASTY, SEALER, TABLES
from tests.sync.publisher import Publisher
from tests.sync.support import BOX_KEY, KEYS, NOON, VOLUME, Device

A, B, _, OWN = KEYS
PATIENCE = 30.0


class Here:
    """This device: its clouds, its log, and a puller that feeds it."""

    def __init__(self, base: Path, timing: Timing = CALM, memory: SightingTable | None = None) -> None:
        if memory is None:
            Database.create(base / "volume.db", VOLUME)
            memory = SightingTable(Database(base / "volume.db"), threading.Lock())
        self.memory = memory
        self.stores = []
        for number in range(3):
            store = FaultyStore(FileStore(f"file://{base}/{number}"), number)
            store.initialise()
            self.stores.append(store)
        clouds = [Cloud(number, f"c{number}", store) for number, store in enumerate(self.stores)]
        self.engine = Engine(clouds, 1, SEALER, TABLES, timing=timing)
        self.signals = Signals()
        self.device = Device(OWN)
        self.members = Members([A.public, OWN.public])
        self.changed = threading.Condition()
        self.refuse = 0
        self.attempts = 0
        self.failure: OSError | None = None
        self.puller = Puller(
            self.engine,
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

    def wait_for(self, done: Callable[[], bool]) -> None:
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
def haste() -> Iterator[None]:
    """Let pauses be short."""
    with (
        mock.patch("sync.pace.SHORTEST_PAUSE", 0.01),
        mock.patch("sync.chase._FIRST_RETRY", 0.01),
        mock.patch("hybrisfs.receive.pull._HEAD_SECONDS", 2.0),
    ):
        yield


@pytest.fixture
def here(tmp_path: Path, haste: None) -> Iterator[Here]:
    one = Here(tmp_path)
    yield one
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


def test_heads_that_are_wrong_load_no_members(here: Here) -> None:
    """There may be a thousand members, and a cloud may show something else for each of them."""
    loaded = 0

    def members() -> Members:
        nonlocal loaded
        loaded += 1
        return here.members

    many = [DeviceKey.from_seed(bytes((3, number)) + bytes(30)) for number in range(20)]
    here.members = Members([OWN.public, *(key.public for key in many)])
    for key in many:
        here.publish(Publisher(key, here.members))
    here.stores[2].faults = [Fault("corrupt", prefix="heads/")]
    here.followed = members  # type: ignore[method-assign]
    with mock.patch.object(Follow, "due", autospec=True, side_effect=Follow.due) as due:
        here.puller.step()
        assert loaded == 1 + due.call_count  # once to begin with
    assert len(here.puller.doubts()) == len(many)


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


def test_a_fork_that_was_proved_leads_to_the_other_branch(here: Here) -> None:
    a = Publisher(A)
    here.publish(a)
    backup = a.restored()
    here.publish(a, 2)
    here.publish(backup)
    here.thread.start()
    here.wait_for(here.has(backup.order))
    here.puller.look_for_branches(a.id)
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


def test_a_disk_that_is_full_does_not_end_the_following(here: Here) -> None:
    a = Publisher(A)
    here.publish(a)
    with mock.patch.object(here.memory, "store", side_effect=OSError("no room")):
        here.thread.start()
        here.wait_for(here.has(a.order))
        here.publish(a)
        here.wait_for(here.has(a.order))
    here.wait_for(lambda: here.memory.load().get(a.id) is not None)


def test_when_causes_are_missing_all_heads_are_asked_for_at_once(here: Here) -> None:
    here.thread.start()
    assert here.puller.wait_until_looked(PATIENCE)
    hurried = threading.Event()
    with mock.patch.object(Follow, "hurry", lambda _: hurried.set()):
        here.refuse = 1
        here.publish(Publisher(A))
        here.signals.look_around()
        assert hurried.wait(PATIENCE)


def test_changes_made_here_quicken_the_pace(here: Here) -> None:
    here.thread.start()
    assert here.puller.wait_until_looked(PATIENCE)
    told: SimpleQueue[float] = SimpleQueue()
    with mock.patch.object(Follow, "active", lambda _, at: told.put(at)):
        before = time.monotonic()
        here.signals.changes_made()
        here.signals.look_around()
        while told.get(timeout=PATIENCE) < before:
            pass


def test_heads_that_have_not_changed_are_not_transferred_again(here: Here) -> None:
    here.publish(Publisher(A))
    conditional = threading.Event()
    real = here.engine.poll_objects

    def poll(looks: Sequence[Look], *, limit: int, timeout: float) -> dict[Look, Polled]:
        answers = real(looks, limit=limit, timeout=timeout)
        if any(isinstance(answer, Unchanged) for answer in answers.values()):
            conditional.set()
        return answers

    with mock.patch.object(here.engine, "poll_objects", poll):
        here.thread.start()
        assert conditional.wait(PATIENCE)


@pytest.mark.parametrize("operation", ["get_if_changed", "get", "list"])
def test_a_cloud_that_hangs_delays_neither_news_nor_the_end(
    tmp_path: Path, haste: None, operation: str
) -> None:
    here = Here(tmp_path, replace(HASTY, get=PATIENCE))
    a = Publisher(A)
    here.publish(a)
    until = threading.Event()
    here.stores[0].faults = [Fault("stall", until=until, operations=frozenset({operation}))]
    with mock.patch.object(here.engine._clouds, "order", lambda _, __, clouds: sorted(clouds)):
        here.thread.start()
        here.wait_for(here.has(a.order))
        here.puller.look_for_branches(a.id)
        here.publish(a)
        here.wait_for(here.has(a.order))
        here.wait_for(lambda: any(call.fault == "stall" for call in here.stores[0].calls))
        here.close()
    until.set()
