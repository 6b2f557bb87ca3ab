"""Who belongs to an open volume: letting devices in, renaming and removing them, for all devices."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from hybrisfs.errors import UsageError
from hybrisfs.filesystem.filesystem import FileSystem
from hybrisfs.merge.members import MAX_DEVICE_NAME, Member, MemberTable, member_key
from hybrisfs.merge.registers import Registers
from hybrisfs.merge.signing import Signer
from hybrisfs.store.updates import UpdateLog
from hybrisfs.volume.epochs import Epochs
from sync import Write

__all__ = ["Membership"]


class Membership:
    """Signs what becomes of members. Its methods may be called from any thread."""

    def __init__(
        self,
        fs: FileSystem,
        members: MemberTable,
        updates: UpdateLog,
        registers: Registers,
        signer: Signer,
        epochs: Epochs,
        public: bytes,
        signed: Callable[[], None],
        changed: Callable[[], None],
        renamed: Callable[[], None],
    ) -> None:
        """*public* is this device's key. Without any lock, *signed* is told that an update was signed here,
        and *changed* that others are members now. *renamed* is told that a device has another name, with the
        locks held that `Receiver` holds."""
        self._renamed = renamed
        self._fs = fs
        self._members = members
        self._updates = updates
        self._registers = registers
        self._signer = signer
        self._epochs = epochs
        self._public = public
        self._signed = signed
        self._changed = changed

    @property
    def own_name(self) -> str:
        """What this device is called."""
        with self._fs.lock:
            return self._members.name_of(self._updates.device)

    def rename(self, which: str, name: str) -> None:
        """Call a device otherwise, on all devices; *which* is its name or the beginning of its id.

        Raises UsageError.
        """
        if not name or len(name.encode()) > MAX_DEVICE_NAME or not name.isprintable():
            raise UsageError(f"{name[:80]!r} cannot name a device")
        with self._fs.cutting, self._fs.lock:
            member = _choose(self._members.all(), which)
            renamed = replace(member, name=name)
            self._members.admit([renamed])
            self._signer.sign([(member_key(member.device), renamed.encode())], 0)
            self._renamed()
        self._signed()

    def admit(self, member: Member, also: Sequence[Write] = ()) -> None:
        """Let a device in, and tell the others, who hear of this one, too, if they have not yet. *also* is
        signed with that."""
        with self._fs.cutting, self._fs.lock:
            self._members.admit([member])
            self._updates.set_members(self._members.writers())
            mine = member_key(self._updates.device)
            entries: list[Write] = [(member_key(member.device), member.encode()), *also]
            if not self._registers.values(mine):
                entries.append(self._own_register())
            self._signer.sign(entries, 0)
        self._signed()
        self._changed()

    def _own_register(self) -> Write:
        """The register that says that this device belongs to the volume."""
        own = Member(self._public, self._members.name_of(self._updates.device))
        return member_key(self._updates.device), own.encode()

    def remove(self, which: str) -> dict[str, object]:
        """Let a device belong to the volume no longer: what it writes from now on is not accepted, and what
        is written from now on it cannot read. *which* is its name or the beginning of its id.

        Raises UsageError, OSError.
        """
        with self._fs.cutting, self._fs.lock:
            member = _choose(self._members.all(), which)
            if member.device == self._updates.device:
                raise UsageError(
                    "a device cannot remove itself",
                    "",
                    "Remove it on another one, or delete the volume here.",
                )
            self._sign_removal(member)
        self._signed()
        self._changed()
        return {"id": member.device.hex(), "device": member.name}

    def remove_reserve(self, which: str, also: Callable[[Member], Sequence[Write]]) -> Member:
        """The same with a device in reserve; what *also* makes of it is signed with that. Raises UsageError,
        OSError."""
        with self._fs.cutting, self._fs.lock:
            member = _choose(self._members.reserves(), which, "recovery kit")
            self._sign_removal(member, also(member))
        self._signed()
        self._changed()
        return member

    def _sign_removal(self, member: Member, also: Sequence[Write] = ()) -> None:
        removed = replace(member, removed=True)
        self._members.admit([removed])
        self._updates.set_members(self._members.writers())
        self._epochs.exclude()
        self._signer.sign([(member_key(member.device), removed.encode()), *also, self._epochs.begin()], 0)

    def heed_removals(self) -> None:
        """A device was removed elsewhere. What this one saw of it before, all are to see: an own update says
        so by depending on it."""
        with self._fs.cutting, self._fs.lock:
            self._epochs.exclude()
            if not self.is_removal_unheeded():
                return
            writes = [self._epochs.begin()] if self._epochs.is_one_due else []
            self._signer.sign(writes or [self._own_register()], 0)
        self._signed()

    def is_removal_unheeded(self) -> bool:
        """Whether this device has something to sign because another was removed."""
        with self._fs.lock:
            due = self._epochs.is_one_due or self._is_anything_unvouched()
            return due and self._signer.may_sign

    def _is_anything_unvouched(self) -> bool:
        """Whether no member has said yet that it saw all that removed devices have written."""
        tips = self._updates.state.tips()
        members = self._members.keys()
        seen = [tip.dependencies for tip in tips if tip.device in members]
        return any(
            members.former_key(tip.device) and all(vector[tip.branch] < tip.clock for vector in seen)
            for tip in tips
        )


def _choose(members: Sequence[Member], which: str, noun: str = "device") -> Member:
    """Raises UsageError unless exactly one is meant."""
    found = [one for one in members if one.name == which] or [
        one for one in members if one.device.hex().startswith(which.lower())
    ]
    if len(found) == 1:
        return found[0]
    names = ", ".join(f"{one.name} ({one.device.hex()[:8]})" for one in members)
    problem = f"names several {noun}s" if found else f"is no {noun} of this volume"
    raise UsageError(f"{which[:80]!r} {problem}", "", f"There are: {names or 'none'}.")
