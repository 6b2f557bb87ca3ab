"""The collector of one volume, put together."""

from __future__ import annotations

from hybrisfs.gc.assembly import Assembly
from hybrisfs.gc.collector import Collector, Parts
from hybrisfs.gc.dispose import Disposer
from hybrisfs.gc.needed import NeededOrphans
from hybrisfs.gc.orphans import Orphans, Trust
from hybrisfs.gc.pages import Pages
from hybrisfs.gc.participant import Participant
from hybrisfs.gc.rewrite import Rewriter
from hybrisfs.parts import Ground, Writing
from hybrisfs.read.fetch import Fetcher
from hybrisfs.versions.thinning import Thinner

__all__ = ["make_collector"]


def make_collector(
    ground: Ground, fetcher: Fetcher, writing: Writing, thinner: Thinner, trust: Trust
) -> Collector:
    """What discards the packs that nobody needs."""
    fs, signals, sharing, clouds = ground.fs, ground.signals, writing.sharing, writing.clouds
    engine = clouds.engine
    assembly = Assembly(fs, sharing, signals)
    orphans = Orphans(fs, engine.upkeep, trust)
    needed = NeededOrphans(fs, engine.upkeep, clouds, signals)
    parts = Parts(
        assembly,
        Pages(fs, fetcher),
        Participant(fs, assembly, ground.committer, fetcher, orphans, needed, engine),
        Rewriter(fs, sharing.signer, signals, clouds.packs, fetcher),
        Disposer(fs, engine.upkeep, trust),
        orphans,
        needed,
        thinner,
        fetcher,
    )
    return Collector(ground, writing, parts)
