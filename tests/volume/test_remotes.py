"""A volume over remotes of rclone: one goes away, and providers do what such providers do."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from random import Random

import pytest
from msgspec.structs import replace

from backends.errors import ThrottledError
from backends.rclone import RcloneStore
from backends.store import StoreWrapper
from hybrisfs.admit.create import create_volume
from hybrisfs.dispersal.engine import Cloud
from hybrisfs.environment import Environment, Limits
from hybrisfs.home import Home
from hybrisfs.volume.volume import Volume
from tests.adversary import WRITES, Fault, FaultyStore
from tests.backends.conftest import remotes
from tests.backends.rclone_remotes import Remotes, obscured
from tests.surroundings import Surroundings
from tests.volume.device import ALONE, NAME, QUICK, Device
from tests.volume.test_repair import repair, scrub

__all__ = ["remotes"]

DATA = Random(1).randbytes(3 << 20)


class AtRemotes(Device):
    """A device of a volume whose clouds are these URLs."""

    def __init__(self, root: Path, urls: Sequence[str]) -> None:
        self.around = Surroundings(Environment(limits=Limits(*QUICK)))
        self.home = Home.below(root / "home")
        self.clouds = []
        replace(create_volume(self.home, NAME, urls, 1, 1), links=ALONE).save(self.home)
        self.volume = Volume.open(self.home, NAME, self.around.environment)
        self._open = True


@pytest.fixture
def places(tmp_path: Path) -> list[Path]:
    """The folders that three providers have."""
    return [tmp_path / f"provider-{number}" for number in range(3)]


@pytest.fixture
def device(remotes: Remotes, places: list[Path], tmp_path: Path) -> Iterator[Device]:
    """One of the remotes lies upon another, encrypted by rclone, too."""
    crypt = remotes.add(
        f"crypt-{tmp_path.name}", type="crypt", remote=f"disk:{places[2]}", password=obscured("secret")
    )
    device = AtRemotes(
        tmp_path, [f"rclone:disk:{places[0]}", f"rclone:disk:{places[1]}", f"rclone:{crypt}:x"]
    )
    yield device
    device.close()


def put_before(device: Device, number: int, wrap: type[StoreWrapper] | None = None) -> FaultyStore:
    """Let a cloud misbehave as it is told."""
    known = device.volume.config.clouds[number]
    store = RcloneStore(known.url)
    faulty = FaultyStore(store if wrap is None else wrap(store), seed=1)
    device.volume.engine.clouds.retire(known.number)
    device.volume.engine.add_cloud(Cloud(known.number, known.name, faulty))
    return faulty


class _Beginning(StoreWrapper):
    """A provider without ranges, whose answer rclone takes for the range: the beginning of the object."""

    def get_range(self, name: str, offset: int, length: int) -> bytes:
        return super().get_range(name, 0, length)


def throttled(url: str, operation: str, name: str) -> ThrottledError:
    return ThrottledError(url, operation, name, "userRateLimitExceeded", retry_after=0.01)


def read_again(device: Device) -> bytes:
    """The file, from the clouds."""
    device.volume.drop_cache()
    return device.read("file")


def struck(store: FaultyStore, kind: str) -> bool:
    return any(call.fault == kind for call in store.calls)


@pytest.mark.parametrize("number", [0, 2])
def test_one_remote_is_taken_away_and_comes_back(device: Device, places: list[Path], number: int) -> None:
    device.write("file", DATA)
    device.sync()
    places[number].rename(places[number].with_name("away"))
    assert read_again(device) == DATA
    device.write("file", DATA[::-1])
    device.sync()
    assert read_again(device) == DATA[::-1]
    # What was on its way when the place went may have made folders again. A disk is mounted over these.
    shutil.rmtree(places[number], ignore_errors=True)
    places[number].with_name("away").rename(places[number])
    repair(device)
    assert scrub(device).problems == []


def test_rate_limits_delay_and_lose_nothing(device: Device) -> None:
    """Google Drive, OneDrive and Dropbox refuse many requests in a short time; here all three do."""
    clouds = [put_before(device, number) for number in range(3)]
    for cloud in clouds:
        cloud.faults = [Fault("fail", 0.3, error=throttled)]
    device.write("file", DATA)
    device.sync()
    assert read_again(device) == DATA
    assert any(struck(cloud, "fail") for cloud in clouds)
    for cloud in clouds:
        cloud.faults = []
    device.sync()
    assert scrub(device).problems == []


def test_what_a_provider_shows_late_is_read_from_the_others(device: Device) -> None:
    """Neither its listings nor its reads show at once what was written."""
    late = put_before(device, 0)
    late.faults = [Fault("late", operations=WRITES), Fault("lose", operations=frozenset({"list"}))]
    device.write("file", DATA)
    device.sync()
    assert read_again(device) == DATA
    assert struck(late, "late")
    late.faults = []
    repair(device)
    looks = (scrub(device).problems for _ in range(5))  # the last of what is late comes out with each
    assert [] in looks


def test_a_wrong_range_is_found_out(device: Device) -> None:
    device.write("file", DATA)
    device.sync()
    asked: list[FaultyStore] = []
    for number in range(3):
        asked.append(put_before(device, number, _Beginning))
        assert read_again(device) == DATA
        put_before(device, number)
    assert any(call.operation == "get_range" for one in asked for call in one.calls)
