"""Fixtures: a store over clouds in memory, a daemon in this process, and a gateway before it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gateway.objects import Objects
from hybrisfs.daemon.service import Daemon
from hybrisfs.home import Home
from tests.cli.conftest import run, served, volumes
from tests.daemon.conftest import home
from tests.daemon.fake import FakeVolumes
from tests.daemon.stored import rig_of
from tests.gateway.rig import VOLUME, boto, made_objects, running
from tests.kv.rig import Rig

__all__ = ["home", "objects", "rig", "run", "s3", "served", "url", "volumes"]


@pytest.fixture
def rig(served: Daemon, volumes: FakeVolumes, tmp_path: Path) -> Iterator[Rig]:
    with rig_of(VOLUME, served, volumes, tmp_path) as rig:
        yield rig


@pytest.fixture
def objects(rig: Rig, home: Home) -> Iterator[Objects]:
    with made_objects(home.runtime) as objects:
        yield objects


@pytest.fixture
def url(objects: Objects) -> Iterator[str]:
    with running(objects) as url:
        yield url


@pytest.fixture
def s3(url: str) -> Any:
    return boto(url)
