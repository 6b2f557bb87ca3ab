"""Checks executions for fork-join-causal consistency (Depot 5.1 and appendix A).

An execution is what each correct node did, in its order: it wrote an update, observed one of another node, or
read a key. The edges of the observer graph are those that the updates state themselves, by `prev` and `deps`,
and the order of the operations at each correct node. Appendix A asks of the graph:

 1. Serial ordering: at a correct node, operation v comes before v' exactly if there is a path from v to v'.
 So the
    past that a correct node's update states must be all that the node had observed, and whatever it observes
    must come after the past of that (dependency preservation; monotonic reads and writes, writes follow reads
    and read your writes follow from it).
 2. A read at a correct node returns those writes to the key before it that no other one of them supersedes.

`violations` says what is wrong; a healed system must also pass `differences` (eventual consistency).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from sync.codec import ZERO_HASH
from sync.update import PREFIX_SIZE, SignedUpdate

__all__ = ["Execution", "Observed", "Operation", "Read", "Wrote"]


@dataclass(frozen=True, slots=True)
class Wrote:
    """The node issued this update."""

    update: SignedUpdate


@dataclass(frozen=True, slots=True)
class Observed:
    """The node accepted this update."""

    update: SignedUpdate


@dataclass(frozen=True, slots=True)
class Read:
    """The node read the key, and these updates' values were returned."""

    key: bytes
    returned: frozenset[bytes]
    """The hashes of the updates."""


Operation: TypeAlias = Wrote | Observed | Read


@dataclass
class Execution:
    """What the correct nodes did, each in its order. Operations of faulty nodes are only seen by their
    updates."""

    nodes: Mapping[str, Sequence[Operation]]
    _updates: dict[bytes, SignedUpdate] = field(default_factory=dict)  # by the beginning of the hash
    _bits: dict[bytes, int] = field(default_factory=dict)
    _pasts: dict[bytes, int] = field(default_factory=dict)  # a bit per update
    _writers: dict[bytes, list[bytes]] = field(default_factory=dict)  # by key: who wrote to it

    def __post_init__(self) -> None:
        for operations in self.nodes.values():
            for operation in operations:
                if not isinstance(operation, Read):
                    self._updates[operation.update.hash[:PREFIX_SIZE]] = operation.update
        for number, prefix in enumerate(self._updates):
            self._bits[prefix] = 1 << number
        for prefix, update in sorted(self._updates.items(), key=lambda one: one[1].header.clock):
            past = 0
            for cause in _causes(update):
                past |= self._bits.get(cause, 0) | self._pasts.get(cause, 0)
            self._pasts[prefix] = past
            for key, _ in update.writes:
                self._writers.setdefault(key, []).append(prefix)

    def violations(self) -> list[str]:
        """What contradicts fork-join-causal consistency, in words; empty when nothing does."""
        return [what for name in self.nodes for what in self._check(name)]

    def _check(self, name: str) -> Iterator[str]:
        seen = 0
        for number, operation in enumerate(self.nodes[name]):
            where = f"{name}, operation {number}"
            if isinstance(operation, Read):
                expected = self._latest(operation.key, seen)
                if operation.returned != expected:
                    yield f"{where}: a read of {operation.key!r} returned other writes than the latest"
                continue
            prefix = operation.update.hash[:PREFIX_SIZE]
            if any(cause not in self._bits for cause in _causes(operation.update)):
                yield f"{where}: an update whose causes nobody observed"
            if isinstance(operation, Wrote) and self._pasts[prefix] != seen:
                yield f"{where}: the node's update does not state all that it had observed, or states more"
            elif self._pasts[prefix] & ~seen:
                yield f"{where}: an update is observed before one that it depends on"
            seen |= self._bits[prefix]

    def _latest(self, key: bytes, seen: int) -> frozenset[bytes]:
        writes = [prefix for prefix in self._writers.get(key, ()) if self._bits[prefix] & seen]
        superseded = 0
        for prefix in writes:
            superseded |= self._pasts[prefix]
        return frozenset(self._updates[one].hash for one in writes if not self._bits[one] & superseded)

    def differences(self) -> list[str]:
        """What a correct node has not observed of what others have: empty once all are healed."""
        everything = sum(self._bits.values())
        found = []
        for name, operations in self.nodes.items():
            seen = 0
            for operation in operations:
                if not isinstance(operation, Read):
                    seen |= self._bits[operation.update.hash[:PREFIX_SIZE]]
            if seen != everything:
                found.append(f"{name} misses {(everything & ~seen).bit_count()} updates")
        return found


def _causes(update: SignedUpdate) -> Iterable[bytes]:
    """The beginnings of the hashes of the updates that this one names."""
    header = update.header
    if header.prev != ZERO_HASH:
        yield header.prev[:PREFIX_SIZE]
    for stamp in header.deps:
        yield stamp.prefix
