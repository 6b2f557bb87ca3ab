"""Who wrote a file over a protocol: what `hybrisfs serve` notes in the extended attribute
`user.hybrisfs.via`.

The value is `PROTOCOL TIME USER`: `webdav` or `sftp`, nanoseconds since the epoch, and the name of the user
to whom the folder is served. It is one of the node's attributes, so it travels and is kept in versions. It is
not listed, so no copying program carries it along. It is a word for people: any program can set it.

What is removed keeps no attribute, so the folder gets it in which it was: `hybrisfs log` takes it for all
that the same update removed from there.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

__all__ = ["PROTOCOLS", "VIA_XATTR", "Via", "parse_via"]

VIA_XATTR: Final = b"user.hybrisfs.via"
PROTOCOLS: Final = {"webdav": "WebDAV", "sftp": "SFTP"}
"""Names for people."""
_VALUE: Final = re.compile("(webdav|sftp) ([0-9]{1,20}) ([^\\x00-\\x1f\\x7f]{1,64})")


class Via(NamedTuple):
    """How a change came."""

    protocol: str
    time_ns: int
    user: str

    def encode(self) -> bytes:
        """The value of the attribute."""
        return f"{self.protocol} {self.time_ns} {self.user}".encode()

    @property
    def words(self) -> str:
        """For people."""
        return f"over {PROTOCOLS[self.protocol]}, by {self.user}"


def parse_via(value: bytes) -> Via | None:
    """What an attribute says; None for what `Via.encode` does not make."""
    found = _VALUE.fullmatch(value.decode(errors="replace"))
    return None if found is None else Via(found[1], int(found[2]), found[3])
