"""What signed updates cost: bytes, and processor time to sign one and to accept one."""

from __future__ import annotations

import statistics
import time
from dataclasses import dataclass

from sync import decode_signed
from tests.merge.fleet import Fleet
from tests.sync.support import KEYS
from tests.sync.support import Device as LogDevice

__all__ = ["UpdateFigures", "measure_updates"]

_SIGNED = 2000


@dataclass(frozen=True)
class UpdateFigures:
    """`overhead`: median bytes of an update beyond its keys and values, `largest` the most.

    `sign` and `accept` are CPU seconds for one update of one small write by the protocol alone.
    """

    overhead: float
    largest: int
    sign: float
    accept: float


def _protocol() -> tuple[float, float]:
    """CPU seconds to sign an update, and to verify and accept it, without any database."""
    writer, reader = LogDevice(KEYS[0]), LogDevice(KEYS[1])
    value = bytes(120)
    begun = time.process_time()
    updates = [writer.write((number.to_bytes(17, "big"), value)) for number in range(_SIGNED)]
    signed = time.process_time()
    reader.receive_all(updates)
    accepted = time.process_time()
    return (signed - begun) / _SIGNED, (accepted - signed) / _SIGNED


def measure_updates(count: int) -> UpdateFigures:
    """Have one device write `count` updates."""
    sign, accept = _protocol()
    fleet = Fleet(1)
    [writer] = fleet.devices
    try:
        for number in range(count):
            writer.write(f"file {number}", b"%d" % number)
            writer.sign()
        log = writer.log()
    finally:
        fleet.discard()
    overheads = [_overhead(update) for update in log]
    return UpdateFigures(statistics.median(overheads), max(overheads), sign, accept)


def _overhead(update: bytes) -> int:
    writes = decode_signed(update).writes
    return len(update) - sum(len(key) + len(value or b"") for key, value in writes)
