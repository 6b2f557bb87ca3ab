"""Which link stays: both sides must say the same without asking each other."""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

from hybrisfs.peers.service import LinkTable

LOW, HIGH = b"\x01" * 16, b"\x02" * 16


@dataclass(eq=False)
class End:
    """One side's view of a link. The number tells which two views are of the same link."""

    number: int
    device_id: bytes
    outgoing: bool
    instance: bytes = b"i"
    age: float = 0.0
    is_direct: bool = True


class Side:
    """A device that admits links, closes what it is told to, and hears of what the other side closed."""

    def __init__(self, own: bytes, other: bytes) -> None:
        self.own, self.other = own, other
        self.table: LinkTable[End] = LinkTable(own, own[:8], 20.0)
        self.closed: set[int] = set()

    def admit(
        self, number: int, opener: bytes, instance: bytes = b"i", *, is_direct: bool = True
    ) -> set[int]:
        end = End(number, self.other, opener == self.own, instance, is_direct=is_direct)
        closing = self.table.admit(end)
        for link in closing:
            self.drop(link.number)
        return {link.number for link in closing}

    def drop(self, number: int) -> None:
        self.closed.add(number)
        for link in self.table.all():
            if link.number == number:
                self.table.remove(link)

    def numbers(self) -> set[int]:
        return {link.number for link in self.table.all()}


@given(
    st.lists(st.tuples(st.sampled_from([LOW, HIGH]), st.booleans()), min_size=1, max_size=4),
    st.randoms(use_true_random=False),
)
def test_the_same_single_link_stays_whatever_order_each_side_sees_them_in(
    openers: list[tuple[bytes, bool]], chance: object
) -> None:
    """Some are direct, others are through a relay."""
    import random

    assert isinstance(chance, random.Random)
    low, high = Side(LOW, HIGH), Side(HIGH, LOW)
    events = [(side, number) for side in (low, high) for number in range(len(openers))]
    chance.shuffle(events)
    heard: list[tuple[Side, int]] = []  # closings that travel to the other side
    while events or heard:
        if heard and (not events or chance.random() < 0.5):
            side, number = heard.pop(chance.randrange(len(heard)))
            side.drop(number)
            continue
        side, number = events.pop()
        if number in side.closed:
            continue  # the other side closed it before this one had finished its part
        there = high if side is low else low
        opener, is_direct = openers[number]
        heard += [(there, closed) for closed in side.admit(number, opener, is_direct=is_direct)]
    assert low.numbers() == high.numbers()
    (number,) = low.numbers()
    assert openers[number][1] == any(is_direct for _, is_direct in openers)


def test_the_lower_devices_link_stays() -> None:
    for first, second in ((LOW, HIGH), (HIGH, LOW)):
        low = Side(LOW, HIGH)
        low.admit(1, first)
        low.admit(2, second)
        assert low.numbers() == {1 if first == LOW else 2}


def test_a_device_that_runs_twice_has_two_links() -> None:
    low = Side(LOW, HIGH)
    assert low.admit(1, LOW, b"laptop") == set()
    assert low.admit(2, HIGH, b"its clone") == set()
    assert low.admit(3, HIGH, b"its clone") == set()
    assert [link.number for link in low.table.current()] == [1, 3]


def test_clones_of_one_device_agree_on_their_link() -> None:
    for order in ((0, 1), (1, 0)):
        a: LinkTable[End] = LinkTable(LOW, b"a", 20.0)
        b: LinkTable[End] = LinkTable(LOW, b"b", 20.0)
        views = [(End(1, LOW, True, b"b"), End(1, LOW, False, b"a"))]  # opened by a
        views += [(End(2, LOW, False, b"b"), End(2, LOW, True, b"a"))]  # opened by b
        for view in order:
            a.admit(views[view][0])
        for view in reversed(order):
            b.admit(views[view][1])
        assert [link.number for link in a.all()] == [link.number for link in b.all()] == [1]


def test_a_link_older_than_any_attempt_gives_way() -> None:
    table: LinkTable[End] = LinkTable(LOW, b"own", 20.0)
    old = End(1, HIGH, True)
    assert table.admit(old) == []
    old.age = 21.0
    assert table.admit(End(2, HIGH, False)) == [old]


def test_not_more_than_a_few_links_wait_for_their_opener_to_choose() -> None:
    table: LinkTable[End] = LinkTable(LOW, b"own", 20.0)
    links = [End(number, HIGH, False) for number in range(6)]
    closed = [link for new in links for link in table.admit(new)]
    assert closed == links[:2]
    assert table.current() == [links[-1]]


def test_removing_falls_back_to_what_is_left() -> None:
    table: LinkTable[End] = LinkTable(LOW, b"own", 20.0)
    first, second, stranger = End(1, HIGH, False), End(2, HIGH, False), End(3, HIGH, False)
    table.admit(first)
    table.admit(second)
    assert not table.remove(second)
    assert table.current() == [first]
    assert not table.remove(stranger)
    assert table.devices() == {HIGH: True}
    assert table.remove(first)
    assert table.devices() == {}
