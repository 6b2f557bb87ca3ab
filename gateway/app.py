"""The application: which request asks for what, and what it is answered."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
import time
from collections.abc import AsyncIterator, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, Final, ParamSpec, TypeAlias, TypeVar

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from gateway import answers
from gateway.asked import REPRESENTATION, Asked, decoded, read_request
from gateway.documents import document, element, read_complete_upload, read_deletions, text
from gateway.errors import S3Error, translated
from gateway.objects import Objects, Reading
from gateway.preconditions import Preconditions, Span, read_range
from gateway.sent import Sent
from gateway.signature import Verifier
from gateway.uploads import OpenUpload
from gateway.values import Intake
from hybrisfs.client import HybrisError

__all__ = ["Gateway"]

log = logging.getLogger(__name__)

_Result = TypeVar("_Result")
_Arguments = ParamSpec("_Arguments")
_Answer: TypeAlias = "Response | Sent"

_MOST_KEYS: Final = 1000
_DRAINED: Final = 16 << 20  # bytes of a body that are read although nobody wants them
_COPY_SOURCE: Final = "x-amz-copy-source"
# What a bucket has none of.
_NONE_OF: Final = {
    "policy": "NoSuchBucketPolicy",
    "cors": "NoSuchCORSConfiguration",
    "lifecycle": "NoSuchLifecycleConfiguration",
    "encryption": "ServerSideEncryptionConfigurationNotFoundError",
    "object-lock": "ObjectLockConfigurationNotFoundError",
    "tagging": "NoSuchTagSet",
}
_BUCKET_PARTS: Final = frozenset(
    {
        *_NONE_OF,
        *("accelerate", "acl", "analytics", "delete", "intelligent-tiering", "inventory", "location"),
        *("logging", "metrics", "notification", "ownershipControls", "policyStatus", "publicAccessBlock"),
        *("replication", "requestPayment", "session", "uploads", "versioning", "versions", "website"),
    }
)
_OBJECT_PARTS: Final = frozenset(
    {
        *("acl", "attributes", "legal-hold", "partNumber", "restore", "retention", "select", "tagging"),
        *("torrent", "uploadId", "uploads", "versionId"),
    }
)


class Gateway:
    """An ASGI application. Every request has to be signed."""

    def __init__(self, objects: Objects, verifier: Verifier) -> None:
        self._objects = objects
        self._verifier = verifier
        self._pool = ThreadPoolExecutor(objects.limits.workers, "request")
        self._of_the_service = {"GET": self._list_buckets}
        self._of_buckets: Mapping[tuple[str, str], Callable[[Asked], Any]] = {
            ("GET", ""): self._list,
            ("HEAD", ""): self._head_bucket,
            ("PUT", ""): self._create_bucket,
            ("DELETE", ""): self._drop_bucket,
            ("GET", "location"): self._location,
            ("GET", "versioning"): self._versioning,
            ("GET", "uploads"): self._list_uploads,
            ("POST", "delete"): self._delete_many,
        }
        self._of_objects: Mapping[tuple[str, str], Callable[[Asked], Any]] = {
            ("GET", ""): self._get,
            ("HEAD", ""): self._head,
            ("PUT", ""): self._put,
            ("DELETE", ""): self._delete,
            ("GET", "tagging"): self._no_tags,
            ("POST", "uploads"): self._begin_upload,
            ("PUT", "uploadId"): self._put_part,
            ("GET", "uploadId"): self._list_parts,
            ("POST", "uploadId"): self._complete_upload,
            ("DELETE", "uploadId"): self._abort_upload,
        }

    def close(self) -> None:
        """End the threads."""
        self._pool.shutdown()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        http, number = Request(scope, receive), secrets.token_hex(8)
        try:
            answer = await self._answer(http)
        except ClientDisconnect:
            return
        except S3Error as error:
            answer = _failed(error, http, number)
        except HybrisError as error:
            log.info("%s %s: %s", http.method, http.scope["path"], error)
            answer = _failed(translated(error), http, number)
        except OSError as error:
            log.error("%s %s: %s", http.method, http.scope["path"], error)
            answer = _failed(S3Error("InternalError", error.strerror or "the disk fails"), http, number)
        except Exception:
            log.exception("%s %s: a bug", http.method, http.scope["path"])
            answer = _failed(S3Error("InternalError", "a bug; the gateway has shown it"), http, number)
        if isinstance(answer, Response):
            answer.headers["x-amz-request-id"] = number
            # A client that waits for 100 Continue may go on with the body or with the next request.
            is_waiting = "expect" in http.headers and answer.status_code >= 400
            if is_waiting or not await _drained(http):
                answer.headers["connection"] = "close"
        await answer(scope, receive, send)

    async def _answer(self, http: Request) -> _Answer:
        asked = read_request(http, self._verifier)
        handler: Callable[[Asked], Any] | None
        if not asked.bucket:
            handler = self._of_the_service.get(asked.method)
        elif not asked.key:
            handler = self._chosen(asked, self._of_buckets, _BUCKET_PARTS)
        else:
            handler = self._chosen(asked, self._of_objects, _OBJECT_PARTS)
        if handler is None:
            raise S3Error("MethodNotAllowed", "this cannot be done")
        answer: _Answer = await handler(asked)
        return answer

    def _chosen(
        self,
        asked: Asked,
        handlers: Mapping[tuple[str, str], Callable[[Asked], Any]],
        parts: frozenset[str],
    ) -> Callable[[Asked], Any] | None:
        """What answers a request. Raises S3Error."""
        named = parts & asked.query.keys()
        if asked.query.get("versionId") == "null":
            named -= {"versionId"}
        if "uploadId" in named:
            named -= {"partNumber"}
        part = min(named, default="")
        if asked.method == "GET" and not asked.key and part in _NONE_OF:
            raise S3Error(_NONE_OF[part], "the bucket has none")
        handler = handlers.get((asked.method, part))
        if (handler is None and part) or len(named) > 1:
            raise S3Error("NotImplemented", f"{asked.method} of {', '.join(sorted(named))} is not supported")
        return handler

    async def _run(
        self, work: Callable[_Arguments, _Result], *arguments: _Arguments.args, **named: _Arguments.kwargs
    ) -> _Result:
        """Have a thread do what may wait."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._pool, partial(work, *arguments, **named))

    # -- buckets ---------------------------------------------------------------------------------

    async def _list_buckets(self, _: Asked) -> Response:
        return _xml(answers.buckets(await self._run(self._objects.buckets)))

    async def _head_bucket(self, asked: Asked) -> Response:
        await self._run(self._objects.check_bucket, asked.bucket)
        return Response()

    async def _create_bucket(self, asked: Asked) -> Response:
        await asked.document()  # where it should be does not matter
        await self._run(self._objects.create_bucket, asked.bucket)
        return Response(headers={"location": f"/{asked.bucket}"})

    async def _drop_bucket(self, asked: Asked) -> Response:
        await self._run(self._objects.drop_bucket, asked.bucket)
        return Response(status_code=204)

    async def _location(self, asked: Asked) -> Response:
        await self._run(self._objects.check_bucket, asked.bucket)
        return _xml(document("LocationConstraint"))

    async def _versioning(self, asked: Asked) -> Response:
        await self._run(self._objects.check_bucket, asked.bucket)
        return _xml(document("VersioningConfiguration"))

    async def _list(self, asked: Asked) -> Response:
        query, limit = asked.query, asked.number("max-keys", _MOST_KEYS, _MOST_KEYS)
        if query.get("encoding-type", "url") != "url":
            raise S3Error("InvalidArgument", "encoding-type can only be url")
        after = query.get("marker") or None
        if query.get("list-type") == "2":
            after = query.get("start-after") or None
            if "continuation-token" in query:
                after = _token(query["continuation-token"])
        if limit == 0:
            await self._run(self._objects.check_bucket, asked.bucket)
        prefix, delimiter = query.get("prefix", ""), query.get("delimiter", "")
        listed = await self._run(self._objects.list, asked.bucket, prefix, delimiter, after, limit)
        return _xml(answers.keys(asked.bucket, query, limit, listed))

    async def _delete_many(self, asked: Asked) -> Response:
        deletions, quiet = read_deletions(await asked.document())
        await self._run(self._objects.check_bucket, asked.bucket)
        results = await self._run(lambda: list(self._objects.delete_many(asked.bucket, deletions)))
        return _xml(answers.deleted(zip(deletions, results, strict=True), quiet=quiet))

    # -- objects ---------------------------------------------------------------------------------

    async def _get(self, asked: Asked) -> _Answer:
        conditions = Preconditions.of(asked.headers)
        reading = await self._run(self._objects.read, asked.bucket, asked.key, conditions)
        with contextlib.ExitStack() as undo:
            undo.enter_context(reading)
            size = reading.stored.size
            span = _wanted_range(asked, reading.stored.etag, size)
            headers = answers.object_headers(reading.stored) | _overridden(asked)
            status = 200
            if span is not None:
                status = 206
                headers["content-range"] = f"bytes {span.start}-{span.end - 1}/{size}"
            headers["content-length"] = str(size if span is None else span.end - span.start)
            stretches = list(reading.stretches(span or Span(0, size)))
            first = await self._run(reading.opened, stretches[0]) if stretches else None
            undo.pop_all()
            head = Response(status_code=status, headers=headers)
            return Sent(reading, stretches, first, head, lambda one: self._run(reading.opened, one))

    async def _head(self, asked: Asked) -> Response:
        found = await self._run(self._objects.head, asked.bucket, asked.key)
        Preconditions.of(asked.headers).check(found.etag, found.written)
        span = _wanted_range(asked, found.etag, found.size)
        headers = answers.object_headers(found) | _overridden(asked)
        if span is None:
            headers["content-length"] = str(found.size)
            return Response(headers=headers)
        headers["content-length"] = str(span.end - span.start)
        headers["content-range"] = f"bytes {span.start}-{span.end - 1}/{found.size}"
        return Response(status_code=206, headers=headers)

    async def _put(self, asked: Asked) -> Response:
        if _COPY_SOURCE in asked.headers:
            return await self._run(self._copy, asked)
        intake = await self._run(self._objects.intake, asked.bucket, asked.key, asked.description())
        async with self._taking(intake):
            await self._feed(asked, intake)
            etag = await self._run(intake.finish, asked.write_conditions())
        return _with_etag(etag)

    async def _delete(self, asked: Asked) -> Response:
        await self._run(self._objects.delete, asked.bucket, asked.key, asked.headers.get("if-match"))
        return Response(status_code=204)

    async def _no_tags(self, asked: Asked) -> Response:
        await self._run(self._objects.head, asked.bucket, asked.key)
        return _xml(document("Tagging", element("TagSet")))

    # -- uploads in parts ------------------------------------------------------------------------

    async def _begin_upload(self, asked: Asked) -> Response:
        begin = self._objects.begin_upload
        await self._run(self._objects.check_bucket, asked.bucket)
        upload = await self._run(begin, asked.bucket, asked.key, asked.description())
        names = element("Bucket", text(asked.bucket)), element("Key", text(asked.key))
        return _xml(document("InitiateMultipartUploadResult", *names, element("UploadId", upload)))

    async def _put_part(self, asked: Asked) -> Response:
        number, upload = asked.number("partNumber", 0, 1 << 31), _upload(asked)
        if _COPY_SOURCE in asked.headers:
            return await self._run(self._copy_part, asked, upload, number)
        intake = await self._run(self._objects.part_intake, asked.bucket, asked.key, upload, number)
        async with self._taking(intake):
            await self._feed(asked, intake)
            etag = await self._run(intake.finish)
        return _with_etag(etag)

    async def _complete_upload(self, asked: Asked) -> Response:
        chosen = read_complete_upload(await asked.document())
        conditions = asked.write_conditions()
        etag = await self._run(
            self._objects.uploads.complete, asked.bucket, asked.key, _upload(asked), chosen, conditions
        )
        names = element("Bucket", text(asked.bucket)), element("Key", text(asked.key))
        where = element("Location", text(str(asked.http.url.replace(query=""))))
        tag = element("ETag", f"&quot;{etag}&quot;")
        return _xml(document("CompleteMultipartUploadResult", where, *names, tag))

    async def _abort_upload(self, asked: Asked) -> Response:
        await self._run(self._objects.uploads.abort, asked.bucket, asked.key, _upload(asked))
        return Response(status_code=204)

    async def _list_uploads(self, asked: Asked) -> Response:
        prefix = asked.query.get("prefix", "")
        limit = asked.number("max-uploads", _MOST_KEYS, _MOST_KEYS)
        after = (asked.query.get("key-marker", ""), asked.query.get("upload-id-marker") or "g")
        await self._run(self._objects.check_bucket, asked.bucket)
        found = await self._run(lambda: list(self._objects.uploads.all(asked.bucket, prefix)))
        found = sorted((one for one in found if (one.record.key, one.id) > after), key=_order)
        shown, more = found[:limit], len(found) > limit > 0
        return _xml(answers.uploads(asked.bucket, prefix, shown, truncated=more))

    async def _list_parts(self, asked: Asked) -> Response:
        limit = asked.number("max-parts", _MOST_KEYS, _MOST_KEYS)
        after = asked.number("part-number-marker", 0, 1 << 31)
        uploads = self._objects.uploads
        upload = await self._run(uploads.open, asked.bucket, asked.key, _upload(asked))
        found = await self._run(lambda: list(uploads.parts(asked.bucket, upload.id)))
        found = [one for one in found if one[0].number > after]
        more = len(found) > limit > 0
        return _xml(answers.parts(upload, asked.bucket, found[:limit], truncated=more))

    # -- copying, in a thread --------------------------------------------------------------------

    def _copy(self, asked: Asked) -> Response:
        replaces = asked.headers.get("x-amz-metadata-directive", "COPY").upper() == "REPLACE"
        described = asked.description()
        with self._source(asked) as source:
            said = source.stored.attributes
            if not replaces and said is not None:
                described = described._replace(headers=said.headers, metadata=said.metadata)
            intake = self._objects.intake(asked.bucket, asked.key, described)
            try:
                self._objects.copy(source, Span(0, source.stored.size), intake)
                etag = intake.finish(asked.write_conditions())
            finally:
                intake.discard()
        return _xml(answers.copied("CopyObjectResult", etag, time.time()))

    def _copy_part(self, asked: Asked, upload: str, number: int) -> Response:
        with self._source(asked) as source:
            size = source.stored.size
            span = read_range(asked.headers.get("x-amz-copy-source-range"), size) or Span(0, size)
            intake = self._objects.part_intake(asked.bucket, asked.key, upload, number)
            try:
                self._objects.copy(source, span, intake)
                etag = intake.finish()
            finally:
                intake.discard()
        return _xml(answers.copied("CopyPartResult", etag, time.time()))

    def _source(self, asked: Asked) -> Reading:
        path, _, version = asked.headers[_COPY_SOURCE].partition("?versionId=")
        bucket, _, key = decoded(path.encode("latin-1")).removeprefix("/").partition("/")
        if version not in ("", "null"):
            raise S3Error("NotImplemented", "versions are not supported")
        try:
            return self._objects.read(bucket, key, Preconditions.of(asked.headers, f"{_COPY_SOURCE}-"))
        except S3Error as error:
            if error.code == "NotModified":
                raise S3Error("PreconditionFailed", "a condition of the source does not hold") from error
            raise

    # -- bodies ----------------------------------------------------------------------------------

    async def _feed(self, asked: Asked, intake: Intake) -> None:
        async for part in asked.body():
            left = part
            while left:
                if intake.full:
                    await self._run(intake.pass_on)
                left = intake.feed(left)

    @contextlib.asynccontextmanager
    async def _taking(self, intake: Intake) -> AsyncIterator[None]:
        """Forget at the end what did not become an object, or part of one."""
        try:
            yield
        finally:
            await self._run(intake.discard)


def _failed(error: S3Error, http: Request, number: str) -> Response:
    if error.status == 304:
        return Response(status_code=304, headers=error.headers)
    content = answers.error_document(error, http.scope["raw_path"].decode("ascii", "replace"), number)
    return Response(content, error.status, error.headers, media_type="application/xml")


async def _drained(http: Request) -> bool:
    """Read what is left of the body: a client that still sends would not see the answer.

    False when that is too much.
    """
    left = _DRAINED
    try:
        async for part in http.stream():
            left -= len(part)
            if left < 0:
                return False
    except RuntimeError:  # there was nothing left
        return True
    except ClientDisconnect:
        return False
    return True


def _xml(content: bytes) -> Response:
    return Response(content, media_type="application/xml")


def _with_etag(etag: str) -> Response:
    return Response(headers={"etag": f'"{etag}"'})


def _upload(asked: Asked) -> str:
    """The id of the upload. Raises S3Error for what can be none."""
    upload = asked.query["uploadId"]
    if len(upload) != 32 or not upload.isascii() or not upload.isalnum():
        raise S3Error("NoSuchUpload", "there is no such upload")
    return upload


def _token(token: str) -> str:
    """The last name of the page before. Raises S3Error."""
    try:
        return bytes.fromhex(token).decode("utf-8")
    except ValueError:
        raise S3Error("InvalidArgument", "the continuation token is none of ours") from None


def _order(one: OpenUpload) -> tuple[str, str]:
    return one.record.key, one.id


def _wanted_range(asked: Asked, etag: str, size: int) -> Span | None:
    """The part of an object that is wanted. Raises S3Error."""
    only_of = asked.headers.get("if-range")
    if only_of is not None and only_of.strip().strip('"') != etag:
        return None
    return read_range(asked.headers.get("range"), size)


def _overridden(asked: Asked) -> dict[str, str]:
    """Headers that the request itself wants in its answer. Raises S3Error."""
    wanted = {name: value for name in REPRESENTATION if (value := asked.query.get(f"response-{name}"))}
    if not all(value.isascii() and value.isprintable() for value in wanted.values()):
        raise S3Error("InvalidArgument", "a header of the answer has characters that none can have")
    return wanted
