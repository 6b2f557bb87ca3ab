"""Fixtures of tests about the past."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.versions.support import Clock


@pytest.fixture
def clock() -> Iterator[Clock]:
    clock = Clock()
    with clock.running():
        yield clock
