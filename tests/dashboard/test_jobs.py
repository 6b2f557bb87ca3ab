"""Long work goes on while the page comes and goes, and can be stopped."""

from __future__ import annotations

from typing import Any

import pytest

from dashboard.server import Dashboard
from hybrisfs.daemon.service import Daemon
from hybrisfs.environment import Environment
from tests.daemon.fake import FakeVolumes
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
