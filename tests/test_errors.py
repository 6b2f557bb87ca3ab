"""Errors keep their kind, exit code and words on their way from the daemon to the command line."""

from __future__ import annotations

import pytest

from hybrisfs.errors import (
    DaemonError,
    DamagedError,
    HybrisError,
    InternalError,
    NewerFormatError,
    UnavailableError,
    UnknownVolumeError,
    UsageError,
    as_sentence,
    from_wire,
)

KINDS = [
    HybrisError,
    UsageError,
    UnknownVolumeError,
    DaemonError,
    UnavailableError,
    DamagedError,
    NewerFormatError,
    InternalError,
]


@pytest.mark.parametrize("kind", KINDS)
def test_errors_survive_the_wire(kind: type[HybrisError]) -> None:
    error = kind("it failed", "there was a reason", "Do this.")
    copy = from_wire(error.kind, str(error))
    assert type(copy) is kind
    assert copy.exit_code == kind.exit_code
    assert str(copy) == "it failed: there was a reason\nDo this."
    assert copy.advice == "Do this."
    assert copy.reported == kind.kind


def test_kinds_are_distinct() -> None:
    assert len({kind.kind for kind in KINDS}) == len(KINDS)


def test_an_unknown_kind_is_a_plain_failure() -> None:
    error = from_wire("from the future", "it failed")
    assert (type(error), error.reported) == (HybrisError, "from the future")


@pytest.mark.parametrize(
    ("advice", "sentence"),
    [
        ("", ""),
        ("check its permissions", "Check its permissions."),
        ("is the network up?", "Is the network up?"),
        ("hybrisfs cloud login asks for it", "hybrisfs cloud login asks for it."),
        ("if it is new: hybrisfs cloud adopt x", "If it is new: hybrisfs cloud adopt x"),
        ("or run: az login", "Or run: az login"),
    ],
)
def test_a_command_in_advice_stays_as_it_is_typed(advice: str, sentence: str) -> None:
    assert as_sentence(advice) == sentence
