"""HybrisFS: a folder on all your machines that no cloud provider can read, lose, forge or roll back."""

from __future__ import annotations

from typing import Final

__all__ = ["VERSION"]

VERSION: Final = "0.2.0"
