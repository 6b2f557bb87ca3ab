"""DepSky, with which ours are compared: it reads what was written although one of four clouds lies."""

from __future__ import annotations

import os
from contextlib import closing
from pathlib import Path

import pytest

from backends.file import FileStore
from backends.store import Store
from benchmarks.depsky import DepSky
from tests.adversary import ALL, READS, Fault, FaultyStore

_EVERY = range(4)


def _stores(folder: Path) -> list[Store]:
    stores = [FileStore((folder / str(number)).as_uri()) for number in _EVERY]
    for store in stores:
        store.initialise()
    return [*stores]


@pytest.mark.parametrize("coded", [False, True])
@pytest.mark.parametrize("kind", ["corrupt", "lose"])
def test_it_reads_the_latest_value_although_a_cloud_lies(tmp_path: Path, coded: bool, kind: str) -> None:
    operations = READS if kind == "corrupt" else ALL
    first, *others = _stores(tmp_path)
    liar = FaultyStore(first, 1, [Fault(kind, operations=operations)])  # type: ignore[arg-type]
    with closing(DepSky([liar, *others], 1, coded=coded)) as system:
        for data in (os.urandom(5000), os.urandom(7001)):
            system.put("key", data)
            system.settle(_EVERY)
            assert system.get("key") == data
            system.settle(_EVERY)


def test_it_gives_up_when_two_clouds_lie(tmp_path: Path) -> None:
    *liars, third, fourth = _stores(tmp_path)
    faulty = [FaultyStore(store, 1) for store in liars]
    with closing(DepSky([*faulty, third, fourth], 1, coded=True)) as system:
        system.put("key", b"value" * 1000)
        system.settle(_EVERY)
        for one in faulty:
            one.faults = [Fault("corrupt", operations=READS)]
        with pytest.raises(SystemExit, match="too many clouds"):
            system.get("key")
