"""What is proven against devices of an open volume: found in the log, signed for all, and shown.

Looked for now and then rather than when an update comes: the branches of the log tell of each fork, also of
one that came to light just before a crash. What broke a rule is remembered from when it was received.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping
from typing import Final, NamedTuple

from hybrisfs.api import devices as api
from hybrisfs.api.devices import Accused, Vote
from hybrisfs.errors import HybrisError, UsageError
from hybrisfs.kinds import EVIDENCE
from hybrisfs.members.evidence import (
    MAX_PROVEN_UPDATE,
    Charge,
    Misdeed,
    decode_evidence,
    decode_evidence_file,
    encode_evidence_file,
    evidence_key,
    prove_fork,
    prove_offence,
)
from hybrisfs.members.members import Member
from hybrisfs.members.removal import Cast, Stance
from hybrisfs.merge.authority import breach, fault
from hybrisfs.merge.signing import Signer
from hybrisfs.settings.config import DEFAULT_VETO_HOURS
from hybrisfs.sharing.membership import Membership
from hybrisfs.state.members import NO_MEMBER, charges, forget_charges, note_charges
from hybrisfs.state.members import Charge as NotedCharge
from hybrisfs.state.state import Transaction
from hybrisfs.tree.filesystem import FileSystem
from sync import DecodeError, SignedUpdate, Write, decode_signed_header

__all__ = ["Misconduct", "Trials"]

log = logging.getLogger(__name__)


class _Proven(NamedTuple):
    key: bytes
    value: bytes
    charge: Charge


class Misconduct:
    """Its methods may be called from any thread, without locks but where said."""

    def __init__(
        self,
        fs: FileSystem,
        signer: Signer,
    ) -> None:
        self._fs = fs
        self._signer = signer
        self._offences: dict[bytes, bytes] = {}  # the first update of a device that broke a rule

    def note(self, update: SignedUpdate) -> None:
        """An update has been accepted, some of whose writes do not count; told within the transaction."""
        if len(update.data) <= MAX_PROVEN_UPDATE:
            self._offences.setdefault(update.header.writer, update.data)

    def look_after(self) -> bool:
        """Sign proofs that no register holds yet; whether there were any."""
        with self._fs.state.log_transaction() as tx:
            if not self._signer.may_sign(tx):
                return False
            found = [*self._forks(tx), *self._offences_unsigned(tx)]
            if found:
                self._signer.sign(tx, found, 0)
        return bool(found)

    def _forks(self, tx: Transaction) -> Iterable[Write]:
        for device in tx.updates.forks():
            key, public = evidence_key(device, Misdeed.FORK), self._public(tx, device)
            if device == tx.updates.device or public is None or tx.registers.values(key):
                continue
            headers = tx.updates.forked_headers(device)
            if headers is not None:
                yield key, prove_fork(public, *map(decode_signed_header, headers))

    def _offences_unsigned(self, tx: Transaction) -> Iterable[Write]:
        for device, update in self._offences.items():
            key, public = evidence_key(device, Misdeed.OFFENCE), self._public(tx, device)
            if public is not None and not tx.registers.values(key):
                value = prove_offence(public, update)
                if fault(tx.updates.device, key, value) is None:
                    yield key, value

    def _public(self, tx: Transaction, device: bytes) -> bytes | None:
        writers = tx.members.writers()
        return writers.public_key(device) or writers.former_key(device)

    def charges(self, tx: Transaction) -> dict[bytes, list[Charge]]:
        """What is proven, by device."""
        found: dict[bytes, list[Charge]] = {}
        for one in self._proven(tx):
            found.setdefault(one.charge.device, []).append(one.charge)
        return found

    def facts(self, device: bytes) -> list[api.Charge]:
        """What is proven against one device, as commands show it."""
        with self._fs.state.transaction() as tx:
            return [described(charge) for charge in self.charges(tx).get(device, ())]

    def _proven(self, tx: Transaction) -> Iterable[_Proven]:
        for key, values in sorted(tx.registers.with_prefix(EVIDENCE.prefix).items()):
            first = min(values, key=lambda one: one.stamp)
            try:
                charge = decode_evidence(key, first.value or b"", breach)
            except DecodeError:
                continue
            if charge.volume == tx.updates.volume:
                yield _Proven(key, first.value or b"", charge)

    def proof(self, device: bytes) -> bytes:
        """The file that proves what is known against a device. Raises UsageError when nothing is."""
        with self._fs.state.transaction() as tx:
            proven = [one for one in self._proven(tx) if one.charge.device == device]
            name, volume = tx.members.name_of(device), tx.updates.volume
        if not proven:
            raise UsageError(f"nothing is proven against {name}")
        # What no accident explains comes first.
        best = max(proven, key=lambda one: one.charge.misdeed)
        return encode_evidence_file(volume, best.key, best.value)

    def check(self, data: bytes) -> tuple[Charge, str | None]:
        """What a file proves, and the name of the device if it is of this volume. Raises UsageError."""
        try:
            charge = decode_evidence_file(data, breach)
        except DecodeError as error:
            raise UsageError("this file proves nothing", str(error)) from error
        with self._fs.state.transaction() as tx:
            known = charge.volume == tx.updates.volume
            return charge, tx.members.name_of(charge.device) if known else None


def described(charge: Charge) -> api.Charge:
    """A charge as commands show it."""
    return api.Charge(charge.misdeed.name.lower(), charge.words, charge.time_ns / 1e9)


# -- accusations in an open volume ----------------------------------------------------------------------
# Time is this device's own clock, for there is none in the log that anybody could trust: since when an
# accusation is known here is remembered (`hybrisfs.state.members`).


_HOUR_NS: Final = 3600 * 10**9
_REJOIN_NS: Final = 24 * _HOUR_NS  # a device that was restored from a backup may be off over night


class Trials:
    """Its methods may be called from any thread, without locks."""

    def __init__(
        self,
        fs: FileSystem,
        signer: Signer,
        misconduct: Misconduct,
        membership: Membership,
    ) -> None:
        self._fs = fs
        self._signer = signer
        self._misconduct = misconduct
        self._membership = membership
        self.veto_hours = DEFAULT_VETO_HOURS
        """How long an accusation can be vetoed before this device seconds it."""
        self.evicts = False
        """Whether this device accuses those against which there is a proof that no backup explains."""

    def adopt(self, veto_hours: int, *, evicts: bool) -> None:
        """Let these hold from now on."""
        self.veto_hours, self.evicts = veto_hours, evicts

    def look_after(self, now_ns: int) -> bool:
        """Do what is due at this time of day, in ns since the epoch; whether something was signed."""
        with self._fs.state.log_transaction() as tx:
            if not self._signer.may_sign(tx):
                return False
            seconded, accused = self._overdue(tx, now_ns), self._proven(tx, now_ns)
            try:
                if seconded:
                    self._membership.vote(tx, seconded, Stance.REMOVE)
                if accused:
                    self._membership.vote(tx, accused, Stance.SUSPEND)
            except (HybrisError, OSError) as error:
                log.error("this machine cannot vote on a removal: %s", error)
                return False
        return bool(seconded or accused)

    def _overdue(self, tx: Transaction, now_ns: int) -> list[Member]:
        """Whom to second the removal of."""
        suspended, stances = tx.members.suspended, tx.hearing.stances()
        accusations = {(accused, accuser) for accused, by in suspended.items() for accuser in by}
        since = self._known_since(tx, accusations, now_ns)
        until = now_ns - self.veto_hours * _HOUR_NS
        due = {
            accused
            for accused, accuser in accusations
            if since[accused, accuser] <= until
            and stances[accused, accuser].stance is Stance.REMOVE
            and (accused, tx.updates.device) not in stances
        }
        return [one for one in tx.members.removed() if one.device in due]

    def _known_since(
        self, tx: Transaction, accusations: set[tuple[bytes, bytes]], now_ns: int
    ) -> dict[tuple[bytes, bytes], int]:
        """Since when these are known; what no longer holds is forgotten."""
        forks = {(device, NO_MEMBER) for device in tx.updates.forks()}
        known = {(one.accused, one.accuser): one.since for one in charges(tx)}
        current = accusations | forks
        forget_charges(tx, sorted(known.keys() - current))
        note_charges(tx, [NotedCharge(*one, now_ns) for one in sorted(current - known.keys())])
        return {one: min(known.get(one, now_ns), now_ns) for one in current}

    def _proven(self, tx: Transaction, now_ns: int) -> list[Member]:
        """Whom to accuse because of a proof."""
        if not self.evicts:
            return []
        stances, this = tx.hearing.stances(), tx.updates.device
        forked = {one.accused: one.since for one in charges(tx) if one.accuser == NO_MEMBER}
        found = []
        for member in tx.members.all():
            device = member.device
            kinds = {one.misdeed for one in self._misconduct.charges(tx).get(device, ())}
            unexplained = (
                Misdeed.FORK in kinds
                and now_ns - forked.get(device, now_ns) >= _REJOIN_NS
                and not tx.updates.has_rejoined(device)
            )
            if device != this and (device, this) not in stances and (Misdeed.OFFENCE in kinds or unexplained):
                found.append(member)
        return found

    def facts(self) -> list[Accused]:
        """The devices and recovery kits that are accused or were removed by votes."""
        with self._fs.state.transaction() as tx:
            verdict, stances = tx.hearing.outcome.verdict, tx.hearing.stances()
            since: dict[bytes, int] = {}
            for accused, accuser, known in charges(tx):
                if accuser != NO_MEMBER:
                    since[accused] = min(known, since.get(accused, known))
            found = []
            for accused in sorted({accused for accused, _ in stances}):
                final, by = accused in verdict.ended, verdict.suspended.get(accused, ())
                until = since.get(accused) if by and not final else None
                found.append(
                    Accused(
                        id=accused.hex(),
                        name=tx.members.shown_name(accused),
                        this=accused == tx.updates.device,
                        final=final,
                        suspended=bool(by),
                        until=None if until is None else until / 1e9 + self.veto_hours * 3600.0,
                        votes=self._votes(tx, accused, stances, by),
                    )
                )
            return found

    def _votes(
        self,
        tx: Transaction,
        accused: bytes,
        stances: Mapping[tuple[bytes, bytes], Cast],
        by: Collection[bytes],
    ) -> list[Vote]:
        """What members say about one, in the order in which they said so; *by* are those that count."""
        return [
            Vote(tx.members.shown_name(voter), voter.hex(), cast.stance.name.lower(), voter in by)
            for (about, voter), cast in sorted(stances.items(), key=lambda one: (one[1].clock, one[0]))
            if about == accused
        ]
