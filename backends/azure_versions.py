"""Older versions of blobs in an Azure container.

Azure keeps versions when the storage account is set to, which takes rights of management that no key or
shared access signature of a container has: so this names the commands for an administrator, and reads what is
kept. Whether versions are kept, and for how long, Azure tells nobody else either: a try shows the first.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from itertools import islice
from typing import Any, Final

from backends.arguments import check_range
from backends.body import receiving
from backends.errors import CorruptError, PermanentError
from backends.names import check_name, check_prefix, is_name
from backends.versions import MAX_LISTED, MAX_VERSIONS, Policy, Version, outermost

__all__ = ["AzureVersions"]

_PAGE: Final = 1000
_LONGEST_SOFT: Final = 365  # days; the longest that soft delete takes


class AzureVersions:
    """A `backends.versions.Versions` of one container and folder."""

    def __init__(
        self,
        url: str,
        account: str,
        prefix: str,
        container: Callable[[], Any],
        translated: Callable[[str, str], AbstractContextManager[None]],
        by_identity: Callable[[], bool],
    ) -> None:
        """*translated(operation, name)* turns what the SDK raises into a `StoreError`; *by_identity* tells
        whether it logs in as a person or machine, which may have rights of management."""
        self._url = url
        self._account = account
        self._prefix = prefix
        self._container = container
        self._translated = translated
        self._by_identity = by_identity

    def names(self, prefix: str) -> tuple[str, ...]:
        root = self._prefix
        with self._translated("versions", prefix):
            blobs = self._container().list_blobs(
                name_starts_with=root + check_prefix(prefix), include=["versions"], results_per_page=_PAGE
            )
            found = {str(blob.name).removeprefix(root) for blob in islice(blobs, MAX_LISTED)}
        return tuple(sorted(filter(is_name, found)))

    def of(self, name: str, most: int = MAX_VERSIONS) -> tuple[Version, ...]:
        return outermost(self._listed(name), most)

    def get(self, name: str, version: str, *, limit: int) -> bytes:
        with self._translated("get", name), receiving(limit):
            return bytes(self._blob(name, version).download_blob().readall())

    def get_range(self, name: str, version: str, offset: int, length: int) -> bytes:
        check_range(offset, length)
        if not length:
            return b""
        with self._translated("get_range", name), receiving(length):
            data = bytes(self._blob(name, version).download_blob(offset, length).readall())
        if len(data) != length:
            raise CorruptError(self._url, "get_range", name, f"ends before byte {offset + length}")
        return data

    def destroy(self, name: str) -> bool:
        for version in self._listed(name):
            with self._translated("destroy", name):
                self._blob(name, version.id).delete_blob()
        return not self._listed(name)

    def policy(self) -> Policy:
        return Policy(None, None, "for how long, Azure tells administrators only")

    def keep(self, days: int) -> str:
        command = (
            f"az storage account blob-service-properties update --account-name {self._account} "
            f"--enable-versioning true --enable-delete-retention true "
            f"--delete-retention-days {min(days, _LONGEST_SOFT)}"
        )
        self._refuse(
            f"{command}; a rule of the account's lifecycle management ends versions after {days} days"
        )
        return ""

    def stop_keeping(self) -> None:
        self._refuse(
            f"az storage account blob-service-properties update --account-name {self._account} "
            "--enable-versioning false"
        )

    def may_change(self) -> bool | None:
        return None if self._by_identity() else False

    # -- how -------------------------------------------------------------------------------------

    def _refuse(self, command: str) -> None:
        reason = "only an administrator of the storage account can switch that on and off"
        advice = f"try hybrisfs cloud test when one has run: {command}"
        raise PermanentError(self._url, "keep", "", reason, advice)

    def _listed(self, name: str) -> list[Version]:
        """The versions of a name, the newest first. Emulators that know of none give them no ids."""
        key, found = self._prefix + check_name(name), list[Version]()
        with self._translated("versions", name):
            for blob in self._container().list_blobs(
                name_starts_with=key, include=["versions"], results_per_page=_PAGE
            ):
                # The service lists them oldest first, and names that go on after this one afterwards.
                if blob.name != key or len(found) == MAX_LISTED:
                    break
                if blob.version_id:
                    found.append(Version(str(blob.version_id), int(blob.size)))
        return found[::-1]

    def _blob(self, name: str, version: str) -> Any:
        return self._container().get_blob_client(self._prefix + check_name(name), version_id=version)
