"""Our own heads on the clouds: where they may be overwritten, and what must go on being named."""

from __future__ import annotations

from msgspec.structs import replace

from sync.beacons import OwnHeads
from sync.follow import LONGEST_PAUSE, FetchHead
from sync.head import MAX_RELAYED, CheckpointId, Head, LogOnClouds, OwnTip, Relayed, encode_head
from sync.seal import EpochKey, OneKey
from sync.segment import SegmentId
from sync.vector import VersionVector
from tests.sync.publisher import Watcher, shelves
from tests.sync.support import BOX_KEY, KEYS, NONCE, NOON, VOLUME

A, *_, OWN = KEYS


def segment(number: int) -> SegmentId:
    return SegmentId(number, number.to_bytes(8, "big"))


def head(serial: int, newest: int, *relayed: int) -> Head:
    """A head of OWN whose newest segment and relayed ones have these numbers."""
    clocks = VersionVector({OWN.device_id: newest})
    tips = (OwnTip(newest, segment(newest).prefix * 4),)
    named = tuple(Relayed(A.device_id, segment(number)) for number in relayed)
    on_clouds = LogOnClouds(1, segment(newest), newest)
    return Head(VOLUME, OWN.device_id, serial, NOON, clocks, tips, on_clouds, relayed=named)


def test_what_all_heads_lead_to_is_kept() -> None:
    heads = OwnHeads(lambda *_: False)
    heads.seen(0, head(7, 3, 1, 2))
    heads.seen(1, head(5, 4))
    heads.seen(2, None)
    assert heads.earlier_heads.clouds == {0, 1, 2}
    assert heads.earlier_heads.serial == 7
    own = [Relayed(OWN.device_id, segment(number)) for number in (3, 4)]
    others = [Relayed(A.device_id, segment(number)) for number in (1, 2)]
    assert heads.earlier_heads.segments == tuple(sorted([*own, *others]))


def test_the_checkpoint_of_the_newest_head_that_names_one_is_kept() -> None:
    first, second = (CheckpointId(bytes(32), bytes((number,)) * 32) for number in (1, 2))
    heads = OwnHeads(lambda *_: False)
    heads.seen(0, replace(head(7, 3), checkpoint=second))
    heads.seen(1, replace(head(5, 3), checkpoint=first))
    heads.seen(2, head(9, 4))
    heads.keep_clouds([0, 1])
    assert heads.earlier_heads.checkpoint == second


def test_a_cloud_that_was_not_in_use_is_to_be_looked_at_again() -> None:
    heads = OwnHeads(lambda *_: False)
    heads.seen(0, head(7, 3))
    heads.seen(1, None)
    heads.keep_clouds([1, 2])
    assert heads.earlier_heads.clouds == {1}
    assert (heads.earlier_heads.serial, len(heads.earlier_heads.segments)) == (7, 1)


def test_old_heads_do_not_crowd_out_what_is_lacking() -> None:
    """A cloud may return each of the thousands of heads that it was ever given."""
    lacking = {segment(1).prefix, segment(5000).prefix}
    heads = OwnHeads(lambda _, prefix: prefix not in lacking)
    heads.seen(0, head(1, 1))
    for number in range(2, 2000):
        heads.seen(0, head(number, number))
    heads.seen(1, head(5000, 5000))
    assert len(heads.earlier_heads.segments) == 4 * MAX_RELAYED
    assert lacking <= {one.segment.prefix for one in heads.earlier_heads.segments}
    assert segment(1999) in {one.segment for one in heads.earlier_heads.segments}, "the newest of those known"


def _own_asked(watcher: Watcher) -> set[int]:
    asked = {one.cloud for one in watcher.asked() if one.device == OWN.device_id}
    watcher.done.clear()
    return asked


def test_where_our_head_was_not_looked_at_it_is_in_every_round() -> None:
    clouds = shelves()
    watcher = Watcher(OWN, clouds, 1)
    for action in watcher.follow.due(0.0, NOON):
        assert isinstance(action, FetchHead)
        if action.device == OWN.device_id and action.cloud == 1:
            watcher.follow.head_failed(action.device, action.cloud, "down")
        else:
            watcher.follow.head_missing(action.device, action.cloud, 0.0)
    assert watcher.follow.earlier_heads.clouds == {0, 2}
    assert watcher.follow.own_looked_for
    watcher.run(watcher.follow.next_due() + 0.1)
    assert _own_asked(watcher) == {1}
    assert watcher.follow.earlier_heads.clouds == {0, 1, 2}
    watcher.run(LONGEST_PAUSE / 2)
    assert not _own_asked(watcher)


class _Later(OneKey):
    """The key of a later epoch."""

    def newest(self) -> EpochKey:
        return EpochKey(b"next", bytes(32))


def test_a_head_that_cannot_be_read_yet_is_not_overwritten() -> None:
    """Its key is one of an epoch that came after our state was saved."""
    clouds = shelves()
    watcher = Watcher(OWN, clouds, 1)
    foreign = encode_head(head(1, 1), OWN, _Later(bytes(32)), NONCE)
    watcher.follow.head_arrived(OWN.device_id, 0, foreign, 0.0, NOON)
    watcher.follow.head_arrived(OWN.device_id, 1, foreign[:5] + b"\x09" + foreign[6:], 0.0, NOON)
    watcher.follow.head_arrived(OWN.device_id, 2, b"junk", 0.0, NOON)
    assert watcher.follow.earlier_heads.clouds == {2}
    assert not watcher.follow.own_looked_for
    known = encode_head(head(1, 1), OWN, BOX_KEY, NONCE)
    watcher.follow.head_arrived(OWN.device_id, 0, known, 0.0, NOON)
    assert watcher.follow.earlier_heads.clouds == {0, 2}
    assert watcher.follow.own_looked_for
