"""The daemon's commands on what may move between this device and the clouds."""

from __future__ import annotations

from hybrisfs.api.request import Handler, extended
from hybrisfs.api.transfers import LimitRequest, PauseRequest, ResumeRequest, VolumeTransfers
from hybrisfs.daemon.interfaces import OpenVolume
from hybrisfs.daemon.slots import Slots

__all__ = ["TransferCommands"]


class TransferCommands:
    """Passes on what is asked of a volume's transfers; each command answers with what holds then."""

    def __init__(self, slots: Slots) -> None:
        self._slots = slots
        self.commands: dict[str, Handler] = dict(
            [
                LimitRequest.answered_by(self._limit),
                PauseRequest.answered_by(self._pause),
                ResumeRequest.answered_by(self._resume),
            ]
        )

    def _limit(self, asked: LimitRequest) -> VolumeTransfers:
        volume = self._slots.get(asked.name).open()
        if any(one is not None for one in (asked.up, asked.down, asked.on_metered)):
            volume.transfers.limit(asked.up, asked.down, asked.on_metered)
        return _facts(volume)

    def _pause(self, asked: PauseRequest) -> VolumeTransfers:
        volume = self._slots.get(asked.name).open()
        volume.transfers.pause(asked.seconds)
        return _facts(volume)

    def _resume(self, asked: ResumeRequest) -> VolumeTransfers:
        volume = self._slots.get(asked.name).open()
        volume.transfers.resume()
        return _facts(volume)


def _facts(volume: OpenVolume) -> VolumeTransfers:
    return extended(VolumeTransfers, volume.transfers.facts(), name=volume.name)
