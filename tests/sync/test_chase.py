"""Segments: whole chains, gaps, branches, and what cannot be had."""

from __future__ import annotations

from collections.abc import Sequence

from sync.beacons import Fault
from sync.chase import FIRST_RETRY, KEPT_BYTES, Chase, Deliver, FetchSegment, ListSegments
from sync.follow import FollowLimits
from sync.segment import SegmentId, segment_name
from sync.trail import Wanted, id_of
from tests.sync.publisher import (
    HOUR,
    Publisher,
    Shelf,
    Watcher,
    announce,
    caught_up,
    corrupt_segments,
    publish,
    segment_of,
    shelves,
    withhold,
)
from tests.sync.support import KEYS, NOON

A, B, _, OWN = KEYS


def test_a_joining_device_gets_the_whole_chain_causes_first() -> None:
    clouds = shelves()
    a, b = Publisher(A), Publisher(B)
    for _ in range(6):
        publish(a, clouds, 0.0, 2)
        b.receive_all([update for update in a.order if not b.holds_update(update)])
        publish(b, clouds, 0.0, 2)
        a.receive_all([update for update in b.order if not a.holds_update(update)])
    watcher = Watcher(OWN, clouds, 1)
    watcher.run(1.0)
    assert caught_up(watcher, a, b)
    assert not watcher.waiting
    assert len(watcher.fetched()) == 12, "each segment once"
    assert watcher.longest_wait <= 2, "no more than one segment ever waits for its causes"


def test_a_chain_longer_than_memory_is_fetched_twice_and_delivered_in_order() -> None:
    clouds = shelves()
    a = Publisher(A)
    for _ in range(20):
        publish(a, clouds, 0.0)
    size = len(a.order[0].data)
    watcher = Watcher(OWN, clouds, 1, limits=FollowLimits(kept_bytes=5 * size))
    watcher.run(1.0)
    assert caught_up(watcher, a)
    fetched = watcher.fetched()
    assert len(fetched) > 20
    assert all(fetched.count(name) <= 2 for name in fetched)
    assert id_of(fetched[20]).first == 6, "the five that are needed first were kept"
    clocks = [id_of(one.name).first for one in watcher.done if isinstance(one, Deliver)]
    assert clocks == list(range(1, 21))


def test_nothing_is_fetched_that_came_on_another_way() -> None:
    clouds = shelves()
    a = Publisher(A)
    publish(a, clouds, 0.0)
    publish(a, clouds, 0.0)
    watcher = Watcher(OWN, clouds, 1, a.order)
    watcher.run(10.0)
    assert not watcher.fetched()
    publish(a, clouds, 10.0)
    a.write_more()
    announce(a, clouds, 11.0)  # states an update that no segment holds yet
    watcher.run(HOUR)
    assert len(set(watcher.fetched())) == 1
    assert len(watcher.fetched()) < 20


class _Linked(Watcher):
    """A link takes in all that there is just before the log is asked the question of that number."""

    def __init__(self, question: int, writers: Sequence[Publisher], clouds: Sequence[Shelf]) -> None:
        self.question = question
        self.writers = writers
        self.asked_so_far = 0
        super().__init__(OWN, clouds, 1)

    def holds(self, device: bytes, start: bytes) -> bool:
        self.asked_so_far += 1
        if self.asked_so_far == self.question:
            self._take_in([update for writer in self.writers for update in writer.order])
        return super().holds(device, start)


def test_a_link_may_bring_all_of_it_between_any_two_questions() -> None:
    clouds = shelves()
    a, b = Publisher(A), Publisher(B)
    for _ in range(3):
        publish(a, clouds, 0.0, 2)
        publish(b, clouds, 0.0, 2)
    question, asked = 0, 1
    while question < asked:
        question += 1
        watcher = _Linked(question, (a, b), clouds)
        watcher.run(HOUR)
        assert caught_up(watcher, a, b)
        assert not watcher.follow.pending(a.id) and not watcher.follow.pending(b.id)
        asked = watcher.asked_so_far
    assert question > 20


def test_a_gap_that_is_filled_meanwhile_is_not_waited_for() -> None:
    clouds = shelves()
    a = Publisher(A)
    publish(a, clouds, 0.0)
    publish(a, clouds, 0.0)
    for cloud in clouds:
        cloud.lie = withhold(segment_of(a.order[0], a.order[0]))
    watcher = Watcher(OWN, clouds, 1)
    watcher.run(10.0)
    assert not caught_up(watcher, a)
    watcher.receive(a.order[0])
    watcher.run(HOUR)
    assert caught_up(watcher, a)


def test_what_was_shipped_but_not_recorded_is_shipped_again_beside_it() -> None:
    """A crash between upload and record: the next segment begins with the same update and ends later."""
    clouds = shelves()
    a = Publisher(A)
    a.write_more()
    (name, short), _ = a.restored().ship(NOON)
    for cloud in clouds:
        cloud.put(name, short)
    publish(a, clouds, 0.0, 2)
    watcher = Watcher(OWN, clouds, 1)
    watcher.run(10.0)
    assert caught_up(watcher, a)
    watcher.done.clear()
    watcher.list_branches(a.id)
    watcher.run(10.0)
    assert any(isinstance(action, ListSegments) for action in watcher.done)
    assert name not in watcher.fetched(), "the name tells that all of it is here"
    assert len(clouds[0].versions[name]) == 1


def test_a_device_restored_from_before_it_shipped_loses_nothing() -> None:
    """The backup was taken when an update was signed but not shipped: both branches share that update."""
    clouds = shelves()
    a = Publisher(A)
    publish(a, clouds, 0.0, 4)
    a.write_more()
    backup = a.restored()
    publish(a, clouds, 10.0)  # 5 and 6
    publish(backup, clouds, 20.0)  # 5 and another 6
    assert all(len(versions) == 1 for name, versions in clouds[0].versions.items() if "log/" in name)
    watcher = Watcher(OWN, clouds, 1)
    watcher.run(10.0)
    watcher.list_branches(a.id)
    watcher.run(10.0)
    assert all(watcher.holds_update(update) for update in (*a.order, *backup.order))


def test_what_is_only_listed_and_nowhere_is_not_reported() -> None:
    watcher = Watcher(OWN, shelves(), 1)
    watcher.run(1.0)
    watcher.list_branches(A.device_id)
    watcher.run(HOUR)
    assert len(watcher.fetched()) == 1
    assert not watcher.reports()


def test_a_segment_that_no_cloud_denies_having_is_not_omitted() -> None:
    clouds = shelves()
    a = Publisher(A)
    publish(a, clouds, 0.0)
    watcher = Watcher(OWN, clouds, 1)
    for cloud in clouds:
        cloud.lie = corrupt_segments
    watcher.run(100.0)
    assert not watcher.reports()
    assert watcher.follow.pending(a.id)


def test_a_withheld_segment_is_reported_and_asked_for_less_and_less_often() -> None:
    clouds = shelves()
    a, b = Publisher(A), Publisher(B)
    publish(a, clouds, 0.0)
    publish(a, clouds, 0.0)
    hidden = segment_of(a.order[0], a.order[0])
    for cloud in clouds:
        cloud.lie = withhold(hidden)
    watcher = Watcher(OWN, clouds, 1)
    watcher.run(10.0)
    (report,) = watcher.reports()
    assert (report.cloud, report.name, report.fault) == (None, hidden, Fault.OMITTED)
    publish(b, clouds, 10.0)
    watcher.run(HOUR)
    assert caught_up(watcher, b), "others do not wait for it"
    assert watcher.fetched().count(hidden) < 20
    assert watcher.follow.pending(a.id) and len(watcher.follow.doubts()) == 1
    for cloud in clouds:
        cloud.lie = None
    watcher.run(2 * HOUR)
    assert caught_up(watcher, a)
    assert not watcher.follow.pending(a.id) and not watcher.follow.doubts()


def test_what_the_log_does_not_take_is_brought_again_less_and_less_often() -> None:
    clouds = shelves()
    a = Publisher(A)
    publish(a, clouds, 0.0)
    watcher = Watcher(OWN, clouds, 1)
    watcher.receiving = False
    watcher.run(4 * HOUR)
    assert 5 < len(watcher.fetched()) < 25
    watcher.receiving = True
    watcher.run(HOUR)
    assert caught_up(watcher, a)


def test_both_branches_of_a_restored_device_are_fetched_and_no_cloud_is_accused() -> None:
    clouds = shelves()
    a = Publisher(A)
    publish(a, clouds, 0.0)
    watcher = Watcher(OWN, clouds, 1)
    watcher.run(10.0)
    backup = a.restored()
    publish(a, clouds, 10.0, 3)
    watcher.run(10.0)
    publish(backup, clouds, 30.0, 1)
    watcher.run(60.0)
    assert all(watcher.holds_update(update) for update in (*a.order, *backup.order))
    assert not watcher.reports()


def test_a_device_restored_from_a_backup_finds_what_it_wrote_afterwards() -> None:
    clouds = shelves()
    own = Publisher(OWN)
    publish(own, clouds, 0.0)
    backup = list(own.order)
    publish(own, clouds, 10.0, 3)
    watcher = Watcher(OWN, clouds, 1, backup)
    watcher.run(1.0)
    assert caught_up(watcher, own)


def test_a_branch_that_no_head_leads_to_is_found_by_its_name() -> None:
    clouds = shelves()
    a = Publisher(A)
    publish(a, clouds, 0.0)
    backup = a.restored()
    publish(a, clouds, 10.0, 3)
    publish(backup, clouds, 20.0)  # overwrites the head that led to the other branch
    watcher = Watcher(OWN, clouds, 1)
    watcher.run(10.0)
    assert caught_up(watcher, backup)
    watcher.list_branches(a.id)
    watcher.run(10.0)
    assert any(isinstance(action, ListSegments) for action in watcher.done)
    assert all(watcher.holds_update(update) for update in a.order)


def test_a_branch_that_a_head_names_but_does_not_lead_to_is_looked_for() -> None:
    clouds = shelves()
    a = Publisher(A)
    publish(a, clouds, 0.0)
    backup = a.restored()
    publish(a, clouds, 10.0, 3)
    publish(backup, clouds, 20.0)
    backup.receive_all([update for update in a.order if not backup.holds_update(update)])
    publish(backup, clouds, 30.0)
    watcher = Watcher(OWN, clouds, 1)
    watcher.run(10.0)
    assert caught_up(watcher, backup)
    assert sum(isinstance(action, ListSegments) for action in watcher.done) == 1
    watcher.run(HOUR)
    assert sum(isinstance(action, ListSegments) for action in watcher.done) == 1


def test_heads_of_ever_new_segments_do_not_pile_up() -> None:
    chase = Chase(lambda *_: False, KEPT_BYTES, FIRST_RETRY)
    for clock in range(1, 1000):
        name = segment_name(A.device_id, SegmentId(clock, bytes(8)))
        chase.aim(A.device_id, Wanted(name), (bytes(32),))
    (action,) = chase.due(0.0)
    assert isinstance(action, FetchSegment)
    assert id_of(action.wanted.name).first == 999
    assert len(chase._fetches[A.device_id].targets) == 64


def test_false_relays_crowd_out_nothing() -> None:
    chase = Chase(lambda *_: False, KEPT_BYTES, FIRST_RETRY)
    chase.aim(A.device_id, Wanted(segment_name(A.device_id, SegmentId(1, bytes(8)))), (bytes(32),))
    for clock in range(2, 1000):
        made_up = segment_name(A.device_id, SegmentId(clock, bytes(8)))
        chase.aim_relayed(A.device_id, Wanted(made_up), B.device_id)
    assert len(chase._fetches[A.device_id].targets) == 65
    asked = []
    for _ in range(65):
        (action,) = chase.due(0.0)
        assert isinstance(action, FetchSegment)
        asked.append(id_of(action.wanted.name).first)
        chase.segment_failed(A.device_id, action.wanted.name, "not there", 0.0, gone=True)
    assert asked[-1] == 1
    chase.forget(B.device_id)
    assert list(chase._fetches[A.device_id].targets) == [segment_name(A.device_id, SegmentId(1, bytes(8)))]


def test_a_relay_takes_over_nothing_that_the_author_announced() -> None:
    chase = Chase(lambda *_: False, KEPT_BYTES, FIRST_RETRY)
    name = segment_name(A.device_id, SegmentId(1, bytes(8)))
    chase.aim(A.device_id, Wanted(name, bytes(32)), (bytes(32),))
    chase.aim_relayed(A.device_id, Wanted(name), B.device_id)
    chase.forget(B.device_id)
    (action,) = chase.due(0.0)
    assert isinstance(action, FetchSegment) and action.wanted == Wanted(name, bytes(32))


def test_an_author_takes_over_what_was_relayed() -> None:
    chase = Chase(lambda *_: False, KEPT_BYTES, FIRST_RETRY)
    name = segment_name(A.device_id, SegmentId(1, bytes(8)))
    chase.aim_relayed(A.device_id, Wanted(name), B.device_id)
    chase.aim(A.device_id, Wanted(name), (bytes(32),))
    chase.forget(B.device_id)
    assert chase.pending(A.device_id)
