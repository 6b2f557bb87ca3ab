"""The collector of one volume, put together."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from hybrisfs.discard.assembly import Assembly
from hybrisfs.discard.collector import Collector, Parts
from hybrisfs.discard.dispose import Disposer
from hybrisfs.discard.needed import NeededOrphans
from hybrisfs.discard.orphans import Orphans
from hybrisfs.discard.pages import Pages
from hybrisfs.discard.propose import Proposer
from hybrisfs.discard.rewrite import Rewriter
from hybrisfs.discard.vote import Voter

if TYPE_CHECKING:
    from hybrisfs.volume.volume import Volume

__all__ = ["make_collector"]


def make_collector(volume: Volume) -> Collector:
    """What discards the packs that nobody in *volume* needs."""
    fs, sharing, signals, config = volume.fs, volume.sharing, volume.signals, volume.config
    assembly = Assembly(
        fs, sharing.registers, sharing.members, sharing.signer, signals, volume.ring.keys.device.device_id
    )
    pages = Pages(fs, volume.fetcher.fetch_one)
    rewriter = Rewriter(
        fs,
        sharing.signer,
        signals,
        volume.packs,
        volume.fetcher.fetch_one,
    )
    upkeep = volume.engine.upkeep
    orphans = Orphans(fs, upkeep, volume.maintenance.trusted, upkeep.refusing)
    needed = NeededOrphans(fs, upkeep, volume.get_chunks, signals.chunks_made)
    parts = Parts(
        assembly,
        pages,
        Voter(fs, assembly, volume.committer, pages, volume.fetcher.settle, needed.look),
        Proposer(fs, assembly, pages, lambda: volume.engine.numbers, orphans.delete),
        rewriter,
        Disposer(fs, upkeep, volume.maintenance.trusted, upkeep.refusing),
        orphans,
        needed,
        volume.thinner,
        volume.fetcher.settle,
    )

    def names() -> Mapping[bytes, tuple[str, float | None]]:
        return {
            bytes.fromhex(str(one["id"])): (str(one["name"]), _seconds(one.get("last_seen")))
            for one in sharing.devices()
        }

    return Collector(
        fs,
        volume.committer,
        signals,
        parts,
        config.discard_hours * 3600.0,
        lambda seconds: volume.uploads.wait(seconds, lambda done, total: None),
        names,
        lambda: volume.relayer.is_lacking,
        volume.updates.moment_of,
    )


def _seconds(value: object) -> float | None:
    return value if isinstance(value, float) else None
