"""From URL to driver."""

from __future__ import annotations

from pathlib import Path

import pytest

from backends.errors import PermanentError
from backends.file import FileStore
from backends.registry import open_store


def test_a_file_url_opens_the_folder_driver_without_touching_it(tmp_path: Path) -> None:
    store = open_store((tmp_path / "cloud").as_uri())
    assert isinstance(store, FileStore)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("url", ["gopher://host/x", "x", "", "://", "FILE:///a"])
def test_an_unknown_scheme_is_refused_naming_the_known(url: str) -> None:
    with pytest.raises(PermanentError, match=r"supported: .*file://"):
        open_store(url)


def test_a_plain_path_is_answered_with_its_url() -> None:
    with pytest.raises(PermanentError, match=r"write file:///mnt/disk"):
        open_store("/mnt/disk")
