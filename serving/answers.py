"""What a request is answered that fails."""

from __future__ import annotations

import errno
import http
import logging
from typing import Final, NamedTuple

from wsgidav.dav_error import DAVError

from hybrisfs.client import HybrisError

__all__ = ["Answer", "answer_of", "plain", "status_of"]

log = logging.getLogger(__name__)

_NUMBERS: Final = {
    errno.ENOENT: 404,
    errno.ENOTDIR: 409,
    errno.EEXIST: 409,
    errno.ENOTEMPTY: 409,
    errno.EISDIR: 409,
    errno.EACCES: 403,
    errno.EPERM: 403,
    errno.EROFS: 403,
    errno.ELOOP: 403,
    errno.EXDEV: 403,
    errno.EINVAL: 400,
    errno.ENAMETOOLONG: 400,
    errno.EFBIG: 413,
    errno.ENOSPC: 507,
    errno.EDQUOT: 507,
    errno.EBUSY: 503,
    errno.ENOTCONN: 503,
    errno.ESTALE: 503,
}


class Answer(NamedTuple):
    """Status, headers and body."""

    status: int
    headers: list[tuple[str, str]]
    body: bytes


def plain(status: int, why: str = "", headers: tuple[tuple[str, str], ...] = ()) -> Answer:
    """One with a line of text."""
    body = f"{why or http.HTTPStatus(status).phrase}\n".encode()
    return Answer(status, [("content-type", "text/plain; charset=utf-8"), *headers], body)


def status_of(error: OSError) -> int | None:
    """The status that tells of an error of a folder; None when it is none that clients cause."""
    return _NUMBERS.get(error.errno or 0)


def answer_of(error: Exception, what: str) -> Answer:
    """What a failed request is answered; what nobody expects goes to the log."""
    # WsgiDAV calls everything an internal error that it does not know.
    if isinstance(error, DAVError) and error.value == 500 and isinstance(error.src_exception, Exception):
        error = error.src_exception
    if isinstance(error, DAVError):
        if error.value < 200 or error.value in (204, 304):
            return Answer(error.value, [], b"")
        if error.err_condition:
            body = error.err_condition.as_string().encode()
            return Answer(error.value, [("content-type", "application/xml; charset=utf-8")], body)
        return plain(error.value)
    if isinstance(error, HybrisError):
        log.warning("%s: %s", what, error)
        return plain(503, "The folder cannot be reached now.", (("retry-after", "10"),))
    if isinstance(error, OSError):
        status = status_of(error)
        if status is None:
            log.warning("%s: %s", what, error.strerror or error)
        return plain(status or 500)
    log.error("%s: a bug", what, exc_info=error)
    return plain(500)
