"""Which updates of other devices may go to the clouds: data before the metadata that names it.

A file's content may go when all its chunks are on the clouds. Those that their maker has not brought there
can be *claimed* where they are on this device: then the packer brings them. When their maker stays away, one
does without those that are not here. A content that a later update of
the same batch replaces, or whose file is gone by then, is not waited for: it is nobody's to see.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from hybrisfs.kinds import CONTENT, NODE, PLACE
from hybrisfs.merge.authority import lawful
from hybrisfs.registers.tree import Content, Place, Run, content_key, decode_runs
from hybrisfs.signals import Signals
from hybrisfs.state.chunk_states import ChunkRef
from hybrisfs.state.state import Transaction
from hybrisfs.tree.filesystem import FileSystem
from sync import DecodeError, Write, decode_signed

__all__ = ["RelayGate"]


class RelayGate:
    """Looks at the chunks of one volume."""

    def __init__(self, fs: FileSystem, signals: Signals) -> None:
        self._fs = fs
        self._signals = signals
        self._claim = self._claimed = self._forgo = False
        self.unread: dict[int, ChunkRef] = {}
        """Lists of chunks that are not on this device, by number: what they list may be on the clouds."""
        self.unreadable: set[int] = set()
        """Those of them that could not be had. With *forgo* they are not waited for either."""

    def count(self, tx: Transaction, updates: Sequence[bytes], *, claim: bool, forgo: bool = False) -> int:
        """How many of these consecutive updates, from the first one on, may go to the clouds together.

        With *claim*, chunks that keep some of them back are claimed. With *forgo*, those that are not here
        are not waited for: if they never came, nothing that was written since could ever be read by others.
        """
        self._fs.flush(tx)
        self._forgo = forgo
        waiting: set[bytes] = set()  # content registers whose chunks are not there
        found = 0
        self._claim, self._claimed = claim, False
        for number, data in enumerate(updates, 1):
            for write in lawful(decode_signed(data)).writes:
                self._follow(tx, write, waiting)
            if not waiting:
                found = number
        if self._claimed:
            self._signals.chunks_made()
        return found

    def _follow(self, tx: Transaction, write: Write, waiting: set[bytes]) -> None:
        key, value = write
        if key[0] == CONTENT:
            if self._is_there(tx, value):
                waiting.discard(key)
            else:
                waiting.add(key)
        elif key[0] == PLACE and waiting and self._is_removed(tx, key[NODE], value):
            waiting.discard(content_key(key[NODE]))

    def _is_removed(self, tx: Transaction, node: bytes, value: bytes | None) -> bool:
        """Whether the place was given up and nothing of the node is seen any more."""
        try:
            if value is not None and not Place.decode(value).removed:
                return False
        except DecodeError:
            return False
        return not tx.nodes.is_named(node)

    def _is_there(self, tx: Transaction, value: bytes | None) -> bool:
        try:
            content = Content.decode(value) if value is not None else Content(0, 0, ())
        except DecodeError:
            return True  # counts as an empty file everywhere
        return self._are_all_there(tx, content.runs, content.depth)

    def _are_all_there(self, tx: Transaction, runs: Iterable[Run], depth: int) -> bool:
        """Looks at each of them, so that all that can be claimed are."""
        return not [run for run in runs if not self._are_there(tx, run, depth)]

    def _are_there(self, tx: Transaction, run: Run, depth: int) -> bool:
        """Whether a chunk is on the clouds, and with depth 1 also those that it lists."""
        if run.chunk is None:
            return True
        ref = tx.chunks.find(run.chunk)
        if ref is None:
            return self._forgo
        if self._forgo and ref.is_elsewhere and not (ref.is_here and self._claim):
            return True
        listed = self._list(tx, ref) if depth else ()
        if listed is None:
            return self._forgo and ref.number in self.unreadable
        if self._claim and ref.is_elsewhere and ref.is_here:
            tx.chunks.claim(ref.number)
            self._claimed = True
        return self._are_all_there(tx, listed, 0) and ref.is_on_clouds

    def _list(self, tx: Transaction, ref: ChunkRef) -> Iterable[Run] | None:
        """The runs that the chunk lists, None when they cannot be read here."""
        try:
            data = tx.chunks.read_whole(ref)
        except OSError:
            return None  # damaged here, and nowhere else yet
        try:
            if data is not None:
                return decode_runs(data)
        except DecodeError:
            return ()
        self.unread[ref.number] = ref
        return None
