"""Trying a place out that may become a volume's cloud, with secrets that are kept once it answers."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping

from backends.address import without_secrets
from backends.credentials import Credentials, CredentialStore, Secrets
from backends.errors import AuthError
from backends.secrets import secrets_of
from hybrisfs.api import places as api
from hybrisfs.api.places import SecretsOfPlace, TriedPlace
from hybrisfs.stores.own_places import ANY_HOME, OwnPlaces
from hybrisfs.stores.store_errors import unusable
from hybrisfs.stores.tryout import open_for_test, prepare_place, try_out

__all__ = ["describe_secrets", "log_in", "try_place"]


class _Given:
    """Secrets that a person has just typed. A `Credentials` for one cloud."""

    def __init__(self, values: Mapping[str, str]) -> None:
        self._secrets = Secrets(dict(values))

    def lookup(self, url: str) -> Secrets:
        return self._secrets


def try_place(url: str, credentials: Credentials, places: OwnPlaces = ANY_HOME) -> TriedPlace:
    """Make the folder or bucket at *url* if it is not there, and try out what volumes ask of a cloud.

    Raises HybrisError.
    """
    with contextlib.closing(open_for_test(url, credentials, places)) as store:
        prepare_place(store)
        seconds = try_out(store)
    return TriedPlace(without_secrets(url), dict(seconds))


def log_in(
    url: str, secrets: Mapping[str, str], store: CredentialStore, places: OwnPlaces = ANY_HOME
) -> TriedPlace:
    """`try_place` with these secrets, and keep them for the cloud and all folders below it if it answers."""
    facts = try_place(url, _Given(secrets), places)
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
    secrets = [api.Secret(*secret) for secret in secrets_of(url)]
    return SecretsOfPlace(without_secrets(url), secrets, known)
