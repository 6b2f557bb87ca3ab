"""The secrets of a volume on this device, and the file that holds them.

The file is JSON, mode 0600, in the volume's state folder: `format` (2), as hex `dedup` (32 bytes, shared by
the volume's devices) and `device` (the seed of this device's Ed25519 key), and `epochs`, each with `id` (4
bytes), `number`, `data` and `metadata` (32 bytes each, shared) and `excluded`, the ids (16 bytes) of the
devices that were removed before the epoch began. `check` is the BLAKE3 hash (hex) of all that, and finds
out a disk that returns other bytes; earlier versions wrote no `check`. The file opens the volume to its owner
and to every thief; without it nobody can read what is on the clouds.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from blake3 import blake3
from msgspec import Struct

from hybrisfs.environment import SYSTEM, Environment, sync_directory
from hybrisfs.errors import DamagedError, NewerFormatError
from sync import DEVICE_ID_SIZE, EPOCH_SIZE, FIRST_EPOCH, DeviceKey

__all__ = ["MAX_EPOCHS", "MAX_EPOCH_NUMBER", "EpochKeys", "SharedKeys", "VolumeKeys"]

MAX_EPOCHS: Final = 512
MAX_EPOCH_NUMBER: Final = 1 << 32
_FORMAT: Final = 2
_KEY_SIZE: Final = 32


@dataclass(frozen=True, slots=True)
class EpochKeys:
    """The keys of one epoch: *data* seals chunks, *metadata* is where the keys of all else come from."""

    id: bytes
    number: int = field(compare=False)
    """For devices that do not know the log yet; 0 for one that is to seal nothing on that ground alone."""
    data: bytes = field(repr=False)
    metadata: bytes = field(repr=False)
    excluded: frozenset[bytes] = frozenset()
    """The devices that were removed when it began: none of them has its keys."""

    @staticmethod
    def first() -> EpochKeys:
        """Fresh keys of the epoch that a volume begins with."""
        return EpochKeys(FIRST_EPOCH, 0, SYSTEM.random_bytes(_KEY_SIZE), SYSTEM.random_bytes(_KEY_SIZE))

    @staticmethod
    def after(
        number: int, excluded: Iterable[bytes], random_bytes: Callable[[int], bytes] = SYSTEM.random_bytes
    ) -> EpochKeys:
        """Fresh keys of a later epoch."""
        return EpochKeys(
            random_bytes(EPOCH_SIZE),
            min(number + 1, MAX_EPOCH_NUMBER),
            random_bytes(_KEY_SIZE),
            random_bytes(_KEY_SIZE),
            frozenset(excluded),
        )

    @property
    def table(self) -> bytes:
        """The key that seals the tables of packs."""
        return blake3(b"hybrisfs pack tables", key=self.metadata).digest()

    @property
    def segments(self) -> bytes:
        """The key that seals log segments and heads."""
        return blake3(b"hybrisfs log segments", key=self.metadata).digest()

    @property
    def values(self) -> bytes:
        """The key that seals the values of key-value stores that several machines use."""
        return blake3(b"hybrisfs shared values", key=self.metadata).digest()

    @property
    def parcels(self) -> bytes:
        """The key that seals the records of parcels."""
        return blake3(b"hybrisfs parcels", key=self.metadata).digest()

    @property
    def rank(self) -> tuple[int, bytes]:
        """Of several epochs that would do, the one with the highest is used while the log has not come yet
        (`hybrisfs.keyring`)."""
        return self.number, self.id


@dataclass(frozen=True, slots=True)
class SharedKeys:
    """The keys that all devices of a volume have; pairing hands them on. *dedup* (32 bytes) names chunks."""

    dedup: bytes = field(repr=False)
    epochs: tuple[EpochKeys, ...]
    """Lowest rank first."""


class VolumeKeys(Struct, frozen=True):
    """What all devices of the volume have, and the key of this one."""

    shared: SharedKeys
    device: DeviceKey

    @staticmethod
    def generate() -> VolumeKeys:
        """Fresh keys from the system's random source."""
        return VolumeKeys(
            SharedKeys(SYSTEM.random_bytes(_KEY_SIZE), (EpochKeys.first(),)), DeviceKey.generate()
        )

    @property
    def dedup(self) -> bytes:
        return self.shared.dedup

    @property
    def values(self) -> bytes:
        """The key that the key-value store's own keys come from: of this device alone, and for ever."""
        return blake3(b"hybrisfs key-value store", key=self.device.seed).digest()

    @property
    def first(self) -> EpochKeys:
        """The keys of the epoch that the volume began with; every device has them, and removed ones."""
        return self.shared.epochs[0]

    def with_epochs(self, epochs: Iterable[EpochKeys]) -> VolumeKeys:
        """With these instead."""
        ordered = tuple(sorted(epochs, key=lambda epoch: epoch.rank))
        return VolumeKeys(replace(self.shared, epochs=ordered), self.device)

    def save(self, path: Path, environment: Environment) -> None:
        """Write the file, readable by its owner only; it must not exist yet."""
        self._write(path, environment)

    def replace(self, path: Path, environment: Environment) -> None:
        """Replace the file, whole or not at all, and durably. Raises OSError."""
        new = path.with_name(f"{path.name}.new")
        new.unlink(missing_ok=True)
        self._write(new, environment)
        new.replace(path)
        sync_directory(path.parent, environment)

    def _write(self, path: Path, environment: Environment) -> None:
        secrets: dict[str, Any] = {
            "format": _FORMAT,
            "dedup": self.dedup.hex(),
            "device": self.device.seed.hex(),
            "epochs": [
                {
                    "id": epoch.id.hex(),
                    "number": epoch.number,
                    "data": epoch.data.hex(),
                    "metadata": epoch.metadata.hex(),
                    "excluded": sorted(device.hex() for device in epoch.excluded),
                }
                for epoch in self.shared.epochs
            ],
        }
        secrets["check"] = _check(secrets)
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with open(descriptor, "w", encoding="ascii") as file:
            json.dump(secrets, file)
            file.flush()
            environment.fsync(descriptor)

    @staticmethod
    def load(path: Path) -> VolumeKeys:
        """Raises DamagedError when the file is missing or no key file, NewerFormatError."""
        advice = "Without it the volume cannot be read: restore it from a backup."
        try:
            secrets = json.loads(path.read_text(encoding="ascii"))
            if secrets["format"] > _FORMAT:
                raise NewerFormatError(
                    f"{path} has format {secrets['format']}",
                    f"this program knows formats up to {_FORMAT}",
                    "Update HybrisFS.",
                )
            if secrets["format"] != _FORMAT:
                raise ValueError(f"format {secrets['format']}")
            if secrets.get("check") not in (None, _check(secrets)):
                raise ValueError("it is damaged: its check does not hold")
            device = DeviceKey.from_seed(_secret(secrets, "device"))
            keys = VolumeKeys(SharedKeys(_secret(secrets, "dedup"), ()), device)
            return keys.with_epochs(_parse_epochs(secrets["epochs"]))
        except OSError as error:
            raise DamagedError(
                f"the volume's keys cannot be read from {path}", error.strerror or "", advice
            ) from error
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise DamagedError(f"{path} is not a key file", str(error), advice) from error


def _check(secrets: dict[str, Any]) -> str:
    """The hash of all fields but `check`."""
    facts = {name: value for name, value in secrets.items() if name != "check"}
    return blake3(json.dumps(facts, sort_keys=True).encode()).hexdigest()


def _parse_epochs(entries: list[dict[str, Any]]) -> list[EpochKeys]:
    """Raises ValueError, KeyError, TypeError."""
    epochs = [
        EpochKeys(
            _secret(one, "id", EPOCH_SIZE),
            _number(one["number"]),
            _secret(one, "data"),
            _secret(one, "metadata"),
            frozenset(_bytes(device, DEVICE_ID_SIZE) for device in one["excluded"]),
        )
        for one in entries
    ]
    if [one.number for one in epochs if one.id == FIRST_EPOCH] != [0]:
        raise ValueError("the keys of the first epoch are missing")
    if not len({one.id for one in epochs}) == len(epochs) <= MAX_EPOCHS:
        raise ValueError("too many epochs, or two that are one")
    return epochs


def _number(value: object) -> int:
    if type(value) is not int or not 0 <= value <= MAX_EPOCH_NUMBER:
        raise ValueError("an epoch with an impossible number")
    return value


def _secret(entries: dict[str, Any], name: str, size: int = _KEY_SIZE) -> bytes:
    try:
        return _bytes(entries[name], size)
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from None


def _bytes(text: str, size: int) -> bytes:
    """Raises ValueError, which tells nothing of what it was."""
    try:
        found = bytes.fromhex(text)
    except ValueError:
        raise ValueError("not hexadecimal") from None
    if len(found) != size:
        raise ValueError("of the wrong length")
    return found
