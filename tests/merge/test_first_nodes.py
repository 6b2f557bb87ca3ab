"""A view made from all registers at once is the one that the general path makes of them."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass
from typing import Final

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hybrisfs.log import Registers
from hybrisfs.merge.names import Author
from hybrisfs.merge.newcomers import build_view
from hybrisfs.merge.origins import LogOrigins
from hybrisfs.merge.refresh import Refresh
from hybrisfs.registers.node_id import ROOT_ID
from hybrisfs.registers.tree import Attr, Content, Place, Run, attr_key, content_key, place_key
from hybrisfs.registers.values import Stamp
from hybrisfs.state.schema import ROOT_INO
from hybrisfs.tree.unseen import Change
from tests.merge.beginner import filled_like, shown
from tests.merge.test_machine import TreeOfMany
from tests.tree.invariants import check_accounts
from tests.tree.rig import Rig

_EXAMPLES: Final = int(os.environ.get("HYBRISFS_TREE_EXAMPLES", "10"))


# Of earlier versions: such nodes may be of any kind.
_IDS: Final = [bytes([number]) * 16 for number in (1, 2, 0x5F, 0x7E)] + [
    b"\x7f" + b"\xff" * 15,
    b"\0" * 15 + b"\1",
]
_KINDS: Final = (stat.S_IFDIR, stat.S_IFREG, stat.S_IFDIR, stat.S_IFREG, stat.S_IFLNK)
ids = st.sampled_from(_IDS)
places = st.builds(
    Place,
    parent=st.sampled_from([*_IDS, ROOT_ID, ROOT_ID, ROOT_ID]),
    name=st.sampled_from([b"a", b"b", b"x" * 200, b"x" * 201]),
    removed=st.sampled_from([False, False, True]),
    former=st.sampled_from([b"", b"", _IDS[0]]),
    yields=st.sampled_from([False, False, True]),
).map(Place.encode)
attrs = st.builds(
    Attr,
    mode=st.sampled_from(_KINDS).map(lambda kind: kind | 0o644),
    uid=st.just(1),
    gid=st.just(1),
    rdev=st.just(0),
    mtime=st.integers(0, 2),
    target=st.just(b""),
    xattrs=st.sampled_from([(), ((b"user.x", b"1"),)]),
).map(Attr.encode)
contents = st.sampled_from(
    [
        Content(0, 0, ()).encode(),
        Content(5, 0, (Run(5, b"c" * 32),)).encode(),
        Content(9, 0, (Run(5, b"c" * 32), Run(4, None))).encode(),
        Content(7, 1, (Run(7, b"d" * 32),)).encode(),
    ]
)
nonsense = st.sampled_from([None, b"", b"\0", ROOT_ID, ROOT_ID + b"\x85", ROOT_ID + b"\xff\xff\xff"])
stamps = st.builds(Stamp, st.integers(1, 6), st.sampled_from([b"A" * 16, b"B" * 16]))


def _mostly(values: st.SearchStrategy[bytes]) -> st.SearchStrategy[bytes | None]:
    return st.one_of(values, values, values, values, nonsense)


registers = st.lists(
    st.one_of(
        st.tuples(ids.map(lambda one: place_key(one, 0)), _mostly(places), stamps),
        st.tuples(ids.map(lambda one: place_key(one, 0)), _mostly(places), stamps),
        st.tuples(ids.map(lambda one: place_key(one, 300)), places, stamps),
        st.tuples(st.sampled_from([*_IDS, ROOT_ID]).map(attr_key), _mostly(attrs), stamps),
        st.tuples(ids.map(attr_key), attrs, stamps),
        st.tuples(ids.map(content_key), _mostly(contents), stamps),
    ),
    max_size=40,
    unique_by=(lambda one: (one[0], one[2])),
)
plain = st.lists(st.tuples(ids, places, attrs, contents), max_size=7, unique_by=(lambda one: one[0]))
_Written = tuple[bytes, bytes | None, Stamp]


@contextmanager
def filled(written: list[_Written]) -> Iterator[tuple[Rig, Registers]]:
    rig = Rig()
    try:
        for key, value, stamp in written:
            rig.tx.registers.write_own(stamp, [])
            number = rig.tx.registers.number_of(stamp) & 0xFFFF
            rig.db.rows.execute(
                "INSERT INTO register (key, clock, writer, value) VALUES (?, ?, ?, ?)",
                (key, stamp.clock, number, value),
            )
        yield rig, Registers(rig.tx, rig.tx.chunks.condemned, rig.tx.versions, rig.tx.hearing)
    finally:
        rig.abandon()


@dataclass
class _Origins:
    """*knows*: whether each writer had seen all that has a lower clock, or its own updates only."""

    knows: bool

    def depends(self, later: Stamp, earlier: Stamp) -> bool:
        return later.clock > earlier.clock and (self.knows or later.branch == earlier.branch)

    def author(self, stamp: Stamp) -> Author:
        return Author(stamp.branch[:1].decode(), 0)


@given(some=registers, nodes=plain, knows=st.booleans())
@settings(max_examples=_EXAMPLES * 15, deadline=None, suppress_health_check=list(HealthCheck))
def test_at_once_is_like_the_general_path(
    some: list[_Written], nodes: list[tuple[bytes, bytes, bytes, bytes]], *, knows: bool
) -> None:
    written = dict[tuple[bytes, Stamp], bytes | None]()
    for node, place, attr, content in nodes:
        stamp = Stamp(4, b"A" * 16)
        for key, value in ((place_key(node, 0), place), (attr_key(node), attr), (content_key(node), content)):
            written[key, stamp] = value
    written.update(((key, stamp), value) for key, value, stamp in some)
    rows = [(key, value, stamp) for (key, stamp), value in written.items()]
    origins = _Origins(knows)
    with filled(rows) as (fast, its), filled(rows) as (slow, others):
        changes = build_view(fast.tx, fast.fs, its, origins)
        assert not fast.fs.names.list(fast.tx, ROOT_INO, 0, 1) or Change(ROOT_INO) in changes
        every = {key[1:17] for key, _, _ in rows}
        Refresh(slow.tx, slow.fs, others, origins).run(slow.tx, {*every, ROOT_ID})
        assert shown(fast) == shown(slow)


# -- what programs on several devices have made ------------------------------------------------------


class Beginners(TreeOfMany):
    """Whenever all have heard of all, another device begins with what they have."""

    def _begun(self) -> None:
        source = self.world.fleet[0]
        rig = filled_like(source)
        try:
            build_view(rig.tx, rig.fs, rig.tx.registers, LogOrigins(rig.tx))
            check_accounts(rig, [])
            mine, other = shown(source.rig), shown(rig)
            for part in ("joined", "copies", "moved"):  # the rest tells of open files, too
                assert other[part] == mine[part], part
            beginner = copy(source)
            beginner.rig = rig
            assert beginner.tree() == source.tree()
        finally:
            rig.abandon()

    def teardown(self) -> None:
        if hasattr(self, "world"):
            try:
                self.world.settle()
                self._begun()
            finally:
                super().teardown()


Beginners.TestCase.settings = settings(
    max_examples=_EXAMPLES, stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck)
)
TestBeginners = Beginners.TestCase
