"""The configuration of a volume: `volume.json` in its config folder.

`format` (1), `id` (hex), `f`, `k`, `cache_bytes`, and `clouds`, each with `number` (0 to 255, never used
again, named in placements), `name` and `url`, and, unless it is as usual, `draining` (it gets nothing new),
`proven` (false until this device has seen there that the place is the volume's) and `heard` (another device
named the URL: files and profiles that it names do not count here, until somebody removes `heard`). Once the
clouds, f or k have been changed by command, `shared` is true: all devices agree on them (`merge.cloud_set`),
and what else is edited there is undone. `no_fetch_programs` are names of programs, with shell
wildcards, whose reads never fetch anything from the clouds; without that entry, the usual thumbnailers
and indexers. When another device removes more than `deletion_percent` of all names, that waits for a
person (100: never). `stale_reads` says what happens while another device is silent for longer than it
promised, so that changes of it may be missing here: "warn" in `status`, or "block" programs that open files
to read. `links` says how other devices are reached directly: `port` to listen on (0: any),
`addresses` ("host:port") where some may be found, and `discover`, whether to look for them on the local
network. `transfers` says what may move between this device and the clouds: `up` and `down` are timetables as
in `timetable`, `on_metered` is "pause" or "ignore", `paused` is false, true, or until when in seconds since
the epoch; `hybrisfs limit`, `pause` and `resume` change them at any time. What nothing has named for
`discard_hours` is deleted from the clouds. `keep_versions` says how long earlier versions of files are kept:
see `hybrisfs.versions.ladder`. `notifications` says whether the desktop shows what needs a person. Who is
accused by another device can be kept for `veto_hours` before this one seconds the removal; with `evict_liars`
this one accuses by itself every device against which there is a proof (`hybrisfs.volume.trials`).

The file holds no secret and may be edited by hand at any time. `cache_bytes`, `deletion_percent`,
`stale_reads`, `transfers`, `keep_versions`, `notifications`, `veto_hours` and `evict_liars` hold within
seconds; `no_fetch_programs`, `links`, `discard_hours` and everything else when the daemon has been
restarted, which `status` says.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from hybrisfs.errors import DamagedError, NewerFormatError, UnknownVolumeError, UsageError
from hybrisfs.home import Home
from hybrisfs.peers.settings import PeerSettings, format_address, parse_address
from hybrisfs.store.files import make_directory, replace_file
from hybrisfs.versions.ladder import DEFAULT_LADDER, Ladder, parse_ladder
from hybrisfs.volume.timetable import parse_timetable
from hybrisfs.volume.transfers import TransferSettings
from sync import VOLUME_ID_SIZE

__all__ = [
    "DEFAULT_CACHE_BYTES",
    "DEFAULT_DELETION_SHARE",
    "DEFAULT_DISCARD_HOURS",
    "DEFAULT_NO_FETCH_PROGRAMS",
    "DEFAULT_VETO_HOURS",
    "MAX_CLOUDS",
    "MOST_HOURS",
    "STALE_READS",
    "CloudConfig",
    "VolumeConfig",
    "choose_redundancy",
    "list_volumes",
]

_FORMAT: Final = 1
_FILE: Final = "volume.json"
DEFAULT_DELETION_SHARE: Final = 0.3
DEFAULT_LINKS: Final = PeerSettings()
DEFAULT_TRANSFERS: Final = TransferSettings()
DEFAULT_DISCARD_HOURS: Final = 72  # a backup of Friday night may be restored on Monday evening
DEFAULT_VETO_HOURS: Final = 72  # likewise
DEFAULT_CACHE_BYTES: Final = 20 << 30
STALE_READS: Final = ("warn", "block")
_LEAST_CACHE_BYTES: Final = 64 << 20
MAX_CLOUDS: Final = 32
MAX_CLOUD_NUMBER: Final = 255  # placements have a byte for it
_MOST: Final = 1 << 60
_MOST_ADDRESSES: Final = 64
_MOST_SECONDS: Final = 1 << 36  # since the epoch; more than the calendar has
_MOST_PORT: Final = 65535
MOST_HOURS: Final = 24 * 3660
_MOST_PROGRAMS: Final = 1000
DEFAULT_NO_FETCH_PROGRAMS: Final = (
    "*thumbnailer*",
    "gnome-thumbnail-font",
    "thumbnail.so",  # KDE's
    "tumblerd",
    "tracker-extract*",
    "tracker-miner-*",
    "localsearch*",
    "baloo_file*",
    "baloorunner",
    "recollindex",
    "zeitgeist-daemon",
)


@dataclass(frozen=True, slots=True)
class CloudConfig:
    """One cloud of a volume."""

    number: int
    name: str
    url: str
    draining: bool = False
    proven: bool = True
    heard: bool = False
    """Whether the URL names what is on this machine, and nobody has typed it here."""

    @property
    def in_use(self) -> bool:
        """Whether something new may go there."""
        return self.proven and not self.draining


@dataclass(frozen=True, slots=True)
class VolumeConfig:
    """What a volume is made of."""

    name: str
    id: bytes
    f: int
    k: int
    clouds: tuple[CloudConfig, ...]
    cache_bytes: int = DEFAULT_CACHE_BYTES
    no_fetch_programs: tuple[str, ...] = DEFAULT_NO_FETCH_PROGRAMS
    deletion_share: float = DEFAULT_DELETION_SHARE
    links: PeerSettings = DEFAULT_LINKS
    transfers: TransferSettings = DEFAULT_TRANSFERS
    discard_hours: int = DEFAULT_DISCARD_HOURS
    stale_reads: str = STALE_READS[0]
    shared: bool = False
    keep_versions: Ladder = DEFAULT_LADDER
    notifications: bool = True
    veto_hours: int = DEFAULT_VETO_HOURS
    evict_liars: bool = False

    def save(self, home: Home) -> None:
        """Write the file, whole or not at all."""
        folder = home.volume_config(self.name)
        make_directory(folder)
        facts = {
            "format": _FORMAT,
            "id": self.id.hex(),
            "f": self.f,
            "k": self.k,
            "cache_bytes": self.cache_bytes,
            "no_fetch_programs": list(self.no_fetch_programs),
            "deletion_percent": round(self.deletion_share * 100),
            "discard_hours": self.discard_hours,
            "stale_reads": self.stale_reads,
            "keep_versions": str(self.keep_versions),
            "notifications": self.notifications,
            "veto_hours": self.veto_hours,
            "evict_liars": self.evict_liars,
            "links": {
                "port": self.links.port,
                "addresses": [format_address(one) for one in self.links.addresses],
                "discover": self.links.discover,
            },
            "transfers": {
                "up": self.transfers.up.text,
                "down": self.transfers.down.text,
                "on_metered": "pause" if self.transfers.pause_on_metered else "ignore",
                "paused": _paused(self.transfers.paused_until),
            },
            **({"shared": True} if self.shared else {}),
            "clouds": [_facts(one) for one in self.clouds],
        }
        replace_file(folder / _FILE, f"{json.dumps(facts, indent=2)}\n".encode())

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
        except KeyError as error:
            raise _misconfigured(path, f"it has no {error}") from error
        except (ValueError, RecursionError, UsageError) as error:
            raise _misconfigured(path, str(error)) from error


def _facts(cloud: CloudConfig) -> dict[str, Any]:
    facts = {"number": cloud.number, "name": cloud.name, "url": cloud.url}
    usual = {"draining": False, "proven": True, "heard": False}
    return facts | {flag: not value for flag, value in usual.items() if getattr(cloud, flag) != value}


def _misconfigured(path: Path, why: str) -> DamagedError:
    return DamagedError(f"{path} is no volume configuration", why, "Mend or restore it.")


def _parse(name: str, path: Path, facts: Any) -> VolumeConfig:
    """Raises ValueError, KeyError, UsageError; NewerFormatError."""
    entries = _object(facts)
    version = _integer(entries, "format", 1)
    if version > _FORMAT:
        raise NewerFormatError(
            f"{path} has format {version}", f"this program knows formats up to {_FORMAT}", "Update HybrisFS."
        )
    clouds = tuple(
        CloudConfig(
            _integer(one, "number", 0, MAX_CLOUD_NUMBER),
            _text(one, "name"),
            _text(one, "url"),
            _flag(one, "draining", default=False),
            _flag(one, "proven", default=True),
            _flag(one, "heard", default=False),
        )
        for one in map(_object, _list(entries, "clouds"))
    )
    shared = _flag(entries, "shared", default=False)
    # Two devices may have added one place at the same moment.
    for what in ("number", "name") if shared else ("number", "name", "url"):
        if len({getattr(one, what) for one in clouds}) != len(clouds):
            raise ValueError(f"two clouds have the same {what}")
    volume = bytes.fromhex(_text(entries, "id"))
    if len(volume) != VOLUME_ID_SIZE:
        raise ValueError(f"the id is not one of {VOLUME_ID_SIZE} bytes")
    f, k = _integer(entries, "f", 0, MAX_CLOUDS), _integer(entries, "k", 1, MAX_CLOUDS)
    if (
        not shared
    ):  # two devices may have drained too many between them: that must not keep this one from starting
        choose_redundancy(len(clouds), f, k)
    cache_bytes = _integer(entries, "cache_bytes", _LEAST_CACHE_BYTES)
    return VolumeConfig(
        name,
        volume,
        f,
        k,
        clouds,
        cache_bytes,
        _programs(entries),
        _deletion_share(entries),
        _links(entries),
        _transfers(entries),
        _discard_hours(entries),
        _stale_reads(entries),
        shared,
        _keep_versions(entries),
        _flag(entries, "notifications", default=True),
        _integer(entries, "veto_hours", 1, MOST_HOURS) if "veto_hours" in entries else DEFAULT_VETO_HOURS,
        _flag(entries, "evict_liars", default=False),
    )


def _keep_versions(entries: dict[str, Any]) -> Ladder:
    """Raises UsageError."""
    return parse_ladder(_text(entries, "keep_versions")) if "keep_versions" in entries else DEFAULT_LADDER


def _stale_reads(entries: dict[str, Any]) -> str:
    value: str = entries.get("stale_reads", STALE_READS[0])
    if value not in STALE_READS:
        raise ValueError(f"'stale_reads' is none of {', '.join(STALE_READS)}")
    return value


def _links(entries: dict[str, Any]) -> PeerSettings:
    """Raises UsageError for what is no address."""
    if "links" not in entries:
        return DEFAULT_LINKS
    links = _object(entries["links"])
    addresses = _list(links, "addresses")
    if len(addresses) > _MOST_ADDRESSES or not all(isinstance(one, str) for one in addresses):
        raise ValueError(f"'addresses' is not a list of up to {_MOST_ADDRESSES} texts")
    if not isinstance(links["discover"], bool):
        raise ValueError("'discover' is neither true nor false")
    port = _integer(links, "port", 0, _MOST_PORT)
    return PeerSettings(port=port, addresses=tuple(map(parse_address, addresses)), discover=links["discover"])


def _transfers(entries: dict[str, Any]) -> TransferSettings:
    """Raises UsageError for what is no timetable."""
    if "transfers" not in entries:
        return DEFAULT_TRANSFERS
    chosen = _object(entries["transfers"])
    if chosen["on_metered"] not in ("pause", "ignore"):
        raise ValueError("'on_metered' is neither pause nor ignore")
    until = chosen["paused"]
    if not isinstance(until, bool):
        until = float(_integer(chosen, "paused", 0, _MOST_SECONDS))
    return TransferSettings(
        up=parse_timetable(_text(chosen, "up")),
        down=parse_timetable(_text(chosen, "down")),
        pause_on_metered=chosen["on_metered"] == "pause",
        paused_until={True: math.inf, False: None}[until] if isinstance(until, bool) else until,
    )


def _paused(until: float | None) -> bool | int:
    return until is not None if until in (None, math.inf) else math.ceil(until)


def _deletion_share(entries: dict[str, Any]) -> float:
    if "deletion_percent" not in entries:
        return DEFAULT_DELETION_SHARE
    return _integer(entries, "deletion_percent", 0, 100) / 100


def _discard_hours(entries: dict[str, Any]) -> int:
    if "discard_hours" not in entries:
        return DEFAULT_DISCARD_HOURS
    return _integer(entries, "discard_hours", 0, MOST_HOURS)


def _programs(entries: dict[str, Any]) -> tuple[str, ...]:
    if "no_fetch_programs" not in entries:
        return DEFAULT_NO_FETCH_PROGRAMS
    names = _list(entries, "no_fetch_programs")
    if len(names) > _MOST_PROGRAMS or not all(isinstance(one, str) and one for one in names):
        raise ValueError(f"'no_fetch_programs' is not a list of up to {_MOST_PROGRAMS} names")
    return tuple(names)


def _object(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ValueError("an object is missing its braces")
    return value


def _list(entries: dict[str, Any], name: str) -> list[Any]:
    value = entries[name]
    if not isinstance(value, list):
        raise ValueError(f"{name!r} is not a list")
    return value


def _text(entries: dict[str, Any], name: str) -> str:
    value = entries[name]
    if not isinstance(value, str) or not value:
        raise ValueError(f"{name!r} is not a text")
    return value


def _flag(entries: dict[str, Any], name: str, *, default: bool) -> bool:
    value = entries.get(name, default)
    if not isinstance(value, bool):
        raise ValueError(f"{name!r} is neither true nor false")
    return value


def _integer(entries: dict[str, Any], name: str, least: int, most: int = _MOST) -> int:
    value = entries[name]
    if type(value) is not int or not least <= value <= most:
        raise ValueError(f"{name!r} is not a number from {least} to {most}")
    return value


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
