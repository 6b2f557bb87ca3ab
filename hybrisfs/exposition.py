"""What `status` and the traffic with the clouds tell, in the text format of Prometheus (version 0.0.4). Pure.

Names and units follow its conventions: a prefix, seconds, bytes, `_total` for what only grows until the
daemon ends.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, Literal

from msgspec import Struct, field

from hybrisfs.api.status import AnyVolume, Status, UnusableVolume, VolumeStatus
from hybrisfs.dispersal.traffic import CloudTraffic

__all__ = ["exposition"]

_STATES: Final = ("ok", "slow", "full", "lying", "refusing", "down")
_ESCAPES: Final = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})


class _Metric(Struct):
    """One name, and its samples: labels and value of each."""

    name: str
    kind: Literal["gauge", "counter"]
    help: str
    samples: list[tuple[dict[str, str], float]] = field(default_factory=list)

    def lines(self) -> Iterable[str]:
        yield f"# HELP {self.name} {self.help}"
        yield f"# TYPE {self.name} {self.kind}"
        for labels, value in self.samples:
            text = ",".join(f'{key}="{_printable(label)}"' for key, label in labels.items())
            yield f"{self.name}{{{text}}} {value!r}" if text else f"{self.name} {value!r}"


def _printable(label: str) -> str:
    """A label without what UTF-8 cannot say, and escaped."""
    return label.encode("utf-8", "replace").decode().translate(_ESCAPES)


class _Metrics:
    def __init__(self) -> None:
        self._metrics: dict[str, _Metric] = {}

    def gauge(self, name: str, value: object, text: str, **labels: str) -> None:
        self._add("gauge", name, value, text, labels)

    def counter(self, name: str, value: object, text: str, **labels: str) -> None:
        self._add("counter", name, value, text, labels)

    def _add(
        self,
        kind: Literal["gauge", "counter"],
        name: str,
        value: object,
        text: str,
        labels: dict[str, str],
    ) -> None:
        if isinstance(value, (bool, int, float)):
            metric = self._metrics.setdefault(name, _Metric(f"hybrisfs_{name}", kind, text))
            metric.samples.append((labels, float(value)))

    def text(self) -> str:
        return "".join(f"{line}\n" for metric in self._metrics.values() for line in metric.lines())


def exposition(facts: Status, traffic: Mapping[str, Sequence[CloudTraffic]], now: float) -> str:
    """The metrics of all volumes: *facts* is what `status` answers, *traffic* the clouds of each open volume
    by its name, *now* in seconds since the epoch."""
    metrics = _Metrics()
    metrics.gauge("info", 1, "Which version runs.", version=facts.daemon.version)
    metrics.gauge("uptime_seconds", facts.daemon.uptime, "Since the daemon started.")
    for volume in facts.volumes:
        _describe_volume(metrics, volume, now)
        for cloud in traffic.get(volume.name, ()):
            _describe_traffic(metrics, volume.name, cloud)
    return metrics.text()


def _describe_volume(metrics: _Metrics, volume: AnyVolume, now: float) -> None:
    name, usable = volume.name, isinstance(volume, VolumeStatus)
    metrics.gauge("usable", usable, "1 when the volume can be used.", volume=name)
    if isinstance(volume, UnusableVolume):
        return
    mounted = volume.mountpoint is not None
    metrics.gauge("mounted", mounted, "1 when the volume is mounted.", volume=name)
    missing = volume.missing_mount is not None
    metrics.gauge("mount_missing", missing, "1 when it should be mounted and is not.", volume=name)
    for metric, value, text in (
        ("files", volume.files, "Regular files in the volume."),
        ("content_bytes", volume.bytes, "Bytes of all files."),
        ("pending_files", volume.pending_files, "Files that the clouds do not have yet."),
        ("pending_bytes", volume.pending_bytes, "Bytes that wait for the clouds."),
        ("conflicts", volume.conflicts, "Conflicts to be settled."),
    ):
        metrics.gauge(metric, value, text, volume=name)
    cache = volume.cache
    metrics.gauge("cache_bytes", cache.bytes, "Bytes kept on this machine.", volume=name)
    metrics.gauge("cache_budget_bytes", cache.budget, "Most bytes to be kept here.", volume=name)
    metrics.gauge("warnings", len(volume.warnings), "Warnings that status shows.", volume=name)
    for cloud in volume.clouds:
        for state in _STATES:
            labels = {"volume": name, "cloud": cloud.name, "state": state}
            metrics.gauge("cloud_state", cloud.state == state, "1 for the state of the cloud.", **labels)
    for device in volume.devices:
        labels = {"volume": name, "device": device.name}
        metrics.gauge("device_suspect", bool(device.suspect), "1 when changes may be missing.", **labels)
        if not device.this and device.seen is not None:
            text = "Since the machine was last seen."
            metrics.gauge("device_silent_seconds", max(0.0, now - device.seen), text, **labels)


def _describe_traffic(metrics: _Metrics, volume: str, cloud: CloudTraffic) -> None:
    labels, counted = {"volume": volume, "cloud": cloud.name}, cloud.counters
    for kind, number in (
        ("put", counted.put),
        ("get", counted.get),
        ("list", counted.list),
        ("delete", counted.delete),
    ):
        metrics.counter("cloud_requests_total", number, "Requests, as billed.", **labels, kind=kind)
    metrics.counter("cloud_failures_total", counted.failed, "Requests that failed.", **labels)
    for direction, number in (("sent", counted.up), ("received", counted.down)):
        metrics.counter("cloud_bytes_total", number, "Bytes moved.", **labels, direction=direction)
    for operation, count, seconds in (
        ("get", counted.reads, counted.read_seconds),
        ("put", counted.writes, counted.write_seconds),
    ):
        text = "Small requests that were answered; divide their seconds by it."
        metrics.counter("cloud_small_requests_total", count, text, **labels, kind=operation)
        text = "What the small requests that were answered took."
        metrics.counter("cloud_small_request_seconds_total", seconds, text, **labels, kind=operation)
