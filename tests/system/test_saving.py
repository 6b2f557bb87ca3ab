"""Programs on two linked devices that save the same files within milliseconds."""

from __future__ import annotations

import random
from pathlib import Path

from tests.system.saving import KINDS, linked_devices, saving_together


def test_nothing_that_was_saved_is_lost(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    kinds = [*KINDS, *KINDS]
    with linked_devices(tmp_path) as (a, b):
        for begin in range(0, 8 * len(kinds), len(kinds)):
            saving_together(a, b, list(enumerate(kinds, begin)), chance)
