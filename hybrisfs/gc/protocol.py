"""One device's part in deleting packs by consent, as a machine: what happens next, given what is known.

What all devices know is in registers (`hybrisfs.registers.proposals`), what this device has noted is in its
database; both outlive a crash. The machine itself remembers only what has been done since the start, and
does it again after a crash. A proposal of any device, the own ones included, goes through these states:

=========  ===============================  ==============================  ================================
state      how it shows                     what comes next                 when
=========  ===============================  ==============================  ================================
heard      no answer of ours                `Examine`: condemn the packs,   at once
                                            look for what is needed
examined   no answer of ours, `examined`    `Reply`: promised               lists named since were read
promised   our answer                       `Reply`: agreed                 all members have promised, and
                                                                            lists named since were read
answered   promised or agreed               `Reply`: refused, too           something needs a pack now
withdrawn  condemned packs, no proposal     `Release`                       at once
=========  ===============================  ==============================  ================================

And one of its own, besides:

=========  ===============================  ==============================  ================================
state      how it shows                     what comes next                 when
=========  ===============================  ==============================  ================================
agreed     all members have agreed          `End`: packs and orphans        the end counts for all others
ended      nothing is left to be ended      `Delete`: strays                at once
deleted    `deleted` in this turn           `Propose`: the strays that are  unless these are the same as
                                            left, or nothing                before: then the next turn
forked     several own proposals            `Propose`: nothing              at once
=========  ===============================  ==============================  ================================

While a list of chunks that was named is unread, `ReadPages` comes before any answer and any end. A turn ends
with an answer or a proposal, or when nothing is left to be done; in a turn, what has come is examined and
read once.

What holds always, whatever the others do, and whenever this device crashes:

* It answers nothing that it has not examined; after `Examine` the database remembers what is wanted.
* It never agrees before all members, as far as it knows, have promised.
* It refuses each pack that is not condemned here, or was needed since; a refusal is never taken back.
* It ends only what all members have agreed on and nobody refuses, that nothing here needs.
* A pack that it has condemned stays so as long as a proposal names it.

The package's docstring says why no byte is lost by that. A member that lies answers for itself alone.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from enum import Enum, auto
from typing import Protocol, TypeAlias

from msgspec import Struct

from hybrisfs.registers.proposals import MAX_PACKS, Answer, Book, Listed, Stage, Stray

__all__ = [
    "Action",
    "Reply",
    "Consent",
    "Delete",
    "End",
    "Examine",
    "Knowledge",
    "Propose",
    "ReadPages",
    "Release",
    "Worth",
]


class Worth(Enum):
    """What a pack is to this device."""

    UNNAMED = auto()  # no register names it
    USED = auto()  # new content may rely on it
    CONDEMNED = auto()  # nothing new relies on it, and nothing has needed it since
    WANTED = auto()  # condemned, and something has needed it since
    ENDED = auto()


class Knowledge(Protocol):
    """The knowledge of this device at one moment, which does not change during a call of the machine."""

    @property
    def may_sign(self) -> bool:
        """Whether this device still belongs to the volume."""

    @property
    def may_propose(self) -> bool:
        """Whether it is a full member."""

    def book(self) -> Book:
        """What stands, and which members are asked."""

    def may_end(self, packs: Collection[bytes]) -> bool:
        """Whether the end of these packs counts for all others, too, if it is signed now."""

    def condemned(self) -> Collection[bytes]:
        """The packs on which nothing new relies."""

    def unread_pages(self) -> Sequence[bytes]:
        """Lists of chunks that were named since and have not been read yet."""

    def worth(self, pack: bytes) -> Worth:
        """What this pack is to the device."""

    def is_placed(self, stray: Stray) -> bool:
        """Whether the register of its pack places that share just there."""


class Release(Struct, frozen=True):
    """Only `kept` packs are still proposed: all other condemned packs become ordinary packs again."""

    kept: frozenset[bytes]


class Examine(Struct, frozen=True):
    """Fetch the chunks in the orphans of `lists` that this device lacks, condemn the packs of `lists`, and
    note which are needed. Then call `examined`."""

    lists: tuple[Listed, ...]


class ReadPages(Struct, frozen=True):
    """Look through these lists of chunks; one that cannot be read may name any chunk, so that all condemned
    packs are wanted. Then call `pages_read`."""

    pages: tuple[bytes, ...]


class Reply(Struct, frozen=True):
    """Sign these answers, by proposal; they replace all earlier answers of this device."""

    answers: dict[bytes, Answer]


class End(Struct, frozen=True):
    """Sign the end of these packs and orphans, as far as `Consent.ending` still names them then."""

    packs: tuple[bytes, ...]
    orphans: tuple[bytes, ...]


class Delete(Struct, frozen=True):
    """Delete the strays of the own proposal, then call `deleted`."""

    proposal: bytes
    strays: tuple[Stray, ...]


class Propose(Struct, frozen=True):
    """Sign a proposal that replaces the one before. The `put_off` parts of the former one wait for another
    grace period."""

    packs: tuple[bytes, ...] = ()
    orphans: tuple[bytes, ...] = ()
    strays: tuple[Stray, ...] = ()
    put_off: tuple[bytes, ...] = ()


Action: TypeAlias = Release | Examine | ReadPages | Reply | End | Delete | Propose


class Consent:
    """The part of *device*. The caller carries out an action before it asks for the next one; what is signed
    is signed at the moment that `due` has seen."""

    def __init__(self, device: bytes) -> None:
        self._device = device
        self._examined: frozenset[bytes] = frozenset()
        self._left: tuple[bytes, tuple[Stray, ...]] | None = None
        self._done: set[type[Action]] = set()  # in this turn: others must not keep it busy for ever

    # -- what happens --------------------------------------------------------------------------------

    def begin(self) -> None:
        """Begin a turn, and try again what failed in the last one."""
        self._left = None
        self._done.clear()

    def examined(self, lists: Iterable[Listed]) -> None:
        """The packs of these are condemned, and what is needed of them is noted."""
        self._examined |= {one.id for one in lists}
        self._done.add(Examine)

    def pages_read(self) -> None:
        """The lists of chunks that were named are read, or count as needing everything."""
        self._done.add(ReadPages)

    def deleted(self, proposal: bytes, left: Iterable[Stray]) -> None:
        """The strays of the own proposal are deleted, but for those that are *left*."""
        self._left = proposal, tuple(left)

    # -- what to do ----------------------------------------------------------------------------------

    def due(self, known: Knowledge) -> Action | None:
        """What to do now; None when it is the turn of others."""
        if not known.may_sign:
            return None
        book = known.book()
        self._examined &= {one.id for one in book.lists}
        kept = frozenset(pack for one in book.proposed for pack in one.packs)
        if not kept.issuperset(known.condemned()):
            return Release(kept)
        fresh = tuple(one for one in book.lists if not self._is_examined(book, one))
        if fresh and Examine not in self._done:
            return Examine(fresh)
        if not book.lists:
            return None
        if pages := known.unread_pages():
            return None if ReadPages in self._done else ReadPages(tuple(pages))
        return self._answer(book, known) or self._conclude(book, known)

    def _is_examined(self, book: Book, listed: Listed) -> bool:
        """Includes packs answered before the start: those that are not condemned are refused."""
        return listed.id in self._examined or self._said(book, listed).stage is not Stage.NONE

    def _said(self, book: Book, listed: Listed) -> Answer:
        return book.answer(self._device, listed.id)

    def _answer(self, book: Book, known: Knowledge) -> Reply | None:
        examined = [one for one in book.lists if self._is_examined(book, one)]
        before = {one.id: self._said(book, one) for one in examined}
        answers = {
            one.id: Answer(
                book.due(self._device, one.id),
                tuple(sorted({*before[one.id].refused, *_refused(one, known)})),
            )
            for one in examined
        }
        return None if answers == before else Reply(answers)

    def _conclude(self, book: Book, known: Knowledge) -> Action | None:
        own = book.of(self._device)
        if not own or not known.may_propose:
            return None
        put_off = tuple(pack for one in own for pack in one.packs)
        if len(own) > 1:
            return Propose(put_off=put_off)
        (listed,) = own
        agreed = book.agreed(listed)
        if agreed is None:
            return None
        packs, orphans = _endable(agreed, known)
        if packs or orphans:
            return End(packs, orphans)
        if agreed.strays and (self._left is None or self._left[0] != listed.id):
            return Delete(listed.id, agreed.strays)
        left = self._left[1] if agreed.strays and self._left is not None else ()
        if left and not (listed.packs or listed.orphans) and set(left) == set(listed.strays):
            return None
        # Nobody may name what is left until it is deleted: it is proposed again in the same breath.
        return Propose(strays=left, put_off=put_off)

    def ending(self, known: Knowledge, some: Iterable[bytes]) -> list[bytes]:
        """The ones of *some* packs and orphans whose end may be signed now; none when all have to wait
        because a device has joined, or something has to be examined first."""
        book = known.book()
        own = book.of(self._device)
        agreed = book.agreed(own[0]) if len(own) == 1 else None
        if agreed is None or not known.may_propose or known.unread_pages():
            return []
        packs, orphans = _endable(agreed, known, frozenset(some))
        ending = [*packs, *orphans]
        return ending if ending and known.may_end(ending) else []

    def proposal(
        self,
        known: Knowledge,
        packs: Iterable[bytes],
        orphans: Iterable[bytes] = (),
        strays: Iterable[Stray] = (),
    ) -> Propose | None:
        """What this device may propose of what it has found; None while a proposal stands, or when there is
        nothing new. Strays alone may wait for a cloud that is away: they are proposed again with the rest."""
        standing = known.book().of(self._device)
        if len(standing) > 1 or any(one.packs or one.orphans for one in standing) or not known.may_propose:
            return None
        waiting = standing[0].strays if standing else ()
        room = MAX_PACKS - len(waiting)
        fresh = tuple(one for one in strays if one not in waiting)[:room]
        room -= len(fresh)
        lost = tuple(one for one in orphans if known.worth(one) in (Worth.UNNAMED, Worth.ENDED))[:room]
        empty = tuple(packs)[: room - len(lost)]
        return Propose(empty, lost, (*waiting, *fresh)) if empty or lost or fresh else None


def _refused(listed: Listed, known: Knowledge) -> Iterable[int]:
    """Indices of the packs of which this device needs something, or has needed it since they were condemned;
    of orphans that a register names by now; and of strays that are where they belong. A pack that this device
    has answered and that is not condemned counts as needed: the device was restored from a backup.
    """
    dispensable = [
        *(known.worth(pack) in (Worth.CONDEMNED, Worth.ENDED) for pack in listed.packs),
        *(known.worth(pack) in (Worth.UNNAMED, Worth.ENDED) for pack in listed.orphans),
        *(not known.is_placed(stray) for stray in listed.strays),
    ]
    return (index for index, one in enumerate(dispensable) if not one)


def _endable(
    agreed: Listed, known: Knowledge, some: Collection[bytes] | None = None
) -> tuple[tuple[bytes, ...], tuple[bytes, ...]]:
    """The packs and orphans that all have agreed on and that are to be ended; only of *some*, if given."""

    def wanted(packs: Iterable[bytes], worth: Worth) -> tuple[bytes, ...]:
        return tuple(one for one in packs if (some is None or one in some) and known.worth(one) is worth)

    return wanted(agreed.packs, Worth.CONDEMNED), wanted(agreed.orphans, Worth.UNNAMED)
