"""Sizes, names and tables for people; nothing that a terminal would obey."""

from __future__ import annotations

import os
import subprocess

import click
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cli.output import clean, columns, count, quoted, shown, size


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (0, "0 bytes"),
        (1, "1 byte"),
        (999, "999 bytes"),
        (1000, "1.0 kB"),
        (99_949, "99.9 kB"),
        (99_951, "100 kB"),
        (999_499, "999 kB"),
        (999_500, "1.0 MB"),
        (3_000_000, "3.0 MB"),
        (12_345_678_901, "12.3 GB"),
        (10**18, "1000 PB"),
    ],
)
def test_sizes(number: int, text: str) -> None:
    assert size(number) == text


def test_counts() -> None:
    assert [count(number, "file") for number in (0, 1, 12345)] == ["0 files", "1 file", "12,345 files"]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("/home/ann/My Files", "/home/ann/My Files"),
        ("Ümläut 日本", "Ümläut 日本"),
        ("a\x1b[31mred", r"$'a\e[31mred'"),
        ("two\nlines", r"$'two\nlines'"),
        (os.fsdecode(b"caf\xe9"), r"$'caf\xe9'"),
        ("it's\t", r"$'it\'s\t'"),
        (" edge ", "$' edge '"),
        ("", "$''"),
        ("right\u202eleft", r"$'right\xe2\x80\xaeleft'"),
    ],
)
def test_odd_names_are_escaped(name: str, text: str) -> None:
    assert shown(name) == text


@given(st.binary(min_size=1, max_size=20).filter(lambda name: b"\0" not in name))
def test_what_is_shown_is_printable_and_what_is_quoted_is_the_name_again(name: bytes) -> None:
    word = os.fsdecode(name)
    assert shown(word).isprintable()
    assert quoted(word).isprintable()
    if len(name) < 6:  # a shell is slow
        echoed = subprocess.run(
            ["bash", "-c", f"printf %s {quoted(word)}"],
            capture_output=True,
            check=True,
            env={"LC_ALL": "C.UTF-8"},
        )
        assert echoed.stdout == name


@given(st.text(max_size=50))
def test_clean_text_has_nothing_a_terminal_obeys(text: str) -> None:
    assert all(line.isprintable() for line in clean(text).split("\n"))
    if text.isprintable():
        assert clean(text) == text


def test_columns_line_up_whatever_the_style() -> None:
    rows = [["a", click.style("ok", fg="green"), "x"], ["long", "down", ""]]
    assert [click.unstyle(line) for line in columns(rows)] == ["  a     ok    x", "  long  down"]
