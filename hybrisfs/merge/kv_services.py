"""Where the key-value stores of a volume are that several machines use, as registers tell.

==========  ==========================  =================================================================
register    key                         value
==========  ==========================  =================================================================
service     ``z`` first 8 bytes of the  version u8 = 1, state u8 (1 in use, 0 forgotten),
            BLAKE3 hash of the URL      URL (blob <= 1024, UTF-8)
==========  ==========================  =================================================================

A URL holds no secret. Of concurrent values one that says that it is in use counts.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from blake3 import blake3
from msgspec import Struct

from hybrisfs.kinds import SERVICE
from hybrisfs.registers.values import Value
from sync.codec import DecodeError, Reader, Writer

__all__ = ["MAX_SERVICE_URL", "ServiceRecord", "read_services", "service_key"]

MAX_SERVICE_URL: Final = 1024
_VERSION: Final = 1


def service_key(url: str) -> bytes:
    """The register of a service."""
    return SERVICE.key(blake3(url.encode()).digest(SERVICE.size - 1))


class ServiceRecord(Struct, frozen=True):
    """A metadata service that containers of the volume may be in."""

    url: str
    in_use: bool = True

    def encode(self) -> bytes:
        return Writer().u8(_VERSION).u8(self.in_use).blob(self.url.encode()).getvalue()

    @staticmethod
    def decode(key: bytes, value: bytes) -> ServiceRecord:
        """Raises DecodeError, also when the key is that of another URL."""
        reader = Reader(value)
        if reader.u8() != _VERSION:
            raise DecodeError("a service record of another version")
        state, url = reader.u8(), reader.blob(MAX_SERVICE_URL)
        reader.end()
        try:
            record = ServiceRecord(url.decode(), bool(state))
        except UnicodeDecodeError as error:
            raise DecodeError("the URL of a service is not text") from error
        if state > 1 or not record.url.isprintable() or service_key(record.url) != key:
            raise DecodeError("a service record that no correct machine writes")
        return record


def read_services(registers: Mapping[bytes, Iterable[Value]]) -> list[str]:
    """The URLs of the services in use, sorted. *registers*: those of the kind, with their latest values."""
    found: set[str] = set()
    for key, values in registers.items():
        for one in values:
            try:
                record = ServiceRecord.decode(key, one.value or b"")
            except DecodeError:
                continue
            if record.in_use:
                found.add(record.url)
    return sorted(found)
