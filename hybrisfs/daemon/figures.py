"""The daemon's commands on how the clouds do: what moves now, what was in the last day, what it costs."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import asdict

from hybrisfs.api import figures as api
from hybrisfs.api.clouds import Cloud
from hybrisfs.api.request import Handler, extended
from hybrisfs.api.status import Status
from hybrisfs.daemon.recorder import Recorder
from hybrisfs.daemon.slots import Slots
from hybrisfs.dispersal.counting import Use
from hybrisfs.errors import UsageError
from hybrisfs.exposition import exposition
from hybrisfs.history.cloud import SPANS, Month
from hybrisfs.prices import Prices, bill, load_prices, looked_up, provider_of

__all__ = ["FigureCommands"]


class FigureCommands:
    """Answers from what is counted anyway; no cloud is asked."""

    def __init__(self, slots: Slots, recorder: Recorder, status: Callable[[], Status]) -> None:
        """*status* is what `status` answers, without a look at the clouds."""
        self._slots = slots
        self._recorder = recorder
        self._status = status
        self.commands: dict[str, Handler] = dict(
            [
                api.TrafficRequest.answered_by(self._traffic),
                api.HistoryRequest.answered_by(self._history),
                api.CostRequest.answered_by(self._cost),
                api.MetricsRequest.answered_by(self._metrics),
            ]
        )

    def _traffic(self, asked: api.TrafficRequest) -> api.Traffic:
        volume = self._slots.get(asked.name).open()
        clouds = [
            api.CloudTraffic(
                name=one.name,
                state=one.state,
                up=one.counters.up,
                down=one.counters.down,
                transfers=[api.Transfer(**asdict(transfer)) for transfer in one.transfers],
            )
            for one in volume.clouds.traffic()
        ]
        return api.Traffic(volume.name, time.monotonic(), clouds)

    def _history(self, asked: api.HistoryRequest) -> api.VolumeSeries:
        name = self._slots.get(asked.name).open().name
        if asked.span not in SPANS:
            raise UsageError(f"span is one of {' and '.join(SPANS)}")
        series = self._recorder.series(name, asked.span)
        return extended(api.VolumeSeries, series, name=name, span=asked.span)

    def _metrics(self, _: api.MetricsRequest) -> api.Metrics:
        traffic = {
            slot.name: slot.volume.clouds.traffic()
            for slot in self._slots.opened()
            if slot.volume is not None
        }
        return api.Metrics(exposition(self._status(), traffic, time.time()))

    def _cost(self, asked: api.CostRequest) -> api.Cost:
        volume = self._slots.get(asked.name).open()
        months, prices = self._recorder.months(volume.name), load_prices()
        clouds = [_charged(one, months.get(one.number, []), prices) for one in volume.clouds.all()]
        return api.Cost(
            name=volume.name,
            month=time.strftime("%Y-%m"),
            currency="USD",
            looked_up=looked_up(),
            clouds=clouds,
            total=sum(one.bill.total for one in clouds if one.bill is not None),
        )


def _charged(cloud: Cloud, months: list[Month], prices: Mapping[str, Prices]) -> api.CloudCost:
    now = time.strftime("%Y-%m")
    use = next((one.use for one in months if one.name == now), Use())
    provider = provider_of(cloud.url)
    charged = None if provider is None else bill(use, cloud.bytes, prices[provider])
    return api.CloudCost(
        name=cloud.name,
        provider=provider,
        stored=cloud.bytes,
        use=_told(use),
        bill=None if charged is None else api.Bill(**asdict(charged), total=charged.total),
        before=[api.Month(one.name, _told(one.use)) for one in months if one.name != now],
    )


def _told(use: Use) -> api.Use:
    return api.Use(**asdict(use))
