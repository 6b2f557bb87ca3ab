"""What a bad member signs: anything that is well-formed, made of what honest devices have written.

`KINDS` is the table of all kinds of forged writes. Each is a function of a `Forger`, which knows all that the
member has heard, and gives the writes of one update. `changed` is the general one: it takes a record apart by
its codec, changes some of it and puts it together again.
"""

from __future__ import annotations

import stat
import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields, is_dataclass, replace
from enum import Enum
from functools import cache
from random import Random
from typing import Any, Final

from msgspec import Struct, structs

from hybrisfs.keys import MAX_EPOCHS, EpochKeys
from hybrisfs.kinds import VOTE
from hybrisfs.members.epochs import encode_grant, epoch_key
from hybrisfs.members.members import Member, member_key
from hybrisfs.members.removal import Stance, encode_vote, vote_key
from hybrisfs.members.roles import Area, RoleRecord, new_assignment
from hybrisfs.merge.cloud_records import REDUNDANCY_KEY, CloudRecord, RedundancyRecord, cloud_key
from hybrisfs.merge.kv_services import ServiceRecord, service_key
from hybrisfs.recovery.record import KitRecord, SignedKit, kit_key, signed_kit_key
from hybrisfs.recovery.sealed_key import Cost, SealedKey
from hybrisfs.registers.labels import ADDED, TAKEN_AWAY, label_key
from hybrisfs.registers.node_id import ROOT_ID, kind_of, new_node_id
from hybrisfs.registers.proposals import Answer, Answers, Proposal, Stage, answers_key, proposal_key
from hybrisfs.registers.tree import (
    MAX_FILE_SIZE,
    Attr,
    Content,
    PackedChunk,
    PackRecord,
    Place,
    Rewritten,
    Run,
    attr_key,
    content_key,
    is_of_tree,
    pack_key,
    place_key,
    rewritten_key,
)
from sync import EPOCH_SIZE, DecodeError, DeviceKey, LimitError, Members, Write
from tests.tree.rig import VOLUME

__all__ = ["KINDS", "SLOW", "Forger", "Heard"]

_NUMBERS: Final = (
    0, 1, 2, 16, 127, 128, 255, 256, 0xFFFF, 1 << 24, (1 << 31) - 1, 1 << 31, (1 << 32) - 1, 1 << 32,
    MAX_FILE_SIZE, MAX_FILE_SIZE + 1, (1 << 62) - 2, (1 << 63) - 1, (1 << 64) - 1,
)  # fmt: skip
_TEXTS: Final = ("", "a", "evil\x1b]0;\x07", "two\nlines", "x" * 255, "file:///elsewhere", "ada")
_MANY: Final = 1100  # members
_CROWD: Final = 30  # nodes that want one name
_DECODERS: Final[Mapping[bytes, Callable[[bytes], Any]]] = {
    b"p": Place.decode, b"a": Attr.decode, b"c": Content.decode, b"k": PackRecord.decode,
    b"w": Rewritten.decode, b"d": Proposal.decode, b"v": Answers.decode, b"m": Member.decode,
    b"s": CloudRecord.decode, b"r": RedundancyRecord.decode, b"y": KitRecord.decode,
    b"o": RoleRecord.decode,
}  # fmt: skip
_UNSIGNABLE: Final = (ValueError, OverflowError, TypeError, AttributeError, LimitError, struct.error)


class Heard:
    """All that has been written, as far as a member has heard of it."""

    def __init__(self, writes: Iterable[Write]) -> None:
        self.values: dict[bytes, list[bytes | None]] = {}  # by key, oldest first
        for key, value in writes:
            if is_of_tree(key) and kind_of(key[1:17]) is None and key[1:17] != ROOT_ID:
                continue  # of a liar that makes ids as earlier versions did, which do not tell the kind
            self.values.setdefault(key, []).append(value)

    def keys(self, letters: bytes) -> list[bytes]:
        return [key for key in self.values if key[:1] in (bytes((letter,)) for letter in letters)]

    def records(self, letter: bytes) -> list[tuple[bytes, Any]]:
        """Key and newest record of each register of a kind, as far as it can be decoded."""
        found = []
        for key in self.keys(letter):
            try:
                found.append((key, _DECODERS[letter](self.values[key][-1] or b"")))
            except DecodeError:
                continue
        return found

    def nodes(self) -> list[bytes]:
        return [key[1:17] for key in self.keys(b"a") if key[1:17] != ROOT_ID]

    def chunks(self) -> list[tuple[bytes, int]]:
        """Ids and lengths of all chunks that contents name."""
        runs = [run for _, content in self.records(b"c") for run in content.runs]
        return list(dict.fromkeys((run.chunk, run.length) for run in runs if run.chunk is not None))


class Forger:
    """What is needed to forge: the member's *key*, whom it knows, what it has *heard*, and its *puppets*, the
    keys that it has made itself."""

    def __init__(self, random: Random, key: DeviceKey, others: Sequence[Member], heard: Heard) -> None:
        self.random = random
        self.key = key
        self.others = others
        self.heard = heard
        self.puppets: list[DeviceKey] = []
        self.epochs: list[EpochKeys] = []
        """The epochs that it has made itself."""
        self.removes = True
        """Whether it may vote about others: not where there are too few to veto that, or two that keep each
        other (docs/threat-model.md)."""
        self.is_crowded = False
        """Whether it has let in more members than there may be."""

    def forge(self, kind: str) -> list[Write]:
        """The writes of one update; none when nothing of the kind can be made of what was heard."""
        try:
            made = dict(KINDS[kind](self))
        except _UNSIGNABLE:
            return []  # no codec writes that
        return [write for write in made.items() if self.removes or not _removes(*write)]

    def some(self, among: Sequence[Any], most: int = 4) -> list[Any]:
        return self.random.sample(among, min(len(among), 1 + self.random.randrange(most)))

    def registers(self) -> list[tuple[bytes, bytes]]:
        """Some registers that have a value, of all kinds alike."""
        known = self._with_templates()
        letters = sorted({key[:1] for key in known})
        chosen = [self.random.choice(letters) for _ in range(1 + self.random.randrange(4))]
        keys = [self.random.choice([key for key in known if key[:1] == letter]) for letter in chosen]
        return [(key, known[key]) for key in keys]

    def _with_templates(self) -> Mapping[bytes, bytes]:
        """What was heard last of each register, and one of each kind that nobody may have written yet."""
        sealed = SealedKey(Cost(3, 1 << 18), bytes(16), bytes(24), bytes(96))
        member = self.random.choice(self.others)
        packs = [key[1:] for key in self.heard.keys(b"k")][:2]
        reserve = DeviceKey.from_seed(self.key.device_id * 2)
        record = KitRecord("volume", 1, bytes(32), sealed)
        templates: dict[bytes, bytes] = {
            member_key(member.device): member.encode(),
            cloud_key(self.random.randrange(256)): CloudRecord("evil", "file:///elsewhere").encode(),
            REDUNDANCY_KEY: RedundancyRecord(1, 1).encode(),
            service_key("etcd://evil"): ServiceRecord("etcd://evil").encode(),
            kit_key(member.device): record.encode(),
            signed_kit_key(reserve.device_id): SignedKit(record, reserve.public).encode(reserve),
            proposal_key(self.key.device_id): Proposal(7, tuple(packs)).encode(),
            answers_key(self.key.device_id): Answers({bytes(16): Answer(Stage.PROMISED)}).encode(),
        }
        newest = ((key, values[-1]) for key, values in self.heard.values.items())
        return templates | {key: value for key, value in newest if value is not None}

    def change(self, value: Any) -> Any:
        """Something else of the same type: another number, name, id or order, or a record that differs."""
        random = self.random
        if isinstance(value, Enum):
            return random.choice(list(type(value)))
        if isinstance(value, bool):
            return not value
        if isinstance(value, int):
            return random.choice((*_NUMBERS, value + 1, max(0, value - 1), value ^ 1 << random.randrange(32)))
        if isinstance(value, str):
            return random.choice(_TEXTS)
        if isinstance(value, bytes):
            return self._other_bytes(value)
        if isinstance(value, Mapping):
            return {key: self.change(one) for key, one in value.items()}
        if isinstance(value, Struct):
            name = random.choice(value.__struct_fields__)
            return structs.replace(value, **{name: self.change(getattr(value, name))})
        if is_dataclass(value) and not isinstance(value, type):
            name = random.choice([one.name for one in fields(value)])
            return replace(value, **{name: self.change(getattr(value, name))})
        if isinstance(value, tuple) and hasattr(value, "_fields"):
            chosen = random.randrange(len(value))
            return type(value)(*(self.change(one) if at == chosen else one for at, one in enumerate(value)))
        if isinstance(value, Sequence):
            return self._other_sequence(value)
        return None

    def _other_bytes(self, value: bytes) -> bytes:
        random, ids = self.random, self._ids(len(value))
        if ids and random.random() < 0.6:
            return random.choice(ids)
        return random.choice((random.randbytes(len(value)), value[:-1], value + b"x", b"x" * 255, b""))

    def _ids(self, size: int) -> list[bytes]:
        """All ids of a size that mean something."""
        if size == 16:
            members = [*(one.device for one in self.others), self.key.device_id]
            return [ROOT_ID, *self.heard.nodes(), *members]
        if size == 32:
            return [*(key[1:] for key in self.heard.keys(b"k")), *(chunk for chunk, _ in self.heard.chunks())]
        return []

    def _other_sequence(self, value: Sequence[Any]) -> tuple[Any, ...]:
        random, items = self.random, list(value)
        if not items:
            return ()
        at = random.randrange(len(items))
        match random.randrange(5):
            case 0:
                items[at] = self.change(items[at])
            case 1:
                del items[at]
            case 2:
                items.insert(random.randrange(len(items)), items[at])
            case 3:
                items.reverse()
            case _:
                items *= 1 + random.randrange(4)
        return tuple(items)

    def puppet(self) -> DeviceKey:
        self.puppets.append(DeviceKey.from_seed(self.random.randbytes(32)))
        return self.puppets[-1]

    def node(self, mode: int = stat.S_IFREG | 0o644, area: bytes | None = None) -> bytes:
        """The id of a new node."""
        return new_node_id(mode, 1_795_000_000_000_000_000, area, self.random.randbytes)

    def area(self) -> Area:
        """One that somebody is limited to, or might be."""
        known: set[Area] = {area for _, role in self.heard.records(b"o") for area in role.areas}
        nodes = [ROOT_ID, *self.heard.nodes()]
        return self.random.choice(sorted(known) or [Area(b"area", node) for node in nodes])

    def file(
        self, name: bytes, content: Content, parent: bytes = ROOT_ID, area: bytes | None = None
    ) -> list[Write]:
        """The writes that make a file."""
        node = self.node(area=area)
        attr = Attr(stat.S_IFREG | 0o644, 0, 0, 0, self.random.getrandbits(40))
        return [
            (place_key(node, 0), Place(parent, name).encode()),
            (attr_key(node), attr.encode()),
            (content_key(node), content.encode()),
        ]

    def grant(self, epochs: Sequence[EpochKeys]) -> Write:
        """The register that grants these to everybody."""
        self.epochs += epochs
        publics = [self.key.public, *(one.public for one in self.others)]
        return epoch_key(epochs[-1].id), encode_grant(
            VOLUME, epochs, Members(publics), random_bytes=self.random.randbytes
        )

    def epoch(self, number: int) -> EpochKeys:
        random = self.random
        excluded = random.choice(((), (self.key.device_id,), [one.device for one in self.others]))
        keys = random.randbytes(EPOCH_SIZE), number, random.randbytes(32), random.randbytes(32)
        return EpochKeys(*keys, frozenset(excluded))


# -- of any kind of register ---------------------------------------------------------------------


def _changed(forger: Forger) -> list[Write]:
    writes: list[Write] = []
    for key, value in forger.registers():
        decode = _DECODERS.get(key[:1])
        try:
            record = decode(value) if decode is not None else None
        except DecodeError:
            continue
        for _ in range(1 + forger.random.randrange(3) if record is not None else 0):
            record = forger.change(record)
        writes.append((key, record.encode() if record is not None else forger.random.randbytes(len(value))))
    return writes


def _swapped(forger: Forger) -> list[Write]:
    writes: list[Write] = []
    for key, _ in forger.registers():
        alike = [one for one in forger.heard.keys(key[:1]) if forger.heard.values[one][-1] is not None]
        if alike:
            writes.append((key, forger.heard.values[forger.random.choice(alike)][-1]))
    return writes


def _of_another_kind(forger: Forger) -> list[Write]:
    values = [value for _, value in forger.registers()]
    return [(key, forger.random.choice(values)) for key, _ in forger.registers()]


def _stale(forger: Forger) -> list[Write]:
    keys = forger.heard.keys(b"packwdvmesryloj")
    return [(key, forger.random.choice(forger.heard.values[key])) for key in forger.some(keys)]


def _ended(forger: Forger) -> list[Write]:
    return [(key, None) for key, _ in forger.registers()]


def _cut(forger: Forger) -> list[Write]:
    """Values and keys that are cut off or go on."""
    random = forger.random
    cut: Callable[[bytes], bytes] = random.choice(
        (lambda one: one[:-1], lambda one: one + b"\0", lambda one: one[: len(one) // 2], lambda one: one * 2)
    )
    if random.random() < 0.5:
        return [(key, cut(value)) for key, value in forger.registers()]
    return [(cut(key)[:600] or key, value) for key, value in forger.registers()]


# -- packs ---------------------------------------------------------------------------------------


def _packs_ended(forger: Forger) -> list[Write]:
    return [(key, None) for key in forger.some(forger.heard.keys(b"k"), 40)]


def _claim(forger: Forger, chunks: Sequence[tuple[bytes, int]]) -> PackRecord:
    """A record that says that chunks are where they are not."""
    packed = [PackedChunk(chunk, at * 600, length + 17, length) for at, (chunk, length) in enumerate(chunks)]
    return PackRecord(1, 2, b"\0\1", packed)


def _packs_claimed(forger: Forger) -> list[Write]:
    chunks = forger.some(forger.heard.chunks(), 40)
    return [(pack_key(forger.random.randbytes(32)), _claim(forger, chunks).encode())] if chunks else []


def _packs_moved(forger: Forger) -> list[Write]:
    """The real packs, in places where they are not."""
    random = forger.random
    return [
        (key, structs.replace(record, placement=bytes(random.choices(range(256), k=record.n))).encode())
        for key, record in forger.some(forger.heard.records(b"k"), 20)
    ]


def _packs_rewritten(forger: Forger) -> list[Write]:
    writes: list[Write] = []
    for key, record in forger.some(forger.heard.records(b"k"), 8):
        new = forger.random.randbytes(32)
        claim = _claim(forger, [(one.id, one.length) for one in record.chunks])
        writes += [(pack_key(new), claim.encode()), (rewritten_key(key[1:]), Rewritten((new,)).encode())]
    return writes


def _votes(forger: Forger) -> list[Write]:
    """Consent to everything, and a proposal to delete everything."""
    key, random = forger.key.device_id, forger.random
    proposals = [(one, record) for one, record in forger.heard.records(b"d")]
    packs = [one[1:] for one in forger.heard.keys(b"k")]
    mine = Proposal(random.randrange(1 << 40), tuple(forger.some(packs, 60)) if packs else ())
    ids = {mine.id_for(key), *(record.id_for(one[1:]) for one, record in proposals)}
    answers = Answers({one: Answer(random.choice((Stage.PROMISED, Stage.AGREED))) for one in ids})
    writes: list[Write] = [(proposal_key(key), mine.encode()), (answers_key(key), answers.encode())]
    return writes[random.randrange(2) :]


def _votes_of_others(forger: Forger) -> list[Write]:
    """Everybody's consent."""
    ids = [record.id_for(key[1:]) for key, record in forger.heard.records(b"d")]
    answers = Answers(dict.fromkeys(ids, Answer(Stage.AGREED))).encode()
    return [(answers_key(one.device), answers) for one in forger.others]


# -- members and epochs --------------------------------------------------------------------------


def _reserve(forger: Forger) -> list[Write]:
    member = Member(forger.puppet().public, "reserve", reserve=True)
    return [(member_key(member.device), member.encode())]


def _removes(key: bytes, value: bytes | None) -> bool:
    """Whether this accuses a device, or votes otherwise."""
    if key[0] == VOTE:
        return True
    try:
        member = Member.decode(value or b"")
    except DecodeError:
        return False
    return key == member_key(member.device) and member.removed


def _removals(forger: Forger) -> list[Write]:
    """Accusations of many at once, as votes or as earlier versions wrote them; or vetoes for itself."""
    accused = [*forger.others, *(Member(one.public, "puppet") for one in forger.puppets)]
    writes: list[Write] = []
    for one in forger.some(accused, 6):
        stance = forger.random.choice((Stance.REMOVE, Stance.REMOVE, Stance.SUSPEND, Stance.KEEP))
        voter = forger.key if forger.random.random() < 0.8 else forger.random.choice(accused)
        writes.append((vote_key(one.device, _id_of(voter)), encode_vote(stance)))
        if forger.random.random() < 0.3:
            writes.append((member_key(one.device), structs.replace(one, removed=True).encode()))
    return writes


def _id_of(one: DeviceKey | Member) -> bytes:
    return one.device_id if isinstance(one, DeviceKey) else one.device


def _let_in(forger: Forger) -> list[Write]:
    member = Member(forger.puppet().public, "puppet")
    return [(member_key(member.device), member.encode())]


def _without_keys(forger: Forger) -> list[Write]:
    """Members whose public keys are no points of the curve."""
    members = [Member(bytes((2 + at,)) + bytes(31), "ghost", reserve=at > 0) for at in range(3)]
    return [(member_key(one.device), one.encode()) for one in members]


@cache
def _strangers() -> Sequence[Member]:
    keys = (DeviceKey.from_seed(bytes((0xCC,)) * 28 + number.to_bytes(4)) for number in range(_MANY))
    return [Member(key.public, f"m{number}") for number, key in enumerate(keys)]


def _too_many_members(forger: Forger) -> list[Write]:
    """More than there may be, and then some of them again."""
    members = forger.some(_strangers(), 20) if forger.is_crowded else _strangers()
    forger.is_crowded = True
    return [(member_key(one.device), one.encode()) for one in members]


def _demoted(forger: Forger) -> list[Write]:
    one = structs.replace(forger.random.choice(forger.others), reserve=True)
    return [(member_key(one.device), one.encode())]


def _renamed(forger: Forger) -> list[Write]:
    one = structs.replace(forger.random.choice(forger.others), name=forger.random.choice(_TEXTS))
    return [(member_key(one.device), one.encode())]


def _ring_filled(forger: Forger) -> list[Write]:
    numbers = range(1, MAX_EPOCHS)
    mine = frozenset((forger.key.device_id,))
    return [forger.grant([replace(forger.epoch(number), excluded=mine) for number in numbers])]


def _epochs(forger: Forger) -> list[Write]:
    """A grant of an epoch or two whose keys it knows, with numbers from the edge of what there is."""
    numbers = sorted(forger.some((1, 2, 3, 511, (1 << 32) - 2, (1 << 32) - 1, 1 << 32), 2))
    return [forger.grant([forger.epoch(number) for number in numbers])]


# -- the tree ------------------------------------------------------------------------------------


def _sparse(forger: Forger) -> list[Write]:
    half = forger.random.choice((MAX_FILE_SIZE // 2, MAX_FILE_SIZE // 2 + 1, (1 << 61) - 1, (1 << 62) - 1))
    holes = Content(2 * half, 0, (Run(half, None),) * 2)
    names = [b"sparse%d" % at for at in range(1 + forger.random.randrange(8))]
    return [write for name in names for write in forger.file(name, holes)]


def _root(forger: Forger) -> list[Write]:
    random = forger.random
    mode = random.choice((stat.S_IFDIR | 0o755, stat.S_IFLNK | 0o777, stat.S_IFREG | 0o644, stat.S_IFIFO))
    target = b"/elsewhere" if stat.S_ISLNK(mode) else b""
    writes: list[Write] = [
        (attr_key(ROOT_ID), Attr(mode, 0, 0, 0, 1, target).encode()),
        (place_key(ROOT_ID, 0), Place(ROOT_ID, b"root").encode()),
        (content_key(ROOT_ID), Content(0, 0, ()).encode()),
    ]
    return [random.choice(writes)]


def _other_nature(forger: Forger) -> list[Write]:
    """Nodes that become links, folders or files, and go elsewhere at the same time."""
    writes: list[Write] = []
    for node in forger.some(forger.heard.nodes()):
        mode = forger.random.choice((stat.S_IFLNK, stat.S_IFDIR, stat.S_IFREG, stat.S_IFCHR)) | 0o6755
        target = b"/elsewhere" if stat.S_ISLNK(mode) else b""
        writes.append((attr_key(node), Attr(mode, 0, 0, 0, 1, target).encode()))
        writes.append((place_key(node, 0), Place(ROOT_ID, b"moved").encode()))
    return writes


def _knots(forger: Forger) -> list[Write]:
    """Folders within each other, and things within files."""
    nodes = [*forger.heard.nodes(), ROOT_ID]
    return [
        (key, Place(forger.random.choice(nodes), forger.random.choice((b"a", b"b.txt", b"c"))).encode())
        for key in forger.some(forger.heard.keys(b"p"), 8)
    ]


def _crowd(forger: Forger) -> list[Write]:
    """Many nodes that want one name."""
    name = forger.random.choice((b"a", b"b.txt", b"c"))
    return [
        write
        for at in range(_CROWD)
        for write in forger.file(name, Content(at, 0, (Run(at, None),)[: at > 0]))
    ]


def _wiped(forger: Forger) -> list[Write]:
    """All that is known vanishes at once, in one of five ways."""
    heard = forger.heard
    match forger.random.randrange(5):
        case 0:
            return [(key, place.left().encode()) for key, place in heard.records(b"p")]
        case 1:
            return [(key, None) for key in heard.keys(b"p")]
        case 2:
            return [(key, b"nowhere") for key in heard.keys(b"p")]
        case 3:
            return [(key, None) for key in heard.keys(b"a")]
        case _:
            return [(key, Content(0, 0, ()).encode()) for key in heard.keys(b"c")]


def _in_areas(forger: Forger) -> list[Write]:
    """New nodes of an area somewhere, old ones in its folder, and its own out of that."""
    area, random = forger.area(), forger.random
    nodes = [ROOT_ID, area.folder, *forger.heard.nodes()]
    writes = forger.file(b"new", Content(0, 0, ()), random.choice(nodes), area.id)
    for key, place in forger.some(forger.heard.records(b"p"), 6):
        parent = random.choice((area.folder, area.folder, random.choice(nodes)))
        writes.append((key, place._replace(parent=parent).encode()))
    return writes


def _labelled(forger: Forger) -> list[Write]:
    """Labels on nodes, known or not: more than a program gives, or none left of those there were."""
    random = forger.random
    if random.random() < 0.5:
        return [(key, TAKEN_AWAY) for key in forger.some(forger.heard.keys(b"l"), 20)]
    nodes = [ROOT_ID, forger.node(), *forger.some(forger.heard.nodes())]
    most = random.choice((1, 4, 400))
    return [(label_key(node, f"{at}"), ADDED) for node in nodes for at in range(most)]


def _assigned(forger: Forger) -> list[Write]:
    """Nodes are given to an area, and emptied by that."""
    area = forger.area()
    nodes = forger.some(forger.heard.nodes(), 6)
    emptied = [(content_key(one), Content(0, 0, ()).encode()) for one in nodes]
    return [*(new_assignment(one, area.id) for one in nodes), *emptied]


KINDS: Final[Mapping[str, Callable[[Forger], list[Write]]]] = {
    "changed": _changed,
    "swapped": _swapped,
    "of another kind": _of_another_kind,
    "stale": _stale,
    "ended": _ended,
    "cut": _cut,
    "packs ended": _packs_ended,
    "packs claimed": _packs_claimed,
    "packs moved": _packs_moved,
    "packs rewritten": _packs_rewritten,
    "votes": _votes,
    "votes of others": _votes_of_others,
    "removals": _removals,
    "reserve": _reserve,
    "let in": _let_in,
    "without keys": _without_keys,
    "too many members": _too_many_members,
    "demoted": _demoted,
    "renamed": _renamed,
    "ring filled": _ring_filled,
    "epochs": _epochs,
    "sparse": _sparse,
    "root": _root,
    "other nature": _other_nature,
    "knots": _knots,
    "crowd": _crowd,
    "wiped": _wiped,
    "labelled": _labelled,
    "in areas": _in_areas,
    "assigned": _assigned,
}

SLOW: Final = frozenset({"too many members"})
"""Kinds of `KINDS` after which a life takes many times as long: few seeds have them."""
