"""Reading chunks of packs: ranged requests for fragments, and which cloud is to blame if they do not fit."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Final

from backends.errors import CorruptError
from hybrisfs.dispersal import reader
from hybrisfs.dispersal.clouds import Clouds
from hybrisfs.dispersal.erasure import fragment_length, join
from hybrisfs.dispersal.errors import ChunkUnavailable, DispersalError, Finding, IntegrityError
from hybrisfs.dispersal.pack import ChunkLocation, plan_runs
from hybrisfs.dispersal.probe import Owed, check_part
from hybrisfs.dispersal.reader import Read, Readable, Target
from hybrisfs.dispersal.seal import Sealer
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
from sync.codec import Buffer

__all__ = ["ChunkReader", "fetch_header", "owed_share", "sample_share", "share_check"]

_RUNS: Final = 8  # read side by side at most, of several at a time


class ChunkReader:
    """Reads and opens chunks. Thread-safe."""

    def __init__(self, clouds: Clouds, sealer: Sealer, tables: TableSealer) -> None:
        self._clouds = clouds
        self._sealer = sealer
        self._tables = tables
        self._pool = ThreadPoolExecutor(_RUNS, thread_name_prefix="runs")

    def close(self) -> None:
        """End the threads. The clouds are closed before, so that what is being read has failed."""
        self._pool.shutdown()

    def get_chunks(self, locations: Sequence[ChunkLocation], timeout: float) -> list[bytes]:
        """See `Engine.get_chunks`."""
        runs = plan_runs(locations)
        if len(runs) == 1:
            chunks = [self._get_run(runs[0], timeout)]
        else:
            try:
                reading = self._pool.map(lambda run: self._get_run(run, timeout), runs)
            except RuntimeError as error:  # the pool is closed
                raise ChunkUnavailable(f"chunk {locations[0].chunk_id.hex()[:16]}", {}) from error
            chunks = list(reading)
        found = {
            location: chunk
            for run, some in zip(runs, chunks, strict=True)
            for location, chunk in zip(run, some, strict=True)
        }
        return [found[location] for location in locations]

    def _get_run(self, run: Sequence[ChunkLocation], timeout: float) -> list[bytes]:
        first, last = run[0], run[-1]
        start = first.offset
        length = last.offset + fragment_length(last.k, last.sealed_length) - start
        read = Read(
            what=f"chunk {first.chunk_id.hex()[:16]} of pack {first.pack_id.hex()[:16]}",
            k=first.k,
            targets=[
                Target(c, share_name(first.pack_id, i), owed=True) for i, c in enumerate(first.placement)
            ],
            size=length,
            fetch=lambda store, name: store.get_range(name, start, length),
            rebuild=partial(self._open_run, run, {}),
            recheck=lambda index: (MAX_SHARE, share_check(self._tables, first.pack_id, index)),
            failure=ChunkUnavailable,
            blame=partial(self._blame, run) if first.k > 1 else None,
            hearsay=not first.owed,
        )
        return reader.get(self._clouds, read, timeout)

    def _open_run(
        self, run: Sequence[ChunkLocation], opened: dict[ChunkLocation, bytes], parts: Mapping[int, bytes]
    ) -> list[bytes]:
        """Open the chunks that are not in `opened` yet: what one set of clouds cannot give another may."""
        problem: IntegrityError | None = None
        for location in run:
            if location not in opened:
                fragments = _fragments(run, location, parts)
                sealed = join(location.k, location.n, fragments, location.sealed_length)
                try:
                    opened[location] = self._sealer.open(location.chunk_id, sealed, location.length)
                except IntegrityError as error:
                    problem = error
        if problem is not None:
            raise problem
        return [opened[location] for location in run]

    def _blame(
        self, run: Sequence[ChunkLocation], parts: Mapping[int, bytes], timeout: float
    ) -> Mapping[int, str] | None:
        """Return which parts of an erasure-coded run are not what was written, by the pack's own table."""
        try:
            table = self._get_table(run[0], timeout)
        except DispersalError:
            return None
        entries = {entry.chunk_id: entry for entry in table.entries}
        wrong: dict[int, str] = {}
        for location in run:
            entry = entries.get(location.chunk_id)
            if entry is None or (entry.offset, entry.sealed_length) != (
                location.offset,
                location.sealed_length,
            ):
                continue  # the location is wrong, not a cloud
            for index, fragment in _fragments(run, location, parts).items():
                if hash_fragment(fragment) != table.fragment_hash(entry, index):
                    wrong[index] = f"holds an altered fragment of chunk {location.chunk_id.hex()[:16]}"
        return wrong

    def _get_table(self, location: ChunkLocation, timeout: float) -> Table:
        """Return the proven table of a pack from whichever cloud has it."""
        read = Read(
            what=f"table of pack {location.pack_id.hex()[:16]}",
            k=1,
            targets=[
                Target(c, share_name(location.pack_id, i), owed=True)
                for i, c in enumerate(location.placement)
            ],
            size=PREFIX_SIZE,
            fetch=fetch_header,
            rebuild=lambda parts: parse_header(next(iter(parts.values())), self._tables, location.pack_id)[1],
            recheck=lambda index: (MAX_SHARE, share_check(self._tables, location.pack_id, index)),
            failure=ChunkUnavailable,
            rounds=0,  # the read that needs it insists
            hearsay=not location.owed,
        )
        return reader.get(self._clouds, read, timeout)


def _fragments(
    run: Sequence[ChunkLocation], location: ChunkLocation, parts: Mapping[int, bytes]
) -> dict[int, Buffer]:
    start = location.offset - run[0].offset
    end = start + fragment_length(location.k, location.sealed_length)
    return {index: memoryview(part)[start:end] for index, part in parts.items()}


# -- reading parts of shares from clouds and checking them against the pack's own table -----------------


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


def fetch_header(store: Readable, name: str, expected: int = 0) -> bytes:
    """Read the header of a share, in one request if its table has at most the *expected* bytes, and in two
    otherwise. What is returned is not verified."""
    try:
        begun = store.get_range(name, 0, PREFIX_SIZE + expected)
    except CorruptError:
        if not expected:
            raise
        return fetch_header(store, name)  # a member may have told of more chunks than there are
    try:
        table_size = parse_prefix(begun).table_size
    except IntegrityError:
        return begun  # the caller that verifies it refuses it again and knows which cloud to blame
    if table_size <= expected:
        return begun[: PREFIX_SIZE + table_size]
    return begun + store.get_range(name, len(begun), table_size - expected)


def sample_share(
    clouds: Clouds,
    cloud: int,
    tables: TableSealer,
    pack_id: bytes,
    index: int,
    timeout: float,
    *,
    most: float = math.inf,
    expected: int = 0,
    acknowledged: bool = True,
) -> Finding | None:
    """Check the header of a share and one fragment chosen at random; return what is wrong, or None.

    Of fragments no more than *most* bytes are read on average: one that is longer is read by chance only.
    With a table of at most the *expected* bytes, the header takes one request. Unless the share was
    *acknowledged*, the cloud is not to blame when it lacks it.
    """
    owed = owed_share(clouds, cloud, tables, pack_id, index)._replace(acknowledged=acknowledged)
    proven: list[Table] = []

    def verify_header(header: bytes) -> None:
        proven.append(parse_header(header, tables, pack_id)[1])

    def fetch(store: Readable) -> bytes:
        return fetch_header(store, owed.name, expected)

    problem = check_part(clouds, owed, fetch, verify_header, timeout)
    if problem is not None:
        return problem
    (table,) = proven
    entry = clouds.chance.choice(table.entries)
    length = fragment_length(table.k, entry.sealed_length)
    if clouds.chance.random() * length > most:
        return None

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
