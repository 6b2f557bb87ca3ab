"""Clouds are emptied of a volume, to the last object, and of nothing else."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pytest

from backends.errors import AuthError, TransientError
from backends.file import FileStore
from backends.store import Store, StoreWrapper
from hybrisfs.admit.local_copy import Deletion
from hybrisfs.api.key_value import IN_CLOUDS
from hybrisfs.checkpoint.limits import CheckpointLimits
from hybrisfs.clouds.emptying import Emptied, empty, empty_clouds, is_own_name
from hybrisfs.home import Home
from hybrisfs.settings.config import VolumeConfig
from hybrisfs.stores.own_places import MARKER_NAME, marker
from tests.system.clouds import objects
from tests.volume.device import NAME, PATIENCE, Device
from tests.volume.recovery_rig import First, Second, waits

OWN = f"packs/ab/ab{'0' * 62}.1"
VOLUME = bytes(range(16))


@pytest.fixture
def deletion(tmp_path: Path) -> Deletion:
    home = Home.below(tmp_path / "home")
    home.volume_state(NAME).mkdir(parents=True)
    return Deletion(home, NAME)


@pytest.fixture
def store(tmp_path: Path) -> FileStore:
    """A cloud of the volume with some objects."""
    store = FileStore((tmp_path / "cloud").as_uri())
    store.initialise()
    store.put(MARKER_NAME, marker(VOLUME))
    for name in (OWN, f"heads/{'0' * 32}", f"log/{'0' * 32}/{'0' * 16}-{'0' * 16}"):
        store.put(name, b"data")
    return store


def emptied(store: Store, deletion: Deletion, step: Callable[[], None] = lambda: None) -> Emptied:
    found = Emptied()
    empty(store, VOLUME, 0, deletion, found, step)
    return found


@pytest.fixture
def everything(tmp_path: Path) -> Iterator[First]:
    """A volume that has left objects of all kinds on its clouds."""
    limits = CheckpointLimits(look_seconds=0.05, quiet_seconds=0.2, least_bytes=1, restate_seconds=1.0)
    first = First(tmp_path / "first", clouds=4, limits=[limits])
    second = Second(tmp_path / "second", first)
    first.write("file", b"content" * 1000)
    first.volume.key_values.create_container("box", IN_CLOUDS)
    first.volume.key_values.of("box").put("box", "key", b"value")
    first.volume.key_values.create_container("own", "device")
    first.volume.key_values.of("own").put("own", "key", b"value" * 1000)
    first.make_kit()
    first.volume.clouds.add((tmp_path / "first" / "more").as_uri(), None)
    first.clouds.append(tmp_path / "first" / "more")
    second.volume.sync(PATIENCE, lambda done, total: None)
    second.close()
    first.volume.remove_device("second")
    first.sync()
    wanted = {"packs", "log", "heads", "epochs", "kits", "recovery", "kv", "atomic", "signposts", "signpost"}
    waits(first, lambda: wanted <= kinds_on(first.clouds))
    yield first
    first.close()


def kinds_on(clouds: Iterable[Path]) -> set[str]:
    return {path.relative_to(cloud).parts[0] for cloud in clouds for path in objects(cloud)}


def test_everything_goes_and_what_is_foreign_stays(everything: First) -> None:
    clouds, config = everything.clouds, VolumeConfig.load(everything.home, NAME)
    everything.close()
    names = [path.relative_to(cloud).as_posix() for cloud in clouds for path in objects(cloud)]
    assert all(map(is_own_name, names)), [name for name in names if not is_own_name(name)]
    foreign = [
        clouds[0] / "packs" / "readme.txt",
        clouds[1] / "heads" / "mine" / "file",
        clouds[2] / "volume.bak",
    ]
    for path in foreign:
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(b"not the volume's")
    told: list[int] = []
    found = empty_clouds(everything.home, config, Deletion(everything.home, NAME), told.append)
    assert sorted(path for cloud in clouds[:3] for path in objects(cloud)) == sorted(foreign)
    assert len(clouds) == 5 and not any(cloud.exists() for cloud in clouds[3:])
    assert [(one.trouble, one.place_gone) for _, one in found] == [("", False)] * 3 + [("", True)] * 2
    assert sum(one.objects for _, one in found) == len(names) - len(clouds)  # the markers go first


@pytest.mark.parametrize(
    "name",
    [
        "packs/readme",
        "volumes",
        "heads",
        "log/a/b",
        "signpost/x",
        f"packs/cd/ab{'0' * 62}.1",
        "backup/volume",
    ],
)
def test_other_names_are_foreign(name: str) -> None:
    assert not is_own_name(name)


def test_a_cloud_of_another_volume_is_left_alone(store: FileStore, deletion: Deletion) -> None:
    store.put(MARKER_NAME, marker(bytes(16)[::-1].replace(b"\0", b"\xff")))
    assert emptied(store, deletion).trouble == "it holds another volume"
    assert store.get(OWN, limit=9) == b"data"


def test_a_cloud_without_a_mark_is_left_alone(store: FileStore, deletion: Deletion) -> None:
    store.delete(MARKER_NAME)
    assert "no mark" in emptied(store, deletion).trouble
    assert store.get(OWN, limit=9) == b"data"


def test_it_goes_on_after_a_crash_when_the_mark_is_gone(
    store: FileStore, deletion: Deletion, tmp_path: Path
) -> None:
    class DiedError(Exception):
        pass

    class Dying(StoreWrapper):
        def delete_many(self, names: Iterable[str]) -> None:
            raise DiedError

    with pytest.raises(DiedError):
        emptied(Dying(store), deletion)
    assert not (tmp_path / "cloud" / MARKER_NAME).exists() and (tmp_path / "cloud" / OWN).exists()
    again = Deletion(Home.below(tmp_path / "home"), NAME)
    found = emptied(store, again)
    assert (found.objects, found.trouble, found.place_gone) == (3, "", True)
    assert emptied(store, Deletion(Home.below(tmp_path / "home"), NAME)).trouble == "", "it was emptied"


def test_what_others_put_meanwhile_is_found(store: FileStore, deletion: Deletion) -> None:
    late = [f"heads/{'1' * 32}", f"heads/{'2' * 32}"]

    def step() -> None:
        if late:
            store.put(late.pop(), b"head")

    assert emptied(store, deletion, step).objects == 5 and not late


def test_a_cloud_that_keeps_what_it_deletes_is_told(store: FileStore, deletion: Deletion) -> None:
    class Keeping(StoreWrapper):
        def delete_many(self, names: Iterable[str]) -> None:
            """Say that it is done."""

    found = emptied(Keeping(store), deletion)
    assert found.trouble.startswith("3 objects are there still")
    assert not deletion.is_emptied(0)


@pytest.mark.parametrize("error", [AuthError, TransientError])
def test_what_is_refused_or_away_is_told(
    store: FileStore, deletion: Deletion, error: type[AuthError]
) -> None:
    class Refusing(StoreWrapper):
        def delete_many(self, names: Iterable[str]) -> None:
            raise error(self.url, "delete", "", "not today")

    assert emptied(Refusing(store), deletion).trouble.startswith("not today")
    assert not deletion.is_emptied(0)
    assert emptied(store, deletion).trouble == ""


def test_one_who_hangs_up_ends_it(device: Device) -> None:
    class GoneError(Exception):
        pass

    def tell(done: int) -> None:
        raise GoneError

    device.close()
    config, deletion = VolumeConfig.load(device.home, NAME), Deletion(device.home, NAME)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("hybrisfs.clouds.emptying._Work.has_ended", lambda self, seconds: False)
        with pytest.raises(GoneError):
            empty_clouds(device.home, config, deletion, tell)
