"""Does every cloud hold what it has acknowledged, as it was put there?"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

from hybrisfs.dispersal.engine import Marker
from hybrisfs.volume.create import MARKER_NAME, marker
from sync import decode_head, decode_segment, head_name

if TYPE_CHECKING:
    from hybrisfs.volume.volume import Volume

__all__ = ["ObjectCheck", "object_checks", "run_checks"]

_PER_CLOUD: Final = 4
_SMALL_OBJECT: Final = 64 << 20


@dataclass(frozen=True, slots=True)
class ObjectCheck:
    """One object on one cloud; *run* says what is wrong with it."""

    cloud: int
    run: Callable[[], str | None]


def object_checks(volume: Volume, db: sqlite3.Connection) -> Iterator[ObjectCheck]:
    """What the clouds are known to hold by *db*: packs of all devices, this one's log segments and head."""
    config = volume.config
    head = head_name(volume.keys.device.device_id)
    for one in config.clouds:
        yield _object_check(volume, one.number, MARKER_NAME, _marker_check(volume))
    for name, placement in db.execute("SELECT name, placement FROM log_segment ORDER BY first"):
        for cloud in placement:
            yield _object_check(volume, cloud, name, _segment_check(volume, name))
    if db.execute("SELECT 1 FROM log_segment LIMIT 1").fetchone():
        for one in config.clouds:
            yield _object_check(volume, one.number, head, _head_check(volume))
    for pack, placement in db.execute("SELECT id, placement FROM pack ORDER BY number"):
        for index, cloud in enumerate(placement):
            yield ObjectCheck(cloud, partial(volume.engine.check_share, cloud, pack, index))


def run_checks(
    clouds: int, checks: Iterable[ObjectCheck], done: Callable[[ObjectCheck, str | None], None]
) -> None:
    """Run *checks* on so many *clouds* at a time; *done* is told of each in order, with what is wrong."""
    checks = list(checks)
    with ThreadPoolExecutor(_PER_CLOUD * clouds, thread_name_prefix="fsck") as pool:
        for check, wrong in zip(checks, pool.map(lambda check: check.run(), checks), strict=True):
            done(check, wrong)


def _object_check(volume: Volume, cloud: int, name: str, verify: Callable[[bytes], object]) -> ObjectCheck:
    return ObjectCheck(cloud, partial(volume.engine.check_object, cloud, name, _SMALL_OBJECT, verify))


def _marker_check(volume: Volume) -> Callable[[bytes], object]:
    return Marker(MARKER_NAME, marker(volume.config.id)).verify


def _segment_check(volume: Volume, name: str) -> Callable[[bytes], object]:
    return lambda data: decode_segment(data, name, volume.config.id, volume.keys.segments)


def _head_check(volume: Volume) -> Callable[[bytes], object]:
    return lambda data: decode_head(data, volume.config.id, volume.keys.device.public, volume.keys.segments)
