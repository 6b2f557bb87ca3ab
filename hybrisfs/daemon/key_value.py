"""The daemon's commands on the key-value store of a volume.

Values do not travel over the control socket: the client names a file that the value is in, or is written to.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Final

from hybrisfs.api import maintenance
from hybrisfs.api.request import message_of
from hybrisfs.daemon import arguments as read
from hybrisfs.daemon.control import Progress
from hybrisfs.daemon.slots import Slots
from hybrisfs.errors import UsageError
from hybrisfs.kv.orphans import UnnamedValues
from hybrisfs.kv.record import MAX_VALUE
from hybrisfs.kv.store import Key, KeyFacts, KeyValueStore
from hybrisfs.wire import Message

__all__ = ["KeyValueCommands", "unnamed_values"]

_PAGE: Final = 500  # keys; that many of the longest fit into one message
_MOST_WRITES: Final = 256  # of a transaction
_MOST_BYTES: Final = 4 * MAX_VALUE  # of a transaction


class KeyValueCommands:
    """Finds the volume, and passes on what is asked of its key-value store."""

    def __init__(self, slots: Slots) -> None:
        self._slots = slots
        self.commands: dict[str, Callable[[Message, Progress], Message]] = {
            "kv create": self._create,
            "kv drop": self._drop,
            "kv containers": self._containers,
            "kv put": self._put,
            "kv get": self._get,
            "kv delete": self._delete,
            "kv list": self._list,
            "kv tput": self._tput,
            "kv clean": self._clean,
            "kv rebuild": self._rebuild,
        }

    def _store(self, arguments: Message) -> KeyValueStore:
        return self._slots.get(read.text(arguments, "name")).open().key_values.open()

    def _create(self, arguments: Message, _: Progress) -> Message:
        self._store(arguments).create_container(read.text(arguments, "container"))
        return {}

    def _drop(self, arguments: Message, _: Progress) -> Message:
        self._store(arguments).delete_container(read.text(arguments, "container"))
        return {}

    def _containers(self, arguments: Message, _: Progress) -> Message:
        return {"containers": list(self._store(arguments).containers())}

    def _put(self, arguments: Message, _: Progress) -> Message:
        value = _read_value(read.folder(arguments, "path"))
        timestamp = self._store(arguments).put(*_key(arguments), value)
        return {"size": len(value), "version": list(timestamp)}

    def _get(self, arguments: Message, _: Progress) -> Message:
        found = self._store(arguments).get(
            *_key(arguments),
            max_age=read.seconds(arguments, "max_age"),
            max_versions=read.number(arguments, "max_versions"),
        )
        _write_value(read.folder(arguments, "path"), found.value)
        return {"size": len(found.value), "version": list(found.timestamp)}

    def _delete(self, arguments: Message, _: Progress) -> Message:
        return {"existed": self._store(arguments).delete(*_key(arguments)) is not None}

    def _list(self, arguments: Message, _: Progress) -> Message:
        found = self._store(arguments).list(
            read.text(arguments, "container"),
            read.optional_text(arguments, "prefix") or "",
            after=read.optional_text(arguments, "after"),
            limit=_PAGE,
        )
        return {"keys": [_described(one) for one in found], "more": len(found) == _PAGE}

    def _tput(self, arguments: Message, _: Progress) -> Message:
        store = self._store(arguments)
        values: dict[Key, bytes | None] = {}
        total = 0
        for one in _records(arguments, "writes"):
            key = _key(one)
            if key in values:
                raise UsageError(f"{key.container}/{key.key} is named twice")
            path = read.optional_folder(one, "path")
            value = None if path is None else _read_value(path)
            total += len(value or b"")
            if total > _MOST_BYTES:
                raise UsageError(
                    "the transaction is too large", f"its values may have {_MOST_BYTES:,} bytes together"
                )
            values[key] = value
        written = store.tput(values)
        return {"versions": [list(timestamp) for timestamp in written]}

    def _clean(self, arguments: Message, _: Progress) -> Message:
        volume = self._slots.get(read.text(arguments, "name")).open()
        orphans = volume.key_values.orphans(volume.maintenance.trusted)
        if read.flag(arguments, "dry_run"):
            found, deleted = orphans.look(), 0
            failed = orphans.by_name(found.unlisted)
        else:
            found, deleted, failed = orphans.delete(former=read.flag(arguments, "former"))
        failures = [{"cloud": cloud, "why": why} for cloud, why in failed.items()]
        return {**message_of(unnamed_values(found)), "deleted": deleted, "failed": failures}

    def _rebuild(self, arguments: Message, _: Progress) -> Message:
        aside, salvaged = self._slots.get(read.text(arguments, "name")).open().key_values.rebuild()
        return {"set_aside": str(aside), **salvaged._asdict()}


def unnamed_values(found: UnnamedValues) -> maintenance.UnnamedValues:
    """How many objects of values nothing names, for people."""
    unnamed, former = found.counts
    return maintenance.UnnamedValues(unnamed, former, found.of_others)


def _key(arguments: Message) -> Key:
    return Key(read.text(arguments, "container"), read.text(arguments, "key"))


def _records(arguments: Message, key: str) -> list[Message]:
    records = arguments.get(key)
    if not isinstance(records, list) or not 0 < len(records) <= _MOST_WRITES:
        raise UsageError(f"a transaction has 1 to {_MOST_WRITES} writes")
    if not all(isinstance(one, dict) for one in records):
        raise UsageError(f"{key} must be a list of records")
    return records


def _described(one: KeyFacts) -> Message:
    return {"key": one.key, "size": one.size, "version": list(one.timestamp)}


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
