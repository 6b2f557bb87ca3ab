"""A cloud in an Azure Blob Storage container: ``az://container/folder?account=...&endpoint=...``.

`endpoint` is the URL of the account at other places than Azure's public cloud, an emulator for example.
Object `a/b` is the blob `folder/a/b`. Credentials: `account_key` or `sas_token`; without them, and without an
endpoint, the chain of the Azure SDK (environment, managed identity, Azure CLI).

The service lists from a marker of its own making only, so markers are kept for callers that come back for
the next page; whoever begins elsewhere pays for what is skipped.
"""

from __future__ import annotations

import contextlib
import logging
import re
import threading
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any, Final

from backends.address import parse_address
from backends.arguments import as_bytes, check_page, check_range
from backends.azure_versions import AzureVersions
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
from backends.http_errors import HttpFailure, RedirectedError, connection_error, http_error
from backends.lazy import LazyClient
from backends.listing import ServicePage, collect
from backends.names import check_name, check_prefix
from backends.secrets import secret_names
from backends.store import MAX_PAGE, Buffer, Page

__all__ = ["AzureStore"]

_FORM: Final = "az://container/folder?account=ACCOUNT"
_OPTIONS: Final = frozenset({"account", "endpoint"})
_SECRETS: Final = secret_names("az")
_ACCOUNT: Final = re.compile(r"[a-z0-9-]{1,63}")  # it becomes a part of the host's name
_ONE_REQUEST: Final = 1 << 28  # bytes; the largest object that is sent and fetched in one request
_DELETE_BATCH: Final = 256  # blobs of one batch
_MARKERS: Final = 64
_NO_ROOT: Final = frozenset({"ContainerNotFound", "ContainerDisabled"})
_MALFORMED: Final = (ValueError, KeyError, TypeError, AttributeError)


class AzureStore:
    """A `backends.store.Store` in an Azure Blob Storage container."""

    def __init__(
        self, url: str, credentials: Credentials = NO_CREDENTIALS, timing: Timing | None = None
    ) -> None:
        """Take note of everything; raises `PermanentError` for a malformed URL."""
        self.url = url
        self._address = parse_address(url, options=_OPTIONS, form=_FORM)
        if self._address.user or self._address.port is not None:
            raise PermanentError(url, "open", "", "names no container", f"write {_FORM}")
        if not _ACCOUNT.fullmatch(self._address.option("account") or ""):
            raise PermanentError(url, "open", "", "names no account", f"write {_FORM}")
        self._container_name = self._address.host
        self._timing = timing or Timing()
        self._lock = threading.Lock()
        self._lazy: LazyClient[Any] = LazyClient(url, credentials, _SECRETS, self._connect)
        self._by_identity = False  # neither by a key nor by a signature
        self.versions = AzureVersions(
            url,
            self._address.options["account"],
            self._address.prefix,
            self._lazy.get,
            self._translated,
            lambda: self._by_identity,
        )
        self._markers: OrderedDict[tuple[str, str], str] = OrderedDict()  # (prefix, after) -> marker

    def initialise(self) -> None:
        with self._translated("initialise", ""):
            try:
                next(self._container.list_blobs(results_per_page=1).by_page(), None)
            except _http_error() as error:
                if error.status_code != 404:
                    raise
                self._create_container()

    def put(self, name: str, data: Buffer) -> None:
        check_name(name)
        with self._translated("put", name):
            self._blob(name).upload_blob(as_bytes(data), overwrite=True)

    def put_if_absent(self, name: str, data: Buffer) -> bool:
        check_name(name)
        with self._translated("put_if_absent", name):
            try:
                self._blob(name).upload_blob(as_bytes(data), overwrite=False)
            except _http_error() as error:
                if _failure(error).code != "BlobAlreadyExists":
                    raise
                return False
            return True

    def get(self, name: str, *, limit: int) -> bytes:
        check_name(name)
        with self._translated("get", name), receiving(limit):
            return bytes(self._blob(name).download_blob().readall())

    def get_range(self, name: str, offset: int, length: int) -> bytes:
        check_name(name)
        check_range(offset, length)
        data = b""
        with self._translated("get_range", name):
            if not length:
                enough = int(self._blob(name).get_blob_properties().size) >= offset
            else:
                try:
                    with receiving(length):
                        data = bytes(self._blob(name).download_blob(offset, length).readall())
                except _http_error() as error:
                    if error.status_code != 416:
                        raise
                enough = len(data) == length
        if not enough:
            raise CorruptError(self.url, "get_range", name, f"ends before byte {offset + length}")
        return data

    def get_if_changed(self, name: str, tag: str | None, *, limit: int) -> tuple[bytes, str] | None:
        from azure.core import MatchConditions

        check_name(name)
        condition = {"etag": tag, "match_condition": MatchConditions.IfModified} if tag else {}
        with self._translated("get_if_changed", name), receiving(limit):
            try:
                download = self._blob(name).download_blob(**condition)
            except _http_error() as error:
                if error.status_code != 304:
                    raise
                return None
            return bytes(download.readall()), str(download.properties.etag or "")

    def delete(self, name: str) -> None:
        check_name(name)
        with contextlib.suppress(MissingError), self._translated("delete", name):
            self._blob(name).delete_blob(delete_snapshots="include")

    def delete_many(self, names: Iterable[str]) -> None:
        rest = iter(dict.fromkeys([check_name(name) for name in names]))
        while batch := list(islice(rest, _DELETE_BATCH)):
            with self._translated("delete_many", ""):
                answers = self._container.delete_blobs(
                    *[self._address.prefix + name for name in batch],
                    delete_snapshots="include",
                    raise_on_any_failure=False,
                )
                failed = [(name, one) for name, one in zip(batch, answers, strict=True) if _not_deleted(one)]
            for name, answer in failed:
                code = str(answer.headers.get("x-ms-error-code", ""))
                failure = HttpFailure(answer.status_code, code, headers=answer.headers)
                raise self._refusal("delete_many", name, failure)

    def list(self, prefix: str, *, after: str = "", limit: int = MAX_PAGE) -> Page:
        check_prefix(prefix)
        check_page(limit)
        root = self._address.prefix

        def fetch(token: str | None, count: int) -> ServicePage:
            with self._translated("list", prefix):
                blobs = self._container.list_blobs(name_starts_with=root + prefix, results_per_page=count)
                pages = blobs.by_page(continuation_token=token)
                keys = [(blob.name, int(blob.size)) for blob in next(pages, ())]
                return ServicePage(keys, pages.continuation_token or None)

        def remember(last: str, token: str) -> None:
            with self._lock:
                self._markers[prefix, last] = token
                while len(self._markers) > _MARKERS:
                    self._markers.popitem(last=False)

        with self._lock:
            token = self._markers.get((prefix, after))
        return collect(self.url, root, prefix, after, limit, fetch, token=token, remember=remember)

    def close(self) -> None:
        self._lazy.close()

    def _blob(self, name: str) -> Any:
        return self._container.get_blob_client(self._address.prefix + name)

    def _create_container(self) -> None:
        try:
            self._container.create_container()
        except _http_error() as error:
            if _failure(error).code != "ContainerAlreadyExists":
                raise

    @property
    def _container(self) -> Any:
        return self._lazy.get()

    def _connect(self, secrets: Secrets) -> Any:
        import requests
        from azure.core.pipeline.transport import RequestsTransport
        from azure.storage.blob import ContainerClient

        from backends.requests_session import guard

        # It logs every request.
        logging.getLogger("azure").setLevel(logging.ERROR)
        account = self._address.option("account")
        session = requests.Session()
        guard(session, self._timing)
        return ContainerClient(
            self._address.option("endpoint") or f"https://{account}.blob.core.windows.net",
            self._container_name,
            self._login(secrets),
            transport=RequestsTransport(
                session=session,
                session_owner=False,
                connection_timeout=self._timing.connect,
                read_timeout=self._timing.stall,
            ),
            retry_total=0,
            max_single_get_size=_ONE_REQUEST,
            max_single_put_size=_ONE_REQUEST,
        )

    def _login(self, secrets: Secrets) -> Any:
        from azure.core.credentials import AzureNamedKeyCredential, AzureSasCredential

        key, token = secrets.get("account_key"), secrets.get("sas_token")
        if key is not None:
            return AzureNamedKeyCredential(self._address.options["account"], key)
        if token is not None:
            return AzureSasCredential(token.removeprefix("?"))
        if self._address.option("endpoint") is not None:
            advice = "put account_key or sas_token into credentials.json"
            raise AuthError(self.url, "open", "", "there are no credentials for this endpoint", advice)
        from azure.identity import DefaultAzureCredential

        self._by_identity = True
        return DefaultAzureCredential()

    @contextlib.contextmanager
    def _translated(self, operation: str, name: str) -> Iterator[None]:
        """Turn whatever the SDK raises into the `StoreError` that says what to do about it."""
        import azure.core.exceptions as sdk

        try:
            yield
        except BodyError as error:
            raise body_failure(self.url, operation, name, error) from error
        except sdk.HttpResponseError as error:
            if error.status_code is None:
                raise self._local_failure(operation, name, error) from error
            raise self._refusal(operation, name, _failure(error)) from error
        except (sdk.ServiceRequestError, sdk.ServiceResponseError, RedirectedError) as error:
            raise connection_error(self.url, operation, name, error) from error
        except (sdk.AzureError, *_MALFORMED) as error:
            reason = f"an answer without sense: {type(error).__name__}"
            raise CorruptError(self.url, operation, name, reason) from error

    def _local_failure(self, operation: str, name: str, error: Any) -> StoreError:
        """What the SDK found wrong by itself: no credentials to use, or an answer that it cannot read."""
        from azure.core.exceptions import ClientAuthenticationError

        if isinstance(error, ClientAuthenticationError):
            advice = "put account_key or sas_token into credentials.json, or run: az login"
            reason = f"no usable credentials ({type(error).__name__})"
            return AuthError(self.url, operation, name, reason, advice)
        return CorruptError(self.url, operation, name, f"an answer without sense: {type(error).__name__}")

    def _refusal(self, operation: str, name: str, failure: HttpFailure) -> StoreError:
        if failure.code in _NO_ROOT:
            reason = f"there is no container {self._container_name}"
            return MissingRootError(self.url, operation, name, reason, "check the name of the container")
        if failure.status == 404 and name:
            return MissingError(self.url, operation, name, "no such object")
        return http_error(self.url, operation, name, failure)


def _http_error() -> type[Any]:
    from azure.core.exceptions import HttpResponseError

    return HttpResponseError


def _failure(error: Any) -> HttpFailure:
    """What an `HttpResponseError` says."""
    code = getattr(error, "error_code", None)
    headers = error.response.headers if error.response is not None else {}
    said = str(getattr(code, "value", code) or headers.get("x-ms-error-code", ""))
    return HttpFailure(int(error.status_code or 0), said, str(error.reason or ""), headers)


def _not_deleted(answer: Any) -> bool:
    gone = answer.status_code == 404 and answer.headers.get("x-ms-error-code") not in _NO_ROOT
    return not gone and answer.status_code not in (200, 202)
