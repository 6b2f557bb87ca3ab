"""Proofs that a writer forked its history (Depot 4.2, 5.6).

A correct writer chains its updates: no two of them have the same `prev`. Two signed headers that do
convince anybody who knows the writer's key, without the log and without the writes.
"""

from __future__ import annotations

from dataclasses import dataclass

from sync.errors import DecodeError
from sync.identity import Members
from sync.update import SignedHeader, decode_signed_header

__all__ = ["ForkProof", "verify_fork_proof"]


@dataclass(frozen=True, slots=True)
class ForkProof:
    """Two updates with one `prev`: each the header and signature bytes, ascending by update hash."""

    first: bytes
    second: bytes

    @classmethod
    def of(cls, one: SignedHeader, other: SignedHeader) -> ForkProof:
        """The proof made of two headers, the same in whichever order they come."""
        first, second = sorted((one, other), key=lambda header: header.hash)
        return cls(first.data, second.data)


def verify_fork_proof(proof: ForkProof, volume: bytes, members: Members) -> bytes | None:
    """The id of the member that the proof convicts of forking `volume`, or None if it proves nothing."""
    try:
        first, second = decode_signed_header(proof.first), decode_signed_header(proof.second)
    except DecodeError:
        return None
    if (first.data, second.data) != (proof.first, proof.second):
        return None
    if first.volume != volume or (first.volume, first.writer, first.prev) != (
        second.volume,
        second.writer,
        second.prev,
    ):
        return None
    public = members.public_key(first.writer)
    if public is None or first.hash >= second.hash:
        return None
    return first.writer if first.verify(public) and second.verify(public) else None
