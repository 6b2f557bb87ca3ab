"""The evidence that an update is missing: devices that looked for it in vain."""

from __future__ import annotations

from hybrisfs.write.missing import Known, MissingEvidence

BRANCH = b"branch"
PATIENCE = 900.0


def noted(evidence: MissingEvidence, now: float, newest: int = 9, **known: tuple[int, int]) -> int | None:
    devices = {name.encode(): Known(*one) for name, one in known.items()}
    return evidence.note(BRANCH, newest, devices, now)


def test_a_later_head_that_still_lacks_it_tells() -> None:
    evidence = MissingEvidence(PATIENCE)
    assert noted(evidence, 0, ada=(4, 100), bob=(9, 100)) is None
    assert noted(evidence, PATIENCE - 1, ada=(4, 101), bob=(9, 101)) is None, "too early"
    assert noted(evidence, PATIENCE, ada=(4, 102), bob=(9, 101)) is None, "it may have been written before"
    assert noted(evidence, 2 * PATIENCE, ada=(4, 102), bob=(9, 102)) is None, "it is the same head"
    assert noted(evidence, 2 * PATIENCE, ada=(5, 103), bob=(9, 102)) == 5
    assert noted(evidence, 3 * PATIENCE, ada=(9, 104), bob=(9, 103)) is None
    assert noted(evidence, 5 * PATIENCE, newest=12, ada=(9, 105), bob=(9, 104)) is None, "that is another one"


def test_who_goes_on_writing_does_not_hide_it() -> None:
    evidence = MissingEvidence(PATIENCE)
    for round_ in range(3):
        told = noted(evidence, round_ * PATIENCE, newest=9 + round_, ada=(4, round_))
    assert told == 4


def test_the_least_of_all_counts() -> None:
    evidence = MissingEvidence(PATIENCE)
    for round_ in range(3):
        told = noted(evidence, round_ * PATIENCE, ada=(4, round_), bob=(2, round_), cyd=(1, 7))
    assert told == 2, "cyd's head is of before"


def test_nobody_lacks_anything_when_nobody_is_there() -> None:
    evidence = MissingEvidence(PATIENCE)
    assert [noted(evidence, round_ * PATIENCE) for round_ in range(3)] == [None] * 3


def test_what_is_not_asked_for_any_more_is_forgotten() -> None:
    evidence = MissingEvidence(PATIENCE)
    for round_ in range(3):
        noted(evidence, round_ * PATIENCE, ada=(4, round_))
        evidence.forget_others([b"other"])
    assert noted(evidence, 3 * PATIENCE, ada=(4, 3)) is None
