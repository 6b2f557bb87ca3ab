"""The S3 driver: the contract, and what is particular to S3."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping

import pytest

from backends.body import Timing
from backends.errors import AuthError, CorruptError, PermanentError
from backends.s3 import S3Store
from backends.store import Store
from tests.backends.conformance import Conformance
from tests.backends.faulty_server import Answer, AnsweringServer, Request
from tests.backends.network_conformance import HttpConformance
from tests.backends.servers import FixedCredentials, Server


def error_answer(status: int, code: str, message: str = "") -> Answer:
    body = f"<Error><Code>{code}</Code><Message>{message}</Message></Error>"
    return Answer(status, {"Content-Type": "application/xml"}, body.encode())


class TestS3Store(HttpConformance, Conformance):
    """The contract holds."""

    clock_skew = error_answer(403, "RequestTimeTooSkewed", "too large")

    @pytest.fixture
    def server(self, s3_server: Server) -> Server:
        return s3_server

    def open(self, url: str, secrets: Mapping[str, str], timing: Timing | None = None) -> Store:
        return S3Store(url, FixedCredentials(secrets), timing)


@pytest.fixture
def prepared() -> Iterator[AnsweringServer]:
    with AnsweringServer(Answer()) as prepared:
        yield prepared


@pytest.fixture
def dubious(prepared: AnsweringServer) -> S3Store:
    """A store whose every answer is prepared."""
    keys = {"access_key_id": "key", "secret_access_key": "secret"}
    return S3Store(f"s3://bucket/f?endpoint=http://{prepared.authority}", FixedCredentials(keys))


def objects_in_memory(ignoring_conditions: bool) -> Callable[[Request], Answer]:
    """A service that keeps what it gets; it ignores If-None-Match, or says that it does not know it."""
    kept: dict[str, bytes] = {}

    def answer(request: Request) -> Answer:
        key = request.target.partition("?")[0]
        if request.method == "PUT":
            if "if-none-match" in request.headers and not ignoring_conditions:
                return error_answer(501, "NotImplemented")
            kept[key] = request.body
            return Answer()
        if request.method == "DELETE":
            kept.pop(key, None)
            return Answer(204, declared=None)
        return Answer(body=kept[key]) if key in kept else error_answer(404, "NoSuchKey")

    return answer


@pytest.mark.parametrize("ignoring", [True, False])
def test_put_if_absent_where_conditions_do_not_work(
    dubious: S3Store, prepared: AnsweringServer, ignoring: bool
) -> None:
    prepared.answer = objects_in_memory(ignoring)
    assert dubious.put_if_absent("object", b"first") is True
    assert dubious.put_if_absent("object", b"second") is False
    assert dubious.get("object", limit=10) == b"first"
    left = [request.target for request in prepared.requests if "create-only" in request.target]
    assert len(set(left)) == 1, "it is tried out once"
    assert prepared.requests[len(left) - 1].method == "DELETE", "and leaves nothing behind"


def test_no_round_trip_is_spent_on_asking_for_leave(dubious: S3Store, prepared: AnsweringServer) -> None:
    dubious.put("object", b"x" * 100_000)
    assert ["expect" in request.headers for request in prepared.requests] == [False]


def test_a_bucket_elsewhere_is_told_with_its_region(dubious: S3Store, prepared: AnsweringServer) -> None:
    prepared.answer = Answer(301, {"x-amz-bucket-region": "eu-north-1", "Location": "http://127.0.0.1:9/"})
    with pytest.raises(PermanentError, match="eu-north-1"):
        dubious.get("object", limit=1)


def page(*keys: str, token: str = "") -> Answer:
    contents = "".join(f"<Contents><Key>{key}</Key><Size>1</Size></Contents>" for key in keys)
    more = f"<IsTruncated>true</IsTruncated><NextContinuationToken>{token}</NextContinuationToken>"
    body = f"<ListBucketResult>{more if token else ''}{contents}</ListBucketResult>"
    return Answer(200, {"Content-Type": "application/xml"}, body.encode())


def test_foreign_objects_are_passed_over(dubious: S3Store, prepared: AnsweringServer) -> None:
    pages = iter([page("f/.x", "f/A", "f/a", token="1"), page("f/a//b", "other/c", token="2"), page("f/b")])
    prepared.answer = lambda request: next(pages)
    assert dubious.list("").names == ("a", "b")


@pytest.mark.parametrize("answers", [[page("f/b", "f/a")], [page("f/b", token="1"), page("f/a", token="2")]])
def test_a_listing_that_goes_backwards_is_refused(
    dubious: S3Store, prepared: AnsweringServer, answers: list[Answer]
) -> None:
    pages = iter(answers)
    prepared.answer = lambda request: next(pages)
    with pytest.raises(CorruptError, match="order"):
        dubious.list("")


def test_a_listing_that_goes_round_in_circles_ends(dubious: S3Store, prepared: AnsweringServer) -> None:
    prepared.answer = page("f/A", token="1")
    with pytest.raises(CorruptError, match="end"):
        dubious.list("")


@pytest.mark.parametrize("url", ["s3://bucket:1/x", "s3://me@bucket/x", "s3://bucket?addressing=odd"])
def test_malformed_urls(url: str) -> None:
    with pytest.raises(PermanentError):
        S3Store(url)


def test_a_slip_in_the_credentials_is_told(prepared: AnsweringServer) -> None:
    store = S3Store("s3://bucket", FixedCredentials({"acces_key_id": "x"}))
    with pytest.raises(AuthError, match="acces_key_id"):
        store.list("")


def test_opening_loads_no_sdk() -> None:
    """Most volumes need one kind of cloud; a start that loads all of them takes seconds."""
    program = (
        "import sys; from backends.registry import drivers, open_store\n"
        "for driver in drivers():\n"
        "    open_store(driver.kind.form.lower().replace('hash', '0' * 64))\n"
        "print([n for n in ('boto3', 'botocore', 'google.cloud.storage', 'azure', 'paramiko', 'keyring')"
        " if n in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
