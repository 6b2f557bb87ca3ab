"""Clouds far away: S3 servers on this machine, each at the end of a slow line."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.handlers import add_expect_header

from backends.credentials import Secrets
from backends.s3 import S3Store
from benchmarks.shaping import Line, ShapedLines
from tests.backends import servers

__all__ = ["Distance", "FarCloud", "Wan", "far_clouds"]

_REGION = "us-east-1"


@dataclass(frozen=True)
class Distance:
    """How far away a cloud is: round trip in ms, bandwidth in Mbit/s each way."""

    name: str
    round_trip: float
    bandwidth: float
    uplink: str = ""

    @property
    def bytes_per_second(self) -> float:
        return self.bandwidth * 1e6 / 8


@dataclass(frozen=True)
class FarCloud:
    """One of the clouds, for our driver (`url`, `secrets`) and for the service's own SDK."""

    distance: Distance
    url: str
    secrets: Mapping[str, str]
    port: int
    bucket: str

    def lookup(self, url: str) -> Secrets:
        """The secrets, as `backends.credentials.Credentials` wants them."""
        return Secrets(self.secrets)

    def store(self) -> S3Store:
        """A driver of its own."""
        return S3Store(self.url, self)

    def sdk(self, *, asks: bool = True) -> Any:
        """A client of the service's own SDK with the settings that it has when nobody changes them; but for
        `asks`: without it, the client sends a body at once, and does not ask first (100-continue)."""
        client = boto3.client(
            "s3",
            endpoint_url=f"http://127.0.0.1:{self.port}",
            region_name=_REGION,
            aws_access_key_id=self.secrets["access_key_id"],
            aws_secret_access_key=self.secrets["secret_access_key"],
        )
        if not asks:
            client.meta.events.unregister("before-call.s3", add_expect_header)
        return client


@dataclass(frozen=True)
class Wan:
    """All the clouds and the lines to them, in the same order."""

    clouds: Sequence[FarCloud]
    lines: ShapedLines


@contextmanager
def far_clouds(root: Path, distances: Sequence[Distance]) -> Iterator[Wan]:
    """Start a server per cloud; all ends with the block. Each has an empty bucket of its name.

    Raises SystemExit where the server is not installed.
    """
    with ExitStack() as stack:
        started = []
        for distance in distances:
            folder = root / distance.name
            folder.mkdir(parents=True)
            try:
                started.append(stack.enter_context(servers.versitygw(folder)))
            except (pytest.skip.Exception, pytest.fail.Exception) as error:
                raise SystemExit(str(error)) from None
        lines = stack.enter_context(
            ShapedLines(
                [
                    Line(server.port, one.round_trip / 2000, one.bytes_per_second, one.uplink)
                    for server, one in zip(started, distances, strict=True)
                ]
            )
        )
        clouds = [
            FarCloud(one, server.url(one.name, f"127.0.0.1:{port}"), dict(server.secrets), port, one.name)
            for server, one, port in zip(started, distances, lines.ports, strict=True)
        ]
        for cloud in clouds:
            store = cloud.store()
            store.initialise()
            store.close()
        yield Wan(clouds, lines)
