"""What the messages say: exact round trips, and nothing hostile gets through."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from msgspec.structs import replace

from hybrisfs.errors import UsageError
from hybrisfs.pairing.messages import Grant, GrantedCloud, Offer, Peer, Reveal, check_device_name
from sync.codec import DecodeError
from tests.pairing.support import GRANT, INVITER, flip

RECORD = GRANT.encode()
READER = RECORD + b"\x01"  # the same for a device that only reads


def test_round_trips() -> None:
    assert Grant.decode(RECORD) == GRANT
    assert Grant.decode(READER) == replace(GRANT, reader=True)
    peer = Peer(INVITER.public, "Anns Läptop")
    offer = Offer(bytes(32), peer, GRANT.volume, "photos")
    assert Offer.decode(offer.encode()) == offer
    reveal = Reveal(bytes(32), peer)
    assert Reveal.decode(reveal.encode()) == reveal


@given(
    st.integers(min_value=0),
    st.integers(0, len(RECORD) - 1),
    st.binary(min_size=1, max_size=9).filter(lambda more: RECORD + more != READER),
)
@example(bit=0, length=0, more=b"\x00")  # no second way to say that it may do more than read
def test_hostile_records_are_decoded_strictly(bit: int, length: int, more: bytes) -> None:
    for data in (RECORD[:length], RECORD + more, READER + more):
        with pytest.raises(DecodeError):
            Grant.decode(data)
    try:
        changed = Grant.decode(flip(RECORD, bit))
    except DecodeError:
        return
    assert changed.encode() == flip(RECORD, bit)


@given(st.binary(max_size=200))
def test_garbage_is_refused(data: bytes) -> None:
    for decode in (Grant.decode, Offer.decode, Reveal.decode):
        try:
            record = decode(data)
        except DecodeError:
            continue
        assert record.encode() == data


@pytest.mark.parametrize(
    "grant",
    [
        replace(GRANT, name="../../etc"),
        replace(GRANT, name=""),
        replace(GRANT, f=2),  # impossible with three clouds
        replace(GRANT, clouds=()),
        replace(GRANT, clouds=(GRANT.clouds[0], GRANT.clouds[0], GRANT.clouds[1])),
        replace(GRANT, clouds=(*GRANT.clouds[:2], GrantedCloud(7, "cloud\n", "file:///x"))),
        replace(GRANT, clouds=(*GRANT.clouds[:2], GrantedCloud(7, "x", "file:///x", bytes(20_000)))),
        replace(GRANT, members=(INVITER.public, INVITER.public)),
        replace(GRANT, volume=bytes(15)),
        replace(GRANT, members=(bytes(33),)),
    ],
)
def test_what_no_reader_accepts_is_not_written(grant: Grant) -> None:
    with pytest.raises(ValueError):
        grant.encode()


@pytest.mark.parametrize("name", ["", "  ", "a\nb", "\x1b[31m", "x" * 256])
def test_names_that_cannot_be_shown(name: str) -> None:
    with pytest.raises(UsageError, match="not a name for a machine"):
        check_device_name(name)


def test_secrets_are_not_shown() -> None:
    assert "geheim" not in repr(GRANT)
    assert repr(GRANT.keys.dedup) not in repr(GRANT)
    assert not any(repr(epoch.data) in repr(GRANT) for epoch in GRANT.keys.epochs)
