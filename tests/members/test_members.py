"""What the member table makes of what it hears of a device."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import permutations
from pathlib import Path

import pytest

from hybrisfs.environment import SYSTEM
from hybrisfs.members.member_table import MemberTable
from hybrisfs.members.members import Member, member_key
from hybrisfs.recovery.record import kit_key
from hybrisfs.registers.values import Stamp, Value
from hybrisfs.state.database import Database
from sync import DecodeError, DeviceKey

KEY = DeviceKey.from_seed(b"k" * 32)
MEMBER, RESERVE = Member(KEY.public, "one"), Member(KEY.public, "one", reserve=True)
REMOVED = Member(KEY.public, "one", removed=True)


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    Database.create(tmp_path / "volume.db", b"v" * 16)
    one = Database(tmp_path / "volume.db", SYSTEM)
    yield one
    one.abandon()


@pytest.fixture
def table(database: Database) -> MemberTable:
    return MemberTable(database.rows)


def test_one_in_reserve_has_keys_and_may_write_but_is_no_device(
    table: MemberTable, database: Database
) -> None:
    table.admit([RESERVE])
    assert not table.writers() and not table.keys(), "it has no kit"
    database.rows.execute("INSERT INTO register VALUES (?, 1, 1, x'00')", (kit_key(KEY.device_id),))
    database.rows.membership += 1
    assert table.all() == [] and table.reserves() == [RESERVE] and table.removed() == []
    assert list(table.keys()) == list(table.writers()) == [KEY.device_id]
    assert KEY.device_id not in table.devices()


def test_members_are_read_again_only_when_something_has_changed(
    table: MemberTable, database: Database
) -> None:
    """Some thousand may be there, and every head that is wrong asks for one."""
    many = [Member(DeviceKey.from_seed(bytes((number,)) * 32).public, f"{number}") for number in range(9)]
    table.admit(many)
    assert len(table.devices()) == len(many)
    statements: list[str] = []
    database.rows._connection.set_trace_callback(statements.append)
    for _ in range(3):
        assert len(table.writers()) == len(many) and table.all() and not table.removed()
    assert statements == []
    table.admit([MEMBER])
    assert len(table.devices()) == len(many) + 1


@pytest.mark.parametrize("order", list(permutations((MEMBER, RESERVE, REMOVED))))
def test_removed_is_removed_in_whatever_order_it_is_heard(
    table: MemberTable, order: tuple[Member, ...]
) -> None:
    table.admit(order)
    assert table.removed() == [REMOVED] and table.reserves() == table.all() == []
    assert KEY.device_id not in table.writers() and table.writers().former_key(KEY.device_id) is not None


@pytest.mark.parametrize("order", list(permutations((MEMBER, RESERVE))))
def test_who_was_told_of_a_member_learns_that_it_is_in_reserve(
    table: MemberTable, order: tuple[Member, ...]
) -> None:
    table.introduce(order)
    assert table.reserves() == [RESERVE] and table.all() == []


def test_told_removed_it_may_write_until_its_removal_is_accepted(table: MemberTable) -> None:
    table.introduce([RESERVE, REMOVED])
    assert table.told_removed() == [REMOVED]
    assert KEY.device_id in table.writers() and table.keys().former_key(KEY.device_id)
    values = [Value(Stamp(clock, b"b"), one.encode()) for clock, one in enumerate((RESERVE, REMOVED), 1)]
    assert table.learn(member_key(KEY.device_id), values)
    assert table.told_removed() == [] and KEY.device_id not in table.writers()


@pytest.mark.parametrize("member", [MEMBER, RESERVE, REMOVED])
def test_the_record_comes_back(member: Member) -> None:
    data = member.encode()
    assert Member.decode(data) == member
    for wrong in (data[:-1] + b"\3", data + b"\0", data[:-1]):
        with pytest.raises(DecodeError):
            Member.decode(wrong)


def test_whom_nothing_can_be_sealed_for_is_nobody(table: MemberTable) -> None:
    odd = Member(bytes(31) + b"\2", "let in by an earlier version")
    table.admit([MEMBER, odd])
    assert table.all() == [MEMBER] and odd.device not in table.writers()
    with pytest.raises(DecodeError, match="none"):
        Member.decode(odd.encode())
    with pytest.raises(DecodeError, match="shown"):
        Member.decode(Member(KEY.public, "\x1b[31m").encode())


def test_who_let_a_device_in_is_whoever_was_heard_to_first(table: MemberTable) -> None:
    other, third = (Member(DeviceKey.from_seed(seed * 32).public, "x") for seed in (b"o", b"t"))
    table.introduce([MEMBER, other, third])
    assert table.inviter_of(other.device) is None
    signers = {b"1": other.device, b"2": MEMBER.device, b"3": third.device}
    for clock, branch in enumerate((b"1", b"2", b"3"), 5):  # its own word says nothing
        value = Value(Stamp(clock, branch), other.encode())
        table.learn(member_key(other.device), [value], lambda stamp: signers[stamp.branch])
    assert table.inviter_of(other.device) == MEMBER.device
    assert table.admitted_by(MEMBER.device) == [other] and table.admitted_by(third.device) == []
    table.admit([Member(other.public, "x", removed=True)], third.device, 9)
    assert table.admitted_by(MEMBER.device) == [], "only those who are there"
    assert table.shown_name(MEMBER.device) == "one"
    assert table.shown_name(third.device) == "x", "nobody else is called so now"
