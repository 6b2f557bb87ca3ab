"""Finding the library, refusing what does not fit, and its log."""

from __future__ import annotations

import ctypes
import logging
import platform
import shutil
import subprocess
from pathlib import Path

import pytest

from hybrisfs.fuse import FuseError, library


@pytest.mark.parametrize("version", [209, 309, 400])
def test_a_libfuse_that_does_not_fit_is_refused(tmp_path: Path, version: int) -> None:
    if not shutil.which("gcc"):
        pytest.skip("needs gcc")
    source, built = tmp_path / "fake.c", tmp_path / "fake.so"
    source.write_text(f"int fuse_version(void) {{ return {version}; }}\n")
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", built, source], check=True)
    with pytest.raises(
        FuseError, match=rf"libfuse {version // 100}\.{version % 100}; needed is 3\.10 or a later"
    ):
        library.load([str(built)], platform.machine())


def test_a_missing_libfuse_is_named_with_advice() -> None:
    with pytest.raises(FuseError, match="not installed: install the package fuse3"):
        library.load(["libnothing.so.1", "libnothing.so.2"], platform.machine())


def test_a_machine_whose_structures_are_not_known_is_refused() -> None:
    with pytest.raises(FuseError, match="not supported on pdp11"):
        library.load(["libfuse3.so.4", "libfuse3.so.3"], "pdp11")


@pytest.mark.parametrize(
    ("level", "expected"), [(3, logging.ERROR), (4, logging.WARNING), (7, logging.DEBUG)]
)
def test_what_libfuse_says_is_logged(caplog: pytest.LogCaptureFixture, level: int, expected: int) -> None:
    arguments = (
        b"text",
        ctypes.c_longlong(1 << 40),
        ctypes.c_double(1.5),
        *[ctypes.c_int(n) for n in range(8)],
    )
    with caplog.at_level(logging.DEBUG, library.__name__):
        library.libfuse().waiting.fuse_log(level, b"%s %lld %g" + b" %d" * 8 + b"\n", *arguments)
    assert caplog.record_tuples == [(library.__name__, expected, "text 1099511627776 1.5 0 1 2 3 4 5 6 7")]


def test_a_long_message_of_libfuse_is_cut(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG, library.__name__):
        library.libfuse().waiting.fuse_log(3, b"%s", b"x" * 5000)
    assert caplog.messages == ["x" * 1023]
