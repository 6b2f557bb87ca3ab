"""A home of its own for each test."""

from __future__ import annotations

from pathlib import Path

import pytest

from hybrisfs.home import Home


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Home:
    monkeypatch.setenv("HYBRISFS_HOME", str(tmp_path / "home"))
    home = Home.from_environment()
    home.prepare()
    return home
