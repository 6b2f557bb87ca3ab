"""The log of three machines, and other stores, for tests of containers that move."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from hybrisfs.kv.containers import ContainerStore
from hybrisfs.kv.log_store import LogStore
from hybrisfs.kv.log_writes import LogWriter
from hybrisfs.kv.migrate import Store
from tests.dispersal.fakes import CALM
from tests.kv.rig import UNHURRIED
from tests.kv.test_log_store import store
from tests.kv.test_migrate import BOX, Cut
from tests.kv.test_migrate_clouds import Stores
from tests.merge.fleet import Fleet


class Places:
    """The log of three machines, and other stores."""

    def __init__(self, folder: Path, ends: ExitStack) -> None:
        self.fleet = Fleet(3)
        ends.callback(self.fleet.discard)
        self._stores = Stores(folder, ends, CALM, UNHURRIED)

    def log(self, number: int = 0) -> LogStore:
        return store(self.fleet[number])

    def of(self, place: str) -> Store:
        return self.log() if place == "log" else self._stores.of(place)


def found(store: ContainerStore) -> dict[str, bytes]:
    return {one.key: store.get(BOX, one.key).value for one in store.list(BOX)}


def cut_at(
    call: int, *, after: bool, patch: pytest.MonkeyPatch, spared: Callable[[], bool] = lambda: False
) -> None:
    """The process ends before, or after, the so manyth update of the log, those that are *spared* not
    counted."""
    left, write = [call], LogWriter.write

    def cut(self: LogWriter, *asked: Any, **named: Any) -> None:
        if spared():
            write(self, *asked, **named)
            return
        left[0] -= 1
        if left[0] < 0 or (left[0] == 0 and not after):
            raise Cut
        write(self, *asked, **named)
        if left[0] == 0:
            raise Cut

    patch.setattr(LogWriter, "write", cut)
