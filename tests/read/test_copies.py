"""Copies that labels ask for: who keeps a folder, what others then let go, and that no copy is missed."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from hybrisfs.environment import Environment
from hybrisfs.read.copies import CopiesLimits, Machine, Stage, choose, room_of
from hybrisfs.registers.labels import copies_asked, copies_label
from sync import Head, Hoard
from tests.merge.fleet import Device, Fleet
from tests.surroundings import limited
from tests.tree.rig import SMALL_BLOCKS, VOLUME

HOUR = 3600 * 10**9
AT_ONCE = CopiesLimits(settled=0.0)
_serials = count(1)


def surroundings(_: int) -> Environment:
    return limited(AT_ONCE, SMALL_BLOCKS)


@pytest.fixture
def fleet() -> Iterator[Fleet]:
    one = Fleet(3, environment=surroundings)
    yield one
    one.discard()


def ask(device: Device, path: str, copies: int) -> None:
    with device.rig.fs.state.transaction() as tx:
        device.rig.fs.labels.ask_for_copies(tx, device.at(path), copies)


def look(device: Device) -> None:
    """Decide, bring what is missing, and see that it is there."""
    for _ in range(3):
        device.rig.reading.pinner.pin_round()
    device.rig.commit()


def head_of(device: Device) -> Head:
    """What the device states."""
    rig = device.rig
    with rig.fs.state.transaction() as tx:
        holdings, vector = rig.reading.copies.holdings(tx), tx.updates.state.vector
    rig.commit()
    time_ns = rig.environment.time_ns()
    return Head(VOLUME, device.member.device, next(_serials), time_ns, vector, (), None, holdings=holdings)


def tell(fleet: Fleet, sender: int) -> None:
    head = head_of(fleet[sender])
    for number, device in enumerate(fleet.devices):
        if number != sender:
            device.rig.reading.copies.hear(head)


def ship(device: Device) -> None:
    """The clouds have all that the device has signed."""
    device.sign()
    with device.rig.fs.state.transaction() as tx:
        tx.pending.ship(tx.updates.state.vector[device.member.device])
    device.rig.commit()


def spread(fleet: Fleet) -> None:
    """All hear of all that there is, and the clouds have it."""
    fleet.meet()
    for device in fleet.devices:
        ship(device)


def settle(fleet: Fleet) -> None:
    for _ in range(2):
        for number, device in enumerate(fleet.devices):
            look(device)
            tell(fleet, number)


def evict(device: Device) -> None:
    device.rig.room.drop_all()


def has(device: Device, path: str) -> bool:
    """Whether the bytes of a file are on the device."""
    lacking = device.rig.db.rows.execute(
        "SELECT 1 FROM file_chunk f JOIN chunk c ON c.number = f.chunk WHERE f.ino = ? AND c.segment IS NULL",
        (device.at(path).ino,),
    ).fetchone()
    return lacking is None


def holders(fleet: Fleet, path: str) -> list[int]:
    return [number for number, device in enumerate(fleet.devices) if has(device, path)]


# -- labels, and who is chosen ---------------------------------------------------------------------------


def test_labels_ask_for_copies() -> None:
    assert copies_label(2) == "copies=2"
    assert copies_asked(["copies=2", "taxes", "copies=3"]) == 3
    assert copies_asked(["copies=0", "copies=x", "copies=33", "copies=07", "Copies=2", "taxes"]) == 0


def machine(number: int, hoard: Hoard = Hoard.ASKED, room: int = 30, stage: Stage = Stage.NONE) -> Machine:
    return Machine(bytes([number]) * 16, hoard, room, stage)


def test_who_has_it_comes_before_who_keeps_everything_and_who_has_more_room() -> None:
    whole, coming = machine(9, stage=Stage.WHOLE), machine(8, stage=Stage.COMING)
    everything, roomy, first = machine(7, Hoard.ALL), machine(6, room=31), machine(1)
    order = [one.device for one in (whole, coming, everything, roomy, first, machine(2))]
    assert choose([machine(2), first, roomy, everything, coming, whole], 6) == order
    assert choose([machine(2), first, roomy], 2) == [roomy.device, first.device]


@given(st.integers(-5, 1 << 66), st.integers(0, 1 << 66))
def test_room_is_never_said_to_be_more_than_there_is(room: int, size: int) -> None:
    if machine(1, room=room_of(room)).may_take(size):
        assert size <= room
    assert not machine(1, Hoard.NONE, room_of(room), Stage.WHOLE).may_take(0)


# -- several devices ---------------------------------------------------------------------------------------


def test_a_folder_comes_to_as_many_devices_as_are_asked_for(fleet: Fleet) -> None:
    fleet[0].mkdir("photos")
    fleet[0].write("photos/one", b"first")
    ask(fleet[0], "photos", 2)
    spread(fleet)
    settle(fleet)
    assert len(holders(fleet, "photos/one")) == 2
    found = fleet[0].rig.reading.copies.folders
    assert [(len(one.whole), one.folder.copies, one.short) for one in found] == [(2, 2, False)]
    fleet[0].write("photos/two", b"second")  # what comes by the log is fetched at once
    spread(fleet)
    settle(fleet)
    assert len(holders(fleet, "photos/two")) == 2
    assert holders(fleet, "photos/one") == holders(fleet, "photos/two")


def test_what_a_device_happens_to_have_stays_until_the_others_state_that_they_have_it(fleet: Fleet) -> None:
    fleet[0].mkdir("photos")
    ask(fleet[0], "photos", 1)
    spread(fleet)
    fleet[1].rig.reading.copies.hoard = Hoard.ALL
    settle(fleet)
    fleet[0].rig.around.ahead_ns = 0
    fleet[2].write("photos/new", b"only on the third")
    spread(fleet)
    look(fleet[2])
    evict(fleet[2])
    assert has(fleet[2], "photos/new")
    look(fleet[1])
    assert has(fleet[1], "photos/new")
    look(fleet[2])
    evict(fleet[2])
    assert has(fleet[2], "photos/new")  # the second has it, and has not said so
    tell(fleet, 1)
    look(fleet[2])
    evict(fleet[2])
    assert holders(fleet, "photos/new") == [1]


def test_what_was_moved_into_the_folder_is_not_held_by_an_earlier_statement(fleet: Fleet) -> None:
    fleet[0].mkdir("photos")
    fleet[0].mkdir("album")
    fleet[0].write("album/one", b"content")
    ask(fleet[0], "photos", 1)
    spread(fleet)
    for device in fleet.devices[1:]:
        device.rig.reading.copies.hoard = Hoard.NONE
    fleet[1].rig.reading.copies.hoard = Hoard.ALL
    settle(fleet)
    fleet[0].rig.reading.copies.hoard = Hoard.ASKED
    assert [one.folder.copies for one in fleet[0].rig.reading.copies.folders] == [1]
    fleet[0].rig.around.ahead_ns = 25 * HOUR
    fleet[1].rig.around.ahead_ns = 25 * HOUR
    tell(fleet, 1)
    fleet[0].move("album", "photos/album")
    ship(fleet[0])
    look(fleet[0])
    evict(fleet[0])
    assert has(fleet[0], "photos/album/one")
    spread(fleet)
    look(fleet[1])
    tell(fleet, 1)
    look(fleet[0])
    evict(fleet[0])
    assert holders(fleet, "photos/album/one") == [1]


def test_what_a_device_has_stated_it_keeps_for_a_day(fleet: Fleet) -> None:
    fleet[0].mkdir("photos")
    fleet[0].write("photos/one", b"content")
    ask(fleet[0], "photos", 1)
    spread(fleet)
    look(fleet[0])
    tell(fleet, 0)
    fleet[1].rig.reading.copies.hoard = Hoard.ALL
    look(fleet[1])
    tell(fleet, 1)
    fleet[0].rig.reading.copies.hoard = Hoard.NONE
    look(fleet[0])
    evict(fleet[0])
    assert has(fleet[0], "photos/one")
    fleet[0].rig = fleet[0].rig.crashed()
    fleet[0].rig.reading.copies.hoard = Hoard.NONE
    look(fleet[0])
    evict(fleet[0])
    assert has(fleet[0], "photos/one")
    fleet[0].rig.around.ahead_ns = 26 * HOUR
    look(fleet[0])
    evict(fleet[0])
    assert holders(fleet, "photos/one") == [1]


def test_too_few_fresh_statements_free_nothing(fleet: Fleet) -> None:
    fleet[0].mkdir("photos")
    fleet[0].write("photos/one", b"content" * 100)
    ask(fleet[0], "photos", 2)
    spread(fleet)
    fleet[1].rig.reading.copies.hoard = Hoard.ALL
    settle(fleet)
    fleet[2].read("photos/one")
    fleet[2].rig.around.ahead_ns = fleet[1].rig.around.ahead_ns = 13 * HOUR
    tell(fleet, 1)  # and the first has been silent for half a day
    look(fleet[2])
    evict(fleet[2])
    assert has(fleet[2], "photos/one")
    fleet[0].rig.around.ahead_ns = 13 * HOUR
    tell(fleet, 0)
    look(fleet[2])
    evict(fleet[2])
    assert holders(fleet, "photos/one") == [0, 1]


def test_what_has_yet_to_come_is_not_stated(fleet: Fleet) -> None:
    fleet[0].mkdir("photos")
    fleet[0].write("photos/one", b"content" * 100)
    ask(fleet[0], "photos", 1)
    spread(fleet)
    fleet[1].rig.reading.copies.hoard = Hoard.ALL
    settle(fleet)
    fleet[2].write("photos/new", b"later" * 100)
    spread(fleet)
    fleet.clouds.down = True
    look(fleet[1])
    tell(fleet, 1)
    look(fleet[2])
    evict(fleet[2])
    assert has(fleet[2], "photos/new")
    stated = head_of(fleet[1]).holdings
    assert stated is not None
    assert all(whole for _, whole in stated.nodes)  # as of an earlier vector, for a while
    fleet[1].rig.around.passed = 601.0
    look(fleet[1])
    stated = head_of(fleet[1]).holdings
    assert stated is not None
    assert not any(whole for _, whole in stated.nodes)


def test_a_device_that_is_silent_for_a_week_is_replaced(fleet: Fleet) -> None:
    fleet[0].mkdir("photos")
    fleet[0].write("photos/one", b"content")
    ask(fleet[0], "photos", 2)
    spread(fleet)
    settle(fleet)
    [other] = [number for number in (1, 2) if number not in holders(fleet, "photos/one")]
    for device in fleet.devices:
        device.rig.around.ahead_ns = 8 * 24 * HOUR
    tell(fleet, 0)
    tell(fleet, other)
    look(fleet[other])
    assert has(fleet[other], "photos/one")


def test_a_device_without_room_is_not_chosen_and_keeps_room_for_writers(fleet: Fleet) -> None:
    fleet[0].mkdir("photos")
    fleet[0].write("photos/one", bytes(range(256)) * 64)
    ask(fleet[0], "photos", 1)
    fleet[0].rig.journal.budget = 20_000  # 80 % of it are less than the folder has
    spread(fleet)
    settle(fleet)
    stated = head_of(fleet[0]).holdings
    assert stated is not None
    assert stated.nodes == ()
    assert set(holders(fleet, "photos/one")) & {1, 2}


def test_a_device_without_room_for_everything_says_so(fleet: Fleet) -> None:
    fleet[0].write("large", bytes(range(256)) * 64)
    spread(fleet)
    copies = fleet[1].rig.reading.copies
    copies.hoard = Hoard.ALL
    fleet[1].rig.journal.budget = 20_000
    look(fleet[1])
    assert copies.is_overfull
    assert not has(fleet[1], "large")
    fleet[1].rig.journal.budget = 40_000
    look(fleet[1])
    assert not copies.is_overfull
    assert has(fleet[1], "large")


def test_precious_content_goes_when_there_is_no_other_room(fleet: Fleet) -> None:
    fleet[0].mkdir("photos")
    fleet[0].write("photos/one", bytes(range(256)) * 64)
    ask(fleet[0], "photos", 3)
    spread(fleet)
    fleet[0].rig.journal.budget = 20_000
    look(fleet[0])
    evict(fleet[0])
    assert has(fleet[0], "photos/one")
    assert fleet[0].rig.room.wait_for_room(10_000)
    assert not has(fleet[0], "photos/one")
    fleet[0].read("photos/one")


def test_too_few_copies_are_told_of_after_a_while(fleet: Fleet) -> None:
    fleet[0].mkdir("photos")
    fleet[0].write("photos/one", b"content")
    ask(fleet[0], "photos", 3)
    ship(fleet[0])
    look(fleet[0])
    assert not fleet[0].rig.reading.copies.folders[0].short
    fleet[0].rig.around.passed = 601.0
    look(fleet[0])
    [found] = fleet[0].rig.reading.copies.folders
    assert found.short
    assert found.whole == (fleet[0].member.device,)


def test_where_a_file_is(fleet: Fleet) -> None:
    fleet[0].mkdir("photos")
    fleet[0].write("photos/one", b"content")
    ask(fleet[0], "photos", 3)
    spread(fleet)
    settle(fleet)
    fleet[0].write("photos/two", b"later")
    copies, tx = fleet[0].rig.reading.copies, fleet[0].rig.tx
    folder = fleet[0].at("photos").ino
    fleet[0].rig.commit()
    others = sorted(one.member.device for one in fleet.devices[1:])
    assert copies.holders(tx, fleet[0].at("photos/one").ino, folder) == others
    assert copies.holders(tx, fleet[0].at("photos/two").ino, folder) == []


def test_when_nobody_asks_heads_say_nothing(fleet: Fleet) -> None:
    look(fleet[0])
    assert head_of(fleet[0]).holdings is None
    fleet[0].mkdir("photos")
    ask(fleet[0], "photos", 1)
    look(fleet[0])
    assert head_of(fleet[0]).holdings is not None
    ask(fleet[0], "photos", 0)
    look(fleet[0])
    assert head_of(fleet[0]).holdings is None


# -- whatever happens, nothing goes for whose sake others are relied on wrongly -----------------------------

FILES = ("photos/a", "photos/b", "photos/album/c", "other/d", "other/album/e")
DEVICES = 3
_CHUNKS = "SELECT c.id, c.segment FROM file_chunk f JOIN chunk c ON c.number = f.chunk WHERE f.ino = ?"
numbers = st.integers(0, DEVICES - 1)


class CopiesMachine(RuleBasedStateMachine):
    """Devices that state the truth, late and out of order. When one evicts a file of the folder, at least as
    many others have it as copies are asked for, or have heard that the folder no longer shows it."""

    @initialize(copies=st.integers(1, 2))
    def begin(self, copies: int) -> None:
        self.copies = copies
        self.fleet = Fleet(DEVICES, environment=surroundings)
        self.heads: list[Head] = []
        self.written = count(1)
        for folder in ("photos", "photos/album", "other", "other/album"):
            self.fleet[0].mkdir(folder)
        for path in FILES:
            self.fleet[0].write(path, path.encode() * 10)
        ask(self.fleet[0], "photos", copies)
        spread(self.fleet)
        settle(self.fleet)
        self.let_time_pass(26)  # nobody is bound any more by what it has stated at first
        settle(self.fleet)

    def teardown(self) -> None:
        if hasattr(self, "fleet"):
            self.fleet.discard()

    @rule(number=numbers, path=st.sampled_from(FILES))
    def write(self, number: int, path: str) -> None:
        device = self.fleet[number]
        folder = path.rpartition("/")[0]
        if folder in device.walk():
            device.write(path, b"%d" % next(self.written) * 50)

    @rule(number=numbers, path=st.sampled_from((*FILES, "other/album")), to=st.sampled_from(FILES))
    def move(self, number: int, path: str, to: str) -> None:
        found = self.fleet[number].walk()
        to = "photos/moved" if path == "other/album" else to
        if path in found and to not in found and to.rpartition("/")[0] in found:
            self.fleet[number].move(path, to)

    @rule(number=numbers)
    def ship(self, number: int) -> None:
        ship(self.fleet[number])

    @rule(sender=numbers, receiver=numbers)
    def send(self, sender: int, receiver: int) -> None:
        if sender != receiver:
            ship(self.fleet[sender])
            self.fleet.send(sender, receiver)

    @rule(number=numbers)
    def look(self, number: int) -> None:
        self.fleet[number].rig.reading.pinner.pin_round()

    @rule(number=numbers)
    def look_and_tell(self, number: int) -> None:
        look(self.fleet[number])
        tell(self.fleet, number)

    @rule(number=numbers)
    def state(self, number: int) -> None:
        self.heads.append(head_of(self.fleet[number]))

    @rule(data=st.data(), receiver=numbers)
    def hear(self, data: st.DataObject, receiver: int) -> None:
        if self.heads:
            head = data.draw(st.sampled_from(self.heads))
            if head.writer != self.fleet[receiver].member.device:
                self.fleet[receiver].rig.reading.copies.hear(head)

    @rule(number=numbers, hoard=st.sampled_from((Hoard.ASKED,) * 4 + (Hoard.ALL, Hoard.NONE)))
    def set_hoard(self, number: int, hoard: Hoard) -> None:
        self.fleet[number].rig.reading.copies.hoard = hoard

    @rule(hours=st.sampled_from((1, 11, 13, 26)))
    def let_time_pass(self, hours: int) -> None:
        for device in self.fleet.devices:
            device.rig.around.ahead_ns += hours * HOUR

    @rule(number=numbers)
    def crash(self, number: int) -> None:
        device = self.fleet[number]
        hoard = device.rig.reading.copies.hoard
        device.rig.commit()
        device.rig = device.rig.crashed()
        device.rig.reading.copies.hoard = hoard

    @rule(number=numbers)
    def read_all(self, number: int) -> None:
        for path, inode in self.fleet[number].walk().items():
            if inode.is_file and path.startswith("photos/"):
                self.fleet[number].content(inode)

    @rule(number=numbers)
    def evict(self, number: int) -> None:
        device = self.fleet[number]
        if device.rig.reading.copies.hoard is Hoard.NONE:
            return
        device.rig.reading.pinner.pin_round()
        before = self.contents_here(device)
        evict(device)
        gone = before - self.contents_here(device)
        for content in gone:
            others = [one for one in self.fleet.devices if one is not device]
            kept = [
                one for one in others if content in self.contents_here(one) or not self.shows(one, content)
            ]
            assert len(kept) >= self.copies, (number, content)

    def contents_here(self, device: Device) -> set[bytes]:
        """The chunks that files of the folder show, and that are on the device."""
        return {chunk for chunk, segment in self.chunks(device) if segment is not None}

    def shows(self, device: Device, content: bytes) -> bool:
        """Whether the folder shows it, or might when what the device has yet to hear of has come."""
        return content in {chunk for chunk, _ in self.chunks(device)} or not self.has_heard_of(
            device, content
        )

    def has_heard_of(self, device: Device, content: bytes) -> bool:
        return (
            device.rig.db.rows.execute("SELECT 1 FROM chunk WHERE id = ?", (content,)).fetchone() is not None
        )

    def chunks(self, device: Device) -> list[tuple[bytes, int | None]]:
        found = []
        with device.rig.fs.state.transaction() as tx:
            device.rig.fs.flush(tx)
            for path, inode in device.walk().items():
                if inode.is_file and path.startswith("photos/"):
                    found += device.rig.db.rows.execute(_CHUNKS, (inode.ino,)).fetchall()
        return found


TestCopiesMachine = CopiesMachine.TestCase
TestCopiesMachine.settings = settings(stateful_step_count=40)
