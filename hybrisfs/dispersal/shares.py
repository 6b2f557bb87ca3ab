"""Reading parts of shares from clouds and checking them against the pack's own table."""

from __future__ import annotations

import random
from collections.abc import Callable

from hybrisfs.dispersal.clouds import Clouds
from hybrisfs.dispersal.erasure import fragment_length
from hybrisfs.dispersal.errors import IntegrityError
from hybrisfs.dispersal.finding import Finding
from hybrisfs.dispersal.probe import Owed, check_part
from hybrisfs.dispersal.read import Readable
from hybrisfs.dispersal.share import (
    MAX_SHARE,
    PREFIX_SIZE,
    Table,
    TableSealer,
    hash_fragment,
    parse_header,
    parse_prefix,
    share_name,
    verify_share,
)

__all__ = ["fetch_header", "owed_share", "sample_share", "share_check"]


def share_check(tables: TableSealer, pack_id: bytes, index: int) -> Callable[[bytes], None]:
    """Return a function that raises IntegrityError unless it gets the whole share object, unaltered."""

    def verify(data: bytes) -> None:
        problems = verify_share(data, pack_id, index, tables)
        if problems:
            more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
            raise IntegrityError(problems[0] + more)

    return verify


def owed_share(clouds: Clouds, cloud: int, tables: TableSealer, pack_id: bytes, index: int) -> Owed:
    """Return what a cloud owes that acknowledged this share."""
    return Owed(clouds[cloud], share_name(pack_id, index), MAX_SHARE, share_check(tables, pack_id, index))


def fetch_header(store: Readable, name: str) -> bytes:
    """Read the header of a share, in two requests. What is returned is not verified."""
    prefix = store.get_range(name, 0, PREFIX_SIZE)
    try:
        table_size = parse_prefix(prefix).table_size
    except IntegrityError:
        return prefix  # the caller that verifies it refuses it again and knows which cloud to blame
    return prefix + store.get_range(name, PREFIX_SIZE, table_size)


def sample_share(
    clouds: Clouds, cloud: int, tables: TableSealer, pack_id: bytes, index: int, timeout: float
) -> Finding | None:
    """Check the header of a share and one fragment chosen at random; return what is wrong, or None."""
    owed = owed_share(clouds, cloud, tables, pack_id, index)
    proven: list[Table] = []

    def verify_header(header: bytes) -> None:
        proven.append(parse_header(header, tables, pack_id)[1])

    problem = check_part(clouds, owed, lambda store: fetch_header(store, owed.name), verify_header, timeout)
    if problem is not None:
        return problem
    (table,) = proven
    entry = random.choice(table.entries)
    length = fragment_length(table.k, entry.sealed_length)

    def verify_fragment(fragment: bytes) -> None:
        if hash_fragment(fragment) != table.fragment_hash(entry, index):
            raise IntegrityError(f"fragment of chunk {entry.chunk_id.hex()[:16]} is altered")

    return check_part(
        clouds,
        owed,
        lambda store: store.get_range(owed.name, entry.offset, length),
        verify_fragment,
        timeout,
    )
