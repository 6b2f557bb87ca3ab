"""Bringing values to the clouds: sealing, encoding, and putting each share on a cloud of its own."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final, NamedTuple

from hybrisfs.dispersal.erasure import split
from hybrisfs.dispersal.pack import choose_code
from hybrisfs.dispersal.values import Values
from hybrisfs.kv.record import Entry
from hybrisfs.kv.seal import SEAL_OVERHEAD, ValueSealer

__all__ = ["Upload", "Uploader"]

_AT_ONCE: Final = 8  # values of one transaction


class Upload(NamedTuple):
    """A write under way, and its value; None deletes."""

    write: int
    value: bytes | None


class Uploader:
    """Stores values. Thread-safe."""

    def __init__(self, values: Values, sealer: ValueSealer, f: int, k: int) -> None:
        self._values = values
        self._sealer = sealer
        self._f = f
        self._k = k

    def names(self, write: int, count: int) -> list[str]:
        """The names of the objects of a write, of which there are so many."""
        name = self._sealer.name(write, count == 1)
        return [name(index) for index in range(count)]

    def count_names(self, upload: Upload) -> int:
        """How many names the objects of this write will have: known before the first of them is put."""
        k, n = self._code(upload)
        return 1 if k == 1 else n

    def upload(self, uploads: Sequence[Upload]) -> Sequence[Entry]:
        """Store all values; return their entries, with sequence number 0. Raises CloudsUnavailable."""
        if len(uploads) == 1:
            return [self._upload(uploads[0])]
        with ThreadPoolExecutor(_AT_ONCE, "kv-upload") as pool:
            return list(pool.map(self._upload, uploads))

    def _upload(self, upload: Upload) -> Entry:
        if upload.value is None:
            return Entry(0, upload.write)
        sealed = self._sealer.seal(upload.write, upload.value)
        k, n = self._code(upload)
        shares = split(k, n, sealed)
        placement = self._values.put(
            f"the value of write {upload.write}", self._sealer.name(upload.write, k == 1), shares, k == 1
        )
        checksums = tuple(map(self._sealer.checksum, shares if k > 1 else shares[:1]))
        return Entry(0, upload.write, len(upload.value), len(sealed), k, placement, checksums)

    def _code(self, upload: Upload) -> tuple[int, int]:
        return choose_code(len(upload.value or b"") + SEAL_OVERHEAD, self._f, self._k)
