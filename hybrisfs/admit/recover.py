"""A volume is recovered on a new machine: from its clouds and a passphrase.

Nothing is written anywhere before the kit is open and enough clouds are there. Then the machine gets a key of
its own, the reserve of the kit lets it in (`hybrisfs.admit.reserve_log`), and what follows is as after a
pairing.
"""

from __future__ import annotations

import contextlib
import logging
import tempfile
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Final, TypeVar

from msgspec import Struct, structs

from backends.credentials import CredentialStore
from backends.errors import CorruptError, MissingError, StoreError
from backends.registry import open_heard, open_store
from backends.store import Store
from backends.versions import older_versions, versions_of
from hybrisfs.admit.join import check_can_join, join_volume
from hybrisfs.admit.kit import (
    KIT_PREFIX,
    MAX_KIT,
    VERSIONS_PREFIX,
    Chosen,
    Held,
    KitCopy,
    choose_copy,
    decode_kit,
    kit_name,
    kit_versions,
)
from hybrisfs.admit.kits import RESERVE_NAME
from hybrisfs.admit.reserve_log import MAX_ADMISSIONS, ReserveLog
from hybrisfs.bounded import in_parallel
from hybrisfs.dispersal.cloud import Cloud
from hybrisfs.dispersal.clouds import Clouds
from hybrisfs.dispersal.probe import all_names
from hybrisfs.dispersal.ranking import Timing
from hybrisfs.environment import SYSTEM
from hybrisfs.home import Home
from hybrisfs.keyring import KeyRing
from hybrisfs.keys import VolumeKeys
from hybrisfs.members.epochs import GRANT_PREFIX, MAX_GRANT, open_grant_object, parse_grant_name
from hybrisfs.members.members import Member
from hybrisfs.pairing.messages import Grant, Peer, check_device_name
from hybrisfs.pairing.session import Joined
from hybrisfs.quorums.contact import ContactRegister
from hybrisfs.quorums.names import Version
from hybrisfs.quorums.runner import Runner
from hybrisfs.recovery.sealed_key import KitSecret, RecoveryError, SealedKey
from hybrisfs.settings.config import VolumeConfig
from hybrisfs.stores.own_places import MARKER_NAME, OwnPlaces, belongs_to_another
from hybrisfs.stores.tryout import was_ours
from sync import MAX_SEGMENT, DecodeError, DeviceKey, LogSegment, decode_segment, device_id_of

__all__ = ["Recovered", "recover_volume"]

log = logging.getLogger(__name__)

T = TypeVar("T")

_MOST_KITS: Final = 64  # looked at on one cloud
_MOST_NAMES: Final = 4096  # of versions of kits, on one cloud
_MOST_VERSIONS: Final = 2  # of a kit, got from one cloud for its key
_MOST_TRIES: Final = 16  # of the passphrase; a hostile cloud can make up kits
_ROUNDS: Final = 3  # a newer copy of the kit may name further clouds
_WORKERS: Final = 8
_MOST_GRANTS: Final = 1024  # looked at on one cloud
_MARKER_LIMIT: Final = 4096
_SEGMENT_LIMIT: Final = MAX_SEGMENT + (2 << 20)


class Recovered(Struct, frozen=True):
    """The volume as it is on this machine; "missing" are the URLs of clouds that could not be reached,
    *agreed* tells whether enough clouds have the same kit, and *by_named* whether that rests on clouds that
    the person named."""

    config: VolumeConfig
    missing: tuple[str, ...]
    agreed: bool
    by_named: bool


def recover_volume(
    home: Home,
    clouds: Sequence[str],
    passphrase: str,
    name: str | None,
    own_name: str,
    *,
    incomplete: bool = False,
    tell: Callable[[str], None] = lambda text: None,
) -> Recovered:
    """Make the volume, of which these are some or all clouds, on this machine: under *name* (by default its
    own), as the device *own_name*. With *incomplete* also when more clouds are missing than it can do
    without. *tell* hears what is being done.

    Raises HybrisError, having changed nothing here.
    """
    home.prepare()
    check_device_name(own_name)
    if name is not None:
        check_can_join(home, name)
    with contextlib.ExitStack() as stack:
        sources = _Clouds(CredentialStore(home.credentials), OwnPlaces(home, SYSTEM), stack)
        tell("looking for recovery kits")
        sources.open(clouds)
        copies = sources.all_kits()
        tell("trying the passphrase")
        secret = _opened(copies, passphrase, sources)
        tell("looking at all clouds of the volume")
        chosen = _contents(sources, secret, clouds)
        grant = chosen.grant
        check_can_join(home, name or grant.name, grant.volume)
        missing = _missing(sources, grant, incomplete=incomplete)
        tell("letting this machine in")
        device = DeviceKey.generate()
        reachable = {one.url: sources.stores[one.url] for one in grant.clouds if one.url not in missing}
        grant = _with_later_epochs(reachable, secret, grant)
        admit = partial(_admit, reachable, secret, grant, Member(device.public, own_name))
        joined = Joined(grant, Peer(secret.reserve.public, RESERVE_NAME))
        config = join_volume(home, name, device, own_name, joined, admit, by_kit=True, typed=clouds)
    return Recovered(config, tuple(missing), chosen.agreed, chosen.by_named)


class _Clouds:
    """The clouds that were opened, and what is wrong with those that could not be, by URL."""

    def __init__(self, credentials: CredentialStore, places: OwnPlaces, stack: contextlib.ExitStack) -> None:
        self._credentials = credentials
        self._places = places
        self._clouds = Clouds((), timing := SYSTEM.limits.of(Timing), SYSTEM)
        self._runner = Runner(self._clouds, SYSTEM)
        stack.callback(self._clouds.close, timing.close)
        self.stores: dict[str, Store] = {}
        self.troubles: dict[str, str] = {}

    def open(self, urls: Iterable[str], *, heard: bool = False) -> None:
        """Open those that are not open yet."""
        for url in urls:
            if url in self.stores:
                continue
            try:
                store = (open_heard if heard else open_store)(url, self._credentials)
                store = self._places.guarded(store)
            except (StoreError, ValueError) as error:
                self.troubles[url] = str(error)
                continue
            self._clouds.add(Cloud(len(self.stores), url, store))
            self.stores[url] = store

    def all_kits(self) -> dict[str, list[KitCopy]]:
        """The well-formed kits on each cloud."""

        def ask(store: Store) -> list[KitCopy]:
            names = _names_of(store, KIT_PREFIX, _MOST_KITS, deleted=False)
            return [*_kits_of(store, names), *_versions_on(store)]

        return self._ask(ask)

    def kit(self, secret: KitSecret) -> list[Held]:
        """The copies of one kit, and the clouds that have them."""
        name = kit_name(secret.kit)
        holders: dict[bytes, set[str]] = {}
        for url, found in self._ask(lambda store: _kits_of(store, [name])).items():
            for copy in found:
                holders.setdefault(copy.data, set()).add(url)

        def version_of(data: bytes) -> Version | None:
            try:
                copy = decode_kit(data, name)
            except DecodeError:
                return None
            return copy.version(secret.voucher) if copy.is_vouched_for(secret.voucher) else None

        register = ContactRegister(kit_versions(secret.kit, secret.voucher), None, MAX_KIT, version_of)
        urls = list(self.stores)
        sight = self._runner.run("the recovery kit cannot be read", register.look(range(len(urls))))
        for _, data, clouds in sight.candidates:
            holders.setdefault(data, set()).update(urls[number] for number in clouds)
        return [Held(decode_kit(data, name), frozenset(clouds)) for data, clouds in holders.items()]

    def _ask(self, question: Callable[[Store], list[KitCopy]]) -> dict[str, list[KitCopy]]:
        """What those answer that answer; the others are in trouble."""

        def ask(url: str) -> tuple[str, list[KitCopy] | StoreError]:
            try:
                return url, question(self.stores[url])
            except StoreError as error:
                return url, error

        found: dict[str, list[KitCopy]] = {}
        for url, answer in in_parallel((partial(ask, url) for url in self.stores), _WORKERS, "recover"):
            if isinstance(answer, StoreError):
                self.troubles[url] = str(answer)
            else:
                self.troubles.pop(url, None)
                found[url] = answer
        return found

    def explained(self) -> str:
        """What is wrong with clouds, as a sentence for each."""
        return "".join(f"\n{trouble}" for _, trouble in sorted(self.troubles.items()))


def _kits_of(store: Store, names: Iterable[str]) -> list[KitCopy]:
    """Raises StoreError when the cloud answers nothing; what is not a kit is left out."""
    found = []
    for name in names:
        try:
            found.append(_read_object(store, name, MAX_KIT, partial(decode_kit, name=name)))
        except MissingError:
            continue
        except DecodeError as error:
            log.warning("%s: %s is not a recovery kit: %s", store.url, name, error)
    return found


def _versions_on(store: Store) -> list[KitCopy]:
    """Versions of all kits: their names tell nothing before a passphrase has opened a key. Raises
    StoreError."""
    found: dict[str, list[str]] = {}
    for name in all_names(store, VERSIONS_PREFIX, _MOST_NAMES):
        kit, _, version = name.removeprefix(VERSIONS_PREFIX).partition("/")
        if version and (kit in found or len(found) < _MOST_KITS):
            found.setdefault(kit, []).append(name)
    copies = []
    for kit, names in found.items():
        for name in sorted(names)[:_MOST_VERSIONS]:
            with contextlib.suppress(MissingError, CorruptError, DecodeError):
                copies.append(decode_kit(store.get(name, limit=MAX_KIT), f"{KIT_PREFIX}{kit}"))
    return copies


def _opened(found: dict[str, list[KitCopy]], passphrase: str, clouds: _Clouds) -> KitSecret:
    """The secret of the kit that the passphrase opens; of several the one with the latest contents."""
    keys: dict[tuple[bytes, SealedKey], list[KitCopy]] = {}
    shown: dict[tuple[bytes, SealedKey], list[int]] = {}
    for copies in found.values():
        for copy in copies:
            keys.setdefault((copy.kit, copy.key), []).append(copy)
        for position, one in enumerate(dict.fromkeys((copy.kit, copy.key) for copy in copies)):
            shown.setdefault(one, []).append(position)
    if not keys:
        raise RecoveryError(
            "no recovery kit was found on these clouds",
            "hybrisfs recovery make puts one there" + clouds.explained(),
            "Are these the clouds of the volume, and its folders in them?",
        )
    # Those on most clouds first; of the others some of each cloud, as one may have made up many.
    likely = sorted(keys, key=lambda one: (-len(shown[one]), min(shown[one])))[:_MOST_TRIES]
    opened: list[tuple[tuple[int, bytes], KitSecret]] = []
    untried: RecoveryError | None = None
    for kit, key in likely:
        try:
            secret = key.open(passphrase, kit)
        except RecoveryError as error:
            untried = error
            continue
        if secret is not None:
            copies = [copy for copy in keys[kit, key] if copy.is_vouched_for(secret.voucher)]
            opened += [(copy.rank, secret) for copy in copies]
    if not opened and untried is not None:
        raise untried
    if not opened:
        ids = ", ".join(sorted({kit.hex()[:8] for kit, _ in likely}))
        raise RecoveryError(
            "the passphrase is wrong",
            f"it opens none of the recovery kits on these clouds ({ids})",
            "Nothing was changed. Compare it letter by letter with what was written down.",
        )
    return max(opened, key=lambda one: one[0])[1]


def _contents(clouds: _Clouds, secret: KitSecret, named: Sequence[str]) -> Chosen:
    """What the kit holds, from the clouds that the person *named* and all that it names itself."""
    chosen = None
    for _ in range(_ROUNDS):
        before = set(clouds.stores)
        chosen = choose_copy(clouds.kit(secret), secret, named) or chosen
        if chosen is None:
            raise RecoveryError(
                "the recovery kit is damaged", "the passphrase opens its key, but not what it holds"
            )
        clouds.open((one.url for one in chosen.grant.clouds), heard=True)
        if set(clouds.stores) == before:
            break
    assert chosen is not None
    return chosen


def _missing(clouds: _Clouds, grant: Grant, *, incomplete: bool) -> list[str]:
    """The URLs of the volume's clouds that cannot be used; raises RecoveryError when they are too many."""
    for cloud in grant.clouds:
        store = clouds.stores.get(cloud.url)
        if store is None or cloud.url in clouds.troubles:
            continue
        try:
            mark = store.get(MARKER_NAME, limit=_MARKER_LIMIT)
            if belongs_to_another(mark, grant.volume) and not was_ours(store, grant.volume):
                clouds.troubles[cloud.url] = f"{store.url}: it holds another volume"
        except MissingError:
            continue  # it has lost more than that, maybe, but can be written to
        except StoreError as error:
            clouds.troubles[cloud.url] = str(error)
    missing = [one.url for one in grant.clouds if one.url in clouds.troubles]
    enough = len(grant.clouds) > len(missing) if incomplete else len(missing) <= grant.f
    if not enough:
        raise RecoveryError(
            f"{len(missing)} of the {len(grant.clouds)} clouds of the volume are missing",
            f"it can do without {grant.f}" + clouds.explained(),
            "Their secrets belong into credentials.json (see README, Clouds). If they are lost for good, "
            "--incomplete recovers what the others have: some files may not be readable.",
        )
    return missing


def _with_later_epochs(stores: dict[str, Store], secret: KitSecret, grant: Grant) -> Grant:
    """The grant with the keys of epochs that began after the kit was renewed last, which members have put on
    the clouds for the reserve. The new machine's own key opens none of these. They are for reading: whether
    their writers still belong to the volume, the log tells."""
    ring = KeyRing(VolumeKeys(grant.keys, secret.reserve), environment=SYSTEM)
    publics = {device_id_of(public): public for public in grant.members}
    for url, store in stores.items():
        try:
            names = _names_of(store, GRANT_PREFIX, _MOST_GRANTS, deleted=True)
        except StoreError as error:
            log.warning("%s: the keys of later epochs cannot be listed: %s", url, error)
            continue
        for name in names:
            try:
                epoch, writer = parse_grant_name(name)
                if ring.find(epoch) is None and (public := publics.get(writer)) is not None:
                    opened = partial(
                        open_grant_object,
                        epoch=epoch,
                        volume=grant.volume,
                        public=public,
                        writer=writer,
                        device=secret.reserve,
                    )
                    found = _read_object(store, name, MAX_GRANT, opened)
                    ring.add(replace(one, number=0) for one in found)
            except (StoreError, DecodeError) as error:
                log.warning("%s: %s: %s", url, name, error)
    return structs.replace(grant, keys=ring.keys.shared)


def _admit(stores: dict[str, Store], secret: KitSecret, grant: Grant, member: Member) -> None:
    """Have the reserve let the machine in, by an update on the clouds. Raises RecoveryError."""
    ring = KeyRing(
        VolumeKeys(grant.keys, secret.reserve), map(device_id_of, grant.former), environment=SYSTEM
    )
    need = min(grant.f + 1, len(stores))
    with tempfile.TemporaryDirectory(prefix="hybrisfs-recover-") as folder:
        reserve = ReserveLog(Path(folder), grant.volume, secret.reserve, ring.segments, SYSTEM)
        try:
            reserve.take(_segments(stores, secret, ring))
            _put(stores, *reserve.admit(member), need)
            _put(stores, *reserve.head(), need)
            # Another machine may have done the same at the same moment: then one of the two sees the other
            # here.
            while reserve.take(_segments(stores, secret, ring)):
                _put(stores, *reserve.head(), need)
        finally:
            reserve.close()


def _segments(stores: dict[str, Store], secret: KitSecret, ring: KeyRing) -> list[LogSegment]:
    """What the clouds hold of the reserve's log."""
    found: dict[str, LogSegment] = {}
    for url, store in stores.items():
        try:
            names = _names_of(store, f"log/{secret.kit.hex()}/", MAX_ADMISSIONS, deleted=True)
        except StoreError as error:
            log.warning("%s: the log of the recovery kit cannot be listed: %s", url, error)
            continue
        for name in names:
            try:
                if name not in found:
                    decode = partial(decode_segment, name=name, volume=secret.volume, keys=ring.segments)
                    found[name] = _read_object(store, name, _SEGMENT_LIMIT, decode)
            except (StoreError, DecodeError) as error:
                log.warning("%s: %s: %s", url, name, error)
    return list(found.values())


def _put(stores: dict[str, Store], name: str, data: bytes, need: int) -> None:
    troubles = []
    for store in stores.values():
        try:
            store.put(name, data)
        except StoreError as error:
            troubles.append(str(error))
    if len(stores) - len(troubles) < need:
        raise RecoveryError("the clouds take nothing", "\n".join(troubles), "Try again when they do.")


# -- reading single clouds --------------------------------------------------------------------
# Older versions of objects count, too: a thief of the only device deletes kit, log and heads with it, and
# what comes back here proves itself as ever.


def _names_of(store: Store, prefix: str, most: int, *, deleted: bool) -> list[str]:
    """The names that begin with *prefix*, at most so many; with *deleted* also those of objects that are not
    there any more, else these only if there are no others. Raises StoreError."""
    names = all_names(store, prefix, most)
    versions = versions_of(store)
    if versions is not None and (deleted or not names):
        with contextlib.suppress(StoreError):
            names = list(dict.fromkeys([*names, *versions.names(prefix)]))[:most]
    return names


def _read_object(store: Store, name: str, limit: int, decode: Callable[[bytes], T]) -> T:
    """What *decode* makes of an object, or of the newest version of it that it accepts, if the present one is
    missing or wrong. Raises StoreError, and DecodeError as *decode* does."""
    try:
        return decode(store.get(name, limit=limit))
    except (MissingError, CorruptError, DecodeError):
        versions = versions_of(store)
        for one in older_versions(store, name):
            with contextlib.suppress(StoreError, DecodeError):
                if versions is not None:
                    return decode(versions.get(name, one.id, limit=limit))
        raise
