"""What only machines hold goes to the clouds from whoever holds it, when its author stays away."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from hybrisfs.pipeline.relay import _FORGO_SECONDS, RELAY_SECONDS, Relayer
from tests.merge.fleet import Device
from tests.pipeline.test_relay import KEY, Post

CONTENT = os.urandom(5000)


class Claims(Post):
    """Two files of the author are known to the second device, which holds one of them."""

    def __init__(self) -> None:
        self.linked: set[bytes] = set()
        super().__init__()
        self.author.write("held", CONTENT)
        self.tell(self.author, self.near)
        near = self.near.rig
        with near.fs.lock:
            [(number,)] = near.db.execute("SELECT number FROM chunk").fetchall()
            near.fs.chunks.keep(number, CONTENT)
        self.author.write("unread", CONTENT[::-1])
        self.tell(self.author, self.near)

    def _relayer(self, device: Device) -> Relayer:
        rig, fetch = device.rig, device.rig.fetcher.fetch_one
        return Relayer(rig.fs, rig.updates, rig.signals, KEY, self.heads, fetch, linked=lambda: self.linked)

    def relay_in_a_hurry(self) -> None:
        self.near.rig.signals.begin_flush()
        self.relay(self.near)
        self.near.rig.signals.end_flush()

    @property
    def claimed(self) -> int:
        return self.near.rig.unpacked()


@pytest.fixture
def post() -> Iterator[Claims]:
    one = Claims()
    yield one
    one.fleet.discard()


def test_it_is_claimed_after_a_while(post: Claims) -> None:
    post.relay(post.near)
    post.relay(post.near, RELAY_SECONDS / 2)
    assert post.claimed == 0
    post.relay(post.near, 2 * RELAY_SECONDS)
    assert post.claimed == 1


def test_an_author_that_is_there_brings_it_itself(post: Claims) -> None:
    post.author.write("other", b"")
    while post.author.rig.publish(everything=True):
        pass
    post.author.rig.pack()
    post.ship(post.author)
    post.relay(post.near)
    post.relay(post.near, 2 * RELAY_SECONDS)
    assert post.claimed == 0


def test_it_is_claimed_at_once_when_somebody_waits_and_the_author_cannot_be_reached(post: Claims) -> None:
    post.linked = {post.author.key.device_id}
    post.relay_in_a_hurry()
    assert post.claimed == 0
    post.linked = set()
    post.relay_in_a_hurry()
    assert post.claimed == 1


def test_what_nobody_holds_does_not_keep_the_rest_from_the_clouds_for_ever(post: Claims) -> None:
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


def test_nothing_is_expected_of_a_device_that_was_removed(post: Claims) -> None:
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


def test_in_a_hurry_it_keeps_nothing_from_the_clouds(post: Claims) -> None:
    relayer, fs = post.relayers[post.near.name], post.near.rig.fs
    author = post.author.key.device_id
    before = relayer.frontier()
    assert relayer.untold() == relayer.untold(before) == {author}
    post.relay_in_a_hurry()
    assert relayer.untold() == {author}, "its chunks go first"
    post.near.rig.pack()
    post.relay_in_a_hurry()
    with fs.lock:
        assert relayer.untold() == set()
    post.author.mkdir("later")
    post.tell(post.author, post.near)
    assert relayer.untold() == {author}
    assert relayer.untold(before) == set(), "what came later does not count"


def test_what_a_head_over_a_link_leads_to_is_on_the_clouds(post: Claims) -> None:
    rig = post.near.rig
    post.author.rig.pack()
    post.ship(post.author)
    post.tell(post.author, post.near)
    heads = post.heads()
    alone = Relayer(rig.fs, rig.updates, rig.signals, KEY, dict, rig.fetcher.fetch_one)
    told = Relayer(rig.fs, rig.updates, rig.signals, KEY, dict, rig.fetcher.fetch_one, told=lambda: heads)
    assert alone.untold() == {post.author.key.device_id}
    assert told.untold() == set()
