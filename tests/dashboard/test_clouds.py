"""Clouds are added, logged in to, tested and drained by the page; no answer tells a secret."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from tests.daemon.fake import FakeVolume, FakeVolumes
from tests.dashboard.conftest import Page

_URL = "webdavs://nas.example/backup"
_SECRET = "a password that stands nowhere else"


@pytest.fixture
def volume(page: Page, volumes: FakeVolumes) -> FakeVolume:
    page.facts("/api/volumes")
    return volumes.opened["photos"]


def do(page: Page, action: str, body: dict[str, Any]) -> Any:
    return page.post(f"/api/volumes/photos/do/{action}", body)


def test_the_kinds_of_clouds_are_told(page: Page) -> None:
    kinds = {one["form"]: one["what"] for one in page.facts("/api/kinds")["kinds"]}
    assert kinds["file:///absolute/folder"] == "a disk, or a network drive"


def test_a_cloud_is_added_with_what_a_person_should_know(page: Page, volume: FakeVolume) -> None:
    volume.clouds.together = ["new and amber are on one disk"]
    added = do(page, "add-cloud", {"url": "file:///mnt/new", "cloud_name": None, "make": None}).json()
    assert (added["name"], added["cloud"]) == ("photos", "new")
    assert added["warnings"] == ["new and amber are on one disk"]
    assert page.facts("/api/volumes/photos/clouds")["warnings"] == ["new and amber are on one disk"]
    assert do(page, "add-cloud", {"url": _URL, "cloud_name": "nas", "make": True}).status_code == 200
    assert volume.clouds.asked == [("add", "file:///mnt/new", ""), ("add", _URL, "nas", "make")]


def test_a_cloud_is_tested_and_drained(page: Page, volume: FakeVolume) -> None:
    assert do(page, "test-cloud", {"cloud": "amber"}).json()["seconds"] == {"put": 0.0123}
    assert do(page, "drain-cloud", {"cloud": "amber"}).status_code == 200
    assert volume.clouds.asked == [("drain", "amber")]


def test_a_cloud_gets_another_name_and_place_and_keeps_what_is_deleted(
    page: Page, volume: FakeVolume
) -> None:
    assert do(page, "rename-cloud", {"cloud": "amber", "new_name": "attic"}).json()["cloud"] == "attic"
    assert do(page, "retain-cloud", {"cloud": "amber", "days": 30}).json()["note"] == "mind the costs"
    replacing = {"cloud": "amber", "url": "file:///mnt/new", "cloud_name": None, "make": None}
    assert do(page, "replace-cloud", replacing).json()["added"] == "new"
    assert do(page, "remove-cloud", {"cloud": "amber"}).status_code == 400
    assert [asked[0] for asked in volume.clouds.asked] == ["rename", "retain", "replace"]


def test_the_page_is_told_which_secrets_a_cloud_takes(page: Page) -> None:
    place = page.post("/api/do/place-secrets", {"url": _URL}).json()
    assert [(one["name"], one["hidden"]) for one in place["secrets"]] == [("user", False), ("password", True)]
    assert not place["known"]
    assert page.post("/api/do/place-secrets", {"url": "nonsense"}).status_code == 400


def test_a_secret_passes_through_and_stands_in_no_answer_and_no_log(
    page: Page, volumes: FakeVolumes, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    secrets = {"user": "me", "password": _SECRET}
    answers = [
        page.post("/api/do/place-try", {"url": _URL, "secrets": secrets}),
        page.post("/api/do/place-try", {"url": "nonsense", "secrets": secrets}),
        page.post("/api/do/place-try", {"url": _URL, "secrets": [_SECRET]}),
        page.post("/api/do/place-try", {"url": _URL, "secrets": {"password": _SECRET * 500}}),
        page.post("/api/do/place-try", {"url": _URL, "secrets": {"password": f"{_SECRET}\0"}}),
        page.get("/api/jobs"),
        page.get("/api/volumes"),
    ]
    assert [one.status_code for one in answers] == [200, 400, 400, 400, 400, 200, 200]
    assert volumes.secrets == {_URL: secrets}
    assert not [one.text for one in answers if _SECRET in one.text]
    assert _SECRET not in caplog.text


def test_secrets_that_a_cloud_refuses_are_not_kept(page: Page, volumes: FakeVolumes) -> None:
    answer = page.post("/api/do/place-try", {"url": _URL, "secrets": {"password": "wrong"}})
    assert (answer.status_code, answer.json()["error"]) == (
        409,
        f"the cloud {_URL} cannot be used: wrong password",
    )
    assert volumes.secrets == {}


@pytest.mark.parametrize("action", ["nothing", "pause", "add-cloud", "recovery make"])
def test_nothing_else_is_done_without_a_volume(page: Page, action: str) -> None:
    answer = page.post(f"/api/do/{action}", {})
    assert (answer.status_code, "cannot do" in answer.json()["error"]) == (400, True)


def test_no_further_argument_reaches_the_daemon(page: Page, volume: FakeVolume) -> None:
    for action, body in (
        ("add-cloud", {"url": _URL, "days": 30}),
        ("drain-cloud", {"cloud": "amber", "name": "music"}),
    ):
        assert do(page, action, body).status_code == 400
    assert page.post("/api/do/place-try", {"url": _URL, "name": "photos"}).status_code == 400
    assert volume.clouds.asked == []
