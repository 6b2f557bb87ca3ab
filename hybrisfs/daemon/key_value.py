"""The daemon's commands on the key-value store of a volume.

Values do not travel over the control socket: the client names a file that the value is in, or is written to.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Callable, Container
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

from hybrisfs.api import key_value as api
from hybrisfs.api.objects import is_in_parts
from hybrisfs.api.request import Done, Handler, Step, extended
from hybrisfs.daemon.maintenance import steps, unnamed_values
from hybrisfs.daemon.slots import Slots
from hybrisfs.errors import UsageError
from hybrisfs.kv.containers import ContainerStore, Key, KeyFacts
from hybrisfs.kv.errors import NoSuchKeyError
from hybrisfs.kv.record import MAX_VALUE, PRESENT, Condition, Timestamp

if TYPE_CHECKING:
    from hybrisfs.kv.opening import KeyValues

__all__ = ["KeyValueCommands"]

_Found = TypeVar("_Found", bound=api.Found)

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
                api.KvMigrateRequest.answered_by(self._migrate),
                api.KvForgetRequest.answered_by(self._forget),
                api.KvContainersRequest.answered_by(self._containers),
                api.KvSessionRequest.answered_by(self._session),
                api.KvPutRequest.answered_by(self._put),
                api.KvAppendRequest.answered_by(self._append),
                api.KvReplaceRequest.answered_by(self._replace),
                api.KvGetRequest.answered_by(self._get),
                api.KvStatRequest.answered_by(self._stat),
                api.KvValuesRequest.answered_by(self._values),
                api.KvDeleteRequest.answered_by(self._delete),
                api.KvListRequest.answered_by(self._list),
                api.KvPageRequest.answered_by(self._page),
                api.KvTputRequest.answered_by(self._tput),
                api.KvCleanRequest.answered_by(self._clean),
                api.KvRebuildRequest.answered_by(self._rebuild),
            ]
        )

    def _all(self, name: str) -> KeyValues:
        return self._slots.get(name).open().key_values

    def _store(self, asked: api.OfContainer) -> ContainerStore:
        """The store that has the container that is asked about."""
        return self._all(asked.name).of(asked.container)

    def _create(self, asked: api.KvCreateRequest) -> api.Created:
        return api.Created(self._all(asked.name).create_container(asked.container, asked.metadata))

    def _drop(self, asked: api.KvDropRequest) -> Done:
        self._all(asked.name).delete_container(asked.container)
        return Done()

    def _migrate(self, asked: api.KvMigrateRequest, tell: Callable[[Step], None]) -> api.MigratedContainer:
        moved = self._all(asked.name).migrate(asked.container, asked.metadata, steps(tell))
        return api.MigratedContainer(moved.keys, list(moved.beside))

    def _forget(self, asked: api.KvForgetRequest) -> Done:
        self._all(asked.name).forget_service(asked.metadata)
        return Done()

    def _containers(self, asked: api.KvContainersRequest) -> api.Containers:
        places = self._all(asked.name).containers()
        names = sorted({name for one in places for name in one.containers})
        return api.Containers(names, places)

    def _session(self, asked: api.KvSessionRequest) -> api.Session:
        return api.Session(self._all(asked.name).session(asked.seen, asked.patience))

    def _put(self, asked: api.KvPutRequest) -> api.Value:
        with _ValueFile(Path(asked.path)) as value:
            written = self._store(asked).put(
                asked.container, asked.key, value, _condition(asked.need), asked.attributes or b""
            )
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
        store = self._store(asked)
        with contextlib.suppress(NoSuchKeyError):
            _refuse_parts(asked, store.stat(asked.container, asked.key))
        written, size = store.edit(asked.container, asked.key, change)
        return _value(size, written)

    def _get(self, asked: api.KvGetRequest) -> api.Found:
        found = self._store(asked).get(
            asked.container,
            asked.key,
            max_age=asked.max_age,
            max_versions=asked.max_versions,
            at_least=None if asked.at_least is None else Timestamp.from_tag(asked.at_least),
            tag=None if asked.tag is None else Timestamp.from_tag(asked.tag),
        )
        if not asked.list_of_parts:
            _refuse_parts(asked, found.facts)
        _write_value(Path(asked.path), found.value)
        return _found(api.Found, found.facts)

    def _stat(self, asked: api.KvStatRequest) -> api.Found:
        return _found(api.Found, self._store(asked).stat(asked.container, asked.key))

    def _values(self, asked: api.KvValuesRequest) -> api.Values:
        found = self._store(asked).values(asked.container, asked.key)
        return api.Values([_found(api.Found, one) for one in found])

    def _delete(self, asked: api.KvDeleteRequest) -> api.Deleted:
        deleted = self._store(asked).delete(asked.container, asked.key, _condition(asked.need))
        return api.Deleted(deleted is not None)

    def _list(self, asked: api.KvListRequest, tell: Callable[[api.Keys], None]) -> api.Count:
        count = 0
        with self._store(asked).listing(asked.container, asked.prefix or "", most=_PAGE) as pages:
            for page in pages:
                tell(api.Keys([_key_facts(one) for one in page]))
                count += len(page)
        return api.Count(count)

    def _page(self, asked: api.KvPageRequest) -> api.FoundKeys:
        found = self._store(asked).list(asked.container, asked.prefix, after=asked.after, limit=asked.limit)
        keys = [_found(api.FoundKey, one, key=one.key) for one in found]
        return api.FoundKeys(keys, len(found) == asked.limit)

    def _tput(self, asked: api.KvTputRequest) -> api.Versions:
        containers = {*(one.container for one in asked.writes), *(one.container for one in asked.needs)}
        stores = {self._all(asked.name).of(container) for container in containers}
        if len(stores) > 1:
            raise UsageError(
                "the transaction cannot be carried out",
                "its containers have their metadata in different places",
                "hybrisfs kv containers shows where.",
            )
        (store,) = stores
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
            attributes = {Key(one.container, one.key): one.attributes or b"" for one in asked.writes}
            written = store.tput(values, conditions, attributes)
        return api.Versions([timestamp.tag for timestamp in written])

    def _clean(self, asked: api.KvCleanRequest) -> api.Cleaned:
        volume = self._slots.get(asked.name).open()
        orphans = volume.key_values.orphans(volume.maintenance.trusted())
        if asked.dry_run:
            found, deleted = orphans.look(), 0
            failed = orphans.by_name(found.unlisted)
        else:
            found, deleted, failed = orphans.delete(former=asked.former)
        failures = [api.Failure(cloud, why) for cloud, why in failed.items()]
        return extended(api.Cleaned, unnamed_values(found), deleted=deleted, failed=failures)

    def _rebuild(self, asked: api.KvRebuildRequest) -> api.RebuiltKeys:
        aside, rebuilt = self._slots.get(asked.name).open().key_values.rebuild()
        return api.RebuiltKeys(str(aside), rebuilt.same_store, rebuilt.keys, rebuilt.damaged)


def _condition(need: api.Need | None) -> Condition | None:
    if need is None:
        return None
    return Condition(need.version, None if need.tag is None else Timestamp.from_tag(need.tag))


def _value(size: int, timestamp: Timestamp) -> api.Value:
    return api.Value(size, timestamp.sn, timestamp.tag)


def _found(kind: type[_Found], facts: KeyFacts, **more: object) -> _Found:
    return kind(
        size=facts.size,
        version=facts.timestamp.sn,
        tag=facts.timestamp.tag,
        written=_seconds(facts),
        attributes=facts.attributes,
        **more,
    )


def _seconds(facts: KeyFacts) -> float | None:
    return facts.written / 1000 if facts.written else None


def _refuse_parts(
    asked: api.KvGetRequest | api.KvAppendRequest | api.KvReplaceRequest, facts: KeyFacts
) -> None:
    """Raise UsageError when a value is a list of parts: bytes that its owner never wrote."""
    if is_in_parts(facts.attributes):
        raise UsageError(
            f"{asked.container}/{asked.key} is an object in parts",
            "its value is only the list of them",
            f"hybrisfs serve s3 {asked.name} serves it as one.",
        )


def _key_facts(facts: KeyFacts) -> api.KeyFacts:
    return api.KeyFacts(facts.key, facts.size, facts.timestamp.sn, facts.timestamp.tag, _seconds(facts))


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
                raise UsageError(f"{path} is not a file")
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
    """Fill a file that the client has made; nothing of what it held before stays."""
    flags = os.O_WRONLY | os.O_TRUNC | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC
    with open(os.open(path, flags), "wb") as file:
        file.write(value)
