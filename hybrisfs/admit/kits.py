"""The recovery kits of an open volume: made, renewed, shown, removed.

Every device renews every kit: it compares what the clouds hold with what it knows itself. The later contents
win (`hybrisfs.admit.kit`), and all clouds get the very same bytes: as a version of a register
(`hybrisfs.quorums.contact`), and under the name that programs before this one know. Nobody knows
which programs the devices of a volume run, so both are kept.
"""

from __future__ import annotations

import html
import logging
import shlex
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from io import BytesIO
from pathlib import Path
from typing import Final

from msgspec import UNSET, Struct
from msgspec.structs import replace

from hybrisfs.admit.join import make_grant
from hybrisfs.admit.kit import (
    MAX_KIT,
    KitCopy,
    Sources,
    decode_kit,
    encode_kit,
    kit_name,
    kit_versions,
    versions_prefix,
)
from hybrisfs.admit.reserve_log import ReserveLog
from hybrisfs.api.maintenance import Kit, KitCloud, MadeKit, RemovedKit
from hybrisfs.api.request import extended
from hybrisfs.dispersal.engine import Engine
from hybrisfs.errors import UsageError
from hybrisfs.exchange.following import Following
from hybrisfs.kinds import KINDS, SIGNED_KIT, Trait
from hybrisfs.log import Registers
from hybrisfs.members.members import Member
from hybrisfs.members.removal import Stance, encode_vote, vote_key
from hybrisfs.parts import Ground
from hybrisfs.quorums.contact import ContactRegister, OnCloud, Sight, Superseding
from hybrisfs.quorums.names import Version
from hybrisfs.quorums.rounds import Answer
from hybrisfs.quorums.runner import Runner
from hybrisfs.recovery.record import KitRecord, SignedKit, kit_key, signed_kit_key
from hybrisfs.recovery.sealed_key import (
    DEFAULT_COST,
    VOUCHER_SIZE,
    Cost,
    KitSecret,
    check_passphrase,
    new_passphrase,
    seal_key,
)
from hybrisfs.registers.values import Stamp
from hybrisfs.write.relayer import Uploads
from sync import DecodeError, DeviceKey, Write

__all__ = ["RESERVE_NAME", "Kits", "html_page", "recover_command", "text_page"]

log = logging.getLogger(__name__)

RESERVE_NAME: Final = "recovery kit"
_LOOK_SECONDS: Final = 15.0
_LOOK_EVERY: Final = 1800.0  # a cloud that loses a kit is found out by then
_RETRY_AFTER: Final = 600.0  # when a cloud did not take it
_SHIP_SECONDS: Final = 20.0
_MOST_NAMES: Final = 1000  # of versions of one kit, on one cloud


class _Kit(Struct, frozen=True):
    """A kit of which there is a register, and the reserve that it is of."""

    reserve: Member
    record: KitRecord
    clock: int | None
    """Of the update that made it, when that is one of this device's own."""
    signed: bool
    """Whether its reserve has signed the record: any device can overwrite that of an older kit."""

    @property
    def id(self) -> bytes:
        return self.reserve.device

    @property
    def name(self) -> str:
        return kit_name(self.id)


class Kits:
    """Its methods may be called from any thread. `cost` is what trying a passphrase of a new kit costs."""

    def __init__(self, ground: Ground, following: Following, engine: Engine, uploads: Uploads) -> None:
        self._ground = ground
        environment = ground.fs.environment
        self._random_bytes = environment.random_bytes
        self._time = environment.time
        self._monotonic = environment.monotonic
        self._following = following
        self._sharing = ground.sharing
        self._engine = engine
        self._uploads = uploads
        self._runner = Runner(engine.clouds, environment, _LOOK_SECONDS)
        self._superseding = Superseding(environment)
        self.cost: Cost = DEFAULT_COST
        self._renewing = threading.Lock()
        self._renewed: dict[bytes, tuple[object, float]] = {}

    # -- what people ask -------------------------------------------------------------------------

    def make(self, passphrase: str | None) -> MadeKit:
        """Make a kit, under a passphrase that is drawn when there is none. Raises UsageError, HybrisError."""
        bits = None
        self._sharing.require_writer()
        if passphrase is None:
            drawn = new_passphrase()
            chosen, bits = drawn.text, drawn.bits
        else:
            chosen = check_passphrase(passphrase)
        secret = KitSecret(DeviceKey.generate(), self._random_bytes(VOUCHER_SIZE), self._ground.config.id)
        key = seal_key(secret, chosen, self.cost)
        record = KitRecord(self._ground.name, int(self._time()), secret.voucher, key)
        reserve = Member(secret.reserve.public, RESERVE_NAME, reserve=True)
        signed = SignedKit(record, reserve.public).encode(secret.reserve)
        self._sharing.membership.admit(reserve, [(signed_kit_key(secret.kit), signed)])
        self._ground.committer.commit_now()
        if not self._ground.signals.transfers_paused:
            self._uploads.wait(_SHIP_SECONDS, lambda done, total: None)
            self.refresh()
        kit = next(one for one in self.all() if one.kit == secret.kit.hex())
        urls, created = [cloud.url for cloud in self._ground.config.clouds], time.localtime(record.created)
        pages = {
            form: page(self._ground.name, secret.kit.hex(), urls, created)
            for form, page in (("html", html_page), ("text", text_page))
        }
        made = extended(MadeKit, kit, name=self._ground.name, pages=pages)
        if bits is not None:
            made.passphrase, made.bits = chosen, bits
        return made

    def all(self) -> list[Kit]:
        """The kits, the oldest first."""
        return [self._described(kit) for kit in sorted(self._kits(), key=lambda one: one.record.created)]

    def _described(self, kit: _Kit) -> Kit:
        sources, sight = self._sources(kit), self._look(kit)
        wanted = sources.rank(kit.record.voucher)
        late = {version for version, copy in self._copies(kit, sight).items() if copy.rank >= wanted}
        names = {one.number: one for one in self._ground.config.clouds}
        clouds = [
            KitCloud(names[n].name, names[n].url, self._state(kit, shown, wanted, late))
            for n, shown in sorted(sight.clouds.items())
            if n in names
        ]
        with self._ground.fs.state.transaction() as tx:
            used = any(branch.device == kit.id for branch in tx.updates.state.branches)
            maker = tx.members.inviter_of(kit.id)
            made_by = tx.members.shown_name(maker) if maker is not None else ""
        return Kit(
            kit=kit.id.hex(),
            created=kit.record.created,
            used=used,
            unsigned=UNSET if kit.signed else True,
            made_by=made_by if made_by and maker != self._sharing.device else UNSET,
            clouds=clouds,
            complete=all(one.state == "complete" for one in clouds),
        )

    def _state(self, kit: _Kit, shown: OnCloud, wanted: tuple[int, bytes], late: set[Version]) -> str:
        """The worse of the states of the former object and of the versions, among which *late* ones do."""
        state = _failed(shown.former)
        if state is None:
            copy = self._verified(kit, shown.former.data)
            state = "damaged" if copy is None else "complete" if copy.rank >= wanted else "old"
        if state != "complete" or shown.right & late:
            return state
        return _failed(shown.listed) or ("old" if shown.right else "damaged" if shown.wrong else "missing")

    def remove(self, which: str) -> RemovedKit:
        """Make a kit worthless: it opens nothing that is written from now on. Raises UsageError, OSError."""
        reserve = self._sharing.membership.remove_reserve(which, self._erased)
        self._ground.committer.commit_now()
        self._renewed.pop(reserve.device, None)
        left = [one.name for one in self._ground.config.clouds if not self._erase(reserve.device, one.number)]
        return RemovedKit(self._ground.name, reserve.device.hex(), left)

    def _erase(self, kit: bytes, cloud: int) -> bool:
        """Delete a kit from a cloud; False when it may be there still."""
        upkeep = self._engine.upkeep
        names = upkeep.names(cloud, versions_prefix(kit), _MOST_NAMES)
        refused = upkeep.delete(cloud, [kit_name(kit), *(names or ())])
        return names is not None and refused is None

    def vote(self, passphrase: str, stance: Stance, accused: Sequence[bytes]) -> None:
        """Vote about devices in the name of the kit that opens with the passphrase, see `sign`."""
        self.sign(passphrase, lambda kit: [(vote_key(one, kit), encode_vote(stance)) for one in accused])

    def sign(self, passphrase: str, made: Callable[[bytes], Sequence[Write]]) -> None:
        """Sign what is *made* for the id of the kit that opens with the passphrase. That holds here at once,
        also when this device was removed, and reaches the others by the clouds.

        Raises UsageError when none opens, HybrisError when too few clouds take it: then it holds here only.
        """
        volume = self._ground.config.id
        secret = next(
            (
                found
                for kit in self._kits()
                if (found := kit.record.key.open(passphrase, kit.id)) and found.volume == volume
            ),
            None,
        )
        if secret is None:
            raise UsageError("no recovery kit of this volume opens with this passphrase")
        with self._ground.fs.state.transaction() as tx:
            signed = tx.updates.signed_with(secret.kit)
        with tempfile.TemporaryDirectory(prefix="hybrisfs-vote-") as folder:
            log_of_kit = ReserveLog(
                Path(folder),
                self._ground.config.id,
                secret.reserve,
                self._ground.ring.segments,
                self._ground.fs.environment,
            )
            try:
                log_of_kit.take_updates(signed)
                update, name, segment = log_of_kit.sign(made(secret.kit))
                objects = [(name, segment), log_of_kit.head()]
            finally:
                log_of_kit.close()
        self._sharing.receive([update])
        self._ground.committer.commit_now()
        for name, data in objects:
            self._engine.put_everywhere(name, data)

    @staticmethod
    def _erased(reserve: Member) -> list[Write]:
        return [(kit_key(reserve.device), None)]

    # -- what the clouds hold --------------------------------------------------------------------

    def refresh(self) -> bool:
        """Put the kits on the clouds that lack them or have old ones; False when that is to be tried again
        soon."""
        if self._ground.signals.transfers_paused or not self._ground.fs.is_full:
            return True
        if not self._following.is_informed():
            return False  # the log on the clouds may tell of kits, or of something that they should hold
        with self._renewing:
            renewed = [self._refresh(kit) for kit in self._kits()]
        return all(renewed)

    @property
    def is_overdue(self) -> bool:
        """Whether `refresh` has something to look at on the clouds, and may."""
        now = self._monotonic()
        due = (self._renewed.get(kit.id, (None, 0.0))[1] for kit in self._kits())
        resting = self._ground.signals.transfers_paused or not self._ground.fs.is_full
        return not resting and any(until <= now for until in due)

    def _refresh(self, kit: _Kit) -> bool:
        with self._ground.fs.state.transaction() as tx:
            shipped = tx.shipped_clock()
        if kit.clock is not None and kit.clock > shipped:
            return False  # a machine that recovers by it must find the update that names it
        try:
            sources = self._sources(kit)
            wanted = sources.rank(kit.record.voucher)
        except (DecodeError, ValueError) as error:  # clouds that are too few just now, or the like
            log.warning("volume %s: the recovery kit cannot be renewed: %s", self._ground.name, error)
            return True
        state = wanted, self._engine.in_use
        known, until = self._renewed.get(kit.id, (None, 0.0))
        if state != known or self._monotonic() >= until:
            refused = self._renew(kit, sources, wanted)
            for reason in refused:
                log.info(
                    "volume %s: the recovery kit is not where it should be: %s", self._ground.name, reason
                )
            pause = _RETRY_AFTER if refused else _LOOK_EVERY
            self._renewed[kit.id] = state, self._monotonic() + pause
        return True

    def _renew(self, kit: _Kit, sources: Sources, wanted: tuple[int, bytes]) -> list[str]:
        """Have all clouds hold the latest copy; why some do not."""
        sight = self._look(kit)
        copies = self._copies(kit, sight)
        # The rest of the tuple only makes all devices choose the same of several copies alike.
        best = max(copies.values(), key=lambda one: (one.rank, one.data), default=None)
        if best is None or best.rank < wanted:
            data = encode_kit(kit.record, kit.reserve.public, sources, self._ground.ring.keys.device)
            best = decode_kit(data, kit.name)
        version, register = best.version(kit.record.voucher), self._register(kit)
        looked = [n for n in self._engine.in_use if n in sight.clouds]
        what = "the recovery kit is not on the clouds"
        refused = self._runner.run(what, register.spread(sight, best.data, version, looked))
        kept = not self._superseding.is_due(kit.name, version, sight, self._engine.f)
        deleting = [n for n in looked if n not in self._engine.upkeep.refusing()]
        self._runner.run(what, register.clear(sight, version, deleting, kept=kept))
        return refused

    def _look(self, kit: _Kit) -> Sight:
        look = self._register(kit).look(self._engine.in_use)
        return self._runner.run("the recovery kit cannot be read", look)

    def _register(self, kit: _Kit) -> ContactRegister:
        def version_of(data: bytes) -> Version | None:
            copy = self._verified(kit, data)
            return None if copy is None else copy.version(kit.record.voucher)

        return ContactRegister(kit_versions(kit.id, kit.record.voucher), kit.name, MAX_KIT, version_of)

    @staticmethod
    def _copies(kit: _Kit, sight: Sight) -> Mapping[Version, KitCopy]:
        return {one.version: decode_kit(one.data, kit.name) for one in sight.candidates}

    def _verified(self, kit: _Kit, data: bytes) -> KitCopy | None:
        """The copy, if a full member made it, and of this kit."""
        try:
            copy = decode_kit(data, kit.name)
        except DecodeError as error:
            log.warning("volume %s: a cloud has a wrong recovery kit: %s", self._ground.name, error)
            return None
        public = self._sharing.full_members().public_key(copy.writer)
        right = (
            copy.key == kit.record.key
            and copy.is_vouched_for(kit.record.voucher)
            and public is not None
            and copy.is_signed_by(public)
        )
        return copy if right else None

    # -- what is known here ----------------------------------------------------------------------

    def _kits(self) -> list[_Kit]:
        found = []
        with self._ground.fs.state.transaction() as tx:
            registers = tx.registers
            own = tx.updates.own_branches()
            for reserve in tx.members.reserves():
                recorded = _latest(registers, reserve.device)
                if recorded is not None:
                    stamp, record, signed = recorded
                    clock = stamp.clock if stamp.branch in own else None
                    found.append(_Kit(reserve, record, clock, signed))
        return found

    def _sources(self, kit: _Kit) -> Sources:
        with self._ground.fs.state.transaction() as tx:
            registers = tx.registers
            stamps = [
                value.stamp.clock
                for kind in KINDS
                if Trait.IN_KITS in kind.traits
                for values in registers.with_prefix(kind.prefix).values()
                for value in values
            ]
            grant = make_grant(self._ground.config, self._ground.ring.keys, tx.members.keys(), None)
        grant = replace(
            grant,
            name=kit.record.volume_name,
            clouds=tuple(sorted(grant.clouds, key=lambda one: one.number)),
            members=tuple(sorted(grant.members)),
            former=tuple(sorted(grant.former)),
        )
        return Sources(grant, max(stamps, default=0))


def _failed(answer: Answer) -> str | None:
    """The state that a failure tells; None when it is none."""
    match answer.fault:
        case None:
            return None
        case "missing":
            return "missing"
        case "corrupt":
            return "damaged"
    return "unknown"


def _latest(registers: Registers, kit: bytes) -> tuple[Stamp, KitRecord, bool] | None:
    """The record of a kit, and whether its reserve has signed it: a signed one comes first."""
    for key in (signed_kit_key(kit), kit_key(kit)):
        records = {
            value.stamp: record
            for value in registers.values(key)
            if (record := _record(key, value.value or b"")) is not None
        }
        if records:
            latest = max(records)
            return latest, records[latest], key[0] == SIGNED_KIT
    return None


def _record(key: bytes, value: bytes) -> KitRecord | None:
    try:
        signed = key[0] == SIGNED_KIT
        return SignedKit.decode(key, value).record if signed else KitRecord.decode(value)
    except DecodeError:
        return None


# -- the page that is printed with a recovery kit -------------------------------------------------------


_WHAT: Final = (
    "If all machines of this volume are lost, this page, its passphrase and the accounts of the clouds bring "
    "everything back that had reached the clouds."
)
_HOW: Final = "On a new machine, install HybrisFS, give it the secrets of the clouds, and type:"
_PASSPHRASE: Final = "Passphrase (write it here by hand; without it this page opens nothing):"
_STYLE: Final = """body { font: 12pt/1.5 sans-serif; max-width: 18cm; margin: 1.5cm auto; }
pre { font: 10pt/1.4 monospace; white-space: pre-wrap; overflow-wrap: anywhere; }
pre { border: 1px solid; padding: 3mm; }
.line { border-bottom: 1px solid; height: 1.2cm; }
svg { width: 5cm; height: 5cm; }"""


def recover_command(clouds: Sequence[str]) -> str:
    """What is to be typed on a new machine."""
    return " ".join(["hybrisfs recover", *(f"--cloud {shlex.quote(url)}" for url in clouds)])


def text_page(volume: str, kit: str, clouds: Sequence[str], created: time.struct_time) -> str:
    """The page as plain text."""
    blank = "\n\n".join("_" * 72 for _ in range(2))
    return (
        f"{_title(volume)}\n{'=' * len(_title(volume))}\n\n{_WHAT}\n\n{_facts(kit, created)}\n\n"
        f"{_PASSPHRASE}\n\n\n{blank}\n\nThe clouds:\n\n"
        + "\n".join(f"  {url}" for url in clouds)
        + f"\n\n{_HOW}\n\n"
        f"  {recover_command(clouds)}\n"
    )


def html_page(volume: str, kit: str, clouds: Sequence[str], created: time.struct_time) -> str:
    """The page as HTML, for a browser to print; the QR code holds what is to be typed."""
    title, command = html.escape(_title(volume)), recover_command(clouds)
    items = "".join(f"<li><code>{html.escape(url)}</code></li>\n" for url in clouds)
    return (
        f'<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"><title>{title}</title>\n'
        f"<style>{_STYLE}</style></head><body>\n<h1>{title}</h1>\n<p>{_WHAT}</p>\n"
        f'<p>{html.escape(_facts(kit, created))}</p>\n<p>{_PASSPHRASE}</p>\n<div class="line"></div>'
        f'<div class="line"></div>\n<h2>The clouds</h2>\n<ul>\n{items}</ul>\n<h2>To recover</h2>\n'
        f"<p>{_HOW}</p>\n"
        f"<pre>{html.escape(command)}</pre>\n{_picture(command)}\n</body></html>\n"
    )


def _title(volume: str) -> str:
    return f"HybrisFS recovery kit: {volume}"


def _facts(kit: str, created: time.struct_time) -> str:
    return f"Kit {kit[:8]}, made {time.strftime('%Y-%m-%d %H:%M', created)}."


def _picture(text: str) -> str:
    """A QR code as SVG; nothing when the text is longer than such a code can hold."""
    import segno  # only who makes a kit needs it

    try:
        code = segno.make_qr(text, error="l")
    except segno.DataOverflowError:
        return ""
    out = BytesIO()
    code.save(out, kind="svg", xmldecl=False, svgns=True, omitsize=True)
    return out.getvalue().decode()
