"""Every error that `sync` raises. Refusing an update is not an error: see `sync.log.Refused`."""

from __future__ import annotations

__all__ = [
    "DecodeError",
    "LimitError",
    "LogStoreError",
    "NewerFormatError",
    "NotAMemberError",
    "SyncError",
    "UnknownEpochError",
]


class SyncError(Exception):
    """Base of all errors raised by `sync`."""


class DecodeError(SyncError, ValueError):
    """The bytes are not a well-formed record; the message says which field is wrong."""


class NewerFormatError(DecodeError):
    """The record says that it was written in a newer format than this program reads.

    Nothing in a format field is authenticated, so a lying cloud can provoke this error: refuse the
    object like any other bad one, and tell the user to upgrade only when no cloud has a readable copy.
    """


class UnknownEpochError(DecodeError):
    """The object is sealed with a key that this device does not have.

    Which one is authenticated with that key only, so that a lying cloud can provoke this error.
    """

    def __init__(self, epoch: bytes) -> None:
        super().__init__(f"sealed with the key of epoch {epoch.hex()}, which this machine was not given")
        self.epoch = epoch


class LimitError(SyncError, ValueError):
    """What was to be encoded is larger than any reader would accept."""


class NotAMemberError(SyncError):
    """The key given to sign with belongs to no member of the volume."""


class LogStoreError(SyncError):
    """The local store of accepted updates lacks an update that was accepted earlier."""
