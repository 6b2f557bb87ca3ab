"""What the counting wrapper counts: requests as they are billed."""

from __future__ import annotations

from pathlib import Path

import pytest

from backends.errors import MissingError
from backends.file import FileStore
from hybrisfs.dispersal.counting import CountingStore, Request, Use, used


def test_requests_are_counted_as_they_are_billed(tmp_path: Path) -> None:
    requests: list[Request] = []
    store = CountingStore(FileStore(tmp_path.as_uri()), requests.append)
    store.initialise()
    assert requests == []
    store.put("packs/one", b"12345")
    assert store.put_if_absent("packs/one", b"other") is False
    assert store.get("packs/one", limit=10) == b"12345"
    assert store.get_range("packs/one", 1, 3) == b"234"
    tagged = store.get_if_changed("packs/one", None, limit=10)
    assert tagged is not None
    assert store.get_if_changed("packs/one", tagged[1], limit=10) is None
    with pytest.raises(MissingError):
        store.get("packs/two", limit=10)
    store.list("packs/")
    store.delete_many(["packs/one", "packs/two"])
    store.close()
    assert used(requests) == Use(put=2, get=5, list=1, delete=1, up=10, down=13)
