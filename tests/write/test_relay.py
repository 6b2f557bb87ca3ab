"""The relayer: what other devices wrote reaches the clouds without them, once and in order."""

from __future__ import annotations

import time
from collections.abc import Iterator
from functools import partial

import pytest
from msgspec.structs import replace

from hybrisfs.dispersal.errors import CloudsUnavailable
from hybrisfs.environment import Environment, Limits
from hybrisfs.exchange.peering import Links
from hybrisfs.parts import Shipping, open_shipping
from hybrisfs.write.layout import ChunkLimits
from hybrisfs.write.relay import (
    _AWAIT_SECONDS,
    _FORGO_SECONDS,
    PRESENT_SECONDS,
    RELAY_SECONDS,
)
from hybrisfs.write.relayer import RelayLimits
from hybrisfs.write.ship import ShipLimits
from sync import (
    Head,
    Members,
    decode_head,
    decode_segment,
    encode_head,
    head_name,
    parse_segment_name,
    segment_name,
)
from sync.beacons import EarlierHeads
from sync.chase import Deliver, FetchSegment
from sync.follow import FetchHead, Follow
from sync.trail import open_piece
from tests.merge.fleet import Device, Fleet
from tests.state.test_chunks import CONTENT
from tests.tree.rig import SEGMENT_KEYS, VOLUME
from tests.write.support import PutAll, Unknown

KEY = SEGMENT_KEYS
HOUR = 3600.0


class Post:
    """Devices that share one cloud for their logs, of which the first is absent until it ships."""

    def __init__(self, links: Links | None = None) -> None:
        self.links = links or Links()
        self.now = 1000.0
        at_once = Limits(ShipLimits(last_retry=0.0, relay_pause=0.0))
        self.fleet = Fleet(3, environment=lambda _: Environment(monotonic=lambda: self.now, limits=at_once))
        self.author, self.near, self.far = self.fleet.devices
        self.objects: dict[str, bytes] = {}
        self.order: list[str] = []
        self.down = False
        self.refused = ""
        """The object that the cloud does not take."""
        self.members = Members(device.key.public for device in self.fleet.devices)
        self.shipping = {device.name: self._shipping(device) for device in self.fleet.devices}

    def earlier_heads(self) -> EarlierHeads:
        return EarlierHeads()

    def _shipping(self, device: Device) -> Shipping:
        rig = device.rig
        return open_shipping(rig.local, rig.fetcher, self.links, PutAll(self.put), self, Unknown())

    def restart(self, device: Device) -> None:
        device.rig = device.rig.reopen()
        self.shipping[device.name] = self._shipping(device)

    # -- the cloud -------------------------------------------------------------------------------

    def put(self, name: str, data: bytes) -> tuple[int, ...]:
        if self.down or name == self.refused:
            raise CloudsUnavailable(name, {})
        self.objects[name] = data
        self.order.append(name)
        return 0, 1

    def heads(self) -> dict[bytes, Head]:
        return {device.key.device_id: head for device in self.fleet.devices if (head := self.head(device))}

    def head(self, device: Device) -> Head | None:
        data = self.objects.get(head_name(device.key.device_id))
        return decode_head(data, VOLUME, device.key.public, KEY) if data else None

    def alter_head(self, device: Device, **changes: object) -> None:
        head = self.head(device)
        assert head is not None
        changed = replace(head, **changes)
        self.objects[head_name(device.key.device_id)] = encode_head(changed, device.key, KEY, bytes(24))

    def segments(self, device: Device) -> list[str]:
        """The names of the segments of the device, in the order of the puts."""
        return [name for name in self.order if name.startswith(f"log/{device.key.device_id.hex()}/")]

    def clocks(self, device: Device) -> list[int]:
        return [
            update.header.clock
            for name in self.segments(device)
            for update in decode_segment(
                self.objects[name], name, VOLUME, self.near.rig.ring.segments
            ).updates
        ]

    # -- the devices -----------------------------------------------------------------------------

    def tell(self, sender: Device, receiver: Device) -> None:
        """Hand all updates over directly, and no chunk."""
        while sender.rig.publish(everything=True):
            pass
        receiver.receive(sender.log())

    def ship(self, device: Device) -> None:
        device.rig.signals.begin_flush()
        while self.shipping[device.name].shipper._ship_one():
            pass
        device.rig.signals.end_flush()

    def relay(self, device: Device, after: float = 0.0) -> None:
        """What the shipper's thread does, when it has been that long."""
        self.now += after
        self.shipping[device.name].shipper._relay()

    def relay_patiently(self, device: Device) -> None:
        self.relay(device)
        self.relay(device, HOUR)

    def pull(self, reader: Device) -> None:
        """Follow everything on the cloud from the heads that are there."""
        holds = reader.rig.sharing.holds
        follow = Follow(VOLUME, KEY, reader.key.device_id, [0], 0, holds, 0.0)
        follow.set_members(self.members, 0.0)
        while actions := follow.due(0.0, time.time_ns()):
            for action in actions:
                match action:
                    case FetchHead(device, cloud, _):
                        data = self.objects.get(head_name(device))
                        if data is None:
                            follow.head_missing(device, cloud, 0.0)
                        else:
                            follow.head_arrived(device, cloud, data, 0.0, time.time_ns())
                    case FetchSegment(device, wanted):
                        piece = open_piece(self.objects[wanted.name], wanted, VOLUME, KEY)
                        follow.segment_arrived(device, piece)
                    case Deliver():
                        reader.receive(action.updates)

    def caught_up(self, reader: Device, writer: Device) -> bool:
        return reader.rig.updates.state.vector.covers(writer.rig.updates.state.vector)


@pytest.fixture
def post() -> Iterator[Post]:
    one = Post()
    yield one
    one.fleet.discard()


def test_what_an_absent_device_wrote_is_shipped_after_a_while(post: Post) -> None:
    post.author.mkdir("folder")
    post.tell(post.author, post.near)
    post.relay(post.near)
    post.relay(post.near, RELAY_SECONDS - 1)
    assert not post.objects
    post.relay(post.near, RELAY_SECONDS)
    post.pull(post.far)
    assert post.far.names() == ["folder"]
    assert post.caught_up(post.far, post.author)
    head = post.head(post.near)
    assert head is not None and head.on_clouds is None and len(head.relayed) == 1
    assert post.order[-1] == head_name(post.near.key.device_id), "the head after what it names"
    post.relay(post.near, HOUR)
    assert len(post.segments(post.author)) == 1


def test_what_comes_later_follows_what_is_there(post: Post) -> None:
    post.author.mkdir("one")
    post.tell(post.author, post.near)
    post.ship(post.author)
    post.author.mkdir("two")
    post.tell(post.author, post.near)
    post.relay_patiently(post.near)
    post.author.mkdir("three")
    post.tell(post.author, post.near)
    post.relay_patiently(post.near)
    assert post.clocks(post.author) == [1, 2, 3]
    head = post.head(post.near)
    assert head is not None and [one.segment.first for one in head.relayed] == [3]
    post.pull(post.far)
    assert post.far.names() == ["one", "three", "two"]


def test_a_device_that_ships_itself_is_not_helped(post: Post) -> None:
    for number in range(5):
        post.author.mkdir(f"{number}")
        post.tell(post.author, post.near)
        post.relay(post.near, RELAY_SECONDS * 0.9)
        post.ship(post.author)
    post.relay(post.near, HOUR)
    assert post.head(post.near) is None
    assert len(post.segments(post.author)) == 5


def test_a_device_whose_head_is_ahead_of_us_is_not_helped(post: Post) -> None:
    post.author.mkdir("one")
    post.tell(post.author, post.near)
    post.author.mkdir("two")
    post.tell(post.author, post.far)
    post.ship(post.author)
    post.relay(post.near)
    post.relay(post.near, _AWAIT_SECONDS - 1)
    assert len(post.order) == 2


def test_a_head_that_leads_nowhere_keeps_nobody_from_relaying(post: Post) -> None:
    post.author.mkdir("one")
    post.tell(post.author, post.near)
    post.author.mkdir("two")
    post.author.rig.publish(everything=True)
    post.ship(post.author)
    for name in post.segments(post.author):
        del post.objects[name]
    before = len(post.order)
    post.relay(post.near)
    post.relay(post.near, _AWAIT_SECONDS)
    post.relay(post.near, HOUR)
    [name] = post.order[before:-1]
    assert name in post.segments(post.author), "what is here is relayed, and named in our head"
    relayed = decode_segment(post.objects[name], name, VOLUME, KEY).updates
    assert [update.header.clock for update in relayed] == [1]


def test_what_another_device_lacks_for_long_is_relayed_though_the_author_names_it(post: Post) -> None:
    author, near, far = post.author, post.near, post.far
    author.mkdir("one")
    post.tell(author, near)
    post.tell(author, far)
    far.mkdir("far")
    post.tell(far, near)
    post.ship(author)
    post.ship(far)
    author.mkdir("two")
    post.tell(author, near)
    post.ship(author)
    named = post.segments(author)[-1]
    del post.objects[named]  # it was never there
    shipped = len(post.segments(author))
    for minutes in (0, 5, 5):
        post.relay(near, minutes * 60.0)
    assert len(post.segments(author)) == shipped, "it may be on its way"

    for _ in range(2):
        post.relay(near, HOUR)
    assert len(post.segments(author)) == shipped, "its head may be of before"

    post.alter_head(far, time_ns=time.time_ns())
    for _ in range(2):
        post.relay(near, HOUR)
    head = post.head(near)
    assert head is not None
    [name] = [
        segment_name(one.author, one.segment) for one in head.relayed if one.author == author.key.device_id
    ]
    segment = decode_segment(post.objects[name], name, VOLUME, KEY)
    assert far.receive([one.data for one in segment.updates])
    assert far.tree() == near.tree()

    relayed = len(post.segments(author))
    far.mkdir("far too")
    post.tell(far, near)
    post.ship(far)
    post.relay(near, HOUR)
    post.relay(near, HOUR)
    assert len(post.segments(author)) == relayed, "once is enough"


def test_what_follows_something_that_was_never_there_is_relayed_with_it(post: Post) -> None:
    """The device that relays has believed the author, and put there what nobody can read without the rest."""
    author, near, far = post.author, post.near, post.far
    author.mkdir("one")
    post.tell(author, near)
    post.tell(author, far)
    far.mkdir("far")
    post.tell(far, near)
    post.ship(author)
    post.ship(far)
    author.mkdir("two")
    post.tell(author, near)
    post.ship(author)
    del post.objects[post.segments(author)[-1]]  # it was never there
    author.mkdir("three")
    post.tell(author, near)
    post.relay_patiently(near)
    assert len(post.segments(author)) == 3, "one, two, and three alone"
    for _ in range(3):
        post.alter_head(far, time_ns=time.time_ns())
        post.relay(near, HOUR)
    head = post.head(near)
    assert head is not None
    [name] = [
        segment_name(one.author, one.segment) for one in head.relayed if one.author == author.key.device_id
    ]
    segment = decode_segment(post.objects[name], name, VOLUME, KEY)
    assert len(segment.updates) > 1, "all that is lacking, in one piece"
    assert far.receive([one.data for one in segment.updates])
    assert far.tree() == near.tree()

    relayed = len(post.segments(author))
    for _ in range(3):
        post.relay(near, HOUR)
    assert len(post.segments(author)) == relayed, "once is enough"


def test_the_author_takes_over_when_it_is_back(post: Post) -> None:
    post.author.mkdir("one")
    post.tell(post.author, post.near)
    post.relay_patiently(post.near)
    post.author.mkdir("two")
    post.tell(post.author, post.far)
    post.ship(post.author)
    assert post.clocks(post.author) == [1, 1, 2]
    post.relay(post.near)
    listed = partial(post.shipping["bob"].relayer.listed, post.near.rig.tx, EarlierHeads())
    assert len(listed()) == 1, "what its head leads to is not here yet"
    post.pull(post.near)
    post.relay(post.near)
    assert listed() == ()
    rows = post.near.rig.db.rows.execute("SELECT count(*) FROM relayed_segment").fetchone()
    assert rows == (0,)


def test_one_device_relays_and_the_others_see_it(post: Post) -> None:
    post.author.mkdir("folder")
    first, second = sorted((post.near, post.far), key=lambda device: device.key.device_id)
    for device in (second, first):
        post.tell(post.author, device)
        post.relay(device)
    post.now += RELAY_SECONDS
    post.relay(second)
    assert not post.objects, "another one's turn comes before"
    post.relay(first)
    assert len(post.segments(post.author)) == 1
    post.relay(second, HOUR)
    post.relay(first)
    assert len(post.segments(post.author)) == 1


def test_what_another_device_relays_is_gone_on_from(post: Post) -> None:
    post.author.mkdir("one")
    post.tell(post.author, post.near)
    post.relay_patiently(post.near)
    post.author.mkdir("two")
    post.tell(post.author, post.far)
    post.relay_patiently(post.far)
    assert post.clocks(post.author) == [1, 2]
    fleet = Fleet(3)
    post.pull(fleet[2])
    assert fleet[2].names() == ["one", "two"]
    fleet.discard()


def test_a_long_log_goes_without_waiting_for_each_piece(post: Post) -> None:
    post.shipping[post.near.name].relayer.limits = RelayLimits(segment_bytes=1000)
    for number in range(20):
        post.author.mkdir(f"{number}")
        post.tell(post.author, post.near)
    post.relay_patiently(post.near)
    assert post.clocks(post.author) == list(range(1, 21))
    assert len(post.segments(post.author)) > 4
    post.pull(post.far)
    assert post.caught_up(post.far, post.author)


def test_what_is_young_waits_though_it_follows_what_is_old(post: Post) -> None:
    """An author that is busy is always a little behind: that alone is no reason to relay."""
    post.author.mkdir("0")
    post.tell(post.author, post.near)
    for number in range(1, 40):
        post.author.mkdir(f"{number}")
        post.ship(post.author)
        post.tell(post.author, post.near)
        post.relay(post.near, 5.0)
    assert post.head(post.near) is None


def test_an_author_that_goes_on_writing_is_helped_all_the_same(post: Post) -> None:
    for number in range(40):
        post.author.mkdir(f"{number}")
        post.tell(post.author, post.near)
        post.relay(post.near, 5.0)
    assert 20 < len(post.clocks(post.author)) < 40


def test_chunks_that_are_here_go_first(post: Post) -> None:
    post.author.write("file", CONTENT)
    post.tell(post.author, post.near)
    post.relay_patiently(post.near)
    assert not post.objects, "no chunk, no update"
    post.author.rig.pack()
    here = post.author.rig.read(post.author.at("file"))
    with post.near.rig.fs.state.transaction() as tx:
        ((number,),) = post.near.rig.db.rows.execute("SELECT number FROM chunk").fetchall()
        tx.chunks.keep(number, here)
    post.fleet.clouds.packs.clear()
    post.relay(post.near, HOUR)
    assert not post.objects, "it is taken over, and waits for the packer"
    post.near.rig.pack()
    post.relay(post.near, HOUR)
    post.ship(post.near)
    post.pull(post.far)
    assert post.far.read("file") == CONTENT


@pytest.mark.parametrize("how", ["said so", "is silent"])
def test_a_device_that_is_there_brings_its_chunks_itself(post: Post, how: str) -> None:
    post.author.mkdir("folder")
    post.tell(post.author, post.near)
    post.ship(post.author)
    post.author.write("file", CONTENT)
    post.tell(post.author, post.near)
    with post.near.rig.fs.state.transaction() as tx:
        ((number,),) = post.near.rig.db.rows.execute("SELECT number FROM chunk").fetchall()
        tx.chunks.keep(number, CONTENT)
    post.relay_patiently(post.near)
    assert post.near.rig.unpacked() == 0
    head = post.head(post.author)
    assert head is not None
    if how == "said so":
        post.alter_head(post.author, offline=True)
    else:
        post.alter_head(post.author, time_ns=head.time_ns - int((PRESENT_SECONDS + 60) * 1e9))
    post.relay(post.near, HOUR)
    assert post.near.rig.unpacked() == 1
    post.near.rig.pack()
    post.relay(post.near, HOUR)
    assert len(post.segments(post.author)) == 2


def test_a_device_that_is_there_and_brings_nothing_holds_up_nobody_for_ever(post: Post) -> None:
    """It announces itself again and again, and what others write depends on what it has told over a link."""
    post.author.mkdir("folder")
    post.tell(post.author, post.near)
    post.ship(post.author)
    post.author.write("file", CONTENT)
    post.tell(post.author, post.near)
    newest = max(tip.clock for tip in post.near.rig.updates.tips())
    post.relay(post.near)
    post.relay(post.near, _FORGO_SECONDS / 2)
    assert max(post.clocks(post.author)) < newest
    post.alter_head(post.author, time_ns=time.time_ns())
    post.relay(post.near, _FORGO_SECONDS / 2)
    assert max(post.clocks(post.author)) == newest
    post.pull(post.far)
    assert post.far.names() == ["file", "folder"]


def test_both_branches_of_a_forked_device_are_shipped(post: Post) -> None:
    post.author.mkdir("shared")
    while post.author.rig.publish(everything=True):
        pass
    backup = post.author.saved()
    post.author.mkdir("one")
    post.tell(post.author, post.near)
    post.author.restore(backup)
    post.author.mkdir("other")
    post.tell(post.author, post.near)
    post.relay_patiently(post.near)
    head = post.head(post.near)
    assert head is not None and len(head.relayed) == 2
    post.pull(post.far)
    assert post.far.names() == ["one", "other", "shared"]


def test_a_branch_that_the_author_no_longer_leads_to_is_shipped_once(post: Post) -> None:
    post.author.mkdir("shared")
    while post.author.rig.publish(everything=True):
        pass
    backup = post.author.saved()
    post.author.mkdir("one")
    post.tell(post.author, post.near)
    post.author.restore(backup)
    post.restart(post.author)
    post.author.mkdir("other")
    post.tell(post.author, post.near)
    post.ship(post.author)
    # A segment ends where the branches begin.
    post.shipping[post.near.name].relayer.limits = RelayLimits(segment_updates=1)
    post.relay_patiently(post.near)
    post.relay(post.near, HOUR)
    assert len(set(post.segments(post.author))) == len(post.segments(post.author))
    post.pull(post.far)
    assert post.far.names() == ["one", "other", "shared"]


def test_the_list_of_a_large_file_is_fetched_where_it_is_needed(post: Post) -> None:
    post.author.rig.chunker.limits = ChunkLimits(256, direct_runs=1, runs_per_page=1)
    post.author.write("large", b"".join(bytes([number]) * 256 for number in range(3)))
    post.author.sign()
    post.near.receive(post.author.log())
    post.relay_patiently(post.near)
    post.relay(post.near, HOUR)
    post.pull(post.far)
    assert post.far.names() == ["large"]


def test_a_restart_forgets_nothing_that_was_relayed(post: Post) -> None:
    post.author.mkdir("folder")
    post.tell(post.author, post.near)
    post.relay_patiently(post.near)
    post.restart(post.near)
    post.near.mkdir("own")
    while post.near.rig.publish(everything=True):
        pass
    post.ship(post.near)
    head = post.head(post.near)
    assert head is not None and head.on_clouds is not None and head.on_clouds.segments == 1
    (relayed,) = head.relayed
    assert relayed.segment == parse_segment_name(post.segments(post.author)[0])[1]


def test_what_the_clouds_do_not_take_is_not_named(post: Post) -> None:
    post.author.mkdir("folder")
    post.tell(post.author, post.near)
    post.down = True
    post.relay_patiently(post.near)
    assert post.shipping["bob"].relayer.listed(post.near.rig.tx, EarlierHeads()) == ()
    post.down = False
    post.relay(post.near)
    assert len(post.order) == 2


def test_a_head_that_the_clouds_do_not_take_is_put_later(post: Post) -> None:
    post.author.mkdir("folder")
    post.tell(post.author, post.near)
    post.refused = head_name(post.near.key.device_id)
    post.relay_patiently(post.near)
    post.refused = ""
    assert post.head(post.near) is None and len(post.order) == 1
    post.relay(post.near)
    assert post.head(post.near) is not None and len(post.order) == 2


def test_who_is_no_member_is_not_relayed_and_does_not_relay(post: Post) -> None:
    post.author.mkdir("folder")
    post.tell(post.author, post.near)
    for members in ([post.near, post.far], [post.author, post.far]):
        post.near.rig.updates.set_members(Members(one.key.public for one in members))
        post.relay_patiently(post.near)
    assert not post.order
