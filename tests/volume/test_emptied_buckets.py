"""Buckets of a real S3 server are emptied: what they keep, and what they do not let a machine do, is told."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from backends.s3 import S3Store
from hybrisfs.admit.local_copy import Deletion, forget_copy
from hybrisfs.clouds.emptying import empty_clouds
from hybrisfs.settings.config import VolumeConfig
from tests.backends import servers
from tests.backends.buckets import DELETES, WRITES, allow
from tests.backends.servers import ORDINARY, FixedCredentials, Server
from tests.volume.bucket_device import First, everything, keeping_buckets
from tests.volume.device import NAME


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with servers.versitygw(tmp_path_factory.mktemp("s3-server")) as server:
        yield server


def test_a_bucket_that_keeps_and_one_that_refuses_are_told(server: Server, tmp_path: Path) -> None:
    urls = [*keeping_buckets(server, 1, DELETES), *keeping_buckets(server, 1, WRITES), server.url()]
    plain = S3Store(urls[2], FixedCredentials(server.secrets))
    plain.initialise()
    allow(server, urls[2], DELETES)
    device = First(tmp_path, urls, 1, 1)
    device.write("file", bytes(10_000))
    device.sync()
    device.close()
    plain.put("holiday/photo.jpg", b"not the volume's")
    config, deletion = VolumeConfig.load(device.home, NAME), Deletion(device.home, NAME)
    keeping, refusing, emptied = [
        one for _, one in empty_clouds(device.home, config, deletion, lambda _: None)
    ]
    assert not keeping.trouble and keeping.kept.startswith("it keeps deleted objects")
    assert refusing.trouble and refusing.objects == 0
    assert (emptied.trouble, emptied.kept, emptied.place_gone) == ("", "", False) and emptied.objects
    assert everything(plain) == ["holiday/photo.jpg"]
    assert not everything(S3Store(urls[0], FixedCredentials(ORDINARY)))
    allow(server, urls[1], DELETES)
    again = [one for _, one in empty_clouds(device.home, config, Deletion(device.home, NAME), lambda _: None)]
    assert not any(one.trouble for one in again) and again[1].objects
    assert json.loads(device.home.credentials.read_bytes())["clouds"]
    forget_copy(device.home, NAME)
    assert not json.loads(device.home.credentials.read_bytes())["clouds"]
