"""The kinds of registers: the one table that lists all of them.

A key is the letter of its kind, then the parts named below. The letters stand here and nowhere else: other
code asks by name (`key[0] == PLACE`) or by property (`key[0] in having(Trait.TREE)`).
`hybrisfs.merge.authority.RULES` adds to each kind the check of its values and the devices that may write it.
The last column tells which of several concurrent values of a register counts.

======  ============  ===========================  ==================================  =======================
letter  kind          parts of the key             format and codec of the value       of concurrent values
======  ============  ===========================  ==================================  =======================
``p``   `PLACE`       node (16), slot (varint)     `hybrisfs.registers.tree`     `hybrisfs.merge.rules`
``a``   `ATTRIBUTES`  node (16)                    `hybrisfs.registers.tree`     `hybrisfs.merge.rules`
``c``   `CONTENT`     node (16)                    `hybrisfs.registers.tree`     `hybrisfs.merge.rules`
``k``   `PACK`        pack (32)                    `hybrisfs.registers.tree`     `hybrisfs.merge.packs`
``w``   `REWRITTEN`   pack (32)                    `hybrisfs.registers.tree`     `hybrisfs.merge.packs`
``g``   `ASSIGNMENT`  node (16), area (4)          `hybrisfs.members.roles`              all say the same
``l``   `LABEL`       node (16), word              `hybrisfs.registers.labels`   one that adds it
``m``   `MEMBER`      device (16)                  `hybrisfs.members.members`            the highest stamp
``i``   `ADMISSION`   device (16), author (16)     `hybrisfs.members.lineage`          the lowest clock
``x``   `VOTE`        accused (16), voter (16)     `hybrisfs.members.removal`            the newest
``o``   `ROLE`        device (16), serial (8)      `hybrisfs.members.roles`              that of least rights
``f``   `EVIDENCE`    device (16), misdeed (u8)    `hybrisfs.members.evidence`           the lowest stamp
``d``   `PROPOSAL`    device (16)                  `hybrisfs.registers.proposals`        each
``v``   `ANSWERS`     device (16)                  `hybrisfs.registers.proposals`        what all say
``q``   `SIGNED_KIT`  kit (16)                     `hybrisfs.recovery.record`          the highest stamp
``y``   `KIT`         kit (16)                     `hybrisfs.recovery.record`          the highest stamp
``e``   `EPOCH`       epoch (4)                    `hybrisfs.members.epochs`             each
``s``   `CLOUD`       number (u8)                  `hybrisfs.merge.cloud_records`          the highest stamp
``r``   `REDUNDANCY`  none                         `hybrisfs.merge.cloud_records`          the highest stamp
``u``   `IGNORE_RULE` pattern                      `hybrisfs.registers.ignore_rules`       the highest rank
``z``   `SERVICE`     hash of its URL (8)          `hybrisfs.merge.kv_services`        one that is in use
``b``   `CONTAINER`   name                         `hybrisfs.registers.entries`        one that is there
``j``   `ENTRY`       space (8), key               `hybrisfs.registers.entries`        all, one first
======  ============  ===========================  ==================================  =======================

All registers travel in updates, and all devices relay them. A register of a kind that is not listed is kept,
unread, for later versions.
"""

from __future__ import annotations

from enum import Flag, auto
from itertools import accumulate, pairwise
from typing import Final

from sync import DEVICE_ID_SIZE, EPOCH_SIZE, DecodeError

__all__ = [
    "ADMISSION",
    "AREA_SIZE",
    "ASSIGNMENT",
    "ATTRIBUTES",
    "ANSWERS",
    "CLOUD",
    "CONTAINER",
    "CONTENT",
    "ENTRY",
    "EPOCH",
    "EVIDENCE",
    "ID",
    "IGNORE_RULE",
    "KINDS",
    "KIT",
    "LABEL",
    "MEMBER",
    "NODE",
    "NODE_ID_SIZE",
    "PACK",
    "PLACE",
    "PROPOSAL",
    "REDUNDANCY",
    "REWRITTEN",
    "ROLE",
    "SERIAL_SIZE",
    "SERVICE",
    "SIGNED_KIT",
    "VOTE",
    "Kind",
    "Trait",
    "having",
    "sql_node",
]

NODE_ID_SIZE: Final = 16
AREA_SIZE: Final = 4
SERIAL_SIZE: Final = 8
_PACK_ID_SIZE: Final = 32
_URL_HASH_SIZE: Final = 8
_SPACE_SIZE: Final = 8
_ONE_BYTE: Final = 1

ID: Final = slice(1, None)
"""Of a key: all but the letter."""
NODE: Final = slice(1, 1 + NODE_ID_SIZE)
"""Of a key of a register of the tree: the id of the node."""


class Trait(Flag):
    """What other code treats some kinds alike for."""

    TREE = auto()
    """A facet of a node: the visible tree follows from these, and the losses that a person has to approve."""
    HASHED = auto()
    """Part of the state hash."""
    VERSIONED = auto()
    """A superseded value is kept as an older version."""
    DIRECT = auto()
    """A facet of a node that is shown as its register says: no row of the view repeats it. Of concurrent
    values the greatest counts. What is not signed yet is in table `unsigned`
    (`hybrisfs.state.shown_nodes`)."""
    ELSEWHERE = auto()
    """Kept in tables of its own instead of in `register`."""
    SAID = auto()
    """Each value that a member signs is noted in the table `said` (`hybrisfs.members.minutes`)."""
    SAID_ONCE = auto()
    """There a branch says each thing once: to say it again changes nothing."""
    KIN = auto()
    """Tells which device let another one in."""
    MEMBERS = auto()
    """The devices that belong to the volume, and their rights, follow from these."""
    CLOUDS = auto()
    """The clouds of the volume, f and k."""
    IN_KITS = auto()
    """A recovery kit holds what these say, and is renewed when one changes."""


_PLAIN: Final = Trait(0)


class Kind(int):
    """A kind of registers: the number of the letter with which its keys begin, so that `key[0]` can be
    compared with it, and looked up in dictionaries and sets."""

    noun: str
    """What people call such a register."""
    prefix: bytes
    """The letter."""
    parts: tuple[slice, ...]
    """Where the parts of fixed size are in a key."""
    size: int
    """Bytes of the letter and of them together."""
    has_more: bool
    """Whether more follows, of no fixed length."""
    traits: Trait

    def __new__(cls, letter: str, noun: str, *sizes: int, more: bool = False, traits: Trait = _PLAIN) -> Kind:
        """*sizes*: bytes of each part of a key after the letter; *more*: whether more follows, of no fixed
        length."""
        kind = super().__new__(cls, ord(letter))
        kind.noun, kind.prefix, kind.has_more, kind.traits = noun, letter.encode(), more, traits
        kind.parts = tuple(slice(*ends) for ends in pairwise(accumulate(sizes, initial=1)))
        kind.size = 1 + sum(sizes)
        return kind

    @staticmethod
    def of(key: bytes) -> Kind | None:
        """The kind of a key; None when this version knows none that begins so."""
        return _BY_LETTER.get(key[0]) if key else None

    def key(self, *parts: bytes) -> bytes:
        """The key of these parts."""
        return b"".join((self.prefix, *parts))

    def has_form(self, key: bytes) -> bool:
        """Whether a key of this kind has the length that its parts have together."""
        return len(key) > self.size if self.has_more else len(key) == self.size

    def split(self, key: bytes) -> tuple[bytes, ...]:
        """The parts of fixed size of a key of this kind. Raises DecodeError when it has another length."""
        if not self.has_form(key):
            raise DecodeError(f"the key of a {self.noun} with {len(key)} bytes")
        return tuple([key[part] for part in self.parts])

    def sql_rows(self, column: str = "key") -> str:
        """The SQL condition that the key in a column is of this kind, as indexes state it."""
        return f"{column} >= {self.sql_prefix} AND {column} < x'{self + 1:02x}'"

    def sql_key(self, parts: str) -> str:
        """The SQL expression of the key with these parts, an expression too."""
        return f"CAST({self.sql_prefix} || {parts} AS BLOB)"

    @property
    def sql_prefix(self) -> str:
        """The letter as an SQL literal."""
        return f"x'{self:02x}'"


_OF_NODES: Final = Trait.TREE | Trait.HASHED | Trait.VERSIONED
_DEVICE: Final = DEVICE_ID_SIZE

PLACE: Final = Kind("p", "place", NODE_ID_SIZE, more=True, traits=_OF_NODES)
ATTRIBUTES: Final = Kind("a", "attributes", NODE_ID_SIZE, traits=_OF_NODES)
CONTENT: Final = Kind("c", "content", NODE_ID_SIZE, traits=_OF_NODES)
PACK: Final = Kind("k", "pack", _PACK_ID_SIZE, traits=Trait.ELSEWHERE)
REWRITTEN: Final = Kind("w", "rewritten pack", _PACK_ID_SIZE)
ASSIGNMENT: Final = Kind("g", "assignment", NODE_ID_SIZE, AREA_SIZE)
LABEL: Final = Kind("l", "label", NODE_ID_SIZE, more=True, traits=Trait.VERSIONED | Trait.DIRECT)
MEMBER: Final = Kind(
    "m",
    "member",
    _DEVICE,
    traits=Trait.HASHED | Trait.SAID | Trait.SAID_ONCE | Trait.KIN | Trait.MEMBERS | Trait.IN_KITS,
)
ADMISSION: Final = Kind(
    "i", "admission", _DEVICE, _DEVICE, traits=Trait.SAID | Trait.SAID_ONCE | Trait.KIN | Trait.MEMBERS
)
VOTE: Final = Kind("x", "vote", _DEVICE, _DEVICE, traits=Trait.SAID | Trait.MEMBERS)
ROLE: Final = Kind("o", "role", _DEVICE, SERIAL_SIZE, traits=Trait.MEMBERS)
EVIDENCE: Final = Kind(
    "f", "evidence", _DEVICE, _ONE_BYTE, traits=Trait.SAID | Trait.SAID_ONCE | Trait.MEMBERS
)
PROPOSAL: Final = Kind("d", "proposal", _DEVICE, traits=Trait.SAID)
ANSWERS: Final = Kind("v", "answers", _DEVICE, traits=Trait.SAID)
SIGNED_KIT: Final = Kind(
    "q", "recovery kit", _DEVICE, traits=Trait.SAID | Trait.KIN | Trait.MEMBERS | Trait.IN_KITS
)
KIT: Final = Kind("y", "recovery kit", _DEVICE, traits=Trait.MEMBERS | Trait.IN_KITS)
EPOCH: Final = Kind("e", "epoch", EPOCH_SIZE, traits=Trait.IN_KITS)
CLOUD: Final = Kind("s", "cloud", _ONE_BYTE, traits=Trait.CLOUDS | Trait.IN_KITS)
REDUNDANCY: Final = Kind("r", "redundancy", traits=Trait.CLOUDS | Trait.IN_KITS)
IGNORE_RULE: Final = Kind("u", "ignore rule", more=True)
SERVICE: Final = Kind("z", "key-value service", _URL_HASH_SIZE)
CONTAINER: Final = Kind("b", "container", more=True)
ENTRY: Final = Kind("j", "entry of a key", _SPACE_SIZE, more=True)

KINDS: Final = (
    PLACE, ATTRIBUTES, CONTENT, PACK, REWRITTEN, ASSIGNMENT, LABEL, MEMBER, ADMISSION, VOTE, ROLE, EVIDENCE,
    PROPOSAL, ANSWERS, SIGNED_KIT, KIT, EPOCH, CLOUD, REDUNDANCY, IGNORE_RULE, SERVICE, CONTAINER,
    ENTRY,
)  # fmt: skip
"""All of them. Facets of nodes stand in the order in which the state hash takes them."""
_BY_LETTER: Final = {int(kind): kind for kind in KINDS}


def sql_node(column: str = "key") -> str:
    """The SQL expression of the id of the node in a key of a register of the tree."""
    return f"substr({column}, {NODE.start + 1}, {NODE_ID_SIZE})"


def having(trait: Trait) -> frozenset[int]:
    """The letters of the kinds with this trait, as numbers."""
    return frozenset(int(kind) for kind in KINDS if trait in kind.traits)
