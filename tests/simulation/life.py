"""One seed, from the beginning to the end."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from unittest import mock

from hybrisfs.merge.state_hash import state_hash
from tests.filesystem.rig import small_chunks
from tests.simulation.determinism import Clocks
from tests.simulation.healing import heal
from tests.simulation.simulator import Simulation

__all__ = ["live"]


@contextmanager
def small_checkpoints() -> Iterator[None]:
    """A checkpoint whenever all stand at one vector, of small slices, for whoever lacks anything."""
    with (
        mock.patch.multiple(
            "hybrisfs.checkpoint.keeper",
            QUIET_SECONDS=0.0,
            LEAST_BYTES=1,
            RESTATE_SECONDS=20.0,
            RESTLESS_SECONDS=20.0,
        ),
        mock.patch("hybrisfs.checkpoint.intake.FAR_BEHIND", 1),
        mock.patch("hybrisfs.checkpoint.snapshot.SLICE_BYTES", 300),
        mock.patch("hybrisfs.discard.find._LEAST_DEAD", 1),
        mock.patch("hybrisfs.merge.refresh._MANY_NAMES", 2),
    ):
        yield


def live(seed: int, trace: list[str], kinds: Sequence[str] = ()) -> bytes:
    """Live through what the seed holds, heal, and check; the state hash that all devices have in the end.

    What was done is put into *trace*, also when it fails. *kinds*: what bad members forge, see `Turncoat`.
    """
    clocks = Clocks()
    with small_chunks(256), small_checkpoints():
        simulation = Simulation(seed, clocks, kinds)
        simulation.trace = trace
        try:
            simulation.run()
            heal(simulation)
            return state_hash(simulation.world.honest[0].rig.db)
        finally:
            simulation.end()
