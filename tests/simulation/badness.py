"""Members that turn bad, in a third of all seeds: what they do, what honest people do about it, and what must
hold then.

What is as in the real thing: signing, the log, registers, epochs and their grants, heads and segments on
clouds, deletion with everybody's consent, room that is made. What is not: packs are on clouds that neither
lie nor fail; which clouds there are follows from no register, and there are no signposts; nothing is mounted
or mirrored; chunks are sealed with one key.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from random import Random
from typing import TYPE_CHECKING, Final, NamedTuple

from hybrisfs.environment import SYSTEM
from hybrisfs.keys import VolumeKeys
from hybrisfs.kinds import ASSIGNMENT, ROLE
from hybrisfs.members.removal import Stance
from hybrisfs.members.roles import Area, Role
from hybrisfs.merge.brake import WINDOW
from hybrisfs.recovery.record import KitRecord, kit_key, signed_kit_key
from hybrisfs.registers.node_id import born_in
from hybrisfs.registers.tree import Place, is_of_tree
from hybrisfs.registers.values import Stamp
from hybrisfs.settings.config import DEFAULT_DELETION_SHARE
from sync import DecodeError, Members
from sync.log import most_branches
from tests.gc.support import Collecting
from tests.merge.fleet import Device, member_of
from tests.simulation.turncoat import Turncoat

if TYPE_CHECKING:
    from tests.simulation.simulator import Simulation

__all__ = ["Badness"]

_SEEDS: Final = 1 / 3  # of all
_MISBEHAVE_EVERY: Final = 6.0  # virtual seconds, on average
_AGAIN: Final = 0.15  # how often it tells all that it has told before
_EVICT_EVERY: Final = 25.0
_HOLD_EVERY: Final = 20.0
_COLLECT_EVERY: Final = 40.0
_ADVANCE_EVERY: Final = 20.0
_RESTRICTED: Final = 0.3  # of those who turn bad are made readers or contributors at that moment
_READERS: Final = 0.5  # of these
_LOCK_OUT: Final = 0.3  # of those who turn bad alone say then that all others only read
_MANY: Final = 60  # files
_STRANGERS: Final = 6  # that a person has the patience to remove
_FEW: Final = 50  # names that anybody may remove
_LEAST_ROW: Final = 4  # bytes of updates for each row that comes of them
_OWN_ROWS: Final = 1000


class _Unpacked(NamedTuple):
    """What a device showed when it made many files."""

    at: float  # by its monotonic clock
    made: frozenset[bytes]  # by itself, there and then
    shown: frozenset[bytes]

    def seen(self, now: float) -> frozenset[bytes]:
        """What its people have surely seen: what came from others not long ago may have been taken away
        before it came, for all that is known (`hybrisfs.merge.losses`)."""
        return self.shown if now - self.at >= WINDOW else self.made


class Badness:
    """The bad members of one simulation. All of it follows from the seed, by chances of its own."""

    def __init__(self, simulation: Simulation, seed: int, kinds: Sequence[str]) -> None:
        self._simulation = simulation
        self._chance = Random(f"bad {seed}")
        self._kinds = kinds
        self._members: dict[int, Turncoat] = {}
        self._turns: list[tuple[float, int]] = []  # when who turns bad
        self._removed: dict[int, int] = {}  # the bad ones, and the honest devices that said so
        self._told: dict[tuple[bytes, int], set[bytes]] = {}  # updates, by who told whom
        if self._chance.random() < _SEEDS:
            count = 2 if simulation.count > 2 and self._chance.random() < 0.2 else 1
            devices = self._chance.sample(range(simulation.count), count)
            self._turns = [(simulation.seconds * self._chance.uniform(0.1, 0.8), one) for one in devices]
        self._count = len(self._turns)
        self.collects = bool(self._turns) and simulation.liar is None and self._chance.random() < 0.6
        """Whether devices delete what nobody needs; then none is restored from a backup."""
        self._removes = self._chance.random() < 0.7
        self._large = self._chance.random() < 0.1
        self._unpacked: dict[int, _Unpacked] = {}
        self._restricting = Random(f"reader {seed}")
        self._restricts = self._restricting.random() < _RESTRICTED
        self._limits: dict[int, Area] = {}  # to which the members are limited
        self._locks_out = self._count == 1 and Random(f"coup {seed}").random() < _LOCK_OUT
        turning = {number for _, number in self._turns}
        self._founder = min(set(range(simulation.count)) - turning, default=0)
        if self._turns and (self._restricts or self._locks_out):
            others = set(range(simulation.count)) - {self._founder}
            simulation.world.fleet.tell_who_came_by_whom(dict.fromkeys(sorted(others), self._founder))

    def plan(self) -> Iterator[tuple[float, Callable[[], None]]]:
        """What happens now and then in this life: mean seconds between two times, and what."""
        if not self._turns:
            return
        yield _MISBEHAVE_EVERY, self._misbehave
        yield _EVICT_EVERY, self._evict
        yield _HOLD_EVERY, self._hold_uploads
        if self.collects:
            yield _COLLECT_EVERY, self._collect
            yield _ADVANCE_EVERY, self._advance
        if self._removes:
            yield self._simulation.seconds / 2, self._remove_somewhere

    # -- turning bad -----------------------------------------------------------------------------

    def turn(self, now: float) -> None:
        """Whoever is to have turned bad by now does."""
        for turn in [one for one in self._turns if one[0] <= now]:
            self._turns.remove(turn)
            self._turn(turn[1])

    def _turn(self, number: int) -> None:
        simulation = self._simulation
        device = simulation.world.fleet[number]
        if self._large:
            self._unpack(self._chance.choice([one for one in simulation.honest if one != number]))
        simulation.remember_bodies()
        rows = device.rig.db.rows.execute("SELECT hash, bytes FROM log ORDER BY number").fetchall()
        log = [data if data is not None else simulation.bodies[identity] for identity, data in rows]
        others = [member_of(other) for other in range(simulation.count) if other != number]
        if simulation.liar is not None:
            others.append(simulation.liar.member)
        self._members[number] = Turncoat(Random(self._chance.random()), others, device, log, self._kinds)
        # Two of two, and two that conspire, can remove another one for good.
        vetoers = simulation.count - self._count - (simulation.liar is not None)
        self._members[number].forger.removes = self._count == 1 and vetoers > 1
        simulation.world.bad.add(number)
        simulation.note(f"{number} turns bad")
        # It may keep from the others that it has removed one: somebody honest is to do so again.
        self._removed = {bad: by for bad, by in self._removed.items() if by != number}
        if self._restricts:
            self._restrict(self._founder, number)
        if self._locks_out:
            self._members[number].lock_out()

    def _restrict(self, number: int, bad: int) -> None:
        folders: list[str] = []
        if self._restricting.random() >= _READERS and not self._limits:
            self._simulation.world.mkdir(number, self._restricting.randrange(8), 0)
            tree = self._simulation.world.fleet[number].walk()
            folders = sorted(path for path, one in tree.items() if one.is_directory)
        if folders:
            self._make_contributor(number, bad, self._restricting.choice(folders))
        else:
            self._make_reader(number, bad)

    def _make_contributor(self, number: int, bad: int, folder: str) -> None:
        """A person on an honest device says that the bad one may change this folder only."""
        simulation = self._simulation
        simulation.note(f"{number} limits {bad} to {folder!r}")
        sharing = simulation.world.fleet[number].rig.sharing
        rights = sharing.shared_folders.rights([folder], reader=False)
        (self._limits[bad],) = rights.areas
        sharing.roles.set(self._members[bad].id.hex(), rights)
        simulation.world.received(number)
        simulation.world.commit(number)

    def _make_reader(self, number: int, bad: int) -> None:
        """A person on an honest device says that the bad one only reads."""
        simulation = self._simulation
        simulation.note(f"{number} makes a reader of {bad}")
        device = simulation.world.fleet[number]
        device.rig.sharing.membership.set_role(self._members[bad].id.hex(), Role.READER)
        simulation.world.received(number)
        simulation.world.commit(number)

    def _unpack(self, number: int) -> None:
        """A program makes many files."""
        self._simulation.note(f"{number} makes many files")
        device = self._simulation.world.fleet[number]
        before = _shown(device)
        self._simulation.world.write_many(number, _MANY)
        self._simulation.world.sign(number)
        shown = _shown(device)
        self._unpacked[number] = _Unpacked(self._simulation.clocks.monotonic(number), shown - before, shown)

    # -- what it does ----------------------------------------------------------------------------

    def talk(self, pair: tuple[int, int]) -> None:
        """A bad member has a link with another one."""
        number = next(one for one in pair if one in self._members)
        other = pair[0] if pair[1] == number else pair[1]
        if other in self._members:
            return
        member = self._members[number]
        if self._chance.random() < 0.7:
            self._simulation.world.commit(other)
            member.hear(self._simulation.world.fleet[other].log())
        self._tell(member, other)

    def _misbehave(self) -> None:
        if not self._members:
            return
        simulation, chance = self._simulation, self._chance
        member = self._members[chance.choice(sorted(self._members))]
        one, other = chance.choice(simulation.honest), chance.choice(simulation.honest)
        match chance.randrange(6):
            case 0:
                simulation.world.commit(one)
                member.hear(simulation.world.fleet[one].log())
            case 1:
                simulation.note(f"{member.name}, which is bad, puts a head on the clouds")
                member.put_head(simulation.clouds, simulation.clocks.time_ns())
            case 2:
                for receiver, log in zip((one, other), member.fork(), strict=True):
                    self._hand(member, receiver, log)
            case _:
                self._tell(member, one)

    def _tell(self, member: Turncoat, receiver: int) -> None:
        told, again = self._told.setdefault((member.id, receiver), set()), self._chance.random() < _AGAIN
        updates = [one for one in member.tell() if again or one not in told]
        told.update(updates)
        if self._chance.random() < 0.2:
            self._chance.shuffle(updates)
        self._hand(member, receiver, updates)

    def _hand(self, member: Turncoat, receiver: int, updates: list[bytes]) -> None:
        simulation = self._simulation
        for words in member.words:
            simulation.note(words)
        member.words.clear()
        device = simulation.world.fleet[receiver]
        unpacked = None if receiver in simulation.restored else self._unpacked.get(receiver)
        if unpacked is None:
            simulation.hand(receiver, updates, f"{member.name}, which is bad,")
            return
        before = unpacked.seen(self._simulation.clocks.monotonic(receiver)) & _shown(device)
        (names,) = device.rig.db.rows.execute("SELECT count(*) FROM place").fetchone()
        simulation.hand(receiver, updates, f"{member.name}, which is bad,")
        lost = before - _shown(device)
        held = device.rig.sharing.deletions.all()
        much = len(lost) > max(_FEW, DEFAULT_DELETION_SHARE * names)
        assert held or not much, f"{len(lost)} nodes vanish with {names} names, and nobody is asked"

    # -- what honest devices and people do -------------------------------------------------------

    def _evict(self) -> None:
        """A device lets go of all that it believes to be on the clouds."""
        number = self._chance.choice(self._simulation.honest)
        self._simulation.note(f"{number} evicts")
        self._simulation.world.commit(number)
        self._simulation.world.fleet[number].rig.room.drop_all()

    def _hold_uploads(self) -> None:
        """Somebody pauses the uploads of a device, or lets them go on."""
        number = self._chance.choice(self._simulation.honest)
        device = self._simulation.world.fleet[number]
        device.holds_uploads = not device.holds_uploads
        self._simulation.note(f"{number} {'pauses' if device.holds_uploads else 'resumes'} its uploads")

    def _collect(self) -> None:
        number = self._chance.choice(self._simulation.honest)
        self._simulation.note(f"{number} looks for what nobody needs")
        Collecting(self._simulation.world.fleet[number]).look()
        self._simulation.world.received(number)

    def _advance(self) -> None:
        number = self._chance.choice(self._simulation.honest)
        self._simulation.note(f"{number} answers what others propose to delete")
        collecting = Collecting(self._simulation.world.fleet[number])
        collecting.step()
        self._simulation.world.commit(number)
        collecting.disposer.run(lambda: True)
        self._simulation.world.received(number)

    def _remove_somewhere(self) -> None:
        candidates = sorted(self._members.keys() - self._removed)
        if candidates:
            self._remove(self._chance.choice(self._simulation.honest), self._chance.choice(candidates))

    def _remove(self, number: int, bad: int) -> None:
        """A person on an honest device removes the bad one, and some more that he does not know."""
        simulation = self._simulation
        device = simulation.world.fleet[number]
        if not device.rig.sharing.signer.may_sign(device.rig.tx):
            return  # somebody has accused it: another one says so then
        simulation.note(f"{number} removes {bad}")
        known = {one.key.device_id for one in simulation.world.honest}
        if simulation.liar is not None:
            known.add(simulation.liar.id)
        sharing = device.rig.sharing
        membership, members = sharing.membership, device.rig.tx.members
        tried: set[bytes] = set()
        if self._members[bad].id in _yet_to_second(device):
            # Whoever accuses it may turn bad, and take that back.
            membership.remove(self._members[bad].id.hex())
        for _ in range(_STRANGERS):
            strangers = [one for one in members.all() if one.device not in known | tried]
            if strangers:
                strangers.sort(key=lambda one: one.device != self._members[bad].id)
                tried.add(strangers[0].device)
                membership.remove(strangers[0].device.hex())
        for member in [one for one in members.reserves() if one.device in _kits(device)]:
            membership.remove_reserve(member.device.hex(), lambda _: [])
        # One person alone does not remove two.
        out = not _has_keys(device, self._members[bad].id)
        assert out or self._count > 1, "nobody shows the bad one"
        if out:
            self._removed[bad] = number
        simulation.world.received(number)
        simulation.world.commit(number)

    def act_on_removals(self, number: int) -> None:
        """What a device does when it has heard that another one was removed."""
        if self._members:
            membership = self._simulation.world.fleet[number].rig.sharing.membership
            if membership.has_removals_to_act_on():
                self._simulation.note(f"{number} acts on a removal")
                membership.act_on_removals()

    def confirm(self, number: int) -> None:
        """Somebody answers what waits for a person on this device: correct devices, too, may remove enough
        within ten minutes that the brake asks."""
        if self._members:
            self._judge(number)
        rig = self._simulation.world.fleet[number].rig
        sharing = rig.sharing
        if not sharing.signer.may_sign(rig.tx):
            return  # somebody has accused it: it can decide when that is vetoed
        deletions = sharing.deletions
        for one in deletions.all():
            self._simulation.note(f"{number} decides about a deletion")
            answer = deletions.accept if self._chance.random() < 0.5 else deletions.undo
            answer(str(one.id))
        self._simulation.world.received(number)

    def go_on(self) -> None:
        """Bad members that nobody has removed go on announcing themselves, and bring nothing."""
        for number in sorted(self._members.keys() - self._removed):
            if self._chance.random() < 0.5:
                self._members[number].put_head(self._simulation.clouds, self._simulation.clocks.time_ns())

    def work(self) -> None:
        """People change something on devices that have taken as many branches of a bad member as they take of
        any: others have taken other ones, and believe these only when a member depends on them."""
        fleet = self._simulation.world.fleet
        for number in self._simulation.honest:
            device = fleet[number].rig
            most = most_branches(len(device.sharing.current_members()))
            if any(device.updates.state.ends(bad.id) >= most for bad in self._members.values()):
                self._simulation.note(f"{number} changes something")
                self._simulation.world.write_many(number, 1)

    def _judge(self, number: int) -> None:
        """Its person vetoes what is said of honest devices, and seconds the removal of others."""
        rig = self._simulation.world.fleet[number].rig
        sharing = rig.sharing
        honest = {one.key.device_id for one in self._simulation.world.honest}
        if self._simulation.liar is not None:
            honest.add(self._simulation.liar.id)
        for one in sharing.trials.facts():
            own = [vote.stance for vote in one.votes if vote.id == sharing.device.hex()]
            device = bytes.fromhex(str(one.id))
            if one.suspended and not own and sharing.signer.may_sign(rig.tx):
                self._simulation.note(f"{number} {'vetoes' if device in honest else 'seconds'} a removal")
                if device in honest:
                    sharing.membership.keep(device.hex())
                elif device in {self._members[bad].id for bad in self._removed}:
                    sharing.membership.remove(device.hex())

    def end(self) -> None:
        """All is about to be healed: those who remove bad members have done so."""
        self.turn(self._simulation.seconds)
        for device in self._simulation.world.honest:
            device.holds_uploads = False
        self._forget_lost_removals()
        if self._removes:
            for bad in sorted(self._members.keys() - self._removed):
                self._remove(self._chance.choice(self._simulation.honest), bad)

    def _forget_lost_removals(self) -> None:
        """A device that removed another one was restored from a backup, and all that had heard of it crashed
        before it was on disk: somebody honest is to remove that one again."""
        for bad, by in list(self._removed.items()):
            device, honest = self._members[bad].id, self._simulation.world.honest
            if by in self._simulation.restored and all(_has_keys(one, device) for one in honest):
                del self._removed[bad]

    # -- what must hold --------------------------------------------------------------------------

    def shut_out(self) -> list[int]:
        """The bad ones to whom no honest device gives its keys any more."""
        honest = self._simulation.world.honest
        return [
            bad
            for bad in sorted(self._removed)
            if not any(_has_keys(device, self._members[bad].id) for device in honest)
        ]

    def check(self) -> None:
        """All have heard of all. What devices show, and whether they agree, is looked at elsewhere."""
        if not self._members:
            return
        for number in self._simulation.honest:
            device = self._simulation.world.fleet[number]
            self._check_members(device)
            self._check_roles(device)
            self._check_secrets(device)
            for bad, area in self._limits.items():
                _check_limits(device, self._members[bad].id, area)
            _check_size(device)
            _check_keys(device)

    def check_restart(self) -> None:
        """Honest devices open again, and have what they had."""
        for number in self._simulation.honest if self._members else ():
            before = self._simulation.world.fleet[number].registers()
            self._simulation.world.reopen(number)
            assert self._simulation.world.fleet[number].registers() == before

    def _check_members(self, device: Device) -> None:
        """Whoever is honest is listed by all."""
        listed = {one.device for one in device.rig.tx.members.all()}
        lacking = [one.name for one in self._simulation.world.honest if one.key.device_id not in listed]
        assert not lacking, f"{device.name} does not list {lacking}"

    def _check_roles(self, device: Device) -> None:
        """No member has made readers of all others."""
        tx, role_of = device.rig.tx, device.rig.sharing.signer.role_of
        readers = [
            one for one in self._simulation.world.honest if role_of(tx, one.key.device_id) is not Role.FULL
        ]
        assert not readers, f"{device.name} takes {[one.name for one in readers]} for readers"

    def _check_secrets(self, device: Device) -> None:
        """No removed device has the keys of what is sealed now. Of two that are bad, one can bring the other
        back: by a device that it let in before it heard that both are removed."""
        members = device.rig.tx.members
        kits = _kits(device)
        visible = Members(
            [
                *(one.public for one in members.all()),
                *(one.public for one in members.reserves() if one.device in kits),
            ]
        )
        honest = {one.key.device_id for one in self._simulation.world.honest}
        for bad in self._removed:
            member = self._members[bad]
            if _has_keys(device, member.id):
                assert self._count > 1, f"{device.name} has not heard that {bad} was removed"
                assert _accusers(device, member.id) & honest, f"{device.name} heard nobody accuse {bad}"
                continue
            keys = member.keys(self._simulation.clouds, self._simulation.bodies.values(), visible)
            assert device.rig.ring.newest.data not in keys, f"{member.name} can read what {device.name} seals"


def _check_limits(device: Device, bad: bytes, area: Area) -> None:
    """Since it heard that it is limited to an area, the bad one has written to no other node of the tree, and
    put none of that elsewhere. What says which nodes these are comes from others than the bad one."""
    rig = device.rig
    registers, updates = rig.tx.registers, rig.updates
    told = registers.with_prefix(ROLE.key(bad))
    limits = [one.stamp for values in told.values() for one in values]
    given = registers.with_prefix(ASSIGNMENT.prefix)
    belonging = {key[1:17] for key in given if key[17:] == area.id}

    def belongs(node: bytes) -> bool:
        return born_in(node) == area.id or node in belonging

    every = (item for letter in range(256) for item in registers.with_prefix(bytes((letter,))).items())
    for key, value in ((key, value) for key, values in every for value in values):
        if _author(device, value.stamp) != bad:
            continue
        seen = updates.vector_of(value.stamp.branch, value.stamp.clock)
        if seen is None or all(seen[stamp.branch] < stamp.clock for stamp in limits):
            continue
        assert key[0] != ASSIGNMENT, f"{device.name}: the bad one assigns nodes"
        if is_of_tree(key):
            assert belongs(key[1:17]), f"{device.name}: the bad one writes to {key.hex()}"
        if key[:1] == b"p":
            parent = Place.decode(value.value or b"").parent
            assert parent == area.folder or belongs(parent), f"{device.name}: {key.hex()} is moved out"


def _author(device: Device, stamp: Stamp) -> bytes | None:
    signed = device.rig.updates.signed_by(stamp.branch, stamp.clock)
    return None if signed is None else signed[0]


def _has_keys(device: Device, other: bytes) -> bool:
    """Whether a device gives its keys to another one."""
    return other in device.rig.sharing.key_holders()


def _accusers(device: Device, accused: bytes) -> set[bytes]:
    """The devices that want this one removed, as far as a device has heard."""
    stances = device.rig.tx.hearing.stances()
    return {by for (one, by), cast in stances.items() if one == accused and cast.stance is not Stance.KEEP}


def _yet_to_second(device: Device) -> set[bytes]:
    """The suspended devices that this one has not voted to remove itself."""
    own, stances = device.key.device_id, device.rig.tx.hearing.stances()
    return {
        one
        for one in device.rig.tx.members.suspended
        if (one, own) not in stances or stances[one, own].stance is not Stance.REMOVE
    }


def _shown(device: Device) -> frozenset[bytes]:
    """The ids of all nodes that are shown, also as one with another, but for empty files."""
    joined = frozenset(node for (node,) in device.rig.db.rows.execute("SELECT id FROM joined"))
    return joined.union(one.id for one in device.walk().values() if not one.is_file or one.size)


def _kits(device: Device) -> set[bytes]:
    """The ids of the recovery kits that people are shown."""
    registers = device.rig.tx.registers
    found = {key[1:] for key in registers.with_prefix(signed_kit_key(b""))}
    for key, values in registers.with_prefix(kit_key(b"")).items():
        for one in values:
            try:
                KitRecord.decode(one.value or b"")
            except DecodeError:
                continue
            found.add(key[1:])
    return found


def _check_size(device: Device) -> None:
    """What is stored is bounded by what was received."""
    db = device.rig.db
    tables = [
        name for (name,) in db.rows.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
    ]
    rows = sum(db.rows.execute(f"SELECT count(*) FROM {table}").fetchone()[0] for table in tables)
    (size,) = db.rows.execute("SELECT total(length(bytes)) FROM log").fetchone()
    most = _OWN_ROWS + size / _LEAST_ROW
    assert device.bare() or rows <= most, f"{rows} rows of {size:.0f} bytes of updates"


def _check_keys(device: Device) -> None:
    """The keys are such as can be read again at the next start."""
    keys, path = device.rig.ring.keys, device.rig.directory / "keys.json"
    keys.replace(path, SYSTEM)
    assert VolumeKeys.load(path).shared == keys.shared
