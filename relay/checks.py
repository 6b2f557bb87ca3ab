"""What can be checked of an object without any key: that it is what its name says.

    name                       what must agree with it
    packs/ab/ABCD.I            the hash of the share's sealed table, with k and n; the length of the share
    log/DEVICE/CLOCK-HASH      device, first clock, and beginning of the last hash in the segment's header
    heads/DEVICE               the device in the head's header
    checkpoints/NAME           the name in the object's header

So a transfer or a device that has gone wrong is found out when it happens. It is no help against somebody who
has the token: what is sealed can be checked by devices only. Objects of other kinds, and of newer versions
than this program knows, are taken as they are.
"""

from __future__ import annotations

import re
from typing import Final

from hybrisfs.dispersal.errors import IntegrityError, NewerVersionError
from hybrisfs.dispersal.share import PREFIX_SIZE, pack_id_of, parse_prefix, parse_share_name
from sync.checkpoint import read_object_header
from sync.codec import DecodeError, Reader
from sync.errors import NewerFormatError
from sync.head import read_head_header
from sync.segment import read_segment_header

__all__ = ["problem_of"]

_HEADERS: Final = (
    (re.compile(r"heads/[0-9a-f]{32}"), read_head_header),
    (re.compile(r"log/[0-9a-f]{32}/[0-9a-f]{16}-[0-9a-f]{16}"), read_segment_header),
    (re.compile(r"checkpoints/[0-9a-f]{64}"), read_object_header),
)


def problem_of(name: str, data: bytes) -> str:
    """What shows that *data* is not the object *name*; "" when nothing does."""
    try:
        share = parse_share_name(name)
        if share is not None:
            return _problem_of_share(share[0], data)
        for form, read in _HEADERS:
            if form.fullmatch(name):
                read(Reader(data), name)
    except (NewerVersionError, NewerFormatError):
        return ""
    except (IntegrityError, DecodeError) as error:
        return str(error)
    return ""


def _problem_of_share(pack: bytes, data: bytes) -> str:
    prefix = parse_prefix(data)
    table = memoryview(data)[PREFIX_SIZE : PREFIX_SIZE + prefix.table_size]
    if len(table) < prefix.table_size or pack_id_of(prefix.k, prefix.n, table) != pack:
        return "the share belongs to another pack"
    return ""
