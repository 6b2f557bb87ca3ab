"""What the page may have the daemon do, and how the daemon is asked.

The control socket is the only authority: the page can do nothing here that a command cannot, and much less.
Secrets that a person types on the page pass through to the daemon, which keeps them; they are in the body of
a request that the guard has let through, and in no answer, address or log. Errors name no value. Of secrets
that the daemon draws, the page gets the code of an invitation and the passphrase of a new recovery kit, once.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, TypeAlias, TypeVar

from msgspec import Struct

from hybrisfs.api.clouds import (
    CloudAddRequest,
    CloudDrainRequest,
    CloudRemoveRequest,
    CloudRenameRequest,
    CloudReplaceRequest,
    CloudRetainRequest,
    CloudTestRequest,
)
from hybrisfs.api.copies import CopiesSetRequest
from hybrisfs.api.decisions import (
    ConflictsKeepAllRequest,
    ConflictsKeepRequest,
    DeletionsAcceptRequest,
    DeletionsUndoRequest,
)
from hybrisfs.api.devices import (
    DeviceAdmittedRequest,
    DeviceConfirmRequest,
    DeviceKeepRequest,
    DeviceRemoveRequest,
)
from hybrisfs.api.files import EvictRequest, PinRequest, UnpinRequest
from hybrisfs.api.key_value import KvCreateRequest, KvForgetRequest
from hybrisfs.api.maintenance import RecoveryMakeRequest, RecoveryRemoveRequest
from hybrisfs.api.parcels import ShareRevokeRequest
from hybrisfs.api.request import LongRequest, message_of
from hybrisfs.api.request import Request as Command
from hybrisfs.api.status import StatusRequest
from hybrisfs.api.traffic import LimitRequest, PauseRequest, ResumeRequest
from hybrisfs.api.volumes import (
    MountRequest,
    PlaceSecretsRequest,
    PlaceSuggestionsRequest,
    PlaceTryRequest,
    VolumeCreateRequest,
    VolumeSetRequest,
)
from hybrisfs.client import Client, HybrisError, Message, UsageError

__all__ = ["ACTIONS", "ON_MACHINE", "Action", "AnyRequest", "ask", "perform"]

_Answer = TypeVar("_Answer")

AnyRequest: TypeAlias = Command[Any] | LongRequest[Any, Any]


class Action(Struct, frozen=True):
    """A request to the daemon, the arguments that the page may give it, and whether it is about a path that
    the daemon wants to know below the mount."""

    request: type[Command[Any]] | type[LongRequest[Any, Any]]
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
    "copies": Action(CopiesSetRequest, ("copies",), mounted_path=True),
    "revoke": Action(ShareRevokeRequest, ("which",)),
    "settings": Action(
        VolumeSetRequest, tuple(one for one in VolumeSetRequest.__struct_fields__ if one != "name")
    ),
    "create-container": Action(KvCreateRequest, ("container", "metadata")),
    "forget-service": Action(KvForgetRequest, ("metadata",)),
    "add-cloud": Action(CloudAddRequest, ("url", "cloud_name", "make")),
    "test-cloud": Action(CloudTestRequest, ("cloud",)),
    "drain-cloud": Action(CloudDrainRequest, ("cloud",)),
    "remove-cloud": Action(CloudRemoveRequest, ("cloud",)),
    "rename-cloud": Action(CloudRenameRequest, ("cloud", "new_name")),
    "replace-cloud": Action(CloudReplaceRequest, ("cloud", "url", "cloud_name", "make")),
    "retain-cloud": Action(CloudRetainRequest, ("cloud", "days")),
    "make-kit": Action(RecoveryMakeRequest, ("passphrase",)),
    "remove-kit": Action(RecoveryRemoveRequest, ("kit",)),
    "admitted": Action(DeviceAdmittedRequest, ("device",)),
    "remove-device": Action(DeviceRemoveRequest, ("device", "with_admitted")),
    "keep-device": Action(DeviceKeepRequest, ("device",)),
}
"""What is done with a volume."""

ON_MACHINE: Final[Mapping[str, Action]] = {
    "place-secrets": Action(PlaceSecretsRequest, ("url",)),
    "place-try": Action(PlaceTryRequest, ("url", "secrets", "make")),
    "confirm-device": Action(DeviceConfirmRequest, ("pairing", "accept")),
    "create-volume": Action(VolumeCreateRequest, ("name", "clouds", "f", "make")),
    "suggestions": Action(PlaceSuggestionsRequest, ("name",)),
    "mount": Action(MountRequest, ("name", "directory")),
}
"""What is done with no volume, or before there is one."""


def ask(request: Command[_Answer] | LongRequest[_Answer, Any]) -> _Answer:
    """Have the daemon carry out a request. A daemon that was stopped is not started again. Raises
    HybrisError."""
    with Client.connect(start=False) as client:
        return client.call(request)


def perform(name: str, volume: str | None, given: Mapping[str, Any]) -> Message:
    """Carry out one of `ACTIONS` on a volume, or, where that is None, one of `ON_MACHINE`. Raises
    HybrisError."""
    action = (ON_MACHINE if volume is None else ACTIONS).get(name)
    if action is None:
        raise UsageError(f"the page cannot do {name[:80]!r}")
    allowed = (*action.arguments, *(("path",) if action.mounted_path else ()))
    unknown = [one for one in given if one not in allowed]
    if unknown:
        raise UsageError(f"{unknown[0][:80]!r} means nothing here")
    if volume is None:
        arguments: Message = dict(given)
    elif action.mounted_path:
        others = {one: given[one] for one in action.arguments if one in given}
        arguments = {"paths": [_below_mount(volume, given.get("path"))], **others}
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
