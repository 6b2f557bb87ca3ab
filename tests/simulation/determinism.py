"""Chance and time that follow from a seed, so that what failed once fails again."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from random import Random
from typing import Final
from unittest import mock

from nacl.bindings import crypto_box, crypto_box_seed_keypair
from nacl.encoding import RawEncoder
from nacl.hash import blake2b

from hybrisfs.filesystem.filesystem import FileSystem
from hybrisfs.filesystem.inodes import InodeTable
from hybrisfs.filesystem.unplaced import Unplaced
from hybrisfs.merge.losses import Losses
from hybrisfs.pipeline.signals import Signals

__all__ = ["Clocks", "determined_by"]

_BEGIN: Final = 1_795_000_000_000_000_000
_SECOND: Final = 10**9


class Clocks:
    """The time that has passed, and what the clocks of each device show of it.

    `active` is the device that does something now: it is its clocks that `time` reads.
    """

    def __init__(self) -> None:
        self.passed = 0.0
        self.active = 0
        self._ahead: dict[int, float] = {}
        self._slept: dict[int, float] = {}
        self._ticks = 0

    def pass_by(self, seconds: float) -> None:
        self.passed += seconds

    def suspend(self, device: int, seconds: float) -> None:
        """The device will have slept that long: its monotonic clock stood still meanwhile."""
        self._slept[device] = self._slept.get(device, 0.0) + seconds

    def set_ahead(self, device: int, seconds: float) -> None:
        """The device's time of day is that much ahead of the true one from now on."""
        self._ahead[device] = seconds

    def monotonic(self) -> float:
        return 1000.0 + self.passed - self._slept.get(self.active, 0.0)

    def time_ns(self) -> int:
        """No two calls give the same."""
        self._ticks += 1
        return _BEGIN + int((self.passed + self._ahead.get(self.active, 0.0)) * _SECOND) + self._ticks


@contextmanager
def determined_by(seed: int, clocks: Clocks) -> Iterator[None]:
    """Node ids, times and what else a device takes from its surroundings follow from *seed* and *clocks*.

    Nothing is synced to the disk: devices are killed here, but the power stays on.
    """
    with (
        mock.patch("os.urandom", Random(seed).randbytes),
        mock.patch("sync.identity.crypto_box_seal", _box_seal),
        mock.patch("os.fsync", lambda _: None),
        mock.patch("os.fdatasync", lambda _: None),
        mock.patch("time.time_ns", clocks.time_ns),
        mock.patch("time.time", lambda: clocks.time_ns() / _SECOND),
        mock.patch("time.monotonic", clocks.monotonic),
        mock.patch.object(InodeTable.__init__, "__defaults__", (clocks.time_ns,)),
        mock.patch.dict(FileSystem.__init__.__kwdefaults__, monotonic=clocks.monotonic),
        mock.patch.object(Losses.__init__, "__defaults__", (clocks.monotonic,)),
        mock.patch.object(Unplaced.__init__, "__defaults__", (clocks.monotonic,)),
        mock.patch.object(Signals, "wait_to_retry", lambda *_: True),
    ):
        yield


def _box_seal(message: bytes, public: bytes) -> bytes:
    """libsodium's sealed box, whose ephemeral key libsodium would draw by itself."""
    ephemeral, secret = crypto_box_seed_keypair(os.urandom(32))
    nonce = blake2b(ephemeral + public, digest_size=24, encoder=RawEncoder)
    return ephemeral + crypto_box(message, nonce, public, secret)
