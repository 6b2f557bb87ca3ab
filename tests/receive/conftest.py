from __future__ import annotations

from tests.tree.conftest import rig

__all__ = ["rig"]
