"""What can go wrong at a cloud, sorted by what the caller should do about it."""

from __future__ import annotations

import shlex

__all__ = [
    "AuthError",
    "CorruptError",
    "FullError",
    "MissingError",
    "MissingRootError",
    "OversizeError",
    "PermanentError",
    "StoreError",
    "ThrottledError",
    "TransientError",
    "reason_of",
]


class StoreError(Exception):
    """One operation at one cloud failed.

    `url` names the cloud (never with a secret in it), `operation` the method of `Store` that failed,
    `name` the object or prefix ("" when none is concerned), `reason` why, in one line, and `advice` what a
    person can do about it ("" when there is nothing to do but wait).
    """

    advice_default = ""
    """Of all errors of the kind; {url} is that of the cloud, as a shell takes it."""

    def __init__(self, url: str, operation: str, name: str, reason: str, advice: str | None = None) -> None:
        self.url = url
        self.operation = operation
        self.name = name
        # It may be the server's own words, which must not look like ours.
        self.reason = "".join(one if one.isprintable() else "?" for one in reason)
        usual = self.advice_default.replace("{url}", shlex.quote(url))
        self.advice = usual if advice is None else advice
        super().__init__(url, operation, name, self.reason, self.advice)

    def __str__(self) -> str:
        what = f"{self.operation} {self.name}" if self.name else self.operation
        text = f"{self.url}: {what}: {self.reason}"
        return f"{text} ({self.advice})" if self.advice else text


def reason_of(error: BaseException) -> str:
    """What an error says, of the operating system's without their number, which is for programs."""
    text = str(error)
    if isinstance(error, OSError) and error.strerror and text.startswith("[Errno "):
        return f"{error.strerror}: {error.filename}" if error.filename else error.strerror
    return text


class TransientError(StoreError):
    """The cloud cannot be reached or is in trouble; the same request may work later."""


class ThrottledError(TransientError):
    """The cloud asks for fewer requests; wait `retry_after` seconds before the next one."""

    def __init__(
        self,
        url: str,
        operation: str,
        name: str,
        reason: str,
        advice: str | None = None,
        *,
        retry_after: float,
    ) -> None:
        super().__init__(url, operation, name, reason, advice)
        self.retry_after = retry_after


class AuthError(StoreError):
    """The cloud refuses us: wrong or expired credentials, or missing permissions."""

    advice_default = "give it other secrets with hybrisfs cloud login {url}, or check its permissions"


class MissingError(StoreError):
    """There is no object of that name."""


class FullError(StoreError):
    """The cloud has no room left, or the quota is used up. Reading and deleting still work."""

    advice_default = "make room in this cloud or raise its quota"


class CorruptError(StoreError):
    """The cloud answered with something that cannot be the object: too short, or no object at all."""


class OversizeError(CorruptError):
    """The object is larger than the caller's limit. Nothing beyond the limit was read into memory."""


class PermanentError(StoreError):
    """The request fails and will go on failing until a person changes something."""


class MissingRootError(PermanentError):
    """The place that holds the objects (folder, bucket, container) is not there.

    It says nothing about the objects: the disk may not be mounted. Never recreated by a write.
    """
