"""Log exchange: whatever two logs hold, forks and all, both sides soon hold the same."""

from __future__ import annotations

from collections import deque

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from sync import exchange as module
from sync.errors import DecodeError, NewerFormatError
from sync.exchange import Action, Alarm, Deliver, Exchange, Failed, Offer, Send
from sync.messages import (
    MAX_MESSAGE,
    Answer,
    Compacted,
    Frontier,
    Message,
    Probe,
    Taken,
    Updates,
    decode_message,
    encode_message,
)
from sync.outcome import Inbox, Outcome
from sync.update import UpdateStamp, decode_signed
from tests.sync.support import KEYS, Device, flip, stamps
from tests.sync.test_forks import Node, Script, play, send, steps

ROOT = b"r" * 32


class End:
    """One side of a link: a device, its exchange, and what is on the way to it."""

    def __init__(self, device: Device, state: bytes | None = None) -> None:
        self.device = device
        self.exchange = Exchange(device, lambda: state, lambda: ROOT if device.bare else None)
        self.offers: list[bytes] = []
        self.inbox = Inbox()
        self.arriving: deque[bytes] = deque()
        self.alarms: list[str] = []

    def accept(self, data: bytes) -> Outcome:
        return self.device.receive(decode_signed(data))


class Net:
    """Links between devices; `run` until nothing is on the way."""

    def __init__(self) -> None:
        self.links: list[tuple[End, End]] = []
        self.messages = 0
        self.bytes = 0

    def connect(self, one: Device, other: Device, *states: bytes) -> tuple[End, End]:
        given = states or (None, None)
        link = End(one, given[0]), End(other, given[1])
        self.links.append(link)
        for end, peer in (link, link[::-1]):
            peer.arriving.extend(end.exchange.begin())
        return link

    def write(self, device: Device) -> None:
        device.write((b"key", b"live %d" % len(device.order)))
        self.grown(device)

    def grown(self, device: Device) -> None:
        for link in self.links:
            for end, peer in (link, link[::-1]):
                if end.device is device:
                    peer.arriving.extend(end.exchange.advanced())

    def run(self, most: int = 2000) -> None:
        while self.step():
            assert self.messages <= most, "no end"

    def step(self) -> bool:
        moved = False
        for link in self.links:
            for end, peer in (link, link[::-1]):
                if end.arriving:
                    moved = True
                    self.deliver(end, peer)
        return moved

    def deliver(self, end: End, peer: End) -> None:
        message = end.arriving.popleft()
        self.messages += 1
        self.bytes += len(message)
        for action in end.exchange.receive(message):
            match action:
                case Send():
                    peer.arriving.append(action.message)
                case Deliver():
                    for data in action.updates:
                        end.inbox.add(data, end.accept)
                    self.grown(end.device)
                case Alarm():
                    end.alarms.append(action.reason)
                case Offer():
                    end.offers.append(action.root)
                case Failed():
                    raise AssertionError(action.reason)


def agree(*devices: Device) -> None:
    for device in devices:
        assert device.facts() == devices[0].facts()


def two(nodes: list[Node]) -> tuple[Node, Node]:
    return nodes[0], nodes[-1]


@given(steps)
def test_any_two_logs_become_one(script: Script) -> None:
    one, other = two(play(script))
    net = Net()
    net.connect(one, other)
    net.run(40)
    agree(one, other)


@given(steps, st.integers(0, 2))
def test_a_chain_of_three_that_go_on_writing(script: Script, writer: int) -> None:
    nodes = play(script)[-3:]
    net = Net()
    net.connect(nodes[0], nodes[1])
    net.connect(nodes[1], nodes[2])
    for _ in range(3):
        net.step()
        net.write(nodes[writer])
    net.run(150)
    agree(*nodes)
    before = net.messages
    net.write(nodes[0])
    net.run()
    agree(*nodes)
    assert net.messages - before <= 12


@given(steps)
def test_a_full_mesh(script: Script) -> None:
    nodes = play(script)[:4]
    net = Net()
    for index, node in enumerate(nodes):
        for other in nodes[:index]:
            net.connect(node, other)
    net.run()
    agree(*nodes)


@given(steps, st.lists(st.integers(0, 12), max_size=4))
def test_an_interrupted_exchange_is_taken_up_again(script: Script, interruptions: list[int]) -> None:
    one, other = two(play(script))
    for count in interruptions:
        net = Net()
        net.connect(one, other)
        for _ in range(count):
            net.step()
    net = Net()
    net.connect(one, other)
    net.run(40)
    agree(one, other)


@given(steps, st.data())
def test_small_batches_and_windows(script: Script, data: st.DataObject) -> None:
    """What is on the way stays below the window, and everything arrives."""
    one, other = two(play(script))
    window = data.draw(st.integers(1, 2000))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "WINDOW", window)
        patch.setattr(module, "BATCH", data.draw(st.integers(1, window)))
        net = Net()
        ends = net.connect(one, other)
        while net.step():
            for end in ends:
                waiting = [decode_message(message) for message in end.arriving]
                sizes = [sum(map(len, one.updates)) for one in waiting if isinstance(one, Updates)]
                assert sum(sizes) <= window or len(sizes) == 1
    agree(one, other)


def test_a_fork_far_back_is_found_in_a_few_round_trips() -> None:
    base = Node(0)
    for _ in range(300):
        base.write()
    one, other = base.restored(100), base.restored(100)
    send(base, one, 100)
    one.write((b"k", b"1"))
    for number in range(150):
        other.write((b"k", b"%d" % number))
    net = Net()
    net.connect(one, other)
    net.run()
    agree(one, other)
    assert net.messages <= 24
    sizes = [len(update.data) for update in one.order[100:]]
    assert net.bytes < sum(sizes) + 5000, "nothing that both have is sent"


def test_equal_logs_exchange_two_messages() -> None:
    one, other = Device(KEYS[0]), Device(KEYS[1])
    other.receive_all([one.write() for _ in range(3)])
    net = Net()
    net.connect(one, other)
    net.run()
    assert net.messages == 2


def test_one_update_is_pushed_with_three_messages() -> None:
    one, other = Device(KEYS[0]), Device(KEYS[1])
    net = Net()
    net.connect(one, other)
    net.run()
    before = net.messages
    net.write(one)
    net.run()
    agree(one, other)
    assert net.messages - before == 3


@pytest.mark.parametrize("equal", [True, False])
def test_another_state_of_the_same_log_is_an_alarm(equal: bool) -> None:
    one, other = Device(KEYS[0]), Device(KEYS[1])
    one.write()
    other.write()
    net = Net()
    ends = net.connect(one, other, b"1" * 32, b"1" * 32 if equal else b"2" * 32)
    net.run()
    agree(one, other)
    assert [bool(end.alarms) for end in ends] == [not equal] * 2


def test_an_update_that_is_never_accepted_is_not_asked_for_forever() -> None:
    one, other = Device(KEYS[0]), Device(KEYS[1])
    one.write()
    other.write()
    other.state.set_members(type(other.members)([KEYS[1].public]))
    net = Net()
    net.connect(one, other)
    net.run(40)
    assert len(other.order) == 1 and len(one.order) == 2


def test_what_was_lost_on_the_way_is_asked_for_again() -> None:
    one, other = Device(KEYS[0]), Device(KEYS[1])
    net = Net()
    ends = net.connect(one, other)
    net.run()
    net.write(one)
    lost = decode_message(ends[1].arriving.popleft())
    assert isinstance(lost, Updates)
    assert isinstance(decode_message(ends[1].arriving[0]), Frontier)
    ends[0].arriving.append(encode_message(Taken(sum(map(len, lost.updates)))))
    net.run(20)
    agree(one, other)


def test_a_request_during_a_search_is_answered_after_it() -> None:
    device = Device(KEYS[0])
    written = [device.write() for _ in range(40)]
    exchange = Exchange(device, lambda: None)
    unknown = UpdateStamp(KEYS[0].device_id, 50, bytes(16))
    ask = Frontier(True, (unknown,), bytes(32), bytes(32))
    (action,) = exchange.receive(encode_message(ask))
    newer = replace(ask, tips=(written[-3].stamp,))
    assert exchange.receive(encode_message(newer)) == []
    while True:
        assert isinstance(action, Send)
        message = decode_message(action.message)
        if not isinstance(message, Probe):
            break
        action = exchange.receive(encode_message(Answer.of([False] * len(message.prefixes))))[0]
    assert isinstance(message, Updates)
    assert message.updates == tuple(update.data for update in written[-2:])


# -- hostile peers --------------------------------------------------------------------------------

prefixes = st.binary(min_size=16, max_size=16)
hashes = st.binary(min_size=32, max_size=32)
ascending = st.lists(stamps, max_size=4, unique=True).map(lambda found: tuple(sorted(found)))
messages: st.SearchStrategy[Message] = st.one_of(
    st.builds(Frontier, st.booleans(), ascending, hashes, hashes),
    st.builds(Updates, ascending, st.lists(st.binary(max_size=40), min_size=1, max_size=3).map(tuple)),
    st.builds(Taken, st.integers(0, 2000)),
    st.builds(Probe, st.lists(prefixes, min_size=1, max_size=3).map(tuple)),
    st.builds(Answer, st.binary(max_size=4)),
)


@given(messages)
def test_messages_round_trip(message: Message) -> None:
    assert decode_message(encode_message(message)) == message


@given(messages, st.data())
def test_malformed_messages_are_refused(message: Message, data: st.DataObject) -> None:
    whole = encode_message(message)
    for altered in (
        whole[: data.draw(st.integers(0, len(whole) - 1))],
        flip(whole, data.draw(st.integers(0, len(whole) * 8 - 1))),
    ):
        try:
            assert encode_message(decode_message(altered)) == altered
        except DecodeError:
            continue


def test_what_no_message_is() -> None:
    with pytest.raises(NewerFormatError):
        decode_message(b"\2\1")
    stamp = UpdateStamp(bytes(16), 1, bytes(16))
    frontier = encode_message(Frontier(True, (stamp,), bytes(32), bytes(32)))
    for wrong in (b"", b"\0\1", b"\1\0", b"\1\7", b"\1\4\0", b"\1\5" + bytes(200), b"\1\2\0"):
        with pytest.raises(DecodeError):
            decode_message(wrong)
    for tips in ((stamp, stamp), (stamp._replace(clock=0),)):
        with pytest.raises(DecodeError, match="ascending"):
            decode_message(encode_message(Frontier(True, tips, bytes(32), bytes(32))))
    with pytest.raises(DecodeError, match="after the end"):
        decode_message(frontier + b"\0")
    with pytest.raises(DecodeError, match="request"):
        decode_message(frontier[:2] + b"\2" + frontier[3:])
    with pytest.raises(DecodeError, match="at most"):
        decode_message(bytes(MAX_MESSAGE + 1))


@given(steps, st.lists(st.one_of(messages.map(encode_message), st.binary(max_size=60)), max_size=12))
def test_a_hostile_peer_never_raises(script: Script, hostile: list[bytes]) -> None:
    node = play(script)[0]
    exchange = Exchange(node, lambda: None)
    exchange.begin()
    before = node.facts()
    failed = False
    for message in hostile:
        actions: list[Action] = exchange.receive(message)
        assert not (failed and actions), "nothing comes after a failure"
        failed = failed or any(isinstance(action, Failed) for action in actions)
        exchange.advanced()
    assert node.facts() == before


@pytest.mark.parametrize("message", [Taken(1), Answer(b""), Answer(b"\1")])
def test_answers_to_nothing_are_failures(message: Message) -> None:
    exchange = Exchange(Device(KEYS[0]), lambda: None)
    (failed,) = exchange.receive(encode_message(message))
    assert isinstance(failed, Failed)
    assert exchange.receive(encode_message(Taken(0))) == []
    assert exchange.advanced() == []


def test_what_a_peer_claims_is_kept_within_bounds() -> None:
    device = Device(KEYS[0])
    device.write()
    exchange = Exchange(device, lambda: None)
    ask = Frontier(True, (), bytes(32), bytes(32))
    exchange.receive(encode_message(ask))
    for number in range(5):
        names = [n.to_bytes(16, "big") for n in range(number * 1000, number * 1000 + 1000)]
        claimed = tuple(UpdateStamp(bytes(16), number + 1, name) for name in names)
        exchange.receive(encode_message(replace(ask, request=False, tips=claimed)))
    assert exchange._theirs is not None and len(exchange._theirs) <= module._KEPT


def test_what_a_checkpoint_has_taken_the_place_of_is_offered_instead() -> None:
    net, had, new = Net(), Device(KEYS[0]), Device(KEYS[1])
    for _ in range(6):
        had.write()
    had.bare = 4
    _, end = net.connect(had, new)
    net.run()
    assert end.offers == [ROOT] and not new.order
    net.write(had)
    net.run()
    assert end.offers == [ROOT] and not new.order, "it is not told again, nor sent what it cannot accept"
    new.receive_all(had.order[:4])
    net.grown(new)
    net.run()
    agree(had, new)


def test_a_device_that_has_nothing_to_offer_says_that() -> None:
    lacking = Exchange(Device(KEYS[0]), lambda: None)
    assert lacking.receive(encode_message(Compacted(bytes(32)))) == []
    assert decode_message(lacking.advanced()[0]) == Frontier(True, (), Device(KEYS[0]).history(), bytes(32))
    assert lacking.advanced() == []
