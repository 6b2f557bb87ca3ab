"""Who may write which register, with what values (Depot 5.4).

One rule for each kind of register. A write that breaks its rule supersedes nothing, for it never reaches the
registers; the update that holds it stays in the log, since the histories of others name it, and convicts its
writer. The rules look at an update and the device that signed it alone, so that all devices decide alike, now
and when they read the log again. Nearly all look at one write of it; but a device in reserve is let in with
the record of its kit, or not at all, and the record ends when it is removed. What depends on other accepted
updates is decided where these are known:

====================  ================================================================================
what                  where
====================  ================================================================================
the end of a pack     `hybrisfs.merge.minutes`: every member had agreed
claims about chunks   `hybrisfs.filesystem.chunks`: evidence, which unpins nothing that only this device has
who is a member       `hybrisfs.merge.members`; how many are: `hybrisfs.merge.roster`; what becomes of
                      those about whom others vote: `hybrisfs.merge.removal`
the keys of an epoch  `hybrisfs.volume.epochs`: fit to seal with, or not
====================  ================================================================================

**The kind of a node never changes.** The id of a node says what it is (`hybrisfs.filesystem.node_id`), so
that attributes of another kind break the rule whatever else the log holds. The root is a directory. Ids
that earlier versions made do not tell: of such a node each device keeps to the kind that it has seen first
(`hybrisfs.merge.arrivals`).
"""

from __future__ import annotations

import stat
from collections.abc import Callable, Container, Mapping
from typing import Final, NamedTuple

from hybrisfs.filesystem.node_id import kind_of
from hybrisfs.filesystem.registers import Attr, Content, PackRecord, Place, Rewritten, is_of_tree
from hybrisfs.merge.cloud_set import CloudRecord, RedundancyRecord
from hybrisfs.merge.epochs import check_grant
from hybrisfs.merge.evidence import decode_evidence
from hybrisfs.merge.members import Member, member_key
from hybrisfs.merge.removal import decode_vote
from hybrisfs.store.schema import ROOT_ID
from sync import DEVICE_ID_SIZE, EPOCH_SIZE, DecodeError, SignedUpdate, Write

__all__ = ["RULES", "Rule", "described", "fault", "lawful", "void"]

_PACK_ID_SIZE: Final = 32
_NOBODY: Final = 0xFFFFFFFF  # as a number of a user or a group, "leave it as it is" (chown(2))
_LETTER: Final = 1  # bytes of it in a key
_KIND: Final = 1
_MEMBER, _KIT = _OF_KITS = b"my"


class Rule(NamedTuple):
    """What a kind of register is called, and which writes to it count."""

    noun: str
    check: Callable[[bytes, bytes], object]
    """Raises DecodeError unless this key may have this value."""
    id_size: int | None = None
    """Bytes of a key after its letter; None where *check* knows."""
    own: bool = False
    """Each device writes the register that is named after it, and nobody else does."""
    ends_with_writer: bool = False
    """Each device writes the registers whose keys end with its id, and nobody else does."""
    ends: bool = False
    """Whether a register may end: be written without a value."""


def _place(key: bytes, value: bytes) -> None:
    _of_tree(key)
    node = key[1:17]
    if node in (ROOT_ID, Place.decode(value).parent):
        raise DecodeError("a node that cannot stand there")


def _attr(key: bytes, value: bytes) -> None:
    _of_tree(key)
    attr = Attr.decode(value)
    kind, allowed = stat.S_IFMT(attr.mode), kind_of(key[1:])
    if allowed is not None and kind != allowed:
        raise DecodeError("a node of one kind has attributes of another")
    if _NOBODY in (attr.uid, attr.gid):
        raise DecodeError("an owner that no node can have")
    if bool(attr.target) != (kind == stat.S_IFLNK) or b"\0" in attr.target:
        raise DecodeError("every symbolic link has a target, and nothing else has")
    if any(not name or b"\0" in name for name, _ in attr.xattrs):
        raise DecodeError("an extended attribute without a proper name")


def _content(key: bytes, value: bytes) -> None:
    _of_tree(key)
    Content.decode(value)
    if kind_of(key[1:]) not in (None, stat.S_IFREG):
        raise DecodeError("content of a node that is no file")


def _of_tree(key: bytes) -> None:
    if not is_of_tree(key):
        raise DecodeError("no key of a register of the tree")


def _kit(_: bytes, value: bytes) -> None:
    from hybrisfs.recovery.record import (
        KitRecord,
    )  # with it comes much that who examines updates need not load

    KitRecord.decode(value)


def _anything(key: bytes, value: bytes) -> None:
    """Nonsense in a register that only its owner may write harms nobody else: it counts as silence."""


def _member(key: bytes, value: bytes) -> None:
    if key != member_key(Member.decode(value).device):
        raise DecodeError("the key of another device")


RULES: Final[Mapping[int, Rule]] = {
    ord("p"): Rule("place", _place),
    ord("a"): Rule("attributes", _attr),
    ord("c"): Rule("content", _content),
    ord("k"): Rule("pack", lambda _, value: PackRecord.decode(value), _PACK_ID_SIZE, ends=True),
    ord("w"): Rule("rewritten pack", lambda _, value: Rewritten.decode(value), _PACK_ID_SIZE),
    ord("d"): Rule("proposal", _anything, DEVICE_ID_SIZE, own=True),
    ord("v"): Rule("ballot", _anything, DEVICE_ID_SIZE, own=True),
    ord("x"): Rule("vote", lambda _, value: decode_vote(value), 2 * DEVICE_ID_SIZE, ends_with_writer=True),
    ord("m"): Rule("member", _member, DEVICE_ID_SIZE),
    ord("e"): Rule("epoch", lambda _, value: check_grant(value), EPOCH_SIZE),
    ord("s"): Rule("cloud", lambda _, value: CloudRecord.decode(value), 1),
    ord("r"): Rule("redundancy", lambda _, value: RedundancyRecord.decode(value), 0),
    ord("f"): Rule("evidence", lambda key, value: decode_evidence(key, value, fault), DEVICE_ID_SIZE + _KIND),
    ord("y"): Rule("recovery kit", _kit, DEVICE_ID_SIZE, ends=True),
}
"""By the letter with which keys begin. Registers of kinds that are not here are kept, unread, for later
versions."""


def fault(writer: bytes, key: bytes, value: bytes | None) -> str | None:
    """How a write of device *writer* breaks its rule, in words; None when it does not."""
    rule = RULES.get(key[0])
    if rule is None:
        return None
    named = key[_LETTER:] if rule.own else key[-DEVICE_ID_SIZE:] if rule.ends_with_writer else writer
    if named != writer:
        return f"{described(key)}: only that device writes it"
    if rule.id_size is not None and len(key) != _LETTER + rule.id_size:
        return f"{described(key)}: a key that means nothing"
    if value is None:
        return None if rule.ends else f"{described(key)}: such a register never ends"
    try:
        rule.check(key, value)
    except DecodeError as error:
        return f"{described(key)}: {error}"
    return None


def void(update: SignedUpdate) -> tuple[int, ...]:
    """Which of the writes of an update do not count: their indices, in ascending order."""
    writer = update.header.writer
    broken = {at for at, write in enumerate(update.writes) if fault(writer, *write) is not None}
    if any(key[0] in _OF_KITS for key, _ in update.writes):
        broken |= _halves(update, broken)
    return tuple(sorted(broken))


def _halves(update: SignedUpdate, broken: Container[int]) -> set[int]:
    """The other writes of an update that are half of what belongs together, without the other half."""
    kept = {key: value for at, (key, value) in enumerate(update.writes) if at not in broken}

    def is_half(key: bytes, value: bytes | None) -> bool:
        if key[0] == _MEMBER:
            member = Member.decode(value or b"")
            return member.reserve and kept.get(bytes((_KIT,)) + member.device) is None
        if key[0] == _KIT and value is None:
            partner = kept.get(member_key(key[_LETTER:]))
            return partner is None or not Member.decode(partner).removed
        return False

    return {at for at, write in enumerate(update.writes) if at not in broken and is_half(*write)}


def lawful(update: SignedUpdate, broken: Container[int] | None = None) -> SignedUpdate:
    """The update with those of its writes that count: itself, when all do. *broken*: what `void` found."""
    broken = void(update) if broken is None else broken
    if not broken:
        return update
    kept: list[Write] = [write for at, write in enumerate(update.writes) if at not in broken]
    return update._replace(writes=tuple(kept))


def described(key: bytes) -> str:
    """What people call the register with this key."""
    rule = RULES.get(key[0]) if key else None
    return f"{rule.noun if rule is not None else key[:1].hex()} {key[1:].hex()}"
