"""What a device learns and changes after it was removed: nothing, through clouds and straight from it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from hybrisfs.exchange.following import Following
from hybrisfs.members.epochs import epoch_key
from hybrisfs.settings.config import VolumeConfig
from tests.volume.device import ALONE, NAME, Device, Second
from tests.volume.recovery_rig import Second as Another
from tests.volume.recovery_rig import has, waits
from tests.volume.test_hostile_members import grant_of, id_of, log_of, planted, sign


@pytest.fixture
def devices(tmp_path: Path) -> Iterator[tuple[Device, Device, Device]]:
    """One that stays, one that is to be removed, another one that stays."""
    honest = Device(tmp_path / "first")
    honest.close()
    replace(VolumeConfig.load(honest.home, NAME), links=ALONE).save(honest.home)
    honest.reopen()
    mallory, third = Second(tmp_path / "second", honest), Another(tmp_path / "third", honest, "third")
    honest.write("before", b"all read this")
    honest.sync()
    for device in (mallory, third):
        waits(device, lambda device=device: has(device, "before"))  # type: ignore[misc]
    yield honest, mallory, third
    third.close()
    mallory.close()
    honest.close()


def test_a_removed_device_learns_nothing_and_changes_nothing(
    devices: tuple[Device, Device, Device], monkeypatch: pytest.MonkeyPatch
) -> None:
    honest, mallory, third = devices
    mine = planted(1 << 31, id_of(mallory))
    sign(mallory, [(epoch_key(mine.id), grant_of(mallory, [mine]))])
    mallory.write("while it belonged here", b"counts")
    mallory.sync()
    for device in (honest, third):
        waits(device, lambda device=device: has(device, "while it belonged here"))  # type: ignore[misc]
        assert device.volume.ring.find(mine.id) is not None
    honest.volume.remove_device("second")
    honest.write("after", b"nobody else reads this")
    honest.sync()
    waits(third, lambda: has(third, "after"))
    mallory.write("evil", b"does not count")
    with monkeypatch.context() as patch:
        patch.setattr(Following, "was_removed", False)  # it does not care
        mallory.sync()
    assert (honest.clouds[0] / "log" / id_of(mallory).hex()).exists()
    third.write("answer", b"of a member")
    third.sync()
    waits(honest, lambda: has(honest, "answer"))
    known = mallory.volume.ring
    for device in (honest, third):
        ring = device.volume.ring
        assert ring.is_fit and ring.newest.id != mine.id and known.find(ring.newest.id) is None
        assert ring.newest == honest.volume.ring.newest
        device.volume.sharing.receive(log_of(mallory))
        assert not has(device, "evil") and has(device, "while it belonged here")
    assert not has(mallory, "after") and not has(mallory, "answer")
