"""Who may write which register: what breaks its rule changes nothing, on any device."""

from __future__ import annotations

import stat
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hybrisfs.kinds import Kind
from hybrisfs.members.members import Member, member_key
from hybrisfs.merge.authority import RULES, described, fault, void
from hybrisfs.registers.node_id import ROOT_ID, can_be, kind_of, new_node_id, new_volume_id
from hybrisfs.registers.proposals import Answer, Answers, Proposal, Stage, answers_key, proposal_key
from hybrisfs.registers.tree import (
    MAX_FILE_SIZE,
    Attr,
    Content,
    Place,
    Run,
    attr_key,
    content_key,
    place_key,
)
from sync import DeviceKey, SignedUpdate, Update, decode_signed, encode_signed
from sync.update import Write
from tests.merge.fleet import Device, Fleet, member_of
from tests.merge.test_many_links import calls
from tests.sync.support import OLDER_VOLUME, VOLUME

KINDS = (
    stat.S_IFREG, stat.S_IFDIR, stat.S_IFLNK, stat.S_IFIFO, stat.S_IFSOCK, stat.S_IFCHR, stat.S_IFBLK,
)  # fmt: skip
NOW = 1_700_000_000 * 10**9
OLD = (NOW // 10**6).to_bytes(6) + bytes(10)  # the id of a node, as earlier versions made them
FILE, FOLDER = (new_node_id(kind, NOW) for kind in (stat.S_IFREG, stat.S_IFDIR))
LAPTOP, DESKTOP = (member_of(number).device for number in range(2))


@pytest.fixture
def fleet() -> Iterator[Fleet]:
    one = Fleet(3)
    yield one
    one.discard()


@pytest.fixture
def older_fleet() -> Iterator[Fleet]:
    """Of a volume that an earlier version made."""
    one = Fleet(3, volume=OLDER_VOLUME)
    yield one
    one.discard()


def told(fleet: Fleet, *writes: Write) -> tuple[Device, Device]:
    """The last device, which has seen all, signs what no program of ours signs; the others hear of it. One
    of them has changed something else."""
    *honest, mallory = fleet.devices
    fleet.meet()
    honest[1].write("other", b"meanwhile")
    honest[1].sign()
    mallory.rig.updates.sign(writes, NOW, 0)
    lies = mallory.log()
    for device in honest:
        device.receive(lies)
    honest[0].receive(honest[1].log())
    assert honest[0].registers() == honest[1].registers()
    assert honest[0].tree() == honest[1].tree()
    return honest[0], honest[1]


@given(st.sampled_from(KINDS), st.integers(-(1 << 63), (1 << 63) - 1))
def test_an_id_tells_the_kind(kind: int, now: int) -> None:
    assert kind_of(new_node_id(kind | 0o644, now)) == kind


def test_ids_ascend_with_the_time() -> None:
    ids = [new_node_id(stat.S_IFDIR, NOW + second * 10**9) for second in range(100)]
    assert ids == sorted(ids)


def test_ids_of_earlier_versions_tell_no_kind() -> None:
    assert kind_of((NOW // 10**6).to_bytes(6) + bytes(range(10))) is None
    assert kind_of(ROOT_ID) == stat.S_IFDIR


def test_the_id_of_a_volume_tells_whether_all_ids_tell() -> None:
    assert new_volume_id(lambda size: bytes(range(size))) == VOLUME
    assert can_be(FILE, VOLUME) and can_be(ROOT_ID, VOLUME) and not can_be(OLD, VOLUME)
    assert can_be(OLD, OLDER_VOLUME)


def test_an_id_that_no_node_can_have_has_no_kind() -> None:
    assert kind_of(b"\xff" * 16) == 0


def attr(kind: int, target: bytes = b"") -> bytes:
    return Attr(kind | 0o755, 1, 1, 0, 0, target).encode()


def seen(device: Device, path: str) -> int:
    return stat.S_IFMT(device.at(path).mode)


@pytest.mark.parametrize("before", [stat.S_IFDIR, stat.S_IFREG])
@pytest.mark.parametrize("kind", KINDS)
def test_a_node_stays_what_it_is(fleet: Fleet, before: int, kind: int) -> None:
    assert_it_stays(fleet, new_node_id(before, NOW), before, kind)


@pytest.mark.parametrize("before", [stat.S_IFDIR, stat.S_IFREG])
@pytest.mark.parametrize("kind", KINDS)
def test_a_node_of_an_earlier_version_stays_what_it_is(older_fleet: Fleet, before: int, kind: int) -> None:
    assert_it_stays(older_fleet, OLD, before, kind)


def assert_it_stays(fleet: Fleet, node: bytes, before: int, kind: int) -> None:
    born: list[Write] = [
        (place_key(node, 0), Place(ROOT_ID, b"node").encode()),
        (attr_key(node), attr(before)),
    ]
    fleet[2].rig.updates.sign(born, NOW, 0)
    fleet.send(2, 0)
    if before == stat.S_IFDIR:
        fleet[0].write("node/file", b"within")
    else:
        fleet[0].write("node", b"content")
    fleet.meet()
    for device in told(fleet, (attr_key(node), attr(kind, b"/etc" if kind == stat.S_IFLNK else b""))):
        assert seen(device, "node") == before


def test_a_node_stays_what_it_is_when_all_is_heard_at_once(older_fleet: Fleet) -> None:
    """The view shows no node yet when the second update about it comes; its id does not tell its kind."""
    first, second, mallory = older_fleet.devices
    place = (place_key(OLD, 0), Place(ROOT_ID, b"node").encode())
    for kind in (stat.S_IFDIR, stat.S_IFREG, stat.S_IFLNK):
        mallory.rig.updates.sign([place, (attr_key(OLD), attr(kind, b"x" * stat.S_ISLNK(kind)))], NOW, 0)
        first.receive(mallory.log())
    second.receive(mallory.log())
    assert first.registers() == second.registers()
    assert seen(first, "node") == seen(second, "node") == stat.S_IFDIR


def test_two_who_lie_make_no_node_of_two_kinds(fleet: Fleet) -> None:
    """The id tells no kind, and each device hears first of another one."""
    victim, *liars = fleet.devices
    place = (place_key(OLD, 0), Place(ROOT_ID, b"node").encode())
    for liar, kind in zip(liars, (stat.S_IFDIR, stat.S_IFREG), strict=True):
        liar.rig.updates.sign([place, (attr_key(OLD), attr(kind))], NOW, 0)
    fleet.meet()
    assert victim.registers() == liars[0].registers() == liars[1].registers()
    assert victim.names() == []


@pytest.mark.parametrize("kind", (*KINDS[2:], stat.S_IFREG))
def test_the_root_stays_a_directory(fleet: Fleet, kind: int) -> None:
    fleet[0].write("file", b"content")
    fleet[0].sign()
    for device in told(fleet, (attr_key(ROOT_ID), attr(kind, b"/etc" if kind == stat.S_IFLNK else b""))):
        assert device.read("file") == b"content"
        assert seen(device, "") == stat.S_IFDIR


@pytest.mark.parametrize("value", [None, b"", b"nonsense", Place(ROOT_ID, b"x" * 255).encode()[:-1]])
def test_places_that_mean_nothing_supersede_none(fleet: Fleet, value: bytes | None) -> None:
    fleet[0].write("file", b"content")
    fleet[0].sign()
    node = fleet[0].at("file").id
    for device in told(fleet, (place_key(node, 0), value)):
        assert device.read("file") == b"content"


@pytest.mark.parametrize(
    "content",
    [
        None,
        b"",
        Content(MAX_FILE_SIZE + 1, 0, [Run(MAX_FILE_SIZE + 1, None)]).encode(),
        Content(1 << 61, 0, [Run(1 << 61, None)]).encode(),
    ],
)
def test_contents_that_no_file_can_have_supersede_none(fleet: Fleet, content: bytes | None) -> None:
    fleet[0].write("file", b"content")
    fleet[0].sign()
    node = fleet[0].at("file").id
    for device in told(fleet, (content_key(node), content)):
        assert device.read("file") == b"content"


def test_sparse_files_that_claim_more_than_numbers_hold_are_committed(fleet: Fleet) -> None:
    """Two million of these would be needed; the sum is what matters."""
    device = fleet[0]
    device.rig.fs.content.total_bytes = 1 << 64
    device.write("file", b"content")
    device.rig.fs.commit(device.rig.tx)
    assert device.rig.db.rows.meta("bytes") == (1 << 63) - 1


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (proposal_key(LAPTOP), Proposal(1, (bytes(32),)).encode()),
        (answers_key(LAPTOP), Answers({bytes(16): Answer(Stage.AGREED)}).encode()),
    ],
)
def test_a_device_writes_its_own_book_only(key: bytes, value: bytes) -> None:
    assert fault(LAPTOP, key, value) is None
    assert "only that machine" in (fault(DESKTOP, key, value) or "")
    assert fault(LAPTOP, key, None) is not None


@pytest.mark.parametrize("kind", RULES)
def test_nonsense_breaks_every_rule_but_those_of_own_books(kind: Kind) -> None:
    rule, size = RULES[kind], kind.size - 1
    key = kind.key(LAPTOP[:size].ljust(size, b"\1"))
    assert (fault(LAPTOP, key, b"\xff" * 7) is None) == rule.own
    assert (fault(LAPTOP, key, None) is None) == rule.ends
    assert described(key).startswith(kind.noun)
    for wrong in (key[:-1], key + b"\0" * 40):
        if len(wrong) > 1:
            assert fault(LAPTOP, wrong, b"\xff" * 7) is not None


def test_kinds_of_later_versions_are_kept_unread() -> None:
    assert fault(LAPTOP, b"Z" + bytes(16), b"anything") is None


def test_a_member_register_names_its_device() -> None:
    other = Member(DeviceKey.from_seed(b"\x07" * 32).public, "other")
    assert fault(LAPTOP, member_key(other.device), other.encode()) is None
    assert fault(LAPTOP, member_key(DESKTOP), other.encode()) is not None


NODES = st.sampled_from([FILE, FILE, FILE, FOLDER, ROOT_ID, OLD, b"\xff" * 16])
NUMBERS = st.sampled_from([0, 1, 200, 0xFFFFFFFE, 0xFFFFFFFF])
SIZES = st.sampled_from([0, 63, 64, MAX_FILE_SIZE, MAX_FILE_SIZE + 1])

places = st.builds(
    Place,
    NODES,
    st.sampled_from([b"a", b"b", b"..", b"a/b", b"a\0", b"", b"x" * 127, b"x" * 128]),
    st.sampled_from([False, False, True]),
)
attrs = st.builds(
    Attr,
    st.sampled_from([kind | 0o644 for kind in (*KINDS, stat.S_IFREG, stat.S_IFDIR, 0)]),
    NUMBERS,
    NUMBERS,
    NUMBERS,
    st.integers(-(1 << 63), (1 << 63) - 1),
    st.sampled_from([b"", b"", b"/etc", b"a\0"]),
    st.sampled_from([(), (), ((b"user.a", b"1"),), ((b"", b""),)]),
)
contents = st.builds(
    lambda size, depth, runs: Content(sum(run.length for run in runs) if size < 0 else size, depth, runs),
    st.one_of(st.just(-1), st.just(-1), SIZES),
    st.sampled_from([0, 0, 1, 2]),
    st.lists(
        st.builds(
            Run, SIZES, st.sampled_from([bytes(32), bytes(32), None]), st.sampled_from([0, 0, 1, 1 << 24 | 1])
        ),
        min_size=1,
        max_size=2,
    ),
)


@st.composite
def nearly_right(draw: st.DrawFn, letter: bytes, records: st.SearchStrategy[Place | Attr | Content]) -> Write:
    """What a correct device may write, or nearly so."""
    slot = draw(st.sampled_from([b"\0", b"\0", b"\x01", b"\x80", b""])) if letter == b"p" else b""
    value = draw(records).encode()
    if draw(st.integers(0, 3)) == 0:
        at, put = draw(st.integers(0, len(value) - 1)), draw(st.binary(max_size=2))
        value = value[:at] + put + value[at + draw(st.integers(0, 2)) :]
    return letter + draw(NODES) + slot, value


def signed(*writes: Write) -> SignedUpdate:
    key = DeviceKey.from_seed(b"\x07" * 32)
    update = Update(bytes(16), key.device_id, 1, 0, bytes(32), (), bytes(32), NOW, writes)
    return decode_signed(encode_signed(update, key))


@pytest.mark.parametrize(("letter", "records"), [(b"p", places), (b"a", attrs), (b"c", contents)])
@settings(max_examples=300)
@given(data=st.data())
def test_what_is_passed_at_a_glance_keeps_its_rule(
    letter: bytes, records: st.SearchStrategy[Place | Attr | Content], data: st.DataObject
) -> None:
    write = data.draw(nearly_right(letter, records))
    update = signed(write, (letter, None))
    is_fault = fault(update.header.writer, *write) is not None
    assert void(update) == ((0, 1) if is_fault else (1,))


@pytest.mark.parametrize("size", [1, 100, 5000, MAX_FILE_SIZE])
@pytest.mark.parametrize("name", [b"file", b"x" * 127])
def test_what_most_updates_write_is_passed_at_a_glance(size: int, name: bytes) -> None:
    update = signed(
        (place_key(FILE, 0), Place(FOLDER, name).encode()),
        (attr_key(FILE), attr(stat.S_IFREG)),
        (content_key(FILE), Content(size, 0, [Run(size, bytes(32))]).encode()),
        (attr_key(FOLDER), attr(stat.S_IFDIR)),
    )
    assert void(update) == ()
    assert calls(lambda: void(update), fault.__code__) == 0
