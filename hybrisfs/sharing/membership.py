"""Who belongs to an open volume: letting devices in, renaming and removing them, for all devices."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from hybrisfs.api.devices import NamedDevice
from hybrisfs.errors import HybrisError, UsageError
from hybrisfs.members.lineage import came_by, let_in
from hybrisfs.members.members import MAX_DEVICE_NAME, Member, member_key
from hybrisfs.members.removal import Stance, effects, encode_vote, vote_key
from hybrisfs.members.roles import Area, Rights, Role, RoleRecord, new_role_key
from hybrisfs.merge.signing import Signer
from hybrisfs.recovery.record import kit_key
from hybrisfs.sharing.epochs import Epochs
from hybrisfs.stages import Signals
from hybrisfs.state.state import Transaction
from hybrisfs.topic import Topic
from hybrisfs.tree.filesystem import FileSystem
from sync import Known, Write

__all__ = ["Membership", "Removal"]

log = logging.getLogger(__name__)


class Removal(NamedTuple):
    """What became of a vote to remove a device: see `RemovedDevice`."""

    member: Member
    final: bool
    counts: bool
    removed: list[NamedDevice]
    remain: list[NamedDevice]


class Membership:
    """Signs what becomes of members. Its methods may be called from any thread."""

    def __init__(
        self,
        fs: FileSystem,
        signer: Signer,
        epochs: Epochs,
        signals: Signals,
    ) -> None:
        self._fs = fs
        self._random_bytes = fs.environment.random_bytes
        self._signer = signer
        self._epochs = epochs
        self._signals = signals
        self.changed = Topic[[]]()
        """Others are members now, or may do other things; told without any lock."""
        self.renamed = Topic[[Transaction]]()
        """A device has another name; told with the locks held that `Receiver` holds."""

    @property
    def own_name(self) -> str:
        """What this device is called."""
        with self._fs.state.transaction() as tx:
            return tx.members.name_of(tx.updates.device)

    def rename(self, which: str, name: str) -> None:
        """Call a device otherwise, on all devices; *which* is its name or the beginning of its id.

        Raises UsageError.
        """
        if not name or len(name.encode()) > MAX_DEVICE_NAME or not name.isprintable():
            raise UsageError(f"{name[:80]!r} cannot name a machine")
        with self._fs.state.log_transaction() as tx:
            member = _choose(tx.members.all(), which)
            renamed = replace(member, name=name)
            self._signer.sign(tx, [(member_key(member.device), renamed.encode())], 0)
            tx.members.admit([renamed])
            self.renamed(tx)
        self._signals.chunks_made()

    def find(self, which: str) -> Member:
        """The device of that name, or whose id begins so; also one that was removed. Raises UsageError."""
        with self._fs.state.transaction() as tx:
            return _choose([*tx.members.all(), *tx.members.removed()], which)

    def admit(
        self,
        member: Member,
        also: Sequence[Write] = (),
        role: Role = Role.FULL,
        areas: Sequence[Area] = (),
    ) -> None:
        """Let a device in, and tell the others, who hear of this one, too, if they have not yet. *also* is
        signed with that. *role*: what it may do from its first update on, as a contributor in these *areas*,
        in ascending order."""
        if role is not Role.FULL:
            record = RoleRecord(role, from_first=True, areas=tuple(areas))
            also = [*also, (new_role_key(member.device, self._random_bytes), record.encode())]
        with self._fs.state.log_transaction() as tx:
            device, this = member.device, tx.updates.device
            entries = [(member_key(device), member.encode()), let_in(device, this), *also]
            if not tx.registers.values(member_key(this)):
                entries.append(self._own_register(tx))
            stamp = self._signer.sign(tx, [*entries, *self._own_word(tx)], 0)
            tx.members.words_changed()
            tx.members.admit([member], tx.updates.device, stamp.clock)
            tx.updates.set_members(tx.members.writers())
            self._epochs.learn(tx)
        self._signals.chunks_made()
        self.changed()

    def rights_of(self, which: str) -> tuple[Member, Rights]:
        """A device and what it may do. Raises UsageError."""
        with self._fs.state.transaction() as tx:
            member = _choose(tx.members.all(), which)
            return member, self._signer.rights_of(tx, member.device)

    def set_role(self, which: str, role: Role, areas: Sequence[Area] = ()) -> Member:
        """Say that a device may do this from now on, on all devices, as a contributor in these *areas*, in
        ascending order: what takes rights from it has no effect until others say so, too
        (`hybrisfs.members.role_table`). Raises UsageError, and HybrisError when this device may not say
        so."""
        with self._fs.state.log_transaction() as tx:
            self._signer.require_writer(tx)
            member = _choose(tx.members.all(), which)
            if member.device == tx.updates.device:
                raise UsageError("a machine cannot set its own role", "", "Set it on another full member.")
            this, vector_of = tx.updates.device, tx.updates.vector_of
            pending = tx.registers.roles.pending(member.device, vector_of)
            record = RoleRecord(role, areas=tuple(areas))
            holds = self._signer.rights_of(tx, member.device) == record.rights
            if (this, record.rights) in pending or (holds and not pending):
                return member
            if role is Role.FULL and not tx.registers.roles.may_lift(this, member.device, vector_of):
                raise HybrisError(
                    f"this machine cannot make {member.name} a full member",
                    "that one has let it in",
                    "Say it on another full member.",
                )
            self._signer.sign(tx, [(new_role_key(member.device, self._random_bytes), record.encode())], 0)
            tx.updates.set_members(tx.members.writers())  # a reader has no vote
            self._epochs.learn(tx)
        self._signals.chunks_made()
        self.changed()
        return member

    def _own_register(self, tx: Transaction) -> Write:
        """The register that says that this device belongs to the volume."""
        this = tx.updates.device
        own = next(one for one in tx.members.all() if one.device == this)
        return member_key(this), own.encode()

    def _own_word(self, tx: Transaction) -> list[Write]:
        """By whom this device came, unless it has said so."""
        word = came_by(tx.updates.device, tx.meta("inviter") or None)
        return [] if tx.registers.values(word[0]) else [word]

    def describe_admission(self) -> None:
        """Say by whom this device came, if it has signed something and not this."""
        with self._fs.state.log_transaction() as tx:
            word = self._own_word(tx) if self._signer.may_sign(tx) and tx.updates.own_tip() else []
            if word:
                self._signer.sign(tx, word, 0)
                tx.members.words_changed()
        if word:
            self._signals.chunks_made()

    def described(self, which: str) -> tuple[Member, list[NamedDevice]]:
        """A device, and what `remove` can remove with it. Raises UsageError."""
        with self._fs.state.transaction() as tx:
            member = _choose(tx.members.all(), which)
            return member, [_named(one) for one in self._admitted_by(tx, member.device)]

    def _admitted_by(self, tx: Transaction, device: bytes) -> list[Member]:
        """See `MemberTable.admitted_by`; not this device, which cannot be removed here, nor those that it let
        in itself after it came that way."""
        this, admitted = tx.updates.device, tx.members.admitted_by(device)
        if all(one.device != this for one in admitted):
            return admitted
        mine = {this, *(one.device for one in tx.members.admitted_by(this))}
        return [one for one in admitted if one.device not in mine]

    def remove(self, which: str, *, with_admitted: bool = False) -> Removal:
        """Vote that a device belongs to the volume no longer: what it writes from now on is not accepted, and
        what is written from now on it cannot read, for good or until a member vetoes that
        (`hybrisfs.members.removal`). *which* is its name or the beginning of its id. With *with_admitted*
        also all that belong to the volume because it let them in, or one of these did.

        A member alone removes one line of others at a time. Raises UsageError, OSError, and HybrisError when
        this device cannot make new keys: then nothing has changed.
        """
        with self._fs.state.log_transaction() as tx:
            member, admitted = self._chosen(tx, self._removable(tx), which)
            self._vote(tx, [member, *(admitted if with_admitted else [])], Stance.REMOVE)
            facts = self._outcome(tx, member, admitted)
        self._signals.chunks_made()
        self.changed()
        return facts

    def leave(self) -> None:
        """Sign that this device belongs to the volume no longer, unless it has. The others make new keys when
        they hear of it. Raises OSError, and HybrisError when no device would accept that."""
        with self._fs.state.log_transaction() as tx:
            this = tx.updates.device
            if tx.members.has_left(this):
                return
            stamp = self._signer.sign(tx, [(vote_key(this, this), encode_vote(Stance.REMOVE))], 0)
            log.info("this machine leaves the volume, by update %d", stamp.clock)
            tx.updates.set_members(tx.members.writers())
            self._epochs.learn(tx)
        self._signals.chunks_made()
        self.changed()

    def remove_by(
        self, which: str, vote: Callable[[Sequence[bytes]], None], *, with_admitted: bool = False
    ) -> Removal:
        """The same, where *vote* has a recovery kit vote about these devices; nothing is locked then."""
        with self._fs.state.transaction() as tx:
            member, admitted = self._chosen(tx, [*tx.members.all(), *tx.members.removed()], which)
        vote([one.device for one in (member, *(admitted if with_admitted else []))])
        with self._fs.state.transaction() as tx:
            return self._outcome(tx, member, admitted)

    def _chosen(self, tx: Transaction, members: Sequence[Member], which: str) -> tuple[Member, list[Member]]:
        member = _choose(members, which)
        if member.device == tx.updates.device:
            raise UsageError(
                "this is the machine itself, which leaves in another way",
                "its changes have to reach the clouds before, and its copy of the volume goes",
                "hybrisfs volume leave does all of that.",
            )
        return member, self._admitted_by(tx, member.device)

    def _outcome(self, tx: Transaction, member: Member, admitted: Sequence[Member]) -> Removal:
        out = tx.members.gone()
        return Removal(
            member,
            final=member.device not in tx.members.suspended and member.device in out,
            counts=member.device in out,
            removed=[_named(one) for one in admitted if one.device in out],
            remain=[_named(one) for one in admitted if one.device not in out],
        )

    def _removable(self, tx: Transaction) -> list[Member]:
        """Those that this device may vote to remove: also those that others have accused, and those that have
        left: if they are not to be trusted, what they said of others need not count."""
        stances, this = tx.hearing.stances(), tx.updates.device
        seconded = {one for (one, by), cast in stances.items() if by == this and cast.stance is Stance.REMOVE}
        left = {one for (one, by), cast in stances.items() if one == by and cast.stance is Stance.REMOVE}
        out = tx.members.suspended.keys() | left
        return [*tx.members.all(), *(one for one in tx.members.removed() if one.device in out - seconded)]

    def keep(self, which: str) -> tuple[Member, bool]:
        """Veto the removal of a device or a recovery kit: which it is, and whether it belongs to the volume
        now. Raises UsageError, OSError, HybrisError."""
        with self._fs.state.log_transaction() as tx:
            member = self.find_accused(which)
            self._vote(tx, [member], Stance.KEEP)
            kept = member.device not in tx.members.gone()
        self._signals.chunks_made()
        self.changed()
        self.act_on_removals()
        return member, kept

    def find_accused(self, which: str) -> Member:
        """The device or recovery kit of that name that a member wants to remove. Raises UsageError."""
        with self._fs.state.transaction() as tx:
            accused = {
                one for (one, _), cast in tx.hearing.stances().items() if cast.stance is not Stance.KEEP
            }
            everybody = [*tx.members.all(), *tx.members.reserves(), *tx.members.removed()]
            found = [one for one in everybody if one.device in accused]
        if not found:
            raise UsageError("nobody wants to remove a machine of this volume")
        return _choose(found, which, "accused machine")

    def remove_reserve(self, which: str, also: Callable[[Member], Sequence[Write]]) -> Member:
        """The same as `remove` with a device in reserve; what *also* makes of it is signed when that is
        final. Raises UsageError, OSError."""
        with self._fs.state.log_transaction() as tx:
            self._signer.require_writer(tx)
            member = _choose(tx.members.reserves(), which, "recovery kit")
            self._vote(tx, [member], Stance.REMOVE, also)
        self._signals.chunks_made()
        self.changed()
        return member

    def vote(self, tx: Transaction, members: Iterable[Member], stance: Stance) -> None:
        """Vote about them, with the locks held that `Receiver` holds, and nothing else. Raises OSError,
        HybrisError."""
        self._vote(tx, list(members), stance)

    def _vote(
        self,
        tx: Transaction,
        members: Sequence[Member],
        stance: Stance,
        also: Callable[[Member], Sequence[Write]] = lambda one: (),
    ) -> None:
        """One update votes, and takes from those that go by that the newest keys; nothing has changed before
        it is signed but that keys are known which are not used yet. Of those that are gone for good the
        member registers say so, too: that is what earlier versions read."""
        self._signer.ensure_allowed(tx)
        self._signer.require_writer(tx)
        table, hearing, this = tx.members, tx.hearing, tx.updates.device
        accused = [one.device for one in members]
        unknown = [one for one in accused if not hearing.knows(one)]
        clock = tx.updates.state.vector.highest + 1
        verdict = hearing.verdict_with(this, accused, stance, clock)
        found = effects(hearing.outcome.verdict, verdict, stance, accused, unknown)
        writes: list[Write] = [(vote_key(one, this), encode_vote(stance)) for one in accused]
        final = [one for one in members if one.device in found.final]
        kits = {one.device for one in table.reserves()}
        for one in final:
            writes.append((member_key(one.device), replace(one, removed=True).encode()))
            if one.device in kits and tx.registers.values(kit_key(one.device)):
                writes += also(one) or [(kit_key(one.device), None)]
        leaving = [one for one in (*table.all(), *table.reserves()) if one.device in found.leaving]
        returning = [one for one in table.removed() if one.device in found.returning]
        epoch = []
        if leaving:
            epoch = [self._epochs.begin(tx, leaving, returning)]
        stamp = self._signer.sign(tx, [*writes, *epoch], 0)
        table.admit([replace(one, removed=True) for one in final], this, stamp.clock)
        tx.updates.set_members(table.writers())
        self._epochs.learn(tx, [key for key, _ in epoch])
        assert not (leaving and self._epochs.is_one_due), "what is written now, a removed machine can read"

    def act_on_removals(self) -> None:
        """A device was removed elsewhere, or its removal vetoed. What this one saw of it before, all are to
        see: an own update says so by depending on it. Who is a member again gets the keys that it lacks. Or
        this one only reads now: what it did before counts when it says that it knows. Or this one is accused,
        and asks for a veto."""
        with self._fs.state.log_transaction() as tx:
            if not self.has_removals_to_act_on():
                return
            if not self._signer.may_sign(tx):
                self._signer.plead(tx)
            elif not self._sign_what_follows(tx):
                return
        self._signals.chunks_made()

    def _sign_what_follows(self, tx: Transaction) -> bool:
        """From removals and vetoes; False when nothing was signed."""
        writes: list[Write] = []
        if self._epochs.is_one_due and self._signer.may_change(tx):
            try:
                writes.append(self._epochs.begin(tx))
            except HybrisError as error:
                log.error("what is written now, a removed machine may still read: %s", error)
                if not (self._is_anything_unvouched(tx) or self._epochs.give_back(tx)):
                    return False
        if self._signer.may_change(tx):
            writes += self._epochs.give_back(tx)
        self._signer.sign(tx, writes or [self._own_register(tx)], 0)
        self._epochs.learn(tx, [key for key, _ in writes])
        return True

    def has_removals_to_act_on(self) -> bool:
        """Whether this device has something to sign because another was removed, or its removal vetoed, or
        because it is accused itself."""
        with self._fs.state.transaction() as tx:
            if not self._signer.may_sign(tx):
                return self._signer.may_plead(tx) and self._is_accusation_unanswered(tx)
            if self._signer.may_change(tx) and (self._epochs.is_one_due or self._epochs.give_back(tx)):
                return True
            return self._is_anything_unvouched(tx)

    def _is_accusation_unanswered(self, tx: Transaction) -> bool:
        """Whether this device has signed nothing since it heard why it is suspended."""
        this, tip = tx.updates.device, tx.updates.own_tip()
        accusers = tx.members.suspended.get(this, ())
        stances = tx.hearing.stances() if accusers else {}
        casts = [stances[this, accuser] for accuser in accusers]
        return any(tip is None or tip.dependencies[one.branch] < one.clock for one in casts)

    def _is_anything_unvouched(self, tx: Transaction) -> bool:
        """Whether updates of removed devices, or updates that a device wrote before it knew of its limits,
        still lack a member that vouches for them. Own updates of that kind count until this device has signed
        that it knows."""
        tips = tx.updates.state.tips()
        members = tx.members.keys()
        seen = [tip.dependencies for tip in tips if tip.device in members]
        own = tx.updates.device
        return any(
            (tip.device == own or all(vector[tip.branch] < tip.clock for vector in seen))
            and (members.former_key(tip.device) or self._is_from_before(tx, tip))
            for tip in tips
        )

    def _is_from_before(self, tx: Transaction, tip: Known) -> bool:
        """Whether its writer signed this before it heard that it only reads."""
        updates, roles = tx.updates, tx.registers.roles
        bounds = roles.bounds(tip.device, updates.state.vector, updates.vector_of)
        return any(tip.dependencies[one.branch] < one.clock for one in bounds)


def _named(member: Member) -> NamedDevice:
    return NamedDevice(member.device.hex(), member.name, member.reserve)


def _choose(members: Sequence[Member], which: str, noun: str = "machine") -> Member:
    """Raises UsageError unless exactly one is meant."""
    found = (  # a whole id first, which may also be the name of another device
        [one for one in members if one.device.hex() == which.lower()]
        or [one for one in members if one.name == which]
        or [one for one in members if one.device.hex().startswith(which.lower())]
    )
    if len(found) == 1:
        return found[0]
    names = ", ".join(f"{one.name} ({one.device.hex()[:8]})" for one in members)
    problem = f"names several {noun}s" if found else f"is not a {noun} of this volume"
    raise UsageError(f"{which[:80]!r} {problem}", "", f"There are: {names or 'none'}.")
