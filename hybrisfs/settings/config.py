"""The configuration of a volume: `volume.json` in its config folder.

`format` (1), `id` (hex), `f`, `k`, `cache_bytes`, and `clouds`, each with `number` (0 to 255, never used
again, named in placements), `name` and `url`, and, unless it is as usual, `draining` (it gets nothing new),
`proven` (false until this device has seen there that the place is the volume's) and `heard` (another device
named the URL: files and profiles that it names do not count here, until somebody removes `heard`). Once the
clouds, f or k have been changed by command, `shared` is true: all devices agree on them
(`merge.cloud_records`), and what else is edited there is undone. `no_fetch_programs` are names of programs,
with shell wildcards, whose reads never fetch anything from the clouds; without that entry, the usual
thumbnailers and indexers. When another device removes more than `deletion_percent` of all names, that waits
for a person, and so may what it overwrites (100: never; `merge.brake`). `stale_reads` says what happens while
another device is silent for longer than it promised, so that changes of it may be missing here: "warn" in
`status`, or "block" programs that open files to read. `links` says how other devices are reached directly:
`port` to listen on (0: any), `addresses` ("host:port") where some may be found, and `discover`, whether to
look for them on the local network.
`transfers` says what may move between this device and the clouds: `up` and `down` are timetables as in
`transfers`, `on_metered` is "pause" or "ignore", `paused` is false, true, or until when in seconds since the
epoch; `hybrisfs limit`, `pause` and `resume` change them at any time. What nothing has named for
`discard_hours` is deleted from the clouds. `keep_versions` says how long earlier versions of files are kept:
see `hybrisfs.versions.retention`. `notifications` says whether the desktop shows troubles that need a person.
`hoard` says what this device keeps of the volume, beside what is used on it: "all", what is "asked" of it
when labels ask for copies, or "none" for the sake of others. Within `check_days` the background checks
that each share is on its cloud (`hybrisfs.clouds.patrol`). A veto is possible for `veto_hours` before this
device seconds another one's accusation. With `evict_liars` this device itself accuses each device against
which there is a proof (`hybrisfs.sharing.misconduct`).

The file holds no secret and may be edited by hand at any time. `cache_bytes`, `deletion_percent`,
`stale_reads`, `transfers`, `keep_versions`, `notifications`, `veto_hours`, `evict_liars`, `hoard` and
`check_days` hold within seconds; `no_fetch_programs`, `links`, `discard_hours` and everything else when the
daemon has been restarted, which `status` says.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import Meta, Struct, field
from msgspec.structs import replace

from backends.errors import PermanentError
from backends.registry import kind_of
from hybrisfs.environment import SYSTEM, make_directory, replace_file
from hybrisfs.errors import DamagedError, NewerFormatError, UnknownVolumeError, UsageError
from hybrisfs.home import Home
from hybrisfs.peers.settings import PeerSettings, format_address, parse_address
from hybrisfs.settings.transfers import TransferSettings, parse_timetable
from hybrisfs.versions.retention import DEFAULT_RETENTION, RetentionRule, parse_retention
from sync import VOLUME_ID_SIZE, Hoard

__all__ = [
    "DEFAULT_CACHE_BYTES",
    "DEFAULT_CHECK_DAYS",
    "DEFAULT_DELETION_SHARE",
    "DEFAULT_DISCARD_HOURS",
    "DEFAULT_NO_FETCH_PROGRAMS",
    "DEFAULT_VETO_HOURS",
    "HOARDS",
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
DEFAULT_CHECK_DAYS: Final = 90
_MOST_CHECK_DAYS: Final = 3660
STALE_READS: Final = ("warn", "block")
HOARDS: Final = {"all": Hoard.ALL, "asked": Hoard.ASKED, "none": Hoard.NONE}
"""By the words of `hoard`."""
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


_Text = Annotated[str, Meta(min_length=1)]


class CloudConfig(Struct, frozen=True):
    """One cloud of a volume."""

    number: int
    name: str
    url: str
    draining: bool = False
    proven: bool = True
    heard: bool = False
    """Whether the URL names what is on this machine, and nobody has typed it here."""
    unknown: Mapping[str, Any] = field(default_factory=dict)
    """Entries of the file that this program does not know. They stay there."""

    @property
    def in_use(self) -> bool:
        """Whether something new may go there."""
        return self.proven and not self.draining


class VolumeConfig(Struct, frozen=True):
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
    keep_versions: RetentionRule = DEFAULT_RETENTION
    notifications: bool = True
    veto_hours: int = DEFAULT_VETO_HOURS
    evict_liars: bool = False
    hoard: Literal["all", "asked", "none"] = "asked"
    check_days: int = DEFAULT_CHECK_DAYS

    unknown: Mapping[str, Any] = field(default_factory=dict)
    """Entries of the file that this program does not know. They stay there."""

    def save(self, home: Home) -> None:
        """Write the file, whole or not at all."""
        folder = home.volume_config(self.name)
        make_directory(folder, SYSTEM)
        facts = msgspec.to_builtins(_entries(self))
        for cloud, written in zip(self.clouds, facts["clouds"], strict=True):
            written.update(cloud.unknown)
        for name, value in self.unknown.items():
            facts[name] = facts[name] | value if name in _NESTED else value
        replace_file(folder / _FILE, f"{json.dumps(facts, indent=2)}\n".encode(), SYSTEM)

    @staticmethod
    def load(home: Home, name: str) -> VolumeConfig:
        """Raises UnknownVolumeError, DamagedError, NewerFormatError."""
        path = home.volume_config(name) / _FILE
        try:
            return _read(name, path, json.loads(path.read_text(encoding="utf-8")))
        except FileNotFoundError:
            known = ", ".join(one.name for one in list_volumes(home)) or "none yet"
            raise UnknownVolumeError(f"there is no volume {name!r}", f"known volumes: {known}") from None
        except OSError as error:
            raise DamagedError(f"cannot read {path}", error.strerror or str(error)) from error
        except (ValueError, RecursionError, UsageError, msgspec.ValidationError) as error:
            raise DamagedError(
                f"{path} is not a volume configuration", _in_words(str(error)), "Mend or restore it."
            ) from error

    def edited(self, entries: Mapping[str, Any]) -> VolumeConfig:
        """With these entries of the file in place of its own; those of `links` and `transfers` by the name
        and a dot. Raises UsageError for a value that the file must not have."""
        facts = msgspec.to_builtins(_entries(self))
        for name, value in entries.items():
            outer, dot, inner = name.partition(".")
            place = facts[outer] if dot else facts
            place[inner or outer] = value
        try:
            edited = _read(self.name, Path(_FILE), facts)
        except (ValueError, msgspec.ValidationError) as error:
            raise UsageError(f"this cannot be set: {_in_words(str(error))}") from error
        clouds = self.clouds  # with what this program does not know of them
        return replace(edited, clouds=clouds, unknown=self.unknown)

    def strangers(self) -> list[str]:
        """The names of the entries that this program does not know, those of nested ones with a dot."""
        outer = [
            f"{name}.{inner}" if name in _NESTED else name
            for name, value in self.unknown.items()
            for inner in (value if name in _NESTED else [name])
        ]
        return outer + [f"clouds.{name}" for one in self.clouds for name in one.unknown]


# -- the file ------------------------------------------------------------------------------------------


class _Cloud(msgspec.Struct, frozen=True, omit_defaults=True):
    number: Annotated[int, Meta(ge=0, le=MAX_CLOUD_NUMBER)]
    name: _Text
    url: _Text
    draining: bool = False
    proven: bool = True
    heard: bool = False


class _Links(msgspec.Struct, frozen=True):
    port: Annotated[int, Meta(ge=0, le=_MOST_PORT)]
    addresses: Annotated[tuple[str, ...], Meta(max_length=_MOST_ADDRESSES)]
    discover: bool


class _Transfers(msgspec.Struct, frozen=True):
    up: _Text
    down: _Text
    on_metered: Literal["pause", "ignore"]
    paused: bool | Annotated[int, Meta(ge=0, le=_MOST_SECONDS)]


class _File(msgspec.Struct, frozen=True, kw_only=True):
    """All entries. Those without a default were there from the first."""

    format: Annotated[int, Meta(ge=1)]
    id: Annotated[str, Meta(pattern=f"^[0-9a-f]{{{2 * VOLUME_ID_SIZE}}}$")]
    f: Annotated[int, Meta(ge=0, le=MAX_CLOUDS)]
    k: Annotated[int, Meta(ge=1, le=MAX_CLOUDS)]
    cache_bytes: Annotated[int, Meta(ge=0, le=_MOST)]
    no_fetch_programs: Annotated[tuple[_Text, ...], Meta(max_length=_MOST_PROGRAMS)] = (
        DEFAULT_NO_FETCH_PROGRAMS
    )
    deletion_percent: Annotated[int, Meta(ge=0, le=100)] = round(DEFAULT_DELETION_SHARE * 100)
    discard_hours: Annotated[int, Meta(ge=0, le=MOST_HOURS)] = DEFAULT_DISCARD_HOURS
    stale_reads: Literal["warn", "block"] = "warn"
    keep_versions: _Text = str(DEFAULT_RETENTION)
    notifications: bool = True
    veto_hours: Annotated[int, Meta(ge=1, le=MOST_HOURS)] = DEFAULT_VETO_HOURS
    evict_liars: bool = False
    hoard: Literal["all", "asked", "none"] = "asked"
    check_days: Annotated[int, Meta(ge=1, le=_MOST_CHECK_DAYS)] = DEFAULT_CHECK_DAYS
    links: _Links = _Links(DEFAULT_LINKS.port, (), DEFAULT_LINKS.discover)
    transfers: _Transfers = _Transfers(DEFAULT_TRANSFERS.up.text, DEFAULT_TRANSFERS.down.text, "pause", False)
    shared: bool | msgspec.UnsetType = msgspec.UNSET
    clouds: list[_Cloud]


_EXPECTED: Final = re.compile(r"Expected (.*?)(?:, got .*)? - at `\$\.(.*)`")
_KINDS: Final = {
    "int": "a number",
    "str": "a text",
    "bool": "true or false",
    "array": "a list",
    "object": "an object in braces",
    "int | bool": "a number, true or false",
}
_NESTED: Final[Mapping[str, type[msgspec.Struct]]] = {"links": _Links, "transfers": _Transfers}


def _read(name: str, path: Path, facts: Any) -> VolumeConfig:
    """Raises ValueError, UsageError, msgspec.ValidationError; NewerFormatError."""
    version = facts.get("format") if isinstance(facts, dict) else None
    if type(version) is int and version > _FORMAT:
        raise NewerFormatError(
            f"{path} has format {version}", f"this program knows formats up to {_FORMAT}", "Update HybrisFS."
        )
    file = msgspec.convert(facts, _File)
    if file.cache_bytes < _LEAST_CACHE_BYTES:
        raise ValueError(f"the cache ('cache_bytes') needs {_LEAST_CACHE_BYTES >> 20} MiB at least")
    clouds = tuple(
        CloudConfig(
            one.number, one.name, one.url, one.draining, one.proven, one.heard, _unknown(entries, _Cloud)
        )
        for one, entries in zip(file.clouds, facts["clouds"], strict=True)
    )
    shared = file.shared is True
    # Two devices may have added one place at the same moment.
    for what in ("number", "name") if shared else ("number", "name", "url"):
        if len({getattr(one, what) for one in clouds}) != len(clouds):
            raise ValueError(f"two clouds have the same {what}")
    if not shared:
        # Two devices may have drained too many between them: that must not keep this one from starting.
        choose_redundancy(len(clouds), file.f, file.k)
    until = file.transfers.paused
    nested = {one: _unknown(facts.get(one, {}), kind) for one, kind in _NESTED.items()}
    return VolumeConfig(
        name,
        bytes.fromhex(file.id),
        file.f,
        file.k,
        clouds,
        file.cache_bytes,
        file.no_fetch_programs,
        file.deletion_percent / 100,
        PeerSettings(
            port=file.links.port,
            addresses=tuple(parse_address(one) for one in file.links.addresses if not _is_relay(one)),
            relays=tuple(filter(_is_relay, file.links.addresses)),
            discover=file.links.discover,
        ),
        TransferSettings(
            up=parse_timetable(file.transfers.up),
            down=parse_timetable(file.transfers.down),
            pause_on_metered=file.transfers.on_metered == "pause",
            paused_until={True: math.inf, False: None}[until] if isinstance(until, bool) else float(until),
        ),
        file.discard_hours,
        file.stale_reads,
        shared,
        parse_retention(file.keep_versions),
        file.notifications,
        file.veto_hours,
        file.evict_liars,
        file.hoard,
        file.check_days,
        _unknown(facts, _File) | {one: entries for one, entries in nested.items() if entries},
    )


def _in_words(error: str) -> str:
    """What is wrong with an entry, for people."""
    if found := _EXPECTED.fullmatch(error):
        expected = found[1]
        for kind, noun in _KINDS.items():
            expected = expected.replace(f"`{kind}`", noun)
        return f"{found[2]!r} is not {expected}"
    return error.replace("`$.", "`")


def _unknown(entries: dict[str, Any], kind: type[msgspec.Struct]) -> dict[str, Any]:
    return {name: value for name, value in entries.items() if name not in kind.__struct_fields__}


def _entries(config: VolumeConfig) -> _File:
    links, transfers = config.links, config.transfers
    return _File(
        format=_FORMAT,
        id=config.id.hex(),
        f=config.f,
        k=config.k,
        cache_bytes=config.cache_bytes,
        no_fetch_programs=config.no_fetch_programs,
        deletion_percent=round(config.deletion_share * 100),
        discard_hours=config.discard_hours,
        stale_reads="block" if config.stale_reads == "block" else "warn",
        keep_versions=str(config.keep_versions),
        notifications=config.notifications,
        veto_hours=config.veto_hours,
        evict_liars=config.evict_liars,
        hoard=config.hoard,
        check_days=config.check_days,
        links=_Links(links.port, links_shown(links), links.discover),
        transfers=_Transfers(
            transfers.up.text,
            transfers.down.text,
            "pause" if transfers.pause_on_metered else "ignore",
            _paused(transfers.paused_until),
        ),
        shared=config.shared or msgspec.UNSET,
        clouds=[
            _Cloud(one.number, one.name, one.url, one.draining, one.proven, one.heard)
            for one in config.clouds
        ],
    )


def _is_relay(address: str) -> bool:
    """Whether an address at which other devices are found is the URL of a relay. Raises UsageError when it is
    a malformed one."""
    kind = kind_of(address) if address.startswith("relay://") else None
    if kind is None:
        return False
    try:
        kind.parse(address)
    except PermanentError as error:
        raise UsageError(f"{address[:80]!r} is not the URL of a relay", error.reason, error.advice) from error
    return True


def links_shown(links: PeerSettings) -> tuple[str, ...]:
    """Where other devices may be found, as in the file."""
    return (*map(format_address, links.addresses), *links.relays)


def _paused(until: float | None) -> bool | int:
    return until is not None if until in (None, math.inf) else math.ceil(until)


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
            f"1 cloud is too few for f={f} and k={k}"
            if clouds == 1
            else f"{clouds} clouds are too few for f={f} and k={k}",
            f"when {f} may fail and {k} {'is' if k == 1 else 'are'} needed to read, it takes {2 * f + k}",
            "Add clouds, or choose a smaller -f or -k.",
        )
    return f, k
