"""The daemon's commands about the clouds of a volume, and about places: what may become clouds, and where a
volume may be mounted."""

from __future__ import annotations

from collections.abc import Callable

from hybrisfs.api import clouds as api
from hybrisfs.api.places import PlaceSecretsRequest, PlaceSuggestionsRequest, PlaceTryRequest, Suggestions
from hybrisfs.api.request import Handler, Moved
from hybrisfs.daemon.interfaces import CloudControl, VolumeKind
from hybrisfs.daemon.slots import Slots
from hybrisfs.home import Home, check_volume_name

__all__ = ["CloudCommands", "PlaceCommands"]


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


class PlaceCommands:
    """Passes on what is asked. No volume is needed."""

    def __init__(self, home: Home, kind: VolumeKind) -> None:
        self._home = home
        self._kind = kind
        self.commands: dict[str, Handler] = dict(
            [
                PlaceSecretsRequest.answered_by(lambda asked: kind.describe_secrets(home, asked.url)),
                PlaceTryRequest.answered_by(lambda asked: kind.try_place(home, asked.url, asked.secrets)),
                PlaceSuggestionsRequest.answered_by(self._suggestions),
            ]
        )

    def _suggestions(self, asked: PlaceSuggestionsRequest) -> Suggestions:
        """Where a volume of that name may be mounted, and local folders that may play its clouds."""
        name = check_volume_name(asked.name)
        usual = self._home.default_mountpoint
        first = not self._kind.list(self._home)
        folders = [self._home.data / "clouds" / name / f"cloud-{number}" for number in (1, 2, 3)]
        return Suggestions(
            str(usual if first else usual.with_name(name)), [folder.as_uri() for folder in folders]
        )
