"""The driver of rclone's remotes: the contract over several kinds of them, and what is particular to it."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from hashlib import blake2b
from pathlib import Path
from typing import TypeVar
from uuid import uuid4

import pytest
from msgspec.structs import replace

from backends.body import Timing
from backends.errors import (
    AuthError,
    CorruptError,
    FullError,
    MissingRootError,
    OversizeError,
    PermanentError,
    StoreError,
    ThrottledError,
    TransientError,
)
from backends.rclone import RcloneStore, any_shows_halves
from backends.rclone_client import RcloneClient, RefusedError
from backends.rclone_errors import rclone_error
from backends.store import Store, StoreWrapper
from tests.backends.conformance import Conformance
from tests.backends.faulty_server import Answer, AnsweringServer, FaultyProxy, Request
from tests.backends.network_conformance import NetworkConformance, every_operation
from tests.backends.rclone_remotes import Remotes, obscured, through_rclone
from tests.backends.servers import FixedCredentials, Server

T = TypeVar("T")


def opened(url: str, timing: Timing | None = None) -> Iterator[Store]:
    store = RcloneStore(url, timing=timing)
    store.initialise()
    yield store
    store.close()


class TestLocal(Conformance):
    """The contract holds on a disk."""

    many_keys = 1005

    @pytest.fixture
    def store(self, remotes: Remotes, tmp_path: Path) -> Iterator[Store]:
        yield from opened(f"rclone:disk:{tmp_path}/deep/folder")


class TestMemory(Conformance):
    """The contract holds where there are buckets and keys instead of folders."""

    @pytest.fixture
    def store(self, remotes: Remotes) -> Iterator[Store]:
        yield from opened(f"rclone:memory:bucket/{uuid4().hex}")


class TestCrypt(Conformance):
    """The contract holds at a remote upon another one, which changes names and content."""

    many_keys = 1005

    @pytest.fixture
    def store(self, remotes: Remotes, tmp_path: Path) -> Iterator[Store]:
        name = f"crypt-{uuid4().hex}"
        remotes.add(name, type="crypt", remote=f"disk:{tmp_path}", password=obscured("secret"))
        yield from opened(f"rclone:{name}:folder")


class _Behind(NetworkConformance, Conformance):
    many_keys = 120  # rclone takes its time between two requests to such servers
    rounds = 1
    guards_access = False  # rclone has the login
    patience = 3  # it takes a while to get to know a server

    def open(self, url: str, secrets: Mapping[str, str], timing: Timing | None = None) -> Store:
        # rclone has taken all of an upload before it sends it on, so that is what is waited for.
        quick = timing and replace(timing, stall=self.patience * timing.stall, slowest=300_000)
        return RcloneStore(url, FixedCredentials(secrets), quick)


class TestWebDav(_Behind):
    """The contract holds at a WebDAV server."""

    @pytest.fixture
    def server(self, webdav_server: Server, remotes: Remotes) -> Server:
        return through_rclone(webdav_server, remotes)


class _AskedAgain(StoreWrapper):
    """A store whose caller asks again, as the engine does, when a call meets an idle connection that broke
    just now: rclone does not ask again itself.
    """

    def _pass_on(self, operation: str, name: str, call: Callable[[Store], T]) -> T:
        try:
            return super()._pass_on(operation, name, call)
        except TransientError as error:
            if "connection lost" not in error.reason:
                raise
        return super()._pass_on(operation, name, call)


class TestSftp(_Behind):
    """The contract holds at an SSH server."""

    patience = 6  # after connections that failed, rclone waits up to two seconds before the next one

    def open(self, url: str, secrets: Mapping[str, str], timing: Timing | None = None) -> Store:
        return _AskedAgain(super().open(url, secrets, timing))

    @pytest.fixture
    def server(self, sftp_server: Server, remotes: Remotes) -> Server:
        return through_rclone(sftp_server, remotes)

    def test_use_from_many_threads_through_a_flaky_network(self, far: Store, proxy: FaultyProxy) -> None:
        pytest.skip(
            "after failures rclone 1.60 makes a connection every two seconds, also for given up calls"
        )


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "cloud"


@pytest.fixture
def store(remotes: Remotes, folder: Path) -> Iterator[Store]:
    """A store in `folder`."""
    yield from opened(f"rclone:disk:{folder}")


# -- what rclone says -----------------------------------------------------------------------------------


def test_an_unknown_remote_says_how_to_make_it(remotes: Remotes) -> None:
    store = RcloneStore("rclone:nowhere:folder")
    for operation in (*every_operation(store), store.initialise):
        with pytest.raises(PermanentError, match=r"no remote nowhere: .*rclone config create nowhere"):
            operation()


def test_a_wrong_password_names_the_command_that_logs_in(webdav_server: Server, remotes: Remotes) -> None:
    name = remotes.add(
        f"wrong-{webdav_server.port}",
        **{"type": "webdav", "vendor": "other", "user": "testing", "pass": obscured("wrong")},
        url=f"http://127.0.0.1:{webdav_server.port}/",
    )
    store = RcloneStore(f"rclone:{name}:folder")
    for operation in every_operation(store):
        with pytest.raises(AuthError, match=f"rclone config reconnect {name}:"):
            operation()
    # Who corrects it need not start anything again.
    text = remotes.file.read_text()
    section = text[text.index(f"[{name}]") :]
    was = next(line for line in section.splitlines() if line.startswith("pass = "))
    remotes.file.write_text(text.replace(was, f"pass = {obscured('correct horse')}"))
    store.initialise()
    store.put("object", b"data")


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        # Google Drive, OneDrive, Dropbox, pCloud, MEGA, S3, SFTP and rclone itself, in this order.
        ("googleapi: Error 403: User Rate Limit Exceeded, userRateLimitExceeded", ThrottledError),
        ("googleapi: Error 403: The quota has been exceeded, storageQuotaExceeded", FullError),
        ("googleapi: Error 403: Insufficient Permission, insufficientPermissions", AuthError),
        ("googleapi: Error 503: Service Unavailable, backendError", TransientError),
        ("activityLimitReached: The request has been throttled", ThrottledError),
        ("quotaLimitReached: Insufficient Space Available", FullError),
        ("InvalidAuthenticationToken: Access token has expired.", AuthError),
        ("too_many_requests/", ThrottledError),
        ("upload failed: path/insufficient_space/..", FullError),
        ("expired_access_token/", AuthError),
        ("pcloud error: User is over quota. (2008)", FullError),
        ("pcloud error: Log in required. (1000)", AuthError),
        ("couldn't login: Object (typically, node or user) not found", AuthError),
        ("Over quota", FullError),
        ("SlowDown: Please reduce your request rate. status code: 503", ThrottledError),
        ("AccessDenied: Access Denied status code: 403, request id: x", AuthError),
        ("couldn't connect SSH: ssh: handshake failed: ssh: unable to authenticate", AuthError),
        ("couldn't fetch token: oauth2: cannot fetch token: 400 Bad Request {invalid_grant}", AuthError),
        ("open /x: permission denied", AuthError),
        ("write /x: no space left on device", FullError),
        ("Propfind \"http://x\": dial tcp: connect: connection refused", TransientError),
        ("429 Too Many Requests", ThrottledError),
        ("read failed after 429496 bytes", TransientError),
        ("hash x-301aae: unexpected EOF", TransientError),
        ("is a directory not a file", CorruptError),
        ("something nobody has heard of", TransientError),
    ],
)  # fmt: skip
def test_a_refusal_is_sorted_by_its_words(said: str, expected: type[StoreError]) -> None:
    error = rclone_error("rclone:drive:x", "get", "object", "drive:", said)
    assert type(error) is expected
    assert error.url == "rclone:drive:x"


def test_an_expired_login_names_the_command_that_renews_it() -> None:
    said = 'couldn\'t fetch token: invalid_grant: maybe token expired? - try refreshing with "x"'
    error = rclone_error("rclone:drive:x", "get", "object", "drive:", said)
    assert error.advice == "log in again with: rclone config reconnect drive:"


# -- faults of providers --------------------------------------------------------------------------------
# The provider is a WebDAV server whose answers are prepared; rclone before it is real.


@pytest.fixture
def provider() -> Iterator[AnsweringServer]:
    with AnsweringServer(Answer(500)) as provider:
        yield provider


@pytest.fixture
def dubious(remotes: Remotes, provider: AnsweringServer) -> Iterator[RcloneStore]:
    url = f"http://{provider.authority}/"
    name = remotes.add(f"dubious-{provider.port}", type="webdav", vendor="other", url=url)
    store = RcloneStore(f"rclone:{name}:folder", timing=Timing(connect=5.0, stall=10.0))
    yield store
    store.close()


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (Answer(429), ThrottledError),
        (Answer(500), TransientError),
        (Answer(502, body=b"<html>Bad gateway"), TransientError),
        (Answer(504), TransientError),
        (Answer(401), AuthError),
        (Answer(403), AuthError),
        (Answer(507), FullError),
        (Answer(405), PermanentError),
    ],
)
def test_what_a_provider_refuses_with_comes_through(
    dubious: RcloneStore, provider: AnsweringServer, answer: Answer, expected: type[StoreError]
) -> None:
    provider.answer = answer
    for operation in every_operation(dubious):
        before = len(provider.requests)
        with pytest.raises(StoreError) as caught:
            operation()
        assert type(caught.value) is expected, caught.value
        assert len(provider.requests) == before + 1, "tried again"


def _found(name: str, size: int) -> bytes:
    """The answer to a PROPFIND for one file."""
    properties = f"<D:getcontentlength>{size}</D:getcontentlength><D:resourcetype/>"
    properties += "<D:getlastmodified>Fri, 20 Nov 2026 10:00:00 GMT</D:getlastmodified>"
    status = "<D:status>HTTP/1.1 200 OK</D:status>"
    propstat = f"<D:propstat><D:prop>{properties}</D:prop>{status}</D:propstat>"
    response = f"<D:response><D:href>{name}</D:href>{propstat}</D:response>"
    return f'<?xml version="1.0"?><D:multistatus xmlns:D="DAV:">{response}</D:multistatus>'.encode()


class _Holding:
    """A provider of one object, that misbehaves on demand."""

    def __init__(self, content: bytes, *, says: int | None = None, ranges: bool = True) -> None:
        self.content = content
        self.says = len(content) if says is None else says
        self.ranges = ranges

    def __call__(self, request: Request) -> Answer:
        if request.method == "PROPFIND":
            headers = {"Content-Type": "application/xml"}
            return Answer(207, headers, _found(request.target, self.says))
        wanted = request.headers.get("range")
        if wanted is None or not self.ranges:
            return Answer(200, body=self.content)
        first, last = (int(one) for one in wanted.removeprefix("bytes=").split("-"))
        part = self.content[first : last + 1]
        return Answer(206, {"Content-Range": f"bytes {first}-{last}/{len(self.content)}"}, part)


def test_a_provider_that_serves_ranges(dubious: RcloneStore, provider: AnsweringServer) -> None:
    provider.answer = _Holding(bytes(range(200)))
    assert dubious.get_range("object", 20, 100) == bytes(range(20, 120))


def test_of_a_provider_without_ranges_no_more_than_the_length_is_taken(
    dubious: RcloneStore, provider: AnsweringServer
) -> None:
    """rclone calls the beginning of the object a range of it; what is wrong with that, the content tells."""
    provider.answer = _Holding(bytes(range(200)), ranges=False)
    assert dubious.get_range("object", 0, 200) == bytes(range(200))
    for offset, length in ((0, 10), (20, 100)):
        with pytest.raises(TransientError):
            dubious.get_range("object", offset, length)


@pytest.mark.parametrize("content", [b"x" * 70_000, b"x" * 90_000])
def test_a_provider_that_states_a_wrong_size(
    dubious: RcloneStore, provider: AnsweringServer, content: bytes
) -> None:
    """As if the object had been replaced between two requests."""
    provider.answer = _Holding(content, says=80_000)
    with pytest.raises(StoreError):
        dubious.get("object", limit=100_000)


def test_an_object_beyond_the_limit_is_not_read(dubious: RcloneStore, provider: AnsweringServer) -> None:
    provider.answer = _Holding(b"x" * 1000, says=1 << 40)
    with pytest.raises(OversizeError):
        dubious.get("object", limit=1000)


def test_the_listing_of_a_provider_is_taken_apart_strictly(
    dubious: RcloneStore, provider: AnsweringServer
) -> None:
    for body in (b"", b"<", b"<a/>", b"\xff\xfe", _found("/folder/../../x", 1), _found("/folder/a%2Fb", 1)):
        provider.answer = Answer(207, {"Content-Type": "application/xml"}, body)
        for operation in (*every_operation(dubious), dubious.initialise):
            try:
                operation()
            except StoreError:
                continue


# -- a folder of our own --------------------------------------------------------------------------------


def test_an_empty_mount_point_is_not_taken_for_the_cloud(store: Store, folder: Path) -> None:
    store.put("dir/object", b"data")
    (folder / ".hybrisfs/root").unlink()
    for operation in every_operation(store)[:2] + every_operation(store)[8:]:
        with pytest.raises(MissingRootError, match="right remote"):
            operation()
    with pytest.raises(MissingRootError):
        store.get("missing", limit=1)


def test_one_of_several_machines_creates_an_object(remotes: Remotes, store: Store, folder: Path) -> None:
    """Whatever these have in common is at the provider."""
    others = [RcloneStore(store.url, timing=Timing(another_writer=60.0)) for _ in range(4)]
    for name in ("one", "two", "three"):
        barrier = threading.Barrier(4)

        def attempt(writer: int, name: str = name, barrier: threading.Barrier = barrier) -> bool:
            barrier.wait()
            return others[writer].put_if_absent(name, b"%d" % writer)

        with ThreadPoolExecutor(4) as pool:
            won = list(pool.map(attempt, range(4)))
        assert won.count(True) == 1
        assert store.get(name, limit=1) == b"%d" % won.index(True)
    assert [one.name for one in (folder / ".hybrisfs").iterdir()] == ["root"]


def claim_in(folder: Path, name: str, age: float) -> Path:
    claim = folder / ".hybrisfs" / f"claim-{blake2b(name.encode(), digest_size=16).hexdigest()}-0"
    claim.write_bytes(b"")
    then = claim.stat().st_mtime - age
    os.utime(claim, (then, then))
    return claim


def test_the_claim_of_a_living_writer_is_respected(store: Store, folder: Path) -> None:
    claim = claim_in(folder, "object", 200.0)
    patient = RcloneStore(store.url, timing=Timing(another_writer=0.2))
    with pytest.raises(TransientError, match="another writer"):
        patient.put_if_absent("object", b"data")
    assert claim.exists()
    assert store.list("").names == ()


def test_the_claim_of_a_dead_writer_expires(store: Store, folder: Path) -> None:
    claim = claim_in(folder, "object", 400.0)
    assert store.put_if_absent("object", b"data") is True
    assert not claim.exists()


def test_dead_writers_are_swept(remotes: Remotes, store: Store, folder: Path) -> None:
    for name, age in (("old", 25 * 3600), ("young", 23 * 3600)):
        path = folder / ".hybrisfs" / name
        path.write_bytes(b"half")
        then = path.stat().st_mtime - age
        os.utime(path, (then, then))
    RcloneStore(store.url).put("object", b"")
    assert {path.name for path in (folder / ".hybrisfs").iterdir()} == {"root", "young"}


def test_all_files_of_one_name_are_deleted(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """As at Google Drive. A fake: no remote that can be tested here holds two files of one name."""
    copies = ["newer", "older"]

    def delete(client: RcloneClient, path: str) -> None:
        if not copies:
            raise RefusedError(404, "object not found")
        copies.pop()

    monkeypatch.setattr(RcloneClient, "features", lambda _: {"DuplicateFiles": True, "Move": True})
    monkeypatch.setattr(RcloneClient, "delete", delete)
    store.delete("dir/object")
    assert copies == []


def test_something_else_in_an_objects_place(store: Store) -> None:
    store.put("dir/object", b"data")
    with pytest.raises(CorruptError):
        store.get("dir", limit=100)
    with pytest.raises(StoreError):
        store.put("dir", b"")
    assert store.get("dir/object", limit=4) == b"data"


@pytest.mark.parametrize(
    ("kind", "shows"),
    [({"type": "local"}, True), ({"type": "sftp", "host": "x"}, True), ({"type": "memory"}, False)],
)
@pytest.mark.parametrize("above", [(), ("alias",), ("crypt", "chunker")])
def test_a_remote_upon_others_shows_halves_as_the_lowest_does(
    remotes: Remotes, kind: dict[str, str], shows: bool, above: tuple[str, ...]
) -> None:
    name = remotes.add(uuid4().hex, **kind)
    for one in above:
        name = remotes.add(uuid4().hex, type=one, remote=f"{name}:folder", password=obscured("secret"))
    assert any_shows_halves(RcloneClient(f"{name}:", "x", Timing()), name) is shows


def test_a_remote_upon_itself_comes_to_an_end(remotes: Remotes) -> None:
    name = uuid4().hex
    remotes.add(name, type="alias", remote=f"{name}:folder")
    assert any_shows_halves(RcloneClient(f"{name}:", "x", Timing()), name) is True
