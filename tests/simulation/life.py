"""One seed, from the beginning to the end."""

from __future__ import annotations

from collections.abc import Sequence

from hybrisfs.sharing.agreement import state_hash
from tests.simulation.determinism import Clocks
from tests.simulation.healing import heal
from tests.simulation.simulator import Simulation

__all__ = ["live"]


def live(seed: int, trace: list[str], kinds: Sequence[str] = ()) -> bytes:
    """Live through what the seed holds, heal, and check; the state hash that all devices have in the end.

    What was done is put into *trace*, also when it fails. *kinds*: what bad members forge, see `Turncoat`.
    """
    clocks = Clocks()
    simulation = Simulation(seed, clocks, kinds)
    simulation.trace = trace
    try:
        simulation.run()
        heal(simulation)
        return state_hash(simulation.world.honest[0].rig.db.rows)
    finally:
        simulation.end()
