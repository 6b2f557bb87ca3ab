"""Does every cloud hold what it has acknowledged, as it was put there?"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Final

from hybrisfs.clouds.expected_objects import ExpectedObjects
from hybrisfs.dispersal.engine import Engine
from hybrisfs.state.pack_chunks import owed_packs
from hybrisfs.state.segments import SegmentTable
from hybrisfs.stores.marker import MARKER_NAME

__all__ = ["ObjectCheck", "object_checks", "run_checks"]

_PER_CLOUD: Final = 4
_SMALL_OBJECT: Final = 64 << 20


@dataclass(frozen=True, slots=True)
class ObjectCheck:
    """One object on one cloud; *run* says what is wrong with it."""

    cloud: int
    run: Callable[[], str | None]


def object_checks(engine: Engine, expected: ExpectedObjects, db: sqlite3.Connection) -> Iterator[ObjectCheck]:
    """What the clouds are known to hold by *db*: packs of all devices, this one's log segments and head."""
    for cloud in engine.numbers:
        yield _object_check(engine, cloud, MARKER_NAME, expected.marker.verify)
    segments = SegmentTable(db).after()
    for segment in segments:
        for cloud in segment.placement:
            yield ObjectCheck(cloud, partial(_look_at_segment, expected, cloud, segment.name))
    if segments:
        for cloud in engine.in_use:
            yield _object_check(engine, cloud, expected.head, expected.head_check)
    for pack in owed_packs(db):
        for index, cloud in enumerate(pack.placement):
            yield ObjectCheck(cloud, partial(engine.check_share, cloud, pack.id, index))


def _look_at_segment(expected: ExpectedObjects, cloud: int, name: str) -> str | None:
    found = expected.look_at_segment(cloud, name)
    return found.what if found is not None else None


def run_checks(
    clouds: int, checks: Iterable[ObjectCheck], done: Callable[[ObjectCheck, str | None], None]
) -> None:
    """Run *checks* on so many *clouds* at a time; *done* gets each in order, with what is wrong."""
    checks = list(checks)
    with ThreadPoolExecutor(_PER_CLOUD * clouds, thread_name_prefix="fsck") as pool:
        for check, wrong in zip(checks, pool.map(lambda check: check.run(), checks), strict=True):
            done(check, wrong)


def _object_check(engine: Engine, cloud: int, name: str, verify: Callable[[bytes], object]) -> ObjectCheck:
    return ObjectCheck(cloud, partial(engine.check_object, cloud, name, _SMALL_OBJECT, verify))
