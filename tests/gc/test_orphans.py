"""Shares that no register names: found by listing, deleted when all agree, never when somebody names them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest

from hybrisfs.dispersal.errors import Finding
from hybrisfs.dispersal.share import share_name
from hybrisfs.write.pack import is_ending, record_packs
from tests.gc.support import Collecting, check_shown, cut_short, two_devices
from tests.merge.fleet import Device, Fleet
from tests.volume.test_fsck_devices import problems

CONTENT = b"content whose upload is cut short " * 40


@pytest.fixture
def fleet() -> Iterator[Fleet]:
    """Two devices; an upload of the first one has been cut short."""
    fleet = two_devices()
    fleet[0].write("kept", b"kept content")
    fleet.meet()
    fleet[0].write("new", CONTENT)
    cut_short(fleet[0])
    fleet[0].rig.commit()
    fleet[0].rig = fleet[0].rig.crashed()
    yield fleet
    fleet.meet()
    for device in fleet.devices:
        assert device.read("new") == CONTENT
        check_shown(device)
        assert problems(device) == []
    fleet.discard()


def orphan(fleet: Fleet) -> bytes:
    """The pack that no register names."""
    named = {one for (one,) in fleet[0].rig.db.rows.execute("SELECT id FROM pack")}
    (pack,) = set(fleet.clouds.packs) - named
    return pack


def advance(device: Device) -> bool:
    said = Collecting(device).step()
    Collecting(device).dispose()
    return said


def refused(device: Device) -> set[int]:
    """What a device says that it needs of what is proposed."""
    book = Collecting(device).assembly.book()
    return {index for one in book.lists for index in book.answer(device.key.device_id, one.id).refused}


def confer(fleet: Fleet, rounds: int = 4) -> None:
    """All hear of all, and answer."""
    for _ in range(rounds):
        for number, device in enumerate(fleet.devices):
            while advance(device):
                pass
            fleet[1 - number].receive(device.log())


def test_what_an_upload_has_left_is_deleted_when_all_agree(fleet: Fleet) -> None:
    pack = orphan(fleet)
    assert Collecting(fleet[1]).look_for_orphans() == 1
    assert advance(fleet[1])  # promised
    assert not advance(fleet[1])
    assert pack in fleet.clouds.packs
    confer(fleet)
    assert pack not in fleet.clouds.packs
    for device in fleet.devices:
        assert is_ending(device.rig.fs, pack)  # its id is never used again
    fleet[0].sign()
    assert pack not in fleet.clouds.packs


def test_who_packs_the_same_meanwhile_makes_another_pack(fleet: Fleet) -> None:
    pack = orphan(fleet)
    assert Collecting(fleet[1]).look_for_orphans() == 1
    fleet[0].receive(fleet[1].log())
    fleet[0].sign()  # it has not answered yet, but it knows
    assert not fleet[0].rig.db.rows.execute("SELECT 1 FROM pack WHERE id = ?", (pack,)).fetchone()
    confer(fleet)
    assert pack not in fleet.clouds.packs


def test_who_has_put_it_on_record_before_it_knew_refuses(fleet: Fleet) -> None:
    pack = orphan(fleet)
    assert Collecting(fleet[1]).look_for_orphans() == 1
    fleet[0].sign()
    assert fleet[0].rig.db.rows.execute("SELECT 1 FROM pack WHERE id = ?", (pack,)).fetchone()
    fleet[0].receive(fleet[1].log())
    assert advance(fleet[0])
    assert refused(fleet[0]) == {0}
    confer(fleet)
    assert pack in fleet.clouds.packs
    assert not is_ending(fleet[1].rig.fs, pack)


def test_an_upload_that_is_under_way_is_not_recorded_once_the_proposal_is_known(fleet: Fleet) -> None:
    """The pack was put before the device heard of the proposal, and is to be recorded after it has."""
    pack = orphan(fleet)
    encoded = fleet.clouds.packs[pack]
    assert Collecting(fleet[1]).look_for_orphans() == 1
    rig = fleet[0].rig
    fleet[0].receive(fleet[1].log())
    placed = [(encoded, bytes(range(encoded.n)))]
    assert not record_packs(rig.fs, rig.sharing.signer, placed, lambda tx, number, chunks: None)
    confer(fleet)
    assert pack not in fleet.clouds.packs


def test_shares_that_come_after_the_end_of_their_pack_are_deleted(fleet: Fleet) -> None:
    pack = orphan(fleet)
    encoded = fleet.clouds.packs[pack]
    assert Collecting(fleet[1]).look_for_orphans() == 1
    confer(fleet)
    assert pack not in fleet.clouds.packs
    fleet.clouds.packs[pack] = encoded  # a put that was under way all the time
    for device in fleet.devices:
        fleet.clouds.packs[pack] = encoded
        assert Collecting(device).look_for_orphans() == 0
        Collecting(device).dispose()
        assert pack not in fleet.clouds.packs


def test_young_ones_are_left_alone(fleet: Fleet) -> None:
    collecting, hour = Collecting(fleet[1]), 3_600_000_000_000
    pack = orphan(fleet)
    for now, due in ((10 * hour, False), (12 * hour, True)):
        unnamed, sightings = collecting.orphans.look(fleet[1].rig.commit, now, 2 * hour, lambda: True)
        assert (pack in unnamed.orphans) is due
        assert unnamed.young == (0 if due else fleet.clouds.packs[pack].n)
        collecting.orphans.remember(fleet[1].rig.tx, sightings)


def test_a_cloud_that_makes_up_names_gains_nothing(fleet: Fleet) -> None:
    collecting = Collecting(fleet[1])
    unnamed, _ = collecting.orphans.look(fleet[1].rig.commit, 1 << 62, 0, lambda: True)
    seen = unnamed.orphans.pop(orphan(fleet))
    made_up = bytes(32)
    unnamed.orphans[made_up] = seen._replace(pack=made_up)
    assert collecting.orphans.proven(unnamed, 100) == ([], [])


# -- single shares --------------------------------------------------------------------------------


class Clouds:
    """What two devices see of three clouds."""

    numbers = (0, 1, 2)

    def __init__(self) -> None:
        self.objects: set[tuple[int, str]] = set()
        self.away: set[int] = set()
        self.bad: set[tuple[int, str]] = set()

    def is_configured(self, cloud: int) -> bool:
        return cloud < 3

    def refusing(self) -> set[int]:
        return set()

    def trusted(self) -> Sequence[int]:
        return self.numbers

    def names(self, cloud: int, prefix: str, most: int) -> list[str]:
        return sorted(name for one, name in self.objects if one == cloud and name.startswith(prefix))

    def sample_share(self, cloud: int, pack: bytes, index: int) -> Finding | None:
        at = cloud, share_name(pack, index)
        return None if at in self.objects - self.bad else Finding("missing", "it is gone")

    def delete(self, cloud: int, names: Sequence[str]) -> str | None:
        if cloud in self.away:
            return "no answer"
        self.objects -= {(cloud, name) for name in names}
        return None

    def excuse(self, cloud: int, name: str) -> None:
        pass


class Strays:
    """Two devices that know of a pack with two shares, and a third cloud that has got one of them in vain."""

    def __init__(self, fleet: Fleet) -> None:
        self.fleet = fleet
        self.clouds = Clouds()
        row = fleet[0].rig.db.rows.execute("SELECT id, placement FROM pack WHERE n > 0").fetchone()
        self.pack, self.placement = row
        assert self.placement == b"\0\1"
        self.clouds.objects = {(i, share_name(self.pack, i)) for i in range(2)}
        self.at = 2, share_name(self.pack, 1)
        self.clouds.objects.add(self.at)

    def collecting(self, number: int) -> Collecting:
        return Collecting(self.fleet[number], self.clouds)  # type: ignore[arg-type]

    def step(self, number: int) -> bool:
        return self.collecting(number).step()

    def confer(self, rounds: int = 4) -> None:
        for _ in range(rounds):
            for number in range(2):
                while self.step(number):
                    pass
                self.fleet[1 - number].receive(self.fleet[number].log())

    def record(self, number: int, placement: bytes) -> bool:
        """A device says that the shares are at these clouds."""
        rig = self.fleet[number].rig
        encoded = self.fleet.clouds.packs[self.pack]
        return record_packs(
            rig.fs, rig.sharing.signer, [(encoded, placement)], lambda tx, number, chunks: None
        )


@pytest.fixture
def strays() -> Iterator[Strays]:
    fleet = two_devices()
    fleet[0].write("kept", b"kept content")
    fleet.meet()
    yield Strays(fleet)
    fleet.discard()


def test_a_share_that_a_cloud_got_in_vain_is_deleted_when_all_agree(strays: Strays) -> None:
    assert strays.collecting(0).look_for_orphans() == 1
    while strays.step(0):
        pass
    assert strays.at in strays.clouds.objects
    strays.fleet[1].receive(strays.fleet[0].log())
    strays.confer()
    assert strays.clouds.objects == {(i, share_name(strays.pack, i)) for i in range(2)}
    assert strays.fleet[0].rig.db.rows.execute("SELECT n FROM pack").fetchall() == [(2,)]


def test_a_share_that_somebody_has_placed_there_is_kept(strays: Strays) -> None:
    """The other device has just moved it there; the proposer has not heard of it."""
    assert strays.collecting(0).look_for_orphans() == 1
    assert strays.record(1, b"\0\2")
    strays.fleet[1].receive(strays.fleet[0].log())
    assert strays.step(1)
    assert refused(strays.fleet[1]) == {0}
    strays.confer()
    assert strays.at in strays.clouds.objects


def test_nobody_places_a_share_where_it_is_to_be_deleted(strays: Strays) -> None:
    assert strays.collecting(0).look_for_orphans() == 1
    strays.fleet[1].receive(strays.fleet[0].log())
    assert not strays.record(1, b"\0\2")
    assert strays.record(1, b"\2\1")  # another share may go there
    strays.confer()
    assert strays.at not in strays.clouds.objects
    assert strays.record(1, b"\0\2")  # and this one again, when it is done


def test_the_promise_stands_until_the_cloud_says_that_it_is_done(strays: Strays) -> None:
    assert strays.collecting(0).look_for_orphans() == 1
    strays.clouds.away.add(2)
    strays.fleet[1].receive(strays.fleet[0].log())
    strays.confer()
    assert not strays.record(0, b"\0\2")
    assert not strays.record(1, b"\0\2")
    strays.clouds.away.clear()
    strays.confer()
    assert strays.at not in strays.clouds.objects
    assert strays.record(1, b"\0\2")


def test_the_last_good_share_is_never_deleted(strays: Strays) -> None:
    strays.clouds.bad.add((1, share_name(strays.pack, 1)))
    assert strays.collecting(0).look_for_orphans() == 0
    strays.clouds.bad.clear()
    assert strays.collecting(0).look_for_orphans() == 1
    strays.clouds.bad.add((1, share_name(strays.pack, 1)))
    strays.fleet[1].receive(strays.fleet[0].log())
    strays.confer()
    assert strays.at in strays.clouds.objects


def test_a_cloud_that_is_away_holds_up_its_own_shares_only(strays: Strays) -> None:
    """Packs are deleted meanwhile, and nobody may name what that cloud may delete late."""
    strays.fleet[0].write("gone", b"gone content")
    strays.fleet.meet()
    assert strays.collecting(0).look_for_orphans() == 1
    strays.clouds.away.add(2)
    strays.fleet[1].receive(strays.fleet[0].log())
    strays.confer()
    strays.fleet[0].remove("gone")
    strays.fleet.meet()
    assert strays.collecting(0).look() == 1
    assert strays.collecting(0).look_for_orphans() == 0  # it stands already
    strays.confer(8)
    ended = "SELECT count(*) FROM pack WHERE n = 0"
    assert [strays.fleet[one].rig.db.rows.execute(ended).fetchone() for one in range(2)] == [(1,), (1,)]
    assert not strays.record(0, b"\0\2")
    assert not strays.record(1, b"\0\2")
    assert not strays.step(0)  # nothing is signed again and again while it is away
    strays.clouds.away.clear()
    strays.confer()
    assert strays.at not in strays.clouds.objects
    assert strays.record(1, b"\0\2")
