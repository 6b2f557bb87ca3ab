"""What a conditional write asks for, in which order."""

from __future__ import annotations

from random import Random

import pytest

from hybrisfs.quorums.consensus import WRITE_SECONDS
from hybrisfs.quorums.register import Register
from hybrisfs.quorums.rounds import Answer, Within
from hybrisfs.quorums.thresholds import POWERSTORE, Thresholds
from hybrisfs.quorums.transaction import write_if
from tests.quorums.schedule import NAMES, Whole


@pytest.mark.parametrize(("size", "rounds"), [(40, ["0", "limit", "2"]), (1 << 20, ["0", "1", "limit", "1"])])
def test_the_time_for_ballots_begins_when_a_large_value_is_there(size: int, rounds: list[str]) -> None:
    """A slow line must not use it up. *rounds*: how many puts each has for a cloud."""
    codec, thresholds = Whole(Random(0)), Thresholds(POWERSTORE, 4, 1, 1)
    register = Register(NAMES.of_register("box", b"key"), range(4), thresholds, codec)
    draft = codec.draft(1, "value", 2)
    draft.size = size
    protocol = write_if(register, draft, lambda found: None)
    steps, seen = next(protocol), list[str]()
    while len(seen) < len(rounds):
        if isinstance(steps, Within):
            assert steps.seconds == WRITE_SECONDS
            seen.append("limit")
            steps = protocol.send(())
        else:
            assert isinstance(steps, list)
            seen.append(str(len(steps[0].asks[0].puts)))
            steps = protocol.send([dict.fromkeys(range(4), Answer())])
    assert seen == rounds
