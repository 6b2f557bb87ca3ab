"""Which devices may write which register, with what values (Depot 5.4).

One rule for each kind of register (`hybrisfs.kinds`). A write that breaks its rule supersedes nothing, for it
never reaches the registers; the update that holds it stays in the log, since the histories of others name it,
and convicts its writer. The rules look at an update and the device that signed it alone, so that all devices
decide alike, now and when they read the log again. Nearly all look at one write of it; but a device in
reserve is let in with the record of its kit, or not at all, and a record that the reserve did not sign ends
when it is removed. What depends on other accepted updates is decided where these are known:

====================  ================================================================================
what                  where
====================  ================================================================================
the end of a pack     `hybrisfs.members.minutes`: every member had agreed
claims about chunks   `hybrisfs.state.chunk_places`: evidence, which unpins nothing that only this device has
who is a member       `hybrisfs.members.members`; how many are: `hybrisfs.members.kinship`; what becomes of
                      those about whom others vote: `hybrisfs.members.removal`
the keys of an epoch  `hybrisfs.sharing.epochs`: fit to seal with, or not
what a reader or a    `permitted`: that it was one by then tells the log (`hybrisfs.members.roles`), and in
contributor writes    which folders (`hybrisfs.members.roles`)
====================  ================================================================================

A reader consents, or not, to what others want deleted, gives itself a name, leaves the volume, and proves
what it has seen others do: the column `by_readers` of the table. It can block what takes everybody's
consent, as any device can; it makes nothing count. A contributor may do that, too. In its areas it writes all
registers of nodes, and it says where its packs are: the column `by_contributors`. It ends and rewrites no
pack. Its word about a
pack does not count beside another device's (`hybrisfs.merge.packs`). An update that breaks only these rules
convicts no device, as only the log shows that.

**The kind of a node never changes.** The id of a node says what it is (`hybrisfs.registers.node_id`), so
that attributes of another kind break the rule whatever else the log holds. The root is a directory. Ids
that earlier versions made do not tell, and break the rule in a volume in which no earlier version made a
node, as its own id says. In others, attributes of such a node count when they are of the kind of those before
them (`hybrisfs.merge.arrivals`): there a device that forks can make one node with such an id twice, as two
kinds. Each other device keeps the kind that reached it first.
"""

from __future__ import annotations

import stat
from collections.abc import Callable, Container, Iterable, Mapping
from functools import lru_cache
from typing import Final, NamedTuple

from hybrisfs.kinds import (
    ADMISSION,
    ANSWERS,
    ASSIGNMENT,
    ATTRIBUTES,
    CLOUD,
    CONTAINER,
    CONTENT,
    ENTRY,
    EPOCH,
    EVIDENCE,
    ID,
    IGNORE_RULE,
    KIT,
    LABEL,
    MEMBER,
    NODE,
    PACK,
    PLACE,
    PROPOSAL,
    REDUNDANCY,
    REWRITTEN,
    ROLE,
    SERVICE,
    SIGNED_KIT,
    VOTE,
    Kind,
    Trait,
    having,
)
from hybrisfs.members.epochs import check_grant
from hybrisfs.members.evidence import decode_evidence
from hybrisfs.members.lineage import VectorOf, check_admission
from hybrisfs.members.members import Member, member_key
from hybrisfs.members.removal import decode_vote
from hybrisfs.members.role_table import Roles
from hybrisfs.members.roles import NOWHERE, Grounds, Role, RoleRecord, check_assignment, whose_role
from hybrisfs.merge.cloud_records import CloudRecord, RedundancyRecord
from hybrisfs.merge.kv_services import ServiceRecord
from hybrisfs.registers.entries import check_container_record, check_entry
from hybrisfs.registers.ignore_rules import check_rule
from hybrisfs.registers.labels import check_label
from hybrisfs.registers.node_id import FIRST_OF_KINDS, ROOT_ID, can_be, kind_of
from hybrisfs.registers.tree import (
    PLAIN_TAIL,
    Attr,
    Content,
    PackRecord,
    Place,
    Rewritten,
    is_of_tree,
    is_one_chunk,
    is_plain_place,
    plain_owner,
)
from sync import DEVICE_ID_SIZE, DecodeError, SignedUpdate, VersionVector, Write

__all__ = [
    "RULES",
    "Rule",
    "breach",
    "counting",
    "described",
    "fault",
    "is_assigning",
    "lawful",
    "may_write",
    "permitted",
    "void",
]

_NOBODY: Final = 0xFFFFFFFF  # as a number of a user or a group, "leave it as it is" (chown(2))
_ADMITTED: Final = ADMISSION.parts[0]
_TREE: Final = having(Trait.TREE)
_HALVES: Final = frozenset((MEMBER, KIT))
_WITH_CONTENT: Final = (None, stat.S_IFREG)
_NODE_KEY: Final = NODE.stop  # bytes of a key that holds the id of a node and no more


def _never(writer: bytes, key: bytes, value: bytes | None) -> bool:
    return False


def _always(writer: bytes, key: bytes, value: bytes | None) -> bool:
    return True


def _nowhere(grounds: Grounds, key: bytes, value: bytes | None) -> bool:
    return False


def _on_its_grounds(grounds: Grounds, key: bytes, value: bytes | None) -> bool:
    return bool(grounds.of(key[NODE]))


def _placed_on_its_grounds(grounds: Grounds, key: bytes, value: bytes | None) -> bool:
    """Checks also the former place, where the node stands again if folders come to contain each other."""
    place = Place.decode(value or b"")
    areas = grounds.of(key[NODE])
    for directory in (place.parent, *([place.former] if place.former else [])):
        areas = areas and areas & grounds.below(directory)
    return bool(areas)


def _has_value(grounds: Grounds, key: bytes, value: bytes | None) -> bool:
    return value is not None


def _its_own_name(writer: bytes, key: bytes, value: bytes | None) -> bool:
    member = Member.decode(value or b"")
    return member.device == writer and not (member.removed or member.reserve)


def _about_itself(writer: bytes, key: bytes, value: bytes | None) -> bool:
    return key[_ADMITTED] == writer


class Rule(NamedTuple):
    """Which writes to registers of a kind count."""

    check: Callable[[bytes, bytes], object]
    """Raises DecodeError unless this key may have this value."""
    own: bool = False
    """Only the device that a register is named after writes it."""
    ends_with_writer: bool = False
    """Only a device writes the registers whose keys end with its id."""
    ends: bool = False
    """Whether a register may end: be written without a value."""
    by_readers: Callable[[bytes, bytes, bytes | None], bool] = _never
    """Whether a reader may write this value to such a key, if it breaks no other rule."""
    by_contributors: Callable[[Grounds, bytes, bytes | None], bool] = _nowhere
    """Whether a contributor with these grounds may write it, too."""


def _place(key: bytes, value: bytes) -> None:
    if not is_of_tree(key):
        raise DecodeError("no key of a register of the tree")
    node = key[NODE]
    if node in (ROOT_ID, Place.decode(value).parent):
        raise DecodeError("a node that cannot stand there")


def _attr(key: bytes, value: bytes) -> None:
    _check_attr(kind_of(key[ID]), Attr.decode(value))


def _check_attr(allowed: int | None, attr: Attr) -> None:
    kind = stat.S_IFMT(attr.mode)
    if allowed is not None and kind != allowed:
        raise DecodeError("a node of one kind has attributes of another")
    if _NOBODY in (attr.uid, attr.gid):
        raise DecodeError("an owner that no node can have")
    if bool(attr.target) != (kind == stat.S_IFLNK) or b"\0" in attr.target:
        raise DecodeError("every symbolic link has a target, and nothing else has")
    if any(not name or b"\0" in name for name, _ in attr.xattrs):
        raise DecodeError("an extended attribute without a proper name")


def _content(key: bytes, value: bytes) -> None:
    Content.decode(value)
    if kind_of(key[ID]) not in _WITH_CONTENT:
        raise DecodeError("content of a node that is not a file")


def _kit(_: bytes, value: bytes) -> None:
    from hybrisfs.recovery.record import (
        KitRecord,
    )  # with it comes much that checking updates need not load

    KitRecord.decode(value)


def _signed_kit(key: bytes, value: bytes) -> None:
    from hybrisfs.recovery.record import SignedKit  # as above

    SignedKit.decode(key, value)


def _anything(key: bytes, value: bytes) -> None:
    """Nonsense in a register that only its owner may write harms no other device: it counts as silence."""


def _member(key: bytes, value: bytes) -> None:
    if key != member_key(Member.decode(value).device):
        raise DecodeError("the key of another machine")


RULES: Final[Mapping[Kind, Rule]] = {
    PLACE: Rule(_place, by_contributors=_placed_on_its_grounds),
    ATTRIBUTES: Rule(_attr, by_contributors=_on_its_grounds),
    CONTENT: Rule(_content, by_contributors=_on_its_grounds),
    PACK: Rule(lambda _, value: PackRecord.decode(value), ends=True, by_contributors=_has_value),
    REWRITTEN: Rule(lambda _, value: Rewritten.decode(value)),
    PROPOSAL: Rule(_anything, own=True),
    ANSWERS: Rule(_anything, own=True, by_readers=_always),
    VOTE: Rule(lambda _, value: decode_vote(value), ends_with_writer=True, by_readers=_about_itself),
    MEMBER: Rule(_member, by_readers=_its_own_name),
    ADMISSION: Rule(check_admission, ends_with_writer=True, by_readers=_about_itself),
    ROLE: Rule(lambda _, value: RoleRecord.decode(value)),
    ASSIGNMENT: Rule(lambda _, value: check_assignment(value)),
    LABEL: Rule(check_label, by_contributors=_on_its_grounds),
    EPOCH: Rule(lambda _, value: check_grant(value)),
    CLOUD: Rule(lambda _, value: CloudRecord.decode(value)),
    REDUNDANCY: Rule(lambda _, value: RedundancyRecord.decode(value)),
    IGNORE_RULE: Rule(check_rule),
    SERVICE: Rule(lambda key, value: ServiceRecord.decode(key, value)),
    CONTAINER: Rule(check_container_record),
    ENTRY: Rule(check_entry),
    EVIDENCE: Rule(lambda key, value: decode_evidence(key, value, breach), by_readers=_always),
    SIGNED_KIT: Rule(_signed_kit),
    KIT: Rule(_kit, ends=True),
}
"""One for each kind of registers that this version knows."""


def fault(writer: bytes, key: bytes, value: bytes | None) -> str | None:
    """How a write of device *writer* breaks the rule of its kind, in words; None when it keeps it."""
    kind = Kind.of(key)
    if kind is None:
        return None
    rule = RULES[kind]
    named = key[ID] if rule.own else key[-DEVICE_ID_SIZE:] if rule.ends_with_writer else writer
    if named != writer:
        return f"{described(key)}: only that machine writes it"
    if not kind.has_form(key):
        return f"{described(key)}: a key that means nothing"
    if kind == ROLE and whose_role(key) == writer:
        return f"{described(key)}: no machine says what it may do itself"
    if value is None:
        return None if rule.ends else f"{described(key)}: such a register never ends"
    try:
        rule.check(key, value)
    except DecodeError as error:
        return f"{described(key)}: {error}"
    return None


def void(update: SignedUpdate) -> tuple[int, ...]:
    """Which of the writes of an update do not count: their indices, in ascending order."""
    writer, writes = update.header.writer, update.writes
    rare = [at for at, (key, value) in enumerate(writes) if not _is_plain(key, value)]
    if not rare:
        return ()
    volume = update.header.volume
    broken = {at for at in rare if fault(writer, *writes[at]) is not None or _is_alien(writes[at][0], volume)}
    if any(writes[at][0][0] in _HALVES for at in rare):
        broken |= _halves(update, broken)
    return tuple(sorted(broken))


def _is_alien(key: bytes, volume: bytes) -> bool:
    """Whether it is a register of a node that cannot exist in the volume."""
    return key[0] in _TREE and not can_be(key[NODE], volume)


def _is_plain(key: bytes, value: bytes | None) -> bool:
    """Whether a write has one of the usual forms and keeps its rule. `fault` gives the same answer, but takes
    several times as long."""
    if value is None:
        return False
    kind = key[0]
    if len(key) == _NODE_KEY:
        if kind == ATTRIBUTES:
            owner, of = plain_owner(value), kind_of(key[ID])
            return owner is not None and of is not None and _may_have(of, owner)
        return kind == CONTENT and kind_of(key[ID]) == stat.S_IFREG and is_one_chunk(value)
    if kind == PLACE and len(key) == _NODE_KEY + 1 and key[_NODE_KEY] == 0 and is_plain_place(value):
        node = key[NODE]
        return node >= FIRST_OF_KINDS and not value.startswith(node)
    return False


@lru_cache(maxsize=512)
def _may_have(kind: int, owner: bytes) -> bool:
    """Whether a node of this kind may have plain attributes that begin like this. No rule depends on the time
    of change, so a tree has few different beginnings."""
    try:
        _check_attr(kind, Attr.decode(owner + PLAIN_TAIL))
    except DecodeError:
        return False
    return True


def _halves(update: SignedUpdate, broken: Container[int]) -> set[int]:
    """The writes of an update whose counterpart, which belongs to them, is missing."""
    kept = {key: value for at, (key, value) in enumerate(update.writes) if at not in broken}

    def is_half(key: bytes, value: bytes | None) -> bool:
        if key[0] == MEMBER:
            member = Member.decode(value or b"")
            kits = KIT.key(member.device), SIGNED_KIT.key(member.device)
            return member.reserve and all(kept.get(kit) is None for kit in kits)
        if key[0] == KIT and value is None:
            partner = kept.get(member_key(key[ID]))
            return partner is None or not Member.decode(partner).removed
        return False

    return {at for at, write in enumerate(update.writes) if at not in broken and is_half(*write)}


def breach(update: SignedUpdate) -> str | None:
    """How the first write of an update that does not count breaks a rule, in words; None when all count."""
    broken = void(update)
    if not broken:
        return None
    key, value = update.writes[broken[0]]
    other = "half of what belongs together"
    if _is_alien(key, update.header.volume):
        other = "a node that cannot be in this volume"
    return fault(update.header.writer, key, value) or f"{described(key)}: {other}"


def lawful(update: SignedUpdate, broken: Container[int] | None = None) -> SignedUpdate:
    """The update, reduced to the writes that count; the same object when all count. *broken*: what `void`
    found."""
    broken = void(update) if broken is None else broken
    if not broken:
        return update
    kept: list[Write] = [write for at, write in enumerate(update.writes) if at not in broken]
    return update._replace(writes=tuple(kept))


def may_write(role: Role, writer: bytes, key: bytes, value: bytes | None, grounds: Grounds = NOWHERE) -> bool:
    """Whether a write that breaks no other rule counts when a device with this role makes it; *grounds*:
    those of a contributor."""
    if role is Role.FULL:
        return True
    kind = Kind.of(key)
    if kind is None:
        return False
    rule = RULES[kind]
    if rule.by_readers(writer, key, value):
        return True
    return role is Role.CONTRIBUTOR and rule.by_contributors(grounds, key, value)


def counting(update: SignedUpdate, seen: bytes, roles: Roles) -> SignedUpdate:
    """An update of the log, reduced to the writes that count. *seen*: its dependency vector, encoded;
    *roles*: those of that database."""
    update = lawful(update)
    if not (roles or is_assigning(update.writes)):
        return update
    return permitted(update, VersionVector.decode(seen), roles, roles.vector_of)


def permitted(update: SignedUpdate, seen: VersionVector, roles: Roles, vector_of: VectorOf) -> SignedUpdate:
    """A lawful update, reduced to the writes that its writer was allowed to sign after it had *seen* so much.
    While no device has a role, only assignments can be dropped."""
    writer = update.header.writer
    rights = roles.rights(writer, seen, vector_of)
    grounds = roles.grounds(rights, seen)
    broken = {
        at
        for at, (key, value) in enumerate(update.writes)
        if not may_write(rights.role, writer, key, value, grounds)
        or (key[0] == ROLE and roles.was_written(key, seen))
        or (key[0] == ASSIGNMENT and roles.known_assignments([key], seen))
    }
    return lawful(update, broken)


def is_assigning(writes: Iterable[Write]) -> bool:
    """Whether there is an assignment to an area among them."""
    return any(key[0] == ASSIGNMENT for key, _ in writes)


def described(key: bytes) -> str:
    """What people call the register with this key."""
    kind = Kind.of(key)
    return f"{kind.noun if kind is not None else key[:1].hex()} {key[ID].hex()}"
