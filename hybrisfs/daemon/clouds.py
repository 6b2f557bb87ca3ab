"""The daemon's commands about the clouds of a volume."""

from __future__ import annotations

from collections.abc import Callable

from hybrisfs.daemon import arguments as read
from hybrisfs.daemon.control import Progress
from hybrisfs.daemon.interfaces import OpenVolume
from hybrisfs.daemon.slots import Slots
from hybrisfs.wire import Message

__all__ = ["CloudCommands"]


class CloudCommands:
    """Passes on what is asked. A client that hangs up while it waits stops nothing but the waiting."""

    def __init__(self, slots: Slots) -> None:
        self._slots = slots
        self.commands: dict[str, Callable[[Message, Progress], Message]] = {
            "cloud list": self._list,
            "cloud test": self._test,
            "cloud add": self._add,
            "cloud adopt": self._adopt,
            "cloud retain": self._retain,
            "cloud drain": self._drain,
            "cloud remove": self._remove,
            "cloud replace": self._replace,
            "cloud wait": self._wait,
            "volume redundancy": self._redundancy,
            "volume redundancy wait": self._wait_rewritten,
        }

    def _volume(self, arguments: Message) -> OpenVolume:
        return self._slots.get(read.optional_text(arguments, "name")).open()

    def _list(self, arguments: Message, _: Progress) -> Message:
        volume = self._volume(arguments)
        return {"name": volume.name, "clouds": volume.clouds.all()}

    def _test(self, arguments: Message, _: Progress) -> Message:
        volume = self._volume(arguments)
        return {"name": volume.name, **volume.clouds.test(read.text(arguments, "cloud"))}

    def _add(self, arguments: Message, _: Progress) -> Message:
        volume = self._volume(arguments)
        url, name = read.text(arguments, "url"), read.optional_text(arguments, "cloud_name")
        days = read.number(arguments, "days")
        added = volume.clouds.add(url, name, days) if days else volume.clouds.add(url, name)
        return {"name": volume.name, **added}

    def _retain(self, arguments: Message, _: Progress) -> Message:
        volume = self._volume(arguments)
        days = read.number(arguments, "days")
        return {"name": volume.name, **volume.clouds.retain(read.text(arguments, "cloud"), days or 0)}

    def _adopt(self, arguments: Message, _: Progress) -> Message:
        volume = self._volume(arguments)
        return {"name": volume.name, **volume.clouds.adopt(read.text(arguments, "cloud"))}

    def _drain(self, arguments: Message, _: Progress) -> Message:
        volume = self._volume(arguments)
        return {"name": volume.name, **volume.clouds.drain(read.text(arguments, "cloud"))}

    def _remove(self, arguments: Message, _: Progress) -> Message:
        volume = self._volume(arguments)
        return {"name": volume.name, **volume.clouds.remove(read.text(arguments, "cloud"))}

    def _replace(self, arguments: Message, _: Progress) -> Message:
        volume = self._volume(arguments)
        facts = volume.clouds.replace(read.text(arguments, "cloud"), read.text(arguments, "url"))
        return {"name": volume.name, **facts}

    def _wait(self, arguments: Message, progress: Progress) -> Message:
        volume = self._volume(arguments)
        done, trouble = volume.clouds.wait(
            read.text(arguments, "cloud"),
            read.seconds(arguments, "timeout"),
            lambda done, total: progress({"done": done, "total": total}),
        )
        return {"name": volume.name, "done": done, "trouble": trouble}

    def _redundancy(self, arguments: Message, _: Progress) -> Message:
        volume = self._volume(arguments)
        f, k = read.number(arguments, "f"), read.number(arguments, "k")
        return {"name": volume.name, **volume.clouds.change_redundancy(f, k)}

    def _wait_rewritten(self, arguments: Message, progress: Progress) -> Message:
        volume = self._volume(arguments)
        done, trouble = volume.clouds.wait_rewritten(
            read.seconds(arguments, "timeout"),
            lambda done, total: progress({"done": done, "total": total}),
        )
        return {"name": volume.name, "done": done, "trouble": trouble}
