"""The names of objects: what they tell, in which order they come, and which ones are nobody's."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from backends.store import is_name
from hybrisfs.quorums.names import (
    Accepted,
    Ballot,
    Kind,
    Names,
    Time,
    Version,
    commitment_to,
)

NAMES = Names(b"n" * 32, b"s" * 16).of_register("box", b"key")
NONCE = b"o" * 16

numbers = st.integers(0, (1 << 64) - 1)
times = st.builds(Time, st.integers(0, (1 << 48) - 1), numbers, st.integers(0, (1 << 24) - 1))
ballots = st.builds(Ballot, st.integers(0, (1 << 32) - 1), numbers)
hashes = st.binary(min_size=16, max_size=16)
versions = st.builds(
    Version,
    times,
    numbers,
    st.integers(0, 32),
    st.integers(0, 1 << 27),
    hashes,
    hashes,
    st.sampled_from(Kind),
)


@given(versions, hashes, times, ballots)
def test_a_name_tells_what_it_was_made_of(version: Version, nonce: bytes, time: Time, ballot: Ballot) -> None:
    kind = Kind.PROVEN if version.kind is Kind.COUNTED else version.kind
    proven = version._replace(commitment=commitment_to(nonce), kind=kind)
    accepted = Accepted(ballot, version.write, nonce)
    names = [
        NAMES.of_version(version),
        NAMES.of_proof(proven, nonce),
        NAMES.of_ballot(time, ballot),
        NAMES.of_accepted(time, accepted),
        NAMES.of_hold(ballot.proposer),
    ]
    assert all(is_name(name) for name in names)
    seen = NAMES.read(names)
    assert seen.versions == {version}
    assert seen.proofs == {proven: nonce}
    assert seen.ballots == {time: {ballot}}
    assert seen.accepted == {time: {accepted}}
    assert seen.holds == {ballot.proposer}
    assert [NAMES.time_of(name) for name in names[:-1]] == [version.time, version.time, time, time]


@given(st.lists(versions, min_size=2, max_size=8))
def test_the_latest_comes_first(some: list[Version]) -> None:
    listed = sorted(NAMES.of_version(one) for one in some)
    assert [NAMES.time_of(name) for name in listed] == sorted((one.time for one in some), reverse=True)


@given(versions, st.data())
def test_who_has_no_key_can_make_no_name(version: Version, data: st.DataObject) -> None:
    name = NAMES.of_version(version)
    position = data.draw(st.integers(len(NAMES.prefix), len(name) - 1))
    letter = data.draw(st.sampled_from(sorted(set("0123456789abcdefghijklmnopqrstuv") - {name[position]})))
    other = name[:position] + letter + name[position + 1 :]
    assert NAMES.time_of(other) is None
    assert not NAMES.read([other]).versions


@given(versions)
def test_no_name_passes_for_one_of_another_register(version: Version) -> None:
    name = NAMES.of_version(version)
    for other in (
        Names(b"n" * 32, b"s" * 16).of_register("box", b"other"),
        Names(b"n" * 32, b"s" * 16).of_register("other", b"key"),
        Names(b"n" * 32, b"t" * 16).of_register("box", b"key"),
        Names(b"m" * 32, b"s" * 16).of_register("box", b"key"),
    ):
        moved = other.prefix + name[len(NAMES.prefix) :]
        assert other.time_of(moved) is None


@given(st.text(max_size=140) | st.text("0123456789abcdefghijklmnopqrstuv_+- ", max_size=140))
def test_what_a_cloud_makes_up_is_left_out(text: str) -> None:
    assert NAMES.time_of(NAMES.prefix + text) is None


def test_a_version_is_not_proven_by_another_nonce() -> None:
    version = Version(Time(1, 2, 0), 2, 1, 40, b"v" * 16, commitment_to(NONCE))
    seen = NAMES.read([NAMES.of_version(version), NAMES.of_proof(version, b"x" * 16)])
    assert version not in seen.proofs
