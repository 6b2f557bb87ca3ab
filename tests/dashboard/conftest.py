"""The application before a daemon with made-up volumes, and a page that may ask it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from starlette.testclient import TestClient

from dashboard.server import Dashboard
from hybrisfs.environment import SYSTEM
from tests.cli.conftest import served, volumes
from tests.daemon.conftest import home

__all__ = ["PORT", "Page", "dashboard", "home", "page", "served", "volumes"]

PORT = 45678
ORIGIN = f"http://127.0.0.1:{PORT}"


class Page:
    """What the script of the page does."""

    def __init__(self, dashboard: Dashboard, client: tuple[str, int] = ("127.0.0.1", 50000)) -> None:
        """*client*: from where its connection comes."""
        self._origin, _, self.code = dashboard.link.partition("/#code=")
        self.client = TestClient(dashboard.app, base_url=self._origin, client=client)
        self.headers: dict[str, str] = {}

    def begin(self) -> Page:
        answer = self.client.post("/api/session", json={"code": self.code}, headers={"Origin": self._origin})
        assert answer.status_code == 200, answer.text
        self.headers = {"X-HybrisFS-Token": answer.json()["token"]}
        return self

    def get(self, url: str, **headers: str) -> Any:
        return self.client.get(url, headers={**self.headers, **headers})

    def post(self, url: str, body: object, **headers: str) -> Any:
        return self.client.post(url, json=body, headers={**self.headers, "Origin": self._origin, **headers})

    def facts(self, url: str) -> dict[str, Any]:
        answer = self.get(url)
        assert answer.status_code == 200, answer.text
        facts = answer.json()
        assert isinstance(facts, dict)
        return facts


@pytest.fixture
def dashboard() -> Iterator[Dashboard]:
    one = Dashboard(PORT, SYSTEM)
    yield one
    one.jobs.stop_all()


@pytest.fixture
def page(dashboard: Dashboard, served: object) -> Page:
    return Page(dashboard).begin()
