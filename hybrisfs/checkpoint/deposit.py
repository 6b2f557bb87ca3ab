"""Agreed checkpoints on the clouds: putting one there, and removing what a newer one has replaced."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Collection, Sequence
from typing import Final, Protocol

from hybrisfs.checkpoint.shelf import Shelf
from hybrisfs.checkpoint.table import Recorded
from sync import NONCE_SIZE, Buffer, SealKeys
from sync.checkpoint import CHECKPOINTS, Root, checkpoint_name, parse_checkpoint_name, seal_object

__all__ = ["CloudStore", "Depositor"]

log = logging.getLogger(__name__)

_MOST_NAMES: Final = 100_000


class CloudStore(Protocol):
    """What is done with the clouds."""

    def put(self, name: str, data: bytes) -> object:
        """Put an object on f+k clouds. Raises CloudsUnavailable."""

    @property
    def numbers(self) -> Collection[int]:
        """The clouds that objects may be removed from."""

    def names(self, cloud: int, prefix: str, most: int) -> Sequence[str] | None:
        """What a cloud claims to have, None when it does not tell."""

    def delete(self, cloud: int, names: Sequence[str]) -> str | None:
        """Delete objects from a cloud; why that failed, None when it did not."""


class Depositor:
    """Called by one thread. Slices go before the root that names them."""

    def __init__(
        self,
        volume: bytes,
        keys: SealKeys,
        shelf: Shelf,
        name_of: Callable[[Buffer], bytes],
        store: CloudStore,
    ) -> None:
        self._volume = volume
        self._keys = keys
        self._shelf = shelf
        self._name_of = name_of
        self._store = store

    def put(self, one: Recorded) -> bytes:
        """Put an agreed checkpoint on the clouds; the name of its root. What an interrupted attempt has left
        there is put anew. Raises CloudsUnavailable, OSError, DecodeError."""
        assert one.root is not None
        for pieces in (self._shelf.pieces(one.shelved), self._shelf.hints(one.shelved)):
            for piece in pieces:
                self._put(self._name_of(piece), piece)
        name = self._name_of(one.root)
        self._put(name, one.root)
        return name

    def _put(self, name: bytes, plaintext: bytes) -> None:
        sealed = seal_object(name, plaintext, self._volume, self._keys, os.urandom(NONCE_SIZE))
        self._store.put(checkpoint_name(name), sealed)

    def sweep(self, wanted: Sequence[tuple[bytes, Root]]) -> None:
        """Remove from the clouds what is part of none of these checkpoints, given by name and root."""
        names = {name for name, _ in wanted}
        names.update(one.name for _, root in wanted for one in (*root.slices, *root.hints))
        for cloud in self._store.numbers:
            found = self._store.names(cloud, CHECKPOINTS, _MOST_NAMES) or ()
            old = [
                one for one in found if (name := parse_checkpoint_name(one)) is not None and name not in names
            ]
            failure = self._store.delete(cloud, old) if old else None
            if failure is not None:
                log.info("%d parts of old checkpoints stay on cloud %d for now: %s", len(old), cloud, failure)
