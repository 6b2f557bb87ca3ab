"""What a check of a volume found."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, Literal, TypeAlias

from hybrisfs.api.maintenance import Check, CheckProblem

__all__ = ["FsckReport", "Problem", "Progress"]

Progress: TypeAlias = Callable[[str, int, int], None]
"""Gets a stage, how much of it is done, and how much there is."""

_MOST_PROBLEMS: Final = 1000


@dataclass(frozen=True, slots=True)
class Problem:
    """What is wrong where. An *error* has cost bytes or may; a *warning* has not."""

    where: str
    what: str
    severity: Literal["error", "warning"] = "error"


@dataclass(slots=True)
class FsckReport:
    """What was checked, and what is wrong."""

    problems: list[Problem] = field(default_factory=list)
    checked: dict[str, int] = field(default_factory=dict)

    def add(self, where: str, what: str, severity: Literal["error", "warning"] = "error") -> None:
        if len(self.problems) < _MOST_PROBLEMS:
            self.problems.append(Problem(where, what, severity))

    def facts(self) -> Check:
        """The same as answers tell it."""
        found = [CheckProblem(one.where, one.what, one.severity) for one in self.problems]
        return Check(found, dict(self.checked))
