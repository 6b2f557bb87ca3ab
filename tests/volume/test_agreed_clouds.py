"""What registers make of the configuration, and signposts."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from backends.credentials import NO_CREDENTIALS
from backends.errors import PermanentError
from hybrisfs.clouds.agreed_clouds import agreed_config, open_cloud
from hybrisfs.clouds.signpost import decode_signpost, encode_signpost
from hybrisfs.home import Home
from hybrisfs.merge.cloud_records import CloudRecord, CloudState, RedundancyRecord, entries_of
from hybrisfs.settings.config import MAX_CLOUDS, CloudConfig, VolumeConfig
from sync import DecodeError, DeviceKey, Members, OneKey
from sync.seal import NONCE_SIZE

CLOUDS = tuple(CloudConfig(number, f"c{number}", f"file:///c{number}") for number in range(3))
CONFIG = VolumeConfig("vol", bytes(16), 1, 1, CLOUDS)
RECORDS = {one.number: CloudRecord(one.name, one.url) for one in CLOUDS}
KEY = OneKey(b"k" * 32)


def states(config: VolumeConfig) -> list[tuple[int, bool, bool]]:
    return [(one.number, one.draining, one.proven) for one in config.clouds]


def test_without_registers_nothing_changes() -> None:
    assert agreed_config(CONFIG, {}, RedundancyRecord(0, 1), ()) is CONFIG


def test_clouds_come_drain_and_go() -> None:
    records = {
        0: CloudRecord("c0", "file:///c0", CloudState.DRAINING),
        1: CloudRecord("c1", "file:///c1", CloudState.LOST),
        2: CloudRecord("c2", "file:///c2", CloudState.GONE),
        3: CloudRecord("new", "file:///new"),
    }
    agreed = agreed_config(CONFIG, records, RedundancyRecord(0, 2), ())
    assert states(agreed) == [(0, True, True), (3, False, False)]
    assert (agreed.f, agreed.k, agreed.shared) == (0, 2, True)
    assert states(agreed_config(CONFIG, records, None, {1, 2})) == [
        (0, True, True),
        (2, True, True),  # something is on record there still
        (3, False, False),
    ]


def test_a_number_that_means_another_place_is_not_trusted() -> None:
    agreed = agreed_config(CONFIG, RECORDS | {1: CloudRecord("c1", "file:///elsewhere")}, None, ())
    assert states(agreed)[1] == (1, False, False)


SFTP = "sftp://me@nas/folder?known_hosts=/home/a/known"


def test_what_a_register_names_of_this_machine_does_not_count(home: Home) -> None:
    records = RECORDS | {
        1: CloudRecord("c1", "s3://bucket?profile=work&endpoint=https://evil.example"),
        3: CloudRecord("nas", SFTP),
        4: CloudRecord("other", "sftp://me@nas/other"),
    }
    agreed = agreed_config(CONFIG, records, None, ())
    assert {one.number: one.heard for one in agreed.clouds} == {
        0: False,
        1: True,
        2: False,
        3: True,
        4: False,
    }
    agreed.save(home)
    assert VolumeConfig.load(home, "vol") == agreed
    cloud = open_cloud(next(one for one in agreed.clouds if one.number == 3), NO_CREDENTIALS)
    assert cloud.store.url == "sftp://me@nas/folder"


def test_what_was_typed_here_counts_until_another_url_comes(home: Home) -> None:
    typed = replace(CONFIG, clouds=(*CLOUDS, CloudConfig(3, "nas", SFTP)))
    records = RECORDS | {3: CloudRecord("renamed", SFTP, CloudState.DRAINING)}
    agreed = agreed_config(typed, records, None, ())
    assert not agreed.clouds[3].heard
    assert open_cloud(agreed.clouds[3], NO_CREDENTIALS).store.url == SFTP
    again = agreed_config(agreed, records | {3: CloudRecord("nas", f"{SFTP}-evil")}, None, ())
    assert again.clouds[3].heard
    assert agreed_config(again, records, None, ()).clouds[3].heard, "what was typed is not remembered"


def test_names_differ_and_one_place_gets_one_share() -> None:
    records = RECORDS | {9: CloudRecord("c0", "file:///c1")}
    agreed = agreed_config(CONFIG, records, None, ())
    assert [one.name for one in agreed.clouds] == ["c0", "c1", "c2", "c0-2"]
    assert [one.draining for one in agreed.clouds] == [False, False, False, True]


def test_a_flood_of_clouds_is_bounded_and_spares_the_known() -> None:
    flood = {number: CloudRecord(f"x{number}", f"file:///x{number}") for number in range(3, 256)}
    agreed = agreed_config(CONFIG, RECORDS | flood, None, ())
    assert len(agreed.clouds) == MAX_CLOUDS
    assert agreed.clouds[:3] == CLOUDS


def test_the_configuration_is_kept_as_agreed(home: Home) -> None:
    records = {2: CloudRecord("c2", "file:///c2", CloudState.DRAINING), 7: CloudRecord("x", "file:///c2")}
    agreed = agreed_config(CONFIG, records, RedundancyRecord(3, 4), ())
    agreed.save(home)
    assert VolumeConfig.load(home, "vol") == agreed


@pytest.mark.parametrize("url", ["gopher://x", "file://host/relative", "s3://", "not a URL", "http://[::1"])
def test_a_url_that_means_nothing_here_fails_when_it_is_used(url: str) -> None:
    cloud = open_cloud(CloudConfig(3, "odd", url), NO_CREDENTIALS)
    with pytest.raises(PermanentError, match="cloud replace"):
        cloud.store.get("volume", limit=100)
    cloud.store.close()


def test_signposts() -> None:
    device, other = DeviceKey.generate(), DeviceKey.generate()
    members = Members([device.public])
    entries = entries_of(RECORDS, RedundancyRecord(1, 1))
    data = encode_signpost(entries, bytes(16), KEY, device, bytes(NONCE_SIZE))
    assert decode_signpost(data, bytes(16), KEY, members).clouds == RECORDS
    for wrong in (b"", data[:-1], data[:9] + bytes([data[9] ^ 1]) + data[10:], b"HFSP\0\1" + data[6:]):
        with pytest.raises(DecodeError):
            decode_signpost(wrong, bytes(16), KEY, members)
    with pytest.raises(DecodeError):
        decode_signpost(data, bytes(15) + b"x", KEY, members)
    with pytest.raises(DecodeError, match="no member signed"):
        decode_signpost(data, bytes(16), KEY, Members([other.public], [device.public]))
    with pytest.raises(DecodeError, match="no member signed"):
        decode_signpost(
            encode_signpost(entries, bytes(16), KEY, other, bytes(NONCE_SIZE)), bytes(16), KEY, members
        )
