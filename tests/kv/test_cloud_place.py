"""How people name the clouds that keep keys, and how the log does."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hybrisfs.api.key_value import Place
from hybrisfs.errors import UsageError
from hybrisfs.kv.cloud_place import CloudPlace, is_on_clouds
from hybrisfs.quorums.thresholds import PASIS, POWERSTORE, Thresholds


@pytest.mark.parametrize(
    ("wish", "clouds", "f", "url"),
    [
        ("clouds", 4, 1, "clouds:powerstore/0,1,2,3/1,1"),
        ("clouds:powerstore", 7, 2, "clouds:powerstore/0,1,2,3,4,5,6/2,2"),
        ("clouds:pasis", 5, 1, "clouds:pasis/0,1,2,3,4/1,1"),
        ("clouds:pasis,b=0", 3, 1, "clouds:pasis/0,1,2/1,0"),
        ("clouds:powerstore/5,6,7,9/1,1", 3, 1, "clouds:powerstore/5,6,7,9/1,1"),
    ],
)
def test_what_people_wish(wish: str, clouds: int, f: int, url: str) -> None:
    assert is_on_clouds(wish)
    place = CloudPlace.wished(wish, reversed(range(clouds)), f)
    assert place.url == url
    assert CloudPlace.parse(url) == place


@pytest.mark.parametrize(
    ("wish", "clouds", "why"),
    [
        ("clouds", 3, "need 4 clouds.*the volume has 3"),
        ("clouds:pasis", 4, "need 5 clouds"),
        ("clouds:pasis,b=0", 2, "need 3 clouds"),
        ("clouds:pasis,b=2", 9, "not 2 can lie"),
        ("clouds:powerstore,b=0", 9, "no way to keep keys on the clouds"),
        ("clouds:paxos", 9, "no way to keep keys on the clouds"),
        ("clouds", 33, "more than 32 clouds"),
    ],
)
def test_what_cannot_be(wish: str, clouds: int, why: str) -> None:
    with pytest.raises(UsageError, match=why):
        CloudPlace.wished(wish, range(clouds), 1)


@pytest.mark.parametrize(
    "url",
    [
        "clouds:powerstore/0,1,2/1,1",
        "clouds:powerstore/0,1,2,2/1,1",
        "clouds:powerstore/3,2,1,0/1,1",
        "clouds:powerstore/0,1,2,65536/1,1",
        "clouds:powerstore/0,1,2,3/0,1",
        "clouds:powerstore/0,1,2,3/1",
        "clouds:powerstore/,1,2,3/1,1",
        "clouds:pasis/0,1,2,3/1,1",
        "clouds:powerstore/" + ",".join(map(str, range(40))) + "/1,1",
        "clouds:powerstore/0,1,2,3/1,1 ",
        "clouds",
    ],
)
def test_what_no_correct_device_writes_into_the_log(url: str) -> None:
    with pytest.raises(UsageError):
        CloudPlace.parse(url)


@pytest.mark.parametrize(
    ("wish", "clouds", "f", "shown"),
    [
        ("clouds", 4, 1, "clouds (powerstore, 4 clouds, 1 may fail or lie)"),
        ("clouds:powerstore", 7, 2, "clouds (powerstore, 7 clouds, 2 may fail or lie)"),
        ("clouds:pasis,b=0", 3, 1, "clouds (pasis, 3 clouds, 1 may fail, none may lie)"),
        ("clouds:pasis,b=1", 7, 2, "clouds (pasis, 7 clouds, 2 may fail, 1 of these may lie)"),
    ],
)
def test_people_read_how_many_clouds_there_are_and_what_these_may_do(
    wish: str, clouds: int, f: int, shown: str
) -> None:
    assert Place(CloudPlace.wished(wish, range(clouds), f).url, [], "").shown == shown


@pytest.mark.parametrize("place", ["device", "log", "clouds:later/1,2", "etcds://db1,db2/kv?names=sealed"])
def test_other_places_are_shown_as_they_are(place: str) -> None:
    assert Place(place, [], "").shown == place


@given(st.text(max_size=60))
def test_whatever_a_member_writes_there_is_refused_or_read(text: str) -> None:
    try:
        place = CloudPlace.parse(f"clouds:{text}")
    except UsageError:
        return
    assert CloudPlace.parse(place.url) == place


@given(st.integers(0, 5), st.integers(0, 5), st.integers(0, 12))
def test_thresholds_are_those_of_the_papers(t: int, less: int, more: int) -> None:
    """PASIS 4.4 (1) to (5); PoWerStore: what two quorums have in common has a correct cloud."""
    b = max(0, t - less)
    pasis = Thresholds(PASIS, 2 * t + 2 * b + 1 + more, t, b)
    q_c = pasis.complete - b
    assert t + b + 1 <= q_c <= pasis.clouds - t - b
    assert pasis.repairable == q_c - t
    assert 1 <= pasis.k <= q_c - t
    ours = Thresholds(POWERSTORE, 3 * t + 1 + more, t, b)
    assert 2 * ours.quorum - ours.clouds >= t + 1
    assert 1 <= ours.k <= ours.quorum - t
    for one in (pasis, ours):
        one.check()
