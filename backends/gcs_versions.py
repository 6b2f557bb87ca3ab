"""Older generations of objects in a Google Cloud Storage bucket, and a lifecycle rule that ends them.

To keep what is deleted, object versioning is switched on; a lifecycle rule (for what begins with our folder)
removes generations that have not been current for so many days. Rules of others stay. The bucket's soft
delete also keeps generations that are destroyed by hand. This driver reports that, but cannot read them: an
administrator restores them (``gcloud storage restore``).
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

from backends.blob_versions import BlobVersions
from backends.bucket import BucketStore
from backends.errors import AuthError
from backends.versions import MAX_LISTED, Policy, Version

__all__ = ["GcsVersions"]

_DAY: Final = 86400
_DAYS: Final = "daysSinceNoncurrentTime"


class GcsVersions(BlobVersions):
    """A `backends.versions.Versions` of one bucket and folder."""

    def __init__(self, store: BucketStore, download: Callable[..., bytes], options: dict[str, Any]) -> None:
        """*download* reads a blob of the SDK; *options* are those of every request."""
        super().__init__(store)
        self._download = download
        self._options = options

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

    def _blobs(self, prefix: str) -> Iterable[Any]:
        found: Iterable[Any] = self._client().list_blobs(
            self._bucket_name,
            prefix=prefix or None,
            versions=True,
            max_results=MAX_LISTED,
            fields="items(name,size,generation),nextPageToken",
            **self._options,
        )
        return found

    def _version(self, blob: Any) -> Version | None:
        return Version(str(int(blob.generation)), int(blob.size))

    def _blob(self, key: str, version: str) -> Any:
        return self._client().bucket(self._bucket_name).blob(key, generation=int(version))

    def _read(self, blob: Any, limit: int, offset: int | None = None) -> bytes:
        part = {} if offset is None else {"start": offset, "end": offset + limit - 1}
        return self._download(blob, limit, **part)

    def _delete(self, blob: Any) -> None:
        blob.delete(**self._options)

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
