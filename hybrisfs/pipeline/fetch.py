"""Fetching chunks that this device does not hold, and keeping them as cache.

Only what is asked for is fetched, with two exceptions that save requests: the neighbours of a small
chunk, which stand beside it in its pack because they were written together; and what follows
when a file is being read from front to back.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from concurrent.futures import CancelledError, Future
from typing import Final

from hybrisfs.dispersal.errors import ChunkUnavailable
from hybrisfs.dispersal.runs import ChunkLocation
from hybrisfs.filesystem.chunks import CHUNK_COLUMNS, ChunkRef
from hybrisfs.filesystem.filesystem import FileSystem

__all__ = ["Fetcher"]

log = logging.getLogger(__name__)

_NEIGHBOURS: Final = 64
_NEAR_BYTES: Final = 256 << 10
_AHEAD_BYTES: Final = 4 << 20
_REMEMBERED: Final = 256
_DEVICE_SECONDS: Final = 5.0  # that other devices have to send a chunk
_LOCATED_WITHIN: Final = 20.0
_LOCATED_EVERY: Final = 0.2


class Fetcher:
    """Brings chunks. *get_chunks* reads neighbouring chunks of one pack from the clouds."""

    def __init__(
        self,
        fs: FileSystem,
        get_chunks: Callable[[Sequence[ChunkLocation]], list[bytes]],
        ask_devices: Callable[[bytes, float], bytes | None] | None = None,
    ) -> None:
        """*ask_devices* brings a chunk by its id from another device, within some seconds, or None."""
        self._fs = fs
        self._get_chunks = get_chunks
        self._ask_devices = ask_devices
        self._closing = threading.Event()
        self._guard = threading.Lock()
        self._under_way: dict[int, Future[bytes]] = {}
        self._ends: OrderedDict[int, None] = OrderedDict()  # last chunk of recent fetches

    def close(self) -> None:
        """Let nobody wait any more for word of where a chunk is."""
        self._closing.set()

    def fetch(self, chunks: Sequence[ChunkRef]) -> dict[int, bytes]:
        """The bytes of *chunks* by number; called without the volume's lock. Raises ChunkUnavailable."""
        return {ref.number: self._fetch_one(ref) for ref in chunks}

    def fetch_one(self, ref: ChunkRef) -> bytes:
        """The bytes of one chunk, for those whom the word of where it is cannot reach meanwhile: they hold up
        what other devices tell. Raises ChunkUnavailable."""
        if ref.pack:
            return self._fetch_one(ref)
        data = self._ask_devices(ref.id, _DEVICE_SECONDS) if self._ask_devices is not None else None
        if data is None:
            raise ChunkUnavailable(f"chunk {ref.id.hex()[:16]}", {})
        with self._fs.lock:
            self._fs.chunks.keep(ref.number, data)
        return data

    def _fetch_one(self, ref: ChunkRef) -> bytes:
        alone = False
        while True:
            with self._guard:
                waiting = self._under_way.get(ref.number)
            try:
                if waiting is not None:
                    return waiting.result()
                return self._fetch_run(ref, [ref] if alone else self._plan(ref))
            except CancelledError:
                alone = True  # it went along with one that cannot be had

    def _fetch_run(self, ref: ChunkRef, run: list[ChunkRef]) -> bytes:
        mine: Future[bytes] = Future()
        with self._guard:
            other = self._under_way.get(ref.number)
            if other is None:
                run = [one for one in run if one.number not in self._under_way]
                futures = {one.number: mine if one.number == ref.number else Future() for one in run}
                self._under_way.update(futures)
        if other is not None:
            return other.result()
        try:
            self._bring(run, futures)
        finally:
            with self._guard:
                for number in futures:
                    del self._under_way[number]
        return mine.result()

    def _plan(self, ref: ChunkRef) -> list[ChunkRef]:
        """The chunk, and the neighbours worth taking along."""
        with self._guard:
            sequential = self._ends.pop(ref.number - 1, 0) is None
        budget = _AHEAD_BYTES if sequential else _NEAR_BYTES
        run = [ref]
        size = ref.sealed or 0
        with self._fs.lock:
            rows = self._fs.db.execute(
                f"SELECT {CHUNK_COLUMNS} FROM chunk c WHERE c.number > ? AND c.number <= ? AND c.pack = ? "
                "AND c.segment IS NULL ORDER BY c.number",
                (ref.number, ref.number + _NEIGHBOURS, ref.pack),
            ).fetchall()
        for row in rows:
            neighbour = ChunkRef(*row)
            size += neighbour.sealed or 0
            if size > budget:
                break
            run.append(neighbour)
        with self._guard:
            self._ends[run[-1].number] = None
            while len(self._ends) > _REMEMBERED:
                self._ends.popitem(last=False)
        return run

    def _bring(self, run: list[ChunkRef], futures: dict[int, Future[bytes]]) -> None:
        try:
            found = self._obtain(run)
            with self._fs.lock:
                for ref, data in zip(run, found, strict=True):
                    self._fs.chunks.keep(ref.number, data)
        except ChunkUnavailable as error:
            wanted, neighbours = run[:1], run[1:]
            for ref in neighbours:
                with self._guard:
                    del self._under_way[ref.number]
                futures.pop(ref.number).cancel()
            if neighbours:  # one of them may be the reason
                self._bring(wanted, futures)
                return
            log.warning("%s", error)
            futures[wanted[0].number].set_exception(error)
            return
        except BaseException as error:
            for future in futures.values():
                if not future.done():
                    future.set_exception(error)
            raise
        for ref, data in zip(run, found, strict=True):
            futures[ref.number].set_result(data)

    def _obtain(self, run: list[ChunkRef]) -> list[bytes]:
        """The chunks from other devices, where one is linked, and else from the clouds."""
        got: dict[int, bytes] = {}
        if self._ask_devices is not None:
            for ref in run:
                data = self._ask_devices(ref.id, _DEVICE_SECONDS)
                if data is None:
                    break
                got[ref.number] = data
        rest = [self._located(ref) for ref in run if ref.number not in got]
        if rest:
            found = self._get_chunks(self._locations(rest))
            got.update(zip((ref.number for ref in rest), found, strict=True))
        return [got[ref.number] for ref in run]

    def _located(self, ref: ChunkRef) -> ChunkRef:
        """The chunk once it is known where on the clouds it is: another device may have made it just now."""
        give_up = time.monotonic() + _LOCATED_WITHIN
        while not ref.pack:
            if time.monotonic() > give_up:
                raise ChunkUnavailable(f"chunk {ref.id.hex()[:16]}", {})
            if self._closing.wait(_LOCATED_EVERY):
                give_up = 0.0
            with self._fs.lock:
                ref = self._fs.chunks.get(ref.number)
        return ref

    def _locations(self, run: list[ChunkRef]) -> list[ChunkLocation]:
        with self._fs.lock:
            row = self._fs.db.execute(
                "SELECT id, k, n, placement FROM pack WHERE number = ?", (run[0].pack,)
            ).fetchone()
        pack, k, n, placement = row
        return [
            ChunkLocation(
                pack_id=pack,
                k=k,
                n=n,
                placement=tuple(placement),
                chunk_id=ref.id,
                length=ref.length,
                offset=ref.offset or 0,
                sealed_length=ref.sealed or 0,
            )
            for ref in run
        ]
