"""The daemon's commands about places: what may become clouds of a volume, and where it may be mounted."""

from __future__ import annotations

from hybrisfs.api.places import PlaceSecretsRequest, PlaceSuggestionsRequest, PlaceTryRequest, Suggestions
from hybrisfs.api.request import Handler
from hybrisfs.daemon.interfaces import VolumeKind
from hybrisfs.home import Home, check_volume_name

__all__ = ["PlaceCommands"]


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
