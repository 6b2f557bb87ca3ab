"""The secrets of a volume on this device, and the file that holds them.

The file is JSON, mode 0600, in the volume's state folder: `format` (1), and as hex `data`, `dedup`,
`metadata` (32 bytes each, shared by the volume's devices) and `device` (the seed of this device's
Ed25519 key). Whoever has it can read and write the volume; without it nobody can read what is on the clouds.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from blake3 import blake3

from hybrisfs.errors import DamagedError, NewerFormatError
from sync import DeviceKey

__all__ = ["SharedKeys", "VolumeKeys"]

_FORMAT: Final = 1
_KEY_SIZE: Final = 32


@dataclass(frozen=True, slots=True)
class SharedKeys:
    """The keys that all devices of a volume have, 32 bytes each; pairing hands them on."""

    data: bytes = field(repr=False)
    dedup: bytes = field(repr=False)
    metadata: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class VolumeKeys:
    """*data* seals chunks, *dedup* names them, *metadata* is where the other keys come from."""

    data: bytes = field(repr=False)
    dedup: bytes = field(repr=False)
    metadata: bytes = field(repr=False)
    device: DeviceKey

    @staticmethod
    def generate() -> VolumeKeys:
        """Fresh keys from the system's random source."""
        return VolumeKeys(
            os.urandom(_KEY_SIZE), os.urandom(_KEY_SIZE), os.urandom(_KEY_SIZE), DeviceKey.generate()
        )

    @staticmethod
    def for_new_device(shared: SharedKeys, device: DeviceKey) -> VolumeKeys:
        """The keys of a device that was let into the volume, with its own key that it was let in by."""
        return VolumeKeys(shared.data, shared.dedup, shared.metadata, device)

    @property
    def shared(self) -> SharedKeys:
        """What another device of the volume needs to have, too."""
        return SharedKeys(self.data, self.dedup, self.metadata)

    @property
    def table(self) -> bytes:
        """The key that seals the tables of packs."""
        return blake3(b"hybrisfs pack tables", key=self.metadata).digest()

    @property
    def segments(self) -> bytes:
        """The key that seals log segments and heads."""
        return blake3(b"hybrisfs log segments", key=self.metadata).digest()

    def save(self, path: Path) -> None:
        """Write the file, readable by its owner only; it must not exist yet."""
        secrets = {
            "format": _FORMAT,
            "data": self.data.hex(),
            "dedup": self.dedup.hex(),
            "metadata": self.metadata.hex(),
            "device": self.device.seed.hex(),
        }
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with open(descriptor, "w", encoding="ascii") as file:
            json.dump(secrets, file)
            file.flush()
            os.fsync(descriptor)

    @staticmethod
    def load(path: Path) -> VolumeKeys:
        """Raises DamagedError when the file is missing or no key file, NewerFormatError."""
        advice = "Without it the volume cannot be read: restore it from a backup."
        try:
            secrets = json.loads(path.read_text(encoding="ascii"))
            if secrets["format"] < 1:
                raise ValueError(f"format {secrets['format']}")
            if secrets["format"] > _FORMAT:
                raise NewerFormatError(
                    f"{path} has format {secrets['format']}",
                    f"this program knows formats up to {_FORMAT}",
                    "Update HybrisFS.",
                )
            data, dedup, metadata, seed = (
                bytes.fromhex(secrets[name]) for name in ("data", "dedup", "metadata", "device")
            )
            if {len(data), len(dedup), len(metadata), len(seed)} != {_KEY_SIZE}:
                raise ValueError("a key of the wrong length")
        except OSError as error:
            raise DamagedError(
                f"the volume's keys cannot be read from {path}", error.strerror or "", advice
            ) from error
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise DamagedError(f"{path} is no key file", str(error), advice) from error
        return VolumeKeys(data, dedup, metadata, DeviceKey.from_seed(seed))
