"""Chaos for a minute: three real devices, programs and faults at random, and nothing is lost, torn or unsafe.

HYBRISFS_TEST_SEED chooses what programs and faults choose. `python -m tests.system.chaos` goes on for hours.
"""

from __future__ import annotations

import pytest

from tests.system.chaos.life import live


@pytest.mark.timeout(400)
def test_nothing_is_lost_torn_or_called_safe_that_is_not(seed: int) -> None:
    live(seed)
