"""The collector of one volume, put together."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from hybrisfs.gc.assembly import Assembly
from hybrisfs.gc.collector import Collector, Parts
from hybrisfs.gc.dispose import Disposer
from hybrisfs.gc.needed import NeededOrphans
from hybrisfs.gc.orphans import Orphans
from hybrisfs.gc.pages import Pages
from hybrisfs.gc.propose import Proposer
from hybrisfs.gc.rewrite import Rewriter
from hybrisfs.gc.vote import Voter
from hybrisfs.parts import Clouds, Ground, Writing
from hybrisfs.read.fetch import Fetcher
from hybrisfs.sharing.sharing import Sharing
from hybrisfs.versions.thinning import Thinner

__all__ = ["make_collector"]


def make_collector(
    ground: Ground,
    sharing: Sharing,
    clouds: Clouds,
    fetcher: Fetcher,
    writing: Writing,
    thinner: Thinner,
    trusted: Callable[[], set[int]],
) -> Collector:
    """What discards the packs that nobody needs. *trusted*: the clouds that are known to be the volume's."""
    fs, signals = ground.fs, ground.signals
    assembly = Assembly(
        sharing.registers, sharing.members, sharing.signer, signals, ground.ring.keys.device.device_id
    )
    pages = Pages(fs, fetcher.fetch_one)
    rewriter = Rewriter(
        fs,
        sharing.signer,
        signals,
        clouds.packs,
        fetcher.fetch_one,
    )
    upkeep = clouds.engine.upkeep
    orphans = Orphans(fs, upkeep, trusted, upkeep.refusing)
    needed = NeededOrphans(fs, upkeep, clouds.engine.get_chunks, signals.chunks_made)
    parts = Parts(
        assembly,
        pages,
        Voter(fs, assembly, ground.committer, pages, fetcher.settle, needed.look),
        Proposer(fs, assembly, pages, lambda: clouds.engine.numbers, orphans.delete),
        rewriter,
        Disposer(fs, upkeep, trusted, upkeep.refusing),
        orphans,
        needed,
        thinner,
        fetcher.settle,
    )

    def names() -> Mapping[bytes, tuple[str, float | None]]:
        return {bytes.fromhex(one.id): (one.name, one.seen) for one in sharing.devices()}

    return Collector(
        fs,
        ground.committer,
        signals,
        parts,
        ground.config.discard_hours * 3600.0,
        lambda seconds: writing.uploads.wait(seconds, lambda done, total: None),
        names,
        lambda: writing.relayer.is_lacking,
        sharing.updates.moment_of,
    )


def _seconds(value: object) -> float | None:
    return value if isinstance(value, float) else None
