"""Targets of text: of URLs, names, addresses and settings that come from registers, networks and commands."""

from __future__ import annotations

import socket
from typing import Final

from backends.errors import StoreError
from backends.registry import open_store
from hybrisfs.errors import UsageError
from hybrisfs.peers.discovery import parse_name
from hybrisfs.peers.settings import format_address, parse_address
from hybrisfs.peers.tls import PeerIdentity
from hybrisfs.settings.transfers import parse_timetable
from hybrisfs.versions.retention import parse_retention
from hybrisfs.versions.tree import format_moment, parse_moment
from hybrisfs.wire import Channel, ChannelError
from relay.code import RelayCode
from tests.fuzz.target import Target, text
from tests.sync.support import KEYS, VOLUME

__all__ = ["TARGETS"]

_LONG: Final = "9" * 5000  # more digits than int() takes
_RELAY: Final = RelayCode("nas.example", 8017, "home", b"p" * 32, "a" * 32)
_IDENTITY: Final = PeerIdentity(VOLUME, KEYS[0], b"k" * 32)


def _url(*seeds: str) -> Target:
    nonsense = ("s3://", "file:///a?b", "webdav://[::1/x", "sftp://h:99999/x", f"sftp://h:{_LONG}/x")
    return text(open_store, seeds, (StoreError,), nonsense=nonsense)


def _lines(data: bytes) -> object:
    """What a client sends to the control socket."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
        theirs.sendall(data[: 1 << 17])
        theirs.shutdown(socket.SHUT_WR)
        channel, found = Channel(ours), []
        while (message := channel.receive()) is not None:
            found.append(message)
        return found


def _moment(written: str) -> object:
    moment = parse_moment(written)
    if moment is not None:
        assert parse_moment(format_moment(moment)) == moment
    return moment


TARGETS: Final[dict[str, Target]] = {
    "URL of a folder": _url("file:///mnt/attic", "file:///mnt/a%20b"),
    "URL of S3": _url("s3://bucket/photos", "s3://bucket/x?endpoint=http://127.0.0.1:9000&region=eu-west-1"),
    "URL of Google": _url("gs://bucket/photos"),
    "URL of Azure": _url("az://container/photos?account=somebody"),
    "URL of WebDAV": _url("webdavs://ann@example.net/dav", "webdav://example.net:8080/a%20b"),
    "URL of SFTP": _url("sftp://ann@example.net/srv/x", "sftp://[2001:db8::7]:2222/x"),
    "URL of rclone": _url("rclone:drive:photos", "rclone:nas:/srv/a b"),
    "URL of a relay": _url(f"relay://nas.example:8017/home?pin={64 * 'a'}"),
    "code of a relay": text(RelayCode.decode, [_RELAY.encode()], (UsageError,), RelayCode.encode),
    "control lines": Target(
        _lines,
        [b'{"command": "status"}\n{"a": [1, 2.5, null]}\n', b"", b"{}\n"],
        (ChannelError,),
        (b"[" * 5000 + b"\n", b'{"n": ' + b"9" * 5000 + b"}\n"),
    ),
    "peer address": text(
        parse_address,
        ["192.0.2.7:4711", "[2001:db8::7]:4711", "host:1"],
        (UsageError,),
        format_address,
        [f"host:{_LONG}"],
    ),
    "server name": text(_IDENTITY.knows, [_IDENTITY.server_name()], ()),
    "service name": text(
        parse_name, ["-".join((_IDENTITY.volume_tag(1), _IDENTITY.device_tag(b"d" * 16, 1), "x"))], ()
    ),
    "moment": text(
        _moment, ["2026-11-22", "2026-11-22T23:59:59Z", "2026-11-22 12:30"], (), nonsense=["9999-12-31"]
    ),
    "retention": text(
        parse_retention,
        ["off", "default", "all:1d,daily:7d,weekly:31d,monthly:1y,room:10G"],
        (UsageError,),
        str,
        [f"all:{_LONG}d", f"room:{_LONG}G"],
    ),
    "timetable": text(
        parse_timetable,
        ["off", "1M", "08:00,512k 19:00,10M 23:00,off", "mon-08:00,1M"],
        (UsageError,),
        nonsense=[f"{_LONG}M", f"08:00,{_LONG}K"],
    ),
}
