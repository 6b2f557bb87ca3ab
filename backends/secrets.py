"""What secrets each kind of cloud takes: their names in `credentials.json`, and what people call them."""

from __future__ import annotations

from typing import Final, NamedTuple
from urllib.parse import urlsplit

__all__ = ["Secret", "secret_names", "secrets_of"]


class Secret(NamedTuple):
    """One secret of a cloud. What is left out comes from the provider's own chain, but for an endpoint."""

    name: str
    label: str
    hidden: bool = True
    """Whether it must not be seen while somebody types it."""


_WEBDAV: Final = (Secret("user", "User name", hidden=False), Secret("password", "Password"))
_SECRETS: Final[dict[str, tuple[Secret, ...]]] = {
    "az": (Secret("account_key", "Account key"), Secret("sas_token", "SAS token, instead of the key")),
    "gs": (Secret("service_account", "Key of a service account, JSON"), Secret("token", "Access token")),
    "s3": (
        Secret("access_key_id", "Access key id", hidden=False),
        Secret("secret_access_key", "Secret access key"),
        Secret("session_token", "Session token, of temporary keys"),
    ),
    "sftp": (
        Secret("password", "Password"),
        Secret("private_key", "Private key, instead of a password"),
        Secret("passphrase", "Passphrase of the private key"),
    ),
    "webdav": _WEBDAV,
    "webdavs": _WEBDAV,
}


def secret_names(scheme: str) -> frozenset[str]:
    """The names of the secrets that clouds of a kind take."""
    return frozenset(secret.name for secret in _SECRETS[scheme])


def secrets_of(url: str) -> tuple[Secret, ...]:
    """The secrets that the cloud at *url* takes, without those that the URL states. Raises ValueError for
    what is no URL; empty for a kind that takes none or is unknown."""
    parts = urlsplit(url)
    taken = _SECRETS.get(parts.scheme, ())
    return tuple(secret for secret in taken if secret.name != "user" or not parts.username)
