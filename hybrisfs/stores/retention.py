"""Does a cloud keep what is deleted, and can these credentials destroy it? Found out by trying.

What a cloud says of itself is not believed: an object of our own is put, overwritten and deleted, its older
bytes are read, and then it is tried to destroy them. For how long they are kept only the cloud can say.

What was found is kept, with the time, in STATE/volumes/NAME/retention.json, so that `status` can tell it:
{"version": 1, "clouds": {URL: {"keeps": true, "days": 30, "destructible": false, "deletes": true, "note": "",
"tried": SECONDS}}}. The clouds' own settings are the truth, for all devices; this is what one has seen of
them.
"""

from __future__ import annotations

import contextlib
import json
import threading
from pathlib import Path
from typing import Any, Final

from backends.address import without_secrets
from backends.errors import AuthError, StoreError
from backends.registry import drivers, kind_of
from backends.store import Store
from backends.versions import MAX_DAYS, Versions, versions_of
from hybrisfs.api.clouds import Retention
from hybrisfs.api.request import message_of
from hybrisfs.environment import Environment, replace_file
from hybrisfs.errors import HybrisError, UsageError
from hybrisfs.stores.tryout import refused, unusable

__all__ = ["Retention", "Retentions", "keep_deleted", "stop_keeping", "try_retention"]

_VERSION: Final = 1
_FILE: Final = "retention.json"
_MAX_FILE: Final = 1 << 20  # bytes
_LIMIT: Final = 1 << 12  # bytes of what is put to try it
_FIRST: Final = b"first"
_SECOND: Final = b"the second"


def keep_deleted(store: Store, days: int) -> str:
    """Have the cloud keep for *days* what is deleted; what a person should know about that, or "".

    Raises UsageError for a kind of cloud that cannot, HybrisError with what to do when this one does not.
    """
    if not 1 <= days <= MAX_DAYS:
        raise UsageError(f"deleted objects can be kept for 1 to {MAX_DAYS} days, not for {days}")
    try:
        return _versions(store).keep(days)
    except StoreError as error:
        raise refused(error, "let this machine turn on the retention of deleted objects") from error


def stop_keeping(store: Store) -> None:
    """Have the cloud keep nothing more. Raises like `keep_deleted`."""
    try:
        _versions(store).stop_keeping()
    except StoreError as error:
        raise refused(error, "let this machine turn off the retention of deleted objects") from error


def _versions(store: Store) -> Versions:
    found = versions_of(store)
    if found is None:
        able = [f"{one.kind.schemes[0]}://" for one in drivers() if not one.kind.keeps_nothing]
        raise UsageError(
            f"{without_secrets(store.url)} keeps nothing of what is deleted",
            _why_not(store.url),
            f"Clouds of the kinds {', '.join(able[:-1])} and {able[-1]} can.",
        )
    return found


def _why_not(url: str) -> str:
    kind = kind_of(url)
    return "" if kind is None else kind.keeps_nothing


def try_retention(store: Store, environment: Environment) -> Retention:
    """Find out what the cloud keeps. Leaves nothing there, as far as these credentials may delete.

    Raises HybrisError when the cloud refuses even what it has to do for any volume.
    """
    name = f"probe/{environment.random_bytes(16).hex()}"
    try:
        store.put(name, _FIRST)
        overwrites = _may_overwrite(store, name)
        deletes = _may_delete(store, name)
    except StoreError as error:
        raise unusable(error, "it was tried to overwrite and delete a small object there") from error
    versions = versions_of(store)
    if versions is None:
        return _found(False, None, None, deletes, _why_not(store.url), environment.time())
    keeps, why = (
        _keeps(versions, name) if overwrites else (None, "these credentials may not overwrite objects")
    )
    try:
        policy = versions.policy()
        days, note = policy.days, why or policy.note
    except StoreError as error:
        days, note = None, why or error.reason
    destructible, harm = _destructible(versions, name) if keeps is not False else (None, "")
    note = "; ".join(filter(None, (note, harm)))
    return _found(keeps, days if keeps else None, destructible, deletes, note, environment.time())


def _found(
    keeps: bool | None, days: int | None, harm: bool | None, deletes: bool, note: str, now: float
) -> Retention:
    return Retention(keeps, days, harm, deletes, note, int(now))


def _may_overwrite(store: Store, name: str) -> bool:
    try:
        store.put(name, _SECOND)
    except AuthError:
        return False
    return True


def _may_delete(store: Store, name: str) -> bool:
    try:
        store.delete(name)
    except AuthError:
        return False
    return True


def _keeps(versions: Versions, name: str) -> tuple[bool | None, str]:
    """Whether both what was overwritten and what was deleted can be read again; if not, why."""
    try:
        kept = {versions.get(name, one.id, limit=_LIMIT) for one in versions.of(name)}
    except AuthError as error:
        return None, f"these credentials may not read older versions: {error.reason}"
    except StoreError as error:
        return None, error.reason
    return {_FIRST, _SECOND} <= kept, ""


def _destructible(versions: Versions, name: str) -> tuple[bool | None, str]:
    """Whether these credentials can destroy what is kept; what to know about that."""
    try:
        whole = versions.destroy(name)
        left = versions.of(name) if whole else ()
        return True, "" if whole and not left else "what is older than the cloud's lock can be destroyed"
    except AuthError:
        pass
    except StoreError as error:
        return None, f"whether it can be destroyed is not known: {error.reason}"
    try:
        changes = versions.may_change()
    except StoreError:
        changes = None
    if changes is None:
        return None, "whether these credentials may change for how long is not known"
    return changes, "these credentials may change for how long" if changes else ""


class Retentions:
    """What was last found out about the clouds of one volume. Thread-safe."""

    def __init__(self, state: Path, environment: Environment) -> None:
        self._path = state / _FILE
        self._environment = environment
        self._lock = threading.Lock()
        self._found: dict[str, Retention] = {}
        # It holds nothing that cannot be found out again.
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError, AttributeError):
            self._found = self._load()

    def get(self, url: str) -> Retention | None:
        """What is known of a cloud, None when that was never tried."""
        with self._lock:
            return self._found.get(without_secrets(url))

    def note(self, url: str, found: Retention) -> None:
        """Keep what was found out. Raises HybrisError when it cannot be kept."""
        with self._lock:
            self._found[without_secrets(url)] = found
            clouds = {where: message_of(one) for where, one in self._found.items()}
            try:
                document = json.dumps({"version": _VERSION, "clouds": clouds})
                replace_file(self._path, document.encode("ascii"), self._environment)
            except OSError as error:
                raise HybrisError("what was found out about the cloud is not kept", str(error)) from error

    def _load(self) -> dict[str, Retention]:
        with self._path.open("rb") as file:
            document = json.loads(file.read(_MAX_FILE))
        if document["version"] != _VERSION:
            raise ValueError("it is of another version")
        return {url: _decoded(one) for url, one in document["clouds"].items()}


def _decoded(facts: dict[str, Any]) -> Retention:
    """Raises ValueError, KeyError, TypeError for what `note` does not write."""
    days = facts["days"]
    if not (days is None or (type(days) is int and 0 <= days <= MAX_DAYS)):
        raise ValueError("no number of days")
    answers = [facts[name] for name in ("keeps", "destructible", "deletes")]
    if any(one not in (True, False, None) for one in answers) or not isinstance(facts["note"], str):
        raise ValueError("no answer")
    keeps, destructible, deletes = answers
    return Retention(keeps, days, destructible, bool(deletes), facts["note"], int(facts["tried"]))
