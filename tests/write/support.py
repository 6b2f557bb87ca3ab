"""What a shipper needs beside a rig."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence

from hybrisfs.state.state import Transaction
from sync import CheckpointId, Head, Holdings, StateClaim, Statement
from sync.beacons import EarlierHeads

__all__ = ["Put", "PutAll", "Unknown"]

Put = Callable[[str, bytes], Sequence[int]]


class PutAll:
    """Clouds that take all in the same way, by *put*."""

    def __init__(self, put: Put) -> None:
        self._put = put

    def grant(self) -> None:
        """All have the keys."""

    def put_object(self, name: str, data: bytes) -> Sequence[int]:
        return self._put(name, data)

    def put_head(self, name: str, data: bytes, clouds: Collection[int]) -> None:
        self._put(name, data)


class Unknown:
    """A device that has nothing to say beside its log, and that no cloud has shown a head."""

    def heads(self) -> Mapping[bytes, Head]:
        return {}

    def earlier_heads(self) -> EarlierHeads:
        return EarlierHeads()

    def checkpoints(
        self, tx: Transaction, earlier_heads: EarlierHeads
    ) -> tuple[Statement | None, CheckpointId | None]:
        return None, None

    def state(self, _: Transaction, /) -> StateClaim | None:
        return None

    def holdings(self, _: Transaction, /) -> Holdings | None:
        return None

    def head_put(self, head: Head) -> None:
        """It does not matter here."""
