"""What no file shows is needed by nobody: versions have tests of their own (`tests.versions`)."""

from __future__ import annotations

import pytest

from hybrisfs.log import VersionStore


@pytest.fixture(autouse=True)
def no_versions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(VersionStore, "keeps", False)
