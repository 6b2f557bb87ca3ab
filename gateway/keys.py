"""The access key of a volume: made when it is first used, kept in a file that only this user can read."""

from __future__ import annotations

import os
import secrets
import string
from pathlib import Path
from typing import Annotated, Final

import msgspec
from msgspec import Meta

from gateway.signature import AccessKey
from hybrisfs.client import HybrisError

__all__ = ["access_key"]

_ID: Final = string.ascii_uppercase + "234567"
_SECRET: Final = string.ascii_letters + string.digits


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    access_key_id: Annotated[str, Meta(pattern=r"\A[A-Z2-7]{16,64}\Z")]
    secret_access_key: Annotated[str, Meta(pattern=r"\A[A-Za-z0-9]{40,128}\Z")]


def access_key(path: Path) -> AccessKey:
    """The key that is in a file, made when there is none, in a folder that only this user can read.

    Raises HybrisError when the file is not a key, OSError.
    """
    path.parent.mkdir(mode=0o700, exist_ok=True)
    if not path.exists():
        _make(path)
    try:
        found = msgspec.json.decode(path.read_bytes(), type=_File)
    except msgspec.DecodeError as error:
        raise HybrisError(
            f"{path} is not an access key", str(error), "Remove it: the next start makes another one."
        ) from error
    return AccessKey(found.access_key_id, found.secret_access_key)


def _make(path: Path) -> None:
    """Write a new key, whole, unless somebody else does."""
    key = _File(
        "HFS" + "".join(secrets.choice(_ID) for _ in range(17)),
        "".join(secrets.choice(_SECRET) for _ in range(40)),
    )
    new = path.with_name(f"{path.name}.{secrets.token_hex(8)}")
    with open(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "wb") as file:
        file.write(msgspec.json.encode(key))
        file.flush()
        os.fsync(file.fileno())
    try:
        os.link(new, path)
    except FileExistsError:
        pass
    finally:
        new.unlink()
