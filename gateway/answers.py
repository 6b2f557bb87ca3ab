"""The documents and headers of answers. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final
from urllib.parse import quote

from gateway.asked import DEFAULT_TYPE, REPRESENTATION
from gateway.documents import Deletion, document, element, iso_date, text
from gateway.errors import S3Error
from gateway.listing import Listed
from gateway.preconditions import http_date
from gateway.uploads import OpenUpload
from gateway.values import Stored, stored
from hybrisfs.api.key_value import FoundKey
from hybrisfs.api.objects import Part

__all__ = [
    "buckets",
    "copied",
    "deleted",
    "error_document",
    "keys",
    "object_headers",
    "parts",
    "uploads",
]

_OWNER: Final = element("Owner", element("ID", "hybrisfs"), element("DisplayName", "hybrisfs"))
# RFC 9110, 5.1 and 5.5.
_NAME: Final = re.compile("[!#$%&'*+.^_`|~0-9a-z-]+")
_VALUE: Final = re.compile(r"(?:[!-~\x80-\xff](?:[\t -~\x80-\xff]*[!-~\x80-\xff])?)?")
_STORAGE: Final = element("StorageClass", "STANDARD")


def error_document(error: S3Error, resource: str, request: str) -> bytes:
    """What went wrong."""
    inside = (
        element("Code", error.code),
        element("Message", text(error.message)),
        element("Resource", text(resource)),
        element("RequestId", request),
    )
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{element("Error", *inside)}'.encode()


def buckets(names: Iterable[str]) -> bytes:
    """All buckets. Nobody knows when they were made."""
    made = element("CreationDate", iso_date(None))
    found = (element("Bucket", element("Name", text(name)), made) for name in names)
    return document("ListAllMyBucketsResult", _OWNER, element("Buckets", *found))


def keys(bucket: str, query: Mapping[str, str], limit: int, listed: Listed) -> bytes:
    """A page of a bucket's objects, in the form of version 1 or 2."""
    is_new = query.get("list-type") == "2"
    is_encoded = query.get("encoding-type") == "url"
    name: Callable[[str], str] = (lambda one: quote(one, safe="/")) if is_encoded else text
    owner = _OWNER if not is_new or query.get("fetch-owner") == "true" else ""
    inside = [
        element("Name", text(bucket)),
        element("Prefix", name(query.get("prefix", ""))),
        element("MaxKeys", str(limit)),
        element("IsTruncated", str(listed.truncated).lower()),
    ]
    if query.get("delimiter"):
        inside.append(element("Delimiter", name(query["delimiter"])))
    if is_encoded:
        inside.append(element("EncodingType", "url"))
    if is_new:
        inside.append(element("KeyCount", str(len(listed.keys) + len(listed.prefixes))))
        if "continuation-token" in query:
            inside.append(element("ContinuationToken", text(query["continuation-token"])))
        if "start-after" in query:
            inside.append(element("StartAfter", name(query["start-after"])))
        if listed.truncated:
            inside.append(element("NextContinuationToken", listed.last.encode().hex()))
    else:
        inside.append(element("Marker", name(query.get("marker", ""))))
        if listed.truncated:
            inside.append(element("NextMarker", name(listed.last)))
    inside += [_object(one, name, owner) for one in listed.keys]
    inside += [element("CommonPrefixes", element("Prefix", name(one))) for one in listed.prefixes]
    return document("ListBucketResult", *inside)


def _object(found: FoundKey, name: Callable[[str], str], owner: str) -> str:
    one = stored(found.key, found)
    return element(
        "Contents",
        element("Key", name(one.key)),
        element("LastModified", iso_date(one.written)),
        element("ETag", f"&quot;{one.etag}&quot;"),
        element("Size", str(one.size)),
        owner,
        _STORAGE,
    )


def uploads(bucket: str, prefix: str, found: Sequence[OpenUpload], *, truncated: bool) -> bytes:
    """Uploads that are open."""
    inside = [
        element("Bucket", text(bucket)),
        element("Prefix", text(prefix)),
        element("IsTruncated", str(truncated).lower()),
    ]
    if truncated:
        inside.append(element("NextKeyMarker", text(found[-1].record.key)))
        inside.append(element("NextUploadIdMarker", found[-1].id))
    for one in found:
        key, begun = element("Key", text(one.record.key)), element("Initiated", iso_date(one.written))
        inside.append(element("Upload", key, element("UploadId", one.id), _OWNER, _STORAGE, begun))
    return document("ListMultipartUploadsResult", *inside)


def parts(
    upload: OpenUpload, bucket: str, found: Sequence[tuple[Part, FoundKey]], *, truncated: bool
) -> bytes:
    """Parts of an upload that have arrived."""
    inside = [
        element("Bucket", text(bucket)),
        element("Key", text(upload.record.key)),
        element("UploadId", upload.id),
        element("IsTruncated", str(truncated).lower()),
        _OWNER,
        _STORAGE,
    ]
    if truncated:
        inside.append(element("NextPartNumberMarker", str(found[-1][0].number)))
    for part, one in found:
        inside.append(
            element(
                "Part",
                element("PartNumber", str(part.number)),
                element("LastModified", iso_date(one.written)),
                element("ETag", f"&quot;{part.md5.hex()}&quot;"),
                element("Size", str(part.size)),
            )
        )
    return document("ListPartsResult", *inside)


def copied(name: str, etag: str, written: float) -> bytes:
    """A copy, or a part that was copied."""
    return document(name, element("ETag", f"&quot;{etag}&quot;"), element("LastModified", iso_date(written)))


def deleted(results: Iterable[tuple[Deletion, S3Error | None]], *, quiet: bool) -> bytes:
    """What has become of a batch of deletions."""
    inside = []
    for one, error in results:
        key = element("Key", text(one.key))
        if error is not None:
            code, why = element("Code", error.code), element("Message", text(error.message))
            inside.append(element("Error", key, code, why))
        elif not quiet:
            inside.append(element("Deleted", key))
    return document("DeleteResult", *inside)


def object_headers(found: Stored) -> dict[str, str]:
    """The headers of an object, without its length. A member of the volume may have written any names and
    values. This leaves out names that the gateway does not keep, and values that no header can hold."""
    headers = {
        "etag": f'"{found.etag}"',
        "last-modified": http_date(found.written),
        "accept-ranges": "bytes",
        "content-type": DEFAULT_TYPE,
    }
    if found.attributes is not None:
        kept, metadata = found.attributes.headers, found.attributes.metadata
        headers |= {name: kept[name] for name in REPRESENTATION if _VALUE.fullmatch(kept.get(name, "\n"))}
        headers |= {
            f"x-amz-meta-{name}": value
            for name, value in metadata.items()
            if _NAME.fullmatch(name) and _VALUE.fullmatch(value)
        }
    return headers
