"""What the page may have the daemon do, and how the daemon is asked.

The control socket is the only authority: the page can do nothing here that a command cannot, and much less.
Nothing that makes, shows or takes a secret is in this list.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias, TypeVar

from hybrisfs.api.content import EvictRequest, PinRequest, UnpinRequest
from hybrisfs.api.decisions import (
    ConflictsKeepAllRequest,
    ConflictsKeepRequest,
    DeletionsAcceptRequest,
    DeletionsUndoRequest,
)
from hybrisfs.api.request import LongRequest, Request, message_of
from hybrisfs.api.status import StatusRequest
from hybrisfs.api.transfers import LimitRequest, PauseRequest, ResumeRequest
from hybrisfs.api.volumes import VolumeSetRequest
from hybrisfs.client import Client, HybrisError, Message, UsageError

__all__ = ["ACTIONS", "Action", "AnyRequest", "ask", "perform"]

_Answer = TypeVar("_Answer")


AnyRequest: TypeAlias = Request[Any] | LongRequest[Any, Any]


@dataclass(frozen=True, slots=True)
class Action:
    """A request to the daemon, the arguments that the page may give it, and whether it is about a path that
    the daemon wants to know below the mount."""

    request: type[Request[Any]] | type[LongRequest[Any, Any]]
    arguments: tuple[str, ...] = ()
    mounted_path: bool = False


ACTIONS: Final[Mapping[str, Action]] = {
    "pause": Action(PauseRequest, ("seconds",)),
    "resume": Action(ResumeRequest),
    "limit": Action(LimitRequest, ("up", "down", "on_metered")),
    "keep": Action(ConflictsKeepRequest, ("path",)),
    "keep-all": Action(ConflictsKeepAllRequest, ("path",)),
    "accept-deletion": Action(DeletionsAcceptRequest, ("id",)),
    "undo-deletion": Action(DeletionsUndoRequest, ("id",)),
    "pin": Action(PinRequest, mounted_path=True),
    "unpin": Action(UnpinRequest, mounted_path=True),
    "evict": Action(EvictRequest, mounted_path=True),
    "stale-reads": Action(VolumeSetRequest, ("stale_reads",)),
}


def ask(request: Request[_Answer] | LongRequest[_Answer, Any]) -> _Answer:
    """Have the daemon carry out a request. It is not started: somebody may have stopped it. Raises
    HybrisError."""
    with Client.connect(start=False) as client:
        return client.call(request)


def perform(name: str, volume: str, given: Mapping[str, Any]) -> Message:
    """Carry out one of `ACTIONS` on a volume. Raises HybrisError."""
    action = ACTIONS.get(name)
    if action is None:
        raise UsageError(f"the page cannot do {name[:80]!r}")
    allowed = (*action.arguments, *(("path",) if action.mounted_path else ()))
    unknown = [one for one in given if one not in allowed]
    if unknown:
        raise UsageError(f"{unknown[0][:80]!r} means nothing here")
    if action.mounted_path:
        arguments: Message = {"paths": [_below_mount(volume, given.get("path"))]}
    else:
        arguments = {"name": volume, **given}
    return message_of(ask(action.request.read(arguments)))


def _below_mount(volume: str, path: object) -> str:
    if not isinstance(path, str) or ".." in path.split("/") or "\0" in path:
        raise UsageError("path must be one inside the volume")
    [facts] = ask(StatusRequest(name=volume, without_look=True)).volumes
    if facts.mountpoint is None:
        raise HybrisError(
            f"{volume} is not mounted", "", f"hybrisfs mount {volume} FOLDER mounts it; then try again."
        )
    return f"{facts.mountpoint}/{path.strip('/')}".rstrip("/")
