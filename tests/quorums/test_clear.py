"""What is deleted, and what a reader who is very slow still finds."""

from __future__ import annotations

from collections.abc import Mapping
from random import Random
from typing import Any

from hybrisfs.dispersal.errors import FindingKind
from hybrisfs.quorums.names import Version
from hybrisfs.quorums.reading import read
from hybrisfs.quorums.register import Part, Register
from hybrisfs.quorums.rounds import Answer, Pause, Protocol, RoundFailedError, Within
from hybrisfs.quorums.thresholds import POWERSTORE, Thresholds
from tests.quorums.schedule import NAMES, Cloud, Whole

THRESHOLDS = Thresholds(POWERSTORE, 4, 1, 1)
NAMES_OF_KEY = NAMES.of_register("box", b"key")


def ask(
    clouds: list[Cloud], protocol: Protocol[Any], answering: set[int], reading: set[int] | None = None
) -> Any:
    """Run a protocol against the clouds that answer; to reads these do, if that is not the same."""
    try:
        steps = next(protocol)
        while True:
            answers: list[Mapping[int, Answer]] = []
            if isinstance(steps, Pause | Within):
                steps = protocol.send(())
                continue
            kinds: list[FindingKind] | None = None
            for one in steps:
                found = {}
                for number, question in one.asks.items():
                    if number in (answering if reading is None or question.read is None else reading):
                        found[number] = clouds[number].answer(question)
                right = {number: answer for number, answer in found.items() if one.accept(number, answer)}
                answers.append(right)
                if not one.enough(right):
                    wrong = [number for number in one.asks if number not in right]
                    kinds = ["missing" if number in found else "unreadable" for number in wrong]
            if kinds is not None:
                steps = protocol.throw(RoundFailedError("no cloud is left", {}, kinds))
            else:
                steps = protocol.send(answers)
    except StopIteration as end:
        return end.value


def test_a_slow_reader_finds_what_was_there_or_what_is_there() -> None:
    """It has listed one cloud before the later value came there, and lists the other when the earlier one was
    deleted elsewhere; the third cloud hides all."""
    codec, clouds = Whole(Random(0)), [Cloud(None) for _ in range(4)]  # type: ignore[arg-type]
    register = Register(NAMES_OF_KEY, range(4), THRESHOLDS, codec)
    early: Version = ask(clouds, register.write(codec.draft(1, "early", 2)), {0, 1, 2})
    listed_early = Answer(clouds[3].names())
    late: Version = ask(clouds, register.write(codec.draft(2, "late", 2)), {1, 2, 3})
    for cloud in range(4):
        ask(clouds, register.clear(late, cloud), {cloud})
    lists = register.lists({0: Answer(clouds[0].names()), 1: Answer(), 3: listed_early})
    assert lists.seen.latest_proven() == early
    assert NAMES_OF_KEY.read(clouds[1].names()).versions == {late}
    found = ask(clouds, read(register, Part.VALUE), {1, 2, 3})
    assert found.version == late
