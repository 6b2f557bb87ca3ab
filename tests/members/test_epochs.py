"""Grants: who gets the keys of an epoch, and what is refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hybrisfs.keys import MAX_EPOCH_NUMBER, EpochKeys
from hybrisfs.members.epochs import (
    check_grant,
    encode_grant,
    encode_grant_object,
    given_to,
    grant_name,
    open_grant,
    open_grant_object,
    read_epochs,
    write_epochs,
)
from sync import DecodeError, DeviceKey, Members, Reader, Writer
from sync.identity import BOX_OVERHEAD, BOX_SEED_SIZE, box_for

VOLUME = bytes(range(16))
A, B, C = (DeviceKey.from_seed(bytes([number]) * 32) for number in (1, 2, 3))
FIRST = EpochKeys.first()
SECOND = EpochKeys.after(0, [C.device_id])
THIRD = EpochKeys.after(1, [C.device_id, bytes(16)])
EPOCHS = [FIRST, SECOND, THIRD]
GRANT = encode_grant(VOLUME, EPOCHS, Members([A.public, B.public], [C.public]))
OBJECT = encode_grant_object(THIRD.id, GRANT, A)


def opened(data: bytes, device: DeviceKey = B, epoch: bytes = THIRD.id) -> list[EpochKeys]:
    return open_grant_object(data, epoch, VOLUME, A.public, A.device_id, device)


def test_members_get_all_later_epochs_and_others_none() -> None:
    assert open_grant(GRANT, VOLUME, A) == open_grant(GRANT, VOLUME, B) == [SECOND, THIRD]
    assert open_grant(GRANT, VOLUME, C) == []
    assert opened(OBJECT) == [SECOND, THIRD]
    assert opened(OBJECT, C) == []
    for epoch in EPOCHS:
        for secret in (epoch.data, epoch.metadata):
            assert secret not in OBJECT


def test_who_was_granted_an_epoch_before_is_named_and_given_nothing() -> None:
    grant = encode_grant(VOLUME, EPOCHS, Members([A.public]), [C.device_id])
    check_grant(grant)
    assert given_to(grant) == {A.device_id, C.device_id}
    assert open_grant(grant, VOLUME, A) == [SECOND, THIRD]
    assert open_grant(grant, VOLUME, C) == []
    again = encode_grant(VOLUME, EPOCHS, Members([A.public, C.public]), [C.device_id])
    assert open_grant(again, VOLUME, C) == [SECOND, THIRD]


def test_a_grant_is_for_one_volume_epoch_and_writer() -> None:
    with pytest.raises(DecodeError):
        open_grant(GRANT, bytes(16), A)
    with pytest.raises(DecodeError, match="another epoch or machine"):
        opened(OBJECT, epoch=SECOND.id)
    with pytest.raises(DecodeError, match="another epoch or machine"):
        open_grant_object(OBJECT, THIRD.id, VOLUME, B.public, B.device_id, A)
    with pytest.raises(DecodeError, match="did not sign"):
        open_grant_object(OBJECT, THIRD.id, VOLUME, B.public, A.device_id, A)
    assert grant_name(THIRD.id, A.device_id) == f"epochs/{THIRD.id.hex()}/{A.device_id.hex()}"


@given(st.integers(0, len(OBJECT) - 1), st.integers(1, 255))
def test_every_altered_byte_is_refused(position: int, change: int) -> None:
    altered = bytearray(OBJECT)
    altered[position] ^= change
    with pytest.raises(DecodeError):
        opened(bytes(altered))


@given(st.binary(max_size=300) | st.integers(0, len(GRANT)).map(lambda end: GRANT[:end]))
def test_any_bytes_are_refused(data: bytes) -> None:
    if data != GRANT:
        with pytest.raises(DecodeError):
            open_grant(data, VOLUME, A)
    with pytest.raises(DecodeError):
        opened(data)


def test_epochs_are_read_strictly() -> None:
    def decoded(*epochs: EpochKeys) -> list[EpochKeys]:
        out = Writer()
        write_epochs(out, epochs)
        return read_epochs(Reader(out.getvalue()))

    assert decoded(*EPOCHS) == EPOCHS
    for wrong in ((SECOND, FIRST), (FIRST, FIRST), (SECOND, EpochKeys(SECOND.id, 5, bytes(32), bytes(32)))):
        with pytest.raises(DecodeError):
            decoded(*wrong)


def test_who_has_no_key_that_is_one_does_not_keep_others_from_theirs() -> None:
    odd = bytes(31) + b"\2"
    grant = encode_grant(VOLUME, EPOCHS, Members([A.public, odd, B.public]))
    assert open_grant(grant, VOLUME, A) == open_grant(grant, VOLUME, B) == [SECOND, THIRD]
    with pytest.raises(DecodeError):
        box_for(odd, b"", bytes(BOX_SEED_SIZE))


def test_what_has_not_the_form_of_a_grant_is_seen_by_whom_it_is_not_for() -> None:
    check_grant(GRANT)
    box = BOX_OVERHEAD + 32 + 16
    first, second = (GRANT[2 + box * number : 2 + box * (number + 1)] for number in range(2))
    rest = GRANT[2 + 2 * box :]
    assert b"\1\2" + first + second + rest == GRANT
    for wrong in (b"\1\2" + second + first + rest, b"\1\2" + first + first + rest, GRANT + b"\0", GRANT[:-1]):
        with pytest.raises(DecodeError):
            check_grant(wrong)
        with pytest.raises(DecodeError):
            open_grant(wrong, VOLUME, A)


def test_the_highest_number_is_the_same_wherever_numbers_are_read() -> None:
    highest = EpochKeys.after(MAX_EPOCH_NUMBER, [])
    out = Writer()
    write_epochs(out, [highest])
    assert [one.number for one in read_epochs(Reader(out.getvalue()))] == [MAX_EPOCH_NUMBER]
    out = Writer()
    write_epochs(out, [EpochKeys(b"high", MAX_EPOCH_NUMBER + 1, bytes(32), bytes(32))])
    with pytest.raises(DecodeError):
        read_epochs(Reader(out.getvalue()))
