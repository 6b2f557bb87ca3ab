"""What no cloud has the objects of: versions that a writer has not completed, and that a cloud names which
lies."""

from __future__ import annotations

from random import Random

import pytest

from hybrisfs.environment import Environment
from hybrisfs.quorums.names import Kind, Version
from hybrisfs.quorums.reading import is_latest, read
from hybrisfs.quorums.register import Draft, Part, Register
from hybrisfs.quorums.rounds import Answer, RoundFailedError
from hybrisfs.quorums.snapshot import Holds, take_snapshot
from hybrisfs.quorums.thresholds import PASIS, Thresholds
from tests.quorums.schedule import NAMES, Cloud, Whole
from tests.quorums.test_clear import NAMES_OF_KEY, ask

THRESHOLDS = Thresholds(PASIS, 5, 1, 1)
ALL = set(range(5))


class Abandoned:
    """A value that is complete; and a later one, of which one cloud has an object: its writer died. Another
    cloud names it, too, and lies."""

    def __init__(self) -> None:
        self.codec, self.clouds = Whole(Random(1)), [Cloud(None) for _ in ALL]  # type: ignore[arg-type]
        register = self.register
        self.early: Version = ask(self.clouds, register.write(self.draft(1)), ALL)
        late = self.draft(2).at(self.early.time._replace(number=2), kind=Kind.COUNTED)
        self.late_name = NAMES_OF_KEY.of_version(late)
        self.clouds[0].put(self.late_name, self.codec.object(late.verifier, 0))
        self.clouds[4].put(self.late_name, b"no such object".ljust(40))

    def draft(self, write: int) -> Draft:
        return self.codec.draft(write, f"v{write}", THRESHOLDS.k)

    @property
    def register(self) -> Register:
        return Register(NAMES_OF_KEY, range(5), THRESHOLDS, self.codec)


@pytest.mark.parametrize("part", Part)
@pytest.mark.parametrize("answering", [ALL, {0, 2, 3, 4}])
def test_a_reader_drops_it(part: Part, answering: set[int]) -> None:
    world = Abandoned()
    found = ask(world.clouds, read(world.register, part), answering)
    assert found.version == world.early
    if part is Part.VALUE:
        assert world.codec.value(found) == "v1"


def test_what_is_before_it_is_the_latest() -> None:
    world = Abandoned()
    assert ask(world.clouds, is_latest(world.register, world.early), ALL)


def test_a_list_has_the_value_before_it() -> None:
    world = Abandoned()
    names = NAMES_OF_KEY.prefix

    def divide(answer: Answer) -> dict[str, Answer]:
        return {names: Answer(tuple(answer.names))}

    holds = Holds(NAMES.of_holds("box"), range(5), THRESHOLDS, Environment(boot_time=float))
    snapshot = take_snapshot(lambda _: world.register, names, divide, holds, 1)
    assert ask(world.clouds, snapshot, ALL).latest == {names: world.early}


def test_it_is_not_dropped_while_clouds_are_away_that_may_have_it() -> None:
    """Three clouds have it, so it may be complete; two of them do not answer reads now."""
    world = Abandoned()
    (late,) = NAMES_OF_KEY.read([world.late_name]).versions
    for cloud in (3, 4):
        world.clouds[cloud].put(world.late_name, world.codec.object(late.verifier, cloud))
    with pytest.raises(RoundFailedError):
        ask(world.clouds, read(world.register, Part.VALUE), {0, 1, 2, 4}, reading={0, 1, 2})
    assert ask(world.clouds, read(world.register, Part.VALUE), {0, 1, 2, 3}).version == late
