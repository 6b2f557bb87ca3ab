"""What the beginnings of a file before and after tell: kinds, and what looks random."""

from __future__ import annotations

import base64
import zlib
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hybrisfs.merge.samples import BEGINNING, Finding, compare, is_to_wait, kind_of
from hybrisfs.state.decisions import Cause

KEPT, REPLACED, SCRAMBLED = Finding
NOISE = Random(1).randbytes(16_000)
PROSE = ("It was the best of times, it was the worst of times, it was the age of wisdom. " * 60).encode()
CODE = "\n".join(
    f"def name_{number}(first, second):\n    return first * {number}" for number in range(99)
).encode()
JPEG = b"\xff\xd8\xff\xe0\0\x10JFIF" + NOISE[:4000]
RECORDS = b"".join(number.to_bytes(4) + bytes(28) for number in range(128))  # of no kind, and not random


@pytest.mark.parametrize(
    ("beginning", "kind"),
    [
        (JPEG, "jpeg"),
        (b"\0\0\0\x20ftypisom", "mp4"),
        (b"PK\3\4whatever", "zip"),
        (zlib.compress(PROSE), "zlib"),
        (bytes(257) + b"ustar", "tar"),
        (PROSE, "text"),
        ("größer als äöü ist nur ß\n".encode(), "text"),
        ("größer als äöü ist nur das scharfe ß\n".encode("latin-1"), "text"),
        (("日本語の文章 " * 300).encode()[:BEGINNING], "text"),
        (b"", None),
        (bytes(500), None),
        (RECORDS, None),
    ],
)
def test_kinds(beginning: bytes, kind: str | None) -> None:
    assert kind_of(beginning) == kind


@pytest.mark.parametrize("size", [64, 100, 200, 256, 300, 512, 1000, 2000, BEGINNING])
@pytest.mark.parametrize("before", [JPEG, PROSE, CODE, RECORDS, zlib.compress(CODE)])
def test_what_is_encrypted_is_scrambled(before: bytes, size: int) -> None:
    random = Random(size)  # of all random bytes, one in thousands begin as files of some kind do
    for _ in range(20):
        assert compare(before[:size], random.randbytes(size)) is SCRAMBLED


@pytest.mark.parametrize(
    ("before", "after", "finding"),
    [
        (PROSE, PROSE[:2000] + b"a new line\n" + PROSE[2000:], KEPT),
        (CODE, CODE.replace(b"    ", b"\t"), KEPT),
        (CODE, CODE.replace(b"first", b"other"), KEPT),
        (CODE, PROSE, REPLACED),
        (PROSE, base64.b64encode(NOISE[:3000]), REPLACED),
        (PROSE, b"PAY! " * 500, REPLACED),
        (JPEG, b"\xff\xd8\xff\xe1" + bytes(1000) + JPEG[3:2000], KEPT),
        (JPEG, b"\xff\xd8\xff\xe0\0\x10JFIF" + NOISE[4000:8000], REPLACED),
        (JPEG, b"\x89PNG" + NOISE[4000:8000], REPLACED),
        (JPEG, bytes(4000), SCRAMBLED),
        (RECORDS, RECORDS[::-1], KEPT),
        (NOISE[:4000], NOISE[8000:12000], REPLACED),
        (b"short", NOISE[:5], REPLACED),
    ],
)
def test_findings(before: bytes, after: bytes, finding: Finding) -> None:
    assert compare(before, after) is finding


@given(st.binary(max_size=BEGINNING), st.binary(max_size=BEGINNING))
def test_whatever_files_begin_with_something_is_found(before: bytes, after: bytes) -> None:
    compare(before, after)
    assert compare(before, before) is not SCRAMBLED


@given(st.lists(st.sampled_from(Finding), max_size=16))
def test_a_quarter_is_enough_to_ask(findings: list[Finding]) -> None:
    bad = findings.count(SCRAMBLED)
    worse = bad + findings.count(REPLACED)
    assert is_to_wait(Cause.MANY, findings) == (bad > 0 and 4 * bad >= len(findings))
    assert is_to_wait(Cause.MUCH, findings) == (worse > 0 and 4 * worse >= len(findings))
