"""One word and one sentence for a panel. Pure."""

from __future__ import annotations

from typing import Any, Final

from hybrisfs.events.conditions import Facts, conditions
from hybrisfs.verdict import machines_only

__all__ = ["summary"]

_SERIOUS: Final = ("volume", "removed", "mount", "clouds", "error")


def summary(facts: Facts) -> dict[str, Any]:
    """`name`, `state` (ok, busy, attention or trouble), `text`, `pending_files`, `pending_bytes` and
    `conflicts`."""
    found = conditions(facts)
    pending = facts.pending_files or 0
    if any(topic in found for topic in _SERIOUS):
        state = "trouble"
        text = next(found[topic].text for topic in _SERIOUS if topic in found)
    elif found:
        state, text = "attention", next(iter(found.values())).text
    elif pending or facts.pending_bytes:
        state = "busy"
        text = f"{pending} change{'' if pending == 1 else 's'} on the way to the clouds"
    elif (elsewhere := machines_only(facts.machines_only)) is not None:
        files = elsewhere.files
        some = "1 file is" if files == 1 else f"{files} files are" if files else "changes are"
        state, text = "busy", f"{some} on your machines only, and on no cloud yet"
    else:
        state, text = "ok", "everything is safe on the clouds"
    return {
        "name": facts.name,
        "state": state,
        "text": text,
        "pending_files": pending,
        "pending_bytes": facts.pending_bytes or 0,
        "conflicts": facts.conflicts or 0,
    }
