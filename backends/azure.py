"""A cloud in an Azure Blob Storage container: ``az://container/folder?account=...&endpoint=...``.

`endpoint` is the URL of the account at other places than Azure's public cloud, an emulator for example.
Credentials: `account_key` or `sas_token`; without them, and without an endpoint, the chain of the Azure SDK
(environment, managed identity, Azure CLI).

The service lists from a marker of its own making only, so markers are kept for callers that come back for
the next page; a caller that begins elsewhere pays for the objects that are skipped.
"""

from __future__ import annotations

import logging
import re
import threading
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from backends.address import Address
from backends.blob_versions import BlobVersions
from backends.body import Timing, receiving
from backends.bucket import BucketStore, ServicePage, no_bucket
from backends.credentials import NO_CREDENTIALS, Credentials, Secrets
from backends.driver import CloudKind, Secret, as_bytes
from backends.errors import AuthError, CorruptError, PermanentError, StoreError
from backends.http_errors import HttpFailure, connection_error, http_error
from backends.store import Buffer
from backends.versions import Policy, Version

__all__ = ["AzureStore"]

_ACCOUNT: Final = re.compile(r"[a-z0-9-]{1,63}")  # it becomes a part of the host's name
_ONE_REQUEST: Final = 1 << 28  # bytes; the largest object that is sent and fetched in one request
_DELETE_BATCH: Final = 256  # blobs of one batch
_MARKERS: Final = 64
_NO_ROOT: Final = frozenset({"ContainerNotFound", "ContainerDisabled"})


def _problem(address: Address) -> str:
    if not _ACCOUNT.fullmatch(address.option("account") or ""):
        return "names no account"
    return no_bucket(address)


class AzureStore(BucketStore):
    """A `backends.store.Store` in an Azure Blob Storage container."""

    kind = CloudKind(
        schemes=("az",),
        form="az://container/folder?account=ACCOUNT",
        what="Azure Blob Storage",
        options=frozenset({"account", "endpoint"}),
        secrets=(
            Secret("account_key", "Account key", account=True),
            Secret("sas_token", "SAS token, instead of the key", account=True),
        ),
        problem=_problem,
        server=lambda address: f"https://{address.options['account']}.blob.core.windows.net/",
    )
    noun = "container"

    def __init__(
        self, url: str, credentials: Credentials = NO_CREDENTIALS, timing: Timing | None = None
    ) -> None:
        super().__init__(url, credentials, timing)
        self.by_identity = False
        """Whether it logs in as a person or machine, which may have rights of management: neither by a key
        nor by a signature."""
        self.versions = AzureVersions(self, self._address.options["account"])
        self._lock = threading.Lock()
        self._markers: OrderedDict[tuple[str, str], str] = OrderedDict()  # (prefix, after) -> marker

    def _initialise(self) -> None:
        client = self._client()
        with self._tolerating(404):
            next(client.list_blobs(results_per_page=1).by_page(), None)
            return
        with self._tolerating("ContainerAlreadyExists"):
            client.create_container()

    def _put(self, client: Any, name: str, data: Buffer) -> None:
        self._blob(client, name).upload_blob(as_bytes(data), overwrite=True)

    def _put_if_absent(self, client: Any, name: str, data: Buffer) -> bool:
        with self._tolerating("BlobAlreadyExists"):
            self._blob(client, name).upload_blob(as_bytes(data), overwrite=False)
            return True
        return False

    def _get(self, client: Any, name: str, limit: int) -> bytes:
        with receiving(limit):
            return bytes(self._blob(client, name).download_blob().readall())

    def _get_range(self, client: Any, name: str, offset: int, length: int) -> bytes:
        with receiving(length), self._tolerating(416):
            return bytes(self._blob(client, name).download_blob(offset, length).readall())
        return b""

    def _size(self, client: Any, name: str) -> int:
        return int(self._blob(client, name).get_blob_properties().size)

    def _get_if_changed(
        self, client: Any, name: str, tag: str | None, limit: int
    ) -> tuple[bytes, str] | None:
        from azure.core import MatchConditions

        condition = {"etag": tag, "match_condition": MatchConditions.IfModified} if tag else {}
        with receiving(limit), self._tolerating(304):
            download = self._blob(client, name).download_blob(**condition)
            return bytes(download.readall()), str(download.properties.etag or "")
        return None

    def _delete(self, client: Any, name: str) -> None:
        self._blob(client, name).delete_blob(delete_snapshots="include")

    def _delete_many(self, names: Sequence[str]) -> None:
        for start in range(0, len(names), _DELETE_BATCH):
            batch = names[start : start + _DELETE_BATCH]
            with self._calling("delete_many", "") as client:
                answers = client.delete_blobs(
                    *[self._key(name) for name in batch],
                    delete_snapshots="include",
                    raise_on_any_failure=False,
                )
                failed = [(name, one) for name, one in zip(batch, answers, strict=True) if _not_deleted(one)]
            for name, answer in failed:
                code = str(answer.headers.get("x-ms-error-code", ""))
                failure = HttpFailure(answer.status_code, code, headers=answer.headers)
                raise self._refusal("delete_many", name, failure)

    def _page(self, client: Any, prefix: str, after: str, token: str | None, count: int) -> ServicePage:
        blobs = client.list_blobs(name_starts_with=self._key(prefix), results_per_page=count)
        pages = blobs.by_page(continuation_token=token)
        keys = [(blob.name, int(blob.size)) for blob in next(pages, ())]
        return ServicePage(keys, pages.continuation_token or None)

    def _token(self, prefix: str, after: str) -> str | None:
        with self._lock:
            return self._markers.get((prefix, after))

    def _remember(self, prefix: str, last: str, token: str | None) -> None:
        if token is None:
            return
        with self._lock:
            self._markers[prefix, last] = token
            while len(self._markers) > _MARKERS:
                self._markers.popitem(last=False)

    def _signed_url(self, client: Any, key: str, seconds: int, content_type: str) -> str:
        from azure.storage.blob import BlobSasPermissions, generate_blob_sas

        account_key = self._secrets().get("account_key")
        if account_key is None:
            reason = "only the key of the storage account can sign links for others"
            raise AuthError(self.url, "sign", "", reason, "hybrisfs cloud login asks for account_key")
        token = generate_blob_sas(
            self._address.options["account"],
            self._bucket,
            key,
            account_key=account_key,
            permission=BlobSasPermissions(read=True),
            expiry=datetime.now(UTC) + timedelta(seconds=seconds),
            content_type=content_type,
        )
        return f"{client.get_blob_client(key).url}?{token}"

    def _blob(self, client: Any, name: str) -> Any:
        return client.get_blob_client(self._key(name))

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
            self._bucket,
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
            advice = "hybrisfs cloud login asks for account_key or sas_token"
            raise AuthError(self.url, "open", "", "there are no credentials for this endpoint", advice)
        from azure.identity import DefaultAzureCredential

        self.by_identity = True
        return DefaultAzureCredential()

    def _failure(self, error: Exception) -> HttpFailure | None:
        from azure.core.exceptions import HttpResponseError

        if not isinstance(error, HttpResponseError) or error.status_code is None:
            return None
        code = getattr(error, "error_code", None)
        headers: Mapping[str, str] = getattr(error.response, "headers", {})
        said = str(getattr(code, "value", code) or headers.get("x-ms-error-code", ""))
        return HttpFailure(int(error.status_code), said, str(error.reason or ""), headers)

    def _refusal(self, operation: str, name: str, failure: HttpFailure) -> StoreError:
        if failure.code in _NO_ROOT:
            return self._no_bucket(operation, name)
        if failure.status == 404 and name:
            return self._no_object(operation, name)
        return http_error(self.url, operation, name, failure)

    def _library_error(self, operation: str, name: str, error: Exception) -> StoreError | None:
        import azure.core.exceptions as sdk

        if isinstance(error, sdk.ClientAuthenticationError):
            advice = "hybrisfs cloud login asks for account_key or sas_token; or run: az login"
            reason = f"no usable credentials ({type(error).__name__})"
            return AuthError(self.url, operation, name, reason, advice)
        if isinstance(error, sdk.ServiceRequestError | sdk.ServiceResponseError):
            return connection_error(self.url, operation, name, error)
        if isinstance(error, sdk.AzureError):
            reason = f"an answer without sense: {type(error).__name__}"
            return CorruptError(self.url, operation, name, reason)
        return None


def _not_deleted(answer: Any) -> bool:
    gone = answer.status_code == 404 and answer.headers.get("x-ms-error-code") not in _NO_ROOT
    return not gone and answer.status_code not in (200, 202)


# -- older versions of blobs in an Azure container ------------------------------------------------------
# Azure keeps versions when the storage account is set to, which takes rights of management that no key or
# shared access signature of a container has: so this names the commands for an administrator, and reads what
# is kept. Whether versions are kept, and for how long, Azure tells nobody else either: a try shows the first.


_PAGE: Final = 1000
_LONGEST_SOFT: Final = 365  # days; the longest that soft delete takes


class AzureVersions(BlobVersions):
    """A `backends.versions.Versions` of one container and folder."""

    def __init__(self, store: AzureStore, account: str) -> None:
        super().__init__(store)
        self._store = store
        self._account = account

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
        return None if self._store.by_identity else False

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
