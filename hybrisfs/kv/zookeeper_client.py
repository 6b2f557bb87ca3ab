"""A ZooKeeper (3.5 or newer) as a service for metadata: transactions, lists, watches, sessions.

`hybrisfs.kv.zookeeper_tree` says where keys are, `hybrisfs.kv.zookeeper_session` how reads are linearizable.

**A transaction** is one ``multi``: checks of versions, then changes. ZooKeeper wants to know beforehand
whether a znode is to be made or set, which etcd does not. So it is assumed, and when it was wrong the
transaction is made again, the other way: a ``multi`` that fails has done nothing. That a key is not there is
compared by making its znode and removing it again. What is there instead when a comparison fails is read
afterwards: keys are then as of different moments after that failure, as `MetadataService.transact` allows.

`hybrisfs.kv.zookeeper_reads` has the lists of keys, which are of one moment.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from enum import Enum, auto
from typing import Any, Final, NamedTuple

from kazoo.exceptions import (
    BadVersionError,
    ConnectionLoss,
    NoAuthError,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    RolledBackError,
    UnimplementedError,
)

from hybrisfs.environment import Environment
from hybrisfs.kv.service import (
    Compare,
    KeyValue,
    MetadataService,
    Outcome,
    OutcomeUnknownError,
    Put,
    Reading,
    Remove,
    ServiceError,
    after_prefix,
)
from hybrisfs.kv.service_url import Access, ServiceUrl
from hybrisfs.kv.zookeeper_reads import Bucket, BucketReading, read_together
from hybrisfs.kv.zookeeper_session import Session, Watch
from hybrisfs.kv.zookeeper_tree import CONTAINERS, DROPPED, ENTRIES, Tree

__all__ = ["ZookeeperClient"]

log = logging.getLogger(__name__)

_PAGE: Final = 1000  # requests under way
_TRIES: Final = 40
_MOST_REQUEST: Final = 1_000_000  # bytes; jute.maxbuffer is 1,048,575 unless it is set
_OVERHEAD: Final = 100  # bytes of an operation beside path and content
_HALF: Final = 1 << 32


class _Role(Enum):
    """What an operation of a transaction is for."""

    COMPARE = auto()
    FRAME = auto()
    """It makes a group or a bucket."""
    COUNT = auto()
    """It counts a change in a bucket."""
    PUT = auto()
    REMOVE = auto()


class _Step(NamedTuple):
    """An operation of a transaction."""

    role: _Role
    kind: str
    """``check``, ``create``, ``ephemeral``, ``set`` or ``delete``."""
    path: str
    value: bytes = b""
    version: int = -1
    key: bytes = b""
    """That it puts, or compares."""

    def add_to(self, transaction: Any) -> None:
        """Add it to a transaction of kazoo's."""
        if self.kind in ("create", "ephemeral"):
            transaction.create(self.path, self.value, ephemeral=self.kind == "ephemeral")
        elif self.kind == "set":
            transaction.set_data(self.path, self.value, self.version)
        else:
            getattr(transaction, self.kind)(self.path, self.version)


class _Assumed:
    """What is assumed of znodes while a transaction is tried: nothing is there that is put, and all that is
    removed."""

    def __init__(self) -> None:
        self.there: set[str] = set()
        self.gone: set[str] = set()


class ZookeeperClient(MetadataService):
    """A `MetadataService`; what has no text here is explained there. Thread-safe."""

    def __init__(
        self,
        url: ServiceUrl,
        access: Access,
        timeout: float,
        environment: Environment,
        root: str = "",
    ) -> None:
        """*root* is what all keys begin with, after the prefix that the URL names. Asks nothing yet."""
        super().__init__(environment)
        self._top = f"/{url.prefix}/hybrisfs" if url.prefix else "/hybrisfs"
        self._tree = Tree("".join(f"/{part}" for part in f"{url.prefix}/{root}".split("/") if part))
        self._session = Session(url, access, self._tree, timeout, environment)
        self._timeout = timeout
        self._lock = threading.Lock()
        self._made: set[str] = set()  # groups and buckets that are there
        self._announced: str | None = None
        self._reads_together = True  # until a server says that it cannot

    # -- reading ---------------------------------------------------------------------------------

    def get(self, *keys: bytes) -> Sequence[KeyValue | None]:
        return self._session.read(lambda client: self._get(client, keys))

    def _get(self, client: Any, keys: Sequence[bytes]) -> list[KeyValue | None]:
        if len(keys) > 1 and self._reads_together and not any(map(_is_container, keys)):
            try:
                return self._get_together(client, keys)
            except UnimplementedError:
                self._reads_together = False
        asked = []
        for key in keys:
            # Above first: a container that came after what is seen there has another revision at once.
            above = client.exists_async(self._tree.kind(CONTAINERS)) if _is_container(key) else None
            asked.append((key, above, client.get_async(self._tree.path(key))))
        return [self._found(*one) for one in asked]

    def _get_together(self, client: Any, keys: Sequence[bytes]) -> list[KeyValue | None]:
        paths = [self._tree.path(key) for key in keys]
        found = read_together(client, paths, self._session.answer)
        return [
            None if one is None else self._key_value(key, one.content, one.state)
            for key, one in zip(keys, found, strict=True)
        ]

    def _found(self, key: bytes, above: Any, asked: Any) -> KeyValue | None:
        try:
            value, stat = self._session.answer(asked)
        except NoNodeError:
            return None
        found = self._key_value(key, value or b"", stat)
        if above is None:
            return found
        return found._replace(revision=found.revision + _HALF * (self._session.answer(above).version + 1))

    def _key_value(self, key: bytes, value: bytes, stat: Any) -> KeyValue:
        """What a znode says of a key. Raises ServiceError."""
        if stat.version < 0:
            raise ServiceError(
                f"the ZooKeeper at {self._session.address} cannot be used for {key!r}",
                "the key has been changed 2,147,483,647 times, and versions of znodes begin again then",
                "Move the container with hybrisfs kv migrate.",
            )
        return KeyValue(key, value, stat.version + 1)

    def scan(self, first: bytes, end: bytes, *, keys_only: bool = False) -> Iterator[KeyValue]:
        """See `MetadataService.scan`. Keys of different containers may be as of different moments."""
        for keys in self._keys(first, end):
            if keys_only:
                yield from (KeyValue(key, b"", 0) for key in keys)
                continue
            for start in range(0, len(keys), _PAGE):
                found = self.get(*keys[start : start + _PAGE])
                yield from (one for one in found if one is not None)

    def _keys(self, first: bytes, end: bytes) -> Iterator[list[bytes]]:
        """The keys of a range in order, those of each container by themselves."""
        kind, _, rest = first.partition(b"/")
        group, slash, _ = rest.partition(b"/")
        if kind == ENTRIES:
            for one in [group] if slash else self.groups(ENTRIES):
                prefix = b"%b/%b/" % (kind, one)
                found = self._names([bucket.path for bucket in self._buckets(one)])
                yield _within(first, end, (key for names in found for key in self._tree.keys(prefix, names)))
            return
        path = self._tree.kind(kind, group if slash else b"")
        (names,) = self._names([path])
        prefix = b"%b/%b/" % (kind, group) if slash else b"%b/" % kind
        yield _within(first, end, self._tree.keys(prefix, names))

    def groups(self, kind: bytes) -> Sequence[bytes]:
        (names,) = self._names([self._tree.kind(kind)])
        return self._tree.groups(names)

    def _names(self, paths: Sequence[str]) -> list[list[str]]:
        """See `_children`."""
        return self._session.read(lambda client: self._children(client, paths))

    def _children(self, client: Any, paths: Sequence[str]) -> list[list[str]]:
        """The names of the children of several znodes; none of one that there is not."""
        asked = [client.get_children_async(path) for path in paths]
        return [self._unless_gone(one) or [] for one in asked]

    def _unless_gone(self, asked: Any) -> Any:
        try:
            return self._session.answer(asked)
        except NoNodeError:
            return None

    def reading(self, first: bytes, end: bytes, size: int) -> Reading:
        return BucketReading(self, first, end, size)

    def changes(self, container: bytes) -> Mapping[str, int]:
        """See `hybrisfs.kv.zookeeper_reads.Buckets`."""
        return {bucket.path: bucket.change for bucket in self._buckets(container)}

    def _buckets(self, container: bytes) -> list[_BucketFacts]:
        above = self._tree.kind(ENTRIES, container)

        def look(client: Any) -> list[_BucketFacts]:
            (names,) = self._children(client, [above])
            paths = [f"{above}/{name}" for name in self._tree.buckets(names)]
            asked = [client.exists_async(path) for path in paths]
            stats = [self._session.answer(one) for one in asked]
            return [
                _BucketFacts(path, stat.mzxid)
                for path, stat in zip(paths, stats, strict=True)
                if stat is not None
            ]

        return self._session.read(look)

    def contents(self, paths: Sequence[str], first: bytes, end: bytes) -> Mapping[str, Bucket]:
        """See `hybrisfs.kv.zookeeper_reads.Buckets`."""
        prefix = b"/".join(first.split(b"/")[:2]) + b"/"

        def look(client: Any) -> list[tuple[str, int, list[bytes]]]:
            asked = [(path, client.exists_async(path), client.get_children_async(path)) for path in paths]
            found = []
            for path, stat, names in asked:
                before, children = self._session.answer(stat), self._unless_gone(names)
                if before is not None and children is not None:
                    found.append((path, before.mzxid, self._tree.keys(prefix, children)))
            return found

        buckets = [
            (path, change, _within(first, end, keys)) for path, change, keys in self._session.read(look)
        ]
        wanted = [key for _, _, keys in buckets for key in keys]
        values: dict[bytes, KeyValue] = {}
        for start in range(0, len(wanted), _PAGE):
            for one in self.get(*wanted[start : start + _PAGE]):
                if one is not None:
                    values[one.key] = one
        return {
            path: Bucket(change, [values[key] for key in keys if key in values])
            for path, change, keys in buckets
        }

    # -- writing ---------------------------------------------------------------------------------

    def transact(
        self, compare: Sequence[Compare], then: Sequence[Put | Remove], otherwise: Sequence[bytes] = ()
    ) -> Outcome:
        deadline = self._environment.monotonic() + self._timeout
        assumed = _Assumed()
        for _ in range(_TRIES):
            steps = self._steps(compare, then, assumed)
            results = self._commit(steps, deadline)
            failed = self._failed(results)
            if failed is None:
                revisions = {
                    step.key: 1 if step.kind == "create" else result.version + 1
                    for step, result in zip(steps, results, strict=True)
                    if step.key.startswith(ENTRIES + b"/") and step.kind in ("create", "set")
                }
                if any(
                    one.end is not None and one.first[:2] == b"k/" for one in then if isinstance(one, Remove)
                ):
                    self._remove_dropped()
                return Outcome(True, revisions, ())
            if self._is_unmet(steps, failed, results[failed], assumed):
                return Outcome(False, {}, self.get(*otherwise) if otherwise else ())
        raise ServiceError(
            f"the ZooKeeper at {self._session.address} did not carry out a transaction",
            "others change the same znodes all the time",
            "Try again.",
        )

    def _commit(self, steps: Sequence[_Step], deadline: float) -> list[Any]:
        size = sum(len(step.path) + len(step.value) + _OVERHEAD for step in steps)
        if size > _MOST_REQUEST:
            raise ServiceError(
                "the transaction is too large for a ZooKeeper",
                f"it has {size:,} bytes, and at most {_MOST_REQUEST:,} are allowed",
                "Write fewer keys at once, or shorter attributes.",
            )

        def fill(transaction: Any) -> None:
            for step in steps:
                step.add_to(transaction)

        results = self._session.commit(fill, deadline)
        if len(results) != len(steps):
            raise self._strange(f"{len(results)} results instead of {len(steps)}")
        made = {step.path for step in steps if step.role is _Role.FRAME}
        if made and self._failed(results) is None:
            with self._lock:
                self._made |= made
        return results

    def _failed(self, results: Sequence[Any]) -> int | None:
        """Which operation is why a transaction has failed; None when it has not."""
        for number, one in enumerate(results):
            if isinstance(one, Exception) and not isinstance(one, RolledBackError):
                return number
        if any(isinstance(one, Exception) for one in results):
            raise self._strange("nothing was done, for no reason")
        return None

    def _strange(self, why: str) -> OutcomeUnknownError:
        return OutcomeUnknownError(
            f"the ZooKeeper at {self._session.address} answers in a way that is not ZooKeeper's", why
        )

    def _steps(
        self, compare: Sequence[Compare], then: Sequence[Put | Remove], assumed: _Assumed
    ) -> list[_Step]:
        """The operations of a transaction, comparisons first."""
        revisions = {one.key: one.revision for one in compare}
        changes = list(self._singly(then, assumed))
        changed = {one.first if isinstance(one, Remove) else one.key for one in changes}
        checks, absences, rest = list[_Step](), list[_Step](), list[_Step]()
        frame: dict[str, _Step] = {}
        counted: set[str] = set()
        for key, revision in revisions.items():
            path = self._tree.path(key)
            if revision == 0:
                if not any(isinstance(one, Put) and one.key == key for one in changes):
                    self._frame(key, frame)
                    absences.append(_Step(_Role.COMPARE, "create", path, key=key))
                    absences.append(_Step(_Role.COMPARE, "delete", path, key=key))
                continue
            if revision is not None and _is_container(key):
                above = _version(revision // _HALF)
                checks.append(_Step(_Role.COMPARE, "check", self._tree.kind(CONTAINERS), version=above))
            if key not in changed or revision is None:
                checks.append(_Step(_Role.COMPARE, "check", path, version=_version(revision), key=key))
        for change in changes:
            key = change.key if isinstance(change, Put) else change.first
            rest.append(self._change(change, revisions.get(key, -1), assumed))
            if isinstance(change, Put):
                self._frame(key, frame)
            if key.startswith(ENTRIES + b"/"):
                counted.add(self._tree.bucket(key))
            elif _is_container(key) and rest[-1].kind != "set":
                counted.add(self._tree.kind(CONTAINERS))
        counts = [_Step(_Role.COUNT, "set", path) for path in sorted(counted - frame.keys())]
        return [*checks, *frame.values(), *absences, *rest, *counts]

    def _singly(self, then: Sequence[Put | Remove], assumed: _Assumed) -> Iterator[Put | Remove]:
        """The changes that there are to be made: with ranges that are removed as their keys, and all entries
        of a container as the note that it was dropped."""
        for change in then:
            if isinstance(change, Put):
                yield change
            elif change.end is None:
                if self._tree.path(change.first) not in assumed.gone:
                    yield change
            elif change.first.startswith(ENTRIES + b"/"):
                if change.end != after_prefix(change.first) or change.first.count(b"/") != 2:
                    raise ValueError("entries are removed one by one, or with their container")
                yield Put(b"%b/%b" % (DROPPED, change.first.split(b"/")[1]), b"")
            else:
                for keys in self._keys(change.first, change.end):
                    yield from (Remove(key) for key in keys if self._tree.path(key) not in assumed.gone)

    def _change(self, change: Put | Remove, revision: int | None, assumed: _Assumed) -> _Step:
        """The operation that makes a change; *revision* as it was compared, -1 if it was not."""
        if isinstance(change, Remove):
            path = self._tree.path(change.first)
            if revision is not None and revision > 0:
                return _Step(_Role.COMPARE, "delete", path, version=_version(revision), key=change.first)
            return _Step(_Role.REMOVE, "delete", path, key=change.first)
        path = self._tree.path(change.key)
        if revision == 0:
            return _Step(_Role.COMPARE, "create", path, change.value, key=change.key)
        if revision is not None and revision > 0:
            return _Step(_Role.COMPARE, "set", path, change.value, _version(revision), change.key)
        kind = "set" if path in assumed.there else "create"
        return _Step(_Role.PUT, kind, path, change.value, key=change.key)

    def _frame(self, key: bytes, frame: dict[str, _Step]) -> None:
        """Make the znodes above a key, unless they are known to be there."""
        for path in self._tree.parents(key):
            if path not in self._made:
                frame.setdefault(path, _Step(_Role.FRAME, "create", path))

    def _is_unmet(self, steps: Sequence[_Step], failed: int, error: Exception, assumed: _Assumed) -> bool:
        """Whether a transaction has failed since a comparison does not hold. If not, what was assumed wrongly
        is put right. Raises ServiceError."""
        step = steps[failed]
        if not isinstance(error, BadVersionError | NodeExistsError | NoNodeError):
            raise self._session.refused(error)
        is_missing = isinstance(error, NoNodeError)
        if step.role is _Role.COUNT or (step.kind == "create" and is_missing):
            with self._lock:  # another machine has removed what was above it
                self._made = {path for path in self._made if not f"{step.path}/".startswith(f"{path}/")}
            self._session.read(lambda client: None)  # or nobody has used the volume here yet
        elif step.role is _Role.FRAME:
            self._look_at_frame(steps)
        elif step.role is _Role.COMPARE:
            return True
        else:
            self._look_at(steps, assumed)
        return False

    def _look_at_frame(self, steps: Sequence[_Step]) -> None:
        """Others have made groups or buckets: of several that a transaction makes, often more than one."""
        paths = [step.path for step in steps if step.role is _Role.FRAME]

        def look(client: Any) -> list[Any]:
            return [self._session.answer(one) for one in [client.exists_async(path) for path in paths]]

        there = {path for path, stat in zip(paths, self._session.read(look), strict=True) if stat is not None}
        with self._lock:
            self._made |= there

    def _look_at(self, steps: Sequence[_Step], assumed: _Assumed) -> None:
        paths = [step.path for step in steps if step.role in (_Role.PUT, _Role.REMOVE)]

        def look(client: Any) -> list[Any]:
            return [self._session.answer(one) for one in [client.exists_async(path) for path in paths]]

        for path, stat in zip(paths, self._session.read(look), strict=True):
            (assumed.gone if stat is None else assumed.there).add(path)
            (assumed.there if stat is None else assumed.gone).discard(path)

    def _remove_dropped(self) -> None:
        """Remove the entries of containers that were dropped, by whomever."""
        above = self._tree.kind(DROPPED)
        try:
            for container in self.groups(DROPPED):
                for keys in self._keys(b"k/%b/" % container, b"k/%b0" % container):
                    self._delete([self._tree.path(key) for key in keys])
                self._delete([bucket.path for bucket in self._buckets(container)])
                entries = self._tree.kind(ENTRIES, container)
                self._delete([entries])
                if not self._is_there(entries):
                    self._delete([f"{above}/{container.decode()}"])
                with self._lock:
                    self._made = {path for path in self._made if not f"{path}/".startswith(f"{entries}/")}
        except ServiceError as error:
            log.info("what a container has left is removed later: %s", error)

    def _is_there(self, path: str) -> bool:
        return self._session.ask(lambda client: self._session.answer(client.exists_async(path))) is not None

    def _delete(self, paths: Sequence[str]) -> None:
        for start in range(0, len(paths), _PAGE):
            some = paths[start : start + _PAGE]

            def delete(client: Any, some: Sequence[str] = some) -> None:
                for one in [client.delete_async(path) for path in some]:
                    with contextlib.suppress(NoNodeError, NotEmptyError):  # another machine does it, too
                        self._session.answer(one)

            self._session.ask(delete)

    # -- sessions --------------------------------------------------------------------------------

    def announce(self, key: bytes, seconds: int) -> None:
        """See `MetadataService.announce`: a znode of this session, whose length the servers allow."""
        path = self._tree.path(key)
        deadline = self._environment.monotonic() + self._timeout
        while True:
            stat, session = self._session.read(lambda client: self._owner(client, path))
            if stat is not None and stat.ephemeralOwner == session:
                if self._announced is None:
                    self._announced = path
                    self._remove_dropped()
                return
            steps = [_Step(_Role.PUT, "ephemeral", path)]
            if stat is not None:  # of an earlier process, or an earlier session of this one
                steps.insert(0, _Step(_Role.REMOVE, "delete", path, version=stat.version))
            with contextlib.suppress(OutcomeUnknownError):
                results = self._commit(steps, deadline)
                failed = self._failed(results)
                if failed is not None and isinstance(results[failed], NoAuthError):
                    raise self._session.refused(results[failed])
            if self._environment.monotonic() >= deadline:
                raise ServiceError(
                    f"the ZooKeeper at {self._session.address} has not answered", "", "Try again."
                )

    def _owner(self, client: Any, path: str) -> tuple[Any, int]:
        """The state of a znode, and the number of this session."""
        stat, session = self._session.answer(client.exists_async(path)), client.client_id
        if session is None:
            raise ConnectionLoss
        return stat, session[0]

    def withdraw(self) -> None:
        """See `MetadataService.withdraw`. Without a connection nothing need be done."""
        path, self._announced = self._announced, None
        if path is not None and self._session.is_connected:
            self._delete([path])

    def watch(self, key: bytes, revision: int, changed: Callable[[], None]) -> contextlib.closing[Watch]:
        path = self._tree.path(key)

        def wait_for_change(wake: Callable[[object], None]) -> None:
            self._session.ask(lambda client: self._session.answer(client.exists_async(path, wake)))

        return contextlib.closing(Watch(wait_for_change, changed))

    def check(self) -> None:
        """See `MetadataService.check`. A password is only known to be wrong when it opens no volume that is
        there."""
        (volumes,) = self._session.ask(lambda client: self._children(client, [self._top]))
        trouble: ServiceError | None = None
        for volume in volumes:
            try:
                self._look_into(f"{self._top}/{volume}/s")
            except ServiceError as error:
                trouble = error
            else:
                return
        if trouble is not None:
            raise trouble

    def _look_into(self, path: str) -> None:
        self._session.ask(lambda client: self._unless_gone(client.get_async(path)))

    def close(self) -> None:
        """End the session. Idempotent."""
        self._session.close()


class _BucketFacts(NamedTuple):
    """Where a bucket is, and the id of its last change."""

    path: str
    change: int


def _is_container(key: bytes) -> bool:
    return key.startswith(CONTAINERS + b"/")


def _version(revision: int | None) -> int:
    """The version of a znode with this revision; any version for None."""
    return -1 if revision is None else revision % _HALF - 1


def _within(first: bytes, end: bytes, keys: Iterable[bytes]) -> list[bytes]:
    return sorted(key for key in keys if first <= key < end)
