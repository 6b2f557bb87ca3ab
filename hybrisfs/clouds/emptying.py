"""Deleting a volume from its clouds: all objects with its names, and nothing else.

A place belongs to one volume, which its marker tells. But a person may keep other things in the same folder
or bucket, also in the folders of a volume. So an object is deleted only if its whole name has the form of a
name that volumes give (docs/internals/storage.md).

The marker goes first: devices put nothing on a place without it. What they were just putting is found when
the place is listed again. A place without a marker is touched only if it was seen to be this volume's before:
`hybrisfs.admit.local_copy.Deletion` keeps that, so that the work goes on after a crash.
"""

from __future__ import annotations

import contextlib
import re
import threading
from collections.abc import Callable, Iterator
from typing import Final

from msgspec import Struct

from backends.credentials import CredentialStore
from backends.errors import MissingError, MissingRootError, StoreError
from backends.store import MAX_PAGE, Store, StoredObject, dismantle
from backends.versions import versions_of
from hybrisfs.admit.local_copy import Deletion
from hybrisfs.bounded import in_groups
from hybrisfs.clouds.agreed_clouds import open_cloud
from hybrisfs.dispersal.cloud import explain
from hybrisfs.environment import SYSTEM
from hybrisfs.home import Home
from hybrisfs.settings.config import CloudConfig, VolumeConfig
from hybrisfs.stores.own_places import MARKER_NAME, OwnPlaces, belongs_to_another

__all__ = ["Emptied", "empty", "empty_clouds", "is_own_name"]

_MARKER_LIMIT: Final = 1 << 12
_ROUNDS: Final = 3  # others may be putting something until they notice that the marker is gone
_AT_ONCE: Final = 500  # objects
_GLANCE: Final = 0.2  # seconds
_HEX: Final = r"[0-9a-f]{32}"
_RECORD: Final = r"[0-9a-v]+"
_NAMES: Final = {
    "packs": r"([0-9a-f]{2})/\1[0-9a-f]{62}\.[0-9]{1,3}",
    "log": rf"{_HEX}/[0-9a-f]{{16}}-[0-9a-f]{{16}}",
    "heads": _HEX,
    "checkpoints": r"[0-9a-f]{64}",
    "epochs": rf"[0-9a-f]+/{_HEX}",
    "signposts": _RECORD,
    "kits": rf"{_HEX}/{_RECORD}",
    "recovery": _HEX,
    "kv": rf"{_HEX}/{_HEX}(?:\.[0-9]{{1,3}})?",
    "atomic": rf"[0-9a-f]+/(?:{_HEX}|transactions)/{_HEX}/{_RECORD}",
    "parcels": rf"{_HEX}/(?:record|page|piece-[0-9]{{4}})",
    "pair": rf"{_HEX}/(?:until-[0-9]{{1,20}}|(?:joiner|inviter)-[0-9])",
    "probe": _HEX,
}
_SINGLE: Final = (MARKER_NAME, "signpost")
_FORMS: Final = {folder: re.compile(f"{folder}/{form}") for folder, form in _NAMES.items()}


def is_own_name(name: str) -> bool:
    """Whether an object of that name is a volume's."""
    form = _FORMS.get(name.partition("/")[0])
    return name in _SINGLE or (form is not None and form.fullmatch(name) is not None)


class Emptied(Struct):
    """What was deleted from a cloud."""

    objects: int = 0
    bytes: int = 0
    """As the cloud said."""
    trouble: str = ""
    """Why something may be there still; "" when all is gone."""
    kept: str = ""
    """For how long the cloud keeps what is deleted; "" when it does not."""
    place_gone: bool = False
    """Whether the folder itself was removed."""


# -- all clouds, side by side ---------------------------------------------------------------------------


def empty_clouds(
    home: Home, config: VolumeConfig, deletion: Deletion, tell: Callable[[int], None]
) -> list[tuple[CloudConfig, Emptied]]:
    """Delete everything of a volume, which is closed, from all its clouds; what came of each.

    *tell* hears how many objects are deleted so far; what it raises ends the work. Raises OSError when it
    cannot be kept how far that is.
    """
    credentials, places = CredentialStore(home.credentials), OwnPlaces(home, SYSTEM)
    work = [
        _Work(one, open_cloud(one, credentials, places).store, config.id, deletion) for one in config.clouds
    ]
    for each in work:
        each.start()
    try:
        while not all(one.has_ended(_GLANCE) for one in work):
            tell(sum(one.found.objects for one in work))
    finally:
        for each in work:
            each.stop()
    for each in work:
        if each.failure is not None:
            raise each.failure
    return [(one.cloud, one.found) for one in work]


class _StoppedError(Exception):
    """Nobody waits for the work any more."""


class _Work:
    """A thread that empties one cloud: the disk that it is on may hang, and is not waited for then."""

    def __init__(self, cloud: CloudConfig, store: Store, volume: bytes, deletion: Deletion) -> None:
        self.cloud: Final = cloud
        self.found: Final = Emptied()
        self.failure: Exception | None = None
        self._store = store
        self._volume = volume
        self._deletion = deletion
        self._stopping = threading.Event()
        self._thread = threading.Thread(name=f"delete {cloud.name}", target=self._run, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def has_ended(self, seconds: float) -> bool:
        """Whether it has after so many seconds."""
        self._thread.join(seconds)
        return not self._thread.is_alive()

    def stop(self) -> None:
        """End it soon."""
        self._stopping.set()

    def _run(self) -> None:
        try:
            with contextlib.closing(self._store):
                empty(self._store, self._volume, self.cloud.number, self._deletion, self.found, self._step)
        except Exception as error:  # noqa: BLE001 - raised again where it is waited for
            self.failure = error

    def _step(self) -> None:
        if self._stopping.is_set():
            raise _StoppedError


# -- one cloud ------------------------------------------------------------------------------------------


def empty(
    store: Store,
    volume: bytes,
    cloud: int,
    deletion: Deletion,
    found: Emptied,
    step: Callable[[], None],
) -> None:
    """Delete everything of *volume* on the cloud of that number; *found* says what came of it.

    *step* is called now and then; what it raises ends the work. Raises OSError.
    """
    try:
        if not deletion.is_emptied(cloud):
            found.trouble = _trouble_with_marker(store, volume, cloud, deletion)
            if not found.trouble:
                _delete_all(store, found, step)
        if not found.trouble:
            deletion.note(cloud, emptied=True)
            found.kept = _kept(store)
            found.place_gone = _dismantle(store)
    except StoreError as error:
        found.trouble = explain(error)


def _trouble_with_marker(store: Store, volume: bytes, cloud: int, deletion: Deletion) -> str:
    try:
        marker = store.get(MARKER_NAME, limit=_MARKER_LIMIT)
    except MissingError:
        if deletion.has_begun(cloud) or not any(_own(store)):
            return ""
        return "it holds objects, but no mark that they are this volume's: if they are, delete them by hand"
    if belongs_to_another(marker, volume):
        return "it holds another volume"
    deletion.note(cloud, emptied=False)
    store.delete(MARKER_NAME)
    return ""


def _delete_all(store: Store, found: Emptied, step: Callable[[], None]) -> None:
    for _ in range(_ROUNDS):
        before = found.objects
        for batch in in_groups(_own(store), lambda _: 1, _AT_ONCE):
            store.delete_many([one.name for one in batch])
            found.objects += len(batch)
            found.bytes += sum(max(0, one.size) for one in batch)
            step()
        if found.objects == before:
            return
    left = sum(1 for _ in _own(store))
    if left:
        found.trouble = f"{left:,} objects are there still: it keeps them, or another machine adds some"


def _own(store: Store) -> Iterator[StoredObject]:
    """The objects of a volume, as the cloud lists them."""
    for name in _SINGLE:
        yield from (one for one in store.list(name, limit=1).entries if one.name == name)
    for folder in _NAMES:
        after, more = "", True
        while more:
            page = store.list(f"{folder}/", after=after, limit=MAX_PAGE)
            yield from (one for one in page.entries if is_own_name(one.name))
            more = page.more and bool(page.entries)
            after = page.entries[-1].name if page.entries else ""


def _kept(store: Store) -> str:
    """For how long a cloud keeps what was deleted, by its own word."""
    versions = versions_of(store)
    if versions is None:
        return ""
    try:
        policy = versions.policy()
    except StoreError:
        return ""
    if policy.on is False:
        return ""
    if policy.on is None:
        return "it may keep deleted objects: these credentials may not ask it"
    return f"it keeps deleted objects for {policy.days} days" if policy.days else "it keeps deleted objects"


def _dismantle(store: Store) -> bool:
    try:
        return dismantle(store, tuple(_NAMES))
    except MissingRootError:  # it was taken away before a crash, or by a person
        return False
