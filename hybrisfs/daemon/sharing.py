"""The daemon's commands about the devices of a volume."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Final

from msgspec.structs import asdict

from hybrisfs.api import devices as api
from hybrisfs.api import removal
from hybrisfs.api.pairing import (
    DeviceConfirmRequest,
    DeviceInviteRequest,
    DeviceJoinRequest,
    PairingNews,
    VolumeAdmission,
)
from hybrisfs.api.request import Done, Handler, Named, extended
from hybrisfs.api.volumes import MadeVolume
from hybrisfs.daemon.interfaces import OpenVolume, VolumeKind
from hybrisfs.daemon.pairing import Pairing, Pairings
from hybrisfs.daemon.slots import Slots
from hybrisfs.errors import UsageError
from hybrisfs.home import Home
from hybrisfs.pairing import Dialogue

__all__ = ["SharingCommands"]

_CODE_SECONDS: Final = 900

_Tell = Callable[[PairingNews], None]


class SharingCommands:
    """Pairing and devices. *creating* is held while volumes are made."""

    def __init__(self, home: Home, kind: VolumeKind, slots: Slots, creating: threading.Lock) -> None:
        self._home = home
        self._kind = kind
        self._slots = slots
        self._creating = creating
        self._pairings = Pairings()
        self.commands: dict[str, Handler] = dict(
            [
                DeviceInviteRequest.answered_by(self._invite),
                DeviceJoinRequest.answered_by(self._join),
                DeviceConfirmRequest.answered_by(self._confirm),
                api.DeviceListRequest.answered_by(self._list),
                api.DeviceRenameRequest.answered_by(self._rename),
                api.DeviceRoleRequest.answered_by(self._role),
                removal.DeviceAdmittedRequest.answered_by(self._admitted_by),
                removal.DeviceRemoveRequest.answered_by(self._remove),
                removal.DeviceKeepRequest.answered_by(self._keep),
                removal.DeviceProofRequest.answered_by(self._prove),
                removal.DeviceCheckProofRequest.answered_by(self._check_proof),
            ]
        )

    def _volume(self, name: str | None) -> OpenVolume:
        return self._slots.get(name).open()

    def _invite(self, asked: DeviceInviteRequest, tell: _Tell) -> VolumeAdmission:
        volume = self._volume(asked.name)
        invitation = volume.invite(
            lifetime=asked.valid or _CODE_SECONDS,
            with_credentials=asked.with_credentials,
            reader=asked.role == "reader",
            folders=_folders(asked.role, asked.folders),
        )
        news = PairingNews(**asdict(invitation.facts))
        admitted = self._pairings.carry_through(Pairing(news, invitation.run), tell)
        return extended(VolumeAdmission, admitted, name=volume.name)

    def _join(self, asked: DeviceJoinRequest, tell: _Tell) -> MadeVolume:
        join = self._kind.join(self._home, asked.code, asked.as_name, asked.own_name)

        def work(dialogue: Dialogue, stop: threading.Event) -> MadeVolume:
            make = join(dialogue, stop)
            with self._creating:
                return MadeVolume(make())

        made = self._pairings.carry_through(Pairing(PairingNews(), work), tell)
        self._slots.get(made.volume.name).open()
        return made

    def _confirm(self, asked: DeviceConfirmRequest) -> Done:
        self._pairings.answer(asked.pairing, asked.accept)
        return Done()

    def _list(self, asked: api.DeviceListRequest) -> api.Devices:
        volume = self._volume(asked.name)
        return api.Devices(volume.name, volume.devices(), volume.status(look=False).accused)

    def _rename(self, asked: api.DeviceRenameRequest) -> Named:
        volume = self._volume(asked.name)
        volume.rename_device(asked.device, asked.new_name)
        return Named(volume.name)

    def _role(self, asked: api.DeviceRoleRequest) -> api.DeviceRole:
        volume, folders = self._volume(asked.name), _folders(asked.role, asked.folders)
        if asked.role is None:
            return volume.role_of(asked.device)
        reader = asked.role == "reader"
        return volume.set_role(asked.device, reader=reader, folders=folders, passphrase=asked.passphrase)

    def _admitted_by(self, asked: removal.DeviceAdmittedRequest) -> removal.Admitted:
        return self._volume(asked.name).admitted_by(asked.device)

    def _remove(self, asked: removal.DeviceRemoveRequest) -> removal.RemovedDevice:
        return self._volume(asked.name).remove_device(
            asked.device, with_admitted=asked.with_admitted, passphrase=asked.passphrase
        )

    def _keep(self, asked: removal.DeviceKeepRequest) -> removal.KeptDevice:
        return self._volume(asked.name).keep_device(asked.device, passphrase=asked.passphrase)

    def _prove(self, asked: removal.DeviceProofRequest) -> removal.Proof:
        volume = self._volume(asked.name)
        proof = volume.device_proof(asked.device)
        told = volume.check_proof(proof)
        told.proof = proof.hex()
        return told

    def _check_proof(self, asked: removal.DeviceCheckProofRequest) -> removal.Proof:
        try:
            proof = bytes.fromhex(asked.proof)
        except ValueError as error:
            raise UsageError("a proof is given in hex") from error
        return self._volume(asked.name).check_proof(proof)


def _folders(role: str | None, folders: Sequence[str] | None) -> Sequence[str]:
    """To what a device in that role is limited; nothing if it is no contributor. Raises UsageError."""
    if folders and role != "contributor":
        raise UsageError("only a contributor is limited to folders", "", "Name the role contributor, too.")
    if role == "contributor" and not folders:
        raise UsageError("a contributor is limited to folders, and none is named", "", "Name it: --folder.")
    return folders or ()
