"""Clouds of an open volume that something stands before, which may lie."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from backends.file import FileStore
from backends.store import Store
from hybrisfs.dispersal.engine import Cloud
from tests.adversary import FaultyStore
from tests.volume.device import Device

__all__ = ["faulty", "put_before"]

S = TypeVar("S", bound=Store)


def put_before(device: Device, folder: Path, wrap: Callable[[FileStore], S]) -> S:
    """Let what *wrap* makes of the cloud in this folder take its place, until the volume is closed."""
    known = next(one for one in device.volume.config.clouds if one.url == folder.as_uri())
    store = wrap(FileStore(known.url))
    device.volume.engine.clouds.retire(known.number)
    device.volume.engine.add_cloud(Cloud(known.number, known.name, store))
    return store


def faulty(device: Device, folder: Path) -> FaultyStore:
    """The cloud in this folder, which will misbehave as it is told."""
    return put_before(device, folder, lambda store: FaultyStore(store, seed=1))
