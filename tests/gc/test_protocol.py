"""The consent machine among others of its kind, in memory: any order of events, a crash between any action
and its effect. What it promises stands at the head of `hybrisfs.gc.protocol`; here it is checked.

Packs are shown by files. A file is copied by devices that see it, and removed; a device that has not heard of
the removal may copy it still. One device may need files that are removed, as versions. The last one may be a
liar, which answers and proposes what it likes.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from hybrisfs.gc.protocol import (
    Action,
    Consent,
    Delete,
    End,
    Examine,
    Propose,
    ReadPages,
    Release,
    Reply,
    Worth,
)
from hybrisfs.registers.proposals import Answer, Answers, Book, Proposal, Stage, Stray

PACKS = tuple(bytes([number]) * 32 for number in range(1, 4))
ORPHANS = tuple(bytes([number]) * 32 for number in range(8, 10))
STRAY = Stray(PACKS[0], 1, 7)
CRASHES = ("no", "no", "before", "amid", "after")
picks = st.integers(0, 9)
EVENTS = st.tuples(
    st.sampled_from([*["answer"] * 9, "crash", "copy", "long copy", "remove", "name", "place", "admit"]),
    picks,
    picks,
)


class Update(NamedTuple):
    """What a device has signed: one of these."""

    author: bytes
    number: int
    proposal: bytes | None = None
    answers: bytes | None = None
    ends: tuple[bytes, ...] = ()
    shows: bytes = b""
    """A pack that a file needs from now on."""
    is_long: bool = False
    """The pack is named by a list of chunks, which has to be read first."""
    removes: frozenset[tuple[bytes, int]] = frozenset()
    """The updates whose files are gone."""
    names: bytes = b""
    """An orphan that a register names from now on."""
    places: Stray | None = None
    admits: bytes = b""

    @property
    def id(self) -> tuple[bytes, int]:
        return self.author, self.number


@dataclass
class Node:
    """A device: what it has heard and noted survives a crash, its machine does not."""

    id: bytes
    heard: list[Update] = field(default_factory=list)
    wanted: dict[bytes, bool] = field(default_factory=dict)  # of condemned packs
    pages: dict[bytes, bytes] = field(default_factory=dict)
    """Lists that are not read, and the pack that each names."""
    is_liar: bool = False
    is_keeper: bool = False
    """It keeps versions: what was removed is needed here as before."""

    def __post_init__(self) -> None:
        self.consent = Consent(self.id)

    may_sign = may_propose = True

    def crash(self) -> None:
        self.consent = Consent(self.id)

    def sign(self, **said: object) -> Update:
        number = sum(one.author == self.id for one in self.heard) + 1
        update = Update(self.id, number, **said)  # type: ignore[arg-type]
        self.hear([update])
        return update

    def hear(self, updates: Iterable[Update]) -> None:
        known = {one.id for one in self.heard}
        for update in updates:
            if update.id in known:
                continue
            self.heard.append(update)
            if update.shows in self.wanted and update.is_long:
                self.pages[bytes([len(self.heard)])] = update.shows
            elif update.shows in self.wanted:
                self.wanted[update.shows] = True
            for pack in update.ends:
                self.wanted.pop(pack, None)

    def shown(self) -> list[Update]:
        gone = {file for one in self.heard for file in one.removes if not self.is_keeper}
        return [one for one in self.heard if one.shows and one.id not in gone]

    def members(self) -> list[bytes]:
        return sorted({one.admits for one in self.heard if one.admits})

    # -- Knowledge -----------------------------------------------------------------------------------

    def book(self) -> Book:
        proposals = {one.author: [one.proposal] for one in self.heard if one.proposal is not None}
        said = {one.author: [one.answers] for one in self.heard if one.answers is not None}
        return Book(self.members(), proposals, said)

    def may_end(self, packs: Collection[bytes]) -> bool:
        return True

    def condemned(self) -> Collection[bytes]:
        return set(self.wanted)

    def unread_pages(self) -> list[bytes]:
        return list(self.pages)

    def worth(self, pack: bytes) -> Worth:
        if any(pack in one.ends for one in self.heard):
            return Worth.ENDED
        if pack in ORPHANS and not any(pack == one.names for one in self.heard):
            return Worth.UNNAMED
        if pack not in self.wanted:
            return Worth.USED
        return Worth.WANTED if self.wanted[pack] else Worth.CONDEMNED

    def is_placed(self, stray: Stray) -> bool:
        return any(one.places == stray for one in self.heard)


class Consenting(RuleBasedStateMachine):
    """Two to four devices and one cloud that keeps a stray share."""

    @initialize(count=st.integers(2, 3), lies=st.booleans(), keeps=st.booleans())
    def begin(self, count: int, lies: bool, keeps: bool) -> None:
        ids = [bytes([ord("a") + number]) * 16 for number in range(count)]
        self.nodes = [Node(one) for one in ids]
        for one in ids:
            self.nodes[0].sign(admits=one)
        for pack in PACKS:
            self.nodes[0].sign(shows=pack)
        for node in self.nodes[1:]:
            node.hear(self.nodes[0].heard)
        self.nodes[-1].is_liar, self.nodes[0].is_keeper = lies, keeps
        self.serial = 0
        self.ended: set[bytes] = set()
        self.late = False  # the cloud was told to delete the stray, and has not said that it has
        self.is_away = False

    def node(self, number: int) -> Node:
        return self.nodes[number % len(self.nodes)]

    @property
    def honest(self) -> list[Node]:
        return [one for one in self.nodes if not one.is_liar]

    # -- what programs and the network do --------------------------------------------------------------

    @rule(device=picks, pack=st.sampled_from(PACKS), is_long=st.booleans())
    def copy(self, device: int, pack: bytes, is_long: bool) -> None:
        """A device that sees a file may give its content to another one."""
        node = self.node(device)
        if not node.is_liar and any(one.shows == pack for one in node.shown()):
            node.sign(shows=pack, is_long=is_long)

    @rule(device=picks, pack=st.sampled_from(PACKS))
    def remove(self, device: int, pack: bytes) -> None:
        node = self.node(device)
        if gone := frozenset(one.id for one in node.shown() if one.shows == pack):
            node.sign(removes=gone)

    @rule(device=picks, orphan=st.sampled_from(ORPHANS))
    def name(self, device: int, orphan: bytes) -> None:
        """An upload ends: it is recorded unless a device calls its pack an orphan."""
        node = self.node(device)
        banned = any(orphan in one.orphans for one in node.book().proposed)
        if node.worth(orphan) is Worth.UNNAMED and not banned and not node.is_liar:
            node.sign(names=orphan)

    @rule(device=picks)
    def place(self, device: int) -> None:
        """A share is moved to where the stray is, unless a device calls it a stray."""
        node = self.node(device)
        banned = any(STRAY in one.strays for one in node.book().proposed)
        if not node.is_placed(STRAY) and not banned and not node.is_liar:
            node.sign(places=STRAY)

    @rule(sender=picks, receiver=picks, most=st.integers(1, 12))
    def send(self, sender: int, receiver: int, most: int) -> None:
        """Updates come in an order that respects their causes."""
        source, target = self.node(sender), self.node(receiver)
        known = {one.id for one in target.heard}
        target.hear([one for one in source.heard if one.id not in known][:most])

    @precondition(lambda self: len(self.nodes) < 4)
    @rule(inviter=picks)
    def admit(self, inviter: int) -> None:
        """A device is let in, and begins with the log of the one that lets it in."""
        newcomer = Node(bytes([ord("p") + len(self.nodes)]) * 16)
        node = self.node(inviter)
        if not node.is_liar:
            node.sign(admits=newcomer.id)
            newcomer.hear(node.heard)
            self.nodes.insert(0, newcomer)

    # -- what the machine does -------------------------------------------------------------------------

    @rule(device=picks, packs=st.sets(st.sampled_from(PACKS)), orphans=st.booleans(), stray=st.booleans())
    def propose(self, device: int, packs: set[bytes], orphans: bool, stray: bool) -> None:
        """Nothing is too much in use to be proposed: the others must refuse."""
        node = self.node(device)
        lost = [one for one in ORPHANS if orphans and node.worth(one) is Worth.UNNAMED]
        strays = [STRAY] if stray and not node.is_placed(STRAY) else []
        found = node.consent.proposal(node, sorted(packs), lost, strays)
        if found is not None and not node.is_liar:
            self.carry_out(node, found)

    @rule(device=picks, steps=st.integers(1, 9), crash=st.sampled_from(CRASHES))
    def turn(self, device: int, steps: int, crash: str) -> None:
        """Some actions, and perhaps a crash before, amid or after the last one."""
        node = self.node(device)
        node.consent.begin()
        for left in reversed(range(steps)):
            action = node.consent.due(node)
            if action is None or node.is_liar:
                break
            if left or crash in ("no", "after"):
                self.carry_out(node, action)
            elif crash == "amid":
                self.carry_out(node, action, amid=True)
        if crash != "no":
            node.crash()

    @rule(first=picks, pack=st.sampled_from(PACKS), copier=picks, events=st.lists(EVENTS, max_size=20))
    def confer(self, first: int, pack: bytes, copier: int, events: list[tuple[str, int, int]]) -> None:
        """A pack that one device sees no more is proposed; the others answer, more or less in turn."""
        if copier % 2:
            self.copy(copier, pack, bool(copier % 4 == 1))
        self.remove(first, pack)
        self.propose(first, {pack}, not first % 3, not first % 2)
        for number, (kind, one, other) in enumerate(events):
            match kind:
                case "answer":
                    self.send(first + number, first + number + 1, 99)
                    self.turn(first + number + 1, 9, "no")
                case "crash":
                    self.turn(one, other, "amid")
                case "copy":
                    self.copy(one, pack, False)
                case "long copy":
                    self.copy(one, pack, True)
                case "remove":
                    self.remove(one, pack)
                case "name":
                    self.name(one, ORPHANS[other % 2])
                case "place":
                    self.place(one)
                case "admit":
                    if len(self.nodes) < 4:
                        self.admit(one)

    @rule(away=st.booleans())
    def cloud(self, away: bool) -> None:
        """The cloud of the stray goes or comes; what it was told to delete may go at any time."""
        self.is_away = away
        if self.late:
            self.check_unplaced()

    @precondition(lambda self: self.nodes[-1].is_liar)
    @rule(stage=st.sampled_from(list(Stage)), packs=st.sets(st.sampled_from(PACKS)))
    def lie(self, stage: Stage, packs: set[bytes]) -> None:
        liar = self.nodes[-1]
        answers = {one.id: Answer(stage) for one in liar.book().lists if stage is not Stage.NONE}
        self.serial += 1
        liar.sign(
            answers=Answers(answers).encode(), proposal=Proposal(self.serial, tuple(sorted(packs))).encode()
        )

    def carry_out(self, node: Node, action: Action, *, amid: bool = False) -> None:
        """As the participant does it; *amid*: only a part of it."""
        match action:
            case Release():
                node.wanted = {pack: one for pack, one in node.wanted.items() if pack in action.kept}
            case Examine():
                for pack in {pack for one in action.lists for pack in one.packs}:
                    if node.worth(pack) is Worth.USED:
                        # Condemning and noting what is shown are one here: the database has both or none.
                        node.wanted[pack] = pack in {one.shows for one in node.shown()}
                if not amid:
                    node.consent.examined(action.lists)
            case ReadPages():
                for page in action.pages[: 1 if amid else None]:
                    pack = node.pages.pop(page)
                    if pack in node.wanted:
                        node.wanted[pack] = True
                node.consent.pages_read()
            case Reply():
                self.check_answer(node, action)
                node.sign(answers=Answers(action.answers).encode())
            case End():
                found = [*action.packs, *action.orphans]
                ending = node.consent.ending(node, found[: 1 if amid else None])
                self.check_end(node, ending)
                if ending:
                    node.sign(ends=tuple(ending))
                    self.ended.update(ending)
            case Delete():
                self.check_unplaced()
                self.late = self.is_away
                node.consent.deleted(action.proposal, action.strays if self.is_away else ())
            case Propose():
                self.serial += 1
                proposal = Proposal(self.serial, action.packs, action.orphans, action.strays)
                node.sign(proposal=proposal.encode())

    # -- what holds --------------------------------------------------------------------------------------

    def check_answer(self, node: Node, action: Reply) -> None:
        book = node.book()
        for listed in book.lists:
            before, now = book.answer(node.id, listed.id), action.answers.get(listed.id, Answer(Stage.NONE))
            assert now.stage >= before.stage, "a promise was taken back"
            assert set(now.refused) >= set(before.refused), "a refusal was taken back"
            if now.stage is Stage.AGREED is not before.stage:
                assert not set(book.lacking(listed.id, Stage.PROMISED)), "it agreed before all had promised"

    def check_end(self, node: Node, ending: Collection[bytes]) -> None:
        book = node.book()
        (listed,) = book.of(node.id)
        named = (*listed.packs, *listed.orphans)
        for pack in ending:
            for member in node.members():
                said = book.answer(member, listed.id)
                assert said.stage is Stage.AGREED and named.index(pack) not in said.refused

    def check_unplaced(self) -> None:
        assert not any(node.is_placed(STRAY) for node in self.honest), (
            "a share that is placed there was deleted"
        )

    @invariant()
    def nothing_that_is_shown_has_ended(self) -> None:
        for node in self.honest if hasattr(self, "nodes") else ():
            assert self.ended.isdisjoint(one.shows for one in node.shown())
            assert self.ended.isdisjoint(one.names for one in node.heard)

    @invariant()
    def what_is_proposed_stays_condemned(self) -> None:
        for node in self.honest if hasattr(self, "nodes") else ():
            book = node.book()
            for listed in book.lists:
                said = book.answer(node.id, listed.id)
                for index, pack in enumerate(listed.packs):
                    if said.stage is not Stage.NONE and index not in said.refused:
                        assert node.worth(pack) in (Worth.CONDEMNED, Worth.WANTED, Worth.ENDED)

    def teardown(self) -> None:
        """When all can talk and nobody lies, every proposal comes to its end."""
        if not hasattr(self, "nodes") or self.nodes[-1].is_liar:
            return
        self.is_away = False
        for _ in range(8):
            for node in self.nodes:
                for other in self.nodes:
                    node.hear(other.heard)
                node.consent.begin()
                while (action := node.consent.due(node)) is not None:
                    self.carry_out(node, action)
        for node in self.nodes:
            assert not node.book().proposed and not node.wanted
            self.nothing_that_is_shown_has_ended()


def test_a_member_that_proposes_without_end_keeps_nobody_busy() -> None:
    """Each of its proposals takes the place of the one before, while another device examines that."""
    node, other = Node(b"a" * 16), Node(b"b" * 16)
    for one in (node, other):
        node.sign(admits=one.id)
    other.hear(node.heard)

    def propose(serial: int) -> None:
        node.hear([other.sign(proposal=Proposal(serial, PACKS).encode())])

    propose(0)
    for serial in range(1, 4):
        node.consent.begin()
        examine = node.consent.due(node)
        assert isinstance(examine, Examine)
        propose(serial)
        node.consent.examined(examine.lists)
        assert node.consent.due(node) is None, "the turn does not end"


Consenting.TestCase.settings = settings(stateful_step_count=60, deadline=None)
TestConsenting = Consenting.TestCase
