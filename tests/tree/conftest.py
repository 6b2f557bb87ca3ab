from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.tree.rig import Rig


@pytest.fixture
def rig() -> Iterator[Rig]:
    """A new volume. A test that restarts it goes on with the rig that it gets for that."""
    one = Rig()
    yield one
    one.discard()
