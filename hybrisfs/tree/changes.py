"""Which registers the view has changed since the last signed update.

`mark` is called by everything that changes the tree. The publisher takes what is marked as one consistent
cut; a key that is marked again before the cut is signed stays for the next one. The set survives a crash:
`flush` writes it to the `pending` table within the same transaction as the change itself.

Some keys are *held* (`hybrisfs.merge.losses`): the view keeps on showing what others have taken away, until a
person decides. To the view such a key is unsigned like any other. But no cut takes it, unless something here
changes it, which means that it is wanted. So is the name of a file whose content changes.

Some nodes are *aside* (`hybrisfs.tree.ignored`): they stay on this device. Their keys are unsigned, too, and
no cut takes them. What a program writes to such a node changes nothing of that, but a new name may.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Final

from hybrisfs.kinds import CONTENT, NODE, PLACE
from hybrisfs.state.redo import PendingRows
from hybrisfs.state.state import Transaction
from hybrisfs.topic import Topic

__all__ = ["Changes"]

_MOST_SPANS: Final = 1000  # of dropped changes; beyond, neighbours are taken for one, which holds back more


class Changes:
    """The unsigned changes of one volume, under the volume's lock."""

    def __init__(self, tx: Transaction) -> None:
        self.begun = Topic[[]]()
        """Something changes, for the first time since the last cut."""
        self.marked = Topic[[int]]()
        """The node with this number changes."""
        self._announced = False
        self.seq = tx.pending.newest()
        self.unsigned = {key: (ino, number) for key, ino, number in tx.pending.unsigned()}
        self.held: set[bytes] = set()
        self._held_places: dict[bytes, set[bytes]] = {}  # those of them that are places, by node
        for key in tx.held.keys_held() & self.unsigned.keys():
            self._hold(key)
        # Of keys marked more than once: no change of theirs is older. Of those that were marked when the
        # daemon ended, only the latest change is known: they are taken for one.
        # Those that cuts may take, in the order in which they were first marked.
        self._queue = {key: None for key in self.unsigned if key not in self.held}
        oldest = min((self.unsigned[key][1] for key in self._queue), default=0)
        self._first = dict.fromkeys(self._queue, oldest)
        self.aside: set[int] = set()
        self._withdrawn: list[tuple[int, int]] = []  # spans of dropped changes; they rise and do not overlap
        self._unflushed: dict[bytes, tuple[int, int]] = {}
        self._recorded: dict[bytes, tuple[int, int]] = {}  # unflushed, too, but in records
        self._dropped: set[bytes] = set()
        self._let_gone: set[bytes] = set()  # keys that are held no more
        self._in_cut: set[bytes] = set()

    def mark(self, key: bytes, ino: int) -> None:
        """The register *key* of node *ino* has a new value."""
        self.seq += 1
        self.marked(ino)
        before = self.unsigned.get(key)
        self.unsigned[key] = self._unflushed[key] = (ino, self.seq)
        if before is not None and key in self._queue:
            self._first.setdefault(key, before[1])
        elif before is not None and before[0] in self.aside and key[0] != PLACE:
            return  # the node stays on this device, whatever is written to it
        else:
            self._queue[key] = None
            if key in self.held:
                self._let_go(key)
        if key[0] == CONTENT:
            for place in tuple(self._held_places.get(key[NODE], ())):
                self.mark(place, ino)
        if not self._announced:
            self.announce()

    def hold(self, key: bytes, ino: int) -> None:
        """Let the view keep what it shows of the register *key* of node *ino*, which is not unsigned."""
        self.unsigned[key] = self._unflushed[key] = (ino, self.seq)
        self._dropped.discard(key)
        self._hold(key)

    def _hold(self, key: bytes) -> None:
        self.held.add(key)
        if key[0] == PLACE:
            self._held_places.setdefault(key[NODE], set()).add(key)

    def _let_go(self, key: bytes) -> None:
        self.held.discard(key)
        self._let_gone.add(key)
        places = self._held_places.get(key[NODE], set())
        places.discard(key)
        if not places:
            self._held_places.pop(key[NODE], None)

    def tie(self, key: bytes) -> None:
        """The change of *key* just made, or dropped, belongs together with all that was marked since:
        no cut parts them."""
        entry = self.unsigned.get(key)
        if entry is not None:
            self.mark(key, entry[0])
        elif self._withdrawn:
            self._withdrawn.append((self._withdrawn.pop()[0], self.seq))

    def announce(self) -> None:
        """There is something to be published. `mark` says so once between two cuts."""
        self._announced = True
        self.begun()

    def retire(self, key: bytes, ino: int, *, stamp: int) -> None:
        """The register *key* is gone; no update need say so if none has named it (stamp 0)."""
        if stamp == 0 and key not in self._in_cut:
            self.drop(key)
        else:
            self.mark(key, ino)

    def drop(self, key: bytes) -> None:
        """Nothing need be published about *key* any more.

        The span of its changes still counts: others must not see what was changed between them without what
        made them void, such as a database written under the protection of a journal.
        """
        entry = self.unsigned.pop(key, None)
        if key in self.held:
            self._let_go(key)
        elif entry is not None and key in self._queue:
            del self._queue[key]
            self._withdraw(self._first.pop(key, entry[1]))
        self._unflushed.pop(key, None)
        self._recorded.pop(key, None)
        self._dropped.add(key)

    def _withdraw(self, first: int) -> None:
        spans = self._withdrawn
        while spans and (spans[-1][1] >= first or len(spans) >= _MOST_SPANS):
            first = min(first, spans.pop()[0])
        spans.append((first, self.seq))

    def reassign(self, keys: Iterable[bytes], ino: int) -> None:
        """Those of *keys* that are unsigned are registers of another inode now."""
        for key in keys:
            if key in self.unsigned:
                self.unsigned[key] = self._unflushed[key] = (ino, self.unsigned[key][1])

    @property
    def withdrawn(self) -> Sequence[tuple[int, int]]:
        """The numbers of the first and the latest of changes that were dropped, as spans that rise."""
        return self._withdrawn

    def spans(self) -> Iterator[tuple[bytes, int, int, int]]:
        """Each unsigned key with its node and the numbers of its first and its latest unsigned change, but
        for those that are held, or whose nodes are aside.

        The first may be too low: a change made while the last cut was being signed counts from that cut on.
        """
        return map(self._span, self._queue)

    def _span(self, key: bytes) -> tuple[bytes, int, int, int]:
        ino, seq = self.unsigned[key]
        return key, ino, self._first.get(key, seq), seq

    @property
    def waiting(self) -> int:
        """How many `spans` there are."""
        return len(self._queue)

    def oldest(self, count: int) -> tuple[list[tuple[bytes, int, int, int]], int]:
        """The `spans` of the nodes of about the *count* oldest keys, and a number: all changes of other nodes
        come after it."""
        keys = iter(self._queue)
        found = list(map(self._span, islice(keys, count)))
        # Keys are in the order in which they were first marked, and no change of one came before that. One
        # that was marked once only tells when that was.
        reach = max((begun for key, _, begun, _ in found if key not in self._first), default=0)
        nodes = {ino for _, ino, _, _ in found}
        found += [span for span in map(self._span, keys) if span[1] in nodes]
        return found, reach

    # -- nodes that stay on this device ----------------------------------------------------------

    def set_aside(self, ino: int, keys: Iterable[bytes]) -> None:
        """Let no cut take a node, of which *keys* are the `spans`, and which no update names."""
        self.aside.add(ino)
        for key in keys:
            del self._queue[key]
            self._first.pop(key, None)
        self._announced = bool(self._queue)

    def take_back(self, ino: int, keys: Iterable[bytes]) -> None:
        """Let cuts take a node that was aside; *keys*: its registers."""
        self.aside.discard(ino)
        for key in keys:
            if key in self.unsigned:
                self.mark(key, ino)

    def begin_cut(self, keys: set[bytes], reach: int) -> None:
        """The values of *keys* have been taken and are about to be signed; `begun` says so of the next.

        No change numbered *reach* or lower that was dropped matters any more.
        """
        self._announced = False
        self._in_cut = keys
        self._withdrawn = [span for span in self._withdrawn if span[0] > reach]

    def end_cut(self) -> None:
        self._in_cut = set()

    def signed(self, tx: Transaction, keys: dict[bytes, int], clock: int) -> None:
        """The update at *clock* holds *keys* as they were at the given sequence numbers."""
        for key, seq in keys.items():
            current = self.unsigned.get(key)
            if current is not None and current[1] == seq:
                del self.unsigned[key], self._queue[key]
                self._first.pop(key, None)
            elif current is not None:
                self._first[key] = seq + 1  # marked again since, first at an unknown time
        self.flush(tx)
        tx.pending.sign(clock, keys.items())

    def flush(self, tx: Transaction) -> None:
        """Write the marked keys into the open transaction."""
        if self._dropped:
            tx.pending.drop(self._dropped)
            self._dropped.clear()
        if self._let_gone:
            tx.held.let_go(self._let_gone)
            self._let_gone.clear()
        marked = self._recorded | self._unflushed
        if marked:
            tx.pending.put(_rows(marked), self.seq)
            self._recorded.clear()
            self._unflushed.clear()

    @property
    def dirty(self) -> bool:
        """Whether `flush` has something to write."""
        return bool(self._unflushed or self._recorded or self._dropped or self._let_gone)

    @property
    def is_only_marked(self) -> bool:
        """Whether `record` tells of all changes since the last flush."""
        return not (self._dropped or self._let_gone)

    @property
    def unrecorded(self) -> int:
        """Of how many keys `record` would tell."""
        return len(self._unflushed)

    def record(self) -> PendingRows:
        """The rows that are to be in a record: of what was marked since the last flush or record. The next
        flush writes them, too."""
        rows = _rows(self._unflushed)
        self._recorded |= self._unflushed
        self._unflushed.clear()
        return rows

    def unsigned_up_to(self, seq: int) -> bool:
        """Whether a change numbered *seq* or lower is in no signed update yet."""
        return any(first <= seq for _, _, first, _ in self.spans())

    def pending_nodes(self, tx: Transaction) -> int:
        """How many nodes have changes that the clouds are to get."""
        self.flush(tx)
        if not self.aside:
            return tx.pending.count_nodes()
        return len(tx.pending.signed_nodes() | {ino for _, ino, _, _ in self.spans() if ino})


def _rows(marked: Mapping[bytes, tuple[int, int]]) -> PendingRows:
    return [(key, ino, seq) for key, (ino, seq) in marked.items()]
