"""What rclone's words for a failure mean: it hands on a provider's refusal as text only.

The words are those of rclone's backends (drive, onedrive, dropbox, pcloud, mega, s3, webdav, sftp and others)
and of the providers behind them. The first row that has one of its words in the text decides; the text is
in lower case. A failure that no row knows may be over the next time.
"""

from __future__ import annotations

import re
from typing import Final

from backends.errors import (
    AuthError,
    CorruptError,
    FullError,
    PermanentError,
    StoreError,
    ThrottledError,
    TransientError,
)

__all__ = ["rclone_error"]

_USUAL_WAIT: Final = 5.0  # seconds; rclone knows how long the provider asks us to wait, and does not tell

_NO_REMOTE: Final = ("didn't find section in config file", "didn't find backend called")
_THROTTLED: Final = (
    *("429", "too many requests", "ratelimitexceeded", "rate limit", "too_many_requests"),
    *(
        "too_many_write_operations",
        "activitylimitreached",
        "slowdown",
        "slow down",
        "throttled",
        "throttling",
    ),
)
_FULL: Final = (
    *(
        "storagequotaexceeded",
        "quotaexceeded",
        "quotalimitreached",
        "insufficient_space",
        "insufficientstorage",
    ),
    *("insufficient storage", "no space left", "over quota", "quota exceeded", "disk quota", "507"),
    *("storage limit exceeded", "storage_cap_exceeded"),
)
_TOKEN: Final = (
    *("couldn't fetch token", "invalid_grant", "empty token found", "token has expired", "token expired"),
    *("expired_access_token", "invalid_access_token", "invalidauthenticationtoken", "invalid_client"),
)
_AUTH: Final = (
    *("401", "403", "unauthorized", "forbidden", "accessdenied", "access denied", "permission denied"),
    *(
        "insufficientpermissions",
        "insufficient permission",
        "unable to authenticate",
        "signaturedoesnotmatch",
    ),
    *(
        "invalidaccesskeyid",
        "nosuchbucketpolicy",
        "login required",
        "log in required",
        "object (typically, node or user) not found",
    ),
)
_CONFIG: Final = ("failed to load config file",)
_PERMANENT: Final = (
    *(
        "301 moved",
        "302 found",
        "307 temporary",
        "400 bad request",
        "405",
        "501 not implemented",
        "can't upload empty files",
        "illegal name",
        "malformed",
    ),
    "certificate",
)
_CORRUPT: Final = ("is a directory not a file", "corrupted on transfer", "is not a regular file")


def rclone_error(url: str, operation: str, name: str, remote: str, reason: str) -> StoreError:
    """The error for what rclone says; `remote` ends in a colon."""
    text = reason.lower()

    def says(words: tuple[str, ...]) -> bool:
        return any(re.search(rf"(?<![0-9a-z]){re.escape(word)}(?![0-9a-z])", text) for word in words)

    if says(_NO_REMOTE):
        return PermanentError(
            url,
            operation,
            name,
            f"rclone knows no remote {remote} on this machine",
            f"make one with this name for the same place: rclone config create {remote.rstrip(':')} KIND",
        )
    if says(_CONFIG):
        advice = (
            "give the daemon RCLONE_CONFIG_PASS or RCLONE_PASSWORD_COMMAND, or decrypt it with: rclone config"
        )
        return AuthError(url, operation, name, reason, advice)
    if says(_THROTTLED):
        return ThrottledError(url, operation, name, reason, retry_after=_USUAL_WAIT)
    if says(_FULL):
        return FullError(url, operation, name, reason)
    if says(_TOKEN):
        advice = f"log in again with: rclone config reconnect {remote}"
        return AuthError(url, operation, name, reason, advice)
    if says(_AUTH):
        advice = f"rclone keeps the login: see rclone config show {remote.rstrip(':')}"
        advice += f", or log in again with: rclone config reconnect {remote}"
        return AuthError(url, operation, name, reason, advice)
    if says(_CORRUPT):
        return CorruptError(url, operation, name, reason)
    if says(_PERMANENT):
        return PermanentError(url, operation, name, reason, "see what rclone says of this remote")
    return TransientError(url, operation, name, reason)
