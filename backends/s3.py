"""A cloud in an S3 bucket: ``s3://bucket/folder?region=...&endpoint=...&profile=...&addressing=...``.

AWS without `endpoint`; MinIO, Backblaze B2, Wasabi, Cloudflare R2, Ceph and others with it. `addressing` is
"path" or "virtual" (the bucket is part of the host name). Object `a/b` is the key `folder/a/b`. Credentials:
`access_key_id`, `secret_access_key` and perhaps `session_token`; without them `profile`, or the chain of the
AWS SDK (environment, default profile, instance role), which is not used at an `endpoint`.

`put_if_absent` is ``If-None-Match: *``. Services that ignore it answer as if all were well, so it is tried
out on an object of our own before it is first relied on. Where it does not work, presence is looked up
before the write, and two writers at the same moment may both believe that they were first.
"""

from __future__ import annotations

import io
import re
from collections.abc import Sequence
from functools import cached_property
from secrets import token_hex
from typing import Any, Final

from backends.address import Address
from backends.body import read_all, receiving
from backends.bucket import BucketStore, ServicePage, no_bucket
from backends.credentials import Secrets
from backends.driver import CloudKind, Secret, as_bytes
from backends.errors import AuthError, CorruptError, PermanentError, StoreError
from backends.http_errors import HttpFailure, connection_error, http_error
from backends.s3_versions import S3Versions
from backends.store import MAX_PAGE, Buffer

__all__ = ["S3Store"]

_REGION: Final = re.compile(r"[A-Za-z0-9-]{1,63}")  # it becomes a part of the host's name
_DELETE_BATCH: Final = 1000  # keys of one DeleteObjects request
_ANY_SIZE: Final = 1 << 62  # bytes; of an answer whose body is not read
_NO_OBJECT: Final = frozenset({"NoSuchKey", "404", "NotFound"})


def _problem(address: Address) -> str:
    if (address.option("addressing") or "path") not in ("path", "virtual"):
        return "unknown addressing; known: path, virtual"
    if not _REGION.fullmatch(address.option("region") or "us-east-1"):
        return "the region is not a name"
    return no_bucket(address)


class S3Store(BucketStore):
    """A `backends.store.Store` in an S3 bucket."""

    kind = CloudKind(
        schemes=("s3",),
        form="s3://bucket/folder?region=REGION&endpoint=URL",
        what="Amazon S3, MinIO, Backblaze B2, Wasabi, Cloudflare R2",
        options=frozenset({"addressing", "endpoint", "profile", "region"}),
        local_options=frozenset({"profile"}),
        secrets=(
            Secret("access_key_id", "Access key id", hidden=False, account=True),
            Secret("secret_access_key", "Secret access key"),
            Secret("session_token", "Session token, of temporary keys"),
        ),
        problem=_problem,
        server=lambda address: "https://s3.amazonaws.com/",
        providers={
            "amazonaws.com": "Amazon S3",
            "backblazeb2.com": "Backblaze B2",
            "r2.cloudflarestorage.com": "Cloudflare R2",
            "wasabisys.com": "Wasabi",
        },
    )

    _create_only: bool | None = None  # whether If-None-Match works, once it is known

    @cached_property
    def versions(self) -> S3Versions:
        """Older versions of objects."""
        return S3Versions(self, self._address.option("endpoint"))

    def _initialise(self) -> None:
        client = self._client()
        with self._tolerating(404):
            client.head_bucket(Bucket=self._bucket)
            return
        region = client.meta.region_name
        # AWS refuses its default region as an argument; others do not care where a bucket is.
        elsewhere = region not in (None, "us-east-1", "auto") and self._address.option("endpoint") is None
        place = {"CreateBucketConfiguration": {"LocationConstraint": region}} if elsewhere else {}
        with self._tolerating("BucketAlreadyOwnedByYou"):
            client.create_bucket(Bucket=self._bucket, **place)

    def _put(self, client: Any, name: str, data: Buffer) -> None:
        self._upload(client, self._key(name), data)

    def _put_if_absent(self, client: Any, name: str, data: Buffer) -> bool:
        key = self._key(name)
        if self._knows_create_only(client):
            return self._create(client, key, data)
        if self._exists(client, key):
            return False
        self._upload(client, key, data)
        return True

    def _get(self, client: Any, name: str, limit: int) -> bytes:
        with receiving(limit):
            return read_all(client.get_object(Bucket=self._bucket, Key=self._key(name))["Body"])

    def _get_range(self, client: Any, name: str, offset: int, length: int) -> bytes:
        wanted = f"bytes={offset}-{offset + length - 1}"
        with receiving(length), self._tolerating(416):
            return read_all(client.get_object(Bucket=self._bucket, Key=self._key(name), Range=wanted)["Body"])
        return b""

    def _size(self, client: Any, name: str) -> int:
        with receiving(_ANY_SIZE):
            answer = client.get_object(Bucket=self._bucket, Key=self._key(name))
            answer["Body"].close()
            return int(answer["ContentLength"])

    def _get_if_changed(
        self, client: Any, name: str, tag: str | None, limit: int
    ) -> tuple[bytes, str] | None:
        condition = {"IfNoneMatch": tag} if tag else {}
        with receiving(limit), self._tolerating(304):
            answer = client.get_object(Bucket=self._bucket, Key=self._key(name), **condition)
            return read_all(answer["Body"]), str(answer.get("ETag", ""))
        return None

    def _delete(self, client: Any, name: str) -> None:
        client.delete_object(Bucket=self._bucket, Key=self._key(name))

    def _delete_many(self, names: Sequence[str]) -> None:
        for start in range(0, len(names), _DELETE_BATCH):
            keys = [{"Key": self._key(name)} for name in names[start : start + _DELETE_BATCH]]
            with self._calling("delete_many", "") as client:
                answer = client.delete_objects(Bucket=self._bucket, Delete={"Objects": keys, "Quiet": True})
            for error in answer.get("Errors", ()):
                self._check_deleted(error)

    def _page(self, client: Any, prefix: str, after: str, token: str | None, count: int) -> ServicePage:
        root = self._address.prefix
        start = {"StartAfter": root + after} if after else {}
        answer = client.list_objects_v2(
            Bucket=self._bucket,
            Prefix=root + prefix,
            # One more than needed: not all services know whether their last page is the last.
            MaxKeys=min(count + 1, MAX_PAGE),
            **({"ContinuationToken": token} if token else start),
        )
        keys = [(one["Key"], int(one["Size"])) for one in answer.get("Contents", ())]
        return ServicePage(keys, answer["NextContinuationToken"] if answer.get("IsTruncated") else None)

    def _signed_url(self, client: Any, key: str, seconds: int, content_type: str) -> str:
        wanted = {"Bucket": self._bucket, "Key": key, "ResponseContentType": content_type}
        return str(client.generate_presigned_url("get_object", Params=wanted, ExpiresIn=seconds))

    def _upload(self, client: Any, key: str, data: Buffer, **condition: str) -> None:
        # As a stream: bytes would be sent in one call, for which the time to connect would have to do.
        body = io.BytesIO(as_bytes(data))
        client.put_object(Bucket=self._bucket, Key=key, Body=body, **condition)

    def _create(self, client: Any, key: str, data: Buffer) -> bool:
        try:
            self._upload(client, key, data, IfNoneMatch="*")
        except Exception as error:
            failure = self._failure(error)
            if failure is None or failure.status not in (409, 412):
                raise
            # 409: another client wrote it at this moment, or deleted it; only in the first case it is there.
            if self._exists(client, key):
                return False
            if failure.status == 409:
                raise
            # Some services take the mark that a deletion leaves in a versioned bucket for an object.
            self._upload(client, key, data)
        return True

    def _knows_create_only(self, client: Any) -> bool:
        """Find out, once, if the service refuses to overwrite when it is asked not to."""
        if self._create_only is None:
            key = f"{self._address.prefix}.hybrisfs/create-only-{token_hex(8)}"
            works = False
            with self._tolerating(400, 501, "NotImplemented"):
                works = self._create(client, key, b"") and not self._create(client, key, b"")
            self._create_only = works
            with self._tolerating(403):  # credentials that may not delete leave an empty object
                client.delete_object(Bucket=self._bucket, Key=key)
        return self._create_only

    def _exists(self, client: Any, key: str) -> bool:
        with receiving(_ANY_SIZE), self._tolerating(*_NO_OBJECT):
            client.get_object(Bucket=self._bucket, Key=key)["Body"].close()
            return True
        return False

    def _check_deleted(self, error: dict[str, str]) -> None:
        """Raise what a batched delete says about one of its objects."""
        code = error.get("Code", "")
        if code in _NO_OBJECT:
            return
        name = error.get("Key", "").removeprefix(self._address.prefix)
        failure = HttpFailure(500 if code == "InternalError" else 400, code, error.get("Message", ""))
        raise http_error(self.url, "delete_many", name, failure)

    def _connect(self, secrets: Secrets) -> Any:
        from backends.s3_client import connect

        return connect(self._address, secrets, self._timing)

    def _failure(self, error: Exception) -> HttpFailure | None:
        import botocore.exceptions as sdk

        if not isinstance(error, sdk.ClientError):
            return None
        said, about = error.response.get("Error", {}), error.response.get("ResponseMetadata", {})
        return HttpFailure(
            int(about.get("HTTPStatusCode", 0)),
            str(said.get("Code", "")),
            str(said.get("Message", "")),
            about.get("HTTPHeaders", {}),
        )

    def _refusal(self, operation: str, name: str, failure: HttpFailure) -> StoreError:
        if failure.code == "BucketAlreadyExists":
            reason = "the bucket belongs to somebody else"
            return PermanentError(self.url, operation, name, reason, "choose another name")
        if failure.code == "NoSuchBucket" or (failure.status == 404 and operation == "initialise"):
            return self._no_bucket(operation, name)
        if failure.code in _NO_OBJECT:
            return self._no_object(operation, name)
        return http_error(self.url, operation, name, failure)

    def _library_error(self, operation: str, name: str, error: Exception) -> StoreError | None:
        import botocore.exceptions as sdk
        from botocore.parsers import ResponseParserError

        if isinstance(
            error, sdk.NoCredentialsError | sdk.PartialCredentialsError | sdk.CredentialRetrievalError
        ):
            advice = "hybrisfs cloud login asks for them; or set up a profile of the AWS SDK"
            return AuthError(self.url, operation, name, f"no usable credentials: {error}", advice)
        if isinstance(error, sdk.ProfileNotFound | sdk.NoRegionError | sdk.ParamValidationError):
            return PermanentError(self.url, operation, name, str(error), "check the URL")
        if isinstance(error, sdk.HTTPClientError | sdk.ConnectionError):
            return connection_error(self.url, operation, name, error)
        if isinstance(error, sdk.BotoCoreError | ResponseParserError):
            return CorruptError(self.url, operation, name, f"an answer without sense: {error!r}")
        return None
