"""What may move between this device and the clouds: bandwidth by timetable, pauses, metered networks.

While transfers are paused, nothing is uploaded, nothing is followed, and nothing is fetched ahead; what is
under way ends. What programs read is fetched all the same, within the bandwidth. Links to other devices
are not limited.
"""

from __future__ import annotations

import logging
import math
import re
import threading
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Final, Literal, Protocol, TypeAlias

from jeepney import DBusAddress, MessageType, Properties
from jeepney.io.blocking import open_dbus_connection
from msgspec import Struct
from msgspec.structs import replace

from hybrisfs.api import traffic as api
from hybrisfs.dispersal.throttle import Throttle
from hybrisfs.errors import HybrisError, UsageError
from hybrisfs.stages import Pause, Signals

__all__ = ["UNLIMITED", "TransferSettings", "Transfers", "is_metered", "parse_timetable"]

log = logging.getLogger(__name__)


# -- bandwidth limits by the time of day, in the notation of rclone's --bwlimit -------------------------
# "512k" always; "08:00,512k 19:00,10M 23:00,off" every day, from one time to the next and over midnight;
# "Mon-08:00,1M Fri-18:00,off" through the week. Rates are bytes per second, with B, K, M or G for powers of
# 1024; a bare number is KiB per second. Times are local.


_DAYS: Final = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
_DAY: Final = 24 * 60  # minutes
_STEP: Final = re.compile(r"(?:([a-z]+)-)?(\d{1,2}):(\d{2}),(\S+)")
_RATE: Final = re.compile(r"(\d{1,9}(?:\.\d{1,6})?)([bkmg]?)")
_UNITS: Final = {"b": 1, "": 1 << 10, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}
_LEAST: Final = 8 << 10  # bytes/s; with less, servers take transfers for dead
_MOST_STEPS: Final = 200
_HELP: Final = 'Write one rate as 512k or 10M, "off", or a timetable as "08:00,512k 19:00,10M 23:00,off".'


class Timetable(Struct, frozen=True):
    """`steps` are minutes of the week from Monday on, ascending, and the bytes/s from then on or None."""

    text: str
    steps: tuple[tuple[int, int | None], ...]

    def rate(self, now: datetime) -> int | None:
        """Return how many bytes per second may move at a local time; None is no limit."""
        minute = _minute(now)
        past = [rate for start, rate in self.steps if start <= minute]
        return past[-1] if past else self.steps[-1][1]  # which began last week

    def next_change(self, now: datetime) -> datetime | None:
        """Return when there will be another rate, None when there never will."""
        minute, rate = _minute(now), self.rate(now)
        ahead = sorted(((start - minute - 1) % (7 * _DAY), other) for start, other in self.steps)
        wait = next((wait for wait, other in ahead if other != rate), None)
        if wait is None:
            return None
        return now.replace(second=0, microsecond=0) + timedelta(minutes=wait + 1)


def parse_timetable(text: str) -> Timetable:
    """Raises UsageError."""
    words = text.split()
    if len(words) == 1 and "," not in words[0]:
        return Timetable(words[0], ((0, _parse_rate(words[0])),))
    steps: dict[int, int | None] = {}
    for word in words:
        match = _STEP.fullmatch(word.lower())
        if match is None or int(match[2]) > 23 or int(match[3]) > 59:
            raise UsageError(f"{word!r} is not a step of a timetable", "", _HELP)
        days = range(7) if match[1] is None else [_parse_day(match[1])]
        for day in days:
            minute = day * _DAY + int(match[2]) * 60 + int(match[3])
            if minute in steps:
                raise UsageError(f"two steps of the timetable begin at {word.partition(',')[0]}", "", _HELP)
            steps[minute] = _parse_rate(match[4])
    if not steps or len(steps) > _MOST_STEPS:
        raise UsageError(f"a timetable has 1 to {_MOST_STEPS} steps in a week", "", _HELP)
    return Timetable(" ".join(words), tuple(sorted(steps.items())))


def _minute(now: datetime) -> int:
    return now.weekday() * _DAY + now.hour * 60 + now.minute


def _parse_day(name: str) -> int:
    if name[:3] not in _DAYS:
        raise UsageError(
            f"{name!r} is not a day of the week", "", "They are Mon, Tue, Wed, Thu, Fri, Sat, Sun."
        )
    return _DAYS.index(name[:3])


def _parse_rate(text: str) -> int | None:
    if text.lower() == "off":
        return None
    match = _RATE.fullmatch(text.lower())
    if match is None:
        raise UsageError(f"{text!r} is not a rate", "", _HELP)
    rate = int(float(match[1]) * _UNITS[match[2]])
    if rate < _LEAST:
        raise UsageError(f"{text!r} is less than {_LEAST >> 10}k", "", "hybrisfs pause stops all transfers.")
    return rate


UNLIMITED: Final = parse_timetable("off")


# -- what may move between this device and the clouds ---------------------------------------------------


_LOOK_EVERY: Final = 15.0  # seconds; the network, and the clock, may change at any time
_NETWORK_MANAGER: Final = DBusAddress(
    "/org/freedesktop/NetworkManager",
    bus_name="org.freedesktop.NetworkManager",
    interface="org.freedesktop.NetworkManager",
)
_YES: Final = (1, 3)  # NMMetered: yes, and guessed so, as for a telephone that shares its connection
_PATIENCE: Final = 2.0  # seconds
_Reason: TypeAlias = Literal["paused", "metered"]


class TransferSettings(Struct, frozen=True):
    """What people have chosen. `paused_until` is in seconds since the epoch, `math.inf` until they resume."""

    up: Timetable = UNLIMITED
    down: Timetable = UNLIMITED
    pause_on_metered: bool = True
    paused_until: float | None = None


class Keeper(Protocol):
    """What keeps the configuration of a volume."""

    def set(self, *, transfers: TransferSettings) -> None:
        """Make these settings last. Raises OSError and HybrisError."""


class Transfers:
    """Applies the settings of one volume, and changes to them, as time passes. Thread-safe.

    *keeper* makes settings last before they hold. *is_metered* says if the network costs by the byte.
    """

    def __init__(
        self,
        settings: TransferSettings,
        throttle: Throttle,
        signals: Signals,
        keeper: Keeper,
        is_metered: Callable[[], bool],
    ) -> None:
        self._settings = settings
        self._throttle = throttle
        self._signals = signals
        self._keeper = keeper
        self._is_metered = is_metered
        self._clock = signals.environment.time
        self._lock = threading.Lock()
        self._metered = False
        self._held: _Reason | None = None

    def step(self) -> Pause:
        """See `look`."""
        return Pause(self.look())

    def look(self) -> float:
        """Apply what holds now; return the seconds until that must be done again."""
        metered = self._settings.pause_on_metered and self._is_metered()
        with self._lock:
            self._metered = metered
            return self._apply()

    def limit(self, up: str | None, down: str | None, on_metered: str | None) -> None:
        """Change the timetables, and what a metered network means, "pause" or "ignore"; None stays.

        Raises UsageError.
        """
        if on_metered not in (None, "pause", "ignore"):
            raise UsageError(f"{on_metered!r} on metered networks is unknown", "known: pause, ignore")
        tables = [None if text is None else parse_timetable(text) for text in (up, down)]
        with self._lock:
            now = self._settings
            self._change(
                replace(
                    now,
                    up=tables[0] or now.up,
                    down=tables[1] or now.down,
                    pause_on_metered=now.pause_on_metered if on_metered is None else on_metered == "pause",
                )
            )

    def adopt(self, settings: TransferSettings) -> None:
        """Let settings hold that are kept already: a person has edited the file."""
        with self._lock:
            if settings != self._settings:
                self._settings = settings
                self._apply()
                self._signals.settings_changed()

    def pause(self, seconds: float | None) -> None:
        """Hold transfers for so long, with None until a person resumes them."""
        with self._lock:
            until = math.inf if seconds is None else self._clock() + seconds
            self._change(replace(self._settings, paused_until=until))

    def resume(self) -> None:
        """End a pause."""
        with self._lock:
            self._change(replace(self._settings, paused_until=None))

    @property
    def held(self) -> str | None:
        """Why transfers are paused now, in a sentence; None when they are not."""
        if self._held == "metered":
            return "the network is metered"
        return "transfers are paused" if self._held else None

    def require_free(self) -> None:
        """Raise HybrisError while transfers are paused."""
        if self.held is not None:
            raise HybrisError(
                "nothing is brought to the clouds now",
                self.held,
                "hybrisfs resume ends a pause; for metered networks see hybrisfs limit --on-metered.",
            )

    def facts(self) -> api.Transfers:
        """What holds now, and until when."""
        with self._lock:
            settings, now = self._settings, datetime.fromtimestamp(self._clock())
            until = settings.paused_until if self._held == "paused" else None
            return api.Transfers(
                up=_described(settings.up, now),
                down=_described(settings.down, now),
                on_metered="pause" if settings.pause_on_metered else "ignore",
                held=self._held,
                paused_until=None if until == math.inf else until,
            )

    def _change(self, settings: TransferSettings) -> None:
        self._keeper.set(transfers=settings)
        self._settings = settings
        self._apply()
        self._signals.settings_changed()

    def _apply(self) -> float:
        settings, seconds = self._settings, self._clock()
        now = datetime.fromtimestamp(seconds)
        self._throttle.set_rates(settings.up.rate(now), settings.down.rate(now))
        paused = settings.paused_until is not None and seconds < settings.paused_until
        held: _Reason | None = "paused" if paused else None
        if held is None and settings.pause_on_metered and self._metered:
            held = "metered"
        if held != self._held:
            self._held = held
            log.info("transfers with the clouds %s", f"are held: {self.held}" if held else "go on")
        self._signals.pause_transfers(held is not None)
        changes = [
            one.timestamp() for one in (settings.up.next_change(now), settings.down.next_change(now)) if one
        ]
        if paused and settings.paused_until is not None:
            changes.append(settings.paused_until)
        return max(0.01, min([_LOOK_EVERY, *(change - seconds for change in changes)]))


def _described(table: Timetable, now: datetime) -> api.Direction:
    change = table.next_change(now)
    return api.Direction(
        timetable=table.text,
        rate=table.rate(now),
        changes_at=None if change is None else change.timestamp(),
        then=None if change is None else table.rate(change),
    )


def is_metered() -> bool:
    """Whether the connection that is used now costs by the byte: NetworkManager tells on the system
    bus of D-Bus. Without it, or without a system bus, nothing counts as metered."""
    try:
        with open_dbus_connection("SYSTEM") as bus:
            answer = bus.send_and_get_reply(Properties(_NETWORK_MANAGER).get("Metered"), timeout=_PATIENCE)
            if answer.header.message_type is not MessageType.method_return:
                return False
            _, value = answer.body[0]
    except Exception as error:  # noqa: BLE001 - whatever a bus says wrongly, it is no reason to stop
        log.debug("NetworkManager cannot be asked: %s", error)
        return False
    return value in _YES
