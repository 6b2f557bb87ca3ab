from __future__ import annotations

from tests.filesystem.conftest import rig

__all__ = ["rig"]
