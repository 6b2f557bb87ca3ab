"""The table of all fuzz targets."""

from __future__ import annotations

from typing import Final

from tests.fuzz import (
    cloud_targets,
    gateway_targets,
    log_targets,
    pairing_targets,
    register_targets,
    service_targets,
    text_targets,
)
from tests.fuzz.target import Target

__all__ = ["TARGETS"]

TARGETS: Final[dict[str, Target]] = {
    **log_targets.TARGETS,
    **register_targets.TARGETS,
    **service_targets.TARGETS,
    **cloud_targets.TARGETS,
    **pairing_targets.TARGETS,
    **text_targets.TARGETS,
    **gateway_targets.TARGETS,
}
"""By name."""
