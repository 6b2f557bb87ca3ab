"""Buckets of a real S3 server with policies that say what an ordinary device may."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Final

from backends.address import parse_address
from backends.body import Timing
from backends.credentials import Secrets
from backends.s3_client import connect
from tests.backends.servers import ORDINARY, Server

__all__ = ["BUCKET", "DELETES", "READS", "WRITES", "allow", "client"]

READS: Final = ("s3:GetObject", "s3:GetObjectVersion")
WRITES: Final = (*READS, "s3:PutObject")
DELETES: Final = (*WRITES, "s3:DeleteObject")
"""Of objects; not of their versions."""
BUCKET: Final = (
    "s3:ListBucket",
    "s3:ListBucketVersions",
    "s3:GetBucketVersioning",
    "s3:GetLifecycleConfiguration",
    "s3:GetBucketObjectLockConfiguration",
)
"""Of the bucket."""


def client(server: Server, url: str) -> Any:
    """An administrator's client of the SDK."""
    options = frozenset({"region", "endpoint"})
    return connect(parse_address(url, options=options, form=""), Secrets(server.secrets), Timing())


def allow(server: Server, url: str, objects: Sequence[str], bucket: Sequence[str] = BUCKET) -> None:
    """Let `ORDINARY` do this to objects of the bucket, and to the bucket, and nothing else."""
    name = parse_address(url, options=frozenset({"region", "endpoint"}), form="").host
    who = {"Effect": "Allow", "Principal": {"AWS": [ORDINARY["access_key_id"]]}}
    statements = [
        {**who, "Action": list(bucket), "Resource": f"arn:aws:s3:::{name}"},
        {**who, "Action": list(objects), "Resource": f"arn:aws:s3:::{name}/*"},
    ]
    policy = json.dumps({"Version": "2012-10-17", "Statement": statements})
    client(server, url).put_bucket_policy(Bucket=name, Policy=policy)
