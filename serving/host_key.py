"""The key by which clients of SFTP know the server: made once, in a file that only this user can read."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import asyncssh

from hybrisfs.client import HybrisError
from hybrisfs.secret_file import write_secret

__all__ = ["HostKey", "host_key"]

_KIND = "ssh-ed25519"


class HostKey(NamedTuple):
    """The key, how a person compares it, and whether it has just been made."""

    key: asyncssh.SSHKey
    fingerprint: str
    is_new: bool


def host_key(folder: Path) -> HostKey:
    """The key in a folder of this user only, made if need be. Raises HybrisError, OSError."""
    path = folder / "ssh-host-key"
    is_new = not path.exists()
    if is_new:
        write_secret(path, asyncssh.generate_private_key(_KIND).export_private_key())
    advice = "Remove it: the next start makes another one."
    try:
        found = asyncssh.import_private_key(path.read_bytes())
    except (asyncssh.KeyImportError, asyncssh.KeyEncryptionError) as error:
        raise HybrisError(f"{path} is not a key", str(error), advice) from error
    if found.get_algorithm() != _KIND:
        raise HybrisError(f"{path} is another kind of key", "", advice)
    return HostKey(found, found.get_fingerprint("sha256"), is_new)
