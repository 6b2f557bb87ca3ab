"""Trying a cloud out: can it do all that a volume asks of it, and how long does each request take?"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from typing import Final, TypeVar

from backends.address import without_secrets
from backends.credentials import Credentials, CredentialStore, Secrets
from backends.errors import AuthError, MissingError, StoreError, TransientError
from backends.registry import kind_of, open_heard, open_store, secrets_of
from backends.store import Store
from backends.versions import versions_of
from hybrisfs.api import volumes as api
from hybrisfs.api.volumes import SecretsOfPlace, TriedPlace
from hybrisfs.environment import SYSTEM, Environment
from hybrisfs.errors import HybrisError, UsageError, as_sentence
from hybrisfs.stores.own_places import (
    ANY_HOME,
    MARKER_NAME,
    OwnPlaces,
    belongs_to_another,
    marker,
    require_ready,
)

__all__ = [
    "PROBE_LIMIT",
    "mark_place",
    "describe_secrets",
    "log_in",
    "open_for_test",
    "prepare_place",
    "refused",
    "try_out",
    "try_place",
    "unusable",
    "was_ours",
]

T = TypeVar("T")

PROBE_LIMIT: Final = 1 << 16
_PROBE_SIZE: Final = 40_000
_MARKER_LIMIT: Final = 4096
_UNREACHED: Final = "is its address right, and can it be reached from here now?"


def open_for_test(
    url: str, credentials: Credentials, places: OwnPlaces = ANY_HOME, *, heard: bool = False
) -> Store:
    """The driver for *url*, typed here unless *heard* of. Raises UsageError for what is no URL of a cloud, or
    a folder that cannot be one."""
    try:
        store = places.guarded((open_heard if heard else open_store)(url, credentials))
        places.require_apart(url)
        return store
    except StoreError as error:
        raise unusable(error, kind=UsageError) from error
    except ValueError as error:
        raise UsageError(f"the cloud {without_secrets(url)} cannot be used", str(error)) from error


def try_out(
    store: Store, environment: Environment, keep: Callable[[str], None] = lambda _: None
) -> Mapping[str, float]:
    """Put, get, get a part of and delete a small object; the seconds that each took.

    *keep* is called with its name while it is there. Credentials may lack the right to delete: then
    nothing is said of that, and an empty object stays. Raises HybrisError that says what the cloud refuses.
    """
    name, data = f"probe/{environment.random_bytes(16).hex()}", environment.random_bytes(_PROBE_SIZE)
    seconds: dict[str, float] = {}

    def step(what: str, call: Callable[[], T]) -> T:
        begun = environment.monotonic()
        try:
            value = call()
        except StoreError as error:
            _remove_probe(store, name)
            raise unusable(error, f"it was tried to {what} a small object there") from error
        seconds[what] = environment.monotonic() - begun
        return value

    step("put", lambda: store.put(name, data))
    if step("get", lambda: store.get(name, limit=PROBE_LIMIT)) != data:
        _remove_probe(store, name)
        raise HybrisError(
            f"the cloud {store.url} cannot be used", "it returns other bytes than were put there"
        )
    if step("get a part of", lambda: store.get_range(name, 1000, 500)) != data[1000:1500]:
        _remove_probe(store, name)
        raise HybrisError(
            f"the cloud {store.url} cannot be used", "it returns other parts than were asked for"
        )
    try:
        keep(name)
    finally:
        deleted = step("delete", lambda: _delete(store, name))
    if not deleted:
        del seconds["delete"]
        return seconds
    try:
        store.get(name, limit=PROBE_LIMIT)
    except MissingError:
        return seconds
    except StoreError as error:
        raise unusable(error, "it was asked for an object that was deleted") from error
    raise HybrisError(f"the cloud {store.url} cannot be used", "it does not delete objects")


def _delete(store: Store, name: str) -> bool:
    """Whether these credentials may."""
    try:
        store.delete(name)
    except AuthError:
        store.put(name, b"")
        return False
    return True


def _remove_probe(store: Store, name: str) -> None:
    """Remove what a test that failed may have left."""
    with contextlib.suppress(StoreError):
        store.delete(name)


def prepare_place(store: Store) -> None:
    """Make the folder or bucket if it is not there. Raises HybrisError."""
    try:
        store.initialise()
    except StoreError as error:
        raise unusable(error) from error


def mark_place(store: Store, volume: bytes, *, regain: bool = False) -> None:
    """Mark the place as the volume's. Raises HybrisError when it is another one's, or cannot be marked.

    *regain*: a person says that it is this one's. Then another mark is replaced if the cloud keeps ours as
    what it was before: somebody has overwritten it.
    """
    prepare_place(store)
    try:
        try:
            found: bytes | None = store.get(MARKER_NAME, limit=_MARKER_LIMIT)
        except MissingError:
            found = None
        if (
            found is not None
            and belongs_to_another(found, volume)
            and not (regain and was_ours(store, volume))
        ):
            raise UsageError(
                f"{store.url} holds another volume already",
                "",
                "Give each volume a folder or bucket of its own.",
            )
        if found is None and not store.put_if_absent(MARKER_NAME, marker(volume)):
            raise HybrisError(f"the cloud {store.url} cannot be used", "somebody else is taking it just now")
        if found is not None and found != marker(volume):  # ours, with a few bits damaged
            store.put(MARKER_NAME, marker(volume))
    except StoreError as error:
        raise unusable(error) from error


def was_ours(store: Store, volume: bytes) -> bool:
    """Whether the cloud keeps our mark as an older version of the one that is there. Raises StoreError."""
    versions = versions_of(store)
    kept = versions.of(MARKER_NAME) if versions is not None else ()
    return any(
        versions.get(MARKER_NAME, one.id, limit=_MARKER_LIMIT) == marker(volume)
        for one in kept
        if versions is not None and one.size <= _MARKER_LIMIT
    )


# -- trying a place out that may become a volume's cloud, with secrets that are kept once it answers ----


class _Given:
    """Secrets that a person has just typed. A `Credentials` for one cloud."""

    def __init__(self, values: Mapping[str, str]) -> None:
        self._secrets = Secrets(dict(values))

    def lookup(self, url: str) -> Secrets:
        return self._secrets


def try_place(
    url: str, credentials: Credentials, places: OwnPlaces, environment: Environment, *, make: bool = False
) -> TriedPlace:
    """Make the folder or bucket at *url* if it is not there, and try out what volumes ask of a cloud. A local
    folder whose disk is not there is made only when a person says *make*.

    Raises HybrisError.
    """
    require_ready(url, make=make)
    with contextlib.closing(open_for_test(url, credentials, places)) as store:
        prepare_place(store)
        seconds = try_out(store, environment)
    return TriedPlace(without_secrets(url), dict(seconds))


def log_in(
    url: str,
    secrets: Mapping[str, str],
    store: CredentialStore,
    places: OwnPlaces = ANY_HOME,
) -> TriedPlace:
    """`try_place` with these secrets, and keep them for the cloud and all folders below it if it answers."""
    facts = try_place(url, _Given(secrets), places, SYSTEM)
    try:
        store.add(url, secrets)
    except AuthError as error:
        raise unusable(error) from error
    return facts


def describe_secrets(url: str, store: CredentialStore) -> SecretsOfPlace:
    """What the cloud at *url* can be given. Raises HybrisError."""
    open_for_test(url, store).close()
    try:
        known = bool(store.lookup(url))
    except AuthError as error:
        raise unusable(error) from error
    secrets = [api.Secret(one.name, one.label, one.hidden) for one in secrets_of(url)]
    kind = kind_of(url)
    return SecretsOfPlace(without_secrets(url), secrets, known, "" if kind is None else kind.logins)


# -- what goes wrong at a cloud, as an error for people -------------------------------------------------


def unusable(error: StoreError, when: str = "", kind: type[HybrisError] = HybrisError) -> HybrisError:
    """The error that says that a cloud cannot be used, why, and what to do; *when* tells what was tried."""
    reason = f"{error.reason} (when {when})" if when else error.reason
    advice = error.advice or (_UNREACHED if isinstance(error, TransientError) else "")
    return kind(f"the cloud {error.url} cannot be used", reason, as_sentence(advice))


def refused(error: StoreError, what: str) -> HybrisError:
    """The error for a cloud that can be used but does not do *what* it was asked to: it says why, and what
    to do."""
    return HybrisError(f"the cloud {error.url} does not {what}", error.reason, as_sentence(error.advice))
