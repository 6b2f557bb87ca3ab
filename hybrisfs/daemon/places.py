"""The daemon's commands about places: what may become clouds of a volume, and where it may be mounted."""

from __future__ import annotations

from collections.abc import Callable

from hybrisfs.daemon import arguments as read
from hybrisfs.daemon.control import Progress
from hybrisfs.daemon.interfaces import VolumeKind
from hybrisfs.home import Home, check_volume_name
from hybrisfs.wire import Message

__all__ = ["PlaceCommands"]


class PlaceCommands:
    """Passes on what is asked. No volume is needed."""

    def __init__(self, home: Home, kind: VolumeKind) -> None:
        self._home = home
        self._kind = kind
        self.commands: dict[str, Callable[[Message, Progress], Message]] = {
            "place secrets": self._secrets,
            "place try": self._try,
            "place suggestions": self._suggestions,
        }

    def _secrets(self, arguments: Message, _: Progress) -> Message:
        return self._kind.describe_secrets(self._home, read.text(arguments, "url"))

    def _try(self, arguments: Message, _: Progress) -> Message:
        url, secrets = read.text(arguments, "url"), read.optional_secrets(arguments, "secrets")
        return self._kind.try_place(self._home, url, secrets)

    def _suggestions(self, arguments: Message, _: Progress) -> Message:
        """Where a volume of that name may be mounted, and local folders that may play its clouds."""
        name = check_volume_name(read.text(arguments, "name"))
        usual = self._home.default_mountpoint
        first = not self._kind.list(self._home)
        folders = [self._home.data / "clouds" / name / f"cloud-{number}" for number in (1, 2, 3)]
        return {
            "mountpoint": str(usual if first else usual.with_name(name)),
            "clouds": [folder.as_uri() for folder in folders],
        }
