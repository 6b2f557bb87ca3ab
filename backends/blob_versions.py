"""Older versions of objects at services that list them as blobs, the oldest first: Azure's and Google's.

A driver says how its SDK lists, reads and deletes a blob. All else is here: names, bounds, short answers.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from itertools import islice
from typing import Any

from backends.bucket import BucketVersions
from backends.driver import check_range
from backends.errors import CorruptError
from backends.store import check_prefix, is_name
from backends.versions import MAX_LISTED, MAX_VERSIONS, Version, outermost

__all__ = ["BlobVersions"]


class BlobVersions(BucketVersions, ABC):
    """The part of `backends.versions.Versions` that lists, reads and destroys versions."""

    def names(self, prefix: str) -> tuple[str, ...]:
        """See `Versions`; so are all of these."""
        root = self._prefix
        with self._translated("versions", prefix):
            blobs = islice(self._blobs(root + check_prefix(prefix)), MAX_LISTED)
            found = {str(blob.name).removeprefix(root) for blob in blobs}
        return tuple(sorted(filter(is_name, found)))

    def of(self, name: str, most: int = MAX_VERSIONS) -> tuple[Version, ...]:
        return outermost(self._listed(name), most)

    def get(self, name: str, version: str, *, limit: int) -> bytes:
        with self._translated("get", name):
            return self._read(self._blob(self._key(name), version), limit)

    def get_range(self, name: str, version: str, offset: int, length: int) -> bytes:
        check_range(offset, length)
        if not length:
            return b""
        with self._translated("get_range", name):
            data = self._read(self._blob(self._key(name), version), length, offset)
        if len(data) != length:
            raise CorruptError(self._url, "get_range", name, f"ends before byte {offset + length}")
        return data

    def destroy(self, name: str) -> bool:
        for version in self._listed(name):
            with self._translated("destroy", name):
                self._delete(self._blob(self._key(name), version.id))
        return not self._listed(name)

    def _listed(self, name: str) -> list[Version]:
        """The versions of a name, the newest first."""
        key, found = self._key(name), list[Version]()
        with self._translated("versions", name):
            for blob in islice(self._blobs(key), MAX_LISTED):
                # The service lists names that go on after this one afterwards.
                if blob.name != key:
                    break
                version = self._version(blob)
                if version is not None:
                    found.append(version)
        return found[::-1]

    # -- the service -----------------------------------------------------------------------------

    @abstractmethod
    def _blobs(self, prefix: str) -> Iterable[Any]:
        """All versions of the keys that begin with *prefix*, those of a key the oldest first."""

    @abstractmethod
    def _version(self, blob: Any) -> Version | None:
        """What was listed; None for what is not a version."""

    @abstractmethod
    def _blob(self, key: str, version: str) -> Any:
        """One version, to be read or deleted."""

    @abstractmethod
    def _read(self, blob: Any, limit: int, offset: int | None = None) -> bytes:
        """All of it, which must be at most *limit* bytes, or so many from *offset* on."""

    @abstractmethod
    def _delete(self, blob: Any) -> None:
        """Have the cloud forget it."""
