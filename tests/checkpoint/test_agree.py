"""The agreement on checkpoints, by its machine alone: in whatever order things happen, whichever actions are
cut short by a crash, and whatever one member says, nothing goes that an honest device needs."""

from __future__ import annotations

import hashlib
import sqlite3
from typing import Any, Final, cast

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from msgspec.structs import replace

from hybrisfs.checkpoint.agree import Action, AgreementMachine, Compact, Find, Put, State, View, Write
from hybrisfs.checkpoint.limits import CheckpointLimits
from hybrisfs.state.checkpoints import CheckpointTable, Recorded, StoredSnapshot
from hybrisfs.state.schema import create_schema
from sync import CheckpointId, DeviceKey, Head, Members, Statement, VersionVector
from sync.checkpoint import Root, Slice

VOLUME: Final = b"v" * 16
KEYS: Final = [DeviceKey.from_seed(bytes([number]) * 32) for number in range(3)]
LIAR: Final = 2
"""Says what it likes in some lives."""
LIMITS: Final = CheckpointLimits(least_bytes=0, least_share=0.0)
peers = st.integers(0, 2)


def snapshot_of(vector: VersionVector) -> bytes:
    return hashlib.sha256(b"snapshot" + vector.encode()).digest()


class Clouds:
    """All clouds as one: roots by name."""

    def __init__(self) -> None:
        self.roots: dict[bytes, bytes] = {}
        self.down = False


class CutShortError(Exception):
    """The device crashes."""


class Device:
    """One device: what outlasts a crash, and the machine, which does not."""

    def __init__(self, number: int, clouds: Clouds) -> None:
        self.number = number
        self.key = KEYS[number]
        self.id = self.key.device_id
        self.clouds = clouds
        connection = sqlite3.connect(":memory:", isolation_level=None)
        create_schema(connection, VOLUME)
        self.table = CheckpointTable(cast("Any", connection))
        self.vector = VersionVector()
        self.shipped = 0  # the clock of its newest update on the clouds
        self.signed: set[bytes] = set()
        self.dropped = VersionVector()
        self.deposited: list[VersionVector] = []  # all that it has named
        self.heard: dict[bytes, Head] = {}
        self.serial = 0
        self.start()

    def start(self) -> None:
        at_start = [one.stored.snapshot for one in self.table.all()]
        self.machine = AgreementMachine(VOLUME, self.id, LIMITS, at_start)

    def statement(self, stated: Recorded | None) -> Statement | None:
        if stated is None or (stated.root is None and stated.vector[self.id] > self.shipped):
            return None
        self.signed.add(stated.stored.snapshot)
        return Statement.of(VOLUME, stated.vector, stated.stored.snapshot, self.key)

    def head(self) -> Head:
        self.serial += 1
        stated = self.statement(self.table.stated())
        named = self.machine.named(self.table.deposited(), None, has=False)
        return Head(VOLUME, self.id, self.serial, 0, self.vector, (), None, stated=stated, checkpoint=named)

    def view(self, members: Members) -> View:
        stated = self.table.stated()
        shipped = self.vector[self.id] <= self.shipped
        mine = self.statement(stated)
        return View(self.vector, shipped, members, list(members), stated, mine, self.table.agreed(), "clouds")

    def look(self, members: Members, now: float, most: int) -> None:
        """As the checkpointer does; a crash follows so many actions, the last of which is not reported."""
        machine, view = self.machine, self.view(members)
        for decide in (machine.to_state, machine.to_agree, machine.to_bring):
            action = decide(view, self.heard, now)
            while action is not None:
                following = self._carry_out(action, members, now, reported=most > 1)
                most -= 1
                if most == 0:
                    raise CutShortError
                action, view = following, self.view(members)

    def _carry_out(self, action: Action, members: Members, now: float, *, reported: bool) -> Action | None:
        machine, clouds = self.machine, self.clouds
        match action:
            case State(theirs):
                vector = self.vector if theirs is None else theirs.vector
                assert self.vector.covers(vector)
                snapshot = snapshot_of(vector)
                parts = (Slice(hashlib.sha256(snapshot).digest(), 1),)
                # Hints are of each device's own making.
                hints = (Slice(hashlib.sha256(snapshot + self.id).digest(), 1),)
                number = sum(clock for _, clock in self.vector.items())
                self.table.put(Recorded(StoredSnapshot(snapshot, parts, hints), vector, number))
                if reported:
                    machine.stated(now)
            case Write(row):
                if row.deposited is None:
                    check_root(row, members)
                    assert row.former is None or row.former in self.deposited
                else:
                    self.deposited.append(row.vector)
                self.table.put(row)
            case Find() | Put() | Compact() if clouds.down:
                if reported:
                    machine.failed(now, damaged=False)
            case Find(agreed, roots):
                for _, name in roots:
                    data = clouds.roots.get(name)
                    if data is not None and Root.decode(data).snapshot == agreed.stored.snapshot:
                        return machine.deposited(agreed, name)
                return machine.not_found(agreed, now)
            case Put(agreed):
                assert agreed.root is not None
                name = hashlib.sha256(agreed.root).digest()
                clouds.roots[name] = agreed.root
                return machine.deposited(agreed, name)
            case Compact(agreed):
                assert agreed.deposited is not None
                clouds.roots = {agreed.deposited: clouds.roots[agreed.deposited]}
                if agreed.former is not None:
                    self.dropped = self.dropped.merge(agreed.former)
                if reported:
                    machine.compacted(agreed, "clouds", now, done=True)
        return None


def check_root(row: Recorded, members: Members) -> None:
    """All have signed what an agreed row says."""
    assert row.root is not None
    root = Root.decode(row.root)
    root.check(VOLUME, members)
    assert set(root.evidence) == set(members)
    assert (root.snapshot, root.vector) == (row.stored.snapshot, row.vector)


class Agreeing(RuleBasedStateMachine):
    """Up to three devices, one of which may lie."""

    @initialize(count=st.integers(1, 3), lies=st.booleans())
    def begin(self, count: int, lies: bool) -> None:
        self.lies = lies and count > LIAR
        self.now = 0.0
        self.clouds = Clouds()
        self.devices = [Device(number, self.clouds) for number in range(count)]
        self.members = Members(key.public for key in KEYS[:count])
        self.heads: dict[bytes, Head] = {}  # on the clouds

    @property
    def honest(self) -> list[Device]:
        return [one for one in self.devices if not (self.lies and one.number == LIAR)]

    def _device(self, number: int) -> Device:
        return self.devices[number % len(self.devices)]

    @rule(number=peers)
    def write(self, number: int) -> None:
        device = self._device(number)
        device.vector = device.vector.with_entry(device.id, device.vector[device.id] + 1)

    @rule(number=peers)
    def ship(self, number: int) -> None:
        device = self._device(number)
        device.shipped = device.vector[device.id]

    @rule(sender=peers, receiver=peers)
    def send(self, sender: int, receiver: int) -> None:
        """The receiver accepts all that the sender has."""
        one = self._device(receiver)
        one.vector = one.vector.merge(self._device(sender).vector)

    @rule(number=peers)
    def announce(self, number: int) -> None:
        device = self._device(number)
        if not self.clouds.down:
            head = self.heads[device.id] = device.head()
            device.machine.head_put(head.checkpoint)

    @rule(reader=peers, writer=peers)
    def hear(self, reader: int, writer: int) -> None:
        head = self.heads.get(self._device(writer).id)
        if head is not None:
            self._device(reader).heard[head.writer] = head

    @rule(number=peers)
    def hurry(self, number: int) -> None:
        self._device(number).machine.hurry()

    @rule(down=st.booleans())
    def clouds_go(self, down: bool) -> None:
        self.clouds.down = down

    @rule(seconds=st.sampled_from([1.0, 15.0, 70.0, 700.0]))
    def wait(self, seconds: float) -> None:
        self.now += seconds

    @rule(number=peers, most=st.sampled_from([1, 2, 3, 99, 99, 99]))
    def look(self, number: int, most: int) -> None:
        try:
            self._device(number).look(self.members, self.now, most)
        except CutShortError:
            self._device(number).start()

    @rule(other=st.integers(0, 1), state=st.sampled_from(["its own", "false", "stolen"]))
    def lie(self, other: int, state: str) -> None:
        """The liar states what it likes at the vector of another device, and names what it likes."""
        if not self.lies:
            return
        liar, victim = self.devices[LIAR], self.devices[other]
        head = liar.head()
        stated = self.heads[victim.id].stated if victim.id in self.heads else None
        if state != "stolen":
            snapshot = b"?" * 32 if state == "false" else snapshot_of(victim.vector)
            stated = Statement.of(VOLUME, victim.vector, snapshot, liar.key)
        named = CheckpointId(b"!" * 32, stated.snapshot) if stated is not None else None
        self.heads[liar.id] = replace(head, stated=stated, checkpoint=named)

    @rule(rounds=st.integers(1, 6))
    def rest(self, rounds: int) -> None:
        """All goes well for a while."""
        self.clouds.down = False
        for _ in range(rounds):
            for number in range(len(self.devices)):
                self.ship(number)
                for other in range(len(self.devices)):
                    self.send(other, number)
                    self.hear(number, other)
                self.look(number, 99)
                if not (self.lies and number == LIAR):
                    self.announce(number)
            self.now += 700.0

    @invariant()
    def what_is_agreed_all_have_signed(self) -> None:
        for device in getattr(self, "devices", ()):
            for row in device.table.all():
                if row.root is not None:
                    assert all(row.stored.snapshot in one.signed for one in self.honest)

    @invariant()
    def what_is_dropped_all_have(self) -> None:
        for device in getattr(self, "devices", ()):
            assert all(one.vector.covers(device.dropped) for one in self.honest)
            if len(device.dropped):
                assert any(
                    Root.decode(one).vector.covers(device.dropped) for one in self.clouds.roots.values()
                )

    @invariant()
    def what_is_named_is_there(self) -> None:
        for device in getattr(self, "devices", ()):
            if device in self.honest:
                named = device.table.deposited()
                assert named is None or named.deposited in self.clouds.roots

    @invariant()
    def what_heads_on_the_clouds_name_is_there(self) -> None:
        for device in self.honest if hasattr(self, "devices") else ():
            head = self.heads.get(device.id)
            if head is not None and head.checkpoint is not None:
                assert head.checkpoint.root in self.clouds.roots

    def teardown(self) -> None:
        """When all is well again, and nobody lies, there is a checkpoint of all that is there."""
        if not hasattr(self, "devices") or self.lies:
            return
        self.rest(8)
        whole = self.devices[0].vector
        for device in self.devices:
            agreed = device.table.agreed()
            assert not len(whole) or (agreed is not None and agreed.vector == whole and agreed.deposited)
            assert device.machine.alarm is None
            named = device.head().checkpoint
            assert agreed is None or (named is not None and named.snapshot == agreed.stored.snapshot)


TestAgreeing = Agreeing.TestCase


def test_who_has_stated_something_newer_removes_nothing() -> None:
    """Others may have put that on the clouds by now, though the heads that are known here do not say so."""
    world = Agreeing()
    world.begin(2, lies=False)
    world.write(0)
    world.rest(6)
    first, second = world.devices
    former = dict(first.heard)
    world.write(0)
    world.send(0, 1)
    for number in (0, 1):
        world.ship(number)
        world.hurry(number)
        world.look(number, 99)
    first.heard = former
    world.announce(0)
    world.hear(1, 0)
    world.wait(700.0)
    world.look(1, 99)
    named = second.table.deposited()
    assert named is not None and named.vector == second.vector, "it has agreed, and put that on the clouds"
    first.start()  # it does not know that all was as it should be
    world.look(0, 99)
    world.what_is_named_is_there()


def test_nothing_goes_that_the_own_head_on_the_clouds_still_names() -> None:
    """They may take no object and delete all the same; a machine that is let in by that head needs it."""
    world = Agreeing()
    world.begin(1, lies=False)
    world.write(0)
    world.rest(3)
    world.write(0)
    world.ship(0)
    world.hurry(0)
    (device,) = world.devices
    for _ in range(3):
        world.look(0, 99)
    named = device.table.deposited()
    assert named is not None and named.vector == device.vector
    world.what_heads_on_the_clouds_name_is_there()
    world.announce(0)
    world.look(0, 99)
    assert list(world.clouds.roots) == [named.deposited]
