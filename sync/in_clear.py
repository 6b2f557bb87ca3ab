"""What somebody without keys can check of an object of the log: that it is the one that its name means."""

from __future__ import annotations

from sync.checkpoint import CHECKPOINTS, read_object_header
from sync.codec import Buffer, Reader
from sync.head import read_head_header
from sync.segment import read_segment_header

__all__ = ["check_in_clear"]


def check_in_clear(name: str, data: Buffer) -> None:
    """Raise `DecodeError` when the header in clear shows that `data` is not the object `name`,
    `NewerFormatError` when it is of a version that this program does not know."""
    reader = Reader(data)
    if name.startswith("heads/"):
        read_head_header(reader, name)
    elif name.startswith("log/"):
        read_segment_header(reader, name)
    elif name.startswith(CHECKPOINTS):
        read_object_header(reader, name)
