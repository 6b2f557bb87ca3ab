"""The configuration of a volume: `volume.json` in its config folder.

`format` (1), `id` (hex), `f`, `k`, `cache_bytes`, and `clouds`, each with `number` (0 to 255, never used
again, named in placements), `name` and `url`. It holds no secret and may be edited by hand while
the volume is not in use; `cache_bytes` is the one entry meant for that.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from hybrisfs.errors import DamagedError, NewerFormatError, UnknownVolumeError, UsageError
from hybrisfs.home import Home

__all__ = [
    "DEFAULT_CACHE_BYTES",
    "MAX_CLOUDS",
    "CloudConfig",
    "VolumeConfig",
    "choose_redundancy",
    "list_volumes",
]

_FORMAT: Final = 1
_FILE: Final = "volume.json"
DEFAULT_CACHE_BYTES: Final = 20 << 30
_LEAST_CACHE_BYTES: Final = 64 << 20
MAX_CLOUDS: Final = 32


@dataclass(frozen=True, slots=True)
class CloudConfig:
    """One cloud of a volume."""

    number: int
    name: str
    url: str


@dataclass(frozen=True, slots=True)
class VolumeConfig:
    """What a volume is made of."""

    name: str
    id: bytes
    f: int
    k: int
    clouds: tuple[CloudConfig, ...]
    cache_bytes: int = DEFAULT_CACHE_BYTES

    def save(self, home: Home) -> None:
        """Write the file, whole or not at all."""
        folder = home.volume_config(self.name)
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        facts = {
            "format": _FORMAT,
            "id": self.id.hex(),
            "f": self.f,
            "k": self.k,
            "cache_bytes": self.cache_bytes,
            "clouds": [{"number": one.number, "name": one.name, "url": one.url} for one in self.clouds],
        }
        temporary = folder / f"{_FILE}.new"
        with temporary.open("w", encoding="utf-8") as file:
            json.dump(facts, file, indent=2)
            file.write("\n")
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(folder / _FILE)

    @staticmethod
    def load(home: Home, name: str) -> VolumeConfig:
        """Raises UnknownVolumeError, DamagedError, NewerFormatError."""
        path = home.volume_config(name) / _FILE
        try:
            facts = json.loads(path.read_text(encoding="utf-8"))
            return _parse(name, path, facts)
        except FileNotFoundError:
            known = ", ".join(one.name for one in list_volumes(home)) or "none yet"
            raise UnknownVolumeError(f"there is no volume {name!r}", f"known volumes: {known}") from None
        except OSError as error:
            raise DamagedError(f"cannot read {path}", error.strerror or str(error)) from error
        except (ValueError, KeyError, TypeError) as error:
            raise DamagedError(
                f"{path} is no volume configuration",
                f"{type(error).__name__}: {error}",
                "Mend or restore it.",
            ) from error


def _parse(name: str, path: Path, facts: dict[str, Any]) -> VolumeConfig:
    if facts["format"] > _FORMAT:
        raise NewerFormatError(
            f"{path} has format {facts['format']}",
            f"this program knows formats up to {_FORMAT}",
            "Update HybrisFS.",
        )
    clouds = tuple(
        CloudConfig(int(one["number"]), str(one["name"]), str(one["url"])) for one in facts["clouds"]
    )
    config = VolumeConfig(
        name, bytes.fromhex(facts["id"]), int(facts["f"]), int(facts["k"]), clouds, int(facts["cache_bytes"])
    )
    if len(config.id) != 16 or len({one.number for one in clouds}) != len(clouds):
        raise ValueError("bad volume id or cloud numbers")
    if config.cache_bytes < _LEAST_CACHE_BYTES:
        raise ValueError(f"cache_bytes is below {_LEAST_CACHE_BYTES}")
    return config


def list_volumes(home: Home) -> list[VolumeConfig]:
    """All volumes of this user, by name. Raises DamagedError when one cannot be read."""
    folder = home.config / "volumes"
    if not folder.is_dir():
        return []
    names = sorted(path.name for path in folder.iterdir() if (path / _FILE).is_file())
    return [VolumeConfig.load(home, name) for name in names]


def choose_redundancy(clouds: int, f: int | None, k: int | None) -> tuple[int, int]:
    """Fill in what the user left open: tolerate as many faults as whole copies allow, but no more than one
    unasked, and use the remaining clouds to store less (erasure coding). Raises UsageError.

    A write needs f+k clouds of which f may be faulty, while f others are silent: N >= 2f+k (Hybris 3.2).
    """
    if not 1 <= clouds <= MAX_CLOUDS:
        raise UsageError(f"{clouds} clouds", f"a volume has 1 to {MAX_CLOUDS}")
    if f is None:
        f = (clouds - (k or 1)) // 2 if k is not None else min(1, (clouds - 1) // 2)
    if k is None:
        k = max(1, clouds - 2 * f)
    if f < 0 or k < 1:
        raise UsageError(f"f={f} and k={k} make no sense with {clouds} clouds", "f is 0 or more, k 1 or more")
    if clouds < 2 * f + k:
        raise UsageError(
            f"{clouds} clouds are too few for f={f} and k={k}",
            f"to survive {f} faulty clouds with {k} pieces, {2 * f + k} are needed",
            "Add clouds, or choose a smaller -f or -k.",
        )
    return f, k
