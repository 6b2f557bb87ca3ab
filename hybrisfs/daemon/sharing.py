"""The daemon's commands about the other devices of a volume."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from typing import Final, TypedDict

from hybrisfs.daemon import arguments as read
from hybrisfs.daemon.control import Progress
from hybrisfs.daemon.interfaces import OpenVolume, VolumeKind, describe
from hybrisfs.daemon.pairing import Pairing, Pairings
from hybrisfs.daemon.slots import Slots
from hybrisfs.errors import UsageError
from hybrisfs.home import Home
from hybrisfs.pairing import Dialogue
from hybrisfs.wire import Message

__all__ = ["SharingCommands"]

_CODE_SECONDS: Final = 900
_ROLES: Final = ("full", "contributor", "reader")


class SharingCommands:
    """Pairing, devices, conflicts, and deletions that wait. *creating* is held while volumes are made."""

    def __init__(self, home: Home, kind: VolumeKind, slots: Slots, creating: threading.Lock) -> None:
        self._home = home
        self._kind = kind
        self._slots = slots
        self._creating = creating
        self._pairings = Pairings()
        self.commands: dict[str, Callable[[Message, Progress], Message]] = {
            "device invite": self._invite,
            "device join": self._join,
            "device confirm": self._confirm,
            "device list": self._list_devices,
            "device rename": self._rename,
            "device role": self._role,
            "device admitted": self._admitted_by,
            "device remove": self._remove,
            "device keep": self._keep,
            "device proof": self._prove,
            "device check-proof": self._check_proof,
            "conflicts list": self._list_conflicts,
            "conflicts keep": partial(self._settle_conflict, keep_all=False),
            "conflicts keep-all": partial(self._settle_conflict, keep_all=True),
            "deletions list": self._list_deletions,
            "deletions accept": partial(self._decide_deletion, undo=False),
            "deletions undo": partial(self._decide_deletion, undo=True),
        }

    def _volume(self, arguments: Message) -> OpenVolume:
        return self._slots.get(read.optional_text(arguments, "name")).open()

    # -- devices ---------------------------------------------------------------------------------

    def _invite(self, arguments: Message, progress: Progress) -> Message:
        volume = self._volume(arguments)
        invitation = volume.invite(
            lifetime=read.number(arguments, "valid") or _CODE_SECONDS,
            with_credentials=read.flag(arguments, "with_credentials"),
            **_limits(arguments),
        )
        result = self._pairings.carry_through(Pairing(invitation.facts, invitation.run), progress)
        return {"name": volume.name, **result}

    def _join(self, arguments: Message, progress: Progress) -> Message:
        join = self._kind.join(
            self._home,
            read.text(arguments, "code"),
            read.optional_text(arguments, "as_name"),
            read.optional_text(arguments, "own_name"),
        )

        def work(dialogue: Dialogue, stop: threading.Event) -> Message:
            make = join(dialogue, stop)
            with self._creating:
                return {"volume": describe(make())}

        result = self._pairings.carry_through(Pairing({}, work), progress)
        self._slots.get(result["volume"]["name"]).open()
        return result

    def _confirm(self, arguments: Message, _: Progress) -> Message:
        self._pairings.answer(read.text(arguments, "pairing"), read.flag(arguments, "accept"))
        return {}

    def _list_devices(self, arguments: Message, _: Progress) -> Message:
        volume = self._volume(arguments)
        accused = volume.status(look=False).get("accused", [])
        return {"name": volume.name, "devices": volume.devices(), "accused": accused}

    def _rename(self, arguments: Message, _: Progress) -> Message:
        volume = self._volume(arguments)
        volume.rename_device(read.text(arguments, "device"), read.text(arguments, "new_name"))
        return {"name": volume.name}

    def _role(self, arguments: Message, _: Progress) -> Message:
        volume, device = self._volume(arguments), read.text(arguments, "device")
        limits, passphrase = _limits(arguments), read.optional_text(arguments, "passphrase")
        if read.optional_text(arguments, "role") is None:
            return {"name": volume.name, **volume.role_of(device)}
        by_kit = {} if passphrase is None else {"passphrase": passphrase}
        found = volume.set_role(device, **(limits or {"reader": False}), **by_kit)
        return {"name": volume.name, **found}

    def _admitted_by(self, arguments: Message, _: Progress) -> Message:
        volume = self._volume(arguments)
        return {"name": volume.name, **volume.admitted_by(read.text(arguments, "device"))}

    def _remove(self, arguments: Message, _: Progress) -> Message:
        volume = self._volume(arguments)
        passphrase = read.optional_text(arguments, "passphrase")
        by_kit = {} if passphrase is None else {"passphrase": passphrase}
        removed = volume.remove_device(
            read.text(arguments, "device"), with_admitted=read.flag(arguments, "with_admitted"), **by_kit
        )
        return {"name": volume.name, **removed}

    def _keep(self, arguments: Message, _: Progress) -> Message:
        volume = self._volume(arguments)
        device, passphrase = read.text(arguments, "device"), read.optional_text(arguments, "passphrase")
        return {"name": volume.name, **volume.keep_device(device, passphrase=passphrase)}

    def _prove(self, arguments: Message, _: Progress) -> Message:
        volume = self._volume(arguments)
        proof = volume.device_proof(read.text(arguments, "device"))
        return {"name": volume.name, "proof": proof.hex(), **volume.check_proof(proof)}

    def _check_proof(self, arguments: Message, _: Progress) -> Message:
        volume = self._volume(arguments)
        try:
            proof = bytes.fromhex(read.text(arguments, "proof"))
        except ValueError as error:
            raise UsageError("a proof is given in hex") from error
        return {"name": volume.name, **volume.check_proof(proof)}

    # -- what waits for a person -----------------------------------------------------------------

    def _list_conflicts(self, arguments: Message, _: Progress) -> Message:
        volume = self._volume(arguments)
        found = volume.conflicts()
        first, limit = read.number(arguments, "first") or 0, read.number(arguments, "limit")
        if first < 0 or (limit is not None and limit < 0):
            raise UsageError("first and limit must not be negative")
        shown = found[first:] if limit is None else found[first : first + limit]
        return {"name": volume.name, "conflicts": shown, "total": len(found)}

    def _settle_conflict(self, arguments: Message, _: Progress, *, keep_all: bool) -> Message:
        volume = self._volume(arguments)
        volume.settle_conflict(read.text(arguments, "path"), keep_all=keep_all)
        return {"name": volume.name}

    def _list_deletions(self, arguments: Message, _: Progress) -> Message:
        volume = self._volume(arguments)
        return {"name": volume.name, "deletions": volume.deletions()}

    def _decide_deletion(self, arguments: Message, _: Progress, *, undo: bool) -> Message:
        volume = self._volume(arguments)
        volume.decide_deletion(read.text(arguments, "id"), undo=undo)
        return {"name": volume.name}


class _Limits(TypedDict, total=False):
    """What a device is limited to; of a full member nothing is told."""

    reader: bool
    folders: list[str]


def _limits(arguments: Message) -> _Limits:
    """What the "role" and the "folders" mean. Raises UsageError."""
    role = read.optional_text(arguments, "role")
    folders = read.texts(arguments, "folders") if arguments.get("folders") else []
    if role is not None and role not in _ROLES:
        raise UsageError(f"a role is one of {', '.join(_ROLES)}")
    if folders and role != "contributor":
        raise UsageError("only a contributor is limited to folders", "", "Name the role contributor, too.")
    if role == "contributor":
        if not folders:
            raise UsageError(
                "a contributor is limited to folders, and none is named", "", "Name it: --folder."
            )
        return {"folders": folders}
    return {"reader": True} if role == "reader" else {}
