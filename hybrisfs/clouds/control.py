"""What people ask of a volume's clouds: list, test, add, adopt, drain, remove and replace them."""

from __future__ import annotations

import contextlib
import os
import threading
from collections import defaultdict
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Final
from urllib.parse import parse_qs, unquote, urlsplit

from msgspec.structs import replace

from backends.address import scheme_of, short_name, without_secrets
from backends.credentials import Credentials
from backends.errors import StoreError
from backends.registry import secrets_of, server_of
from backends.store import Store
from hybrisfs.api import clouds as api
from hybrisfs.api.clouds import (
    AddedCloud,
    Cloud,
    KeptCloud,
    NamedCloud,
    ReplacedCloud,
    Retention,
    TestedCloud,
)
from hybrisfs.clouds.agreed_clouds import reason_of
from hybrisfs.clouds.cloud_set import CloudSet
from hybrisfs.clouds.maintenance import Maintenance
from hybrisfs.clouds.patrol import Patrol
from hybrisfs.clouds.redundancy import RewritingState
from hybrisfs.dispersal.pack import Redundancy
from hybrisfs.dispersal.probe import Changed, Look
from hybrisfs.dispersal.traffic import CloudTraffic
from hybrisfs.errors import HybrisError, UsageError
from hybrisfs.merge.cloud_records import (
    MAX_CLOUD_URL,
    CloudRecord,
    CloudState,
    RedundancyRecord,
)
from hybrisfs.parts import Clouds, Writing
from hybrisfs.settings.config import MAX_CLOUDS, choose_redundancy
from hybrisfs.stores.cloud_names import name_clouds, require_name, unknown_cloud
from hybrisfs.stores.own_places import require_ready
from hybrisfs.stores.retention import Retentions, keep_deleted, stop_keeping, try_retention
from hybrisfs.stores.tryout import (
    PROBE_LIMIT,
    mark_place,
    open_for_test,
    prepare_place,
    try_out,
    try_place,
)

__all__ = ["CloudControl", "lost_together"]

_LOOK_SECONDS: Final = 15.0
_SHOWN: Final = {
    CloudState.ACTIVE: "in use",
    CloudState.DRAINING: "draining",
    CloudState.LOST: "being removed",
}


class CloudControl:
    """The commands about clouds of one volume. Thread-safe; one change at a time."""

    def __init__(
        self,
        clouds: Clouds,
        cloud_set: CloudSet,
        maintenance: Maintenance,
        writing: Writing,
        patrol: Patrol,
    ) -> None:
        self._patrol = patrol
        self._ground = ground = clouds.ground
        self._environment = ground.fs.environment
        self._monotonic = self._environment.monotonic
        self._sharing = ground.sharing
        self._clouds = clouds
        self._engine = clouds.engine
        self._cloud_set = cloud_set
        self._maintenance = maintenance
        self._writing = writing
        self._retentions = Retentions(ground.folder, self._environment)
        self._changing = threading.Lock()

    def all(self) -> list[Cloud]:
        """The clouds that the volume has, with what they should hold."""
        held, size = self._cloud_set.held()
        health = {one.number: one for one in self._engine.health()}
        jobs = {one.number: one for one in self._cloud_set.jobs()}
        found: list[Cloud] = []
        for number, (record, _) in sorted(self._cloud_set.records()[0].items()):
            if record.state is CloudState.GONE:
                continue
            state = health.get(number)
            job = jobs.get(number)
            found.append(
                Cloud(
                    number=number,
                    name=record.name,
                    url=without_secrets(record.url),
                    use=_SHOWN[record.state],
                    objects=held[number],
                    bytes=size[number],
                    state=state.state if state is not None else "not asked",
                    reason=reason_of(self._ground.config, self._engine.upkeep, state)
                    if state is not None
                    else "",
                    trouble=job.trouble if job is not None else "",
                    retention=self.retention(record.url),
                    checked=self._patrol.facts(number),
                )
            )
        return found

    def traffic(self) -> list[CloudTraffic]:
        """See `Engine.traffic`."""
        return self._engine.traffic()

    def retention(self, url: str) -> Retention | None:
        """How long a cloud keeps deleted objects, by the last try; None when there was none. See
        `Retention`."""
        return self._retentions.get(url)

    def warnings(self) -> list[str]:
        """Which of the clouds may be lost together; a sentence on each group."""
        return self._lost_together()

    def _lost_together(self, *more: tuple[str, str]) -> list[str]:
        """Which of the clouds and *more*, given by name and URL."""
        active = [(one.name, one.url) for _, one in self._remaining() if one.state is CloudState.ACTIVE]
        return lost_together([*active, *more], self._cloud_set.credentials)

    def _warnings_of(self, name: str, url: str) -> list[str]:
        """Which clouds a new one may be lost together with."""
        before = self._lost_together()
        return [one for one in self._lost_together((name, url)) if one not in before]

    def test(self, which: str, *, make: bool = False) -> TestedCloud:
        """Try out a cloud of the volume, or any other by its URL. *make*: make its folder in any case. Raises
        HybrisError."""
        if scheme_of(which) and which not in [record.url for _, record in self._remaining()]:
            credentials, places = self._cloud_set.credentials, self._cloud_set.places
            tried = try_place(which, credentials, places, self._environment, make=make)
            with contextlib.closing(open_for_test(which, credentials, places)) as store:
                kept = try_retention(store, self._environment)
                warnings = self._warnings_of(tried.cloud, which)
                return TestedCloud(self._ground.name, tried.cloud, tried.seconds, kept, warnings)
        number, record = self._find(which)
        with contextlib.closing(self._opened(number, record)) as store:
            seconds = dict(try_out(store, self._environment))
            return TestedCloud(self._ground.name, record.name, seconds, self._try(store))

    def retain(self, which: str, days: int) -> KeptCloud:
        """Have a cloud keep deleted objects for *days*, or with 0 not at all, and test that.

        Raises HybrisError.
        """
        number, record = self._find(which)
        with contextlib.closing(self._opened(number, record)) as store:
            note, found = self._keep(store, days)
        return KeptCloud(self._ground.name, record.name, found, note)

    def add(self, url: str, name: str | None, days: int | None = None, *, make: bool = False) -> AddedCloud:
        """Let the volume use one more cloud, after it was tested. Raises HybrisError.

        With *days* it keeps deleted objects for so long; the facts are then those of `retain`. *make*: make
        its folder in any case.
        """
        self._sharing.require_writer()
        with self._changing:
            return self._add(url, name, days, make=make)

    def rename(self, which: str, name: str) -> NamedCloud:
        """Call a cloud *name*, on all devices. Raises HybrisError."""
        self._sharing.require_writer()
        with self._changing:
            number, record = self._find(which)
            require_name(name, [one.name for other, one in self._remaining() if other != number])
            if name != record.name:
                self._cloud_set.sign({number: replace(record, name=name)})
                self._cloud_set.arrange()
        return NamedCloud(self._ground.name, name)

    def adopt(self, which: str) -> NamedCloud:
        """Use a cloud as it is now, though it was emptied or made again, and have it filled again.

        Makes its folder or bucket, and marks it as the volume's. Raises HybrisError.
        """
        with self._changing:
            number, record = self._find(which)
            if record.state is not CloudState.ACTIVE:
                raise UsageError(f"{record.name} is to go: nothing is put there any more")
            require_ready(record.url, make=False)
            with contextlib.closing(self._opened(number, record)) as store:
                mark_place(store, self._ground.config.id, regain=True)
                try_out(store, self._environment, partial(self._refuse_same_place, but=number))
            self._cloud_set.prove(number)
            self._writing.look_at_clouds()
            self._clouds.grants.again()
            self._maintenance.refill(number)
            self._cloud_set.changed()
        return NamedCloud(self._ground.name, record.name)

    def drain(self, which: str) -> NamedCloud:
        """Put nothing more onto a cloud, move what it has to others, and let it go. Raises HybrisError."""
        return self._leave(which, CloudState.DRAINING)

    def remove(self, which: str) -> NamedCloud:
        """Like `drain`, but the cloud is not asked for anything. Raises HybrisError."""
        return self._leave(which, CloudState.LOST)

    def replace(self, which: str, url: str, name: str | None = None, *, make: bool = False) -> ReplacedCloud:
        """`add` the cloud at *url* and `drain` the other. Raises HybrisError."""
        self._sharing.require_writer()
        with self._changing:
            number, record = self._find(which)
            added = self._add(url, name, None, make=make).cloud
            self._cloud_set.sign({number: replace(record, state=CloudState.DRAINING)})
            self._cloud_set.arrange()
        return ReplacedCloud(self._ground.name, record.name, added, self.warnings())

    def wait(
        self, which: str, timeout: float | None, progress: Callable[[int, int], None]
    ) -> tuple[bool, str]:
        """Wait at most *timeout* seconds until a cloud has gone. Returns whether it has, and what keeps
        it."""
        known = sorted(self._cloud_set.records()[0].items(), key=lambda one: one[1][0].state)
        found = [number for number, (record, _) in known if record.name == which]
        if not found:
            return True, ""

        def gone() -> bool:
            job = next((one for one in self._cloud_set.jobs() if one.number == found[0]), None)
            if job is not None:
                progress(job.done, job.total)
            return job is None and all(one.number != found[0] for one in self._ground.config.clouds)

        deadline = None if timeout is None else self._monotonic() + timeout
        if self._ground.signals.wait_until(gone, deadline, step=0.3):
            return True, ""
        return False, next((one.trouble for one in self._cloud_set.jobs() if one.number == found[0]), "")

    def change_redundancy(self, f: int | None, k: int | None) -> api.Redundancy:
        """Change f or k, the numbers of clouds that may fail and that a read needs; None leaves one as it is.
        Raises UsageError, and HybrisError when this device only reads."""
        self._sharing.require_writer()
        with self._changing:
            _, before = self._cloud_set.records()
            active = [one for _, one in self._remaining() if one.state is CloudState.ACTIVE]
            f, k = choose_redundancy(len(active), before.f if f is None else f, before.k if k is None else k)
            if (f, k) != (before.f, before.k):
                self._cloud_set.sign({}, RedundancyRecord(f, k))
                self._cloud_set.arrange()
        return api.Redundancy(self._ground.name, f, k)

    def wait_rewritten(self, timeout: float | None, progress: Callable[[int, int], None]) -> tuple[bool, str]:
        """Wait at most *timeout* seconds until everything is stored with the present f and k. Returns whether
        it is, and what keeps it."""
        parts = self._cloud_set.rewriting, self._cloud_set.values

        def states() -> list[RewritingState]:
            return [one.state for one in parts if one.state is not None]

        def done() -> bool:
            under_way = states()
            if under_way:
                progress(sum(one.done for one in under_way), sum(one.total for one in under_way))
            config = self._ground.config
            return all(one.is_done(Redundancy(config.f, config.k)) for one in parts)

        deadline = None if timeout is None else self._monotonic() + timeout
        finished = self._ground.signals.wait_until(done, deadline, step=0.3)
        return finished, "" if finished else "; ".join(one.trouble for one in states() if one.trouble)

    def names(self) -> dict[int, str]:
        """The names of all present and former clouds, by number."""
        return self._cloud_set.names()

    def jobs(self) -> list[str]:
        """What goes on in the background, in sentences."""
        f, k = self._ground.config.f, self._ground.config.k
        states = (("packs", self._cloud_set.rewriting.state), ("values", self._cloud_set.values.state))
        rewriting = [
            f"{what} are being rewritten for f={f} and k={k}: {state.done:,} of {state.total:,}"
            + (f" ({state.trouble})" if state.trouble else "")
            for what, state in states
            if state is not None
        ]
        return rewriting + [
            f"{job.name} is being emptied: {job.done:,} of {job.total:,} objects"
            + (f" ({job.trouble})" if job.trouble else "")
            for job in self._cloud_set.jobs()
        ]

    # -- how -------------------------------------------------------------------------------------

    def _remaining(self) -> list[tuple[int, CloudRecord]]:
        return [
            (number, record)
            for number, (record, _) in sorted(self._cloud_set.records()[0].items())
            if record.state is not CloudState.GONE
        ]

    def _find(self, which: str) -> tuple[int, CloudRecord]:
        """Raises UsageError."""
        remaining = self._remaining()
        for number, record in remaining:
            if which in (record.name, record.url):
                return number, record
        raise unknown_cloud(which, [record.name for _, record in remaining])

    def _opened(self, number: int, record: CloudRecord) -> Store:
        """Raises UsageError."""
        known = next((one for one in self._ground.config.clouds if one.number == number), None)
        heard = known is None or known.heard or known.url != record.url
        return open_for_test(record.url, self._cloud_set.credentials, self._cloud_set.places, heard=heard)

    def _leave(self, which: str, state: CloudState) -> NamedCloud:
        self._sharing.require_writer()
        with self._changing:
            number, record = self._find(which)
            _, code = self._cloud_set.records()
            left = [
                one for one, known in self._remaining() if known.state is CloudState.ACTIVE and one != number
            ]
            needed = 2 * code.f + code.k
            if len(left) < needed:
                raise UsageError(
                    f"without {record.name} only {len(left)} clouds would be left",
                    f"f={code.f} and k={code.k} need {needed}",
                    "Add another one first, with hybrisfs cloud add, or use hybrisfs cloud replace.",
                )
            if state is CloudState.LOST and code.f == 0:
                raise UsageError(
                    f"{record.name} cannot be removed unread",
                    "with f=0 nothing of what it holds can be rebuilt from the others",
                    "Use hybrisfs cloud drain.",
                )
            self._cloud_set.sign({number: replace(record, state=state)})
            self._cloud_set.arrange()
        return NamedCloud(self._ground.name, record.name)

    def _keep(self, store: Store, days: int) -> tuple[str, Retention]:
        """What to know, and what a try found. Raises HybrisError when the cloud does not keep what is deleted
        although this was set."""
        if not days:
            stop_keeping(store)
            return "", self._try(store)
        note = keep_deleted(store, days)
        found = self._try(store)
        if found.keeps is False:
            raise HybrisError(
                f"{without_secrets(store.url)} does not keep what is deleted", "it says that it does"
            )
        return note, found

    def _try(self, store: Store) -> Retention:
        found = try_retention(store, self._environment)
        self._retentions.note(store.url, found)
        return found

    def _add(self, url: str, name: str | None, days: int | None, *, make: bool) -> AddedCloud:
        cloud_set = self._cloud_set
        remaining = self._remaining()
        if any(record.url == url for _, record in remaining):
            raise UsageError(f"{without_secrets(url)} is a cloud of this volume already")
        if len(remaining) >= MAX_CLOUDS:
            raise UsageError(f"this volume has {len(remaining)} clouds", "it can have no more")
        if len(url.encode()) > MAX_CLOUD_URL or not url.isprintable():
            raise UsageError(
                "this URL cannot name a cloud", f"it is longer than {MAX_CLOUD_URL} bytes or odd"
            )
        [chosen] = name_clouds([(name, url)], [record.name for _, record in remaining])
        require_ready(url, make=make)
        added = AddedCloud(self._ground.name, chosen, self._warnings_of(chosen, url))
        with contextlib.closing(open_for_test(url, cloud_set.credentials, cloud_set.places)) as store:
            if days:
                prepare_place(store)
                added.note, added.retention = self._keep(store, days)
            mark_place(store, self._ground.config.id)
            try_out(store, self._environment, self._refuse_same_place)
        number = cloud_set.sign_new(CloudRecord(chosen, url))
        cloud_set.arrange()
        cloud_set.prove(number, typed=True)
        return added

    def _refuse_same_place(self, probe: str, but: int | None = None) -> None:
        """Raise UsageError when a cloud of the volume, *but* aside, is the place that now holds *probe*."""
        engine = self._engine
        looks = [Look(probe, number, None) for number in engine.numbers if number != but]
        answers = engine.poll_objects(looks, limit=PROBE_LIMIT, timeout=_LOOK_SECONDS)
        same = [look.cloud for look, answer in answers.items() if isinstance(answer, Changed)]
        if same:
            names = {one.number: one.name for one in engine.health()}
            raise UsageError(
                f"this is the same place as the cloud {names.get(same[0], same[0])}",
                "two shares in one place would be lost together",
            )


# -- which clouds would be lost together: those on one disk, at one host, in one account --------------
# A volume that bears the loss of f clouds counts each as one. Nothing is refused here: two clouds on one disk
# do to try a volume out, and of two accounts at one provider nobody can tell how far apart they are.


def lost_together(clouds: Sequence[tuple[str, str]], credentials: Credentials) -> list[str]:
    """A sentence on each group of *clouds*, given by name and URL, that one failure can take."""
    domains: dict[tuple[str, ...], list[str]] = defaultdict(list)
    for name, url in clouds:
        # To open the cloud says what is wrong with its URL or its secrets.
        with contextlib.suppress(ValueError, OSError, StoreError):
            domains[_domain(url, credentials)].append(name)
    return [
        f"{', '.join(names[:-1])} and {names[-1]} are {where}, so they may be lost together: a volume that "
        "counts on them as on several clouds is less safe than it says"
        for (where, *_), names in domains.items()
        if len(names) > 1
    ]


def _domain(url: str, credentials: Credentials) -> tuple[str, ...]:
    """What a cloud is lost with, first as it follows "they are". Raises ValueError, OSError, StoreError."""
    parts = urlsplit(url)
    if parts.scheme == "file":
        folder = Path(os.path.normpath(unquote(parts.path, errors="surrogateescape")))
        while not folder.exists():
            folder = folder.parent
        return "on one disk", str(folder.stat().st_dev)
    if (scheme := scheme_of(url)) == "rclone":
        return (f"in one remote of {scheme}, {short_name(url)}",)
    host = urlsplit(server_of(url) or "").hostname or parts.hostname or ""
    accounts = [secret.name for secret in secrets_of(url) if secret.account]
    if not accounts:
        return (f"at one host, {host}",)
    secrets = credentials.lookup(url)
    known = next((value for name in accounts if (value := secrets.get(name))), "")
    return f"in one account at {host}", known, *parse_qs(parts.query).get("profile", [])
