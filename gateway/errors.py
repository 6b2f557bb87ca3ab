"""The errors of S3, and which of them an error of the daemon is."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from hybrisfs.client import HybrisError

__all__ = ["S3Error", "translated"]

_STATUS: Final = {
    "AccessDenied": 403,
    "AuthorizationHeaderMalformed": 400,
    "AuthorizationQueryParametersError": 400,
    "BadDigest": 400,
    "BucketAlreadyOwnedByYou": 409,
    "BucketNotEmpty": 409,
    "EntityTooLarge": 400,
    "EntityTooSmall": 400,
    "IncompleteBody": 400,
    "InternalError": 500,
    "InvalidAccessKeyId": 403,
    "InvalidArgument": 400,
    "InvalidBucketName": 400,
    "InvalidDigest": 400,
    "InvalidPart": 400,
    "InvalidPartOrder": 400,
    "InvalidRange": 416,
    "InvalidRequest": 400,
    "InvalidURI": 400,
    "KeyTooLongError": 400,
    "MalformedXML": 400,
    "MetadataTooLarge": 400,
    "MethodNotAllowed": 405,
    "MissingContentLength": 411,
    "NoSuchBucket": 404,
    "NoSuchBucketPolicy": 404,
    "NoSuchCORSConfiguration": 404,
    "NoSuchKey": 404,
    "NoSuchLifecycleConfiguration": 404,
    "NoSuchTagSet": 404,
    "NoSuchUpload": 404,
    "NotImplemented": 501,
    "NotModified": 304,
    "ObjectLockConfigurationNotFoundError": 404,
    "PreconditionFailed": 412,
    "RequestTimeTooSkewed": 403,
    "ServerSideEncryptionConfigurationNotFoundError": 404,
    "ServiceUnavailable": 503,
    "SignatureDoesNotMatch": 403,
    "XAmzContentSHA256Mismatch": 400,
}
_OF_THE_DAEMON: Final = {
    "no such key": "NoSuchKey",
    "no such container": "NoSuchBucket",
    "container exists": "BucketAlreadyOwnedByYou",
    "container in use": "BucketNotEmpty",
    "condition": "PreconditionFailed",
    "usage": "InvalidArgument",
    "daemon": "ServiceUnavailable",
    "unavailable": "ServiceUnavailable",
}


class S3Error(Exception):
    """A request fails with a *code* of S3; *message* is for people. *headers* are those of the answer."""

    def __init__(
        self, code: str, message: str = "", headers: Mapping[str, str] = MappingProxyType({})
    ) -> None:
        super().__init__(code, message)
        self.headers = headers
        self.code = code
        self.message = message or code
        self.status = _STATUS[code]


def translated(error: HybrisError) -> S3Error:
    """What an error of the daemon is to a client of S3."""
    sentence = str(error).partition("\n")[0]
    return S3Error(_OF_THE_DAEMON.get(error.reported or error.kind, "InternalError"), sentence)
