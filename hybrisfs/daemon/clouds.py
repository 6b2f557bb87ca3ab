"""The daemon's commands about clouds: which there are, what may move, how they do, and the record of it."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final

from msgspec.structs import asdict

from hybrisfs.api import clouds
from hybrisfs.api import cost as cost_api
from hybrisfs.api import traffic as traffic_api
from hybrisfs.api.clouds import Cloud
from hybrisfs.api.request import Handler, Moved, extended
from hybrisfs.api.status import Pending, PendingRequest, Status
from hybrisfs.api.traffic import LimitRequest, PauseRequest, ResumeRequest, Series, VolumeTransfers
from hybrisfs.api.volumes import (
    PlaceSecretsRequest,
    PlaceSuggestionsRequest,
    PlaceTryRequest,
    Suggestions,
    TriedPlace,
)
from hybrisfs.daemon.files import path_inside
from hybrisfs.daemon.slots import Slots
from hybrisfs.dispersal.counting import Use
from hybrisfs.environment import Environment
from hybrisfs.errors import UsageError
from hybrisfs.exposition import exposition
from hybrisfs.history import FILE, SPANS, HealthRecord, Month
from hybrisfs.home import Home, check_volume_name
from hybrisfs.prices import PriceList, Prices, bill, keep_price, provider_of
from hybrisfs.stores.cloud_names import unknown_cloud
from hybrisfs.verdict import judge

if TYPE_CHECKING:
    from hybrisfs.clouds.control import CloudControl
    from hybrisfs.daemon.local import LocalVolumes
    from hybrisfs.volume.volume import Volume as OpenVolume

__all__ = ["CloudCommands", "FigureCommands", "PlaceCommands", "Recorder", "TransferCommands"]

log = logging.getLogger(__name__)

_MOST_PENDING: Final = 1000  # files in one answer
_CURRENCY: Final = "USD"


class CloudCommands:
    """Passes on what is asked. A client that hangs up while it waits stops nothing but the waiting."""

    def __init__(self, slots: Slots) -> None:
        self._slots = slots
        self.commands: dict[str, Handler] = dict(
            [
                clouds.CloudListRequest.answered_by(self._list),
                clouds.CloudTestRequest.answered_by(
                    lambda asked: self._of(asked.name).test(asked.cloud, make=bool(asked.make))
                ),
                clouds.CloudRenameRequest.answered_by(
                    lambda asked: self._of(asked.name).rename(asked.cloud, asked.new_name)
                ),
                clouds.CloudAddRequest.answered_by(self._add),
                clouds.CloudAdoptRequest.answered_by(lambda asked: self._of(asked.name).adopt(asked.cloud)),
                clouds.CloudRetainRequest.answered_by(self._retain),
                clouds.CloudDrainRequest.answered_by(lambda asked: self._of(asked.name).drain(asked.cloud)),
                clouds.CloudRemoveRequest.answered_by(lambda asked: self._of(asked.name).remove(asked.cloud)),
                clouds.CloudReplaceRequest.answered_by(self._replace),
                clouds.CloudWaitRequest.answered_by(self._wait),
                clouds.RedundancyRequest.answered_by(self._redundancy),
                clouds.RedundancyWaitRequest.answered_by(self._wait_rewritten),
            ]
        )

    def _of(self, volume: str | None) -> CloudControl:
        return self._slots.get(volume).open().clouds

    def _list(self, asked: clouds.CloudListRequest) -> clouds.Clouds:
        volume = self._slots.get(asked.name).open()
        return clouds.Clouds(volume.name, volume.clouds.all(), volume.clouds.warnings())

    def _add(self, asked: clouds.CloudAddRequest) -> clouds.AddedCloud:
        control = self._of(asked.name)
        return control.add(asked.url, asked.cloud_name, asked.days or None, make=bool(asked.make))

    def _retain(self, asked: clouds.CloudRetainRequest) -> clouds.KeptCloud:
        return self._of(asked.name).retain(asked.cloud, asked.days or 0)

    def _replace(self, asked: clouds.CloudReplaceRequest) -> clouds.ReplacedCloud:
        control = self._of(asked.name)
        return control.replace(asked.cloud, asked.url, asked.cloud_name, make=bool(asked.make))

    def _wait(self, asked: clouds.CloudWaitRequest, tell: Callable[[Moved], None]) -> clouds.Waited:
        volume = self._slots.get(asked.name).open()
        done, trouble = volume.clouds.wait(
            asked.cloud, asked.timeout, lambda done, total: tell(Moved(done, total))
        )
        return clouds.Waited(volume.name, done, trouble)

    def _redundancy(self, asked: clouds.RedundancyRequest) -> clouds.Redundancy:
        return self._of(asked.name).change_redundancy(asked.f, asked.k)

    def _wait_rewritten(
        self, asked: clouds.RedundancyWaitRequest, tell: Callable[[Moved], None]
    ) -> clouds.Waited:
        volume = self._slots.get(asked.name).open()
        done, trouble = volume.clouds.wait_rewritten(
            asked.timeout, lambda done, total: tell(Moved(done, total))
        )
        return clouds.Waited(volume.name, done, trouble)


class PlaceCommands:
    """Passes on what is asked. No volume is needed."""

    def __init__(self, home: Home, kind: LocalVolumes, slots: Slots) -> None:
        self._home = home
        self._kind = kind
        self._slots = slots
        self.commands: dict[str, Handler] = dict(
            [
                PlaceSecretsRequest.answered_by(lambda asked: kind.describe_secrets(home, asked.url)),
                PlaceTryRequest.answered_by(self._try),
                PlaceSuggestionsRequest.answered_by(self._suggestions),
            ]
        )

    def _try(self, asked: PlaceTryRequest) -> TriedPlace:
        tried = self._kind.try_place(self._home, asked.url, asked.secrets, make=bool(asked.make))
        if asked.secrets:
            for volume in [slot.volume for slot in self._slots.opened()]:
                if volume is not None:
                    volume.look_at_secrets()
        return tried

    def _suggestions(self, asked: PlaceSuggestionsRequest) -> Suggestions:
        """Where a volume of that name may be mounted, and local folders that may play its clouds."""
        name = check_volume_name(asked.name)
        usual = self._home.default_mountpoint
        first = not self._kind.list(self._home)
        folders = [self._home.data / "clouds" / name / f"cloud-{number}" for number in (1, 2, 3)]
        return Suggestions(
            str(usual if first else usual.with_name(name)), [folder.as_uri() for folder in folders]
        )


# -- the daemon's commands on what may move between this device and the clouds --------------------------


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


# -- the daemon's commands on how the clouds do ---------------------------------------------------------


class FigureCommands:
    """Answers from what is counted anyway; no cloud is asked."""

    def __init__(self, home: Home, slots: Slots, recorder: Recorder, status: Callable[[], Status]) -> None:
        """*status* is what `status` answers, without a look at the clouds."""
        self._home = home
        self._changing_prices = threading.Lock()
        self._slots = slots
        self._recorder = recorder
        self._status = status
        self.commands: dict[str, Handler] = dict(
            [
                traffic_api.TrafficRequest.answered_by(self._traffic),
                traffic_api.HistoryRequest.answered_by(self._history),
                cost_api.CostRequest.answered_by(self._cost),
                cost_api.CloudPriceRequest.answered_by(self._price),
                traffic_api.MetricsRequest.answered_by(self._metrics),
                PendingRequest.answered_by(self._pending),
            ]
        )

    def _traffic(self, asked: traffic_api.TrafficRequest) -> traffic_api.Traffic:
        volume = self._slots.get(asked.name).open()
        clouds = [
            traffic_api.CloudTraffic(
                name=one.name,
                state=one.state,
                up=one.counters.up,
                down=one.counters.down,
                transfers=[traffic_api.Transfer(**asdict(transfer)) for transfer in one.transfers],
            )
            for one in volume.clouds.traffic()
        ]
        return traffic_api.Traffic(volume.name, time.monotonic(), clouds)

    def _pending(self, asked: PendingRequest) -> Pending:
        volume, limit = self._slots.get(asked.name).open(), asked.limit or _MOST_PENDING
        if not 0 < limit <= _MOST_PENDING:
            raise UsageError(f"limit is a number from 1 to {_MOST_PENDING}")
        found = volume.pending(path_inside(asked.path or ""), limit)
        since = found.files[0].since if found.files else None
        status, rate = volume.status(look=False), self._recorder.rate(volume.name, since)
        copies = (status.f + status.k) / status.k
        speed = (rate or status.transfers.up.rate or 0) if judge(status).level == "pending" else 0
        seconds = found.bytes * copies / speed if speed else None
        return extended(Pending, found, rate=rate, seconds=seconds)

    def _history(self, asked: traffic_api.HistoryRequest) -> traffic_api.VolumeSeries:
        name = self._slots.get(asked.name).open().name
        if asked.span not in SPANS:
            raise UsageError(f"span is one of {' and '.join(SPANS)}")
        series = self._recorder.series(name, asked.span)
        return extended(traffic_api.VolumeSeries, series, name=name, span=asked.span)

    def _metrics(self, _: traffic_api.MetricsRequest) -> traffic_api.Metrics:
        traffic = {
            slot.name: slot.volume.clouds.traffic()
            for slot in self._slots.opened()
            if slot.volume is not None
        }
        return traffic_api.Metrics(exposition(self._status(), traffic, time.time()))

    def _cost(self, asked: cost_api.CostRequest) -> cost_api.Cost:
        volume = self._slots.get(asked.name).open()
        months, prices = self._recorder.months(volume.name), PriceList.load(self._home.prices)
        archive = volume.status(look=False).archive
        archived = {} if archive is None else archive.clouds
        clouds = [
            _charged(one, archived.get(one.name, 0), months.get(one.number, []), prices.of(one.url))
            for one in volume.clouds.all()
        ]
        return cost_api.Cost(
            name=volume.name,
            month=time.strftime("%Y-%m"),
            currency=_CURRENCY,
            looked_up=prices.looked_up,
            own_prices=str(self._home.prices),
            problem=prices.problem,
            clouds=clouds,
            total=sum(one.bill.total for one in clouds if one.bill is not None),
            archive=archive,
        )

    def _price(self, asked: cost_api.CloudPriceRequest) -> cost_api.CloudPrice:
        volume, file = self._slots.get(asked.name).open(), self._home.prices
        clouds = volume.clouds.all()
        cloud = next((one for one in clouds if asked.cloud in (one.name, one.url)), None)
        if cloud is None:
            raise unknown_cloud(asked.cloud, [one.name for one in clouds])
        fields = ("storage", "put", "get", "list", "egress", "minimum_days")
        given = {name: getattr(asked, name) for name in fields if getattr(asked, name) is not None}
        if given or asked.forget:
            with self._changing_prices:
                keep_price(file, cloud.url, None if asked.forget else given)
        prices = PriceList.load(file).of(cloud.url)
        return cost_api.CloudPrice(volume.name, cloud.name, _CURRENCY, _shown(prices))


def _charged(cloud: Cloud, archived: int, months: list[Month], prices: Prices | None) -> cost_api.CloudCost:
    now = time.strftime("%Y-%m")
    use = next((one.use for one in months if one.name == now), Use())
    charged = None if prices is None else bill(use, cloud.bytes, prices)
    return cost_api.CloudCost(
        name=cloud.name,
        provider=provider_of(cloud.url),
        prices=_shown(prices),
        stored=cloud.bytes,
        archived=archived,
        use=_told(use),
        bill=None if charged is None else cost_api.Bill(**asdict(charged), total=charged.total),
        before=[cost_api.Month(one.name, _told(one.use)) for one in months if one.name != now],
    )


def _shown(prices: Prices | None) -> cost_api.Prices | None:
    return None if prices is None else cost_api.Prices(**asdict(prices))


def _told(use: Use) -> cost_api.Use:
    return cost_api.Use(**asdict(use))


# -- the thread that takes down, every ten seconds, how the clouds of all open volumes do ---------------


_EVERY: Final = float(SPANS["hour"][0])  # seconds
_RECENT: Final = 60 // SPANS["hour"][0]  # intervals
_SAVED_EVERY: Final = 300.0  # seconds; so much is lost when the daemon is killed


class Recorder:
    """Keeps a `HealthRecord` for each volume, from `start` to `stop`. Thread-safe."""

    def __init__(self, home: Home, slots: Slots, environment: Environment) -> None:
        self._home = home
        self._slots = slots
        self._environment = environment
        self._clock = environment.time
        self._lock = threading.Lock()
        self._histories: dict[str, HealthRecord] = {}
        slots.dropped.listen(self._forget)
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="history", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Take down the last moments, keep everything; called before volumes are closed. Idempotent."""
        if self._stopping.is_set() or not self._thread.ident:
            return
        self._stopping.set()
        self._thread.join()
        self.look()
        self.save()

    def _run(self) -> None:
        saved = time.monotonic()
        while not self._stopping.wait(_EVERY):
            self.look()
            if time.monotonic() - saved >= _SAVED_EVERY:
                self.save()
                saved = time.monotonic()

    def look(self) -> None:
        """Take down what was counted since the last look."""
        for slot in self._slots.opened():
            volume = slot.volume
            if volume is None:
                continue
            clouds = {one.number: one for one in volume.clouds.traffic()}
            with self._lock:
                history = self._history(slot.name)
                history.keep_only(clouds)
                for one in clouds.values():
                    history.count(self._clock(), one.number, one.name, one.counters, one.state)

    def _forget(self, name: str) -> None:
        with self._lock:
            self._histories.pop(name, None)

    def save(self) -> None:
        """Write everything to the disk. Failures are logged: it is only for plots."""
        with self._lock:
            for name, history in self._histories.items():
                path = self._file(name)
                try:
                    if path.parent.is_dir():
                        history.save(path, self._environment)
                except OSError as error:
                    log.warning("cannot keep the history of %s: %s", name, error)

    def series(self, name: str, span: str) -> Series:
        """What plots of a volume's clouds show."""
        now, step = self._clock(), SPANS[span][0]
        with self._lock:
            clouds = self._history(name).clouds
            return Series(
                step, now // step * step, [one.series(span, now, n) for n, one in sorted(clouds.items())]
            )

    def rate(self, name: str, since: float | None = None) -> float:
        """Bytes/s to all clouds of a volume in the last minute, or *since* a later time; 0 where that is too
        short to be measured."""
        minute = self.series(name, "hour")
        intervals = _RECENT if since is None else min(_RECENT, int((minute.end - since) / minute.step))
        recent = [one.up[-intervals:] for one in minute.clouds] if intervals > 0 else []
        return sum(sum(up or 0 for up in one) / len(one) for one in recent if one)

    def months(self, name: str) -> dict[int, list[Month]]:
        """What was counted in this month and the one before, by the clouds' numbers."""
        self.look()
        with self._lock:
            return {number: list(one.months) for number, one in self._history(name).clouds.items()}

    def _history(self, name: str) -> HealthRecord:
        if name not in self._histories:
            path = self._file(name)
            try:
                self._histories[name] = HealthRecord.load(path)
            except (OSError, ValueError) as error:
                log.warning("the history of %s begins again: %s: %s", name, path, error)
                self._histories[name] = HealthRecord()
        return self._histories[name]

    def _file(self, name: str) -> Path:
        return self._home.volume_state(name) / FILE
