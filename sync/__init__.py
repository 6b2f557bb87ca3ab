"""Depot's metadata plane: who may write, what is written, what is accepted, what travels.

Everything here is sans-IO: the caller brings the time, the random bytes and the stored bytes, and
keeps what comes back. Names of this facade are the public interface; the rest is inside.
"""

from __future__ import annotations

from sync.accepted import AcceptedLog, Known, Successor
from sync.branch import Branch, Branches, branch_id
from sync.checkpoint import Statement
from sync.codec import Buffer, Reader, Writer
from sync.errors import (
    DecodeError,
    LimitError,
    LogStoreError,
    NewerFormatError,
    NotAMemberError,
    SyncError,
    UnknownEpochError,
)
from sync.exchange import Action, Alarm, Deliver, Exchange, ExchangeLog, Failed, LogRow, Offer, Send
from sync.fork import ForkProof, verify_fork_proof
from sync.hashing import HASH_SIZE, ZERO_HASH
from sync.head import (
    MAX_OWN_TIPS,
    MAX_RELAYED,
    CheckpointId,
    Head,
    LogOnClouds,
    OwnTip,
    Relayed,
    StateClaim,
    decode_head,
    encode_head,
    head_name,
)
from sync.history import history_hash
from sync.identity import DEVICE_ID_SIZE, DeviceKey, Members, device_id_from_hex, device_id_of
from sync.inbox import Inbox
from sync.log import Bound, LogState
from sync.messages import MAX_MESSAGE
from sync.outcome import Accepted, Duplicate, Outcome, Reason, Refused
from sync.seal import EPOCH_SIZE, FIRST_EPOCH, KEY_SIZE, NONCE_SIZE, EpochKey, OneKey, SealKeys
from sync.segment import (
    MAX_SEGMENT,
    MAX_SEGMENT_UPDATES,
    LogSegment,
    SegmentId,
    decode_segment,
    encode_segment,
    parse_segment_name,
    segment_name,
)
from sync.update import (
    MAX_UPDATE,
    PREFIX_SIZE,
    VOLUME_ID_SIZE,
    SignedHeader,
    SignedUpdate,
    Stamp,
    Update,
    decode_signed,
    decode_signed_header,
    encode_signed,
)
from sync.vector import MAX_CLOCK, MAX_WRITERS, Order, Rename, VersionVector
from sync.writes import MAX_KEY, MAX_VALUE, MAX_WRITES, Write

__all__ = [
    "Accepted",
    "AcceptedLog",
    "Action",
    "Alarm",
    "Bound",
    "Branch",
    "Branches",
    "Buffer",
    "CheckpointId",
    "DEVICE_ID_SIZE",
    "DecodeError",
    "Deliver",
    "DeviceKey",
    "Duplicate",
    "EPOCH_SIZE",
    "EpochKey",
    "Exchange",
    "ExchangeLog",
    "FIRST_EPOCH",
    "Failed",
    "ForkProof",
    "HASH_SIZE",
    "Head",
    "Inbox",
    "KEY_SIZE",
    "Known",
    "LimitError",
    "LogOnClouds",
    "LogRow",
    "LogSegment",
    "LogState",
    "LogStoreError",
    "MAX_CLOCK",
    "MAX_KEY",
    "MAX_MESSAGE",
    "MAX_OWN_TIPS",
    "MAX_RELAYED",
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
    "Offer",
    "OneKey",
    "Order",
    "Outcome",
    "OwnTip",
    "PREFIX_SIZE",
    "Reader",
    "Reason",
    "Refused",
    "Relayed",
    "Rename",
    "SealKeys",
    "SegmentId",
    "Send",
    "SignedHeader",
    "SignedUpdate",
    "Stamp",
    "StateClaim",
    "Statement",
    "Successor",
    "SyncError",
    "UnknownEpochError",
    "Update",
    "VOLUME_ID_SIZE",
    "VersionVector",
    "Write",
    "Writer",
    "ZERO_HASH",
    "branch_id",
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
