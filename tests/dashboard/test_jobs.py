"""Long work goes on while the page comes and goes, and can be stopped."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from dashboard.server import Dashboard
from hybrisfs.daemon.service import Daemon
from hybrisfs.environment import Environment
from tests.daemon.fake import CODE, COMPARISON, FakeVolumes
from tests.daemon.fake_clouds import DRAWN
from tests.dashboard.conftest import Page
from tests.system.deadline import until


def job(page: Page) -> dict[str, Any]:
    return dict(page.facts("/api/jobs")["jobs"][0])


def test_a_scrub_and_its_outcome(page: Page, volumes: FakeVolumes) -> None:
    page.facts("/api/volumes")
    problems = [{"cloud": "amber", "what": str(number), "kind": "missing"} for number in range(500)]
    volumes.opened["photos"].maintenance.facts = {"wrong": 500, "problems": problems, "clouds": []}
    assert page.post("/api/jobs", {"kind": "scrub", "volume": "photos", "sample": 5}).json() == {"id": 1}
    done = until(lambda: job(page)["state"] == "done" and job(page), "the end")
    assert isinstance(done, dict)
    assert volumes.opened["photos"].maintenance.percent == 5
    assert (done["result"]["wrong"], len(done["result"]["problems"])) == (500, 100)


def test_one_that_fails(page: Page) -> None:
    page.post("/api/jobs", {"kind": "scrub", "volume": "unknown"})
    until(lambda: job(page)["state"] == "failed", "the failure")
    assert "unknown" in job(page)["error"]


def test_a_volume_is_brought_back_and_the_passphrase_told_nowhere(page: Page, volumes: FakeVolumes) -> None:
    wrong = "a wrong one that opens nothing"
    for passphrase, state in ((wrong, "failed"), (DRAWN, "done")):
        body = {"kind": "recover", "volume": "", "clouds": ["file:///a"], "as_name": "back"}
        answer = page.post("/api/jobs", {**body, "passphrase": passphrase})
        until(lambda state=state: job(page)["state"] == state, "the end")  # type: ignore[misc]
        assert passphrase not in answer.text + page.get("/api/jobs").text
    assert "is wrong" in page.facts("/api/jobs")["jobs"][1]["error"]
    assert job(page)["result"]["volume"]["name"] == "back"
    assert "back" in volumes.configs


def test_stopping(page: Page, served: Daemon, volumes: FakeVolumes) -> None:
    page.facts("/api/volumes")
    volume = volumes.opened["photos"]
    volume.pending_files = 1
    page.post("/api/jobs", {"kind": "sync", "volume": "photos"})
    assert volume.syncing.wait(30)
    again = page.post("/api/jobs", {"kind": "sync", "volume": "photos"})
    assert (again.status_code, "under way already" in again.json()["error"]) == (400, True)
    assert page.post("/api/jobs/1/stop", {}).status_code == 200
    assert job(page)["state"] == "stopped"
    volume.release.set()
    assert page.post("/api/jobs/1/stop", {}).status_code == 200


def test_only_some_are_remembered(page: Page) -> None:
    for _ in range(30):
        page.post("/api/jobs", {"kind": "repair", "volume": "photos"})
        until(lambda: job(page)["state"] == "done", "the end")
    jobs = page.facts("/api/jobs")["jobs"]
    assert [one["id"] for one in jobs] == list(range(30, 10, -1))


@pytest.mark.parametrize(
    "body",
    [
        {"kind": "fsck", "volume": "photos"},
        {"kind": "scrub", "volume": "photos", "name": "music"},
        {"kind": "recovery make", "volume": "photos"},
        {"kind": 7, "volume": "photos"},
        {"kind": "scrub"},
        {"kind": "invite", "volume": "photos", "name": "music"},
        {"kind": "recover", "volume": "", "clouds": ["file:///a"]},
        {"kind": "join", "volume": "", "code": 7, "extra": 1},
    ],
)
def test_what_the_page_cannot_begin(page: Page, body: dict[str, object]) -> None:
    assert page.post("/api/jobs", body).status_code == 400
    assert page.facts("/api/jobs")["jobs"] == []


def test_unknown_jobs_cannot_be_stopped(page: Page) -> None:
    assert page.post("/api/jobs/99/stop", {}).status_code == 400
    assert page.post("/api/jobs/x/stop", {}).status_code == 404


def test_it_ends_when_nobody_looks_any_more(served: Daemon, volumes: FakeVolumes) -> None:
    now = [0.0]
    dashboard = Dashboard(45678, Environment(monotonic=lambda: now[0]))
    page = Page(dashboard).begin()
    now[0] = 899.0
    assert not dashboard.is_forgotten
    page.facts("/api/volumes")
    now[0] = 1700.0
    assert not dashboard.is_forgotten
    page.client.get("/")
    now[0] = 1800.0
    assert dashboard.is_forgotten
    volumes.opened["photos"].pending_files = 1
    page.post("/api/jobs", {"kind": "sync", "volume": "photos"})
    assert volumes.opened["photos"].syncing.wait(30)
    now[0] = 9000.0
    assert not dashboard.is_forgotten
    dashboard.jobs.stop_all()
    assert dashboard.is_forgotten
    volumes.opened["photos"].release.set()


def test_an_invitation_tells_its_code_only_while_it_waits(page: Page, volumes: FakeVolumes) -> None:
    page.facts("/api/volumes")
    volume = volumes.opened["photos"]
    asked = {"kind": "invite", "volume": "photos", "role": "reader", "with_credentials": True}
    assert page.post("/api/jobs", asked).status_code == 200
    waiting = until(lambda: (said := job(page)["pairing"]).get("question") and said, "the question")
    assert isinstance(waiting, dict)
    assert (waiting["code"], waiting["comparison"], waiting["device"]) == (CODE, COMPARISON, "laptop")
    assert volume.pairing.confirmed == []
    answer = page.post("/api/do/confirm-device", {"pairing": waiting["pairing"], "accept": True})
    assert answer.status_code == 200
    until(lambda: job(page)["state"] == "done", "the end")
    assert (job(page)["result"]["device"], job(page)["pairing"]) == ("laptop", {})
    assert (volume.pairing.confirmed, volume.readers) == ([True], ["phone"])
    assert CODE not in page.get("/api/jobs").text


def test_an_invitation_ends_when_it_is_stopped(page: Page, volumes: FakeVolumes) -> None:
    page.facts("/api/volumes")
    pairing = volumes.opened["photos"].pairing
    pairing.peer = None
    page.post("/api/jobs", {"kind": "invite", "volume": "photos"})
    assert pairing.waiting.wait(30)
    until(lambda: job(page)["pairing"].get("code"), "the code")
    assert page.post("/api/jobs/1/stop", {}).status_code == 200
    assert pairing.ended.wait(30)
    assert (job(page)["state"], job(page)["pairing"]) == ("stopped", {})
    assert CODE not in page.get("/api/jobs").text


def test_this_machine_joins_and_mounts(page: Page, volumes: FakeVolumes, tmp_path: Path) -> None:
    page.post("/api/jobs", {"kind": "join", "volume": "", "code": "nonsense"})
    until(lambda: job(page)["state"] == "failed", "the failure")
    asked = {"kind": "join", "volume": "", "code": CODE, "own_name": "tablet", "as_name": None}
    page.post("/api/jobs", asked)
    waiting = until(lambda: (said := job(page)["pairing"]).get("question") and said, "the question")
    assert isinstance(waiting, dict)
    assert waiting["comparison"] == COMPARISON
    page.post("/api/do/confirm-device", {"pairing": waiting["pairing"], "accept": True})
    until(lambda: job(page)["state"] == "done", "the end")
    assert job(page)["result"]["volume"]["name"] == "shared"
    assert volumes.own_names == ["tablet"]
    folder = str(tmp_path / "shared")
    assert page.post("/api/do/suggestions", {"name": "shared"}).json()["mountpoint"].endswith("/shared")
    assert page.post("/api/do/mount", {"name": "shared", "directory": folder}).json()["mountpoint"] == folder
