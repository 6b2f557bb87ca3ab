"""What drivers of buckets share: object `a/b` of the folder `f` is the key `f/a/b`, listed page by page."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar, Final

from msgspec import Struct

from backends.address import Address
from backends.driver import HttpDriver
from backends.errors import CorruptError, MissingError, MissingRootError
from backends.store import Page, StoredObject, check_name, is_name

__all__ = ["BucketStore", "BucketVersions", "ServicePage", "no_bucket"]

_MAX_PAGES: Final = 1000  # of foreign objects between two of ours, before the listing counts as endless


class ServicePage(Struct, frozen=True):
    """One page as the service gave it: (key, size) pairs, and the token of the next page, if there is one."""

    keys: Sequence[tuple[str, int]]
    next_token: str | None


def no_bucket(address: Address) -> str:
    """What is wrong with the address of a bucket: a `backends.driver.CloudKind.problem`."""
    return "names no bucket" if address.user or address.port is not None else ""


class BucketStore(HttpDriver[Any]):
    """A driver of a bucket, whatever the pages of its service are like. `client` is that of its library."""

    noun: ClassVar = "bucket"
    """What the service calls a bucket."""
    many: ClassVar = True
    """See `takes_many`."""
    signs: ClassVar = True
    """See `can_sign`."""

    def signed_url(self, name: str, seconds: int, content_type: str) -> str:
        """See `backends.store.signed_url`."""
        with self._calling("sign", name) as client:
            return self._signed_url(client, self._key(name), seconds, content_type)

    @abstractmethod
    def _signed_url(self, client: Any, key: str, seconds: int, content_type: str) -> str: ...

    @property
    def _bucket(self) -> str:
        return self._address.host

    def _no_bucket(self, operation: str, name: str) -> MissingRootError:
        reason, advice = f"there is no {self.noun} {self._bucket}", f"check the name of the {self.noun}"
        return MissingRootError(self.url, operation, name, reason, advice)

    def _no_object(self, operation: str, name: str) -> MissingError:
        return MissingError(self.url, operation, name, "no such object")

    def _key(self, name: str) -> str:
        return self._address.prefix + name

    def _list(self, client: Any, prefix: str, after: str, limit: int) -> Page:
        """Gather pages. Raises `CorruptError` when the service lists out of order or without end."""
        root, entries, last = self._address.prefix, list[StoredObject](), ""
        token = self._token(prefix, after)
        for _ in range(_MAX_PAGES):
            page = self._page(client, prefix, after, token, limit)
            for place, (key, size) in enumerate(page.keys):
                name = key[len(root) :]
                if not key.startswith(root + prefix) or name <= after or not is_name(name):
                    continue
                if name <= last:
                    raise CorruptError(self.url, "list", prefix, "the objects are listed out of order")
                if len(entries) == limit:
                    self._remember(prefix, last, token)
                    return Page(tuple(entries), more=True)
                last = name
                entries.append(StoredObject(name, max(size, 0)))
                if len(entries) == limit and place + 1 == len(page.keys) and page.next_token is not None:
                    self._remember(prefix, last, page.next_token)
                    return Page(tuple(entries), more=True)
            if page.next_token is None:
                return Page(tuple(entries), more=False)
            if page.next_token == token:
                break
            token = page.next_token
        raise CorruptError(self.url, "list", prefix, "the listing does not come to an end")

    @abstractmethod
    def _page(self, client: Any, prefix: str, after: str, token: str | None, count: int) -> ServicePage:
        """Return the page of a token, of about `count` keys; without a token the first one."""

    def _token(self, prefix: str, after: str) -> str | None:
        """The token of the page that has what follows `after`, for services that only know tokens."""
        return None

    def _remember(self, prefix: str, last: str, token: str | None) -> None:
        """Keep the token of the page that has what follows `last`."""


class BucketVersions:
    """The part of a bucket's driver that knows older versions; it calls the service as the driver does."""

    def __init__(self, store: BucketStore) -> None:
        self._url = store.url
        self._bucket_name = store._bucket
        self._prefix = store._address.prefix
        self._client = store._client
        self._translated = store._translated

    def _key(self, name: str) -> str:
        return self._prefix + check_name(name)
