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

import contextlib
import io
import re
from collections.abc import Iterable, Iterator
from itertools import islice
from secrets import token_hex
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
from backends.http_errors import HttpFailure, RedirectedError, connection_error, http_error
from backends.lazy import LazyClient
from backends.listing import ServicePage, collect
from backends.names import check_name, check_prefix
from backends.s3_versions import S3Versions
from backends.secrets import secret_names
from backends.store import MAX_PAGE, Buffer, Page

__all__ = ["S3Store"]

_FORM: Final = "s3://bucket/folder?region=REGION&endpoint=https://HOST"
_OPTIONS: Final = frozenset({"addressing", "endpoint", "profile", "region"})
_SECRETS: Final = secret_names("s3")
_REGION: Final = re.compile(r"[A-Za-z0-9-]{1,63}")  # it becomes a part of the host's name
_DELETE_BATCH: Final = 1000  # keys of one DeleteObjects request
_ANY_SIZE: Final = 1 << 62  # bytes; of an answer whose body is not read
_NO_OBJECT: Final = frozenset({"NoSuchKey", "404", "NotFound"})
_MALFORMED: Final = (ValueError, KeyError, TypeError, AttributeError)


class S3Store:
    """A `backends.store.Store` in an S3 bucket."""

    def __init__(
        self, url: str, credentials: Credentials = NO_CREDENTIALS, timing: Timing | None = None
    ) -> None:
        """Take note of everything; raises `PermanentError` for a malformed URL."""
        self.url = url
        self._address = parse_address(url, options=_OPTIONS, form=_FORM)
        if self._address.user or self._address.port is not None:
            raise PermanentError(url, "open", "", "names no bucket", f"write {_FORM}")
        if (self._address.option("addressing") or "path") not in ("path", "virtual"):
            raise PermanentError(url, "open", "", "unknown addressing", "known: path, virtual")
        if not _REGION.fullmatch(self._address.option("region") or "us-east-1"):
            raise PermanentError(url, "open", "", "the region is no name of one", f"write {_FORM}")
        self._bucket = self._address.host
        self._timing = timing or Timing()
        self._lazy: LazyClient[Any] = LazyClient(url, credentials, _SECRETS, self._connect)
        self._create_only: bool | None = None  # whether If-None-Match works, once it is known
        self.versions = S3Versions(
            url,
            self._bucket,
            self._address.prefix,
            self._address.option("endpoint"),
            self._lazy.get,
            self._translated,
            _read,
        )

    def initialise(self) -> None:
        with self._translated("initialise", ""):
            try:
                self._client.head_bucket(Bucket=self._bucket)
            except _client_error() as error:
                if _failure(error).status != 404:
                    raise
                self._create_bucket()

    def put(self, name: str, data: Buffer) -> None:
        check_name(name)
        with self._translated("put", name):
            self._put(self._key(name), data)

    def put_if_absent(self, name: str, data: Buffer) -> bool:
        check_name(name)
        with self._translated("put_if_absent", name):
            if self._knows_create_only():
                return self._create(self._key(name), data)
            if self._exists(self._key(name)):
                return False
            self._put(self._key(name), data)
            return True

    def get(self, name: str, *, limit: int) -> bytes:
        check_name(name)
        with self._translated("get", name), receiving(limit):
            return _read(self._client.get_object(Bucket=self._bucket, Key=self._key(name)))

    def get_range(self, name: str, offset: int, length: int) -> bytes:
        check_name(name)
        check_range(offset, length)
        if not length:
            self._require_size(name, offset)
            return b""
        wanted = f"bytes={offset}-{offset + length - 1}"
        with self._translated("get_range", name), receiving(length):
            try:
                answer = self._client.get_object(Bucket=self._bucket, Key=self._key(name), Range=wanted)
                data = _read(answer)
            except _client_error() as error:
                if _failure(error).status != 416:
                    raise
                data = b""
        if len(data) != length:
            raise CorruptError(self.url, "get_range", name, f"ends before byte {offset + length}")
        return data

    def get_if_changed(self, name: str, tag: str | None, *, limit: int) -> tuple[bytes, str] | None:
        check_name(name)
        condition = {"IfNoneMatch": tag} if tag else {}
        with self._translated("get_if_changed", name), receiving(limit):
            try:
                answer = self._client.get_object(Bucket=self._bucket, Key=self._key(name), **condition)
            except _client_error() as error:
                if _failure(error).status != 304:
                    raise
                return None
            return _read(answer), str(answer.get("ETag", ""))

    def delete(self, name: str) -> None:
        check_name(name)
        with self._translated("delete", name), contextlib.suppress(MissingError):
            self._client.delete_object(Bucket=self._bucket, Key=self._key(name))

    def delete_many(self, names: Iterable[str]) -> None:
        rest = iter([check_name(name) for name in names])
        while batch := list(islice(rest, _DELETE_BATCH)):
            with self._translated("delete_many", ""):
                keys = [{"Key": self._key(name)} for name in dict.fromkeys(batch)]
                answer = self._client.delete_objects(
                    Bucket=self._bucket, Delete={"Objects": keys, "Quiet": True}
                )
            for error in answer.get("Errors", ()):
                self._check_deleted(error)

    def list(self, prefix: str, *, after: str = "", limit: int = MAX_PAGE) -> Page:
        check_prefix(prefix)
        check_page(limit)
        root = self._address.prefix
        start = {"StartAfter": root + after} if after else {}

        def fetch(token: str | None, count: int) -> ServicePage:
            where = {"ContinuationToken": token} if token else start
            # One more than needed: not all services know whether their last page is the last.
            count = min(count + 1, MAX_PAGE)
            with self._translated("list", prefix):
                answer = self._client.list_objects_v2(
                    Bucket=self._bucket, Prefix=root + prefix, MaxKeys=count, **where
                )
                keys = [(one["Key"], int(one["Size"])) for one in answer.get("Contents", ())]
                return ServicePage(
                    keys, answer["NextContinuationToken"] if answer.get("IsTruncated") else None
                )

        return collect(self.url, root, prefix, after, limit, fetch)

    def close(self) -> None:
        self._lazy.close()

    def _key(self, name: str) -> str:
        return self._address.prefix + name

    def _put(self, key: str, data: Buffer, **condition: str) -> None:
        # As a stream: bytes would be sent in one call, for which the time to connect would have to do.
        body = io.BytesIO(as_bytes(data))
        self._client.put_object(Bucket=self._bucket, Key=key, Body=body, **condition)

    def _create(self, key: str, data: Buffer) -> bool:
        try:
            self._put(key, data, IfNoneMatch="*")
        except _client_error() as error:
            status = _failure(error).status
            if status not in (409, 412):
                raise
            # 409: somebody else wrote it at this moment, or deleted it; only in the first case it is there.
            if self._exists(key):
                return False
            if status == 409:
                raise
            # Some services take the mark that a deletion leaves in a versioned bucket for an object.
            self._put(key, data)
        return True

    def _knows_create_only(self) -> bool:
        """Find out, once, if the service refuses to overwrite when it is asked not to."""
        if self._create_only is None:
            key = f"{self._address.prefix}.hybrisfs/create-only-{token_hex(8)}"
            try:
                self._create_only = self._create(key, b"") and not self._create(key, b"")
            except _client_error() as error:
                if _failure(error).status not in (400, 501) and _failure(error).code != "NotImplemented":
                    raise
                self._create_only = False
            try:
                self._client.delete_object(Bucket=self._bucket, Key=key)
            except _client_error() as error:
                if _failure(error).status != 403:  # who may not delete leaves an empty object
                    raise
        return self._create_only

    def _exists(self, key: str) -> bool:
        try:
            with receiving(_ANY_SIZE):
                self._client.get_object(Bucket=self._bucket, Key=key)["Body"].close()
        except _client_error() as error:
            if _failure(error).code not in _NO_OBJECT:
                raise
            return False
        return True

    def _require_size(self, name: str, size: int) -> None:
        with self._translated("get_range", name), receiving(_ANY_SIZE):
            answer = self._client.get_object(Bucket=self._bucket, Key=self._key(name))
            answer["Body"].close()
            if int(answer["ContentLength"]) < size:
                raise CorruptError(self.url, "get_range", name, f"ends before byte {size}")

    def _create_bucket(self) -> None:
        region = self._client.meta.region_name
        # AWS refuses to be told its default region; others do not care where a bucket is.
        elsewhere = region not in (None, "us-east-1", "auto") and self._address.option("endpoint") is None
        place = {"CreateBucketConfiguration": {"LocationConstraint": region}} if elsewhere else {}
        try:
            self._client.create_bucket(Bucket=self._bucket, **place)
        except _client_error() as error:
            failure = _failure(error)
            if failure.code == "BucketAlreadyExists":
                raise PermanentError(
                    self.url, "initialise", "", "the bucket belongs to somebody else", "choose another name"
                ) from error
            if failure.code != "BucketAlreadyOwnedByYou":
                raise

    def _check_deleted(self, error: dict[str, str]) -> None:
        """Raise what a batched delete says about one of its objects."""
        code = error.get("Code", "")
        if code in _NO_OBJECT:
            return
        name = error.get("Key", "").removeprefix(self._address.prefix)
        failure = HttpFailure(500 if code == "InternalError" else 400, code, error.get("Message", ""))
        raise http_error(self.url, "delete_many", name, failure)

    @property
    def _client(self) -> Any:
        return self._lazy.get()

    def _connect(self, secrets: Secrets) -> Any:
        from backends.s3_client import connect

        return connect(self._address, secrets, self._timing)

    @contextlib.contextmanager
    def _translated(self, operation: str, name: str) -> Iterator[None]:
        """Turn whatever the SDK raises into the `StoreError` that says what to do about it."""
        import botocore.exceptions as sdk
        from botocore.parsers import ResponseParserError

        try:
            yield
        except BodyError as error:
            raise body_failure(self.url, operation, name, error) from error
        except sdk.ClientError as error:
            raise self._refusal(operation, name, _failure(error)) from error
        except (sdk.NoCredentialsError, sdk.PartialCredentialsError, sdk.CredentialRetrievalError) as error:
            advice = "put them into credentials.json, or set up a profile of the AWS SDK"
            raise AuthError(self.url, operation, name, f"no usable credentials: {error}", advice) from error
        except (sdk.ProfileNotFound, sdk.NoRegionError, sdk.ParamValidationError) as error:
            raise PermanentError(self.url, operation, name, str(error), "check the URL") from error
        except (RedirectedError, sdk.HTTPClientError, sdk.ConnectionError) as error:
            raise connection_error(self.url, operation, name, error) from error
        except (sdk.BotoCoreError, ResponseParserError, *_MALFORMED) as error:
            raise CorruptError(self.url, operation, name, f"an answer without sense: {error!r}") from error

    def _refusal(self, operation: str, name: str, failure: HttpFailure) -> StoreError:
        if failure.code == "NoSuchBucket" or (failure.status == 404 and operation == "initialise"):
            reason = f"there is no bucket {self._bucket}"
            return MissingRootError(self.url, operation, name, reason, "check the name of the bucket")
        if failure.code in _NO_OBJECT:
            return MissingError(self.url, operation, name, "no such object")
        return http_error(self.url, operation, name, failure)


def _client_error() -> type[Any]:
    import botocore.exceptions

    found: type[Any] = botocore.exceptions.ClientError
    return found


def _failure(error: Any) -> HttpFailure:
    """What a `ClientError` says."""
    said, about = error.response.get("Error", {}), error.response.get("ResponseMetadata", {})
    return HttpFailure(
        int(about.get("HTTPStatusCode", 0)),
        str(said.get("Code", "")),
        str(said.get("Message", "")),
        about.get("HTTPHeaders", {}),
    )


def _read(answer: Any) -> bytes:
    parts: list[bytes] = []
    with contextlib.closing(answer["Body"]) as body:
        while part := body.read(1 << 20):
            parts.append(part)
    return parts[0] if len(parts) == 1 else b"".join(parts)
