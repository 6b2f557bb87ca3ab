"""DepSky-A and DepSky-EC over the clouds' drivers, to measure beside ours (Bessani et al. 2013, Hybris 5.1).

3f+1 clouds keep everything, and nobody else does: with the value of each version go signed metadata, which
say its number and the hash of what each cloud has of it.

* A write gets the metadata from a quorum of 2f+1 clouds, puts the value on a quorum, then the metadata.
* A read gets the metadata from a quorum, and the value from all clouds side by side: the first one that is
  right will do for DepSky-A, which stores whole values, and f+1 for DepSky-EC, which stores fragments.

Signatures are Ed25519, the paper's are RSA; nothing is encrypted, and keys are not shared out.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from typing import Final, TypeVar

import msgspec
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from msgspec import Struct

from backends.errors import MissingError, StoreError
from backends.store import Store
from hybrisfs.dispersal.erasure import fragment_length, join, split
from hybrisfs.dispersal.errors import IntegrityError

__all__ = ["DepSky"]

_LIMIT: Final = 1 << 16  # bytes of metadata
_SIGNATURE: Final = 64  # bytes
_THREADS: Final = 128  # enough for all that a cloud which answers nothing holds up

T = TypeVar("T")


class _Metadata(Struct, frozen=True, forbid_unknown_fields=True):
    """Of one version."""

    number: int
    size: int
    digests: tuple[bytes, ...]
    """Of what each cloud has."""


class DepSky:
    """One client. `coded`: DepSky-EC. `close` closes the stores."""

    def __init__(self, stores: Sequence[Store], f: int, *, coded: bool) -> None:
        self._stores = stores
        self._f = f
        self._k = f + 1 if coded else 1
        self._folder = f"depsky-{self._k}"
        self._key = Ed25519PrivateKey.generate()
        self._public = self._key.public_key()
        self._pool = ThreadPoolExecutor(_THREADS, thread_name_prefix="depsky")
        self._open: dict[Future[object], int] = {}

    def close(self) -> None:
        self._pool.shutdown()
        for store in self._stores:
            store.close()

    def settle(self, clouds: Collection[int]) -> None:
        """Return when these clouds have done all that they were asked for. A write and a read return before,
        and what comes after them would wait for it."""
        wait([future for future, cloud in self._open.items() if cloud in clouds])
        self._open = {future: cloud for future, cloud in self._open.items() if not future.done()}

    def put(self, name: str, data: bytes) -> None:
        """Write a value; returns when a quorum has it and its metadata."""
        latest = self._latest(name)
        number = 1 if latest is None else latest.number + 1
        pieces = split(self._k, len(self._stores), data)
        digests = (
            (hashlib.sha256(data).digest(),) * len(pieces)
            if self._k == 1
            else tuple(hashlib.sha256(piece).digest() for piece in pieces)
        )
        self._ask(
            lambda cloud: self._stores[cloud].put(f"{self._folder}/{name}/{number}", pieces[cloud]),
            self._quorum,
        )
        encoded = msgspec.msgpack.encode(_Metadata(number, len(data), digests))
        signed = self._key.sign(encoded) + encoded
        self._ask(
            lambda cloud: self._stores[cloud].put(f"{self._folder}/{name}/metadata", signed), self._quorum
        )

    def get(self, name: str) -> bytes:
        """Read a value that is there."""
        latest = self._latest(name)
        if latest is None:
            raise SystemExit(f"DepSky has no {name}")
        limit = fragment_length(self._k, latest.size)

        def fetch(cloud: int) -> bytes:
            data = self._stores[cloud].get(f"{self._folder}/{name}/{latest.number}", limit=limit)
            if hashlib.sha256(data).digest() != latest.digests[cloud]:
                raise IntegrityError("it is not what was written")
            return data

        found = self._ask(fetch, self._k)
        return bytes(join(self._k, len(self._stores), found, latest.size))

    @property
    def _quorum(self) -> int:
        return len(self._stores) - self._f

    def _latest(self, name: str) -> _Metadata | None:
        """The metadata with the highest number that a quorum has."""

        def fetch(cloud: int) -> _Metadata | None:
            try:
                signed = self._stores[cloud].get(f"{self._folder}/{name}/metadata", limit=_LIMIT)
            except MissingError:
                return None
            self._public.verify(signed[:_SIGNATURE], signed[_SIGNATURE:])
            return msgspec.msgpack.decode(signed[_SIGNATURE:], type=_Metadata)

        found = [one for one in self._ask(fetch, self._quorum).values() if one is not None]
        return max(found, key=lambda one: one.number, default=None)

    def _ask(self, request: Callable[[int], T], count: int) -> dict[int, T]:
        """Ask all clouds at once; returns what the first *count* that succeed have answered."""
        asked = {self._pool.submit(request, cloud): cloud for cloud in range(len(self._stores))}
        self._open.update(asked)  # type: ignore[arg-type]
        found: dict[int, T] = {}
        waiting, reasons = set(asked), list[str]()
        while len(found) < count:
            if not waiting:
                raise SystemExit(f"DepSky: too many clouds have failed: {'; '.join(reasons)}")
            done, waiting = wait(waiting, return_when=FIRST_COMPLETED)
            for future in done:
                try:
                    found[asked[future]] = future.result()
                except (StoreError, InvalidSignature, IntegrityError) as error:
                    reasons.append(repr(error))
        return dict(list(found.items())[:count])
