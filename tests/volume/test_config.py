"""The configuration: strict, and never half written."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hybrisfs.errors import DamagedError, HybrisError, NewerFormatError, UnknownVolumeError, UsageError
from hybrisfs.home import Home
from hybrisfs.settings.config import (
    DEFAULT_NO_FETCH_PROGRAMS,
    CloudConfig,
    VolumeConfig,
    choose_redundancy,
    list_volumes,
)

CONFIG = VolumeConfig(
    "vol",
    bytes(range(16)),
    1,
    2,
    tuple(CloudConfig(number * 50, f"c{number}", f"file:///c{number}") for number in range(4)),
    1 << 30,
)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)


def path_of(home: Home) -> Path:
    return home.volume_config("vol") / "volume.json"


def facts(home: Home) -> dict[str, Any]:
    CONFIG.save(home)
    loaded: dict[str, Any] = json.loads(path_of(home).read_text())
    return loaded


def test_round_trip(home: Home) -> None:
    CONFIG.save(home)
    CONFIG.save(home)  # again, over the old one
    assert VolumeConfig.load(home, "vol") == CONFIG
    assert list_volumes(home) == [CONFIG]
    assert [path.name for path in path_of(home).parent.iterdir()] == ["volume.json"]


def test_links(home: Home) -> None:
    edited = facts(home)
    edited["links"] = {"port": 4711, "addresses": ["nas.example:1", "[2001:db8::7]:2"], "discover": False}
    path_of(home).write_text(json.dumps(edited))
    links = VolumeConfig.load(home, "vol").links
    assert (links.port, links.discover) == (4711, False)
    assert links.addresses == (("nas.example", 1), ("2001:db8::7", 2))
    del edited["links"]
    path_of(home).write_text(json.dumps(edited))
    assert VolumeConfig.load(home, "vol").links == CONFIG.links


def test_a_relay_among_the_addresses(home: Home) -> None:
    relay = f"relay://nas.example:8017/home?pin={64 * 'a'}"
    edited = facts(home)
    edited["links"] = {"port": 0, "addresses": ["nas.example:1", relay], "discover": True}
    path_of(home).write_text(json.dumps(edited))
    config = VolumeConfig.load(home, "vol")
    assert (config.links.addresses, config.links.relays) == ((("nas.example", 1),), (relay,))
    config.save(home)
    assert json.loads(path_of(home).read_text()) == edited
    edited["links"]["addresses"] = [relay[:-1]]
    path_of(home).write_text(json.dumps(edited))
    with pytest.raises(DamagedError, match="not the URL of a relay"):
        VolumeConfig.load(home, "vol")


@pytest.mark.parametrize(
    "links",
    [
        {"port": 65536, "addresses": [], "discover": True},
        {"port": 0, "addresses": ["nowhere"], "discover": True},
        {"port": 0, "addresses": [7], "discover": True},
        {"port": 0, "addresses": [], "discover": 1},
        {"port": 0, "addresses": []},
        [],
    ],
)
def test_links_that_make_no_sense(home: Home, links: object) -> None:
    edited = facts(home)
    edited["links"] = links
    path_of(home).write_text(json.dumps(edited))
    with pytest.raises(DamagedError):
        VolumeConfig.load(home, "vol")


@pytest.mark.parametrize("paused", [False, True, 1_800_000_000])
def test_transfers(home: Home, paused: bool | int) -> None:
    edited = facts(home)
    chosen = {"up": "08:00,512k 19:00,off", "down": "10M", "on_metered": "ignore", "paused": paused}
    edited["transfers"] = chosen
    path_of(home).write_text(json.dumps(edited))
    VolumeConfig.load(home, "vol").save(home)
    assert json.loads(path_of(home).read_text())["transfers"] == chosen
    del edited["transfers"]
    path_of(home).write_text(json.dumps(edited))
    assert VolumeConfig.load(home, "vol") == CONFIG


@pytest.mark.parametrize(
    "change",
    [{"up": "fast"}, {"up": None}, {"on_metered": True}, {"paused": -1}, {"paused": 1.5}, {"paused": None}],
)
def test_transfers_that_make_no_sense(home: Home, change: dict[str, object]) -> None:
    edited = facts(home)
    edited["transfers"] |= change
    path_of(home).write_text(json.dumps(edited))
    with pytest.raises(DamagedError):
        VolumeConfig.load(home, "vol")


def test_no_volume(home: Home) -> None:
    assert list_volumes(home) == []
    with pytest.raises(UnknownVolumeError):
        VolumeConfig.load(home, "vol")


@pytest.mark.parametrize("name", ["", "..", "a/b", ".hidden", "x" * 65, "tab\t"])
def test_what_is_no_name_of_a_volume(home: Home, name: str) -> None:
    with pytest.raises(UsageError):
        VolumeConfig.load(home, name)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(value=json_values, data=st.data())
def test_any_other_value_is_refused_or_taken_as_it_is(home: Home, value: Any, data: st.DataObject) -> None:
    """An entry of the wrong type or out of bounds is not bent into shape."""
    written = facts(home)
    entry = data.draw(st.sampled_from(sorted(written)))
    if entry == "clouds" and data.draw(st.booleans()):
        cloud = data.draw(st.sampled_from(written["clouds"]))
        cloud[data.draw(st.sampled_from(sorted(cloud)))] = value
    else:
        written[entry] = value
    path_of(home).write_text(json.dumps(written))
    try:
        VolumeConfig.load(home, "vol").save(home)
    except (DamagedError, NewerFormatError):
        return
    assert json.loads(path_of(home).read_text()) == written


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(content=st.binary(max_size=60) | st.just(b"[" * 100_000))
def test_any_bytes_are_refused(home: Home, content: bytes) -> None:
    CONFIG.save(home)
    path_of(home).write_bytes(content)
    with pytest.raises(DamagedError):
        VolumeConfig.load(home, "vol")


@pytest.mark.parametrize(
    "entry, value",
    [
        ("f", -1),
        ("k", 0),
        ("f", 2),
        ("f", True),
        ("k", 2.0),
        ("id", "00"),
        ("id", "zz" * 16),
        ("cache_bytes", (64 << 20) - 1),
        ("cache_bytes", "1 GiB"),
        ("clouds", []),
        ("format", 0),
    ],
)
def test_what_makes_no_sense_is_refused(home: Home, entry: str, value: object) -> None:
    path = path_of(home)
    written = facts(home)
    written[entry] = value
    path.write_text(json.dumps(written))
    with pytest.raises(DamagedError, match=r"volume\.json"):
        VolumeConfig.load(home, "vol")


@pytest.mark.parametrize("entry, value", [("number", 256), ("number", 50), ("name", "c1"), ("url", "")])
def test_clouds_that_make_no_sense_are_refused(home: Home, entry: str, value: object) -> None:
    written = facts(home)
    written["clouds"][3][entry] = value
    path_of(home).write_text(json.dumps(written))
    with pytest.raises(DamagedError):
        VolumeConfig.load(home, "vol")


def test_a_missing_entry_is_named(home: Home) -> None:
    written = facts(home)
    del written["cache_bytes"]
    path_of(home).write_text(json.dumps(written))
    with pytest.raises(DamagedError, match="cache_bytes"):
        VolumeConfig.load(home, "vol")


def test_a_newer_format_is_left_alone(home: Home) -> None:
    written = facts(home) | {"format": 2, "f": "something new"}
    path_of(home).write_text(json.dumps(written))
    with pytest.raises(NewerFormatError):
        VolumeConfig.load(home, "vol")


@pytest.mark.parametrize(
    "clouds, f, k, expected",
    [
        (1, None, None, (0, 1)),
        (2, None, None, (0, 2)),
        (3, None, None, (1, 1)),
        (4, None, None, (1, 2)),
        (7, None, None, (1, 5)),
        (5, 2, None, (2, 1)),
        (5, None, 1, (2, 1)),
        (5, None, 3, (1, 3)),
        (4, 0, 1, (0, 1)),
        (32, 15, 2, (15, 2)),
    ],
)
def test_choosing_redundancy(clouds: int, f: int | None, k: int | None, expected: tuple[int, int]) -> None:
    assert choose_redundancy(clouds, f, k) == expected


@given(st.integers(0, 40), st.none() | st.integers(-2, 40), st.none() | st.integers(-2, 40))
def test_whatever_is_chosen_fits_the_clouds(clouds: int, f: int | None, k: int | None) -> None:
    try:
        chosen = choose_redundancy(clouds, f, k)
    except HybrisError:
        return
    assert chosen[0] >= 0 and chosen[1] >= 1 and 2 * chosen[0] + chosen[1] <= clouds
    assert f in (None, chosen[0]) and k in (None, chosen[1])


def test_programs_that_fetch_nothing(home: Home) -> None:
    entries = facts(home)
    assert entries["no_fetch_programs"] == list(DEFAULT_NO_FETCH_PROGRAMS)
    entries["no_fetch_programs"] = ["my-indexer*"]
    path_of(home).write_text(json.dumps(entries))
    assert VolumeConfig.load(home, "vol").no_fetch_programs == ("my-indexer*",)
    del entries["no_fetch_programs"]  # as written before there was such an entry
    path_of(home).write_text(json.dumps(entries))
    assert VolumeConfig.load(home, "vol") == CONFIG
    for wrong in ("tumblerd", [""], [7], None, ["x"] * 1001):
        entries["no_fetch_programs"] = wrong
        path_of(home).write_text(json.dumps(entries))
        with pytest.raises(DamagedError, match="no_fetch_programs"):
            VolumeConfig.load(home, "vol")


def test_entries_that_nobody_knows_are_named_and_stay(home: Home) -> None:
    entries = facts(home)
    entries["cache_byte"] = 5
    entries["links"]["prot"] = [1]
    entries["clouds"][2]["drainin"] = True
    path_of(home).write_text(json.dumps(entries))
    config = VolumeConfig.load(home, "vol")
    assert config.strangers() == ["cache_byte", "links.prot", "clouds.drainin"]
    config.save(home)
    assert json.loads(path_of(home).read_text()) == entries


@pytest.mark.parametrize(
    "change, said",
    [
        ({"cache_bytes": "much"}, "'cache_bytes' is not a number"),
        ({"cache_bytes": 1}, "the cache ('cache_bytes') needs 64 MiB at least"),
        ({"notifications": 1}, "'notifications' is not true or false"),
        ({"links": []}, "'links' is not an object in braces"),
        ({"links": {"port": "1", "addresses": [], "discover": True}}, "'links.port' is not a number"),
        ({"no_fetch_programs": "all"}, "'no_fetch_programs' is not a list"),
        ({"stale_reads": "hide"}, "Invalid enum value 'hide' - at `stale_reads`"),
    ],
)
def test_the_message_names_the_entry_and_what_it_should_be(
    home: Home, change: dict[str, object], said: str
) -> None:
    path = path_of(home)
    path.write_text(json.dumps(facts(home) | change))
    with pytest.raises(DamagedError) as caught:
        VolumeConfig.load(home, "vol")
    assert caught.value.why == said
