"""The daemon's commands that look after a volume: its database, recovery kits and key-value store."""

from __future__ import annotations

import contextlib
import logging
import os
import stat
import threading
from collections.abc import Callable, Container
from pathlib import Path
from typing import Final

import msgspec

from hybrisfs.api import key_value as api
from hybrisfs.api import maintenance
from hybrisfs.api.maintenance import (
    CacheDropRequest,
    CheckedVolume,
    Collected,
    Doing,
    FsckRequest,
    GcRequest,
    Kits,
    Recovered,
    RecoverRequest,
    RecoveryMakeRequest,
    RecoveryRemoveRequest,
    RecoveryShowRequest,
    RepairedVolume,
    RepairRequest,
    ScrubbedVolume,
    ScrubRequest,
    UnnamedValues,
)
from hybrisfs.api.request import Done, Handler, Step, extended
from hybrisfs.api.volumes import RebuiltVolume, VolumeRebuildRequest
from hybrisfs.daemon.interfaces import OpenVolume, VolumeKind
from hybrisfs.daemon.slots import Slots
from hybrisfs.errors import HybrisError, UsageError
from hybrisfs.home import Home
from hybrisfs.kv.errors import NoSuchKeyError
from hybrisfs.kv.record import MAX_VALUE, PRESENT, Condition, Timestamp
from hybrisfs.kv.salvage import UnnamedValues as FoundValues
from hybrisfs.kv.store import Key, KeyFacts, KeyValueStore

__all__ = ["KeyValueCommands", "MaintenanceCommands", "RecoveryCommands"]

log = logging.getLogger(__name__)


class MaintenanceCommands:
    """Passes on what is asked. A client that hangs up stops the work."""

    def __init__(self, slots: Slots) -> None:
        self._slots = slots
        self.commands: dict[str, Handler] = dict(
            [
                CacheDropRequest.answered_by(lambda asked: slots.get(asked.name).open().drop_cache()),
                FsckRequest.answered_by(self._fsck),
                ScrubRequest.answered_by(self._scrub),
                RepairRequest.answered_by(self._repair),
                GcRequest.answered_by(self._gc),
                VolumeRebuildRequest.answered_by(self._rebuild),
            ]
        )

    def _fsck(self, asked: FsckRequest, tell: Callable[[Step], None]) -> CheckedVolume:
        slot = self._slots.get(asked.name)
        report = slot.open().fsck(clouds=asked.clouds, progress=_steps(tell))
        return extended(CheckedVolume, report.facts(), name=slot.name)

    def _scrub(self, asked: ScrubRequest, tell: Callable[[Step], None]) -> ScrubbedVolume:
        slot = self._slots.get(asked.name)
        volume = slot.open()
        report = volume.maintenance.scrub(asked.sample, _steps(tell))
        return extended(
            ScrubbedVolume, report.facts(), name=slot.name, sample=asked.sample, values=_unnamed(volume)
        )

    def _repair(self, asked: RepairRequest, tell: Callable[[Step], None]) -> RepairedVolume:
        slot = self._slots.get(asked.name)
        report = slot.open().maintenance.repair(_steps(tell))
        return extended(RepairedVolume, report.facts(), name=slot.name)

    def _gc(self, asked: GcRequest, tell: Callable[[Step], None]) -> Collected:
        slot = self._slots.get(asked.name)
        volume = slot.open()
        collection = volume.collector.collect(_steps(tell), dry_run=asked.dry_run)
        kept = volume.status(look=False).checkpoint.log
        told = {"name": slot.name, "dry_run": asked.dry_run, "log": kept, "values": _unnamed(volume)}
        return msgspec.convert({**collection.as_dict(), **told}, Collected)

    def _rebuild(self, asked: VolumeRebuildRequest, tell: Callable[[Step], None]) -> RebuiltVolume:
        slot = self._slots.get(asked.name)
        return extended(RebuiltVolume, slot.rebuild(_steps(tell)), name=slot.name)


def _unnamed(volume: OpenVolume) -> UnnamedValues | None:
    """How many objects of values nothing names; None when that cannot be told."""
    try:
        return unnamed_values(volume.key_values.orphans(volume.maintenance.trusted).look())
    except HybrisError as error:
        log.warning("values of the key-value store cannot be told apart: %s", error)
        return None


def _steps(tell: Callable[[Step], None]) -> Callable[[str, int, int], None]:
    return lambda stage, done, total: tell(Step(done, total, stage))


# -- the daemon's commands about recovery kits, and recovering by one -----------------------------------


class RecoveryCommands:
    """Passphrases come and go over the control socket, and are kept nowhere. *creating* is held while volumes
    are made."""

    def __init__(self, home: Home, kind: VolumeKind, slots: Slots, creating: threading.Lock) -> None:
        self._home = home
        self._kind = kind
        self._slots = slots
        self._creating = creating
        self.commands: dict[str, Handler] = dict(
            [
                RecoveryMakeRequest.answered_by(
                    lambda asked: slots.get(asked.name).open().recovery.make(asked.passphrase)
                ),
                RecoveryShowRequest.answered_by(self._show),
                RecoveryRemoveRequest.answered_by(
                    lambda asked: slots.get(asked.name).open().recovery.remove(asked.kit)
                ),
                RecoverRequest.answered_by(self._recover),
            ]
        )

    def _show(self, asked: RecoveryShowRequest) -> Kits:
        volume = self._slots.get(asked.name).open()
        return Kits(volume.name, volume.recovery.all())

    def _recover(self, asked: RecoverRequest, tell: Callable[[Doing], None]) -> Recovered:
        with self._creating:
            recovered = self._kind.recover(
                self._home,
                asked.clouds,
                asked.passphrase,
                asked.as_name,
                asked.own_name,
                incomplete=asked.incomplete,
                tell=lambda text: tell(Doing(text)),
            )
        self._slots.get(recovered.volume.name).open()
        return recovered


# -- the daemon's commands on the key-value store of a volume -------------------------------------------
# Values do not travel over the control socket: the client names a file that the value is in, or is written
# to.


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
                api.KvAppendRequest.answered_by(self._append),
                api.KvReplaceRequest.answered_by(self._replace),
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
        with _ValueFile(Path(asked.path)) as value:
            written = self._store(asked.name).put(asked.container, asked.key, value, _condition(asked.need))
            return _value(value.size, written)

    def _append(self, asked: api.KvAppendRequest) -> api.Value:
        with _ValueFile(Path(asked.path)) as addition:
            return self._edit(asked, lambda before: (before or b"") + addition.read())

    def _replace(self, asked: api.KvReplaceRequest) -> api.Value:
        with _ValueFile(Path(asked.path)) as part:

            def replaced(before: bytes | None) -> bytes:
                if before is None:
                    raise NoSuchKeyError(asked.container, asked.key)
                if asked.offset > len(before):
                    raise UsageError(
                        f"there is no offset {asked.offset:,}", f"the value has {len(before):,} bytes"
                    )
                new = part.read()
                return before[: asked.offset] + new + before[asked.offset + len(new) :]

            return self._edit(asked, replaced)

    def _edit(
        self, asked: api.KvAppendRequest | api.KvReplaceRequest, change: Callable[[bytes | None], bytes]
    ) -> api.Value:
        written, size = self._store(asked.name).edit(asked.container, asked.key, change)
        return _value(size, written)

    def _get(self, asked: api.KvGetRequest) -> api.Value:
        found = self._store(asked.name).get(
            asked.container,
            asked.key,
            max_age=asked.max_age,
            max_versions=asked.max_versions,
            at_least=None if asked.at_least is None else Timestamp.from_tag(asked.at_least),
        )
        _write_value(Path(asked.path), found.value)
        return _value(len(found.value), found.timestamp)

    def _delete(self, asked: api.KvDeleteRequest) -> api.Deleted:
        deleted = self._store(asked.name).delete(asked.container, asked.key, _condition(asked.need))
        return api.Deleted(deleted is not None)

    def _list(self, asked: api.KvListRequest, tell: Callable[[api.Keys], None]) -> api.Count:
        count = 0
        with self._store(asked.name).listing(asked.container, asked.prefix or "", most=_PAGE) as pages:
            for page in pages:
                tell(api.Keys([_key_facts(one) for one in page]))
                count += len(page)
        return api.Count(count)

    def _tput(self, asked: api.KvTputRequest) -> api.Versions:
        store = self._store(asked.name)
        values: dict[Key, _ValueFile | None] = {}
        conditions: dict[Key, Condition] = {}
        for need in asked.needs:
            _name_once(conditions, key := Key(need.container, need.key))
            conditions[key] = _condition(need) or PRESENT
        with contextlib.ExitStack() as files:
            for one in asked.writes:
                _name_once(values, key := Key(one.container, one.key))
                values[key] = None if one.path is None else files.enter_context(_ValueFile(Path(one.path)))
            if sum(value.size for value in values.values() if value) > _MOST_BYTES:
                raise UsageError(
                    "the transaction is too large", f"its values may have {_MOST_BYTES:,} bytes together"
                )
            return api.Versions([timestamp.tag for timestamp in store.tput(values, conditions)])

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


def unnamed_values(found: FoundValues) -> maintenance.UnnamedValues:
    """How many objects of values nothing names, for people."""
    unnamed, former = found.counts
    return maintenance.UnnamedValues(unnamed, former, found.of_others)


def _condition(need: api.Need | None) -> Condition | None:
    if need is None:
        return None
    return Condition(need.version, None if need.tag is None else Timestamp.from_tag(need.tag))


def _value(size: int, timestamp: Timestamp) -> api.Value:
    return api.Value(size, timestamp.sn, timestamp.tag)


def _key_facts(facts: KeyFacts) -> api.KeyFacts:
    written = facts.written / 1000 if facts.written else None
    return api.KeyFacts(facts.key, facts.size, facts.timestamp.sn, facts.timestamp.tag, written)


def _name_once(named: Container[Key], key: Key) -> None:
    if key in named:
        raise UsageError(f"{key.container}/{key.key} is named twice")


class _ValueFile:
    """A value in a regular file; a context manager.

    Raises UsageError when it is none, or too large; OSError.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file = open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb")  # noqa: SIM115
        with contextlib.ExitStack() as failed:
            failed.callback(self._file.close)
            status = os.fstat(self._file.fileno())
            if not stat.S_ISREG(status.st_mode):
                raise UsageError(f"{path} is no file")
            self.size = status.st_size
            self._check(self.size)
            failed.pop_all()

    def __enter__(self) -> _ValueFile:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def read(self) -> bytes:
        """The content, which may have changed since the size was looked at."""
        self._file.seek(0)
        value = self._file.read(MAX_VALUE + 1)
        self._check(len(value))
        return value

    def _check(self, size: int) -> None:
        if size > MAX_VALUE:
            raise UsageError(f"{self._path} is too large", f"a value has at most {MAX_VALUE:,} bytes")


def _write_value(path: Path, value: bytes) -> None:
    """Fill a file that the client has made."""
    with open(os.open(path, os.O_WRONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC), "wb") as file:
        file.write(value)
