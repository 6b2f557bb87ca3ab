"""Older generations of objects in a Google Cloud Storage bucket, and a lifecycle rule that ends them.

To keep what is deleted, object versioning is switched on; a lifecycle rule (for what begins with our folder)
removes generations that have not been current for so many days. Rules of others stay. The bucket's
soft delete also keeps generations that somebody destroys. This driver reports that, but cannot read them: an
administrator restores them (``gcloud storage restore``).
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any, Final

from backends.arguments import check_range
from backends.errors import AuthError, CorruptError
from backends.names import check_name, check_prefix, is_name
from backends.versions import MAX_LISTED, MAX_VERSIONS, Policy, Version, outermost

__all__ = ["GcsVersions"]

_DAY: Final = 86400
_DAYS: Final = "daysSinceNoncurrentTime"


class GcsVersions:
    """A `backends.versions.Versions` of one bucket and folder."""

    def __init__(
        self,
        url: str,
        bucket: str,
        prefix: str,
        client: Callable[[], Any],
        translated: Callable[[str, str], AbstractContextManager[None]],
        download: Callable[..., bytes],
        options: dict[str, Any],
    ) -> None:
        """*translated(operation, name)* turns what the SDK raises into a `StoreError`; *download* reads a
        blob of the SDK; *options* are those of every request."""
        self._url = url
        self._bucket_name = bucket
        self._prefix = prefix
        self._client = client
        self._translated = translated
        self._download = download
        self._options = options

    def names(self, prefix: str) -> tuple[str, ...]:
        root = self._prefix
        with self._translated("versions", prefix):
            blobs = self._client().list_blobs(
                self._bucket_name,
                prefix=root + check_prefix(prefix) or None,
                versions=True,
                max_results=MAX_LISTED,
                fields="items(name),nextPageToken",
                **self._options,
            )
            found = {str(blob.name).removeprefix(root) for blob in blobs}
        return tuple(sorted(filter(is_name, found)))

    def of(self, name: str, most: int = MAX_VERSIONS) -> tuple[Version, ...]:
        return outermost(self._listed(name), most)

    def get(self, name: str, version: str, *, limit: int) -> bytes:
        with self._translated("get", name):
            return self._download(self._blob(name, version), limit)

    def get_range(self, name: str, version: str, offset: int, length: int) -> bytes:
        check_range(offset, length)
        if not length:
            return b""
        with self._translated("get_range", name):
            end = offset + length - 1
            data = self._download(self._blob(name, version), length, start=offset, end=end)
        if len(data) != length:
            raise CorruptError(self._url, "get_range", name, f"ends before byte {offset + length}")
        return data

    def destroy(self, name: str) -> bool:
        for version in self._listed(name):
            with self._translated("destroy", name):
                self._blob(name, version.id).delete(**self._options)
        return not self._listed(name)

    def policy(self) -> Policy:
        try:
            bucket = self._bucket()
        except AuthError:
            return Policy(None, None, "these credentials may not ask (storage.buckets.get)")
        note = _soft_delete(bucket)
        if not bucket.versioning_enabled:
            return Policy(False, None, note)
        ends = [_end_of(rule, self._prefix) for rule in bucket.lifecycle_rules]
        days = min((one for one in ends if one is not None), default=None)
        return Policy(True, days, note if days is not None else note or "no rule ends that")

    def keep(self, days: int) -> str:
        words = f"--versioning --lifecycle-file=FILE, with a rule that deletes {days} days after {_DAYS}"
        with self._administered(words):
            bucket = self._bucket()
            bucket.versioning_enabled = True
            others = [dict(rule) for rule in bucket.lifecycle_rules if not self._is_ours(rule)]
            bucket.lifecycle_rules = [*others, self._rule(days)]
            bucket.patch(**self._options)
        return _soft_delete(bucket)

    def stop_keeping(self) -> None:
        with self._administered("--no-versioning"):
            bucket = self._bucket()
            bucket.versioning_enabled = False
            bucket.patch(**self._options)

    def may_change(self) -> bool | None:
        try:
            with self._administered("--versioning"):
                bucket = self._bucket()
                if not bucket.versioning_enabled:
                    return None
                bucket.versioning_enabled = True
                bucket.patch(**self._options)
        except AuthError:
            return False
        return True

    # -- how -------------------------------------------------------------------------------------

    def _listed(self, name: str) -> list[Version]:
        """The generations of a name, the newest first."""
        key, found = self._prefix + check_name(name), list[Version]()
        with self._translated("versions", name):
            # The service lists them oldest first, and names that go on after this one afterwards.
            for blob in self._client().list_blobs(
                self._bucket_name,
                prefix=key,
                versions=True,
                max_results=MAX_LISTED,
                fields="items(name,size,generation),nextPageToken",
                **self._options,
            ):
                if blob.name != key:
                    break
                found.append(Version(str(int(blob.generation)), int(blob.size)))
        return found[::-1]

    def _blob(self, name: str, version: str) -> Any:
        key = self._prefix + check_name(name)
        return self._client().bucket(self._bucket_name).blob(key, generation=int(version))

    def _bucket(self) -> Any:
        with self._translated("policy", ""):
            return self._client().get_bucket(self._bucket_name, **self._options)

    def _rule(self, days: int) -> dict[str, Any]:
        condition: dict[str, Any] = {_DAYS: days, "isLive": False}
        if self._prefix:
            condition["matchesPrefix"] = [self._prefix]
        return {"action": {"type": "Delete"}, "condition": condition}

    def _is_ours(self, rule: Any) -> bool:
        """Whether a rule is one that `keep` has made, for whatever number of days."""
        condition = rule.get("condition", {})
        return dict(rule) == self._rule(int(condition.get(_DAYS, 0)))

    @contextlib.contextmanager
    def _administered(self, words: str) -> Iterator[None]:
        """Say, when these credentials are refused, which right they lack and what an administrator runs."""
        try:
            with self._translated("keep", ""):
                yield
        except AuthError as error:
            reason = f"these credentials lack the right storage.buckets.update: {error.reason}"
            command = f"gcloud storage buckets update gs://{self._bucket_name} {words}"
            raise AuthError(self._url, "keep", "", reason, f"have an administrator run: {command}") from error


def _soft_delete(bucket: Any) -> str:
    seconds = int(bucket.soft_delete_policy.retention_duration_seconds or 0)
    if not seconds:
        return ""
    return f"an administrator can restore what was destroyed in the last {seconds // _DAY} days (soft delete)"


def _end_of(rule: Any, prefix: str) -> int | None:
    """After how many days a rule removes older generations of what begins with *prefix*; None for never. A
    rule for some of the objects only counts as well: it may be for ours."""
    condition = rule.get("condition", {})
    prefixes = condition.get("matchesPrefix") or [""]
    concerned = any(one.startswith(prefix) or prefix.startswith(one) for one in prefixes)
    deletes = rule.get("action", {}).get("type") == "Delete"
    days = condition.get(_DAYS)
    return int(days) if deletes and concerned and days is not None else None
