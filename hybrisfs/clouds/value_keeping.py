"""Values of the key-value store leave clouds that are to go, and are stored as f and k say, in the
background.

Each device does that for its own store. What is to be done follows from the metadata, so that it goes on
after a kill. Writes that began before a cloud was closed to writes, or before f and k changed, may still end
as they began: nothing counts as done before they have ended and all was looked at once more.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

from hybrisfs.clouds.redundancy import RewritingState
from hybrisfs.dispersal.pack import Redundancy
from hybrisfs.errors import HybrisError
from hybrisfs.kv.mend import ValueMender
from hybrisfs.kv.opening import KeyValues
from hybrisfs.kv.record import KeyMetadata
from hybrisfs.kv.store import KeyValueStore
from hybrisfs.parallel import in_parallel

__all__ = ["ValueKeeping"]

_WORKERS: Final = 6
_BEING_WRITTEN: Final = "values of the key-value store are still being written there"


class ValueKeeping:
    """The background job of one volume; used by one thread, but for `state` and `is_done`."""

    def __init__(self, key_values: KeyValues) -> None:
        self._key_values = key_values
        # Writes that were under way when a cloud was closed to writes, and when f and k became what they are.
        self._before: dict[int, frozenset[int]] = {}
        self._code: tuple[Redundancy, frozenset[int]] | None = None
        self._clean: Redundancy | None = None
        self.state: RewritingState | None = None

    def move(self, cloud: int, go_on: Callable[[], bool]) -> list[str]:
        """Rewrite the values on a cloud that gets nothing new; which could not be, in sentences."""
        try:
            opened = self._key_values.mender()
            if opened is None or not self._is_to_be_emptied(opened[0], cloud):
                return []
            troubles: list[str] = []
            self._rewrite(*opened, lambda entry: cloud in entry.placement, go_on, troubles)
        except HybrisError as error:
            return [str(error)]
        return troubles

    def _is_to_be_emptied(self, store: KeyValueStore, cloud: int) -> bool:
        self._before.setdefault(cloud, store.collector.under_way())
        return store.metadata.held(cloud) > 0

    def settle(self, cloud: int) -> str | None:
        """Why a value may yet come to be placed there; None when none can."""
        try:
            store = self._key_values.existing()
        except HybrisError as error:
            return str(error)
        if store is None:
            return None
        before = self._before.setdefault(cloud, store.collector.under_way())
        return _BEING_WRITTEN if before & store.collector.under_way() else None

    def clear(self, cloud: int) -> str | None:
        """Delete there what no key names any more; why that failed, None when it is done, or when this device
        may not: then it stays there."""
        try:
            store = self._key_values.existing()
        except HybrisError as error:
            return str(error)
        if store is not None:
            store.collector.collect()
            if cloud in store.metadata.owing() and not self._key_values.refuses_deletion(cloud):
                return "it has not deleted the values that are elsewhere now"
        return None

    def rewrite(self, code: Redundancy, go_on: Callable[[], bool]) -> bool:
        """Rewrite the values that are not stored with *code*, as new ones are; False when some are left."""
        if self._clean == code:
            return True
        try:
            opened = self._key_values.mender()
            self.state = None if opened is None else self._rewrite_outdated(*opened, code, go_on)
        except HybrisError as error:
            self.state = RewritingState(0, 1, str(error))
        if self.state is None:
            self._clean = code
        return self.state is None

    def _rewrite_outdated(
        self, store: KeyValueStore, mender: ValueMender, code: Redundancy, go_on: Callable[[], bool]
    ) -> RewritingState | None:
        """How far it came; None when nothing was left."""
        if self._code is None or self._code[0] != code:
            self._code = code, store.collector.under_way()
        waiting = bool(self._code[1] & store.collector.under_way())
        outdated = store.uploader.is_outdated
        total = sum(one.entry is not None and outdated(one.entry) for one in store.metadata.values())
        if not total and not waiting:
            return None
        self.state = RewritingState(0, total, "")
        troubles: list[str] = []

        def note(done: int) -> None:
            self.state = RewritingState(done, total, troubles[0] if troubles else "")

        self._rewrite(store, mender, outdated, go_on, troubles, note)
        if troubles or waiting or not go_on():
            return self.state
        return self._rewrite_outdated(store, mender, code, go_on)

    @staticmethod
    def _rewrite(
        store: KeyValueStore,
        mender: ValueMender,
        misplaced: Callable[[KeyMetadata], bool],
        go_on: Callable[[], bool],
        troubles: list[str],
        note: Callable[[int], None] = lambda done: None,
    ) -> None:
        """Rewrite all values that are *misplaced*; *troubles* gets what went wrong, *note* how far it
        is."""
        jobs = (
            partial(mender.rewrite, one.place, misplaced)
            for one in store.metadata.values()
            if one.entry is not None and misplaced(one.entry)
        )
        for done, trouble in enumerate(in_parallel(jobs, _WORKERS, "values"), 1):
            troubles += [trouble] if trouble is not None else []
            note(done - len(troubles))
            if not go_on():
                return

    def is_done(self, code: Redundancy) -> bool:
        """Whether all values are stored with *code*, as far as this device has looked."""
        return self.state is None and self._clean == code
