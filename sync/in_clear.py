"""What somebody without keys can check of an object of the log: that it is the one that its name means."""

from __future__ import annotations

import re
from typing import Final

from sync.checkpoint import read_object_header
from sync.codec import Buffer, Reader
from sync.head import read_head_header
from sync.segment import read_segment_header

__all__ = ["check_in_clear"]


_HEADERS: Final = (
    (re.compile(r"heads/[0-9a-f]{32}"), read_head_header),
    (re.compile(r"log/[0-9a-f]{32}/[0-9a-f]{16}-[0-9a-f]{16}"), read_segment_header),
    (re.compile(r"checkpoints/[0-9a-f]{64}"), read_object_header),
)


def check_in_clear(name: str, data: Buffer) -> None:
    """Raise `DecodeError` when the header in clear shows that `data` is not the object `name`,
    `NewerFormatError` when it is of a version that this program does not know. Nothing is known of other
    names than those of heads, segments and parts of checkpoints."""
    for form, read in _HEADERS:
        if form.fullmatch(name):
            read(Reader(data), name)
