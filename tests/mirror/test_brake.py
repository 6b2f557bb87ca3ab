from __future__ import annotations

from hybrisfs.mirror.model import Side
from hybrisfs.mirror.plan import Brake


def test_few_or_a_small_part_are_removed_at_once() -> None:
    brake = Brake(0.5)
    assert not brake.holds(Side.LOCAL, 50, 80, 0.0)
    assert not brake.holds(Side.LOCAL, 51, 200, 0.0)
    assert not brake.holds(Side.LOCAL, 9, 9, 0.0)


def test_much_or_all_waits() -> None:
    brake = Brake(0.5)
    assert brake.holds(Side.LOCAL, 51, 100, 0.0)
    assert brake.holds(Side.VOLUME, 10, 10, 0.0), "nothing would be left"


def test_bit_by_bit_counts_together_for_a_while() -> None:
    brake = Brake(0.5)
    brake.note(Side.LOCAL, 40, 0.0)
    assert brake.holds(Side.LOCAL, 20, 60, 1.0)
    assert not brake.holds(Side.VOLUME, 20, 60, 1.0)
    assert not brake.holds(Side.LOCAL, 20, 60, 1000.0)
    brake.note(Side.LOCAL, 40, 1000.0)
    brake.release()
    assert not brake.holds(Side.LOCAL, 20, 60, 1001.0)
