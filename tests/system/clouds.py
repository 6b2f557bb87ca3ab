"""What can happen to a directory that plays a cloud."""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

__all__ = ["DAMAGES", "away", "objects"]

_OWN = ".hybrisfs"
"""The driver's own folder, which says that the disk is mounted; `rm -r CLOUD/*` leaves it."""


def objects(cloud: Path) -> list[Path]:
    """The files of all objects, in order of name."""
    found = []
    for parent, folders, names in os.walk(cloud):
        if _OWN in folders:
            folders.remove(_OWN)
        found += [Path(parent) / name for name in names]
    return sorted(found)


@contextmanager
def away(*clouds: Path) -> Iterator[None]:
    """The clouds are gone within the block and unchanged after it."""
    hidden = [(cloud, cloud.with_name(cloud.name + " away")) for cloud in clouds]
    for cloud, elsewhere in hidden:
        cloud.rename(elsewhere)
    try:
        yield
    finally:
        for cloud, elsewhere in hidden:
            elsewhere.rename(cloud)


def _delete(cloud: Path) -> None:
    shutil.rmtree(cloud)


def _empty(cloud: Path) -> None:
    for path in objects(cloud):
        path.unlink()


def _replace_by_a_file(cloud: Path) -> None:
    """What chmod 000 is to an ordinary user, for root too."""
    shutil.rmtree(cloud)
    cloud.touch()


def _randomise(cloud: Path) -> None:
    choose = random.Random(1)
    for path in objects(cloud):
        path.write_bytes(choose.randbytes(path.stat().st_size))


def _truncate(cloud: Path) -> None:
    for path in objects(cloud):
        os.truncate(path, path.stat().st_size // 2)


def _inflate(cloud: Path) -> None:
    """Endless objects, to one who believes the cloud about their size; sparse, so that they are cheap."""
    for path in objects(cloud):
        os.truncate(path, path.stat().st_size + (1 << 40))


def _flip(cloud: Path) -> None:
    """One bit in the middle of every object: what a bad disk does."""
    for path in objects(cloud):
        data = bytearray(path.read_bytes())
        if data:
            data[len(data) // 2] ^= 0x10
            path.write_bytes(data)


def _swap(cloud: Path) -> None:
    """Every object answers with the content of another of its kind."""
    kinds = {path.relative_to(cloud).parts[0] for path in objects(cloud)}
    for kind in kinds:
        paths = objects(cloud / kind)
        contents = [path.read_bytes() for path in paths]
        for path, content in zip(paths, contents[1:] + contents[:1], strict=True):
            path.write_bytes(content)


DAMAGES: dict[str, Callable[[Path], None]] = {
    "deleted": _delete,
    "emptied": _empty,
    "replaced by a file": _replace_by_a_file,
    "filled with random bytes": _randomise,
    "truncated": _truncate,
    "inflated": _inflate,
    "flipped in one bit": _flip,
    "swapped": _swap,
}
