"""Is a history of concurrent operations linearizable? The search of Wing and Gong, with Lowe's memory.

An operation takes place at some moment between its call and its return. A history is linearizable when there
are such moments at which a store that does one thing after the other would have answered the same.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

__all__ = [
    "Operation",
    "State",
    "deleted",
    "is_linearizable",
    "listed",
    "read",
    "replaced",
    "unless",
    "wrote",
]

State: TypeAlias = Mapping[str, object]
"""The values by key; a key without one is left out."""

Effect: TypeAlias = Callable[[State], State | None]
"""The state after the operation; None when it could not have answered so in this state."""


@dataclass(frozen=True)
class Operation:
    """One operation: its name for people, when it was called and returned, and what it does.

    Of one that never `returned` nobody knows whether it has taken place, or will.
    """

    name: str
    called: int
    returned: int | None
    effect: Effect


def read(key: str, answer: object) -> Effect:
    """A get that returned `answer`, None for no such key."""
    return lambda state: state if state.get(key) == answer else None


def wrote(changes: Mapping[str, object]) -> Effect:
    """A put, a delete (None) or a transaction of both."""
    return lambda state: {key: value for key, value in {**state, **changes}.items() if value is not None}


def deleted(key: str, existed: bool) -> Effect:
    """A delete that said whether there was something."""
    return lambda state: (
        {one: value for one, value in state.items() if one != key} if (key in state) == existed else None
    )


def replaced(key: str, before: object, value: object) -> Effect:
    """A put that depended on the value before it, None for none, and took place."""
    return lambda state: {**state, key: value} if state.get(key) == before else None


def unless(key: str, before: object) -> Effect:
    """A put that depended on the value before it, and was refused."""
    return lambda state: state if state.get(key) != before else None


def listed(keys: Sequence[str]) -> Effect:
    """A list of all keys."""
    return lambda state: state if sorted(state) == list(keys) else None


def is_linearizable(history: Sequence[Operation]) -> bool:
    """Whether some order of the operations, from an empty store, explains all answers."""
    seen: set[tuple[int, frozenset[tuple[str, object]]]] = set()
    everything = sum(1 << i for i, one in enumerate(history) if one.returned is not None)
    open_ends: list[tuple[int, State]] = [(0, {})]
    while open_ends:
        done, state = open_ends.pop()
        if done & everything == everything:
            return True
        known = (done, frozenset(state.items()))
        if known in seen:
            continue
        seen.add(known)
        left = [i for i in range(len(history)) if not done >> i & 1]
        # Whatever comes next was called before any of the others returned.
        horizon = min(returned for i in left if (returned := history[i].returned) is not None)
        for i in left:
            if history[i].called <= horizon:
                after = history[i].effect(state)
                if after is not None:
                    open_ends.append((done | 1 << i, after))
    return False
