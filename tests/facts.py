"""Answers of the daemon, made of what a test says of them; the rest is as in a volume that is well."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from hybrisfs.api.clouds import CloudStatus
from hybrisfs.api.devices import Device
from hybrisfs.api.status import VolumeStatus

__all__ = ["cloud_of", "device_of", "status_of"]

_CLOUD: Final = {"name": "amber", "url": "file:///amber", "state": "ok", "reason": "", "since": 0}
_DEVICE: Final = {"id": "aa", "name": "desk", "this": False, "forked": False, "rejoined": False}
_RIGHTS: Final[Mapping[str, Any]] = {"reader": False, "folders": None, "overstepped": False, "charges": []}
_FREE: Final = {"timetable": "off", "rate": None, "changes_at": None, "then": None}
_VOLUME: Final[Mapping[str, Any]] = {
    "name": "home",
    "mountpoint": None,
    "f": 1,
    "k": 1,
    "files": 0,
    "bytes": 0,
    "pending_files": 0,
    "pending_bytes": 0,
    "machines_only": {"files": 0, "bytes": 0, "devices": []},
    "ignored": {"rules": [], "files": 0, "bytes": 0},
    "removed": False,
    "reader": False,
    "folders": None,
    "conflicts": 0,
    "accused": [],
    "stale_reads": "warn",
    "notifications": True,
    "jobs": [],
    "pinned": {"files": 0, "bytes": 0, "missing_bytes": 0, "problem": None},
    "copies": [],
    "checkpoint": {
        "current": True,
        "waits_for": [],
        "log": {"dropped": 0, "freed_bytes": 0, "kept": 0},
    },
    "versions": {"keep": "default", "count": 0, "bytes": 0},
    "values": {"unreadable": 0, "owing": []},
    "cache": {"bytes": 0, "budget": 0},
    "transfers": {
        "up": _FREE,
        "down": _FREE,
        "on_metered": "pause",
        "held": None,
        "paused_until": None,
    },
    "mirrors": [],
    "undeletable": 0,
    "warnings": [],
    "notices": [],
    "last_error": None,
}


def cloud_of(**different: Any) -> CloudStatus:
    """A cloud, as `status` tells of it."""
    return msgspec.convert({**_CLOUD, "retention": None, **different}, CloudStatus)


def device_of(**different: Any) -> Device:
    """A device, as `status` and `device list` tell of it."""
    return msgspec.convert({**_DEVICE, **_RIGHTS, **different}, Device)


def status_of(*, clouds: Any = (), devices: Any = (), **different: Any) -> VolumeStatus:
    """A volume; of each cloud and device, too, is told what differs."""
    facts = msgspec.convert({**_VOLUME, "clouds": [], "devices": [], **different}, VolumeStatus)
    facts.clouds = [cloud_of(**one) for one in clouds]
    facts.devices = [device_of(**one) for one in devices]
    return facts
