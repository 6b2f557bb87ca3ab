"""Deaths, as many as fit: `HYBRISFS_CRASH_POINTS=n` dies so many times; a failure tells how to die so
again.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from tests.crash.disk import Disk, Tree
from tests.crash.trace import Data, Made, Named, Resized, Step, Synced, Unnamed

_ROOT: Final = Path(__file__).parents[2]
_MANY: Final = int(os.environ.get("HYBRISFS_CRASH_POINTS", "300"))
_PER_SEED: Final = 100


@pytest.mark.timeout(120 + _MANY)
def test_whatever_the_step_it_dies_at_a_volume_comes_back() -> None:
    if not os.access("/dev/fuse", os.R_OK | os.W_OK):
        pytest.skip("/dev/fuse is not usable here")
    for seed in range(-(-_MANY // _PER_SEED)):
        done = subprocess.run(
            [sys.executable, "-m", "tests.crash", str(seed), str(_PER_SEED)],
            cwd=_ROOT,
            stdout=subprocess.PIPE,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout


# -- the disk itself: what a power cut may leave, and what it may not ----------------------------------

_FILE: Final[tuple[Step, ...]] = (Made(2, False), Named(1, b"file", 2))
_SYNCED: Final[tuple[Step, ...]] = (*_FILE, Data(2, 0, b"a" * 2048), Synced(2), Synced(1))


def _left(steps: tuple[Step, ...]) -> list[Tree]:
    """What many power cuts after these steps leave."""
    disk = Disk()
    for step in steps:
        disk.apply(step)
    return [disk.after_power_cut(random.Random(seed), ()) for seed in range(200)]


def _contents(steps: tuple[Step, ...]) -> set[bytes]:
    return {bytes(tree.files[2]) for tree in _left(steps)}


def test_what_was_synced_is_there() -> None:
    for tree in _left(_SYNCED):
        assert tree.folders[1] == {b"file": 2}
        assert tree.files[2] == b"a" * 2048


def test_what_was_not_synced_is_there_or_not_or_torn_at_a_sector() -> None:
    seen = _contents((*_SYNCED, Data(2, 0, b"b" * 2048)))
    old, new = b"a" * 512, b"b" * 512
    assert {old * 4, new * 4, new * 2 + old * 2, old * 3 + new} <= seen
    assert all(len(set(content[at : at + 512])) == 1 for content in seen for at in range(0, 2048, 512))


def test_writes_without_a_sync_between_them_survive_in_any_order() -> None:
    seen = _contents((*_SYNCED, Data(2, 0, b"b" * 512), Data(2, 0, b"c" * 512), Resized(2, 512)))
    assert {b"a" * 512, b"b" * 512, b"c" * 512} <= seen


def test_a_file_whose_folder_was_not_synced_may_have_no_name() -> None:
    names = [tree.folders[1] for tree in _left((*_FILE, Data(2, 0, b"a"), Synced(2)))]
    assert {} in names and {b"file": 2} in names


def test_a_name_is_moved_whole_or_not_at_all() -> None:
    moved: tuple[Step, ...] = (*_SYNCED, Made(3, False), Named(1, b"new", 3), Synced(3), Synced(1))
    names = [tree.folders[1] for tree in _left((*moved, Named(1, b"file", 3, (1, b"new"))))]
    assert all(one in ({b"file": 2, b"new": 3}, {b"file": 3}) for one in names)
    assert {b"file": 3} in names


def test_an_unlinked_file_may_come_back_until_the_folder_is_synced() -> None:
    gone: tuple[Step, ...] = (*_SYNCED, Unnamed(1, b"file"))
    names = [tree.folders[1] for tree in _left(gone)]
    assert {} in names and {b"file": 2} in names
    assert all(tree.folders[1] == {} for tree in _left((*gone, Synced(1))))
