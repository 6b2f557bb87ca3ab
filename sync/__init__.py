"""Depot's metadata plane: who may write, what is written, what is accepted, what travels.

Everything here is sans-IO: the caller brings the time, the random bytes and the stored bytes, and
keeps what comes back. Names of this facade are the public interface; the rest is inside.
"""

from __future__ import annotations

from sync.codec import Buffer, Reader, Writer
from sync.errors import (
    DecodeError,
    LimitError,
    LogStoreError,
    NewerFormatError,
    NotAMemberError,
    SyncError,
)
from sync.fork import ForkProof, verify_fork_proof
from sync.hashing import HASH_SIZE, ZERO_HASH
from sync.head import Extent, Head, decode_head, encode_head, head_name
from sync.history import history_hash
from sync.identity import DEVICE_ID_SIZE, DeviceKey, Members, device_id_from_hex, device_id_of
from sync.log import Accepted, AcceptedLog, Duplicate, Forked, LogState, Outcome, Reason, Refused, Tip
from sync.seal import KEY_SIZE, NONCE_SIZE
from sync.segment import (
    MAX_SEGMENT,
    MAX_SEGMENT_UPDATES,
    Segment,
    decode_segment,
    encode_segment,
    parse_segment_name,
    segment_name,
)
from sync.update import (
    MAX_UPDATE,
    VOLUME_ID_SIZE,
    SignedHeader,
    SignedUpdate,
    Update,
    decode_signed,
    decode_signed_header,
    encode_signed,
)
from sync.vector import MAX_CLOCK, MAX_WRITERS, Order, VersionVector
from sync.writes import MAX_KEY, MAX_VALUE, MAX_WRITES, Write

__all__ = [
    "Accepted",
    "AcceptedLog",
    "Buffer",
    "DEVICE_ID_SIZE",
    "DecodeError",
    "DeviceKey",
    "Duplicate",
    "Extent",
    "ForkProof",
    "Forked",
    "HASH_SIZE",
    "Head",
    "KEY_SIZE",
    "LimitError",
    "LogState",
    "LogStoreError",
    "MAX_CLOCK",
    "MAX_KEY",
    "MAX_SEGMENT",
    "MAX_SEGMENT_UPDATES",
    "MAX_UPDATE",
    "MAX_VALUE",
    "MAX_WRITERS",
    "MAX_WRITES",
    "Members",
    "NONCE_SIZE",
    "NewerFormatError",
    "NotAMemberError",
    "Order",
    "Outcome",
    "Reader",
    "Reason",
    "Refused",
    "Segment",
    "SignedHeader",
    "SignedUpdate",
    "SyncError",
    "Tip",
    "Update",
    "VOLUME_ID_SIZE",
    "VersionVector",
    "Write",
    "Writer",
    "ZERO_HASH",
    "decode_head",
    "decode_segment",
    "decode_signed",
    "decode_signed_header",
    "device_id_from_hex",
    "device_id_of",
    "encode_head",
    "encode_segment",
    "encode_signed",
    "head_name",
    "history_hash",
    "parse_segment_name",
    "segment_name",
    "verify_fork_proof",
]
