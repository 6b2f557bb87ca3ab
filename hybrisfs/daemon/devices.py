"""The daemon's commands about the devices of a volume, and the pairings under way."""

from __future__ import annotations

import logging
import secrets
import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from msgspec.structs import asdict, replace

from hybrisfs.api import devices
from hybrisfs.api import devices as api
from hybrisfs.api.devices import (
    DeviceConfirmRequest,
    DeviceInviteRequest,
    DeviceJoinRequest,
    PairingNews,
    VolumeAdmission,
)
from hybrisfs.api.request import Done, Handler, Named, extended
from hybrisfs.api.volumes import MadeVolume
from hybrisfs.daemon.slots import Slots
from hybrisfs.errors import UsageError
from hybrisfs.home import Home

if TYPE_CHECKING:
    from hybrisfs.daemon.local import LocalVolumes
    from hybrisfs.pairing.exchange import Dialogue
    from hybrisfs.pairing.messages import Peer
    from hybrisfs.volume.volume import Volume as OpenVolume

__all__ = ["Pairing", "Pairings", "SharingCommands"]

log = logging.getLogger(__name__)

_CODE_SECONDS: Final = 900

_Tell = Callable[[PairingNews], None]


class SharingCommands:
    """Pairing and devices. *creating* is held while volumes are made."""

    def __init__(self, home: Home, kind: LocalVolumes, slots: Slots, creating: threading.Lock) -> None:
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
                devices.DeviceAdmittedRequest.answered_by(self._admitted_by),
                devices.DeviceRemoveRequest.answered_by(self._remove),
                devices.DeviceKeepRequest.answered_by(self._keep),
                devices.DeviceProofRequest.answered_by(self._prove),
                devices.DeviceCheckProofRequest.answered_by(self._check_proof),
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

    def _admitted_by(self, asked: devices.DeviceAdmittedRequest) -> devices.Admitted:
        return self._volume(asked.name).admitted_by(asked.device)

    def _remove(self, asked: devices.DeviceRemoveRequest) -> devices.RemovedDevice:
        return self._volume(asked.name).remove_device(
            asked.device, with_admitted=asked.with_admitted, passphrase=asked.passphrase
        )

    def _keep(self, asked: devices.DeviceKeepRequest) -> devices.KeptDevice:
        return self._volume(asked.name).keep_device(asked.device, passphrase=asked.passphrase)

    def _prove(self, asked: devices.DeviceProofRequest) -> devices.Proof:
        volume = self._volume(asked.name)
        proof = volume.device_proof(asked.device)
        told = volume.check_proof(proof)
        told.proof = proof.hex()
        return told

    def _check_proof(self, asked: devices.DeviceCheckProofRequest) -> devices.Proof:
        try:
            proof = bytes.fromhex(asked.proof)
        except ValueError as error:
            raise UsageError("a proof is given in hex") from error
        return self._volume(asked.name).check_proof(proof)


def _folders(role: str | None, folders: Sequence[str] | None) -> Sequence[str]:
    """To what a device in that role is limited; nothing if it is not a contributor. Raises UsageError."""
    if folders and role != "contributor":
        raise UsageError("only a contributor is limited to folders", "", "Name the role contributor, too.")
    if role == "contributor" and not folders:
        raise UsageError("a contributor is limited to folders, and none is named", "", "Name it: --folder.")
    return folders or ()


# -- pairings under way: what a person is to be shown, and the answer that is waited for ----------------
# A pairing runs in a thread of its own while the command that began it waits and gets messages on
# where it stands; the person's yes or no comes with a command of its own.


_TELL_EVERY: Final = 0.2  # seconds; the channel drops what comes faster than every 0.1 s
_GLANCE: Final = 0.2


_Result = TypeVar("_Result")


class Pairing(Generic[_Result]):
    """One pairing. *work* is given the dialogue and the event that ends it, and returns the result."""

    def __init__(self, news: PairingNews, work: Callable[[Dialogue, threading.Event], _Result]) -> None:
        """*news* is the first message."""
        self.id = secrets.token_hex(8)
        self._lock = threading.Lock()
        self._news = replace(news, pairing=self.id)
        self._work = work
        self._stop = threading.Event()
        self._answered = threading.Event()
        self._accepted = False
        self._result: _Result | None = None
        self._failure: Exception | None = None
        self._thread = threading.Thread(target=self._run, name="pairing", daemon=True)

    def _run(self) -> None:
        from hybrisfs.pairing.exchange import Dialogue  # takes long to import

        dialogue = Dialogue(show=self._show, confirm=self._confirm, progress=self._tell)
        try:
            self._result = self._work(dialogue, self._stop)
        except Exception as error:  # noqa: BLE001 - raised again where it is waited for
            self._failure = error

    def _note(self, **facts: object) -> None:
        with self._lock:  # the clouds' threads report their progress at the same time
            self._news = replace(self._news, **facts)

    def _show(self, comparison: str) -> None:
        self._note(comparison=comparison)

    def _tell(self, text: str) -> None:
        self._note(doing=text)

    def _confirm(self, peer: Peer) -> bool:
        self._note(device=peer.name, question=True)
        while not self._answered.wait(_GLANCE):
            if self._stop.is_set():
                return False
        self._note(question=False)
        return self._accepted

    def answer(self, accept: bool) -> None:
        """What the person says to the comparison string; the first answer counts."""
        if not self._answered.is_set():
            self._accepted = accept
            self._answered.set()

    def carry_through(self, tell: Callable[[PairingNews], None]) -> _Result:
        """Run it, telling where it stands; its result. It ends when nobody listens any more."""
        self._thread.start()
        try:
            while self._thread.is_alive():
                tell(self._news)
                self._thread.join(_TELL_EVERY)
        finally:
            self._stop.set()
            self._thread.join()
        if self._failure is not None:
            raise self._failure
        assert self._result is not None
        return self._result


class Pairings:
    """The pairings of a daemon, by their ids. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._pairings: dict[str, Pairing[Any]] = {}

    def carry_through(self, pairing: Pairing[_Result], tell: Callable[[PairingNews], None]) -> _Result:
        """See `Pairing.carry_through`."""
        with self._lock:
            self._pairings[pairing.id] = pairing
        try:
            return pairing.carry_through(tell)
        finally:
            with self._lock:
                del self._pairings[pairing.id]

    def answer(self, pairing: str, accept: bool) -> None:
        """Pass on a person's answer. Raises UsageError when the pairing is over."""
        with self._lock:
            found = self._pairings.get(pairing)
        if found is None:
            raise UsageError("there is no such pairing any more")
        found.answer(accept)
