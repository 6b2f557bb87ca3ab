"""What is told of packs: many statements at once have the effect that they have one by one."""

from __future__ import annotations

from typing import Final

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hybrisfs.merge.packs import Packs, Placement
from hybrisfs.registers.tree import PackedChunk, PackRecord
from hybrisfs.registers.values import Stamp
from tests.merge.beginner import stored
from tests.tree.rig import Rig

_EXAMPLES: Final = 60
_IDS: Final = [bytes([number]) * 32 for number in range(1, 5)]
chunks = st.builds(
    PackedChunk,
    id=st.sampled_from(_IDS),
    offset=st.integers(0, 3),
    sealed=st.just(9),
    length=st.just(7),
)
records = st.builds(
    PackRecord,
    k=st.just(1),
    n=st.just(2),
    placement=st.sampled_from([b"\0\1", b"\1\2"]),
    chunks=st.lists(chunks, max_size=4),
).map(PackRecord.encode)
values = st.one_of(records, records, records, st.sampled_from([None, b"", b"nonsense"]))
placements = st.builds(
    Placement,
    pack=st.sampled_from([one[::-1] + b"p" for one in _IDS]).map(lambda one: one[-32:]),
    value=values,
    stamp=st.builds(Stamp, st.integers(1, 5), st.sampled_from([b"A" * 16, b"B" * 16])),
)


@given(st.lists(placements, max_size=12), st.sets(st.sampled_from(_IDS)), st.booleans())
@settings(max_examples=_EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck))
def test_at_once_is_like_one_by_one(told: list[Placement], named: set[bytes], condemned: bool) -> None:
    """*named*: chunks that a file here names already; *condemned*: the first pack may be deleted soon."""
    rigs = [Rig(), Rig()]
    try:
        for rig in rigs:
            rig.tx.chunks.known(dict.fromkeys(sorted(named), 7))
        at_once, single = (Packs(rig.fs) for rig in rigs)
        for one in told[:1] if condemned else ():
            for rig, packs in zip(rigs, (at_once, single), strict=True):
                packs.take(rig.tx, [one])
                rig.tx.chunks.condemned.add(
                    number
                    for (number,) in rig.db.rows.execute("SELECT number FROM pack WHERE n > 0").fetchall()
                )
        at_once.take(rigs[0].tx, told)
        for one in told:
            single.take(rigs[1].tx, [one])
        assert stored(rigs[0]) == stored(rigs[1])
    finally:
        for rig in rigs:
            rig.abandon()
