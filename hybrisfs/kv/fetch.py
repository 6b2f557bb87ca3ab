"""Reading values from the clouds: the common case of Hybris 3.3, then the worst case of 3.5."""

from __future__ import annotations

import logging
import time

from hybrisfs.dispersal.errors import CloudsUnavailable, Superseded
from hybrisfs.dispersal.values import StoredValue, Values
from hybrisfs.kv.recent import Place
from hybrisfs.kv.record import KeyMetadata
from hybrisfs.kv.rmds import MetadataStore
from hybrisfs.kv.seal import ValueSealer

__all__ = ["ValueFetcher", "describe"]

log = logging.getLogger(__name__)


def describe(entry: KeyMetadata, sealer: ValueSealer, key: str) -> StoredValue:
    """What *entry*, of a key that people call *key*, tells of the objects on the clouds."""
    return StoredValue(
        what=f"the value of {key}",
        name=sealer.name(entry.objects, entry.k == 1),
        k=entry.k,
        size=entry.sealed,
        placement=entry.placement,
        checksums=entry.checksums if entry.k > 1 else entry.checksums * len(entry.placement),
        checksum=sealer.checksum,
    )


class ValueFetcher:
    """Fetches values. Thread-safe."""

    def __init__(self, metadata: MetadataStore, values: Values, sealer: ValueSealer) -> None:
        self._metadata = metadata
        self._values = values
        self._sealer = sealer

    def fetch(self, place: Place, entry: KeyMetadata, deadline: float) -> tuple[bytes, KeyMetadata] | None:
        """Return the value of `entry`, just read, or of a newer one; None when the key has been deleted
        since.

        Ends, unless newer values are written without end and each is deleted before it can be read
        (finite-write termination), or at *deadline* (`time.monotonic`). Raises CloudsUnavailable.
        """
        try:
            # What the metadata named when they were read will do, although there may be something newer now.
            return self._get(place, entry, deadline, watching=False), entry
        except CloudsUnavailable as error:
            if time.monotonic() >= deadline:
                raise
            log.debug("all clouds are asked again: %s", error)
        while (newest := self._metadata.read(place)) is not None and newest.live:
            try:
                return self._get(place, newest, deadline, watching=True), newest
            except Superseded as error:
                log.debug("the read begins anew: %s", error)
        return None

    def _get(self, place: Place, entry: KeyMetadata, deadline: float, *, watching: bool) -> bytes:
        sealed = self._values.get(
            describe(entry, self._sealer, self._metadata.spelled(place)),
            max(0.0, deadline - time.monotonic()),
            current=lambda: self._metadata.read(place) == entry,
            subscribe=(lambda callback: self._metadata.watch(place, callback)) if watching else None,
        )
        return self._sealer.open(entry.objects, sealed, entry.size)
