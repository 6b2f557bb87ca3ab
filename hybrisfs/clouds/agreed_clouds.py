"""What the registers of a volume make of this device's configuration, and the stores of its clouds."""

from __future__ import annotations

from collections.abc import Container, Mapping
from typing import Final, NoReturn

from msgspec.structs import replace

from backends.address import without_secrets
from backends.credentials import Credentials
from backends.errors import PermanentError, StoreError
from backends.registry import local_options, open_heard, open_store
from backends.store import Store, StoreWrapper
from hybrisfs.dispersal.cloud import CloudStatus, when_emptied
from hybrisfs.dispersal.engine import Cloud, Engine
from hybrisfs.dispersal.seal import Sealer
from hybrisfs.dispersal.share import TableSealer
from hybrisfs.dispersal.upkeep import Upkeep, WrongObject
from hybrisfs.environment import Environment
from hybrisfs.merge.cloud_records import CloudRecord, CloudState, RedundancyRecord
from hybrisfs.settings.config import MAX_CLOUDS, CloudConfig, VolumeConfig
from hybrisfs.stores.cloud_names import unique_name
from hybrisfs.stores.own_places import ANY_HOME, MARKER_NAME, OwnPlaces

__all__ = ["agreed_config", "open_cloud", "open_engine", "reason_of"]

_LEFT: Final = (CloudState.DRAINING, CloudState.GONE)


def agreed_config(
    config: VolumeConfig,
    records: Mapping[int, CloudRecord],
    redundancy: RedundancyRecord | None,
    named: Container[int],
) -> VolumeConfig:
    """The configuration as the registers want it; as it is when they say nothing.

    A cloud that is gone is still read while placements of shares name it (*named*): a device that had
    not heard that it goes has put something there. One that is lost is never asked. A cloud that this device
    does not know yet is not written to before its marker was seen there: a URL may mean another place here.
    And what it names of this machine does not count.
    """
    if not records:
        return config
    known = {one.number: one for one in config.clouds}
    clouds: list[CloudConfig] = []
    for number in sorted(records, key=lambda one: (one not in known, one)):
        record = records[number]
        if record.state is CloudState.LOST or (record.state is CloudState.GONE and number not in named):
            continue
        before = known.get(number)
        same = before if before is not None and before.url == record.url else None
        clouds.append(
            CloudConfig(
                number,
                unique_name(record.name, [one.name for one in clouds]),
                record.url,
                # Two shares in one place would be lost together: of two numbers for it one gets nothing more.
                draining=record.state in _LEFT or record.url in [one.url for one in clouds],
                proven=same is not None and same.proven,
                heard=bool(local_options(record.url)) and (same is None or same.heard),
            )
        )
    f, k = (config.f, config.k) if redundancy is None else (redundancy.f, redundancy.k)
    return replace(config, clouds=tuple(clouds[:MAX_CLOUDS]), f=f, k=k, shared=True)


def open_engine(
    config: VolumeConfig,
    credentials: Credentials,
    sealer: Sealer,
    tables: TableSealer,
    places: OwnPlaces,
    environment: Environment,
) -> Engine:
    """The data plane over the configured clouds."""
    clouds = [open_cloud(one, credentials, places) for one in config.clouds]
    engine = Engine(clouds, config.f, sealer, tables, environment=environment)
    engine.arrange([one.number for one in config.clouds if not one.in_use], config.f)
    return engine


def open_cloud(cloud: CloudConfig, credentials: Credentials, places: OwnPlaces = ANY_HOME) -> Cloud:
    """The cloud with its driver. When its URL cannot be used on this device, the driver fails every call with
    the reason."""
    store: Store
    try:
        store = places.guarded((open_heard if cloud.heard else open_store)(cloud.url, credentials))
    except (StoreError, ValueError) as error:
        reason = error.reason if isinstance(error, StoreError) else str(error)
        store = _Unusable(without_secrets(cloud.url), reason)
    return Cloud(cloud.number, cloud.name, store)


class _Unusable(StoreWrapper):
    """The store of a cloud whose URL means nothing here: every call fails, and says why."""

    def __init__(self, url: str, reason: str) -> None:
        self.url = url
        self._reason = reason

    def close(self) -> None:
        """There is nothing to release."""

    def _pass_on(self, operation: str, name: str, call: object) -> NoReturn:
        raise PermanentError(self.url, operation, name, self._reason, "replace it by hybrisfs cloud replace")


def reason_of(config: VolumeConfig, upkeep: Upkeep, cloud: CloudStatus) -> str:
    """Why a cloud is in its state, and what to do when its marker is gone, which all else goes with, or when
    its URL means files of another machine."""
    if WrongObject(cloud.number, MARKER_NAME) in upkeep.wrong_objects():
        return f"{cloud.reason} ({when_emptied(cloud.name)})"
    known = next((one for one in config.clouds if one.number == cloud.number), None)
    if cloud.reason and known is not None and known.heard:
        return f"{cloud.reason} ({_when_heard(known.url)})"
    return cloud.reason


def _when_heard(url: str) -> str:
    return (
        f"{' and '.join(local_options(url))} in its URL, from another machine, does not count here: use "
        'hybrisfs cloud login and ~/.ssh/known_hosts, or, if it is to count, remove "heard" from volume.json'
    )
