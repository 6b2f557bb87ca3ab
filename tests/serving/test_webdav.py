"""What a client of WebDAV may ask, and what it is answered. Real programs are in `test_clients.py`."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote, urlsplit

import pytest
import requests

from hybrisfs.door import DoorLimits
from serving.app import AppLimits
from tests.serving.rig import Rig, listed, running
from tests.system.deadline import until

LOCK = (
    '<?xml version="1.0"?><D:lockinfo xmlns:D="DAV:"><D:lockscope><D:exclusive/></D:lockscope>'
    "<D:locktype><D:write/></D:locktype><D:owner>me</D:owner></D:lockinfo>"
)


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    with running(tmp_path) as rig:
        yield rig


def status(answer: requests.Response) -> int:
    return answer.status_code


def test_files_come_and_go(rig: Rig) -> None:
    data = os.urandom(3 << 20)
    assert status(rig.ask("PUT", "/a%20%C3%BC", data)) == 201
    assert (rig.root / "a ü").read_bytes() == data
    assert status(rig.ask("PUT", "/a%20%C3%BC", data[:100])) == 204
    answer = rig.ask("GET", "/a%20%C3%BC")
    assert (answer.content, answer.headers["accept-ranges"]) == (data[:100], "bytes")
    part = rig.ask("GET", "/a%20%C3%BC", Range="bytes=10-19")
    assert (status(part), part.content) == (206, data[10:20])
    assert status(rig.ask("GET", "/a%20%C3%BC", If_None_Match=answer.headers["etag"])) == 304
    assert status(rig.ask("GET", "/a%20%C3%BC", Range="bytes=200-")) == 416
    assert rig.ask("HEAD", "/a%20%C3%BC").headers["content-length"] == "100"
    assert status(rig.ask("DELETE", "/a%20%C3%BC")) == 204
    assert status(rig.ask("GET", "/a%20%C3%BC")) == 404
    assert listed(rig.root) == []


def test_folders_come_and_go(rig: Rig) -> None:
    assert status(rig.ask("MKCOL", "/d")) == 201
    assert status(rig.ask("PUT", "/d/f", b"x")) == 201
    assert status(rig.ask("MKCOL", "/d/e")) == 201
    assert status(rig.ask("MKCOL", "/d")) == 405
    assert status(rig.ask("MKCOL", "/no/e")) == 409
    assert status(rig.ask("COPY", "/d/", Destination="/c")) == 201
    assert status(rig.ask("MOVE", "/d/", Destination="/m/")) == 201
    assert status(rig.ask("COPY", "/m", Destination="/n", Depth="0")) == 201
    assert sorted(str(one.relative_to(rig.root)) for one in rig.root.rglob("*")) == (
        ["c", "c/e", "c/f", "m", "m/e", "m/f", "n"]
    )
    for name in ("c", "m", "n"):
        assert status(rig.ask("DELETE", f"/{name}/")) == 204
    assert status(rig.ask("DELETE", "/")) == 403
    assert listed(rig.root) == []


def test_a_body_without_length_is_a_file_too(rig: Rig) -> None:
    """As the Finder of macOS sends them."""
    assert status(rig.ask("PUT", "/file", iter([b"x" * 100_000] * 10))) == 201
    assert (rig.root / "file").read_bytes() == b"x" * 1_000_000


def test_what_is_said_of_files_and_folders(rig: Rig) -> None:
    (rig.root / "d").mkdir()
    (rig.root / "d" / "f").write_text("12345")
    os.utime(rig.root / "d" / "f", (0, 86_400))
    (rig.root / "d" / "link").symlink_to("/etc/passwd")
    (rig.root / "d" / "._f").write_text("of a Mac")
    said = rig.ask("PROPFIND", "/d/", Depth="1")
    assert status(said) == 207
    assert "<ns0:getcontentlength>5<" in said.text
    assert "<ns0:getlastmodified>Fri, 02 Jan 1970 00:00:00 GMT<" in said.text
    assert "quota-available-bytes>" in said.text
    assert "link" not in said.text
    assert "._f" not in said.text
    assert "propfind-finite-depth" in rig.ask("PROPFIND", "/d/").text
    options = rig.ask("OPTIONS", "/d/")
    assert (options.headers["dav"], "MOVE" in options.headers["allow"]) == ("1,2", True)


@pytest.mark.parametrize("name", ["a?b", "a;b", "a#b", "a%3Fb", "ü&<>\"'"])
def test_a_move_goes_where_it_should(rig: Rig, name: str) -> None:
    """WsgiDAV alone would have moved it to `a`, over what is there."""
    (rig.root / "a").write_text("there")
    (rig.root / "x").write_text("moved")
    where = rig.url + "/" + quote(name, safe="")
    assert status(rig.ask("MOVE", "/x", Destination=where)) == 201
    assert {one.name: one.read_text() for one in rig.root.iterdir()} == {"a": "there", name: "moved"}
    assert status(rig.ask("COPY", "/a", Destination=where, Overwrite="F")) == 412
    assert status(rig.ask("COPY", "/a", Destination=where)) == 204
    assert (rig.root / name).read_text() == "there"


@pytest.mark.parametrize(
    ("source", "destination", "code"),
    [
        ("/d", "/d/e/f", 403),
        ("/d/e", "/d", 403),
        ("/d", "/d", 403),
        ("/", "/x", 403),
        ("/d", "/no/such/x", 409),
        ("/d", "http://elsewhere/x", 502),
        ("/d", "/../x", 403),
        ("/d", "/%2e%2e/x", 403),
        ("/d", "/a?b", 400),
        ("/d", "/%ff", 400),
        ("/no", "/x", 404),
    ],
)
def test_moves_that_lead_nowhere(rig: Rig, source: str, destination: str, code: int) -> None:
    (rig.root / "d" / "e").mkdir(parents=True)
    for method in ("MOVE", "COPY"):
        assert status(rig.ask(method, source, Destination=destination)) == code
    assert [one.name for one in rig.root.rglob("*")] == ["d", "e"]


def test_who_has_no_password_learns_nothing(rig: Rig) -> None:
    (rig.root / "f").write_text("secret")
    for method in ("GET", "PUT", "PROPFIND", "OPTIONS", "DELETE", "NONSENSE"):
        answer = requests.request(method, f"{rig.url}/f", timeout=60)
        assert (status(answer), "secret" in answer.text) == (401, False)
        assert answer.headers["www-authenticate"].startswith("Basic ")
    for header in ("Basic", "Basic !!!", "Basic YQ==", "Digest x", "Bearer x", "Basic /////w=="):
        answer = requests.get(f"{rig.url}/f", headers={"Authorization": header}, timeout=60)
        assert status(answer) == 401


def test_wrong_passwords_are_few(rig: Rig) -> None:
    assert status(rig.ask("GET", "/none")) == 404
    codes = [status(rig.ask("GET", "/none", password=f"wrong{number}")) for number in range(7)]
    assert codes == [401] * 5 + [429] * 2
    assert status(rig.ask("GET", "/none")) == 404  # who is known goes on


def test_a_removed_user_is_shown_out(rig: Rig) -> None:
    assert status(rig.ask("GET", "/none")) == 404
    rig.users.remove("phone")
    assert status(rig.ask("GET", "/none")) == 401


def test_a_broken_upload_leaves_nothing(rig: Rig) -> None:
    (rig.root / "f").write_text("old")
    assert status(rig.ask("GET", "/f")) == 200
    authorization = requests.auth._basic_auth_str("phone", rig.password)
    head = f"PUT /f HTTP/1.1\r\nHost: x\r\nAuthorization: {authorization}\r\nContent-Length: 1000000\r\n\r\n"
    with socket.create_connection(("127.0.0.1", urlsplit(rig.url).port)) as connection:
        connection.sendall(head.encode() + b"x" * 600_000)
        until(lambda: len(listed(rig.root)) == 2, "the upload to begin")
    until(lambda: listed(rig.root) == ["f"], "what was left of it to be gone")
    assert (rig.root / "f").read_text() == "old"


@pytest.mark.parametrize("condition", ["If-None-Match: *", "If-Match: ETAG"])
def test_conditions_hold_when_an_upload_ends(rig: Rig, condition: str) -> None:
    """What somebody else saves while it is under way is not what the client wanted to replace."""
    if "ETAG" in condition:
        (rig.root / "f").write_text("known to the client")
        condition = condition.replace("ETAG", rig.ask("GET", "/f").headers["etag"])
    authorization = requests.auth._basic_auth_str("phone", rig.password)
    said = (f"Authorization: {authorization}", "Host: x", "Content-Length: 600001", condition)
    head = "\r\n".join(("PUT /f HTTP/1.1", *said, "", ""))
    with socket.create_connection(("127.0.0.1", urlsplit(rig.url).port)) as connection:
        connection.sendall(head.encode() + b"x" * 600_000)
        until(lambda: any(one != "f" for one in listed(rig.root)), "the upload to begin")
        (rig.root / "f").write_text("saved by somebody else")
        connection.sendall(b"x")
        assert connection.recv(12) == b"HTTP/1.1 412"
    until(lambda: listed(rig.root) == ["f"], "what was left of it to be gone")
    assert (rig.root / "f").read_text() == "saved by somebody else"


def test_locks_keep_others_out(rig: Rig) -> None:
    """As Windows and macOS do before they write: they lock a name that nothing has yet."""
    locked = rig.ask("LOCK", "/f", LOCK, Timeout="Second-600")
    assert (status(locked), (rig.root / "f").read_bytes()) == (201, b"")
    token = locked.headers["lock-token"]
    assert status(rig.ask("PUT", "/f", b"x")) == 423
    assert status(rig.ask("MOVE", "/f", Destination="/g")) == 423
    assert status(rig.ask("PUT", "/f", b"x", If=f"({token})")) == 204
    assert status(rig.ask("UNLOCK", "/f", Lock_Token=token)) == 204
    assert status(rig.ask("PUT", "/f", b"y")) == 204
    (rig.root / "d").mkdir()
    (rig.root / "d" / "f").write_text("x")
    assert status(rig.ask("LOCK", "/d/f", LOCK)) == 200
    assert status(rig.ask("DELETE", "/d")) == 423
    assert (rig.root / "d" / "f").exists()


def test_windows_sets_times(rig: Rig) -> None:
    (rig.root / "f").write_text("x")
    update = (
        '<D:propertyupdate xmlns:D="DAV:" xmlns:Z="urn:schemas-microsoft-com:"><D:set><D:prop>'
        "<Z:Win32CreationTime>Thu, 01 Jan 2026 10:00:00 GMT</Z:Win32CreationTime>"
        "<Z:Win32LastModifiedTime>Thu, 01 Jan 2026 10:00:00 GMT</Z:Win32LastModifiedTime>"
        "<Z:Win32FileAttributes>00000020</Z:Win32FileAttributes></D:prop></D:set></D:propertyupdate>"
    )
    answer = rig.ask("PROPPATCH", "/f", update, User_Agent="Microsoft-WebDAV-MiniRedir/10.0.19045")
    assert (status(answer), answer.text.count("200 OK")) == (207, 1)
    assert (rig.root / "f").stat().st_mtime == 1767261600
    assert status(rig.ask("PUT", "/g", b"x", X_OC_Mtime="1000000000")) == 201
    assert (rig.root / "g").stat().st_mtime == 1_000_000_000


def test_what_macos_leaves_beside_files_stays_on_this_machine(rig: Rig) -> None:
    for name in (".DS_Store", "._photo.jpg"):
        assert status(rig.ask("PUT", f"/{name}", b"of a Mac")) == 201
        assert rig.ask("GET", f"/{name}").content == b"of a Mac"
        assert status(rig.ask("MKCOL", f"/{name}")) == 405
    assert listed(rig.root) == []
    assert status(rig.ask("MOVE", "/._photo.jpg", Destination="/._other.jpg")) == 201
    assert rig.ask("GET", "/._other.jpg").content == b"of a Mac"
    assert status(rig.ask("PUT", "/._large", b"x" * 2000)) == 413
    assert status(rig.ask("GET", "/._large")) == 404
    assert status(rig.ask("MKCOL", "/._folder")) == 403


def test_paths_that_lead_out(rig: Rig) -> None:
    for path in ("/%2e%2e/x", "/a/%2e%2e/%2e%2e/x", "/..%2fx", "/%00", "/%ff"):
        session = requests.Session()
        ready = session.prepare_request(requests.Request("GET", rig.url, auth=("phone", rig.password)))
        ready.url = rig.url + path
        assert status(session.send(ready, timeout=60)) == 400
    assert status(rig.ask("PUT", "/no/such/folder/f", b"x")) == 409


def test_documents_are_bounded_and_no_bombs(rig: Rig) -> None:
    assert status(rig.ask("PROPFIND", "/", b"x" * (2 << 20), Depth="0")) == 413
    bomb = '<?xml version="1.0"?><!DOCTYPE x [<!ENTITY a "aaaa"><!ENTITY b "&a;&a;">]><x>&b;</x>'
    assert status(rig.ask("PROPFIND", "/", bomb, Depth="0")) == 400
    outside = '<?xml version="1.0"?><!DOCTYPE x [<!ENTITY a SYSTEM "file:///etc/passwd">]><x>&a;</x>'
    answer = rig.ask("PROPFIND", "/", outside, Depth="0")
    assert (status(answer), "root:" in answer.text) == (400, False)


def test_nothing_tells_of_the_program_behind(rig: Rig) -> None:
    for answer in (rig.ask("PUT", "/f", b"x"), rig.ask("MKCOL", "/f"), rig.ask("GET", "/")):
        assert "wsgidav" not in answer.text.lower() + str(answer.headers).lower()


def test_read_only(tmp_path: Path) -> None:
    with running(tmp_path, read_only=True) as rig:
        (rig.root / "f").write_text("x")
        assert rig.ask("GET", "/f").text == "x"
        for method in ("PUT", "DELETE", "MKCOL", "PROPPATCH", "LOCK"):
            assert status(rig.ask(method, "/f")) == 405
        for method in ("MOVE", "COPY"):
            assert status(rig.ask(method, "/f", Destination="/g")) == 405
        assert rig.ask("OPTIONS", "/f").headers["dav"] == "1"
        assert listed(rig.root) == ["f"]


def test_a_client_that_takes_nothing_holds_no_thread(tmp_path: Path) -> None:
    with running(tmp_path, limits=AppLimits(workers=1, wait_seconds=0.5)) as rig:
        (rig.root / "f").write_bytes(b"x" * (64 << 20))
        assert status(rig.ask("HEAD", "/f")) == 200
        authorization = requests.auth._basic_auth_str("phone", rig.password)
        with socket.create_connection(("127.0.0.1", urlsplit(rig.url).port)) as idle:
            idle.sendall(f"GET /f HTTP/1.1\r\nHost: x\r\nAuthorization: {authorization}\r\n\r\n".encode())
            assert idle.recv(100)
            assert status(rig.ask("HEAD", "/f")) == 200


def test_many_connections_of_one_address(tmp_path: Path) -> None:
    """Those who do not log in make room for those who come."""
    with running(tmp_path, doors=DoorLimits(of_one=4, login_seconds=0.0)) as rig:
        port = urlsplit(rig.url).port
        idle = [socket.create_connection(("127.0.0.1", port)) for _ in range(12)]
        assert status(rig.ask("GET", "/none")) == 404
        for one in idle:
            one.close()
