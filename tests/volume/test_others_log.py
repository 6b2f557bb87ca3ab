"""Heads of other devices: which of those that clouds show and keep is put where."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from unittest import mock

import pytest

from hybrisfs.clouds.others_log import OthersLog
from hybrisfs.dispersal.errors import Finding, IntegrityError
from hybrisfs.dispersal.upkeep import Repair
from sync import DeviceKey, Head, Members, OneKey, SealKeys, VersionVector, encode_head
from sync.beacons import Sighting
from sync.seal import EpochKey

VOLUME = bytes(range(16))
AUTHOR, OWN = DeviceKey.generate(), DeviceKey.generate()
KEYS = OneKey(b"s" * 32)


class Later:
    """The keys after a removal."""

    def newest(self) -> EpochKey:
        return EpochKey(b"late", b"l" * 32)

    def find(self, epoch: bytes) -> bytes | None:
        return None


def head(serial: int, keys: SealKeys = KEYS) -> bytes:
    vector = VersionVector({AUTHOR.device_id: serial})
    one = Head(VOLUME, AUTHOR.device_id, serial, serial, vector, (), None)
    return encode_head(one, AUTHOR, keys, bytes(24))


@dataclass
class Clouds:
    """What clouds have under the one name, and what they keep of it, the newest first."""

    present: dict[int, bytes | None]
    kept: dict[int, list[bytes]]

    def look_at(
        self,
        cloud: int,
        name: str,
        limit: int,
        verify: Callable[[bytes], object],
        take: Callable[[bytes], object] | None = None,
        *,
        acknowledged: bool,
    ) -> Finding | None:
        assert not acknowledged, "nobody here knows what others have put where"
        data = self.present[cloud]
        if data is None:
            return Finding("missing", name)
        try:
            (take or verify)(data)
        except (IntegrityError, ValueError) as error:
            return Finding("corrupt", str(error))
        return None

    def recall(
        self, cloud: int, name: str, limit: int, take: Callable[[bytes], object], most: int = 16
    ) -> bool:
        for data in self.kept.get(cloud, []):
            try:
                take(data)
            except (IntegrityError, ValueError):
                continue
            return True
        return False

    def put(self, cloud: int, name: str, data: bytes) -> None:
        self.present[cloud] = data

    def put_if_absent(self, cloud: int, name: str, data: bytes) -> None:
        self.present[cloud] = self.present[cloud] or data

    def names(self, cloud: int, prefix: str, most: int) -> list[str]:
        return []

    def excuse(self, cloud: int, name: str) -> None:
        """It is not accused."""


NOW_NS = 10**18


def others_log(clouds: Clouds, seen: bytes | None, seconds: float) -> OthersLog:
    """Of a device that saw the newest head, and its author, so long ago."""
    fs = mock.MagicMock()
    fs.environment.time_ns = lambda: NOW_NS
    tx = fs.state.transaction().__enter__()
    tx.members.writers.return_value = Members([AUTHOR.public, OWN.public])
    sighting = Sighting(seen, NOW_NS - round(seconds * 10**9))
    tx.sightings.load.return_value = {AUTHOR.device_id: sighting}
    both = mock.Mock(copies=lambda: 2)
    return OthersLog(fs, OWN.device_id, VOLUME, KEYS, clouds, mock.Mock(), both)  # type: ignore[arg-type]


def mend(clouds: Clouds, seen: bytes | None = None, seconds: float = 3600.0) -> list[Repair]:
    one = others_log(clouds, seen, seconds)
    return [repair for run in one.mends(clouds.present, {*clouds.present}) for repair in run()]


def scrubbed(clouds: Clouds, seen: bytes | None = None, seconds: float = 3600.0) -> dict[int, str]:
    """What is wrong, by cloud."""
    found = [pair for run in others_log(clouds, seen, seconds).looks(clouds.present) for pair in run()]
    return {cloud: finding.kind for cloud, finding in found if finding is not None}


def test_the_newest_that_is_known_takes_the_place_of_what_is_wrong() -> None:
    clouds = Clouds(
        {0: None, 1: b"nothing", 2: head(3)}, {0: [b"?", head(2)], 1: [b"nothing", head(4), head(1)]}
    )
    assert [repair.now_at for repair in mend(clouds)] == [0, 1]
    assert clouds.present == {0: head(4), 1: head(4), 2: head(3)}


def test_what_was_seen_here_is_no_worse_than_what_clouds_keep() -> None:
    clouds = Clouds({0: None, 1: None}, {0: [head(2)]})
    mend(clouds, seen=head(5))
    assert clouds.present == {0: head(5), 1: head(5)}


def test_an_earlier_head_than_was_seen_is_wrong() -> None:
    clouds = Clouds({0: head(2), 1: head(5)}, {0: [head(2)]})
    assert [repair.cloud for repair in mend(clouds, seen=head(4))] == [0]
    assert clouds.present == {0: head(5), 1: head(5)}


@pytest.mark.parametrize("kept", [False, True])
def test_a_head_that_nobody_here_can_read_yet_is_left_alone(kept: bool) -> None:
    """It is sealed with the keys of an epoch that this device has still to hear of."""
    later = head(9, Later())
    clouds = Clouds({0: None if kept else later, 1: None}, {0: [later, head(2)]})
    assert mend(clouds, seen=head(5)) == []
    assert clouds.present == {0: None if kept else later, 1: None}


def test_where_there_never_was_one_nothing_is_put() -> None:
    clouds = Clouds({0: None, 1: None}, {})
    assert mend(clouds) == []
    assert clouds.present == {0: None, 1: None}


def test_an_earlier_head_is_not_called_corrupt() -> None:
    """Its machine may lack the secrets of this cloud: then only a repair put a head there."""
    assert scrubbed(Clouds({0: head(2), 1: head(5), 2: b"?", 3: None}, {}), seen=head(4)) == {
        0: "stale",
        2: "corrupt",
        3: "missing",
    }


def test_a_head_that_is_being_replaced_is_not_wrong_and_not_touched() -> None:
    """Its machine wrote a moment ago, to one cloud after the other."""
    clouds = Clouds({0: head(2), 1: head(5)}, {})
    assert scrubbed(clouds, seen=head(5), seconds=1.0) == {}
    assert mend(clouds, seen=head(5), seconds=1.0) == []
    assert clouds.present == {0: head(2), 1: head(5)}


def test_heads_that_were_set_back_on_all_clouds_are_wrong_at_once() -> None:
    clouds = Clouds({0: head(2), 1: head(3)}, {})
    assert scrubbed(clouds, seen=head(5), seconds=1.0) == {0: "stale", 1: "stale"}
    mend(clouds, seen=head(5), seconds=1.0)
    assert clouds.present == {0: head(5), 1: head(5)}
