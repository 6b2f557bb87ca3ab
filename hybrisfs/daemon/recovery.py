"""The daemon's commands about recovery kits, and recovering by one."""

from __future__ import annotations

import threading
from collections.abc import Callable

from hybrisfs.api.request import message_of
from hybrisfs.daemon import arguments as read
from hybrisfs.daemon.control import Progress
from hybrisfs.daemon.interfaces import OpenVolume, VolumeKind, describe
from hybrisfs.daemon.slots import Slots
from hybrisfs.home import Home
from hybrisfs.wire import Message

__all__ = ["RecoveryCommands"]


class RecoveryCommands:
    """Passphrases come and go over the control socket, and are kept nowhere. *creating* is held while volumes
    are made."""

    def __init__(self, home: Home, kind: VolumeKind, slots: Slots, creating: threading.Lock) -> None:
        self._home = home
        self._kind = kind
        self._slots = slots
        self._creating = creating
        self.commands: dict[str, Callable[[Message, Progress], Message]] = {
            "recovery make": self._make,
            "recovery show": self._show,
            "recovery remove": self._remove,
            "recover": self._recover,
        }

    def _volume(self, arguments: Message) -> OpenVolume:
        return self._slots.get(read.optional_text(arguments, "name")).open()

    def _make(self, arguments: Message, _: Progress) -> Message:
        volume = self._volume(arguments)
        return {"name": volume.name, **volume.recovery.make(read.optional_text(arguments, "passphrase"))}

    def _show(self, arguments: Message, _: Progress) -> Message:
        volume = self._volume(arguments)
        return {"name": volume.name, "kits": volume.recovery.all()}

    def _remove(self, arguments: Message, _: Progress) -> Message:
        volume = self._volume(arguments)
        return {"name": volume.name, **volume.recovery.remove(read.text(arguments, "kit"))}

    def _recover(self, arguments: Message, progress: Progress) -> Message:
        with self._creating:
            recovered = self._kind.recover(
                self._home,
                read.texts(arguments, "clouds"),
                read.text(arguments, "passphrase"),
                read.optional_text(arguments, "as_name"),
                read.optional_text(arguments, "own_name"),
                incomplete=read.flag(arguments, "incomplete"),
                tell=lambda text: progress({"doing": text}),
            )
        self._slots.get(recovered.config.name).open()
        return {
            "volume": message_of(describe(recovered.config)),
            "missing": list(recovered.missing),
            "agreed": recovered.agreed,
        }
