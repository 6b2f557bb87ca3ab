"""Who is heard, and what a browser is told about the page."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from dashboard.guard import Session, owner_of
from dashboard.server import Dashboard
from hybrisfs.environment import SYSTEM
from tests.another_user import as_another_user, only_root
from tests.dashboard.conftest import ORIGIN, PORT, Page

FACTS = ["/api/volumes", "/api/volumes/photos/traffic", "/api/kinds", "/api/jobs"]
DEEDS = [
    "/api/volumes/photos/do/pause",
    "/api/volumes/photos/do/add-cloud",
    "/api/volumes/photos/folder",
    "/api/do/place-try",
    "/api/jobs",
    "/api/jobs/1/stop",
]


@pytest.mark.parametrize("url", FACTS)
@pytest.mark.parametrize("token", ["", "wrong", "wröng"])
def test_nothing_is_told_without_the_token(page: Page, url: str, token: str) -> None:
    assert page.client.get(url, headers=[(b"X-HybrisFS-Token", token.encode())]).status_code == 401
    assert page.client.get(url).status_code == 401


@pytest.mark.parametrize("url", DEEDS)
def test_nothing_is_done_without_the_token(page: Page, url: str) -> None:
    assert page.client.post(url, json={}, headers={"Origin": ORIGIN}).status_code == 401


def test_the_code_works_once(dashboard: Dashboard, page: Page) -> None:
    again = page.post("/api/session", {"code": page.code})
    assert again.status_code == 403
    assert "used already" in again.json()["error"]


def test_a_wrong_code_opens_nothing_and_spoils_nothing(dashboard: Dashboard) -> None:
    page = Page(dashboard)
    for code in ("", "x", page.code[:-1], page.code + "x", None, 7, ["x"]):
        assert page.post("/api/session", {"code": code}).status_code == 403
    page.begin()


def test_no_token_holds_before_the_code_was_exchanged() -> None:
    session = Session()
    assert not session.holds(session._token)
    token = session.exchange(session.code)
    assert token is not None
    assert session.holds(token)
    with pytest.raises(ValueError, match="used"):
        _ = session.code


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        f"evil.example:{PORT}",
        "127.0.0.1",
        f"127.0.0.1:{PORT + 1}",
        f"127.0.0.1:{PORT}.evil",
        "",
    ],
)
@pytest.mark.parametrize("url", ["/", "/static/main.js", "/api/volumes"])
def test_names_that_were_bound_to_this_machine_read_nothing(page: Page, host: str, url: str) -> None:
    assert page.get(url, Host=host).status_code == 421


@pytest.mark.parametrize(
    "origin", ["http://evil.example", "null", f"https://127.0.0.1:{PORT}", "http://127.0.0.1"]
)
def test_other_sites_are_not_heard(page: Page, origin: str) -> None:
    assert page.get("/api/volumes", Origin=origin).status_code == 403
    assert page.post("/api/volumes/photos/do/resume", {}, Origin=origin).status_code == 403


@pytest.mark.parametrize("site", ["cross-site", "same-site"])
def test_browsers_say_that_another_site_asks(page: Page, site: str) -> None:
    assert page.get("/", **{"Sec-Fetch-Site": site}).status_code == 403


def test_a_deed_must_name_its_origin(page: Page) -> None:
    url = "/api/volumes/photos/do/resume"
    assert page.client.post(url, json={}, headers=page.headers).status_code == 403
    assert page.post(url, {}).status_code == 200


def test_forms_of_other_sites_cannot_be_json(page: Page) -> None:
    headers = {**page.headers, "Origin": ORIGIN, "Content-Type": "text/plain"}
    answer = page.client.post("/api/volumes/photos/do/resume", content="{}", headers=headers)
    assert answer.status_code == 415


@pytest.mark.parametrize("method", ["PUT", "DELETE", "OPTIONS", "HEAD", "PATCH", "TRACE"])
def test_other_methods_are_refused(page: Page, method: str) -> None:
    assert page.client.request(method, "/api/volumes", headers=page.headers).status_code == 405


@pytest.mark.parametrize("url", ["/", "/static/style.css", "/api/volumes", "/api/nothing", "/nothing"])
def test_every_answer_says_what_a_browser_may_do_with_it(page: Page, url: str) -> None:
    for answer in (page.get(url), page.get(url, Host="evil.example")):
        headers = answer.headers
        assert headers["cache-control"] == "no-store"
        policy = dict(
            one.strip().partition(" ")[::2] for one in headers["content-security-policy"].split(";")
        )
        assert policy["default-src"] == "'none'"
        assert policy["script-src"] == policy["style-src"] == policy["connect-src"] == "'self'"
        assert policy["frame-ancestors"] == policy["base-uri"] == policy["form-action"] == "'none'"
        assert policy["require-trusted-types-for"] == "'script'"
        assert "unsafe" not in headers["content-security-policy"]
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["referrer-policy"] == "no-referrer"
        assert headers["cross-origin-resource-policy"] == "same-origin"
        assert "access-control-allow-origin" not in headers
        assert "set-cookie" not in headers


def test_the_page_names_nothing_outside_and_has_nothing_inline(page: Page) -> None:
    static = Path(__file__).resolve().parents[2] / "dashboard" / "static"
    for path in static.iterdir():
        text = (
            path.read_text()
            .replace("http://www.w3.org/2000/svg", "")
            .replace("etcd://HOSTS", "")
            .replace("zookeeper://HOSTS", "")
        )
        assert "://" not in text, path.name
        answer = page.client.get(f"/static/{path.name}")
        assert (answer.status_code, answer.text) == (200, path.read_text())
        for sink in (
            "innerHTML",
            "outerHTML",
            "insertAdjacentHTML",
            "document.write",
            "eval(",
            "new Function",
        ):
            assert sink not in text, path.name
    html = (static / "index.html").read_text()
    assert "<style" not in html
    assert "style=" not in html
    assert "<script>" not in html
    named = [line.split('"')[3] for line in html.splitlines() if "modulepreload" in line]
    scripts = {f"/static/{path.name}" for path in static.glob("*.js")}
    assert set(named) == scripts


@pytest.mark.parametrize(
    "path", ["/static/../guard.py", "/static/%2e%2e/guard.py", "/static//etc/passwd", "/static/"]
)
def test_nothing_else_is_served(page: Page, path: str) -> None:
    assert page.get(path).status_code in (404, 307)


def test_the_kernel_knows_whose_a_connection_is() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address: tuple[str, int] = listener.getsockname()
        with socket.create_connection(address) as client, listener.accept()[0]:
            other: tuple[str, int] = client.getsockname()
            assert owner_of(other, address) == os.getuid()
            assert owner_of(address, (other[0], other[1] ^ 1)) is None


@only_root
def test_another_user_is_refused_the_code(served: object) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        dashboard = Dashboard(listener.getsockname()[1], SYSTEM)
        with as_another_user():
            theirs = socket.create_connection(listener.getsockname())
        with theirs, listener.accept()[0]:
            page = Page(dashboard, client=theirs.getsockname())
            answer = page.post("/api/session", {"code": page.code})
        assert answer.status_code == 403
        assert "Another user" in answer.json()["error"]
        Page(dashboard).begin()


@pytest.mark.parametrize(
    "text", ["", "garbage", "header\nx y z\n", "header\n1: 0100007F:1F90 0100007F:C350 01\n"]
)
def test_a_strange_table_of_connections_names_nobody(tmp_path: Path, text: str) -> None:
    table = tmp_path / "tcp"
    table.write_text(text)
    assert owner_of(("127.0.0.1", 8080), ("127.0.0.1", 50000), table) is None
    assert owner_of(("127.0.0.1", 8080), ("127.0.0.1", 50000), tmp_path / "missing") is None
