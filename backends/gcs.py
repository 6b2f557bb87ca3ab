"""A cloud in a Google Cloud Storage bucket: ``gs://bucket/folder?project=...&location=...&endpoint=...``.

`project` and `location` matter only where the bucket is made. Object `a/b` is the key `folder/a/b`.
Credentials: `service_account` (the JSON text of a key file) or `token`; without them Application Default
Credentials. At an `endpoint` of somebody else's, an emulator's mostly, those are not used: it is talked to
without any.

Tags are generation numbers; `put_if_absent` is a write that wants generation 0 to be there. Many objects are
deleted one by one: the service has no request for it that costs less.
"""

from __future__ import annotations

import contextlib
import io
import json
from collections.abc import Iterable, Iterator
from typing import Any, Final

from backends.address import parse_address
from backends.arguments import as_bytes, check_page, check_range
from backends.body import BodyError, Timing, body_failure, receiving
from backends.credentials import NO_CREDENTIALS, Credentials, Secrets
from backends.errors import (
    AuthError,
    CorruptError,
    MissingError,
    MissingRootError,
    PermanentError,
    StoreError,
)
from backends.gcs_versions import GcsVersions
from backends.http_errors import HttpFailure, RedirectedError, connection_error, http_error
from backends.lazy import LazyClient
from backends.listing import ServicePage, collect
from backends.names import check_name, check_prefix
from backends.secrets import secret_names
from backends.store import MAX_PAGE, Buffer, Page

__all__ = ["GcsStore"]

_FORM: Final = "gs://bucket/folder?project=PROJECT"
_OPTIONS: Final = frozenset({"endpoint", "location", "project"})
_SECRETS: Final = secret_names("gs")
_SCOPES: Final = ("https://www.googleapis.com/auth/devstorage.read_write",)
_MALFORMED: Final = (ValueError, KeyError, TypeError, AttributeError)


class GcsStore:
    """A `backends.store.Store` in a Google Cloud Storage bucket."""

    def __init__(
        self, url: str, credentials: Credentials = NO_CREDENTIALS, timing: Timing | None = None
    ) -> None:
        """Take note of everything; raises `PermanentError` for a malformed URL."""
        self.url = url
        self._address = parse_address(url, options=_OPTIONS, form=_FORM)
        if self._address.user or self._address.port is not None:
            raise PermanentError(url, "open", "", "names no bucket", f"write {_FORM}")
        self._bucket_name = self._address.host
        self._timing = timing or Timing()
        self._request: dict[str, Any] = {
            "retry": None,
            "timeout": (self._timing.connect, self._timing.stall),
        }
        self._lazy: LazyClient[Any] = LazyClient(url, credentials, _SECRETS, self._connect)
        self.versions = GcsVersions(
            url,
            self._bucket_name,
            self._address.prefix,
            self._lazy.get,
            self._translated,
            self._download,
            self._request,
        )

    def initialise(self) -> None:
        with self._translated("initialise", ""):
            if not self._has_bucket():
                self._create_bucket()

    def put(self, name: str, data: Buffer) -> None:
        check_name(name)
        with self._translated("put", name):
            self._upload(name, data)

    def put_if_absent(self, name: str, data: Buffer) -> bool:
        check_name(name)
        with self._translated("put_if_absent", name):
            try:
                self._upload(name, data, if_generation_match=0)
            except _call_error() as error:
                if error.code != 412:
                    raise
                return False
            return True

    def get(self, name: str, *, limit: int) -> bytes:
        check_name(name)
        with self._translated("get", name):
            return self._download(self._blob(name), limit)

    def get_range(self, name: str, offset: int, length: int) -> bytes:
        check_name(name)
        check_range(offset, length)
        data = b""
        with self._translated("get_range", name):
            blob = self._blob(name)
            if not length:
                blob.reload(**self._request)
                enough = int(blob.size) >= offset
            else:
                try:
                    data = self._download(blob, length, start=offset, end=offset + length - 1)
                except _call_error() as error:
                    if error.code != 416:
                        raise
                enough = len(data) == length
        if not enough:
            raise CorruptError(self.url, "get_range", name, f"ends before byte {offset + length}")
        return data

    def get_if_changed(self, name: str, tag: str | None, *, limit: int) -> tuple[bytes, str] | None:
        check_name(name)
        known = tag is not None and tag.isascii() and tag.isdigit()
        condition = {"if_generation_not_match": int(tag)} if tag is not None and known else {}
        with self._translated("get_if_changed", name):
            blob = self._blob(name)
            try:
                data = self._download(blob, limit, **condition)
            except _call_error() as error:
                if error.code != 304:
                    raise
                return None
            # Not every service that speaks this protocol heeds the condition.
            current = str(blob.generation or "")
            return None if tag and current == tag else (data, current)

    def delete(self, name: str) -> None:
        check_name(name)
        with contextlib.suppress(MissingError), self._translated("delete", name):
            self._blob(name).delete(**self._request)

    def delete_many(self, names: Iterable[str]) -> None:
        for name in dict.fromkeys([check_name(name) for name in names]):
            self.delete(name)

    def list(self, prefix: str, *, after: str = "", limit: int = MAX_PAGE) -> Page:
        check_prefix(prefix)
        check_page(limit)
        root = self._address.prefix

        def fetch(token: str | None, count: int) -> ServicePage:
            with self._translated("list", prefix):
                pages = self._client.list_blobs(
                    self._bucket_name,
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

        return collect(self.url, root, prefix, after, limit, fetch)

    def close(self) -> None:
        self._lazy.close()

    def _blob(self, name: str) -> Any:
        return self._client.bucket(self._bucket_name).blob(self._address.prefix + name)

    def _upload(self, name: str, data: Buffer, **condition: int) -> None:
        content = as_bytes(data)
        self._blob(name).upload_from_file(
            io.BytesIO(content), size=len(content), checksum=None, **condition, **self._request
        )

    def _download(self, blob: Any, limit: int, **options: Any) -> bytes:
        # As it is stored, without a checksum: what is read is verified above.
        sink = io.BytesIO()
        with receiving(limit):
            blob.download_to_file(sink, raw_download=True, checksum=None, **options, **self._request)
        return sink.getvalue()

    def _has_bucket(self) -> bool:
        """Whether the bucket is there. Lists one object, which whoever uses a bucket may do."""
        try:
            next(self._client.list_blobs(self._bucket_name, page_size=1, **self._request).pages, None)
        except _call_error() as error:
            if error.code != 404:
                raise
            return False
        return True

    def _create_bucket(self) -> None:
        try:
            self._client.create_bucket(
                self._bucket_name,
                project=self._address.option("project"),
                location=self._address.option("location"),
                **self._request,
            )
        except _call_error() as error:
            if error.code != 409 or not self._has_bucket():
                raise

    @property
    def _client(self) -> Any:
        return self._lazy.get()

    def _connect(self, secrets: Secrets) -> Any:
        import requests
        from google.auth.transport.requests import AuthorizedSession, Request
        from google.cloud import storage

        from backends.requests_session import guard

        endpoint = self._address.option("endpoint")
        login = self._login(secrets, endpoint)
        refreshing = requests.Session()  # where tokens are had
        session = AuthorizedSession(login, auth_request=Request(refreshing))
        for one in (refreshing, session):
            guard(one, self._timing)
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

    @contextlib.contextmanager
    def _translated(self, operation: str, name: str) -> Iterator[None]:
        """Turn whatever the SDK raises into the `StoreError` that says what to do about it."""
        import google.auth.exceptions as auth
        import requests

        try:
            yield
        except BodyError as error:
            raise body_failure(self.url, operation, name, error) from error
        except _call_error() as error:
            raise self._refusal(operation, name, error) from error
        except auth.TransportError as error:
            raise connection_error(self.url, operation, name, error) from error
        except auth.GoogleAuthError as error:
            advice = "put service_account into credentials.json, or: gcloud auth application-default login"
            reason = f"no usable credentials: {error.args[0] if error.args else error}"
            raise AuthError(self.url, operation, name, reason, advice) from error
        except (requests.RequestException, RedirectedError, ConnectionError) as error:
            raise connection_error(self.url, operation, name, error) from error
        except _MALFORMED as error:
            raise CorruptError(self.url, operation, name, f"an answer without sense: {error!r}") from error

    def _refusal(self, operation: str, name: str, error: Any) -> StoreError:
        headers = error.response.headers if error.response is not None else {}
        details = error.errors[0] if error.errors else {}
        code = str(details.get("reason", "")) if isinstance(details, dict) else ""
        failure = HttpFailure(int(error.code or 0), code, str(error.message), headers)
        if failure.status != 404:
            return http_error(self.url, operation, name, failure)
        if name and not operation.startswith("put") and self._root_is_there():
            return MissingError(self.url, operation, name, "no such object")
        reason = f"there is no bucket {self._bucket_name}"
        return MissingRootError(self.url, operation, name, reason, "check the name of the bucket")

    def _root_is_there(self) -> bool:
        """The service answers 404 for a missing object and for a missing bucket. Raises `StoreError`."""
        with self._translated("list", ""):
            return self._has_bucket()


def _call_error() -> type[Any]:
    from google.api_core.exceptions import GoogleAPICallError

    return GoogleAPICallError
