"""A disk that takes nothing more for the journal."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from tests.tree.rig import Rig

__all__ = ["nothing_can_be_added"]

_MOST: Final = 100


@contextmanager
def nothing_can_be_added(rig: Rig) -> Iterator[None]:
    """The journal can begin no segment: something else has the names that the next ones would get."""
    with rig.fs.state.transaction():
        rig.journal.seal_active()
    paths = [rig.journal.directory / f"{number:08d}.segment" for number in range(_MOST)]
    taken = [path for path in paths if not path.exists()]
    for path in taken:
        path.mkdir()
    yield
    for path in taken:
        path.rmdir()
