"""An empty machine is led through what `hybrisfs setup` asks."""

from __future__ import annotations

from pathlib import Path

import pytest

from hybrisfs.service_manager import SERVICE, SOCKET
from tests.daemon.fake import FakeVolumes
from tests.dashboard.conftest import Page
from tests.systemctl import Systemctl

_CLOUDS = ["disk=file:///mnt/a/x", "file:///mnt/b/x", "file:///mnt/c/x"]


@pytest.fixture
def systemctl(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Systemctl:
    return Systemctl(tmp_path, monkeypatch)


def test_a_volume_is_made_and_mounted(page: Page, volumes: FakeVolumes, tmp_path: Path) -> None:
    suggested = page.post("/api/do/suggestions", {"name": "work"}).json()
    assert len(suggested["clouds"]) == 3
    asked = {"name": "work", "clouds": _CLOUDS, "f": None, "make": None}
    made = page.post("/api/do/create-volume", asked).json()
    assert made["volume"]["name"] == "work"
    assert [one["url"] for one in made["volume"]["clouds"]] == _CLOUDS
    mounted = page.post("/api/do/mount", {"name": "work", "directory": str(tmp_path / "Work")}).json()
    assert mounted["mountpoint"] == str(tmp_path / "Work")
    assert "work" in volumes.configs
    again = page.post("/api/do/create-volume", asked)
    assert (again.status_code, "already" in again.json()["error"]) == (409, True)


def test_what_is_no_name_or_folder_is_refused(page: Page) -> None:
    assert page.post("/api/do/suggestions", {"name": "../x"}).status_code == 400
    assert page.post("/api/do/mount", {"name": "photos", "directory": "relative"}).status_code == 400
    assert page.post("/api/do/create-volume", {"name": "work"}).status_code == 400


def test_starting_at_login_is_offered_where_systemd_answers(page: Page, systemctl: Systemctl) -> None:
    assert page.facts("/api/service") == {"offered": True}
    systemctl.fail("show")
    assert page.facts("/api/service") == {"offered": False}


def test_it_starts_at_every_login_from_then_on(page: Page, systemctl: Systemctl) -> None:
    assert page.post("/api/service", {}).status_code == 200
    assert [one for one in systemctl.told() if SERVICE in one and SOCKET in one and "enable" in one]
    systemctl.fail("daemon-reload")
    assert page.post("/api/service", {}).status_code == 409
