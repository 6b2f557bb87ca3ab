"""Fixtures of tests about the past."""

from __future__ import annotations

import pytest

from tests.versions.support import Clock


@pytest.fixture
def clock() -> Clock:
    return Clock()
