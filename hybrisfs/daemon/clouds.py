"""The daemon's commands about the clouds of a volume."""

from __future__ import annotations

from collections.abc import Callable

from hybrisfs.api import clouds as api
from hybrisfs.api.request import Handler, Moved
from hybrisfs.daemon.interfaces import CloudControl
from hybrisfs.daemon.slots import Slots

__all__ = ["CloudCommands"]


class CloudCommands:
    """Passes on what is asked. A client that hangs up while it waits stops nothing but the waiting."""

    def __init__(self, slots: Slots) -> None:
        self._slots = slots
        self.commands: dict[str, Handler] = dict(
            [
                api.CloudListRequest.answered_by(self._list),
                api.CloudTestRequest.answered_by(lambda asked: self._of(asked.name).test(asked.cloud)),
                api.CloudAddRequest.answered_by(self._add),
                api.CloudAdoptRequest.answered_by(lambda asked: self._of(asked.name).adopt(asked.cloud)),
                api.CloudRetainRequest.answered_by(self._retain),
                api.CloudDrainRequest.answered_by(lambda asked: self._of(asked.name).drain(asked.cloud)),
                api.CloudRemoveRequest.answered_by(lambda asked: self._of(asked.name).remove(asked.cloud)),
                api.CloudReplaceRequest.answered_by(self._replace),
                api.CloudWaitRequest.answered_by(self._wait),
                api.RedundancyRequest.answered_by(self._redundancy),
                api.RedundancyWaitRequest.answered_by(self._wait_rewritten),
            ]
        )

    def _of(self, volume: str | None) -> CloudControl:
        return self._slots.get(volume).open().clouds

    def _list(self, asked: api.CloudListRequest) -> api.Clouds:
        volume = self._slots.get(asked.name).open()
        return api.Clouds(volume.name, volume.clouds.all())

    def _add(self, asked: api.CloudAddRequest) -> api.AddedCloud:
        return self._of(asked.name).add(asked.url, asked.cloud_name, asked.days or None)

    def _retain(self, asked: api.CloudRetainRequest) -> api.KeptCloud:
        return self._of(asked.name).retain(asked.cloud, asked.days or 0)

    def _replace(self, asked: api.CloudReplaceRequest) -> api.ReplacedCloud:
        return self._of(asked.name).replace(asked.cloud, asked.url)

    def _wait(self, asked: api.CloudWaitRequest, tell: Callable[[Moved], None]) -> api.Waited:
        volume = self._slots.get(asked.name).open()
        done, trouble = volume.clouds.wait(
            asked.cloud, asked.timeout, lambda done, total: tell(Moved(done, total))
        )
        return api.Waited(volume.name, done, trouble)

    def _redundancy(self, asked: api.RedundancyRequest) -> api.Redundancy:
        return self._of(asked.name).change_redundancy(asked.f, asked.k)

    def _wait_rewritten(self, asked: api.RedundancyWaitRequest, tell: Callable[[Moved], None]) -> api.Waited:
        volume = self._slots.get(asked.name).open()
        done, trouble = volume.clouds.wait_rewritten(
            asked.timeout, lambda done, total: tell(Moved(done, total))
        )
        return api.Waited(volume.name, done, trouble)
