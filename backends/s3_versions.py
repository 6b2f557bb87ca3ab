"""Older versions of objects in an S3 bucket, and a lifecycle rule that ends them.

To keep what is deleted, the bucket is versioned; so that it is not kept for ever, a lifecycle rule of ours
(``hybrisfs FOLDER``) removes versions that have not been current for so many days. Rules of others stay.

Object Lock is not switched on. Its days count from when an object was *written*, so that what matters most,
packs older than that, would be as unprotected as before; and it would hold up lawful deletions for that time.
What protects versions is that the credentials of ordinary devices lack ``s3:DeleteObjectVersion``,
``s3:PutLifecycleConfiguration`` and ``s3:PutBucketVersioning``. A lock that the bucket has is reported.
"""

from __future__ import annotations

import contextlib
import json
import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from backends.body import read_all, receiving
from backends.bucket import BucketStore, BucketVersions
from backends.driver import check_range
from backends.errors import AuthError, CorruptError, MissingError, PermanentError, StoreError
from backends.store import check_prefix, is_name
from backends.versions import MAX_LISTED, MAX_VERSIONS, Policy, Version, outermost

__all__ = ["S3Versions"]

_PAGE: Final = 1000  # versions and deletion marks that one request asks for
_NO_RULES: Final = frozenset({"NoSuchLifecycleConfiguration", "NoSuchLifecycle"})
_NOT_DONE: Final = frozenset({"NotImplemented", "MethodNotAllowed", "UnsupportedOperation"})
_GONE: Final = frozenset({"NoSuchVersion", "InvalidVersionId"})
_VERSIONING: Final = "s3:PutBucketVersioning"
_LIFECYCLE: Final = "s3:PutLifecycleConfiguration"
_LIFECYCLE_PARTS: Final = ("Rules", "TransitionDefaultMinimumObjectSize")


class S3Versions(BucketVersions):
    """A `backends.versions.Versions` of one bucket and folder."""

    def __init__(self, store: BucketStore, endpoint: str | None) -> None:
        super().__init__(store)
        self._endpoint = endpoint

    def names(self, prefix: str) -> tuple[str, ...]:
        root, found, start = self._prefix, set[str](), dict[str, str]()
        for _ in range(MAX_LISTED // _PAGE):
            with self._translated("versions", prefix):
                answer = self._client().list_object_versions(
                    Bucket=self._bucket_name, Prefix=root + check_prefix(prefix), MaxKeys=_PAGE, **start
                )
                found |= {str(one["Key"]).removeprefix(root) for one in answer.get("Versions", ())}
                if not answer.get("IsTruncated"):
                    break
                start = _next(answer)
        return tuple(sorted(filter(is_name, found)))

    def of(self, name: str, most: int = MAX_VERSIONS) -> tuple[Version, ...]:
        return outermost([Version(*one) for one in self._listed(name, "Versions")], most)

    def get(self, name: str, version: str, *, limit: int) -> bytes:
        return self._get(name, version, limit)

    def get_range(self, name: str, version: str, offset: int, length: int) -> bytes:
        check_range(offset, length)
        if not length:
            return b""
        data = self._get(name, version, length, Range=f"bytes={offset}-{offset + length - 1}")
        if len(data) != length:
            raise CorruptError(self._url, "get_range", name, f"ends before byte {offset + length}")
        return data

    def destroy(self, name: str) -> bool:
        # The marks come first: no lock holds them, so that a refusal tells of rights and of nothing else.
        marks = self._listed(name, "DeleteMarkers")
        for mark, _ in marks:
            self._delete(name, mark)
        for version, _ in self._listed(name, "Versions"):
            try:
                self._delete(name, version)
            except AuthError:
                if not marks:
                    raise
                return False
        return not self._listed(name, "Versions")

    def policy(self) -> Policy:
        try:
            if not self._is_on():
                return Policy(False)
        except AuthError:
            return Policy(None, None, "these credentials may not ask (s3:GetBucketVersioning)")
        except StoreError as error:
            if _code(error) in _NOT_DONE:
                return Policy(False)
            raise
        lock = self._lock()
        try:
            ends = [_end_of(rule, self._prefix) for rule in (self._lifecycle() or {}).get("Rules", ())]
        except AuthError:
            return Policy(
                True, None, "these credentials may not ask for how long (s3:GetLifecycleConfiguration)"
            )
        days = min((one for one in ends if one is not None), default=None)
        return Policy(True, days, lock if days is not None else lock or "no rule ends that")

    def keep(self, days: int) -> str:
        self._set_versioning("Enabled")
        if not self._is_on():
            raise PermanentError(self._url, "keep", "", "the service does not keep versions of objects")
        lifecycle = self._lifecycle()
        if lifecycle is None:
            return "the service knows no rule that ends what is kept: it is kept until somebody deletes it"
        rule = {
            "ID": f"hybrisfs {self._prefix}".strip(),
            "Status": "Enabled",
            "Filter": {"Prefix": self._prefix},
            "NoncurrentVersionExpiration": {"NoncurrentDays": days},
            "Expiration": {"ExpiredObjectDeleteMarker": True},
        }
        others = [one for one in lifecycle.get("Rules", ()) if one.get("ID") != rule["ID"]]
        self._set_lifecycle({**lifecycle, "Rules": [*others, rule]})
        return self._lock()

    def stop_keeping(self) -> None:
        self._set_versioning("Suspended")

    def may_change(self) -> bool | None:
        if self.policy().on is not True:
            return None
        try:
            self._set_versioning("Enabled")
            return True
        except AuthError:
            pass
        try:
            lifecycle = self._lifecycle()
            if lifecycle:
                self._set_lifecycle(lifecycle)
                return True
        except AuthError:
            return False
        return False if lifecycle is None else None

    # -- how -------------------------------------------------------------------------------------

    def _listed(self, name: str, kind: str) -> list[tuple[str, int]]:
        """Ids and sizes of what the bucket keeps of a name: "Versions" or "DeleteMarkers"."""
        key, found, start = self._key(name), list[tuple[str, int]](), dict[str, str]()
        for _ in range(MAX_LISTED // _PAGE):
            with self._translated("versions", name):
                answer = self._client().list_object_versions(
                    Bucket=self._bucket_name, Prefix=key, MaxKeys=_PAGE, **start
                )
                page = [*answer.get("Versions", ()), *answer.get("DeleteMarkers", ())]
                some = [one for one in answer.get(kind, ()) if one["Key"] == key]
                found += [(str(one["VersionId"]), int(one.get("Size", 0))) for one in some]
                # Names that go on after this one are listed after all of its versions.
                if not answer.get("IsTruncated") or any(one["Key"] != key for one in page):
                    break
                start = _next(answer)
        return found

    def _get(self, name: str, version: str, limit: int, **options: str) -> bytes:
        where = {"Bucket": self._bucket_name, "Key": self._key(name), "VersionId": version}
        try:
            with self._translated("get", name), receiving(limit):
                return read_all(self._client().get_object(**where, **options)["Body"])
        except PermanentError as error:
            if _code(error) not in _GONE:
                raise
            raise MissingError(self._url, "get", name, "no such version") from error

    def _delete(self, name: str, version: str) -> None:
        with self._translated("destroy", name):
            self._client().delete_object(Bucket=self._bucket_name, Key=self._key(name), VersionId=version)

    def _is_on(self) -> bool:
        with self._translated("policy", ""):
            answer = self._client().get_bucket_versioning(Bucket=self._bucket_name)
            return bool(answer.get("Status") == "Enabled")

    def _set_versioning(self, status: str) -> None:
        words = ["put-bucket-versioning", "--versioning-configuration", f"Status={status}"]
        try:
            with self._administered(_VERSIONING, words):
                self._client().put_bucket_versioning(
                    Bucket=self._bucket_name, VersioningConfiguration={"Status": status}
                )
        except StoreError as error:
            if _code(error) not in _NOT_DONE:
                raise
            reason = "this service does not keep versions of objects"
            raise PermanentError(self._url, "keep", "", reason) from error

    def _lifecycle(self) -> dict[str, Any] | None:
        """The lifecycle rules of the bucket and what belongs to them, {} when it has none, None where the
        service knows none. Raises `StoreError`."""
        words = ["get-bucket-lifecycle-configuration"]
        try:
            with self._administered("s3:GetLifecycleConfiguration", words):
                answer = self._client().get_bucket_lifecycle_configuration(Bucket=self._bucket_name)
                return {name: answer[name] for name in _LIFECYCLE_PARTS if answer.get(name)}
        except StoreError as error:
            if _code(error) in _NO_RULES:
                return {}
            if _code(error) in _NOT_DONE:
                return None
            raise

    def _set_lifecycle(self, wanted: Mapping[str, Any]) -> None:
        rules = {"Rules": wanted["Rules"]}
        options = {name: value for name, value in wanted.items() if name != "Rules"}
        text = json.dumps(rules, default=str)
        words = ["put-bucket-lifecycle-configuration", "--lifecycle-configuration", text]
        with self._administered(_LIFECYCLE, words):
            self._client().put_bucket_lifecycle_configuration(
                Bucket=self._bucket_name, LifecycleConfiguration=rules, **options
            )

    def _lock(self) -> str:
        """What is to be said of an Object Lock that the bucket has; "" for none, or when that is not told."""
        try:
            with self._translated("policy", ""):
                answer = self._client().get_object_lock_configuration(Bucket=self._bucket_name)
                default = answer["ObjectLockConfiguration"].get("Rule", {}).get("DefaultRetention")
                if default is None:
                    return ""
                span = f"{default['Days']} days" if "Days" in default else f"{default['Years']} years"
                return (
                    f"nobody can destroy what was written in the last {span} (Object Lock, {default['Mode']})"
                )
        except StoreError:
            return ""

    @contextlib.contextmanager
    def _administered(self, right: str, words: Sequence[str]) -> Iterator[None]:
        """Say, when these credentials are refused, which right they lack and what an administrator runs."""
        try:
            with self._translated("keep", ""):
                yield
        except AuthError as error:
            endpoint = ["--endpoint-url", self._endpoint] if self._endpoint else []
            command = ["aws", "s3api", words[0], "--bucket", self._bucket_name, *words[1:], *endpoint]
            reason = f"these credentials lack the right {right}: {error.reason}"
            advice = f"have an administrator run: {shlex.join(command)}"
            raise AuthError(self._url, "keep", "", reason, advice) from error


def _next(answer: Mapping[str, Any]) -> dict[str, str]:
    """Where the page after this one begins. What the service says is its own affair, and no name."""
    markers = ("KeyMarker", "VersionIdMarker")
    return {one: str(answer[f"Next{one}"]) for one in markers if answer.get(f"Next{one}")}


def _end_of(rule: Mapping[str, Any], prefix: str) -> int | None:
    """After how many days a lifecycle rule removes older versions of what begins with *prefix*, None for
    never. A rule for some of the objects only counts as well: it may be for ours."""
    of = rule.get("Filter", {})
    filtered = str(rule.get("Prefix") or of.get("Prefix") or of.get("And", {}).get("Prefix") or "")
    days = rule.get("NoncurrentVersionExpiration", {}).get("NoncurrentDays")
    concerned = filtered.startswith(prefix) or prefix.startswith(filtered)
    return int(days) if days is not None and rule.get("Status") == "Enabled" and concerned else None


def _code(error: BaseException) -> str:
    """What the service called it that a `StoreError` was made of."""
    answer = getattr(error.__cause__, "response", None) or getattr(error, "response", None) or {}
    return str(answer.get("Error", {}).get("Code", ""))
