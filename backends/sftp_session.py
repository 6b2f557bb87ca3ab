"""Connections to an SFTP server: host keys checked, bounded in memory and time.

The server's key must be in the user's ~/.ssh/known_hosts, or in the file that the URL names instead; an
unknown or changed key is refused before anything secret is sent.
"""

from __future__ import annotations

import contextlib
import io
import logging
import stat
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import paramiko

from backends.address import Address
from backends.body import Timing
from backends.credentials import Secrets

__all__ = ["Files", "Session", "UnknownHostError", "UnusableKeyError", "connect"]

_EXTENDED: Final = 200  # SSH_FXP_EXTENDED, draft-ietf-secsh-filexfer-02 section 3
_EXTENDED_REPLY: Final = 201  # SSH_FXP_EXTENDED_REPLY
_MAX_PACKET: Final = 1 << 20  # bytes; servers send 256 KiB at most
_KEEPALIVE: Final = 30  # seconds
_MAX_FILE: Final = 1 << 20  # bytes; of known hosts, and of a private key
_KEY_KINDS: Final = (paramiko.Ed25519Key, paramiko.ECDSAKey, paramiko.RSAKey)


# Its threads log tracebacks of everything that ends a connection, which exceptions tell as well.
logging.getLogger("paramiko").setLevel(logging.CRITICAL)


class UnusableKeyError(Exception):
    """The private key that was given cannot be read."""


class UnknownHostError(Exception):
    """The server's key is not among the known ones."""


class Files(paramiko.SFTPClient):
    """Takes no packet that is larger than any honest server sends, and knows two of OpenSSH's extensions."""

    if TYPE_CHECKING:
        _request: Any

    def fsync(self, file: paramiko.SFTPFile) -> None:
        """Wait until a file is on the server's disk (fsync@openssh.com). `OSError` where that is unknown."""
        # paramiko has no public way to send what it does not know.
        self._request(_EXTENDED, "fsync@openssh.com", file.handle)

    def free_bytes(self, path: str) -> int:
        """Return the room that is left at `path` (statvfs@openssh.com). `OSError` where that is unknown."""
        kind, message = self._request(_EXTENDED, "statvfs@openssh.com", path)
        if kind != _EXTENDED_REPLY:
            raise paramiko.SFTPError("no answer to statvfs")
        _block, fragment, _blocks, _free, available = (message.get_int64() for _ in range(5))
        return int(fragment * available)

    def _read_all(self, size: int) -> bytes:
        if size > _MAX_PACKET:
            raise paramiko.SFTPError(f"a packet of {size} bytes")
        parts = bytearray()
        while len(parts) < size:
            part = self.sock.recv(size - len(parts))
            if not part:
                raise EOFError
            parts += part
        return bytes(parts)


class _Refuse(paramiko.MissingHostKeyPolicy):
    def missing_host_key(self, client: paramiko.SSHClient, hostname: str, key: paramiko.PKey) -> None:
        raise UnknownHostError(f"its {key.get_name()} key {key.fingerprint} is not known")


class Session:
    """One connection with one SFTP channel, for one thread at a time."""

    def __init__(self, client: paramiko.SSHClient, files: Files) -> None:
        self._client = client
        self.files = files

    @property
    def usable(self) -> bool:
        """Whether the connection seems to be up."""
        transport = self._client.get_transport()
        return transport is not None and transport.is_active()

    def close(self) -> None:
        """Break the connection, also when a thread is just using it."""
        self._client.close()


def connect(address: Address, secrets: Secrets, timing: Timing) -> Session:
    """Connect and log in. Raises what paramiko raises, `OSError`, and `UnusableKeyError`."""
    client = paramiko.SSHClient()
    known, key_file = address.option("known_hosts"), address.option("key")
    for named in (known, key_file):
        if named is not None:
            _require_small_file(named)
    if known is not None:
        client.load_host_keys(known)
    else:
        with contextlib.suppress(FileNotFoundError):
            client.load_host_keys(str(Path("~/.ssh/known_hosts").expanduser()))
    client.set_missing_host_key_policy(_Refuse())
    key = _private_key(secrets)
    password = secrets.get("password")
    try:
        client.connect(
            address.host,
            address.port or 22,
            username=address.user or None,
            password=password,
            pkey=key,
            key_filename=key_file,
            passphrase=secrets.get("passphrase"),
            # What was given is what is meant; otherwise whatever the user's agent and ~/.ssh have.
            allow_agent=key is None and password is None,
            look_for_keys=key is None and password is None and key_file is None,
            timeout=timing.connect,
            banner_timeout=timing.stall,
            auth_timeout=timing.stall,
            channel_timeout=timing.stall,
        )
        return Session(client, _open_channel(client, timing))
    except BaseException:
        client.close()
        raise


def _require_small_file(path: str) -> None:
    """Raise FileNotFoundError for what would be read for ever: the URL may be another device's."""
    status = Path(path).stat()
    if not stat.S_ISREG(status.st_mode) or status.st_size > _MAX_FILE:
        raise FileNotFoundError(f"{path} is not a file with keys")


def _open_channel(client: paramiko.SSHClient, timing: Timing) -> Files:
    transport = client.get_transport()
    if transport is None:
        raise EOFError
    # A server that vanishes says nothing; this finds out.
    transport.set_keepalive(_KEEPALIVE)
    channel = transport.open_session(timeout=timing.stall)
    channel.settimeout(timing.stall)
    channel.invoke_subsystem("sftp")
    return Files(channel)


def _private_key(secrets: Secrets) -> Any:
    text = secrets.get("private_key")
    if text is None:
        return None
    for kind in _KEY_KINDS:
        with contextlib.suppress(paramiko.SSHException, ValueError):
            return kind.from_private_key(io.StringIO(text), password=secrets.get("passphrase"))
    raise UnusableKeyError("private_key cannot be read; is the passphrase right?")
