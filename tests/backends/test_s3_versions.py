"""Older versions of objects on a real S3 server: kept, read, and destroyed only by whoever may."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from backends.errors import AuthError, CorruptError, MissingError, OversizeError, PermanentError
from backends.s3 import S3Store
from backends.versions import MAX_VERSIONS, Policy, versions_of
from tests.backends.buckets import BUCKET, DELETES, READS, WRITES, allow, client
from tests.backends.faulty_server import Answer, AnsweringServer, Request
from tests.backends.servers import ORDINARY, FixedCredentials, Server
from tests.backends.test_s3 import error_answer


@pytest.fixture
def url(s3_server: Server) -> str:
    return s3_server.url()


@pytest.fixture
def store(s3_server: Server, url: str) -> S3Store:
    """An administrator's."""
    store = S3Store(url, FixedCredentials(s3_server.secrets))
    store.initialise()
    return store


@pytest.fixture
def ordinary(s3_server: Server, url: str, store: S3Store) -> S3Store:
    """An ordinary device's, which may delete objects but no versions of them."""
    store.versions.keep(30)
    allow(s3_server, url, DELETES)
    return S3Store(url, FixedCredentials(ORDINARY))


def test_the_driver_has_versions(store: S3Store) -> None:
    assert versions_of(store) is store.versions


def test_what_was_overwritten_and_deleted_can_be_read(ordinary: S3Store) -> None:
    ordinary.put("packs/a", b"first")
    ordinary.put("packs/a", b"second!")
    ordinary.put("packs/ab", b"another")
    ordinary.delete("packs/a")
    with pytest.raises(MissingError):
        ordinary.get("packs/a", limit=10)
    second, first = ordinary.versions.of("packs/a")
    assert (second.size, first.size) == (7, 5)
    assert ordinary.versions.get("packs/a", second.id, limit=10) == b"second!"
    assert ordinary.versions.get("packs/a", first.id, limit=10) == b"first"
    assert ordinary.versions.get_range("packs/a", first.id, 1, 3) == b"irs"


def test_names_of_what_was_deleted_are_told(ordinary: S3Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("backends.s3_versions._PAGE", 2)
    for name in ("log/a", "log/b", "log/c", "heads/a"):
        ordinary.put(name, b"1")
        ordinary.put(name, b"2")
    ordinary.delete_many(["log/a", "log/c"])
    assert ordinary.versions.names("log/") == ("log/a", "log/b", "log/c")
    assert ordinary.versions.names("packs/") == ()


def test_versions_are_as_bounded_as_objects(ordinary: S3Store) -> None:
    ordinary.put("a", b"0123456789")
    (only,) = ordinary.versions.of("a")
    with pytest.raises(OversizeError):
        ordinary.versions.get("a", only.id, limit=9)
    with pytest.raises(CorruptError):
        ordinary.versions.get_range("a", only.id, 8, 3)
    with pytest.raises(ValueError, match="negative"):
        ordinary.versions.get_range("a", only.id, -1, 3)
    for name in ("of", "destroy"):
        with pytest.raises(ValueError, match="not a legal"):
            getattr(ordinary.versions, name)("../a")


def test_no_more_versions_are_listed_than_are_looked_at(ordinary: S3Store) -> None:
    for number in range(MAX_VERSIONS + 4):
        ordinary.put("a", b"%d" % number)
    listed = [ordinary.versions.get("a", one.id, limit=10) for one in ordinary.versions.of("a")]
    half = MAX_VERSIONS // 2
    assert listed[:half] == [b"%d" % (MAX_VERSIONS + 3 - number) for number in range(half)]
    assert listed[half:] == [b"%d" % (half - 1 - number) for number in range(half)]


def test_versions_are_listed_page_by_page(ordinary: S3Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("backends.s3_versions._PAGE", 3)
    for number in range(8):
        ordinary.put("a", b"%d" % number)
        ordinary.put("ab", b"another")
    listed = [ordinary.versions.get("a", one.id, limit=10) for one in ordinary.versions.of("a")]
    assert listed == [b"%d" % number for number in range(7, -1, -1)]


def test_a_version_that_is_not_there_is_missing(ordinary: S3Store) -> None:
    ordinary.put("a", b"x")
    (gone,) = ordinary.versions.of("a")
    ordinary.put("b", b"x")
    with pytest.raises(MissingError):
        ordinary.versions.get("b", gone.id, limit=10)


def test_what_was_deleted_is_absent(ordinary: S3Store) -> None:
    assert ordinary.put_if_absent("a", b"one")
    ordinary.delete("a")
    assert ordinary.put_if_absent("a", b"two")
    assert not ordinary.put_if_absent("a", b"three")
    assert ordinary.get("a", limit=5) == b"two"


def test_only_who_may_destroys_versions(store: S3Store, ordinary: S3Store) -> None:
    ordinary.put("a", b"precious")
    ordinary.delete("a")
    with pytest.raises(AuthError):
        ordinary.versions.destroy("a")
    assert [ordinary.versions.get("a", one.id, limit=10) for one in ordinary.versions.of("a")] == [
        b"precious"
    ]
    assert store.versions.destroy("a")
    assert store.versions.of("a") == ()


def test_only_who_may_changes_what_is_kept(store: S3Store, ordinary: S3Store) -> None:
    assert store.versions.may_change() is True
    assert ordinary.versions.may_change() is False
    with pytest.raises(AuthError) as refused:
        ordinary.versions.keep(7)
    assert "s3:PutBucketVersioning" in refused.value.reason
    assert "aws s3api put-bucket-versioning --bucket" in refused.value.advice
    with pytest.raises(AuthError):
        ordinary.versions.stop_keeping()


def test_a_lock_is_told_of_and_no_refusal_of_rights(s3_server: Server, url: str) -> None:
    bucket = url.partition("://")[2].partition("?")[0]
    client(s3_server, url).create_bucket(Bucket=bucket, ObjectLockEnabledForBucket=True)
    rule = {"DefaultRetention": {"Mode": "COMPLIANCE", "Days": 3}}
    client(s3_server, url).put_object_lock_configuration(
        Bucket=bucket, ObjectLockConfiguration={"ObjectLockEnabled": "Enabled", "Rule": rule}
    )
    store = S3Store(url, FixedCredentials(s3_server.secrets))
    assert "nobody can destroy what was written in the last 3 days" in store.versions.policy().note
    store.put("a", b"locked")
    store.delete("a")
    assert not store.versions.destroy("a")


def test_who_may_not_delete_cannot(s3_server: Server, url: str, ordinary: S3Store) -> None:
    allow(s3_server, url, WRITES)
    assert ordinary.put_if_absent("a", b"x")
    with pytest.raises(AuthError):
        ordinary.delete("a")
    with pytest.raises(AuthError):
        ordinary.delete_many(["a"])
    with pytest.raises(AuthError):
        ordinary.versions.destroy("a")
    assert ordinary.get("a", limit=1) == b"x"


def test_a_bucket_says_what_it_is_set_to(store: S3Store) -> None:
    assert store.versions.policy() == Policy(False)
    assert store.versions.may_change() is None
    # This server has no lifecycle rules.
    assert "until somebody deletes it" in store.versions.keep(30)
    assert store.versions.policy() == Policy(True, None, "no rule ends that")
    store.versions.stop_keeping()
    assert store.versions.policy() == Policy(False)


def test_who_may_not_ask_does_not_know(s3_server: Server, url: str, ordinary: S3Store) -> None:
    allow(s3_server, url, DELETES, ["s3:ListBucket"])
    assert ordinary.versions.policy().on is None


def test_the_policy_in_the_docs_is_the_one_that_is_tested_here() -> None:
    page = (Path(__file__).resolve().parents[2] / "docs/how-to.md").read_text()
    policy = json.loads(page.split("```json\n")[1].split("```")[0])
    assert [one["Action"] for one in policy["Statement"]] == [
        [*BUCKET],
        [*READS, "s3:PutObject", "s3:DeleteObject"],
    ]
    assert {*READS, "s3:PutObject", "s3:DeleteObject"} == {*DELETES}


# A service whose answers are prepared: the server above has no lifecycle rules.


class Rules:
    """Keeps versioning and lifecycle rules, as S3 does; `denied` are the methods that are refused."""

    def __init__(self, rules: str = "") -> None:
        self.rules = rules
        self.least = "varies_by_storage_class"
        self.denied: set[str] = set()

    def __call__(self, request: Request) -> Answer:
        method, query = request.method, request.target.partition("?")[2]
        if f"{method} {query}" in self.denied:
            return error_answer(403, "AccessDenied")
        if query == "versioning":
            return answer("VersioningConfiguration", "<Status>Enabled</Status>")
        if query == "object-lock":
            return error_answer(404, "ObjectLockConfigurationNotFoundError")
        if method == "PUT":
            self.rules = request.body.decode()
            self.least = request.headers.get("x-amz-transition-default-minimum-object-size", "")
            return Answer(200)
        if not self.rules:
            return error_answer(404, "NoSuchLifecycleConfiguration")
        headers = {
            "Content-Type": "application/xml",
            "x-amz-transition-default-minimum-object-size": self.least,
        }
        return Answer(200, headers, self.rules.encode())


def answer(name: str, content: str) -> Answer:
    return Answer(200, {"Content-Type": "application/xml"}, f"<{name}>{content}</{name}>".encode())


OTHERS = (
    "<LifecycleConfiguration><Rule><ID>logs</ID><Status>Enabled</Status><Filter><Prefix>logs/</Prefix></Filter>"
    "<NoncurrentVersionExpiration><NoncurrentDays>2</NoncurrentDays></NoncurrentVersionExpiration></Rule>"
    "</LifecycleConfiguration>"
)

Opened = Callable[[Rules], S3Store]


def opened(server: AnsweringServer) -> S3Store:
    keys = {"access_key_id": "key", "secret_access_key": "secret"}
    return S3Store(f"s3://bucket/f?endpoint=http://{server.authority}", FixedCredentials(keys))


def test_a_rule_ends_what_is_kept_and_rules_of_others_stay() -> None:
    rules = Rules(OTHERS)
    with AnsweringServer(rules) as server:
        store = opened(server)
        assert store.versions.policy() == Policy(True, None, "no rule ends that")
        assert store.versions.keep(30) == ""
        assert store.versions.policy() == Policy(True, 30)
        store.versions.keep(14)
        assert store.versions.policy() == Policy(True, 14)
    assert rules.rules.count("<ID>") == 2
    assert rules.least == "varies_by_storage_class"
    assert "<ID>logs</ID>" in rules.rules
    assert "<ID>hybrisfs f/</ID>" in rules.rules


def test_rules_of_others_that_concern_ours_count() -> None:
    with AnsweringServer(Rules(OTHERS.replace("logs/", ""))) as server:
        store = opened(server)
        store.versions.keep(30)
        assert store.versions.policy() == Policy(True, 2)


def test_the_rule_that_is_lacking_is_written_for_an_administrator() -> None:
    rules = Rules(OTHERS)
    rules.denied = {"PUT lifecycle"}
    with AnsweringServer(rules) as server, pytest.raises(AuthError) as refused:
        opened(server).versions.keep(30)
    assert "s3:PutLifecycleConfiguration" in refused.value.reason
    words = refused.value.advice.split("--lifecycle-configuration '")[1].split("'")[0]
    assert [one["ID"] for one in json.loads(words)["Rules"]] == ["logs", "hybrisfs f/"]


def test_who_may_change_rules_alone_may_change_what_is_kept() -> None:
    rules = Rules(OTHERS)
    rules.denied = {"PUT versioning"}
    with AnsweringServer(rules) as server:
        assert opened(server).versions.may_change() is True
        rules.denied |= {"PUT lifecycle"}
        assert opened(server).versions.may_change() is False
        rules.rules, rules.denied = "", {"PUT versioning"}
        assert opened(server).versions.may_change() is None  # there is no rule to set again


def test_a_service_that_lists_what_was_destroyed_for_ever_ends_nothing() -> None:
    listed = "".join(
        f"<{kind}><Key>f/a</Key><VersionId>{kind}</VersionId></{kind}>"
        for kind in ("DeleteMarker", "Version")
    )

    def always(request: Request) -> Answer:
        return Answer(204) if request.method == "DELETE" else answer("ListVersionsResult", listed)

    with AnsweringServer(always) as server:
        assert not opened(server).versions.destroy("a")


def test_the_marker_of_a_page_is_the_services_own_affair() -> None:
    """MinIO's is not a name."""

    def paged(request: Request) -> Answer:
        second = (
            "key-marker=f%2Fa%5Bminio_cache" in request.target and "version-id-marker=new" in request.target
        )
        more = (
            "<IsTruncated>false</IsTruncated>"
            if second
            else "<IsTruncated>true</IsTruncated><NextKeyMarker>f/a[minio_cache:v2]</NextKeyMarker>"
            "<NextVersionIdMarker>new</NextVersionIdMarker>"
        )
        version = f"<Version><Key>f/a</Key><VersionId>{'old' if second else 'new'}</VersionId></Version>"
        return answer("ListVersionsResult", more + version)

    with AnsweringServer(paged) as server:
        assert [one.id for one in opened(server).versions.of("a")] == ["new", "old"]
        assert opened(server).versions.names("") == ("a",)


def test_a_service_without_versions_says_so() -> None:
    with AnsweringServer(error_answer(501, "NotImplemented")) as server:
        assert opened(server).versions.policy() == Policy(False)
        with pytest.raises(PermanentError, match="does not keep versions"):
            opened(server).versions.keep(30)
