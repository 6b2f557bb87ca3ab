"""What a new device is given, and becoming a device of a volume: all of it or nothing."""

from __future__ import annotations

import json
import shutil
import sqlite3
import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Final, cast
from unittest import mock

import pytest
from msgspec.structs import replace

from backends.credentials import CredentialStore
from backends.errors import AuthError
from hybrisfs.admit.create import DATABASE_FILE, KEYS_FILE
from hybrisfs.admit.invitation import Invitation, Joining
from hybrisfs.admit.join import join_volume, make_grant
from hybrisfs.api.devices import Admission
from hybrisfs.environment import SYSTEM, Environment
from hybrisfs.errors import HybrisError, UsageError
from hybrisfs.home import Home
from hybrisfs.keys import EpochKeys, SharedKeys, VolumeKeys
from hybrisfs.members.member_table import MemberTable
from hybrisfs.members.members import Member
from hybrisfs.members.roles import Rights, Role
from hybrisfs.pairing.code import PairingCode, new_code
from hybrisfs.pairing.exchange import Dialogue
from hybrisfs.pairing.messages import Grant, GrantedCloud, Peer
from hybrisfs.pairing.session import Admitted, Host, Joined
from hybrisfs.parts import Ground
from hybrisfs.settings.config import CloudConfig, VolumeConfig, list_volumes
from hybrisfs.state.database import Database
from sync import FIRST_EPOCH, DeviceKey, Members, device_id_of
from tests.keyrings import MemoryKeyring, in_use
from tests.surroundings import at
from tests.system.small_disks import allowing_more, memory_disk, needs_root

INVITER: Final = DeviceKey.from_seed(b"\x01" * 32)
THIRD: Final = DeviceKey.from_seed(b"\x02" * 32)
DEVICE: Final = DeviceKey.from_seed(b"\x03" * 32)
URLS: Final = ("s3://bucket-a?region=x", "s3://bucket-b?region=x", "file:///cloud")
SECRETS: Final = {"access_key_id": "id", "secret_access_key": "secret"}
KEYS: Final = VolumeKeys(SharedKeys(b"i" * 32, (EpochKeys(FIRST_EPOCH, 0, b"d" * 32, b"m" * 32),)), INVITER)
CONFIG: Final = VolumeConfig(
    "shared",
    bytes(range(16)),
    1,
    1,
    tuple(CloudConfig(number, f"cloud-{number}", url) for number, url in enumerate(URLS)),
)


@pytest.fixture
def home(home: Home) -> Home:
    home.prepare()
    return home


def store_of(home: Home) -> CredentialStore:
    return CredentialStore(home.credentials, keyring=False)


def joined(grant: Grant) -> Joined:
    return Joined(grant, Peer(INVITER.public, "desk"))


def granted(secrets: bytes | None = None) -> Grant:
    clouds = tuple(GrantedCloud(one.number, one.name, one.url, secrets) for one in CONFIG.clouds)
    members = (INVITER.public, THIRD.public)
    return Grant(CONFIG.id, CONFIG.name, KEYS.shared, CONFIG.f, CONFIG.k, clouds, members)


def join(home: Home, grant: Grant, name: str | None = None) -> VolumeConfig:
    return join_volume(home, name, DEVICE, "laptop", joined(grant))


def contents(home: Home) -> dict[Path, bytes | None]:
    """All files and folders of the state and configuration."""
    return {
        path: path.read_bytes() if path.is_file() else None
        for top in (home.state, home.config)
        for path in top.rglob("*")
    }


def test_files_of_the_inviters_machine_are_not_those_of_this_one(home: Home) -> None:
    url = "sftp://me@nas/folder?known_hosts=/home/a/known"
    grant = replace(granted(), clouds=(*granted().clouds, GrantedCloud(7, "nas", url, None)))
    assert [one.heard for one in join(home, grant).clouds] == [False, False, False, True]
    typed = join_volume(
        home, "again", DEVICE, "laptop", joined(replace(grant, volume=b"v" * 16)), typed=[url]
    )
    assert not any(one.heard for one in typed.clouds)


# -- the grant -----------------------------------------------------------------------------------


def test_secrets_of_clouds_travel_only_when_asked(home: Home) -> None:
    store_of(home).add(URLS[0], SECRETS)
    members = Members([INVITER.public, THIRD.public])
    silent = make_grant(CONFIG, KEYS, members, None)
    assert [cloud.credentials for cloud in silent.clouds] == [None, None, None]
    assert b"secret" not in silent.encode()
    told = make_grant(CONFIG, KEYS, members, store_of(home))
    assert [one and json.loads(one) for one in (cloud.credentials for cloud in told.clouds)] == [
        SECRETS,
        None,
        None,
    ]
    assert "secret" not in repr(told).replace("secret_access_key", "")
    assert set(silent.members) == {INVITER.public, THIRD.public}
    assert (silent.volume, silent.name, silent.keys) == (CONFIG.id, "shared", KEYS.shared)


@pytest.mark.parametrize("asked", [False, True])
def test_an_invitation_hands_on_secrets_only_when_asked(home: Home, tmp_path: Path, asked: bool) -> None:
    url = (tmp_path / "cloud").as_uri()
    store_of(home).add(url, SECRETS)
    config = replace(CONFIG, f=0, k=1, clouds=(CloudConfig(0, "cloud", url),))
    admitted: list[Member] = []
    grants: list[Grant] = []

    def run_inviter(
        code: object,
        key: object,
        name: object,
        grant: Grant,
        host: Host,
        *rest: object,
        environment: Environment,
    ) -> Admitted:
        grants.append(grant)
        peer = Peer(DEVICE.public, "laptop")
        host.admit(peer)
        assert [one.public for one in admitted] == [DEVICE.public]
        return Admitted(peer, True)

    with (
        mock.patch("hybrisfs.admit.invitation.Listener", side_effect=OSError("no network")),
        mock.patch("hybrisfs.admit.invitation.run_inviter", run_inviter),
    ):
        sharing = SimpleNamespace(
            membership=SimpleNamespace(own_name="desk"),
            key_holders=lambda: Members([INVITER.public]),
            admit=lambda member, rights: admitted.append(member),
        )
        ground = SimpleNamespace(
            home=home,
            sharing=sharing,
            config=config,
            ring=SimpleNamespace(keys=KEYS),
            fs=SimpleNamespace(environment=SYSTEM),
        )
        invitation = Invitation(
            cast("Ground", ground),
            Rights(Role.FULL),
            lifetime=60,
            with_credentials=asked,
        )
        dialogue = Dialogue(lambda _: None, lambda _: True, lambda _: None)
        done = invitation.run(dialogue, threading.Event())
    assert done == Admission("laptop", device_id_of(DEVICE.public).hex(), acknowledged=True)
    [credentials] = [cloud.credentials for cloud in grants[0].clouds]
    assert (credentials and json.loads(credentials)) == (SECRETS if asked else None)


# -- joining -------------------------------------------------------------------------------------


def test_a_joined_volume_has_its_keys_clouds_and_members(home: Home) -> None:
    config = join(home, granted())
    assert VolumeConfig.load(home, "shared") == config == CONFIG
    state = home.volume_state("shared")
    assert state.stat().st_mode & 0o777 == 0o700
    assert (state / KEYS_FILE).stat().st_mode & 0o777 == 0o600
    keys = VolumeKeys.load(state / KEYS_FILE)
    assert (keys.shared, keys.device.public) == (KEYS.shared, DEVICE.public)
    database = Database(state / DATABASE_FILE, SYSTEM)
    try:
        names = {one.public: one.name for one in MemberTable(database.rows).all()}
    finally:
        database.close()
    assert names == {
        INVITER.public: "desk",
        DEVICE.public: "laptop",
        THIRD.public: device_id_of(THIRD.public).hex()[:8],
    }
    assert not home.credentials.exists()


def test_secrets_that_came_along_are_kept_private(home: Home) -> None:
    join(home, granted(json.dumps(SECRETS).encode()))
    assert home.credentials.stat().st_mode & 0o777 == 0o600
    assert dict(store_of(home).lookup(URLS[1]).values) == SECRETS


def test_a_volume_may_be_called_otherwise_here(home: Home) -> None:
    assert join(home, granted(), "elsewhere").name == "elsewhere"
    assert [one.name for one in list_volumes(home)] == ["elsewhere"]


@pytest.mark.parametrize("name", [None, "elsewhere"])
def test_a_device_has_a_volume_once(home: Home, name: str | None) -> None:
    join(home, granted())
    before = contents(home)
    with pytest.raises(UsageError, match="already"):
        join(home, granted(), name)
    assert contents(home) == before


def test_a_name_that_is_taken(home: Home) -> None:
    join(home, granted())
    before = contents(home)
    other = replace(granted(), volume=bytes(16))
    with pytest.raises(UsageError, match="--as"):
        join(home, other)
    assert contents(home) == before
    assert join(home, other, "other").id == bytes(16)


def test_keys_that_are_in_the_way_are_not_touched(home: Home) -> None:
    state = home.volume_state("shared")
    state.mkdir(parents=True)
    (state / KEYS_FILE).write_bytes(b"the only copy of some keys")
    before = contents(home)
    with pytest.raises(HybrisError, match="in the way"):
        join(home, granted())
    assert contents(home) == before


@pytest.mark.parametrize("name", ["", "../evil", "a/b", ".hidden", "x" * 65])
def test_names_that_cannot_be(home: Home, name: str) -> None:
    before = contents(home)
    with pytest.raises(UsageError, match="cannot name a volume"):
        join(home, granted(), name)
    assert contents(home) == before


@needs_root
@pytest.mark.parametrize(
    ("folder", "refused"),
    [("state", ["keys.json", "open database file"]), ("config", ["volume.json", "credentials.json"])],
)
def test_a_full_disk_leaves_nothing_behind(home: Home, folder: str, refused: list[str]) -> None:
    """Each time one more file can be made on it: each of them is once the first that cannot be."""
    secrets, refusals = json.dumps(SECRETS).encode(), list[str]()
    where = {"state": home.state, "config": home.config}[folder]
    shutil.rmtree(where)
    with memory_disk(where, 16) as disk:
        home.prepare()
        (home.config / "volumes").mkdir(exist_ok=True)
        (home.state / "volumes").mkdir(exist_ok=True)
        before = contents(home)
        for _ in allowing_more(disk):
            try:
                assert join(home, granted(secrets)) == CONFIG
                break
            except (OSError, sqlite3.Error) as error:
                refusals.append(str(error))
            assert contents(home) == before
    told = "\n".join(refusals)
    assert all(what in told for what in refused), told


@pytest.mark.parametrize("secrets", [b"", b"{", b"[]", b'{"a": 1}', b'"text"', b"[" * 10_000, b"\xff"])
def test_secrets_that_are_none_are_refused(home: Home, secrets: bytes) -> None:
    before = contents(home)
    with pytest.raises(HybrisError, match="secrets"):
        join(home, granted(secrets))
    assert contents(home) == before


OTHERS: Final = {"access_key_id": "mine", "secret_access_key": "my secret"}


@pytest.mark.parametrize("by_kit", [False, True])
@pytest.mark.parametrize("known", [URLS[0], "s3://bucket-a/?region=x"])
def test_secrets_that_are_here_are_kept(home: Home, known: str, by_kit: bool) -> None:
    """An inviter may name any cloud, with secrets of its own for it."""
    store_of(home).add(known, OTHERS)
    came = granted(json.dumps(SECRETS).encode())
    assert join_volume(home, None, DEVICE, "laptop", joined(came), by_kit=by_kit) == CONFIG
    assert dict(store_of(home).lookup(known).values) == OTHERS
    assert dict(store_of(home).lookup(URLS[0]).values) == OTHERS
    assert dict(store_of(home).lookup(URLS[1]).values) == SECRETS


def test_secrets_of_a_folder_above_and_of_the_keyring_are_kept(home: Home) -> None:
    clouds = (CloudConfig(0, "a", "s3://bucket/deep/down"), CloudConfig(1, "b", "s3://other/deep"))
    store_of(home).add("s3://bucket/deep", OTHERS)
    ring = MemoryKeyring()
    ring.set_password("hybrisfs", "s3://other/deep", json.dumps(OTHERS))
    came = json.dumps(SECRETS).encode()
    with in_use(ring):
        join(home, replace(granted(), clouds=tuple(GrantedCloud(*vars_of(one), came) for one in clouds)))
        for cloud in clouds:
            assert dict(CredentialStore(home.credentials).lookup(cloud.url).values) == OTHERS


@pytest.mark.parametrize("url", ["s3://bucket", "s3://bucket/photos"])
def test_volumes_that_are_here_go_on_with_the_secrets_that_they_have(home: Home, url: str) -> None:
    """Those of the provider's own chain, for instance: an entry counts for all folders below its URL."""
    mine = CloudConfig(0, "mine", "s3://bucket/photos")
    alone = replace(granted(), f=0)
    join(home, replace(alone, volume=bytes(16), name="photos", clouds=(GrantedCloud(*vars_of(mine)),)))
    came = json.dumps(SECRETS).encode()
    join(home, replace(alone, clouds=(GrantedCloud(0, "theirs", url, came),)))
    assert not store_of(home).lookup(mine.url)


def test_a_keyring_that_is_locked_keeps_nobody_out(home: Home) -> None:
    ring = MemoryKeyring()
    ring.locked = True
    with in_use(ring):
        join(home, granted(json.dumps(SECRETS).encode()))
    assert dict(store_of(home).lookup(URLS[0]).values) == SECRETS


def vars_of(cloud: CloudConfig) -> tuple[int, str, str]:
    return cloud.number, cloud.name, cloud.url


def test_secrets_that_others_could_read_are_not_added_to(home: Home) -> None:
    store_of(home).add("s3://other", SECRETS)
    home.credentials.chmod(0o644)
    before = contents(home)
    with pytest.raises(AuthError, match="chmod"):
        join(home, granted(json.dumps(SECRETS).encode()))
    assert home.credentials.read_bytes() == before[home.credentials]
    assert list_volumes(home) == [] and not home.volume_state("shared").exists()


def test_a_configuration_that_is_in_the_way_is_not_touched(home: Home) -> None:
    left = home.volume_config("shared") / "volume.json.bak"
    left.parent.mkdir(parents=True)
    left.write_bytes(b"somebody's notes")
    before = contents(home)
    with pytest.raises(HybrisError, match="in the way"):
        join(home, granted())
    assert contents(home) == before


# -- before anything travels ---------------------------------------------------------------------


def code() -> PairingCode:
    return new_code(list(URLS), (), at(0.0), 900)


@pytest.mark.parametrize(
    ("prepare", "name", "complaint"),
    [
        (lambda home: None, "../evil", "cannot name a volume"),
        (lambda home: join(home, granted()), "shared", "--as"),
        (lambda home: home.volume_state("shared").mkdir(parents=True), "shared", "in the way"),
    ],
)
def test_a_name_that_will_not_do_is_told_before_the_other_device_lets_us_in(
    home: Home, prepare: Callable[[Home], object], name: str, complaint: str
) -> None:
    prepare(home)
    with pytest.raises(HybrisError, match=complaint):
        Joining(home, code().encode(), name, "laptop")
