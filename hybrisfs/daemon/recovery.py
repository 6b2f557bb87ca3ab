"""The daemon's commands about recovery kits, and recovering by one."""

from __future__ import annotations

import threading
from collections.abc import Callable

from hybrisfs.api.recovery import (
    Doing,
    Kits,
    Recovered,
    RecoverRequest,
    RecoveryMakeRequest,
    RecoveryRemoveRequest,
    RecoveryShowRequest,
)
from hybrisfs.api.request import Handler
from hybrisfs.daemon.interfaces import VolumeKind
from hybrisfs.daemon.slots import Slots
from hybrisfs.home import Home

__all__ = ["RecoveryCommands"]


class RecoveryCommands:
    """Passphrases come and go over the control socket, and are kept nowhere. *creating* is held while volumes
    are made."""

    def __init__(self, home: Home, kind: VolumeKind, slots: Slots, creating: threading.Lock) -> None:
        self._home = home
        self._kind = kind
        self._slots = slots
        self._creating = creating
        self.commands: dict[str, Handler] = dict(
            [
                RecoveryMakeRequest.answered_by(
                    lambda asked: slots.get(asked.name).open().recovery.make(asked.passphrase)
                ),
                RecoveryShowRequest.answered_by(self._show),
                RecoveryRemoveRequest.answered_by(
                    lambda asked: slots.get(asked.name).open().recovery.remove(asked.kit)
                ),
                RecoverRequest.answered_by(self._recover),
            ]
        )

    def _show(self, asked: RecoveryShowRequest) -> Kits:
        volume = self._slots.get(asked.name).open()
        return Kits(volume.name, volume.recovery.all())

    def _recover(self, asked: RecoverRequest, tell: Callable[[Doing], None]) -> Recovered:
        with self._creating:
            recovered = self._kind.recover(
                self._home,
                asked.clouds,
                asked.passphrase,
                asked.as_name,
                asked.own_name,
                incomplete=asked.incomplete,
                tell=lambda text: tell(Doing(text)),
            )
        self._slots.get(recovered.volume.name).open()
        return recovered
