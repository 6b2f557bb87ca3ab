"""A member's part in discarding packs: promise, watch, agree."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from hybrisfs.gc.assembly import Assembly
from hybrisfs.gc.pages import Pages
from hybrisfs.gc.references import References
from hybrisfs.registers.ballots import Answer, Stage
from hybrisfs.registers.consent import Book, Listed
from hybrisfs.tree.commit import Committer
from hybrisfs.tree.filesystem import FileSystem

__all__ = ["Voter"]


class Voter:
    """Answers all proposals, own ones included. One caller at a time, without the volume's locks."""

    def __init__(
        self,
        fs: FileSystem,
        assembly: Assembly,
        committer: Committer,
        pages: Pages,
        settle: Callable[[Iterable[int]], None] = lambda chunks: None,
        look_in: Callable[[Iterable[bytes]], object] = lambda packs: None,
    ) -> None:
        """*settle* finds out whether chunks are in other packs, as members say, see `Fetcher.settle`.
        *look_in* brings what is lacking here from packs that no register names, see `NeededOrphans.look`."""
        self._settle = settle
        self._look_in = look_in
        self._fs = fs
        self._assembly = assembly
        self._committer = committer
        self._pages = pages

    def step(self) -> bool:
        """Go as far as can be gone now; whether something was signed.

        Raises ChunkUnavailable and OSError when it cannot be told now what is needed.
        """
        with self._fs.lock:
            book = self._assembly.book()
            self._release(book.proposed)
        fresh = [one for one in book.lists if self._stage(book, one) is Stage.NONE]
        if fresh:
            self._look_in([pack for one in fresh for pack in one.orphans])
            self._condemn(fresh)
        if not book.lists:
            return False
        self._pages.look_through()
        # Whoever cuts holds chunks that neither view nor registers name: their turn is before or after.
        with self._fs.cutting, self._fs.lock:
            return self._answer(self._assembly.book(), {one.id for one in book.lists})

    def _stage(self, book: Book, listed: Listed) -> Stage:
        return book.answer(self._assembly.device, listed.id).stage

    def _release(self, lists: Sequence[Listed]) -> None:
        """Packs that nobody proposes to discard any more are packs like any other."""
        condemned = self._fs.chunks.condemned
        standing = {self._fs.packs.number_of(pack) for one in lists for pack in one.packs}
        condemned.release([pack for pack in condemned if pack not in standing])

    def _condemn(self, lists: Iterable[Listed]) -> None:
        """From now on nothing new relies on these packs; find out what is needed of them."""
        fs = self._fs
        with fs.cutting, fs.lock:
            known = [self._fs.packs.number_of(pack) for one in lists for pack in one.packs]
            numbers = [number for number in known if number is not None]
            fs.chunks.condemned.add(numbers)
            for number in numbers:
                fs.chunks.rely_on_spares(number)
        self._pages.list_files()
        self._committer.commit_now()
        with fs.db.snapshot() as snapshot:
            references = References(snapshot, self._pages.read)
            needed = {number: references.of(number) for number in numbers}
        # What is said to be in another pack as well is read there before this one may go.
        self._settle([chunk for one in needed.values() for chunk in (*one.chunks, *one.claimed)])
        with fs.lock:
            for number, one in needed.items():
                if number in fs.chunks.condemned and any(
                    fs.chunks.relies_on(chunk, number) for chunk in (*one.chunks, *one.claimed)
                ):
                    fs.chunks.condemned.want(number)

    def _answer(self, book: Book, looked_at: set[bytes]) -> bool:
        """Answer what was *looked_at*; whether there was anything to say that had not been said."""
        if not self._assembly.may_sign:
            return False  # removed meanwhile
        if self._fs.chunks.condemned.unread_pages():
            return False  # named just now: they are looked through first
        device = self._assembly.device
        before = {one.id: book.answer(device, one.id) for one in book.lists}
        answers = {proposal: one for proposal, one in before.items() if one.stage is not Stage.NONE}
        for one in book.lists:
            if one.id in looked_at:
                refused = set(before[one.id].refused) | self._refused(one)
                answers[one.id] = Answer(book.due(device, one.id), tuple(sorted(refused)))
        if all(answers.get(proposal, Answer(Stage.NONE)) == one for proposal, one in before.items()):
            return False
        self._assembly.answer(answers)
        return True

    def _refused(self, listed: Listed) -> set[int]:
        """Indices of the packs of which something is needed here, or was since they were condemned, of
        orphans that have come to be on record, and of strays that are where they belong.

        What is not condemned although this device has answered is needed, for all it knows: it has been
        restored from a backup.
        """
        dispensable = [
            *map(self._is_dispensable, listed.packs),
            *(self._fs.packs.number_of(pack) is None for pack in listed.orphans),
            *(bytes((cloud,)) != self._placed(pack, index) for pack, index, cloud in listed.strays),
        ]
        return {index for index, one in enumerate(dispensable) if not one}

    def _placed(self, pack: bytes, index: int) -> bytes:
        return self._fs.packs.placement(pack)[index : index + 1]

    def _is_dispensable(self, pack: bytes) -> bool:
        number, condemned = self._fs.packs.number_of(pack), self._fs.chunks.condemned
        if number is None:
            return self._fs.packs.is_discarded(pack)
        return number in condemned and not condemned.is_wanted(number)
