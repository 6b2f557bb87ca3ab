"""Files that could not be read because their newest bytes are with another device, and what to do about it.

Names come before bytes: a file may be shown here while only the device that wrote it has its bytes. When that
device is gone, the version before can still be read, and a person who meets the error should learn of it.
"""

from __future__ import annotations

import logging
import threading
from typing import Final

from hybrisfs.errors import UsageError
from hybrisfs.parts import Ground
from hybrisfs.sharing.sharing import Sharing
from hybrisfs.shown import quoted, shown
from hybrisfs.state.chunk_states import ChunkRef
from hybrisfs.state.shown_nodes import path_of
from hybrisfs.state.unplaced_chunks import files_lacking
from hybrisfs.volume.mounting import Mounting
from hybrisfs.volume.versions import Versions

__all__ = ["Unreadable"]

log = logging.getLogger(__name__)

_MOST: Final = 200  # chunks that are remembered
_TOLD: Final = 3  # files that `status` tells of


class Unreadable:
    """What was read in vain since the volume was opened. Thread-safe; called without the volume's lock."""

    def __init__(self, ground: Ground, sharing: Sharing, versions: Versions, mounting: Mounting) -> None:
        self._ground = ground
        self._sharing = sharing
        self._versions = versions
        self._mounting = mounting
        self._lock = threading.Lock()
        self._chunks: dict[int, None] = {}

    def note(self, ref: ChunkRef) -> None:
        """A chunk could not be had. Nothing is noted of one that the clouds are known to have."""
        if ref.is_on_clouds:
            return
        with self._lock:
            if ref.number in self._chunks or len(self._chunks) >= _MOST:
                return
            self._chunks[ref.number] = None
        for path in self._paths([ref.number]):
            log.warning("%s", self._explain(path))

    def warnings(self) -> list[str]:
        """What is to be said of files that still cannot be read, in sentences."""
        with self._lock:
            chunks = list(self._chunks)
        paths = self._paths(chunks)
        found = [self._explain(path) for path in paths[:_TOLD]]
        if len(paths) > _TOLD:
            found.append("more files cannot be read now, as only other devices have their newest bytes")
        return found

    def _paths(self, chunks: list[int]) -> list[str]:
        fs = self._ground.fs
        found: dict[str, None] = {}
        with fs.state.transaction() as tx:
            for chunk in chunks:
                files = files_lacking(tx, chunk)
                if not files:
                    with self._lock:
                        self._chunks.pop(chunk, None)
                for ino in files:
                    path = path_of(tx, ino)
                    if path:
                        found[path] = None
        return sorted(found)

    def _explain(self, path: str) -> str:
        named = shown(path)
        try:
            device, number = self._versions.newest(path)
        except UsageError:
            return f"{named} cannot be read now: no cloud and no linked device has its bytes"
        if device == self._sharing.membership.own_name:
            why = "no cloud has its newest bytes any more, and no linked device has them"
        else:
            why = f"{shown(device)} wrote its newest bytes, which no cloud and no linked device has"
        if number is None:
            return f"{named} cannot be read now: {why}. No version before it can be read either"
        where = self._mounting.directory
        command = f"hybrisfs versions restore --version {number}"
        if where is not None:
            command = f"{command} {quoted(str(where / path))}"
        else:
            command = f"{command} --volume {quoted(self._ground.name)} {quoted(path)}"
        return f"{named} cannot be read now: {why}. A version before it can be: {command}"
