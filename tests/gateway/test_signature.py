"""Signatures: the examples of AWS's documentation, and what must not pass for one."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from hashlib import sha256
from urllib.parse import quote, urlsplit

import pytest
from botocore.auth import S3SigV4Auth, S3SigV4QueryAuth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
from hypothesis import given
from hypothesis import strategies as st

from gateway.errors import S3Error
from gateway.signature import UNSIGNED, AccessKey, Verified, Verifier, parse_query

EXAMPLE = AccessKey("AKIAIOSFODNN7EXAMPLE", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY")
MOMENT = datetime(2013, 5, 24, tzinfo=UTC)
SCOPE = "20130524/us-east-1/s3/aws4_request"
EMPTY = sha256(b"").hexdigest()
HOST = "examplebucket.s3.amazonaws.com"


def verifier(now: datetime = MOMENT, key: AccessKey = EXAMPLE) -> Verifier:
    return Verifier(key, lambda: now)


def authorization(names: str, signature: str, key: str = EXAMPLE.id) -> str:
    return f"AWS4-HMAC-SHA256 Credential={key}/{SCOPE},SignedHeaders={names},Signature={signature}"


def get_object(**changes: str) -> dict[str, str]:
    """The first example of "Authenticating Requests: Using the Authorization Header"."""
    return {
        "host": HOST,
        "range": "bytes=0-9",
        "x-amz-content-sha256": EMPTY,
        "x-amz-date": "20130524T000000Z",
        "authorization": authorization(
            "host;range;x-amz-content-sha256;x-amz-date",
            "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41",
        ),
        **changes,
    }


def test_get_object() -> None:
    assert verifier().check("GET", b"/test.txt", b"", get_object()).payload == EMPTY


def test_put_object() -> None:
    content = "44ce7dd67c959e0d3524ffac1771dfbba87d2b6b4b4e99e42034a8b803f8b072"
    headers = {
        "date": "Fri, 24 May 2013 00:00:00 GMT",
        "host": HOST,
        "x-amz-content-sha256": content,
        "x-amz-date": "20130524T000000Z",
        "x-amz-storage-class": "REDUCED_REDUNDANCY",
        "authorization": authorization(
            "date;host;x-amz-content-sha256;x-amz-date;x-amz-storage-class",
            "98ad721746da40c64f1a55b78f14c238d841ea1380cd77a1b5971af0ece108bd",
        ),
    }
    assert verifier().check("PUT", b"/test%24file.text", b"", headers).payload == content


def test_queries() -> None:
    names = "host;x-amz-content-sha256;x-amz-date"
    for query, signature in (
        (b"lifecycle", "fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543"),
        (b"max-keys=2&prefix=J", "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7"),
    ):
        headers = get_object(authorization=authorization(names, signature))
        verifier().check("GET", b"/", query, headers)


LINK = (
    b"X-Amz-Algorithm=AWS4-HMAC-SHA256"
    b"&X-Amz-Credential=AKIAIOSFODNN7EXAMPLE%2F20130524%2Fus-east-1%2Fs3%2Faws4_request"
    b"&X-Amz-Date=20130524T000000Z&X-Amz-Expires=86400&X-Amz-SignedHeaders=host"
    b"&X-Amz-Signature=aeeed9bbccd4d02ee5c0109b86d86835f995330da4c265957d157751f604d404"
)


def test_a_presigned_link() -> None:
    headers = {"host": HOST}
    for later in (timedelta(0), timedelta(days=1), timedelta(minutes=-15)):
        assert verifier(MOMENT + later).check("GET", b"/test.txt", LINK, headers).payload == UNSIGNED
    for later, code in (
        (timedelta(days=1, seconds=1), "AccessDenied"),
        (timedelta(minutes=-15, seconds=-1), "RequestTimeTooSkewed"),
    ):
        assert refused("GET", b"/test.txt", LINK, headers, MOMENT + later) == code
    assert refused("PUT", b"/test.txt", LINK, headers) == "SignatureDoesNotMatch"
    for wrong in (b"604801", b"0", b"-1", b"x", b""):
        link = LINK.replace(b"86400", wrong)
        assert refused("GET", b"/test.txt", link, headers) == "AuthorizationQueryParametersError"


def refused(
    method: str, path: bytes, query: bytes, headers: dict[str, str], now: datetime = MOMENT
) -> str | None:
    try:
        verifier(now).check(method, path, query, headers)
    except S3Error as error:
        return error.code
    return None


@pytest.mark.parametrize("later", [timedelta(minutes=15), timedelta(minutes=-15)])
def test_clocks_may_differ_by_15_minutes(later: timedelta) -> None:
    beyond = later + (timedelta(seconds=1) if later > timedelta(0) else timedelta(seconds=-1))
    assert refused("GET", b"/test.txt", b"", get_object(), MOMENT + later) is None
    assert refused("GET", b"/test.txt", b"", get_object(), MOMENT + beyond) == "RequestTimeTooSkewed"


@pytest.mark.parametrize(
    ("method", "path", "query", "changes"),
    [
        ("HEAD", b"/test.txt", b"", {}),
        ("GET", b"/test.txt/", b"", {}),
        ("GET", b"/test.txt", b"acl", {}),
        ("GET", b"/test.txt", b"", {"range": "bytes=0-10"}),
        ("GET", b"/test.txt", b"", {"host": "elsewhere"}),
        ("GET", b"/test.txt", b"", {"x-amz-date": "20130524T000001Z"}),
        ("GET", b"/test.txt", b"", {"x-amz-content-sha256": UNSIGNED}),
    ],
)
def test_what_is_signed_cannot_be_changed(
    method: str, path: bytes, query: bytes, changes: dict[str, str]
) -> None:
    assert refused(method, path, query, get_object(**changes)) == "SignatureDoesNotMatch"


def test_who_is_not_heard() -> None:
    def code(**changes: str) -> str | None:
        headers = get_object(**changes)
        return refused("GET", b"/test.txt", b"", {name: one for name, one in headers.items() if one})

    names, signature = "host;range;x-amz-content-sha256;x-amz-date", "0" * 64
    assert code(authorization="") == "AccessDenied"
    assert code(authorization=authorization(names, signature, "AKIAOTHER")) == "InvalidAccessKeyId"
    assert code(authorization=authorization(names, signature)) == "SignatureDoesNotMatch"
    assert (
        code(authorization=authorization("range;x-amz-content-sha256;x-amz-date", signature))
        == "AccessDenied"
    )
    assert code(**{"x-amz-meta-added": "later"}) == "AccessDenied"
    assert code(authorization="AWS AKIAIOSFODNN7EXAMPLE:signature") == "InvalidRequest"
    assert code(authorization="AWS4-HMAC-SHA256 Credential=x") == "AuthorizationHeaderMalformed"
    assert code(authorization=authorization(names, "f0")) == "AuthorizationHeaderMalformed"
    assert code(**{"x-amz-content-sha256": ""}) == "InvalidRequest"
    assert code(**{"x-amz-date": "20130525T000000Z"}) == "AuthorizationHeaderMalformed"
    elsewhere = authorization(names, signature).replace("/s3/", "/ec2/")
    assert code(authorization=elsewhere) == "AuthorizationHeaderMalformed"


TEXT = st.text(st.characters(exclude_categories=["Cs", "Cc"]), max_size=20)


@given(path=TEXT, query=st.dictionaries(TEXT.filter(bool), TEXT, max_size=4), link=st.booleans())
def test_it_agrees_with_botocore(path: str, query: dict[str, str], link: bool) -> None:
    url = f"http://localhost:9000/{quote(f'box/{path}', safe='/~')}"
    pairs = "&".join(
        f"{quote(name, safe='-_.~')}={quote(value, safe='-_.~')}" for name, value in query.items()
    )
    request = AWSRequest("GET", f"{url}?{pairs}" if pairs else url)
    credentials = Credentials(EXAMPLE.id, EXAMPLE.secret)
    kind = S3SigV4QueryAuth if link else S3SigV4Auth
    kind(credentials, "s3", "us-east-1").add_auth(request)
    headers = {name.lower(): str(value) for name, value in request.headers.items()}
    split = urlsplit(request.url)
    headers |= {"host": split.netloc}
    found = Verifier(EXAMPLE).check("GET", split.path.encode(), split.query.encode(), headers)
    assert found.payload in (UNSIGNED, EMPTY)


@given(
    authorization=st.text(max_size=80) | st.text(max_size=60).map("AWS4-HMAC-SHA256 Credential={}".format),
    query=st.binary(max_size=60) | st.binary(max_size=60).map((LINK + b"&").__add__),
    date=st.text(max_size=20),
)
def test_nonsense_is_refused(authorization: str, query: bytes, date: str) -> None:
    headers = get_object(authorization=authorization, **{"x-amz-date": date})
    with pytest.raises(S3Error):
        verifier().check("GET", b"/test.txt", query, headers)


def test_a_link_of_the_last_day_there_is_is_refused() -> None:
    query = (
        f"X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Credential={EXAMPLE.id}/99991231/us-east-1/s3/aws4_request"
        f"&X-Amz-Date=99991231T235959Z&X-Amz-Expires=604800&X-Amz-SignedHeaders=host&X-Amz-Signature={EMPTY}"
    )
    with pytest.raises(S3Error, match="the clocks differ"):
        verifier().check("GET", b"/test.txt", query.encode(), {"host": HOST})


def test_parameters_are_decoded() -> None:
    assert parse_query(b"a=1&b&&c=%20+%2B=") == [("a", "1"), ("b", ""), ("c", "  +=")]
    with pytest.raises(S3Error, match="UTF-8"):
        parse_query(b"a=%FF")


def seed() -> Verified:
    """The request of "Transferring Payload in Multiple Chunks"."""
    headers = {
        "host": "s3.amazonaws.com",
        "x-amz-date": "20130524T000000Z",
        "x-amz-storage-class": "REDUCED_REDUNDANCY",
        "authorization": authorization(
            "content-encoding;content-length;host;x-amz-content-sha256;x-amz-date;"
            "x-amz-decoded-content-length;x-amz-storage-class",
            "4f232c4386841ef735655705268965c44a0e4690baa4adea153f7db9fa80a0a9",
        ),
        "x-amz-content-sha256": "STREAMING-AWS4-HMAC-SHA256-PAYLOAD",
        "content-encoding": "aws-chunked",
        "x-amz-decoded-content-length": "66560",
        "content-length": "66824",
    }
    return verifier().check("PUT", b"/examplebucket/chunkObject.txt", b"", headers)


def test_the_seed_of_chunks() -> None:
    assert seed().scope == SCOPE
