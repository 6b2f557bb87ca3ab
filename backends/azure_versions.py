"""Older versions of blobs in an Azure container.

Azure keeps versions when the storage account is set to, which takes rights of management that no key or
shared access signature of a container has: so this names the commands for an administrator, and reads what is
kept. Whether versions are kept, and for how long, Azure tells nobody else either: a try shows the first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final

from backends.blob_versions import BlobVersions
from backends.body import receiving
from backends.bucket import BucketStore
from backends.errors import PermanentError
from backends.versions import Policy, Version

__all__ = ["AzureVersions"]

_PAGE: Final = 1000
_LONGEST_SOFT: Final = 365  # days; the longest that soft delete takes


class AzureVersions(BlobVersions):
    """A `backends.versions.Versions` of one container and folder."""

    def __init__(self, store: BucketStore, account: str, by_identity: Callable[[], bool]) -> None:
        """*by_identity* tells whether it logs in as a person or machine, which may have rights of
        management."""
        super().__init__(store)
        self._account = account
        self._by_identity = by_identity

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

    def _blobs(self, prefix: str) -> Iterable[Any]:
        found: Iterable[Any] = self._client().list_blobs(
            name_starts_with=prefix, include=["versions"], results_per_page=_PAGE
        )
        return found

    def _version(self, blob: Any) -> Version | None:
        """Emulators that know of no versions give them no ids."""
        return Version(str(blob.version_id), int(blob.size)) if blob.version_id else None

    def _blob(self, key: str, version: str) -> Any:
        return self._client().get_blob_client(key, version_id=version)

    def _read(self, blob: Any, limit: int, offset: int | None = None) -> bytes:
        part = () if offset is None else (offset, limit)
        with receiving(limit):
            return bytes(blob.download_blob(*part).readall())

    def _delete(self, blob: Any) -> None:
        blob.delete_blob()
