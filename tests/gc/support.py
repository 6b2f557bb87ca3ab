"""Devices of a fleet that collect garbage, driven by hand; the clouds forget what is deleted from them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from hybrisfs.dispersal.errors import ChunkUnavailable, Finding
from hybrisfs.dispersal.pack import ChunkLocation
from hybrisfs.dispersal.share import Table, parse_header, parse_share_name, share_name
from hybrisfs.gc.disposal import Disposer, Orphans
from hybrisfs.gc.find import Found, Pages, find_candidates, remember
from hybrisfs.gc.limits import GcLimits
from hybrisfs.gc.participant import Participant
from hybrisfs.gc.rewrite import NeededOrphans, Rewriter
from hybrisfs.registers.proposals import MAX_PACKS
from tests.merge.fleet import Device, Fleet
from tests.surroundings import limited
from tests.tree.rig import SEALER, SMALL_BLOCKS, TABLES, FakeClouds, small_chunks

__all__ = ["Collecting", "FakeUpkeep", "check_placed", "check_shown", "cut_short", "two_devices"]

_PLACED = """
SELECT c.number, c.id, c.length, c.segment, c.pack, c.offset, c.sealed, p.id, p.k, p.n, p.placement
FROM chunk c LEFT JOIN pack p ON p.number = c.pack WHERE c.id = ?
"""
_SHOWN = """
SELECT id FROM chunk WHERE number IN (SELECT chunk FROM file_chunk UNION SELECT chunk FROM content_page)
"""


def two_devices() -> Fleet:
    """They make small chunks, so that packs and pages of content lists are many."""
    return Fleet(2, environment=lambda _: limited(small_chunks(), SMALL_BLOCKS))


class FakeUpkeep:
    """Deletes packs from the clouds of a fleet, all of which are the volume's."""

    numbers: Final = (0, 1, 2)

    def __init__(self, clouds: FakeClouds) -> None:
        self._clouds = clouds

    def is_configured(self, cloud: int) -> bool:
        return True

    def trusted(self) -> Sequence[int]:
        return self.numbers

    def refusing(self) -> set[int]:
        return set()

    def delete(self, cloud: int, names: Sequence[str]) -> str | None:
        if self._clouds.down:
            return "down"
        for name in names:
            share = parse_share_name(name)
            assert share is not None
            self._clouds.packs.pop(share[0], None)
        return None

    def excuse(self, cloud: int, name: str) -> None:
        pass

    def names(self, cloud: int, prefix: str, most: int) -> list[str] | None:
        """Share i of a pack is on cloud i."""
        if self._clouds.down:
            return None
        names = [share_name(pack, cloud) for pack, encoded in self._clouds.packs.items() if cloud < encoded.n]
        return [name for name in names if name.startswith(prefix)]

    def table(self, cloud: int, pack_id: bytes, index: int) -> Table | None:
        pack = None if self._clouds.down else self._clouds.packs.get(pack_id)
        return None if pack is None else parse_header(pack.shares[index], TABLES, pack_id)[1]

    def find_shares(self, pack_id: bytes, n: int) -> tuple[int, ...]:
        pack = self._clouds.packs.get(pack_id)
        return () if pack is None else self._clouds.find_shares(pack_id, min(n, pack.n))

    def sample_share(self, cloud: int, pack_id: bytes, index: int) -> Finding | None:
        return None if pack_id in self._clouds.packs else Finding("missing", "it is gone")


class Collecting:
    """What the collector of one device is made of, as the device is now."""

    def __init__(self, device: Device, upkeep: FakeUpkeep | None = None) -> None:
        rig = self.rig = device.rig
        sharing = rig.sharing
        self.pages = Pages(rig.fs, rig.fetcher)
        upkeep = upkeep or FakeUpkeep(rig.clouds)
        self.needed = NeededOrphans(rig.fs, upkeep, rig.clouds, rig.signals)
        self.orphans = Orphans(rig.fs, upkeep, upkeep)  # type: ignore[arg-type]
        self.participant = Participant(
            rig.fs,
            sharing.signer,
            rig.signals,
            rig.committer,
            rig.fetcher,
            self.orphans,
            self.needed,
            upkeep,
        )
        self.assembly = self.participant.assembly(rig.tx)
        self.rewriter = Rewriter(rig.fs, sharing.signer, rig.signals, rig.packs, rig.fetcher)
        self.limits = rig.environment.limits.of(GcLimits)
        self.disposer = Disposer(rig.fs, upkeep, upkeep)  # type: ignore[arg-type]

    def find(self, grace: float = 0.0) -> Found:
        """Look for packs that nobody needs."""
        rig = self.rig
        self.pages.list_files()
        rig.commit()
        with rig.db.snapshot() as snapshot:
            return find_candidates(
                snapshot,
                self.assembly.device,
                self.pages,
                rig.environment.time_ns(),
                int(grace * 1e9),
                lambda: True,
                self.limits,
                None,
            )

    def look(self) -> int:
        """Find, pack anew, propose; how many packs were proposed. Nothing when that cannot be done now."""
        try:
            found = self.find()
            if found.claimed:
                self.rig.fetcher.prove(found.claimed)
                found = self.find()
            remember(self.rig.tx, found, self.rig.environment.time_ns())
            done = self.rewriter.rewrite(found.sparse, 1 << 20)
        except ChunkUnavailable:
            return 0
        packs = [one.pack for one in [*found.empty, *found.sparse[:done]]]
        return self.participant.propose(packs[:MAX_PACKS])

    def look_for_orphans(self) -> int:
        """List the clouds, and propose to delete what no register names; how many packs were proposed."""
        unnamed, sightings = self.orphans.look(
            self.rig.commit, self.rig.environment.time_ns(), 0, lambda: True
        )
        self.orphans.remember(self.rig.tx, sightings)
        self.orphans.dispose_leftovers(self.rig.tx, unnamed.leftovers)
        return self.participant.propose((), *self.orphans.proven(unnamed, MAX_PACKS))

    def bring_lacking(self, now: float = 0.0) -> None:
        """Look for what is lacking in the packs that no register names."""
        self.needed.look_again(self.unnamed, now)

    def unnamed(self) -> dict[bytes, list[tuple[int, int]]]:
        """Those packs, and where their shares are."""
        found, _ = self.orphans.look(self.rig.commit, self.rig.environment.time_ns(), 0, lambda: True)
        return {pack: [(seen.cloud, seen.share)] for pack, seen in found.orphans.items()}

    def step(self) -> bool:
        """One turn; whether anything was signed."""
        try:
            return self.participant.step()
        except ChunkUnavailable:
            return False

    def dispose(self) -> int:
        """Let what is signed reach the clouds, and delete."""
        rig = self.rig
        rig.commit()
        tip = rig.updates.own_tip()
        if tip is not None:
            rig.db.rows.set_meta("published", tip.clock)
        return self.disposer.run(lambda: True)


def cut_short(device: Device) -> None:
    """Sign what has changed; a crash comes between the upload of its packs and their record."""
    clouds = device.rig.clouds

    def killed(_: object) -> None:
        raise OSError("killed")

    clouds.after_put = killed
    device.sign()
    clouds.after_put = lambda _: None


def check_shown(device: Device) -> None:
    """The bytes of all that is shown are on the clouds, or here and on their way."""
    device.rig.fs.flush(device.rig.tx)
    check_placed(device, (identity for (identity,) in device.rig.db.rows.execute(_SHOWN).fetchall()))


def check_placed(device: Device, chunks: Iterable[bytes]) -> None:
    """The bytes of these chunks are on the clouds, or here and on their way."""
    rig = device.rig
    for wanted in chunks:
        row = rig.db.rows.execute(_PLACED, (wanted,)).fetchone()
        assert row is not None, f"nobody knows of chunk {wanted.hex()}"
        number, identity, length, segment, pack, offset, sealed, *place = row
        if pack is None:
            assert segment is not None
            continue
        assert pack, f"nobody tells where chunk {number} is"
        name, k, n, placement = place
        assert n, f"chunk {number} is in a pack that has ended"
        at = ChunkLocation(name, k, n, tuple(placement), identity, length, offset, sealed)
        assert SEALER.chunk_id(rig.clouds.open(at)) == identity
