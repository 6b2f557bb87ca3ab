"""What is proven against devices of an open volume: found in the log, signed for all, and shown.

Looked for now and then rather than when an update comes: the branches of the log tell of each fork, also of
one that came to light just before a crash. What broke a rule is remembered from when it was received.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from hybrisfs.api import devices as api
from hybrisfs.errors import UsageError
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
from hybrisfs.merge.authority import breach, fault
from hybrisfs.merge.signing import Signer
from hybrisfs.state.state import Transaction
from hybrisfs.tree.filesystem import FileSystem
from sync import DecodeError, SignedUpdate, Write, decode_signed_header

__all__ = ["Misconduct"]


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
        with self._fs.state.cutting, self._fs.state.transaction() as tx:
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
