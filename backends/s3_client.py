"""A client of the AWS SDK that fits a driver: no retries, bounded times, guarded answers.

This is the only module that imports boto3, which takes long to load: import it when it is needed.
"""

from __future__ import annotations

import io
import socket
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
from backends.errors import AuthError
from backends.http_errors import REDIRECTS, RedirectedError
from backends.pacing import PacedBody

__all__ = ["connect"]

_CONNECTIONS: Final = 16
_SOCKET_OPTIONS: Final = [
    # Or a body that fits into one packet waits until the server acknowledges the headers, some 40 ms later.
    (socket.IPPROTO_TCP, socket.TCP_NODELAY, 1),
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
]
"""The session has none by itself; those of the client's configuration count for the client's own session."""
_OF_A_PROFILE: Final = frozenset(
    {
        "assume-role",
        "assume-role-with-web-identity",
        "config-file",
        "custom-process",
        "login",
        "shared-credentials-file",
        "sso",
    }
)
"""The SDK's ways to credentials that begin with what a profile states."""


def connect(address: Address, secrets: Secrets, timing: Timing) -> Any:
    """Return a client for the service that `address` names. Raises the SDK's own errors, and `AuthError` when
    an endpoint is named but no secrets that are meant for it.
    """
    core = Session(profile=address.option("profile"))
    session = boto3.session.Session(botocore_session=core)
    endpoint = address.option("endpoint")
    if endpoint is not None:
        _require_own_secrets(core, address, endpoint, secrets)
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


def _require_own_secrets(core: Session, address: Address, endpoint: str, secrets: Secrets) -> None:
    """Raise `AuthError` unless there are secrets for the endpoint, and let the SDK use no others.

    The endpoint may be anybody's, and what the environment, the default profile and the machine's role say is
    for Amazon. A profile is for the endpoint when it says so itself (``endpoint_url``), or when it names none
    and the URL names it; but nobody has to guess the name of the default one.
    """
    if secrets.get("access_key_id") is not None and secrets.get("secret_access_key") is not None:
        return
    profile = address.option("profile")
    if profile is not None:
        told = core.get_scoped_config().get("endpoint_url")
        if profile != "default" if told is None else told.rstrip("/") == endpoint.rstrip("/"):
            chain = core.get_component("credential_provider")
            chain.providers = [one for one in chain.providers if one.METHOD in _OF_A_PROFILE]
            return
        reason = f"the profile {profile} is not for this endpoint"
        advice = f"write endpoint_url = {endpoint} into the profile, if it is"
    else:
        reason = "there are no credentials for this endpoint"
        advice = (
            "hybrisfs cloud login asks for them; those of the environment, of the default profile and of this"
            " machine's role are for Amazon"
        )
    raise AuthError(address.url, "open", "", reason, advice)


class _Sender:
    """Sends requests as the SDK does, but hands back answers that are guarded."""

    def __init__(self, endpoint: str, timing: Timing, verify: str | bool) -> None:
        self._timing = timing
        self._http = URLLib3Session(
            verify=verify,
            proxies=get_environ_proxies(endpoint),
            timeout=(timing.connect, timing.stall),
            max_pool_connections=_CONNECTIONS,
            socket_options=_SOCKET_OPTIONS,
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
