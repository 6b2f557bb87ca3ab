"""How often the kernel asks the mount for what programs do: no more than it must."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.mount.requests import FILES, OPERATIONS, Operation, counted, requests_of

pytestmark = pytest.mark.skipif(not os.access("/dev/fuse", os.R_OK | os.W_OK), reason="needs /dev/fuse")

_ONCE: Final = 1 / FILES  # for all files together
_MOST: Final[dict[str, dict[str, float]]] = {
    "create, write 4 KiB, close": {
        "getattr": 1, "lookup": 1, "create": 1, "getxattr": 1, "write": 1, "release": 1,
    },
    "write 4 KiB more": {
        "getattr": _ONCE, "lookup": _ONCE, "create": _ONCE, "getxattr": _ONCE, "write": 1, "release": _ONCE,
    },
    "overwrite": {"getattr": _ONCE, "open": 1, "setattr": 1, "getxattr": 1, "write": 1, "release": 1},
    "open, read, close": {"getattr": 1 + _ONCE, "open": 1, "release": 1},
    "stat": {"getattr": 1 + _ONCE},
    "rename": {"getattr": 1, "lookup": 1, "rename": 1},
    "unlink": {"getattr": 1, "unlink": 1},
    "chown": {"getattr": _ONCE, "getxattr": 1, "setattr": 1},
    "save as editors do": {
        "getattr": 3, "lookup": 2, "create": 1, "getxattr": 1, "write": 1, "fsync": 1, "release": 1,
        "setattr": 1, "rename": 1,
    },
}  # fmt: skip
_MOST_OF_PROGRAMS: Final = {"cp -a": 9, "tar x": 12, "git checkout": 30}  # git's depend on times


@pytest.fixture(scope="module")
def mounted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, Path, Counter[str]]]:
    root = tmp_path_factory.mktemp("counted")
    with counted(root) as (mountpoint, counts):
        yield root, mountpoint, counts


@pytest.mark.parametrize("operation", OPERATIONS, ids=[operation.name for operation in OPERATIONS])
def test_no_more_is_asked_than_before(mounted: tuple[Path, Path, Counter[str]], operation: Operation) -> None:
    found = requests_of(operation, *mounted)
    if operation.name in _MOST_OF_PROGRAMS:  # another version of it may do something else
        assert sum(found.values()) <= _MOST_OF_PROGRAMS[operation.name], found
    else:
        most = _MOST[operation.name]
        assert {kind for kind, number in found.items() if number > most.get(kind, 0)} == set(), found
