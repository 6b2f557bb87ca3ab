"""XML, ranges, conditions, checksums, lists and records: what needs no daemon."""

from __future__ import annotations

import base64
import zlib
from bisect import bisect_right
from hashlib import md5, sha256
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gateway.answers import object_headers
from gateway.digests import Digests
from gateway.documents import Deletion, iso_date, read_complete_upload, read_deletions, text
from gateway.errors import S3Error
from gateway.listing import Page, list_keys
from gateway.preconditions import Preconditions, http_date, matches, read_range
from gateway.values import Stored
from hybrisfs.api.key_value import FoundKey
from hybrisfs.api.objects import (
    RESERVED,
    ObjectAttributes,
    Part,
    Upload,
    attributes_of,
    decode_parts,
    encode,
    encode_parts,
    part_of,
    upload_of,
)


def code(action: Any, *arguments: Any) -> str | None:
    try:
        action(*arguments)
    except S3Error as error:
        return error.code
    return None


# -- XML ------------------------------------------------------------------------------------------------

COMPLETE = b"""<?xml version="1.0" encoding="UTF-8"?>
<CompleteMultipartUpload xmlns="http://s3.amazonaws.com/doc/2006-03-01/">
  <Part><ETag>"a54357aff0632cce46d942af68356b38"</ETag><PartNumber>1</PartNumber></Part>
  <Part><PartNumber> 3</PartNumber><ETag>&#34;0c78&quot;</ETag><ChecksumCRC32>x</ChecksumCRC32></Part>
</CompleteMultipartUpload>"""


def test_documents_are_read() -> None:
    assert read_complete_upload(COMPLETE) == [(1, "a54357aff0632cce46d942af68356b38"), (3, "0c78")]
    batch = b"<Delete><Quiet>true</Quiet><Object><Key> a&amp;b</Key></Object><Object><Key>c</Key>"
    batch += b"<ETag>x</ETag><VersionId>null</VersionId></Object></Delete>"
    assert read_deletions(batch) == ([Deletion(" a&b", None), Deletion("c", "x")], True)


@pytest.mark.parametrize(
    "document",
    [
        b"",
        b"<Delete>",
        b"<Delete/>",
        b"<Other/>",
        b"\xff\xfe",
        b"<Delete><Object><Key/></Object></Delete>",
        b"<Delete><Object><Key>a</Key><Key>b</Key></Object></Delete>",
        b"<Delete><Object><Key>a</Key><VersionId>1</VersionId></Object></Delete>",
        b"<Delete>" + b"<Object><Key>a</Key></Object>" * 1001 + b"</Delete>",
        b"<!DOCTYPE Delete><Delete><Object><Key>a</Key></Object></Delete>",
        b'<!DOCTYPE d [<!ENTITY e "x">]><Delete><Object><Key>&e;</Key></Object></Delete>',
        b'<?xml version="1.0" encoding="latin-13"?><Delete/>',
        b"<a>" * 1000,
        b"<Delete>" + b"<a/>" * 200_000 + b"</Delete>",
    ],
)
def test_what_is_no_document_is_refused(document: bytes) -> None:
    assert code(read_deletions, document) == "MalformedXML"


@given(st.binary(max_size=100) | st.text(max_size=99).map(lambda one: f"<Delete>{one}</Delete>".encode()))
def test_nonsense_is_refused(document: bytes) -> None:
    assert code(read_deletions, document) == "MalformedXML"
    assert code(read_complete_upload, document) == "MalformedXML"


@given(
    st.text(
        st.characters(exclude_categories=["Cs", "Cc", "Cn"], exclude_characters="\ufffe\uffff"), min_size=1
    )
)
def test_text_survives_a_document(key: str) -> None:
    found, _ = read_deletions(f"<Delete><Object><Key>{text(key)}</Key></Object></Delete>".encode())
    assert found == [Deletion(key, None)]


def test_dates() -> None:
    assert iso_date(1_500_000_000.123) == "2017-07-14T02:40:00.123Z"
    assert iso_date(None) == "1970-01-01T00:00:00.000Z"
    assert http_date(1_500_000_000.9) == "Fri, 14 Jul 2017 02:40:00 GMT"
    assert text("a\x01\n<&>") == "a&#x1;&#xa;&lt;&amp;&gt;"


@pytest.mark.parametrize("milliseconds", [253_402_300_800_000, (1 << 63) - 1, (1 << 64) - 1])
def test_a_date_that_a_member_made_up_hides_no_list(milliseconds: int) -> None:
    """A record on the clouds has any number of milliseconds; no date has more than four digits of a year."""
    assert iso_date(milliseconds / 1000) == "9999-12-31T23:59:59.000Z"
    assert http_date(milliseconds / 1000) == "Fri, 31 Dec 9999 23:59:59 GMT"


# -- ranges and conditions --------------------------------------------------------------------------------


@given(st.integers(0, 20), st.none() | st.integers(0, 25), st.none() | st.integers(0, 25))
@example(0, None, 5)
@example(10, None, 0)
def test_ranges(size: int, first: int | None, last: int | None) -> None:
    whole = bytes(range(size))
    header = f"bytes={'' if first is None else first}-{'' if last is None else last}"
    if first is None:
        wanted = whole[max(0, size - (last or 0)) :] if last is not None else whole
    else:
        wanted = whole[first : size if last is None else last + 1]
    nonsense = first is last is None or (first is not None and last is not None and last < first)
    if nonsense:
        assert read_range(header, size) is None
    elif not wanted:
        assert code(read_range, header, size) == "InvalidRange"
    else:
        span = read_range(header, size)
        assert span is not None
        assert whole[span.start : span.end] == wanted


@given(st.text(max_size=20))
def test_other_headers_ask_for_everything(header: str) -> None:
    assert read_range(header, 10) is None
    assert read_range(None, 10) is None
    assert read_range(f"bytes=0-1,{header}", 10) is None


EARLIER, LATER = http_date(1000), http_date(2000)


@pytest.mark.parametrize(
    ("conditions", "expected"),
    [
        ({}, None),
        ({"if-match": '"tag"'}, None),
        ({"if-match": 'other, "tag"'}, None),
        ({"if-match": "*"}, None),
        ({"if-match": '"other"'}, "PreconditionFailed"),
        ({"if-none-match": "tag"}, "NotModified"),
        ({"if-none-match": 'W/"tag"'}, "NotModified"),
        ({"if-none-match": '"other"'}, None),
        ({"if-modified-since": LATER}, "NotModified"),
        ({"if-modified-since": http_date(1500)}, "NotModified"),
        ({"if-modified-since": EARLIER}, None),
        ({"if-modified-since": "nonsense"}, None),
        ({"if-unmodified-since": EARLIER}, "PreconditionFailed"),
        ({"if-unmodified-since": http_date(1500)}, None),
        ({"if-match": "tag", "if-unmodified-since": EARLIER}, None),
        ({"if-none-match": "other", "if-modified-since": LATER}, None),
    ],
)
def test_conditions(conditions: dict[str, str], expected: str | None) -> None:
    found = Preconditions.of(conditions)
    assert found.any == bool(conditions)
    assert code(found.check, "tag", 1500.7) == expected


def test_etags_need_no_quotes() -> None:
    assert matches("tag", "tag")
    assert not matches('"ta"', "tag")


# -- checksums --------------------------------------------------------------------------------------------


def base(data: bytes) -> str:
    return base64.b64encode(data).decode()


@given(st.binary(max_size=50), st.binary(max_size=50))
def test_checksums(body: bytes, other: bytes) -> None:
    headers = {
        "content-md5": base(md5(body).digest()),
        "x-amz-checksum-crc32": base(zlib.crc32(body).to_bytes(4, "big")),
        "x-amz-trailer": "x-amz-checksum-sha256",
    }
    trailer = {"x-amz-checksum-sha256": base(sha256(body).digest())}

    def fed(data: bytes, payload: str, headers: dict[str, str], trailer: dict[str, str]) -> str | None:
        digests = Digests(headers, payload)
        digests.update(memoryview(data))
        return code(digests.end, trailer)

    payload = sha256(body).hexdigest()
    assert fed(body, payload, headers, trailer) is None
    assert fed(body, payload, headers, {}) == "InvalidRequest"
    if other != body:
        assert fed(other, payload, {}, {}) == "XAmzContentSHA256Mismatch"
        for name in ("content-md5", "x-amz-checksum-crc32"):
            assert fed(other, "UNSIGNED-PAYLOAD", {name: headers[name]}, {}) == "BadDigest"
    assert code(Digests, {"content-md5": "é"}, "") == "InvalidDigest"


# -- lists ------------------------------------------------------------------------------------------------


def found(key: str) -> FoundKey:
    return FoundKey(1, 1, "1-1", None, b"", key=key)


@given(
    keys=st.sets(st.text("ab/\U0010ffff", min_size=1, max_size=6)),
    hidden=st.sets(st.text("ab/", min_size=1, max_size=3).map(RESERVED.__add__)),
    prefix=st.sampled_from(["", "a", "a/", "b", ".", RESERVED, RESERVED + "a"]),
    delimiter=st.sampled_from(["", "/", "b", "ab"]),
    limit=st.integers(1, 5),
    page=st.integers(1, 4),
)
def test_lists(keys: set[str], hidden: set[str], prefix: str, delimiter: str, limit: int, page: int) -> None:
    stored = sorted(keys | hidden, key=str.encode)
    asked = 0

    def read(after: str | None) -> Page:
        nonlocal asked
        asked += 1
        start = bisect_right(stored, (after or "").encode(), key=str.encode)
        left = [one for one in stored[start:] if one.startswith(prefix)]
        return Page(list(map(found, left[:page])), len(left) > page)

    expected: list[str] = []
    for key in sorted(keys, key=str.encode):
        if key.startswith(prefix):
            end = key.find(delimiter, len(prefix)) if delimiter else -1
            name = key if end < 0 else key[: end + len(delimiter)]
            if name not in expected:
                expected.append(name)
    seen: list[str] = []
    after: str | None = None
    while True:
        listed = list_keys(read, prefix, delimiter, after, limit)
        names = [one.key for one in listed.keys] + listed.prefixes
        assert len(names) <= limit
        seen += sorted(names, key=str.encode)
        if not listed.truncated:
            break
        assert len(names) == limit
        after = listed.last
    assert seen == expected
    assert list_keys(read, prefix, delimiter, None, 0).keys == []


def test_what_is_folded_is_not_read() -> None:
    stored = [f"a/{number:04}" for number in range(1000)] + ["b"]
    asked: list[str | None] = []

    def read(after: str | None) -> Page:
        asked.append(after)
        start = bisect_right(stored, after or "")
        return Page(list(map(found, stored[start : start + 10])), start + 10 < len(stored))

    listed = list_keys(read, "", "/", None, 1000)
    assert ([one.key for one in listed.keys], listed.prefixes) == (["b"], ["a/"])
    assert len(asked) == 2


# -- records ----------------------------------------------------------------------------------------------

PART = Part(1, b"m" * 16, 10, 4, "0" * 16)


def test_records_come_back() -> None:
    attributes = ObjectAttributes("0" * 32, {"content-type": "x"}, {"a": "é"}, None, 0)
    upload = Upload("key", "open", True, {}, {})
    assert attributes_of(encode(attributes)) == attributes
    assert upload_of(encode(upload)) == upload
    assert part_of(encode(PART)) == PART
    assert [attributes_of(encode(upload)), upload_of(encode(PART)), part_of(b"")] == [None] * 3
    assert decode_parts(encode_parts([PART])) == [PART]
    assert [size for _, size in PART.pieces("1" * 32)] == [4, 4, 2]
    assert [size for _, size in Part(1, PART.md5, 0, 4, PART.attempt).pieces("1" * 32)] == [0]


def described(headers: dict[str, str], metadata: dict[str, str]) -> Stored:
    etag = "0" * 32
    return Stored("key", "tag", etag, 0, 0.0, None, ObjectAttributes(etag, headers, metadata))


@pytest.mark.parametrize(
    ("headers", "metadata"),
    [
        ({"set-cookie": "a=b", "content-length": "7", "location": "/", "etag": "x"}, {}),
        ({"content-type": "a\r\nset-cookie: a=b", "expires": "\u2028", "cache-control": " x"}, {}),
        ({}, {"a\r\nset-cookie": "b", "": "c", "d e": "f", "g": "h\n", "i": "\u20ac"}),
    ],
)
def test_what_no_gateway_has_kept_goes_into_no_header(
    headers: dict[str, str], metadata: dict[str, str]
) -> None:
    """A member wrote it."""
    plain = object_headers(described({}, {}))
    assert object_headers(described(headers, metadata)) == plain


def test_what_was_kept_is_told() -> None:
    told = object_headers(described({"content-type": 'text/x; a="b"'}, {"a": "é ü", "b-c": ""}))
    assert told["content-type"] == 'text/x; a="b"'
    assert (told["x-amz-meta-a"], told["x-amz-meta-b-c"]) == ("é ü", "")


def test_a_list_of_parts_has_no_more_pieces_than_one_can_hold() -> None:
    """Its keys are made in memory: a member must not make 2**50 of them there by a few bytes."""
    with pytest.raises(ValueError, match="more than 1,000,000 pieces"):
        decode_parts(encode_parts([Part(1, PART.md5, 1 << 50, 1, PART.attempt)]))
    largest = [Part(number, PART.md5, 5 << 30, 64 << 20, PART.attempt) for number in range(1, 10_001)]
    assert decode_parts(encode_parts(largest)) == largest


@pytest.mark.parametrize("parts", [[], [PART, PART]])
def test_lists_of_parts_are_in_order(parts: list[Part]) -> None:
    with pytest.raises(ValueError):
        decode_parts(encode_parts(parts))


@given(st.binary(max_size=60))
def test_nonsense_is_no_record(data: bytes) -> None:
    for kind in (b"O", b"U", b"P", b""):
        attributes = b"S3\x01" + kind + data
        assert [attributes_of(attributes), upload_of(attributes), part_of(attributes)] == [None] * 3
    with pytest.raises(ValueError):
        decode_parts(data)
