"""The daemon's commands on how the clouds do: what moves now, what was in the last day, what it costs."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any

from hybrisfs.api.clouds import Cloud
from hybrisfs.api.status import Status
from hybrisfs.daemon import arguments as read
from hybrisfs.daemon.control import Progress
from hybrisfs.daemon.interfaces import OpenVolume
from hybrisfs.daemon.recorder import Recorder
from hybrisfs.daemon.slots import Slots
from hybrisfs.dispersal.counting import Use
from hybrisfs.errors import UsageError
from hybrisfs.exposition import exposition
from hybrisfs.history.cloud import SPANS, Month
from hybrisfs.prices import Prices, bill, load_prices, looked_up, provider_of
from hybrisfs.wire import Message

__all__ = ["FigureCommands"]


class FigureCommands:
    """Answers from what is counted anyway; no cloud is asked."""

    def __init__(self, slots: Slots, recorder: Recorder, status: Callable[[], Status]) -> None:
        """*status* is what `status` answers, without a look at the clouds."""
        self._slots = slots
        self._recorder = recorder
        self._status = status
        self.commands: dict[str, Callable[[Message, Progress], Message]] = {
            "traffic": self._traffic,
            "history": self._history,
            "cost": self._cost,
            "metrics": self._metrics,
        }

    def _volume(self, arguments: Message) -> OpenVolume:
        return self._slots.get(read.optional_text(arguments, "name")).open()

    def _traffic(self, arguments: Message, _: Progress) -> Message:
        volume = self._volume(arguments)
        clouds = [
            {
                "name": one.name,
                "state": one.state,
                "up": one.counters.up,
                "down": one.counters.down,
                "transfers": [asdict(transfer) for transfer in one.transfers],
            }
            for one in volume.clouds.traffic()
        ]
        return {"name": volume.name, "now": time.monotonic(), "clouds": clouds}

    def _history(self, arguments: Message, _: Progress) -> Message:
        volume, span = self._volume(arguments), read.text(arguments, "span")
        if span not in SPANS:
            raise UsageError(f"span is one of {' and '.join(SPANS)}")
        return {"name": volume.name, "span": span, **self._recorder.series(volume.name, span)}

    def _metrics(self, _: Message, __: Progress) -> Message:
        traffic = {
            slot.name: [{"name": one.name, **asdict(one.counters)} for one in slot.volume.clouds.traffic()]
            for slot in self._slots.opened()
            if slot.volume is not None
        }
        return {"text": exposition(self._status(), traffic, time.time())}

    def _cost(self, arguments: Message, _: Progress) -> Message:
        volume = self._volume(arguments)
        months, prices = self._recorder.months(volume.name), load_prices()
        clouds = [_charged(one, months.get(one.number, []), prices) for one in volume.clouds.all()]
        return {
            "name": volume.name,
            "month": time.strftime("%Y-%m"),
            "currency": "USD",
            "looked_up": looked_up(),
            "clouds": clouds,
            "total": sum(one["bill"]["total"] for one in clouds if one["bill"] is not None),
        }


def _charged(cloud: Cloud, months: list[Month], prices: Mapping[str, Prices]) -> dict[str, Any]:
    """What one cloud costs. Storage is that of the whole volume for a whole month, as it is now; requests and
    bytes are those of this device so far."""
    now = time.strftime("%Y-%m")
    use = next((one.use for one in months if one.name == now), Use())
    provider = provider_of(cloud.url)
    charged = None if provider is None else bill(use, cloud.bytes, prices[provider])
    return {
        "name": cloud.name,
        "provider": provider,
        "stored": cloud.bytes,
        "use": asdict(use),
        "bill": None if charged is None else {**asdict(charged), "total": charged.total},
        "before": [{"month": one.name, "use": asdict(one.use)} for one in months if one.name != now],
    }
