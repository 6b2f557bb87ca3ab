"""Which log segments are on the clouds: own ones in their order, and those of others."""

from __future__ import annotations

from hybrisfs.state.segments import OwnSegment
from sync import parse_segment_name, segment_name
from sync.head import LogOnClouds
from sync.segment import SegmentId
from tests.tree.rig import Rig

DEVICE, OTHER = bytes(16), b"\x01" * 16


def segment(first: int, last: int, placement: bytes) -> OwnSegment:
    return OwnSegment(first, last, segment_name(DEVICE, SegmentId.of(first, bytes([last]) * 32)), placement)


def test_own_segments_follow_each_other(rig: Rig) -> None:
    segments = rig.tx.segments
    assert segments.newest() is None and segments.on_clouds() is None and segments.count() == 0
    one, two, three = segment(1, 4, b"\x01\x02"), segment(5, 5, b"\x02"), segment(6, 9, b"\x01\x02")
    for each in (one, two, three):
        segments.put(each, 100)
    assert segments.newest() == three and segments.newest(skipping=2) == one
    assert segments.newest(skipping=3) is None
    assert segments.newest_name(8) == two.name and segments.newest_name(3) is None
    assert segments.before(two) == one and segments.before(one) is None
    assert segments.after() == [one, two, three] and segments.after(1, 1) == [two]
    assert segments.ending_after(5) == [three]
    assert segments.on_clouds() == LogOnClouds(3, parse_segment_name(three.name)[1], 9)


def test_copies_are_counted_and_moved(rig: Rig) -> None:
    segments = rig.tx.segments
    one, two = segment(1, 4, b"\x01\x02"), segment(5, 5, b"\x02")
    segments.put(one, 100)
    segments.put(two, 100)
    assert segments.on_cloud(1) == [one] and segments.on_cloud(2) == [one, two]
    assert segments.with_fewer_copies(2) == [two]
    segments.move(two.name, b"\x02\x03")
    assert segments.with_fewer_copies(2) == []
    assert segments.find(two.name) == two._replace(placement=b"\x02\x03")
    assert segments.find("log/none") is None


def test_relayed_segments_are_known_until_their_author_leads_there(rig: Rig) -> None:
    segments = rig.tx.segments
    segments.put_relayed("one", OTHER, 100, b"\x01")
    segments.put_relayed("one", OTHER, 100, b"\x01\x02")
    segments.put_relayed("two", DEVICE, 100, b"\x01")
    assert segments.relayed(OTHER) == ["one"]
    segments.forget_relayed("one")
    assert segments.relayed(OTHER) == [] and segments.relayed(DEVICE) == ["two"]
    assert segments.count() == 0


def test_clouds_have_to_have_a_head_once_they_have_acknowledged_one(rig: Rig) -> None:
    segments = rig.tx.segments
    assert segments.head_holders() == frozenset()
    segments.head_acknowledged({2}, among={0, 1, 2})
    segments.head_acknowledged({0, 1}, among={0, 1, 2})
    assert segments.head_holders() == {0, 1, 2}
    segments.head_acknowledged({0}, among={0, 2})  # one has left the volume
    segments.head_acknowledged({0}, among={0, 1, 2})  # and is empty when it comes back
    assert segments.head_holders() == {0, 2}
