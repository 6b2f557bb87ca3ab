"""The daemon's view of the volumes on the disk."""

from __future__ import annotations

from pathlib import Path

import pytest

from hybrisfs.daemon.local import LocalVolumes
from hybrisfs.daemon.service import Daemon
from hybrisfs.environment import SYSTEM
from hybrisfs.errors import HybrisError
from hybrisfs.home import Home


@pytest.fixture
def volumes(home: Home, tmp_path: Path) -> LocalVolumes:
    volumes = LocalVolumes()
    for name in ("broken", "sound"):
        urls = [(tmp_path / f"{name}-{number}").as_uri() for number in range(3)]
        volumes.create(home, name, urls, None, None, make=False)
    (home.config / "volumes" / "empty").mkdir()
    (home.config / "volumes" / ".trash").mkdir()
    return volumes


def test_all_volumes_are_listed(home: Home, volumes: LocalVolumes) -> None:
    assert [(config.name, len(config.clouds), config.f) for config in volumes.list(home)] == [
        ("broken", 3, 1),
        ("sound", 3, 1),
    ]


def test_a_damaged_configuration_keeps_no_other_volume(home: Home, volumes: LocalVolumes) -> None:
    (home.volume_config("broken") / "volume.json").write_text("{")
    daemon = Daemon(home, volumes, SYSTEM)
    daemon.start()
    try:
        broken, sound = daemon.handle("status", {}, lambda _: None)["volumes"]
        assert broken["unusable"] is True
        assert "volume.json" in broken["last_error"]
        assert "unusable" not in sound
        with pytest.raises(HybrisError, match=r"volume\.json"):
            daemon.handle("sync", {"name": "broken"}, lambda _: None)
    finally:
        daemon.stop()
