"""A gateway in this process, before a daemon whose volume has a store over clouds in memory."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import boto3
import uvicorn
from botocore.config import Config

from gateway.app import Gateway
from gateway.objects import Objects
from gateway.signature import AccessKey, Verifier
from gateway.values import GatewayLimits
from hybrisfs.client import Client

__all__ = ["BUCKET", "KEY", "SMALL", "VOLUME", "boto", "made_objects", "running"]

VOLUME = "photos"
BUCKET = "box"
KEY = AccessKey("HFSTESTTESTTESTTESTT", "s" * 40)
SMALL = GatewayLimits(piece=1 << 20, least_part=1)
"""An object of little more than 1 MiB is kept in parts."""


@contextmanager
def running(objects: Objects, now: Callable[[], datetime] = lambda: datetime.now(UTC)) -> Iterator[str]:
    """Serve on a free port; yields the URL."""
    gateway = Gateway(objects, Verifier(KEY, now))
    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = uvicorn.Server(
            uvicorn.Config(gateway, http="h11", ws="none", lifespan="off", log_level="warning")
        )
        thread = threading.Thread(target=lambda: asyncio.run(server.serve(sockets=[listener])))
        thread.start()
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join()
            gateway.close()


@contextmanager
def made_objects(scratch: Path, limits: GatewayLimits = SMALL, **named: Any) -> Iterator[Objects]:
    """What a gateway answers from, with a folder of its own; nothing is collected unless a test does it."""
    objects = Objects(VOLUME, lambda: Client.connect(start=False), scratch, limits=limits, **named)
    yield objects
    objects.close()


def boto(url: str, key: AccessKey = KEY, **config: Any) -> Any:
    """boto3's client, which tries everything once."""
    return boto3.client(
        "s3",
        endpoint_url=url,
        aws_access_key_id=key.id,
        aws_secret_access_key=key.secret,
        region_name="us-east-1",
        config=Config(
            signature_version="s3v4",
            s3={"addressing_style": "path"},
            retries={"total_max_attempts": 1},
            **config,
        ),
    )
