"""What goes wrong at a cloud, as an error for people."""

from __future__ import annotations

from backends.errors import StoreError
from hybrisfs.errors import HybrisError

__all__ = ["refused", "unusable"]


def unusable(error: StoreError, when: str = "", kind: type[HybrisError] = HybrisError) -> HybrisError:
    """The error that says that a cloud cannot be used, why, and what to do; *when* tells what was tried."""
    reason = f"{error.reason} (when {when})" if when else error.reason
    return kind(f"the cloud {error.url} cannot be used", reason, _sentence(error.advice))


def refused(error: StoreError, what: str) -> HybrisError:
    """The error that says that a cloud, which can be used, does not do *what* it was told, why, and what to
    do."""
    return HybrisError(f"the cloud {error.url} does not {what}", error.reason, _sentence(error.advice))


def _sentence(advice: str) -> str:
    if not advice:
        return ""
    ended = advice.endswith((".", "?")) or "run: " in advice  # a command is copied as it stands there
    return f"{advice[0].upper()}{advice[1:]}{'' if ended else '.'}"
