"""Object names: strict, and in one place."""

from __future__ import annotations

from pathlib import PurePosixPath

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backends.store import MAX_NAME, MAX_SEGMENTS, check_name, check_prefix, is_name

ALPHABET = "abcxyz0189._-/"


@given(st.text(alphabet=ALPHABET + "A \n\0ä\\", max_size=40))
def test_a_legal_name_is_a_plain_relative_path(text: str) -> None:
    segments = text.split("/")
    legal = all(
        segment and segment[0] != "." and set(segment) <= set(ALPHABET) - {"/"} for segment in segments
    )
    assert is_name(text) == (legal and len(segments) <= MAX_SEGMENTS)
    if is_name(text):
        path = PurePosixPath(text)
        assert str(path) == text
        assert ".." not in path.parts


@given(st.text(alphabet=ALPHABET, max_size=30), st.integers(min_value=0, max_value=30))
def test_every_beginning_of_a_name_is_a_prefix(text: str, cut: int) -> None:
    if is_name(text):
        assert check_prefix(text[:cut]) == text[:cut]


@pytest.mark.parametrize("prefix", ["/", "a//", ".", "..", "a/.", "A", "a b", "a\n", "/a"])
def test_no_name_begins_like_this(prefix: str) -> None:
    with pytest.raises(ValueError, match="prefix"):
        check_prefix(prefix)


def test_bounds() -> None:
    longest = "/".join(["s" * 128, "s" * 128, "s" * 128, "s" * 125])
    assert check_name(longest) == longest
    assert len(longest) == MAX_NAME
    for name in (longest + "s", "s" * 129, "/".join("a" * (MAX_SEGMENTS + 1))):
        with pytest.raises(ValueError, match="legal"):
            check_name(name)
