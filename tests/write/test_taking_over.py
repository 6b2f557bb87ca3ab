"""What only machines hold goes to the clouds from whoever holds it, when its author stays away."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping

import pytest

from hybrisfs.exchange.peering import Links
from hybrisfs.write.relay import _FORGO_SECONDS, COPY_SECONDS, RELAY_SECONDS
from hybrisfs.write.relayer import Relayer
from sync import Head
from tests.merge.fleet import Device
from tests.write.support import Unknown
from tests.write.test_relay import KEY, Post

CONTENT = os.urandom(5000)


class FixedLinks(Links):
    """The devices that are *reached* over links, and what they have said there."""

    def __init__(self, heads: Mapping[bytes, Head] | None = None) -> None:
        super().__init__()
        self.reached: set[bytes] = set()
        self._heads = heads or {}

    def linked(self) -> set[bytes]:
        return self.reached

    def heads(self) -> Mapping[bytes, Head]:
        return self._heads


class LinkedPost(Post):
    """Devices that see who is *linked*."""

    links: FixedLinks

    def __init__(self) -> None:
        super().__init__(FixedLinks())

    def relay_in_a_hurry(self) -> None:
        self.near.rig.signals.begin_flush()
        self.relay(self.near)
        self.near.rig.signals.end_flush()


class TakingOver(LinkedPost):
    """Two files of the author are known to the second device, which holds one of them."""

    def __init__(self) -> None:
        super().__init__()
        self.author.write("held", CONTENT)
        self.tell(self.author, self.near)
        near = self.near.rig
        with near.fs.state.transaction() as tx:
            [(number,)] = near.db.rows.execute("SELECT number FROM chunk").fetchall()
            tx.chunks.keep(number, CONTENT)
        self.author.write("unread", CONTENT[::-1])
        self.tell(self.author, self.near)

    @property
    def taken_over(self) -> int:
        return self.near.rig.unpacked()


@pytest.fixture
def post() -> Iterator[TakingOver]:
    one = TakingOver()
    yield one
    one.fleet.discard()


def test_it_is_taken_over_after_a_while(post: TakingOver) -> None:
    post.relay(post.near)
    post.relay(post.near, RELAY_SECONDS / 2)
    assert post.taken_over == 0
    post.relay(post.near, 2 * RELAY_SECONDS)
    assert post.taken_over == 1


def test_an_author_that_is_there_brings_it_itself(post: TakingOver) -> None:
    post.author.write("other", b"")
    while post.author.rig.publish(everything=True):
        pass
    post.author.rig.pack()
    post.ship(post.author)
    post.relay(post.near)
    post.relay(post.near, 2 * RELAY_SECONDS)
    assert post.taken_over == 0


def test_it_is_taken_over_at_once_when_somebody_waits_and_the_author_cannot_be_reached(
    post: TakingOver,
) -> None:
    post.links.reached = {post.author.key.device_id}
    post.relay_in_a_hurry()
    assert post.taken_over == 0
    post.links.reached = set()
    post.relay_in_a_hurry()
    assert post.taken_over == 1


def test_what_nobody_holds_does_not_keep_the_rest_from_the_clouds_for_ever(post: TakingOver) -> None:
    clocks = [clock for _, clock in post.near.rig.updates.path(post.near.rig.updates.tips()[0])]
    post.relay(post.near)
    post.relay(post.near, 2 * RELAY_SECONDS)
    post.near.rig.pack()
    post.relay(post.near, 2 * RELAY_SECONDS)
    assert max(post.clocks(post.author)) < max(clocks), "data before the metadata that names it"
    post.relay(post.near, _FORGO_SECONDS)
    assert max(post.clocks(post.author)) == max(clocks)
    post.pull(post.far)
    assert post.far.names() == ["held", "unread"]


def test_nothing_is_expected_of_a_device_that_was_removed(post: TakingOver) -> None:
    """What others wrote since depends on what it wrote: its removal, first of all."""
    near = post.near.rig
    clocks = [clock for _, clock in near.updates.path(near.updates.tips()[0])]
    near.sharing.membership.remove(post.author.key.device_id.hex())
    post.relay(post.near)
    post.relay(post.near, 2 * RELAY_SECONDS)
    assert near.unpacked() == 1, "what is here is brought"
    near.pack()
    post.relay(post.near, 2 * RELAY_SECONDS)
    assert max(post.clocks(post.author)) == max(clocks)


def test_in_a_hurry_it_keeps_nothing_from_the_clouds(post: TakingOver) -> None:
    relayer, tx = post.shipping[post.near.name].relayer, post.near.rig.tx
    author = post.author.key.device_id
    before = relayer.frontier(tx)
    assert relayer.unshipped_authors(tx) == relayer.unshipped_authors(tx, before) == {author}
    post.relay_in_a_hurry()
    assert relayer.unshipped_authors(tx) == {author}, "its chunks go first"
    post.near.rig.pack()
    post.relay_in_a_hurry()
    assert relayer.unshipped_authors(tx) == set()
    post.author.mkdir("later")
    post.tell(post.author, post.near)
    assert relayer.unshipped_authors(tx) == {author}
    assert relayer.unshipped_authors(tx, before) == set(), "what came later does not count"


def test_what_a_head_over_a_link_leads_to_is_on_the_clouds(post: TakingOver) -> None:
    rig = post.near.rig
    post.author.rig.pack()
    post.ship(post.author)
    post.tell(post.author, post.near)
    heads = post.heads()
    alone = Relayer(rig.fs, rig.signals, KEY, Unknown(), rig.fetcher, Links())
    told = Relayer(rig.fs, rig.signals, KEY, Unknown(), rig.fetcher, FixedLinks(heads))
    assert alone.unshipped_authors(rig.tx) == {post.author.key.device_id}
    assert told.unshipped_authors(rig.tx) == set()


class SetBack(LinkedPost):
    """The author was set back, after the second device had heard of a file and of its bytes. Then it wrote
    another one, shipped that, and heard of the first again, but not of its bytes."""

    def __init__(self) -> None:
        super().__init__()
        author, near = self.author, self.near
        author.write("early", b"before the backup")
        self.upload(author)
        self.tell(author, near)
        backup = author.saved()
        author.write("lost", CONTENT)
        self.tell(author, near)
        self.keep(near)
        author.restore(backup)
        self.restart(author)
        author.write("new", CONTENT[::-1])
        self.upload(author)
        author.receive(near.log())
        self.restart(author)
        self.ship(author)
        self.tell(author, near)

    def upload(self, device: Device) -> None:
        while device.rig.publish(everything=True):
            pass
        device.rig.pack()
        self.ship(device)

    def keep(self, device: Device) -> None:
        """The bytes of the file come to the device."""
        fs = device.rig.fs
        with fs.state.transaction() as tx:
            inode = device.at("lost")
            (missing,) = fs.read(tx, inode, 0, inode.size).chunks  # type: ignore[union-attr]
            tx.chunks.keep(missing.number, CONTENT)


@pytest.fixture
def set_back() -> Iterator[SetBack]:
    one = SetBack()
    yield one
    one.fleet.discard()


def test_what_the_author_has_lost_it_brings_itself_when_no_copy_of_it_does(set_back: SetBack) -> None:
    author = set_back.author
    set_back.keep(author)
    set_back.relay(author)
    assert author.rig.unpacked() == 0, "a copy of this device may be about to do so"
    set_back.relay(author, COPY_SECONDS)
    assert author.rig.unpacked() == 1


def test_what_the_author_has_lost_others_bring_though_it_is_there(set_back: SetBack) -> None:
    near = set_back.near
    set_back.relay(near)
    assert near.rig.unpacked() == 0
    set_back.relay(near, 2 * RELAY_SECONDS)
    assert near.rig.unpacked() == 1


def test_what_the_author_has_lost_others_bring_at_once_when_somebody_waits(set_back: SetBack) -> None:
    near, relayer = set_back.near, set_back.shipping[set_back.near.name].relayer
    author = set_back.author.key.device_id
    set_back.links.reached = {author}
    assert relayer.unshipped_authors(near.rig.tx) == {author}
    set_back.relay_in_a_hurry()
    assert near.rig.unpacked() == 1
    near.rig.pack()
    set_back.relay_in_a_hurry()
    assert relayer.unshipped_authors(near.rig.tx) == set()


def test_in_a_hurry_what_an_author_goes_on_from_is_left_to_it(set_back: SetBack) -> None:
    author, near = set_back.author, set_back.near
    set_back.links.reached = {author.key.device_id}
    author.write("newer", CONTENT[1::2])
    set_back.tell(author, near)
    with near.rig.fs.state.transaction() as tx:
        inode = near.at("newer")
        (missing,) = near.rig.fs.read(tx, inode, 0, inode.size).chunks  # type: ignore[union-attr]
        tx.chunks.keep(missing.number, CONTENT[1::2])
    set_back.relay_in_a_hurry()
    assert near.rig.unpacked() == 1, "what it lost, and nothing else"
