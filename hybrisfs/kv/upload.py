"""Bringing values to the clouds: sealing, encoding, and putting each share on a cloud of its own."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final, NamedTuple

from hybrisfs.dispersal.erasure import split
from hybrisfs.dispersal.pack import Redundancy, choose_code
from hybrisfs.dispersal.values import Values
from hybrisfs.kv.record import KeyMetadata
from hybrisfs.kv.seal import SEAL_OVERHEAD, ValueSealer

__all__ = ["Upload", "Uploader"]

_AT_ONCE: Final = 8  # values of one transaction


class Upload(NamedTuple):
    """A write under way, its value (None deletes), and the code that this is stored with. *key* is what
    people call its key."""

    key: str
    write: int
    value: bytes | None
    k: int = 1
    n: int = 1

    @property
    def names(self) -> int:
        """How many names its objects will have: known before the first of them is put."""
        return 1 if self.k == 1 else self.n


class Uploader:
    """Stores values. Thread-safe; `redundancy` may be set at any time, and holds for what is planned then."""

    def __init__(self, values: Values, sealer: ValueSealer, redundancy: Redundancy) -> None:
        self._values = values
        self._sealer = sealer
        self.redundancy = redundancy

    def names(self, write: int, count: int) -> list[str]:
        """The names of the objects of a write, of which there are so many."""
        name = self._sealer.name(write, count == 1)
        return [name(index) for index in range(count)]

    def plan(self, key: str, write: int, value: bytes | None) -> Upload:
        """The write of a value as f and k are now."""
        return Upload(key, write, value, *self._code(len(value or b"")))

    def is_outdated(self, entry: KeyMetadata) -> bool:
        """Whether a value is stored otherwise than it would be now."""
        return entry.live and (entry.k, len(entry.placement)) != self._code(entry.size)

    def upload(self, uploads: Sequence[Upload]) -> Sequence[KeyMetadata]:
        """Store all values; return their entries, with sequence number 0. Raises CloudsUnavailable."""
        if len(uploads) == 1:
            return [self._upload(uploads[0])]
        with ThreadPoolExecutor(_AT_ONCE, "kv-upload") as pool:
            return list(pool.map(self._upload, uploads))

    def _upload(self, upload: Upload) -> KeyMetadata:
        if upload.value is None:
            return KeyMetadata(0, upload.write)
        sealed = self._sealer.seal(upload.write, upload.value)
        k = upload.k
        shares = split(k, upload.n, sealed)
        placement = self._values.put(
            f"the value of {upload.key}", self._sealer.name(upload.write, k == 1), shares, k == 1
        )
        checksums = tuple(map(self._sealer.checksum, shares if k > 1 else shares[:1]))
        return KeyMetadata(0, upload.write, len(upload.value), len(sealed), k, placement, checksums)

    def _code(self, size: int) -> tuple[int, int]:
        return choose_code(size + SEAL_OVERHEAD, *self.redundancy)
