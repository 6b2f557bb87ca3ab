"""The table of kinds of registers, and what the rest of the product makes of it."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable

import pytest

from hybrisfs import kinds
from hybrisfs.kinds import CONTENT, KINDS, NODE, PLACE, REDUNDANCY, ROLE, VOTE, Kind, Trait, having, sql_node
from hybrisfs.log import is_kept
from hybrisfs.members.epochs import epoch_key
from hybrisfs.members.evidence import Misdeed, evidence_key
from hybrisfs.members.lineage import let_in
from hybrisfs.members.members import member_key
from hybrisfs.members.removal import vote_key
from hybrisfs.members.roles import new_role_key
from hybrisfs.merge.authority import RULES, described
from hybrisfs.merge.cloud_records import REDUNDANCY_KEY, cloud_key
from hybrisfs.merge.kv_services import service_key
from hybrisfs.recovery.record import kit_key, signed_kit_key
from hybrisfs.registers.entries import container_key, entry_key, space_of
from hybrisfs.registers.ignore_rules import rule_key
from hybrisfs.registers.labels import label_key
from hybrisfs.registers.proposals import answers_key, proposal_key
from hybrisfs.registers.tree import (
    assignment_key,
    attr_key,
    content_key,
    pack_key,
    place_key,
    rewritten_key,
)
from sync import DecodeError

A, B = bytes(range(16)), bytes(range(16, 32))
PACK = bytes(range(32))
BUILT: dict[Kind, Callable[[], bytes]] = {
    kinds.PLACE: lambda: place_key(A, 300),
    kinds.ATTRIBUTES: lambda: attr_key(A),
    kinds.CONTENT: lambda: content_key(A),
    kinds.PACK: lambda: pack_key(PACK),
    kinds.REWRITTEN: lambda: rewritten_key(PACK),
    kinds.ASSIGNMENT: lambda: assignment_key(A, b"area"),
    kinds.LABEL: lambda: label_key(A, "taxes"),
    kinds.MEMBER: lambda: member_key(A),
    kinds.ADMISSION: lambda: let_in(A, B)[0],
    kinds.VOTE: lambda: vote_key(A, B),
    kinds.ROLE: lambda: new_role_key(A),
    kinds.EVIDENCE: lambda: evidence_key(A, Misdeed.FORK),
    kinds.PROPOSAL: lambda: proposal_key(A),
    kinds.ANSWERS: lambda: answers_key(A),
    kinds.SIGNED_KIT: lambda: signed_kit_key(A),
    kinds.KIT: lambda: kit_key(A),
    kinds.EPOCH: lambda: epoch_key(b"next"),
    kinds.CLOUD: lambda: cloud_key(7),
    kinds.REDUNDANCY: lambda: REDUNDANCY_KEY,
    kinds.IGNORE_RULE: lambda: rule_key("*.o"),
    kinds.SERVICE: lambda: service_key("etcd://db"),
    kinds.CONTAINER: lambda: container_key("box"),
    kinds.ENTRY: lambda: entry_key(space_of("box"), b"key"),
}


def test_every_kind_has_a_letter_and_a_rule() -> None:
    assert len(set(KINDS)) == len(KINDS)
    assert set(RULES) == set(KINDS) == set(BUILT)


def test_the_letters_are_those_of_volumes_written_before() -> None:
    assert bytes(KINDS) == b"packwglmixofdvqyesruzbj"


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.noun)
def test_a_key_has_the_form_of_its_kind_only(kind: Kind) -> None:
    key = BUILT[kind]()
    assert Kind.of(key) is kind
    assert kind.has_form(key)
    assert kind.key(*kind.split(key)) == key[: kind.size]
    assert not kind.has_form(key[: kind.size - 1])
    assert kind.has_form(key + b"\1") is kind.has_more
    assert described(key).startswith(f"{kind.noun} ")


def test_a_key_of_another_length_has_no_parts() -> None:
    assert VOTE.split(vote_key(A, B)) == (A, B)
    assert REDUNDANCY.split(REDUNDANCY_KEY) == ()
    for key in (vote_key(A, B) + b"m", vote_key(A, B)[:-1]):
        with pytest.raises(DecodeError):
            VOTE.split(key)
    with pytest.raises(DecodeError):
        PLACE.split(PLACE.key(A))


def test_no_kind_is_known_of_an_empty_key_and_of_later_versions() -> None:
    assert Kind.of(b"") is None
    assert Kind.of(b"Z" + A) is None


def test_kinds_are_found_by_what_they_have_in_common() -> None:
    assert having(Trait.TREE) == {PLACE, kinds.ATTRIBUTES, CONTENT}
    assert all(key[NODE] == A for key in (place_key(A, 0), attr_key(A), content_key(A)))
    assert {kind for kind in KINDS if not is_kept(BUILT[kind]())} == having(Trait.ELSEWHERE)
    assert having(Trait.SAID_ONCE) < having(Trait.SAID)
    assert having(Trait.KIN) < having(Trait.SAID) & having(Trait.MEMBERS)


def test_sql_finds_the_rows_of_a_kind() -> None:
    db = sqlite3.connect(":memory:")
    db.execute("CREATE TABLE register (key BLOB PRIMARY KEY)")
    db.executemany("INSERT INTO register VALUES (?)", [(built(),) for built in BUILT.values()])
    for kind in KINDS:
        rows = db.execute(f"SELECT key FROM register r WHERE {kind.sql_rows('r.key')}").fetchall()
        assert [Kind.of(key) for (key,) in rows] == [kind]
    query = f"SELECT {sql_node()}, {CONTENT.sql_key(sql_node())}, {ROLE.sql_prefix} FROM register WHERE "
    assert db.execute(query + PLACE.sql_rows()).fetchall() == [(A, content_key(A), ROLE.prefix)]
