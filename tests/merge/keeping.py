"""What honest devices wrote is kept, whatever a bad member signs: shown, or as a version of before."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from hybrisfs.dispersal.errors import ChunkUnavailable, IntegrityError
from hybrisfs.dispersal.pack import ChunkLocation
from hybrisfs.registers.tree import Content, decode_runs
from sync import DecodeError
from tests.merge.fleet import LARGEST, Device, NotHereError
from tests.tree.replay import read_content

__all__ = ["check_kept", "content_of", "is_to_be_had"]

_CONTENTS = (
    "SELECT value FROM register WHERE key >= x'63' AND key < x'64' "
    "UNION SELECT value FROM past WHERE key >= x'63' AND key < x'64'"
)
_PLACES = """
SELECT c.length, c.offset, c.sealed, p.id, p.k, p.n
FROM chunk c JOIN pack p ON p.number = c.pack WHERE c.id = ?1
UNION ALL
SELECT c.length, s.offset, s.sealed, p.id, p.k, p.n
FROM chunk c JOIN spare s ON s.chunk = c.number JOIN pack p ON p.number = s.pack WHERE c.id = ?1
"""


def content_of(device: Device, value: bytes) -> bytes | None:
    """The bytes that a content register's value names, wherever they are now; None when nobody ever had
    them, or they are too many."""
    try:
        content = Content.decode(value)
        return read_content(content, device.rig.plaintexts.__getitem__) if content.size <= LARGEST else None
    except (DecodeError, KeyError, AssertionError):
        return None


def check_kept(devices: Sequence[Device], tokens: Collection[bytes]) -> None:
    """Each token is shown by every device, or in a version that every device keeps, and can be read."""
    for device in devices:
        shown = b"".join(_shown(device))
        hidden = {token for token in tokens if token not in shown}
        if hidden:
            kept = b"".join(_kept(device, devices, hidden))
            lost = sorted(token for token in hidden if token not in kept)
            assert not lost or device.bare(), (
                f"{device.name} can show nobody what honest devices wrote: {lost}"
            )


def _shown(device: Device) -> Iterator[bytes]:
    for inode in device.walk().values():
        if inode.is_file:
            try:
                yield device.content(inode)
            except (NotHereError, ChunkUnavailable, OSError):
                continue  # whether it has to be readable is for the caller to say; a list may be nonsense


def _kept(device: Device, devices: Sequence[Device], tokens: Collection[bytes]) -> Iterator[bytes]:
    """Contents with some of *tokens* that stand in registers or did so once, as far as they can be read."""
    for (value,) in device.rig.db.rows.execute(_CONTENTS).fetchall():
        content = content_of(device, value or b"")
        if content is None or not any(token in content for token in tokens):
            continue
        if is_to_be_had(devices, value):
            yield content


def is_to_be_had(devices: Sequence[Device], value: bytes) -> bool:
    """Whether the bytes that a content register's value names can be read, by some way."""
    return all(any(_has(one, chunk) for one in devices) for chunk in _chunks(devices[0], value))


def _chunks(device: Device, value: bytes) -> Iterator[bytes]:
    content = Content.decode(value)
    for run in content.runs:
        if run.chunk is not None:
            yield run.chunk
            if content.depth:
                inner = decode_runs(device.rig.plaintexts[run.chunk])
                yield from (one.chunk for one in inner if one.chunk is not None)


def _has(device: Device, chunk: bytes) -> bool:
    """Whether the device has the bytes of a chunk, or knows where on the clouds they are."""
    query = "SELECT 1 FROM chunk WHERE id = ? AND segment IS NOT NULL"
    if device.rig.db.rows.execute(query, (chunk,)).fetchone():
        return True
    for length, offset, sealed, pack, k, n in device.rig.db.rows.execute(_PLACES, (chunk,)).fetchall():
        clouds = device.rig.clouds
        try:
            clouds.open(ChunkLocation(pack, k, n, clouds.find_shares(pack, n), chunk, length, offset, sealed))
        except (KeyError, IndexError, ValueError, IntegrityError):
            continue
        return True
    return False
