"""Experiments of the five papers, one command each, and what the papers found: a JSON file for each paper."""

from __future__ import annotations

import json
from pathlib import Path

__all__ = ["points"]


def points(paper: str, where: str) -> dict[str, list[float]]:
    """The figures of a table or figure of a paper, by the name of the row or line. Raises KeyError."""
    named: dict[str, dict[str, list[float]]] = json.loads(
        (Path(__file__).parent / f"{paper}.json").read_bytes()
    )["points"]
    return named[where]
