"""The token bucket: never more than the rate, equal shares, and small things not behind large ones."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from hybrisfs.dispersal.bucket import TokenBucket, Turn


def bucket(rate: int | None, now: float = 0.0) -> TokenBucket:
    made = TokenBucket()
    made.set_rate(rate, now)
    return made


def grants(one: TokenBucket, turns: list[Turn]) -> list[tuple[float, Turn]]:
    """Let time pass until all turns are granted; when each was."""
    now, order = 0.0, list[tuple[float, Turn]]()
    while True:
        before = {turn for _, turn in order}
        one.grant(now)
        order += [(now, turn) for turn in turns if turn.granted and turn not in before]
        if len(order) == len(turns):
            return order
        assert one.due() > 0
        now += one.due()


def test_without_a_limit_nobody_waits() -> None:
    turns = [Turn(1 << 20) for _ in range(5)]
    free = bucket(None)
    for turn in turns:
        free.join(turn)
    assert [when for when, _ in grants(free, turns)] == [0.0] * 5


@given(
    st.integers(1000, 10**7),
    st.lists(st.tuples(st.integers(1, 1 << 17), st.booleans()), min_size=1, max_size=12),
)
def test_no_more_than_the_rate_moves(rate: int, sizes: list[tuple[int, bool]]) -> None:
    turns = [Turn(size, urgent) for size, urgent in sizes]
    slow = bucket(rate)
    for turn in turns:
        slow.join(turn)
    order, largest = grants(slow, turns), max(size for size, _ in sizes)
    for now in {when for when, _ in order}:
        # What is moved at once may be one turn too much; it is paid for before the next.
        assert sum(turn.size for when, turn in order if when <= now) <= now * rate + largest + 2
    assert all(turn.granted for turn in turns)


def test_what_was_not_used_does_not_add_up() -> None:
    one = bucket(1000)
    late = [Turn(100) for _ in range(20)]
    for turn in late:
        one.join(turn)
    one.grant(3600.0)
    assert sum(turn.granted for turn in late) <= 3  # a fifth of a second's worth, and one more


def test_small_things_pass_packs_but_do_not_starve_them() -> None:
    one = bucket(1000)
    packs, heads = [Turn(1000) for _ in range(4)], [Turn(10, urgent=True) for _ in range(4)]
    for turn in [*packs, *heads]:
        one.join(turn)
    order = ["head" if turn.urgent else "pack" for _, turn in grants(one, [*packs, *heads])]
    assert order == ["head", "pack"] * 4


def test_transfers_side_by_side_take_turns() -> None:
    one = bucket(1000)
    turns = {name: Turn(100) for name in "abc"}
    for turn in turns.values():
        one.join(turn)
    order, now = list[str](), 0.0
    while len(order) < 9:
        one.grant(now)
        for name, turn in list(turns.items()):
            if turn.granted:
                order.append(name)
                turns[name] = Turn(100)  # its next piece
                one.join(turns[name])
        now += one.due()
    assert order == list("abcabcabc")


def test_a_new_rate_holds_for_those_who_wait() -> None:
    one = bucket(10)
    first, second = Turn(1000), Turn(1000)
    for turn in (first, second):
        one.join(turn)
    one.grant(0.0)
    assert first.granted
    assert one.due() == 100.0
    one.set_rate(None, 1.0)
    assert one.grant(1.0)
    assert second.granted
