"""A cloud in a Google Cloud Storage bucket: ``gs://bucket/folder?project=...&location=...&endpoint=...``.

`project` and `location` matter only where the bucket is made. Credentials: `service_account` (the JSON text
of a key file) or `token`; without them Application Default Credentials. At an `endpoint` of somebody else's,
an emulator's mostly, those are not used: it is talked to without any.

Tags are generation numbers; `put_if_absent` is a write that wants generation 0 to be there. Many objects are
deleted one by one: the service has no request for it that costs less.
"""

from __future__ import annotations

import contextlib
import io
import json
from collections.abc import Iterable, Iterator
from datetime import timedelta
from functools import cached_property
from typing import Any, Final

from backends.blob_versions import BlobVersions
from backends.body import receiving
from backends.bucket import BucketStore, ServicePage, no_bucket
from backends.credentials import Secrets
from backends.driver import CloudKind, Secret, as_bytes
from backends.errors import AuthError, StoreError
from backends.http_errors import HttpFailure, connection_error, http_error
from backends.store import MAX_PAGE, Buffer
from backends.versions import MAX_LISTED, Policy, Version

__all__ = ["GcsStore"]

_ENDPOINT: Final = "https://storage.googleapis.com"
_MAX_TOKEN: Final = 1 << 20  # bytes of the answer that has one; a token is had in the midst of a small read
_SCOPES: Final = ("https://www.googleapis.com/auth/devstorage.read_write",)


class GcsStore(BucketStore):
    """A `backends.store.Store` in a Google Cloud Storage bucket."""

    kind = CloudKind(
        schemes=("gs",),
        form="gs://bucket/folder?project=PROJECT",
        what="Google Cloud Storage",
        options=frozenset({"endpoint", "location", "project"}),
        secrets=(
            Secret("service_account", "Key of a service account, JSON", account=True),
            Secret("token", "Access token", account=True),
        ),
        problem=no_bucket,
        server=lambda address: "https://storage.googleapis.com/",
        providers={"googleapis.com": "Google Cloud Storage"},
    )

    @cached_property
    def versions(self) -> GcsVersions:
        """Older generations of objects."""
        return GcsVersions(self, self._request)

    @property
    def _request(self) -> dict[str, Any]:
        """The options of every request."""
        return {"retry": None, "timeout": (self._timing.connect, self._timing.stall)}

    def _initialise(self) -> None:
        client = self._client()
        if self._has_bucket(client):
            return
        project, location = self._address.option("project"), self._address.option("location")
        try:
            client.create_bucket(self._bucket, project=project, location=location, **self._request)
        except Exception as error:
            failure = self._failure(error)
            if failure is None or failure.status != 409 or not self._has_bucket(client):
                raise

    def _put(self, client: Any, name: str, data: Buffer) -> None:
        self._upload(client, name, data)

    def _put_if_absent(self, client: Any, name: str, data: Buffer) -> bool:
        with self._tolerating(412):
            self._upload(client, name, data, if_generation_match=0)
            return True
        return False

    def _get(self, client: Any, name: str, limit: int) -> bytes:
        return _download(self._blob(client, name), limit, self._request)

    def _get_range(self, client: Any, name: str, offset: int, length: int) -> bytes:
        with self._tolerating(416):
            part = {"start": offset, "end": offset + length - 1}
            return _download(self._blob(client, name), length, self._request | part)
        return b""

    def _size(self, client: Any, name: str) -> int:
        blob = self._blob(client, name)
        blob.reload(**self._request)
        return int(blob.size)

    def _get_if_changed(
        self, client: Any, name: str, tag: str | None, limit: int
    ) -> tuple[bytes, str] | None:
        known = tag is not None and tag.isascii() and tag.isdigit()
        condition = {"if_generation_not_match": int(tag)} if tag is not None and known else {}
        blob = self._blob(client, name)
        with self._tolerating(304):
            data = _download(blob, limit, self._request | condition)
            # Not every service that speaks this protocol obeys the condition.
            current = str(blob.generation or "")
            return None if tag and current == tag else (data, current)
        return None

    def _delete(self, client: Any, name: str) -> None:
        self._blob(client, name).delete(**self._request)

    def _page(self, client: Any, prefix: str, after: str, token: str | None, count: int) -> ServicePage:
        root = self._address.prefix
        pages = client.list_blobs(
            self._bucket,
            prefix=root + prefix or None,
            start_offset=root + after if after else None,
            page_token=token,
            # The service counts the one that equals `after`, and so does not know if more follow.
            page_size=min(count + 2, MAX_PAGE),
            fields="items(name,size),nextPageToken",
            **self._request,
        )
        keys = [(blob.name, int(blob.size)) for blob in next(pages.pages, ())]
        return ServicePage(keys, pages.next_page_token)

    def _signed_url(self, client: Any, key: str, seconds: int, content_type: str) -> str:
        from google.auth.credentials import Signing

        login = client._credentials
        if not isinstance(login, Signing):
            reason = "only the key of a service account can sign links for others"
            raise AuthError(self.url, "sign", "", reason, "hybrisfs cloud login asks for service_account")
        blob = client.bucket(self._bucket).blob(key)
        return str(
            blob.generate_signed_url(
                version="v4",
                expiration=timedelta(seconds=seconds),
                response_type=content_type,
                api_access_endpoint=self._address.option("endpoint") or _ENDPOINT,
                credentials=login,
            )
        )

    def _blob(self, client: Any, name: str) -> Any:
        return client.bucket(self._bucket).blob(self._key(name))

    def _upload(self, client: Any, name: str, data: Buffer, **condition: int) -> None:
        content = as_bytes(data)
        self._blob(client, name).upload_from_file(
            io.BytesIO(content), size=len(content), checksum=None, **condition, **self._request
        )

    def _has_bucket(self, client: Any) -> bool:
        """Whether the bucket is there. Lists one object, which every user of a bucket may do."""
        with self._tolerating(404):
            next(client.list_blobs(self._bucket, page_size=1, **self._request).pages, None)
            return True
        return False

    def _connect(self, secrets: Secrets) -> Any:
        import requests
        from google.auth.transport.requests import AuthorizedSession, Request
        from google.cloud import storage

        from backends.requests_session import guard

        endpoint = self._address.option("endpoint")
        login = self._login(secrets, endpoint)
        refreshing = requests.Session()  # where tokens are had
        session = AuthorizedSession(login, auth_request=Request(refreshing))
        guard(refreshing, self._timing, _MAX_TOKEN)
        guard(session, self._timing)
        options = {"api_endpoint": endpoint} if endpoint else None
        project = self._address.option("project")
        client = storage.Client(project=project, credentials=login, _http=session, client_options=options)
        # For the sake of traces it asks about each bucket, in a thread of its own that retries for minutes.
        client._bucket_metadata_cache = None
        return client

    def _login(self, secrets: Secrets, endpoint: str | None) -> Any:
        import google.auth
        from google.auth.credentials import AnonymousCredentials
        from google.oauth2 import credentials, service_account

        key, token = secrets.get("service_account"), secrets.get("token")
        if key is not None:
            try:
                account = json.loads(key)
                return service_account.Credentials.from_service_account_info(account, scopes=_SCOPES)
            except (ValueError, TypeError, AttributeError):
                # The error itself may quote the key.
                reason = "service_account is not the JSON text of a key file"
                raise AuthError(self.url, "open", "", reason) from None
        if token is not None:
            return credentials.Credentials(token=token)
        if endpoint is not None:
            return AnonymousCredentials()
        return google.auth.default(scopes=_SCOPES)[0]

    def _failure(self, error: Exception) -> HttpFailure | None:
        from google.api_core.exceptions import GoogleAPICallError

        if not isinstance(error, GoogleAPICallError):
            return None
        headers = error.response.headers if error.response is not None else {}
        details = error.errors[0] if error.errors else {}
        code = str(details.get("reason", "")) if isinstance(details, dict) else ""
        return HttpFailure(int(error.code or 0), code, str(error.message), headers)

    def _refusal(self, operation: str, name: str, failure: HttpFailure) -> StoreError:
        if failure.status != 404:
            return http_error(self.url, operation, name, failure)
        # The service answers so for a missing object and for a missing bucket.
        if name and not operation.startswith("put"):
            with self._calling("list", "") as client:
                if self._has_bucket(client):
                    return self._no_object(operation, name)
        return self._no_bucket(operation, name)

    def _library_error(self, operation: str, name: str, error: Exception) -> StoreError | None:
        import google.auth.exceptions as auth

        if isinstance(error, auth.TransportError):
            return connection_error(self.url, operation, name, error)
        if isinstance(error, auth.GoogleAuthError):
            advice = (
                "hybrisfs cloud login asks for service_account; or run: gcloud auth application-default login"
            )
            reason = f"no usable credentials: {error.args[0] if error.args else error}"
            return AuthError(self.url, operation, name, reason, advice)
        return None


def _download(blob: Any, limit: int, options: dict[str, Any]) -> bytes:
    # As it is stored, without a checksum: what is read is verified above.
    sink = io.BytesIO()
    with receiving(limit):
        blob.download_to_file(sink, raw_download=True, checksum=None, **options)
    return sink.getvalue()


# -- older generations of objects in a Google Cloud Storage bucket --------------------------------------
# To keep what is deleted, object versioning is switched on; a lifecycle rule (for what begins with our
# folder) removes generations that have not been current for so many days. Rules of others stay. The bucket's
# soft delete also keeps generations that are destroyed by hand. This driver reports that, but cannot read
# them: an administrator restores them (``gcloud storage restore``).


_DAY: Final = 86400
_DAYS: Final = "daysSinceNoncurrentTime"


class GcsVersions(BlobVersions):
    """A `backends.versions.Versions` of one bucket and folder."""

    def __init__(self, store: BucketStore, options: dict[str, Any]) -> None:
        """*options* are those of every request."""
        super().__init__(store)
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
        return _download(blob, limit, self._options | part)

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
