"""The daemon's commands on the key-value store of a volume.

Values do not travel over the control socket: the client names a file that the value is in, or is written to.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Final

from hybrisfs.api import key_value as api
from hybrisfs.api import maintenance
from hybrisfs.api.request import Done, Handler, extended
from hybrisfs.daemon.slots import Slots
from hybrisfs.errors import UsageError
from hybrisfs.kv.orphans import UnnamedValues
from hybrisfs.kv.record import MAX_VALUE
from hybrisfs.kv.store import Key, KeyValueStore

__all__ = ["KeyValueCommands", "unnamed_values"]

_PAGE: Final = 500  # keys; that many of the longest fit into one message
_MOST_BYTES: Final = 4 * MAX_VALUE  # of a transaction


class KeyValueCommands:
    """Finds the volume, and passes on what is asked of its key-value store."""

    def __init__(self, slots: Slots) -> None:
        self._slots = slots
        self.commands: dict[str, Handler] = dict(
            [
                api.KvCreateRequest.answered_by(self._create),
                api.KvDropRequest.answered_by(self._drop),
                api.KvContainersRequest.answered_by(self._containers),
                api.KvPutRequest.answered_by(self._put),
                api.KvGetRequest.answered_by(self._get),
                api.KvDeleteRequest.answered_by(self._delete),
                api.KvListRequest.answered_by(self._list),
                api.KvTputRequest.answered_by(self._tput),
                api.KvCleanRequest.answered_by(self._clean),
                api.KvRebuildRequest.answered_by(self._rebuild),
            ]
        )

    def _store(self, name: str) -> KeyValueStore:
        return self._slots.get(name).open().key_values.open()

    def _create(self, asked: api.KvCreateRequest) -> Done:
        self._store(asked.name).create_container(asked.container)
        return Done()

    def _drop(self, asked: api.KvDropRequest) -> Done:
        self._store(asked.name).delete_container(asked.container)
        return Done()

    def _containers(self, asked: api.KvContainersRequest) -> api.Containers:
        return api.Containers(list(self._store(asked.name).containers()))

    def _put(self, asked: api.KvPutRequest) -> api.Value:
        value = _read_value(Path(asked.path))
        timestamp = self._store(asked.name).put(asked.container, asked.key, value)
        return api.Value(len(value), list(timestamp))

    def _get(self, asked: api.KvGetRequest) -> api.Value:
        found = self._store(asked.name).get(
            asked.container, asked.key, max_age=asked.max_age, max_versions=asked.max_versions
        )
        _write_value(Path(asked.path), found.value)
        return api.Value(len(found.value), list(found.timestamp))

    def _delete(self, asked: api.KvDeleteRequest) -> api.Deleted:
        return api.Deleted(self._store(asked.name).delete(asked.container, asked.key) is not None)

    def _list(self, asked: api.KvListRequest) -> api.Keys:
        found = self._store(asked.name).list(
            asked.container, asked.prefix or "", after=asked.after, limit=_PAGE
        )
        keys = [api.KeyFacts(one.key, one.size, list(one.timestamp)) for one in found]
        return api.Keys(keys, len(found) == _PAGE)

    def _tput(self, asked: api.KvTputRequest) -> api.Versions:
        store = self._store(asked.name)
        values: dict[Key, bytes | None] = {}
        total = 0
        for one in asked.writes:
            key = Key(one.container, one.key)
            if key in values:
                raise UsageError(f"{key.container}/{key.key} is named twice")
            value = None if one.path is None else _read_value(Path(one.path))
            total += len(value or b"")
            if total > _MOST_BYTES:
                raise UsageError(
                    "the transaction is too large", f"its values may have {_MOST_BYTES:,} bytes together"
                )
            values[key] = value
        return api.Versions([list(timestamp) for timestamp in store.tput(values)])

    def _clean(self, asked: api.KvCleanRequest) -> api.Cleaned:
        volume = self._slots.get(asked.name).open()
        orphans = volume.key_values.orphans(volume.maintenance.trusted)
        if asked.dry_run:
            found, deleted = orphans.look(), 0
            failed = orphans.by_name(found.unlisted)
        else:
            found, deleted, failed = orphans.delete(former=asked.former)
        failures = [api.Failure(cloud, why) for cloud, why in failed.items()]
        return extended(api.Cleaned, unnamed_values(found), deleted=deleted, failed=failures)

    def _rebuild(self, asked: api.KvRebuildRequest) -> api.RebuiltKeys:
        aside, salvaged = self._slots.get(asked.name).open().key_values.rebuild()
        return api.RebuiltKeys(str(aside), salvaged.same_store, salvaged.keys, salvaged.damaged)


def unnamed_values(found: UnnamedValues) -> maintenance.UnnamedValues:
    """How many objects of values nothing names, for people."""
    unnamed, former = found.counts
    return maintenance.UnnamedValues(unnamed, former, found.of_others)


def _read_value(path: Path) -> bytes:
    """The content of a regular file. Raises UsageError when it is none, or too large; OSError."""
    with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise UsageError(f"{path} is no file")
        value = file.read(MAX_VALUE + 1)
    if len(value) > MAX_VALUE:
        raise UsageError(f"{path} is too large", f"a value has at most {MAX_VALUE:,} bytes")
    return value


def _write_value(path: Path, value: bytes) -> None:
    """Fill a file that the client has made."""
    with open(os.open(path, os.O_WRONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC), "wb") as file:
        file.write(value)
