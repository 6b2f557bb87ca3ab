"""Who is connected with whom: random lives of lines against what must hold."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from hybrisfs.peers.lines import TAG_SIZE, LineRequest, Role, Said
from relay.switchboard import Caller, Switchboard, SwitchboardLimits

ONE, OTHER = b"1" * TAG_SIZE, b"2" * TAG_SIZE


class End:
    """A line that keeps what it is told."""

    def __init__(self, board: Switchboard) -> None:
        self._board = board
        self.heard: list[Said] = []
        self.other: End | None = None
        self.ended = False

    def say(self, said: Said) -> None:
        assert not self.ended
        self.heard.append(said)

    def connect(self, other: Caller) -> None:
        assert isinstance(other, End)
        assert self.other is None
        self.other = other

    def end(self) -> None:
        self.ended = True

    def wait(self, tag: bytes, space: str = "home", token: str = "t") -> End:
        self._board.ask(self, LineRequest(Role.WAIT, tag, space, token))
        return self

    def call(self, tag: bytes, space: str = "home", token: str = "t") -> End:
        self._board.ask(self, LineRequest(Role.CALL, tag, space, token))
        return self


def test_who_calls_gets_the_one_that_waits() -> None:
    board = Switchboard()
    waiting = End(board).wait(ONE)
    calling = End(board).call(ONE)
    assert (waiting.other, calling.other) == (calling, waiting)
    assert waiting.heard == [Said.WAITING, Said.CONNECTED]
    assert calling.heard == [Said.CONNECTED]


def test_nobody_waits_for_another_tag_or_in_another_space() -> None:
    board = Switchboard()
    waiting = End(board).wait(ONE)
    for calling in (End(board).call(OTHER), End(board).call(ONE, "work")):
        assert (calling.heard, calling.ended) == ([Said.NOBODY], True)
    assert waiting.other is None


def test_one_that_was_called_is_not_called_again() -> None:
    board = Switchboard()
    End(board).wait(ONE)
    End(board).call(ONE)
    assert End(board).call(ONE).heard == [Said.NOBODY]


def test_the_newest_of_a_tag_is_called_and_old_ones_give_way() -> None:
    board = Switchboard(SwitchboardLimits(of_tag=2))
    lines = [End(board).wait(ONE) for _ in range(3)]
    assert [line.ended for line in lines] == [True, False, False]
    assert End(board).call(ONE).other is lines[2]
    assert End(board).call(ONE).other is lines[1]


def test_one_that_is_gone_is_not_called() -> None:
    board = Switchboard()
    first, second = End(board).wait(ONE), End(board).wait(ONE)
    board.gone(second)
    assert End(board).call(ONE).other is first


def test_a_space_has_so_many_lines_and_no_more() -> None:
    board = Switchboard(SwitchboardLimits(of_space=2))
    first = End(board).wait(ONE)
    End(board).wait(OTHER)
    full = End(board).wait(ONE)
    assert (full.heard, full.ended) == ([Said.FULL], True)
    assert End(board).wait(ONE, "work").heard == [Said.WAITING]
    board.gone(first)
    assert End(board).wait(ONE).heard == [Said.WAITING]


def test_who_may_not_is_told_so() -> None:
    board = Switchboard()
    refused = End(board)
    board.ask(refused, None)
    assert (refused.heard, refused.ended) == ([Said.REFUSED], True)


def test_those_that_wait_are_reminded_and_no_others() -> None:
    board = Switchboard()
    connected, waiting = End(board).wait(ONE), End(board).wait(OTHER)
    End(board).call(ONE)
    board.remind()
    assert connected.heard == [Said.WAITING, Said.CONNECTED]
    assert waiting.heard == [Said.WAITING, Said.WAITING]


def test_lines_of_a_token_that_was_replaced_end() -> None:
    board = Switchboard()
    old, new = End(board).wait(ONE, token="old"), End(board).wait(OTHER, token="new")
    board.keep(frozenset({("home", "new")}))
    assert (old.ended, new.ended) == (True, False)


STEPS = st.tuples(
    st.sampled_from(["wait", "call", "gone", "remind"]),
    st.sampled_from([ONE, OTHER]),
    st.sampled_from(["home", "work"]),
    st.integers(0, 30),
)


@given(st.lists(STEPS, max_size=60))
def test_each_line_has_at_most_one_other_of_its_tag(
    steps: list[tuple[str, bytes, str, int]],
) -> None:
    limits = SwitchboardLimits(of_space=8, of_tag=2)
    board = Switchboard(limits)
    lines: list[End] = []
    wanted: dict[End, tuple[str, bytes]] = {}
    for step, tag, space, number in steps:
        if step == "remind":
            board.remind()
        elif step == "gone" and lines:
            gone = lines.pop(number % len(lines))
            board.gone(gone)
            wanted.pop(gone)
        elif step in ("wait", "call"):
            line = End(board)
            wanted[line] = space, tag
            line.wait(tag, space) if step == "wait" else line.call(tag, space)
            lines.append(line)
            if line.ended:
                assert line.other is None
        for line in [one for one in lines if one.ended]:  # as the network does
            lines.remove(line)
            board.gone(line)
    for line in lines:
        if line.other is not None:
            assert line.other.other is line
            assert wanted.get(line.other, wanted[line]) == wanted[line]
            assert line.heard[-1] is Said.CONNECTED
    for space in ("home", "work"):
        assert sum(wanted[line][0] == space for line in lines) <= limits.of_space
