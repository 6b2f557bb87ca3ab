"""The object `volume` on every cloud: it marks the folder or bucket as a place of one volume."""

from __future__ import annotations

from typing import Final

from sync.codec import Writer

__all__ = ["MARKER_NAME", "belongs_to_another", "marker"]

MARKER_NAME: Final = "volume"
_MARKER_MAGIC: Final = b"HFVO"
_MARKER_VERSION: Final = 1
_DAMAGED_BITS: Final = 16  # two random ids differ in about 64 bits


def marker(volume: bytes) -> bytes:
    """The object `volume` on every cloud: magic "HFVO", version u16 = 1, volume id 16.

    It tells that the folder or bucket belongs to this volume, and stays as it is for ever.
    """
    return Writer().raw(_MARKER_MAGIC).u16(_MARKER_VERSION).raw(volume).getvalue()


def belongs_to_another(data: bytes, volume: bytes) -> bool:
    """Whether the object `volume` of a cloud marks another volume: not this one with a few bits damaged."""
    expected = marker(volume)
    if len(data) < len(expected) or not data.startswith(_MARKER_MAGIC):
        return False
    difference = int.from_bytes(data[: len(expected)]) ^ int.from_bytes(expected)
    return difference.bit_count() > _DAMAGED_BITS
