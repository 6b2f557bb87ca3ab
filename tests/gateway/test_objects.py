"""Buckets and objects as boto3 sees them, in a store over clouds in memory."""

from __future__ import annotations

import base64
import os
import socket
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from hashlib import md5
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest
from botocore.exceptions import ClientError

from gateway.objects import Objects
from gateway.signature import AccessKey
from hybrisfs.api.objects import RESERVED
from hybrisfs.home import Home
from tests.cli.conftest import Run
from tests.gateway.rig import BUCKET, KEY, SMALL, boto, made_objects, running
from tests.kv.rig import Rig
from tests.system.deadline import until

MIB = 1 << 20
LARGE = os.urandom(2 * MIB + 12345)
"""In three pieces."""


def code(call: Any, **arguments: Any) -> str:
    """The code of the error that a call comes to."""
    with pytest.raises(ClientError) as caught:
        call(Bucket=BUCKET, **arguments)
    return str(caught.value.response["Error"]["Code"])


def read(s3: Any, key: str, **arguments: Any) -> bytes:
    body: bytes = s3.get_object(Bucket=BUCKET, Key=key, **arguments)["Body"].read()
    return body


def keys(s3: Any, **arguments: Any) -> list[str]:
    found = s3.list_objects_v2(Bucket=BUCKET, **arguments)
    prefixes = [one["Prefix"] for one in found.get("CommonPrefixes", [])]
    return [one["Key"] for one in found.get("Contents", [])] + prefixes


def hidden(rig: Rig) -> list[str]:
    return [one.key for one in rig.store.list(BUCKET, RESERVED)]


# -- buckets --------------------------------------------------------------------------------------------


def test_buckets(s3: Any, rig: Rig) -> None:
    rig.store.create_container("no client can name this")
    s3.create_bucket(Bucket="new-bucket")
    assert [one["Name"] for one in s3.list_buckets()["Buckets"]] == [BUCKET, "new-bucket"]
    s3.head_bucket(Bucket="new-bucket")
    assert s3.get_bucket_location(Bucket="new-bucket")["LocationConstraint"] is None
    assert "Status" not in s3.get_bucket_versioning(Bucket="new-bucket")
    with pytest.raises(ClientError, match="BucketAlreadyOwnedByYou"):
        s3.create_bucket(Bucket="new-bucket")
    with pytest.raises(ClientError, match="InvalidBucketName"):
        s3.create_bucket(Bucket="UPPER")
    s3.put_object(Bucket="new-bucket", Key="a", Body=b"")
    with pytest.raises(ClientError, match="BucketNotEmpty"):
        s3.delete_bucket(Bucket="new-bucket")
    s3.delete_object(Bucket="new-bucket", Key="a")
    s3.create_multipart_upload(Bucket="new-bucket", Key="a")
    s3.delete_bucket(Bucket="new-bucket")
    with pytest.raises(ClientError, match="404"):
        s3.head_bucket(Bucket="new-bucket")
    rig.store.create_container("others")
    rig.store.put("others", f"{RESERVED}note", b"somebody's")
    with pytest.raises(ClientError, match="BucketNotEmpty"):
        s3.delete_bucket(Bucket="others")
    for call in (s3.list_objects_v2, s3.delete_bucket):
        with pytest.raises(ClientError, match="NoSuchBucket"):
            call(Bucket="new-bucket")
    for call in (s3.get_object, s3.put_object, s3.create_multipart_upload):
        with pytest.raises(ClientError, match="NoSuchBucket"):
            call(Bucket="new-bucket", Key="a")


# -- objects --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("body", [b"", b"x", os.urandom(100_000), LARGE[:MIB], LARGE])
def test_what_was_put_is_read(s3: Any, rig: Rig, body: bytes) -> None:
    put = s3.put_object(Bucket=BUCKET, Key="a/b c+ü", Body=body)
    assert put["ETag"] == f'"{md5(body).hexdigest()}"'
    got = s3.get_object(Bucket=BUCKET, Key="a/b c+ü")
    assert got["Body"].read() == body
    head = s3.head_object(Bucket=BUCKET, Key="a/b c+ü")
    assert got["ETag"] == head["ETag"] == put["ETag"]
    assert got["ContentLength"] == head["ContentLength"] == len(body)
    assert head["LastModified"] == datetime.fromtimestamp(rig.clock(), UTC)
    [listed] = s3.list_objects_v2(Bucket=BUCKET)["Contents"]
    assert (listed["Key"], listed["Size"], listed["ETag"]) == ("a/b c+ü", len(body), put["ETag"])


@pytest.mark.parametrize("body", [b"0123456789", LARGE])
def test_ranges(s3: Any, body: bytes) -> None:
    s3.put_object(Bucket=BUCKET, Key="a", Body=body)
    size = len(body)
    for first, last in ((0, 0), (1, 5), (size - 1, size - 1), (size // 2, size + 10), (1, size - 2)):
        got = s3.get_object(Bucket=BUCKET, Key="a", Range=f"bytes={first}-{last}")
        assert got["Body"].read() == body[first : last + 1]
        assert got["ContentRange"] == f"bytes {first}-{min(last, size - 1)}/{size}"
    assert read(s3, "a", Range="bytes=-3") == body[-3:]
    assert read(s3, "a", Range=f"bytes={MIB - 1}-{MIB}" if size > MIB else "bytes=2-") in body
    assert s3.head_object(Bucket=BUCKET, Key="a", Range="bytes=1-2")["ContentLength"] == 2
    assert code(s3.get_object, Key="a", Range=f"bytes={size}-") == "InvalidRange"


def test_what_a_client_says_of_an_object_comes_back(s3: Any, url: str) -> None:
    said: dict[str, Any] = {
        "ContentType": "text/plain; charset=utf-8",
        "ContentEncoding": "gzip",
        "ContentDisposition": "attachment",
        "CacheControl": "no-store",
        "ContentLanguage": "de",
        "Metadata": {"colour": "red", "size-of": "3 4"},
    }
    s3.put_object(Bucket=BUCKET, Key="a", Body=b"x", **said)
    s3.put_object(Bucket=BUCKET, Key="large", Body=LARGE, **said)
    for key in ("a", "large"):
        for call in (s3.get_object, s3.head_object):
            got = call(Bucket=BUCKET, Key=key)
            assert {name: got[name] for name in said} == said
    got = s3.get_object(Bucket=BUCKET, Key="a", ResponseContentType="x/y")
    assert got["ContentType"] == "x/y"
    assert code(s3.put_object, Key="b", Metadata={"a": "x" * 2048}) == "MetadataTooLarge"
    assert code(s3.put_object, Key="b", ACL="public-read") == "NotImplemented"
    assert code(s3.put_object, Key="b", Tagging="a=b") == "NotImplemented"
    s3.put_object(Bucket=BUCKET, Key="b", ACL="private")
    assert s3.head_object(Bucket=BUCKET, Key="b")["ContentType"] == "application/octet-stream"


def test_both_faces_show_the_same(s3: Any, rig: Rig, run: Run, tmp_path: Path) -> None:
    rig.put("a", b"of kv put")
    tag = rig.store.stat(BUCKET, "a").timestamp.tag
    got = s3.get_object(Bucket=BUCKET, Key="a")
    assert (got["Body"].read(), got["ETag"], got["ContentType"]) == (
        b"of kv put",
        f'"{tag}"',
        "application/octet-stream",
    )
    s3.put_object(Bucket=BUCKET, Key="b", Body=b"of S3")
    assert rig.get("b") == b"of S3"
    s3.put_object(Bucket=BUCKET, Key="c", Body=LARGE)
    done = run("kv", "get", "photos", f"{BUCKET}/c", str(tmp_path / "target"))
    assert (done.exit_code, (tmp_path / "target").exists()) == (2, False)
    assert "box/c is an object in parts" in done.stderr


def test_keys_that_cannot_be(s3: Any) -> None:
    assert code(s3.put_object, Key="k" * 1025) == "KeyTooLongError"
    assert code(s3.put_object, Key="ä" * 513) == "KeyTooLongError"
    s3.put_object(Bucket=BUCKET, Key="ä" * 512)
    assert code(s3.put_object, Key="a\0b") == "InvalidArgument"
    assert code(s3.put_object, Key=f"{RESERVED}x") == "InvalidArgument"
    for key in ("../x", "a//b", "./a", "a/", "%41", "a?b#c", "&<>\"'", "ü\U0001f600"):
        s3.put_object(Bucket=BUCKET, Key=key, Body=key.encode())
        assert read(s3, key) == key.encode()
        assert key in keys(s3)


def test_deletions(s3: Any, rig: Rig) -> None:
    for key in ("a", "b", "c&", "d"):
        s3.put_object(Bucket=BUCKET, Key=key, Body=b"x")
    s3.delete_object(Bucket=BUCKET, Key="a")
    s3.delete_object(Bucket=BUCKET, Key="a")
    assert code(s3.get_object, Key="a") == "NoSuchKey"
    assert code(s3.head_object, Key="a") == "404"
    done = s3.delete_objects(
        Bucket=BUCKET, Delete={"Objects": [{"Key": one} for one in ("b", "c&", "no such", f"{RESERVED}x")]}
    )
    assert [one["Key"] for one in done["Deleted"]] == ["b", "c&", "no such"]
    assert [one["Code"] for one in done["Errors"]] == ["InvalidArgument"]
    quiet = s3.delete_objects(Bucket=BUCKET, Delete={"Objects": [{"Key": "d"}], "Quiet": True})
    assert "Deleted" not in quiet
    assert keys(s3) == []


def test_lists(s3: Any, rig: Rig) -> None:
    names = ["a/1", "a/2", "a/b/3", "b c", "c/ü", "d"]
    for name in names:
        rig.put(name, b"x")
    assert keys(s3) == names
    assert keys(s3, Prefix="a/", Delimiter="/") == ["a/1", "a/2", "a/b/"]
    assert keys(s3, Delimiter="/") == ["b c", "d", "a/", "c/"]
    assert keys(s3, StartAfter="b") == ["b c", "c/ü", "d"]
    assert keys(s3, MaxKeys=0) == []
    for kind in ("list_objects_v2", "list_objects"):
        pages = s3.get_paginator(kind).paginate(Bucket=BUCKET, PaginationConfig={"PageSize": 2})
        found = [[one["Key"] for one in page["Contents"]] for page in pages]
        assert found == [["a/1", "a/2"], ["a/b/3", "b c"], ["c/ü", "d"]]
    assert code(s3.list_objects_v2, ContinuationToken="x") == "InvalidArgument"


# -- conditions -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("body", [b"x", LARGE])
def test_conditional_writes(s3: Any, body: bytes) -> None:
    def put(content: bytes, **condition: str) -> str:
        return str(s3.put_object(Bucket=BUCKET, Key="a", Body=content, **condition)["ETag"])

    assert code(s3.put_object, Key="a", Body=body, IfMatch='"x"') == "NoSuchKey"
    first = put(body, IfNoneMatch="*")
    assert code(s3.put_object, Key="a", Body=body, IfNoneMatch="*") == "PreconditionFailed"
    assert code(s3.put_object, Key="a", Body=body, IfMatch='"x"') == "PreconditionFailed"
    second = put(body + b"2", IfMatch=first)
    assert code(s3.put_object, Key="a", Body=body, IfMatch=first) == "PreconditionFailed"
    assert read(s3, "a") == body + b"2"
    assert code(s3.delete_object, Key="a", IfMatch=first) == "PreconditionFailed"
    s3.delete_object(Bucket=BUCKET, Key="a", IfMatch=second)
    assert code(s3.get_object, Key="a") == "NoSuchKey"


def test_of_writers_at_the_same_time_one_makes_the_object(url: str, rig: Rig) -> None:
    def put(number: int) -> bool:
        try:
            boto(url).put_object(Bucket=BUCKET, Key="a", Body=LARGE + b"%d" % number, IfNoneMatch="*")
        except ClientError as error:
            assert error.response["Error"]["Code"] == "PreconditionFailed"
            return False
        return True

    with ThreadPoolExecutor(4) as pool:
        assert sum(pool.map(put, range(4))) == 1


def test_conditional_reads(s3: Any, rig: Rig) -> None:
    etag = s3.put_object(Bucket=BUCKET, Key="a", Body=b"x")["ETag"]
    now = datetime.fromtimestamp(rig.clock(), UTC)
    earlier, later = now - timedelta(seconds=1), now + timedelta(seconds=1)
    for call in (s3.get_object, s3.head_object):
        assert code(call, Key="a", IfNoneMatch=etag) == "304"
        assert code(call, Key="a", IfModifiedSince=later) == "304"
        assert code(call, Key="a", IfMatch='"x"') in ("PreconditionFailed", "412")
        assert code(call, Key="a", IfUnmodifiedSince=earlier) in ("PreconditionFailed", "412")
        call(Bucket=BUCKET, Key="a", IfMatch=etag, IfUnmodifiedSince=earlier)


# -- copies -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("body", [b"x", LARGE])
def test_copies(s3: Any, body: bytes) -> None:
    etag = s3.put_object(Bucket=BUCKET, Key="a b", Body=body, Metadata={"a": "1"}, ContentType="x/y")["ETag"]
    source = {"Bucket": BUCKET, "Key": "a b"}
    copied = s3.copy_object(Bucket=BUCKET, Key="copy", CopySource=source)
    assert copied["CopyObjectResult"]["ETag"] == etag
    got = s3.get_object(Bucket=BUCKET, Key="copy")
    assert (got["Body"].read(), got["Metadata"], got["ContentType"]) == (body, {"a": "1"}, "x/y")
    replaced: dict[str, Any] = {"MetadataDirective": "REPLACE", "Metadata": {"b": "2"}}
    s3.copy_object(Bucket=BUCKET, Key="a b", CopySource=source, **replaced)
    got = s3.get_object(Bucket=BUCKET, Key="a b")
    assert (got["Body"].read(), got["Metadata"]) == (body, {"b": "2"})
    assert code(s3.copy_object, Key="c", CopySource=f"{BUCKET}/none") == "NoSuchKey"
    failed = {"CopySourceIfNoneMatch": etag}
    assert code(s3.copy_object, Key="c", CopySource=source, **failed) == "PreconditionFailed"


# -- uploads in parts ---------------------------------------------------------------------------------------


def test_uploads_in_parts(s3: Any, rig: Rig) -> None:
    upload = s3.create_multipart_upload(
        Bucket=BUCKET, Key="a", ContentType="x/y", Metadata={"colour": "red"}
    )["UploadId"]
    one = {"Bucket": BUCKET, "Key": "a", "UploadId": upload}
    assert code(s3.get_object, Key="a") == "NoSuchKey"
    bodies = {1: LARGE, 3: b"middle", 7: b"end"}
    etags = {
        number: s3.upload_part(**one, PartNumber=number, Body=body)["ETag"] for number, body in bodies.items()
    }
    s3.upload_part(**one, PartNumber=5, Body=b"of no use")
    etags[3] = s3.upload_part(**one, PartNumber=3, Body=b"anew")["ETag"]
    s3.put_object(Bucket=BUCKET, Key="source", Body=b"0123456789")
    copied = s3.upload_part_copy(
        **one, PartNumber=8, CopySource=f"{BUCKET}/source", CopySourceRange="bytes=2-4"
    )
    etags[8] = copied["CopyPartResult"]["ETag"]
    listed = s3.list_parts(**one)["Parts"]
    assert [(part["PartNumber"], part["Size"]) for part in listed] == [
        (1, len(LARGE)),
        (3, 4),
        (5, 9),
        (7, 3),
        (8, 3),
    ]
    listed = s3.list_parts(**one, MaxParts=2, PartNumberMarker=1)
    assert ([part["PartNumber"] for part in listed["Parts"]], listed["IsTruncated"]) == ([3, 5], True)
    [found] = s3.list_multipart_uploads(Bucket=BUCKET)["Uploads"]
    assert (found["Key"], found["UploadId"]) == ("a", upload)
    assert keys(s3) == ["source"]

    def complete(*numbers: int, **changed: str) -> dict[str, Any]:
        parts = [
            {"PartNumber": number, "ETag": changed.get("etag", etags.get(number, "x"))} for number in numbers
        ]
        done: dict[str, Any] = s3.complete_multipart_upload(**one, MultipartUpload={"Parts": parts})
        return done

    for numbers, etag, expected in (
        ((3, 1), None, "InvalidPartOrder"),
        ((1, 2), None, "InvalidPart"),
        ((1, 7), "0" * 32, "InvalidPart"),
    ):
        with pytest.raises(ClientError, match=f"\\({expected}\\)"):
            complete(*numbers, **({} if etag is None else {"etag": etag}))
    done = complete(1, 3, 7, 8)
    digests = b"".join(md5(part).digest() for part in (LARGE, b"anew", b"end", b"234"))
    assert done["ETag"] == f'"{md5(digests).hexdigest()}-4"'
    assert complete(1, 3, 7, 8)["ETag"] == done["ETag"], "a client that did not hear the answer asks again"
    got = s3.get_object(Bucket=BUCKET, Key="a")
    assert got["Body"].read() == LARGE + b"anewend234"
    assert (got["ETag"], got["ContentType"], got["Metadata"]) == (done["ETag"], "x/y", {"colour": "red"})
    assert read(s3, "a", Range=f"bytes={len(LARGE) - 1}-{len(LARGE) + 4}") == LARGE[-1:] + b"anewe"
    assert s3.list_multipart_uploads(Bucket=BUCKET).get("Uploads") is None
    assert code(s3.upload_part, Key="a", UploadId=upload, PartNumber=1, Body=b"late") == "NoSuchUpload"


def test_uploads_that_are_given_up(s3: Any) -> None:
    upload = s3.create_multipart_upload(Bucket=BUCKET, Key="a")["UploadId"]
    one = {"Key": "a", "UploadId": upload}
    s3.upload_part(Bucket=BUCKET, **one, PartNumber=1, Body=b"x")
    assert code(s3.abort_multipart_upload, Key="b", UploadId=upload) == "NoSuchUpload"
    s3.abort_multipart_upload(Bucket=BUCKET, **one)
    parts = {"Parts": [{"PartNumber": 1, "ETag": md5(b"x").hexdigest()}]}
    assert code(s3.complete_multipart_upload, **one, MultipartUpload=parts) == "NoSuchUpload"
    assert code(s3.upload_part, **one, PartNumber=1, Body=b"x") == "NoSuchUpload"
    assert code(s3.abort_multipart_upload, **one) == "NoSuchUpload"
    assert code(s3.list_parts, Key="a", UploadId="../x") == "NoSuchUpload"


@pytest.mark.parametrize("number", [0, 10_001])
def test_numbers_that_no_part_has(s3: Any, number: int) -> None:
    upload = s3.create_multipart_upload(Bucket=BUCKET, Key="a")["UploadId"]
    one = {"Key": "a", "UploadId": upload}
    assert code(s3.upload_part, **one, PartNumber=number, Body=b"x") == "InvalidArgument"


def test_small_parts_are_refused(rig: Rig, home: Home) -> None:
    with made_objects(home.runtime, type(SMALL)(piece=MIB)) as objects, running(objects) as url:
        s3 = boto(url)
        upload = s3.create_multipart_upload(Bucket=BUCKET, Key="a")["UploadId"]
        parts = [
            {
                "PartNumber": number,
                "ETag": s3.upload_part(Bucket=BUCKET, Key="a", UploadId=upload, PartNumber=number, Body=b"x")[
                    "ETag"
                ],
            }
            for number in (1, 2)
        ]
        complete = {"Key": "a", "UploadId": upload, "MultipartUpload": {"Parts": parts}}
        assert code(s3.complete_multipart_upload, **complete) == "EntityTooSmall"


def test_what_is_too_large_is_refused_and_leaves_nothing(rig: Rig, home: Home) -> None:
    with made_objects(home.runtime, type(SMALL)(piece=MIB, largest=2 * MIB)) as objects:
        with running(objects) as url:
            assert code(boto(url).put_object, Key="a", Body=LARGE) == "EntityTooLarge"
        objects.collector.sweep()
    assert hidden(rig) == []


# -- who is heard, and failures -----------------------------------------------------------------------------


def test_only_who_has_the_key_is_heard(url: str, s3: Any) -> None:
    assert code(boto(url, AccessKey(KEY.id, "other")).list_objects_v2) == "SignatureDoesNotMatch"
    assert code(boto(url, AccessKey("OTHER", KEY.secret)).list_objects_v2) == "InvalidAccessKeyId"
    with pytest.raises(OSError, match="403"):
        urlopen(f"{url}/{BUCKET}")
    s3.put_object(Bucket=BUCKET, Key="a", Body=b"x")
    link = s3.generate_presigned_url("get_object", {"Bucket": BUCKET, "Key": "a"})
    assert urlopen(link).read() == b"x"
    with pytest.raises(OSError, match="403"):
        urlopen(link.replace("/a?", "/b?"))
    with pytest.raises(HTTPError, match="304") as unchanged:
        urlopen(Request(link, headers={"If-None-Match": "*"}))
    assert unchanged.value.headers["ETag"] == f'"{md5(b"x").hexdigest()}"'
    with pytest.raises(HTTPError, match="416") as beyond:
        urlopen(Request(link, headers={"Range": "bytes=1-"}))
    assert beyond.value.headers["Content-Range"] == "bytes */1"
    put = s3.generate_presigned_url("put_object", {"Bucket": BUCKET, "Key": "b"})
    urlopen(Request(put, data=b"by a link", method="PUT")).close()
    assert read(s3, "b") == b"by a link"


def test_a_clock_that_is_wrong(objects: Objects) -> None:
    with running(objects, lambda: datetime.now(UTC) + timedelta(minutes=16)) as url:
        assert code(boto(url).list_objects_v2) == "RequestTimeTooSkewed"


def test_a_body_that_is_another_one_is_refused(s3: Any) -> None:
    wrong = base64.b64encode(md5(b"y").digest()).decode()
    assert code(s3.put_object, Key="a", Body=b"x", ContentMD5=wrong) == "BadDigest"
    wrong = base64.b64encode(b"0000").decode()
    assert code(s3.put_object, Key="a", Body=b"x", ChecksumCRC32=wrong) == "BadDigest"
    assert code(s3.get_object, Key="a") == "NoSuchKey"


def test_a_body_that_breaks_off_leaves_nothing(url: str, s3: Any, objects: Objects, rig: Rig) -> None:
    link = s3.generate_presigned_url("put_object", {"Bucket": BUCKET, "Key": "a"})
    target = link.removeprefix(url)
    host, port = url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port))) as connection:
        head = f"PUT {target} HTTP/1.1\r\nHost: {host}:{port}\r\nContent-Length: {len(LARGE) + 1}\r\n\r\n"
        connection.sendall(head.encode() + LARGE)
    s3.put_object(Bucket=BUCKET, Key="b", Body=b"x")

    def is_clean() -> bool:
        objects.collector.sweep()
        return hidden(rig) == []

    until(is_clean, "the gateway to notice it")
    assert keys(s3) == ["b"]


def test_clouds_that_do_not_answer(s3: Any, rig: Rig) -> None:
    s3.put_object(Bucket=BUCKET, Key="a", Body=b"x")
    rig.cluster.behave("down")
    assert code(s3.put_object, Key="b", Body=b"x") == "ServiceUnavailable"
    assert keys(s3) == ["a"]
    rig.cluster.behave("ok")
    s3.put_object(Bucket=BUCKET, Key="b", Body=b"x")


def test_an_end_waits_for_no_cloud(rig: Rig, home: Home) -> None:
    with made_objects(home.runtime) as objects, running(objects) as url:
        s3 = boto(url)
        s3.put_object(Bucket=BUCKET, Key="a", Body=b"x")
        rig.cluster.behave("hang")
        with ThreadPoolExecutor(1) as pool:
            waits = pool.submit(code, s3.get_object, Key="a")
            rig.hanging.acquire()
            objects.close()
            assert waits.result() == "ServiceUnavailable"
        rig.release()


def test_what_there_is_not(s3: Any) -> None:
    s3.put_object(Bucket=BUCKET, Key="a", Body=b"x")
    assert code(s3.get_bucket_policy) == "NoSuchBucketPolicy"
    assert code(s3.get_bucket_acl) == "NotImplemented"
    assert code(s3.list_object_versions) == "NotImplemented"
    assert code(s3.put_object_tagging, Key="a", Tagging={"TagSet": []}) == "NotImplemented"
    assert s3.get_object_tagging(Bucket=BUCKET, Key="a")["TagSet"] == []
    assert code(s3.get_object, Key="a", VersionId="1") == "NotImplemented"


@pytest.mark.parametrize("checksum", ["CRC32", "SHA256", "SHA1"])
def test_bodies_with_checksums_behind_them(s3: Any, checksum: str) -> None:
    s3.put_object(Bucket=BUCKET, Key="a", Body=LARGE, ChecksumAlgorithm=checksum)
    assert read(s3, "a") == LARGE
