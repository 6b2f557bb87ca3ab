"""A client of the AWS SDK that fits a driver: no retries, bounded times, guarded answers.

This is the only module that imports boto3, which takes long to load: import it when it is needed.
"""

from __future__ import annotations

import io
from typing import Any, Final

import boto3
from botocore.awsrequest import AWSPreparedRequest, AWSResponse
from botocore.config import Config
from botocore.handlers import add_expect_header
from botocore.httpsession import URLLib3Session
from botocore.session import Session
from botocore.utils import get_environ_proxies

from backends.address import Address
from backends.body import GuardedBody, Timing
from backends.credentials import Secrets
from backends.http_errors import REDIRECTS, RedirectedError
from backends.pacing import PacedBody

__all__ = ["connect"]

_CONNECTIONS: Final = 16


def connect(address: Address, secrets: Secrets, timing: Timing) -> Any:
    """Return a client for the service that `address` names. Raises the SDK's own errors."""
    core = Session(profile=address.option("profile"))
    session = boto3.session.Session(botocore_session=core)
    endpoint = address.option("endpoint")
    region = address.option("region") or session.region_name or "us-east-1"
    addressing = address.option("addressing") or ("path" if endpoint else "auto")
    client = session.client(
        "s3",
        endpoint_url=endpoint,
        region_name=region,
        aws_access_key_id=secrets.get("access_key_id"),
        aws_secret_access_key=secrets.get("secret_access_key"),
        aws_session_token=secrets.get("session_token"),
        config=Config(
            signature_version="s3v4",
            s3={"addressing_style": addressing},
            retries={"total_max_attempts": 1, "mode": "standard"},
            connect_timeout=timing.connect,
            read_timeout=timing.stall,
            max_pool_connections=_CONNECTIONS,
            tcp_keepalive=True,
            # What is read is verified above; and not all services understand the newer checksums.
            request_checksum_calculation="when_required",
            response_checksum_validation="when_required",
        ),
    )
    # It costs a round trip with each PUT.
    client.meta.events.unregister("before-call.s3", add_expect_header)
    sender = _Sender(client.meta.endpoint_url, timing, core.get_config_variable("ca_bundle") or True)
    client.meta.events.register("before-send.s3", sender.send)
    return client


class _Sender:
    """Sends requests as the SDK does, but hands back answers that are guarded."""

    def __init__(self, endpoint: str, timing: Timing, verify: str | bool) -> None:
        self._timing = timing
        self._http = URLLib3Session(
            verify=verify,
            proxies=get_environ_proxies(endpoint),
            timeout=(timing.connect, timing.stall),
            max_pool_connections=_CONNECTIONS,
        )

    def send(self, request: AWSPreparedRequest, **_: object) -> AWSResponse:
        # Otherwise the session reads the body by itself, before it is guarded.
        request.stream_output = True
        if isinstance(request.body, io.BytesIO):
            # Not before: to sign a request, the SDK may read its body.
            request.body = PacedBody(request.body.getvalue())
        response = self._http.send(request)
        if response.status_code in REDIRECTS:
            # The SDK would follow, again and again if the service wants it so.
            response.raw.close()
            region = response.headers.get("x-amz-bucket-region")
            raise RedirectedError(f"in region {region[:40]!r}" if region else "")
        response.raw = GuardedBody(response.raw, self._timing)
        return response
