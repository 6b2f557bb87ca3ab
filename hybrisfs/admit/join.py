"""Letting a device into a volume, and becoming one that was let in."""

from __future__ import annotations

import contextlib
import json
import logging
import shutil
from collections.abc import Callable, Container
from pathlib import Path
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from backends.address import without_secrets
from backends.credentials import CredentialStore, covers
from backends.errors import AuthError
from backends.registry import local_options
from hybrisfs.admit.create import DATABASE_FILE, KEYS_FILE
from hybrisfs.environment import SYSTEM, make_directory, sync_directory
from hybrisfs.errors import HybrisError, UsageError
from hybrisfs.home import Home
from hybrisfs.keys import VolumeKeys
from hybrisfs.members.member_table import MemberTable
from hybrisfs.members.members import Member
from hybrisfs.pairing.messages import Grant, GrantedCloud
from hybrisfs.settings.config import CloudConfig, VolumeConfig, list_volumes
from hybrisfs.state.database import Database
from sync import DeviceKey, Members, device_id_of

if TYPE_CHECKING:
    from hybrisfs.pairing.session import Joined

__all__ = ["check_can_join", "join_volume", "make_grant"]

log = logging.getLogger(__name__)

_UNNAMED: Final = 8  # hexadecimal digits of its id that a device is called by until it tells its name


def make_grant(
    config: VolumeConfig,
    keys: VolumeKeys,
    members: Members,
    credentials: CredentialStore | None,
    *,
    reader: bool = False,
) -> Grant:
    """What a new device is given; the secrets of the clouds only when *credentials* are passed. *reader*:
    whether it is to read only."""
    publics = tuple(key for device in members if (key := members.public_key(device)) is not None)
    clouds = tuple(
        GrantedCloud(one.number, one.name, one.url, _secrets(credentials, one.url)) for one in config.clouds
    )
    return Grant(
        config.id,
        config.name,
        keys.shared,
        config.f,
        config.k,
        clouds,
        publics,
        members.former,
        reader,
    )


def _secrets(credentials: CredentialStore | None, url: str) -> bytes | None:
    secrets = credentials.lookup(url) if credentials is not None else None
    return json.dumps(dict(secrets.values)).encode() if secrets else None


def join_volume(
    home: Home,
    name: str | None,
    device: DeviceKey,
    own_name: str,
    joined: Joined,
    admit: Callable[[], None] = lambda: None,
    *,
    by_kit: bool = False,
    typed: Container[str] = (),
) -> VolumeConfig:
    """Make the volume on this device, under *name* here (by default its own). Raises HybrisError, leaving
    nothing behind.

    *admit* is called when all is ready: it lets the device in, if nobody has yet. Else nothing on the clouds
    is touched: what is in the volume comes with the log. *by_kit*: who lets it in is a reserve, no device.
    *typed*: the URLs that a person has named here.

    Secrets that come along change none that this device has: who lets it in may name any cloud.
    """
    home.prepare()
    grant = joined.grant
    here = grant.name if name is None else name
    check_can_join(home, here, grant.volume)
    clouds = tuple(
        CloudConfig(
            one.number, one.name, one.url, heard=bool(local_options(one.url)) and one.url not in typed
        )
        for one in grant.clouds
    )
    config = VolumeConfig(here, grant.volume, grant.f, grant.k, clouds)
    came = [(one.url, _opened(one)) for one in grant.clouds if one.credentials is not None]
    secrets = {url: values for url, values in came if not _has_secrets(home, url)}
    state, configuration = home.volume_state(here), home.volume_config(here)
    make_directory(state, SYSTEM)
    try:
        VolumeKeys(grant.keys, device).save(state / KEYS_FILE, SYSTEM)
        Database.create(state / DATABASE_FILE, config.id)
        _introduce(state / DATABASE_FILE, device, own_name, joined, by_kit=by_kit)
        sync_directory(state, SYSTEM)
        admit()
        config.save(home)
        CredentialStore(home.credentials).add_all(secrets)
    except BaseException:
        shutil.rmtree(configuration, ignore_errors=True)
        shutil.rmtree(state, ignore_errors=True)
        raise
    return config


def _has_secrets(home: Home, url: str) -> bool:
    """Whether secrets for the cloud at *url* would take the place of others. Raises AuthError."""
    found = any(covers(url, cloud.url) for volume in list_volumes(home) for cloud in volume.clouds)
    found = found or bool(CredentialStore(home.credentials, keyring=False).lookup(url))
    with contextlib.suppress(AuthError):  # the keyring is locked: nobody can say
        found = found or bool(CredentialStore(home.credentials).lookup(url))
    if found:
        log.warning("the secrets that came along for %s are not taken: there are some", without_secrets(url))
    return found


def _opened(cloud: GrantedCloud) -> dict[str, str]:
    """The secrets of a cloud that came along. Raises HybrisError."""
    try:
        values = json.loads(cloud.credentials or b"")
    except (ValueError, RecursionError):
        values = None
    if not isinstance(values, dict) or not all(isinstance(value, str) for value in values.values()):
        raise HybrisError(
            f"the secrets that came along for {cloud.name} are none",
            "the other machine may run another version of HybrisFS",
            "Pair again without --with-credentials.",
        )
    return values


def check_can_join(home: Home, name: str, volume: bytes | None = None) -> None:
    """Raise UsageError when *name* will not do, or this very volume is on this device already; HybrisError
    when there are keys or data that a volume of this name left behind."""
    state, configuration = home.volume_state(name), home.volume_config(name)
    for other in list_volumes(home):
        if other.id == volume:
            raise UsageError(
                f"this machine has the volume already, as {other.name!r}", "", "Nothing was changed."
            )
        if other.name == name:
            raise UsageError(
                f"there is another volume {name!r} on this machine",
                "",
                "Choose a name for it with --as NAME.",
            )
    in_the_way = [*([state] if state.exists() else []), *configuration.glob("*")]
    if in_the_way:
        raise HybrisError(
            f"{in_the_way[0]} is in the way", "it may be all that is left of another volume", "Move it away."
        )


def _introduce(path: Path, device: DeviceKey, own_name: str, joined: Joined, *, by_kit: bool) -> None:
    """Record who the members are, before anything of their log is here."""
    database = Database(path, SYSTEM)
    try:
        members = [Member(public, "") for public in joined.grant.members]
        members += [Member(public, "", removed=True) for public in joined.grant.former]
        known = {joined.inviter.public: joined.inviter.name, device.public: own_name}
        members.append(Member(device.public, own_name))
        if by_kit:
            members.append(Member(joined.inviter.public, joined.inviter.name, reserve=True))
        database.rows.set_meta("inviter", device_id_of(joined.inviter.public))
        if joined.grant.reader:
            database.rows.add_meta("reader", 1)
        table = MemberTable(database.rows)
        table.introduce(
            replace(one, name=known.get(one.public) or one.device.hex()[:_UNNAMED]) for one in members
        )
    finally:
        database.close()
