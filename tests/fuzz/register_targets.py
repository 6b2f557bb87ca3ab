"""Targets of what members sign: the values and keys of all registers."""

from __future__ import annotations

import stat
import struct
from functools import partial
from typing import Final

from hybrisfs.keys import EpochKeys
from hybrisfs.kinds import IGNORE_RULE, LABEL, NODE, Kind
from hybrisfs.members.epochs import (
    encode_grant,
    encode_grant_object,
    grant_name,
    open_grant,
    open_grant_object,
    parse_grant_name,
    read_epochs,
    write_epochs,
)
from hybrisfs.members.evidence import decode_evidence, decode_evidence_file, encode_evidence_file
from hybrisfs.members.members import Member
from hybrisfs.merge.authority import breach
from hybrisfs.merge.cloud_records import CloudRecord, CloudState, RedundancyRecord
from hybrisfs.merge.kv_services import ServiceRecord, service_key
from hybrisfs.recovery.record import KIT_CONTEXT, KitRecord, SignedKit, signed_kit_key
from hybrisfs.registers.entries import ContainerRecord, ContainerState, Entry
from hybrisfs.registers.ignore_rules import Rules, check_rule, encode_rank, pattern_of, rule_key
from hybrisfs.registers.labels import ADDED, TAKEN_AWAY, as_text, check_label, from_text, label_key, word_of
from hybrisfs.registers.proposals import Answer, Answers, Proposal, Stage, Stray
from hybrisfs.registers.tree import (
    Attr,
    Content,
    PackedChunk,
    PackRecord,
    Place,
    Rewritten,
    Run,
    decode_runs,
    encode_runs,
    is_of_tree,
    place_key,
    removed_place,
    slot_of,
)
from hybrisfs.registers.values import Stamp
from hybrisfs.tree.acl import Acl
from sync.codec import DecodeError, Reader, Writer
from sync.identity import SIGNATURE_SIZE, Members
from tests.fuzz.target import Target, decoder, text
from tests.members.test_evidence import BROKE, FORK, FORKED, OFFENCE
from tests.recovery.support import RECORD, SECRET
from tests.sync.support import KEYS, VOLUME

__all__ = ["TARGETS"]

_SIGNED_KIT: Final = SignedKit(RECORD, SECRET.reserve.public).encode(SECRET.reserve)
_NODE: Final = bytes(range(16))
_CHUNK: Final = b"c" * 32
_PLACES: Final = (
    Place(_NODE, b"name"),
    Place(_NODE, b"n" * 200),
    Place(_NODE, b"name", removed=True),
    Place(_NODE, b"name", former=_NODE, yields=True),
)
_ATTRS: Final = (
    Attr(stat.S_IFREG | 0o644, 1, 1, 0, 1_800_000_000_000_000_000),
    Attr(stat.S_IFLNK | 0o777, 1000, 1000, 0, -5, b"target"),
    Attr(stat.S_IFDIR | 0o755, 1, 1, 0, 0, xattrs=((b"user.a", b"1"), (b"user.b", b""))),
)
_RUNS: Final = (Run(1000, _CHUNK), Run(24, None), Run(1 << 20, b"d" * 32))
_PACKS: Final = (
    PackRecord(1, 2, b"\0\1", (PackedChunk(_CHUNK, 0, 40, 9), PackedChunk(b"d" * 32, 40, 41, 10))),
    PackRecord(2, 3, b"\0\1\2", ()),
)
_PROPOSALS: Final = (
    Proposal(7, (b"1" * 32, b"2" * 32), (b"3" * 32,), (Stray(b"4" * 32, 0, 1),)),
    Proposal(8, ()),
)
_ANSWERS: Final = Answers({b"1" * 16: Answer(Stage.PROMISED, (0, 3)), b"2" * 16: Answer(Stage.AGREED)})
_EPOCHS: Final = (
    EpochKeys(b"next", 1, bytes([7]) * 32, bytes([8]) * 32, frozenset({KEYS[1].device_id})),
    EpochKeys(b"last", 2, bytes([9]) * 32, bytes([10]) * 32),
)
_MEMBERS: Final = Members(key.public for key in KEYS[:2])
_GRANT: Final = encode_grant(VOLUME, _EPOCHS, _MEMBERS)
_GRANT_OBJECT: Final = encode_grant_object(b"next", _GRANT, KEYS[1])


def _signed_kit(value: bytes) -> SignedKit:
    return SignedKit.decode(signed_kit_key(SECRET.kit), value)


def _attr(data: bytes) -> object:
    # Times before 1970 and lists of attributes have one form; numbers are as they are.
    attr = Attr.decode(data)
    assert Attr.decode(attr.encode()) == attr
    return attr


def _key(data: bytes) -> object:
    if not is_of_tree(data):
        raise ValueError("no key of the tree")
    if data[:1] == b"p":
        assert place_key(data[1:17], slot_of(data)) == data
    return data


def _label(data: bytes) -> object:
    """A key without its last byte, which is the value."""
    key, value = data[:-1], data[-1:]
    if Kind.of(key) is not LABEL or not LABEL.has_form(key):
        raise DecodeError("no key of a label")
    check_label(key, value)
    assert label_key(key[NODE], word_of(key)) == key
    return key


def _rule(data: bytes) -> object:
    """A key without its last five bytes, which are the value. What is read of it takes no time to match."""
    key, value = data[:-5], data[-5:]
    if Kind.of(key) is not IGNORE_RULE or not IGNORE_RULE.has_form(key):
        raise DecodeError("no key of an ignore rule")
    check_rule(key, value)
    pattern = pattern_of(key)
    assert rule_key(pattern) == key
    return Rules([pattern]).verdict(["a" * 255] * 20, is_directory=False)


def _entry(data: bytes) -> object:
    entry = Entry.decode(data)
    assert Entry.decode(entry.encode()) == entry
    return entry


def _labels(data: bytes) -> object:
    words = from_text(data)
    assert from_text(as_text(words)) == words
    for word in words:
        check_label(label_key(_NODE, word), ADDED)
    return words


def _removal(data: bytes) -> object:
    place = removed_place(data)
    if place is None:
        raise ValueError("no removal")
    assert place.removed and place.encode() == data
    return place


def _epochs(data: bytes) -> object:
    reader = Reader(data)
    found = read_epochs(reader)
    reader.end()
    assert _ring(found) == data
    return found


def _ring(epochs: list[EpochKeys]) -> bytes:
    out = Writer()
    write_epochs(out, epochs)
    return out.getvalue()


def _grant_object(data: bytes) -> object:
    return open_grant_object(data, b"next", VOLUME, KEYS[1].public, KEYS[1].device_id, KEYS[0])


def _grant_in_object(grant: bytes) -> object:
    """As a member may sign it."""
    return _grant_object(encode_grant_object(b"next", grant, KEYS[1]))


def _grant_name(name: str) -> object:
    assert grant_name(*parse_grant_name(name)) == name
    return name


def _runs(data: bytes) -> object:
    found = decode_runs(data)
    assert encode_runs(found) == data
    return found


_ACL: Final = struct.pack("<I", 2) + b"".join(
    struct.pack("<HHI", *entry)
    for entry in (
        (1, 7, 0xFFFFFFFF),
        (2, 5, 1000),
        (4, 5, 0xFFFFFFFF),
        (8, 1, 100),
        (16, 7, 0xFFFFFFFF),
        (32, 0, 0xFFFFFFFF),
    )
)
_ACL_OF_A_MODE: Final = _ACL[:12] + _ACL[20:28] + _ACL[44:]

TARGETS: Final[dict[str, Target]] = {
    "register p": decoder(Place.decode, [one.encode() for one in _PLACES], Place.encode),
    "register p, removals": Target(_removal, [_PLACES[2].encode()], (ValueError,)),
    "register a": Target(_attr, [one.encode() for one in _ATTRS]),
    "register c": decoder(
        Content.decode,
        [
            Content(0, 0, ()).encode(),
            Content(1024 + (1 << 20), 0, _RUNS).encode(),
            Content(1000, 1, _RUNS[:1]).encode(),
        ],
        Content.encode,
    ),
    "runs": Target(_runs, [encode_runs(_RUNS), b""]),
    "register k": decoder(PackRecord.decode, [one.encode() for one in _PACKS], PackRecord.encode),
    "register w": decoder(
        Rewritten.decode, [Rewritten(()).encode(), Rewritten((_CHUNK, b"d" * 32)).encode()], Rewritten.encode
    ),
    "register l": Target(
        _label, [label_key(_NODE, "taxes") + ADDED, label_key(_NODE, "zwei Wörter") + TAKEN_AWAY]
    ),
    "register u": Target(
        _rule, [rule_key("*.o") + encode_rank(1), rule_key("!a/**/[b-d]?/") + encode_rank(0)]
    ),
    "register j": Target(
        _entry,
        [
            Entry(1, 2, 3, b"value", b"attributes").encode(),
            Entry(1 << 40, 5, 0, b"").encode(),
            Entry(2, 7, 1_800_000_000_000, None).encode(),
            Entry(2, 7, 1_800_000_000_000, b"value", came=True).encode(),
            Entry(2, 7, 1_800_000_000_000, None, came=True).encode(),
            Entry(2, 7, 1_800_000_000_000, None, went=Stamp(9, _NODE)).encode(),
        ],
    ),
    "register b": decoder(
        ContainerRecord.decode,
        [
            b"\0",
            b"\1",
            ContainerRecord(ContainerState.THERE, (b"s" * 8, b"t" * 8)).encode(),
            ContainerRecord(ContainerState.RENAMED, (b"s" * 8,), "box/leaving/mark").encode(),
        ],
        ContainerRecord.encode,
    ),
    "labels as text": Target(_labels, [b"2026,taxes", "a b, ä".encode(), b""], (ValueError,)),
    "register m": decoder(
        Member.decode,
        [
            Member(KEYS[0].public, "laptop").encode(),
            Member(KEYS[1].public, "désk", removed=True).encode(),
            Member(KEYS[2].public, "kit", reserve=True).encode(),
        ],
        Member.encode,
    ),
    "register e": Target(lambda data: open_grant(data, VOLUME, KEYS[0]), [_GRANT]),
    "register s": decoder(
        CloudRecord.decode,
        [
            CloudRecord("attic", "file:///mnt/a").encode(),
            CloudRecord("b", "s3://b/x", CloudState.GONE).encode(),
        ],
        CloudRecord.encode,
    ),
    "register r": decoder(
        RedundancyRecord.decode,
        [RedundancyRecord(1, 1).encode(), RedundancyRecord(2, 3).encode()],
        RedundancyRecord.encode,
    ),
    "register z": decoder(
        partial(ServiceRecord.decode, service_key("etcd://db:2379/a")),
        [ServiceRecord("etcd://db:2379/a").encode(), ServiceRecord("etcd://db:2379/a", False).encode()],
        ServiceRecord.encode,
    ),
    "register d": decoder(Proposal.decode, [one.encode() for one in _PROPOSALS], Proposal.encode),
    "register v": decoder(Answers.decode, [_ANSWERS.encode(), Answers({}).encode()], Answers.encode),
    "register f, a fork": decoder(lambda value: decode_evidence(FORK, value, breach), [FORKED]),
    "register f, an offence": decoder(lambda value: decode_evidence(OFFENCE, value, breach), [BROKE]),
    "evidence in a file": decoder(
        lambda data: decode_evidence_file(data, breach), [encode_evidence_file(VOLUME, OFFENCE, BROKE)]
    ),
    "register y": decoder(KitRecord.decode, [RECORD.encode()], KitRecord.encode),
    "register q": decoder(_signed_kit, [_SIGNED_KIT], lambda kit: kit.encode(SECRET.reserve)),
    "register q behind the signature": decoder(
        lambda body: _signed_kit(body + SECRET.reserve.sign(KIT_CONTEXT + body)),
        [_SIGNED_KIT[:-SIGNATURE_SIZE]],
        lambda kit: kit.encode(SECRET.reserve)[:-SIGNATURE_SIZE],
    ),
    "register keys": Target(
        _key,
        [
            b"a" + _NODE,
            b"c" + _NODE,
            place_key(_NODE, 0),
            place_key(_NODE, 300),
            place_key(_NODE, (1 << 63) - 1),
        ],
        (ValueError,),
    ),
    "epochs": Target(_epochs, [_ring(list(_EPOCHS)), _ring([])]),
    "grant object": Target(_grant_object, [_GRANT_OBJECT]),
    "grant object behind the signature": Target(_grant_in_object, [_GRANT]),
    "grant name": text(_grant_name, [grant_name(b"next", KEYS[1].device_id)], (ValueError,)),
    "access control list": decoder(Acl.decode, [_ACL, _ACL_OF_A_MODE], Acl.encode, (ValueError,)),
}
