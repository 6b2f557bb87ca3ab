"""Registers of key-value services: what is read of them, whatever members write."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hybrisfs.merge.kv_services import MAX_SERVICE_URL, ServiceRecord, read_services, service_key
from hybrisfs.registers.values import Stamp, Value
from sync import DecodeError

DB, OTHER = "etcd://db1,db2", "etcd://other/notes"


def values(*encoded: bytes | None) -> list[Value]:
    return [Value(Stamp(clock, b"w" * 16), one) for clock, one in enumerate(encoded)]


@given(url=st.text(max_size=50).filter(str.isprintable), in_use=st.booleans())
def test_what_is_encoded_is_decoded(url: str, in_use: bool) -> None:
    record = ServiceRecord(url, in_use)
    assert ServiceRecord.decode(service_key(url), record.encode()) == record


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (service_key(OTHER), ServiceRecord(DB).encode()),
        (service_key(DB), ServiceRecord(DB).encode()[:-1]),
        (service_key(DB), b"\2" + ServiceRecord(DB).encode()[1:]),
        (service_key(DB), b"\1\2" + ServiceRecord(DB).encode()[2:]),
        (service_key("a\x1b"), ServiceRecord("a\x1b").encode()),
        (service_key("a" * 2000), b"\1\1\xd0\x0f" + b"a" * 2000),
    ],
)
def test_nothing_else_is(key: bytes, value: bytes) -> None:
    assert MAX_SERVICE_URL < 2000
    with pytest.raises(DecodeError):
        ServiceRecord.decode(key, value)


def test_a_service_is_in_use_when_any_of_concurrent_values_says_so() -> None:
    used, forgotten = ServiceRecord(DB).encode(), ServiceRecord(DB, in_use=False).encode()
    other = service_key(OTHER)
    assert read_services({service_key(DB): values(used, forgotten), other: values(b"nonsense", None)}) == [DB]
    assert read_services({service_key(DB): values(forgotten)}) == []
