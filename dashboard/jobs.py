"""What takes long: carried out in threads of this process, so that the page can come and go."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Mapping
from typing import Any, Final

from msgspec import Struct, field

from hybrisfs.api.devices import DeviceInviteRequest, DeviceJoinRequest, PairingNews
from hybrisfs.api.maintenance import Doing, RecoverRequest, RepairRequest, ScrubRequest
from hybrisfs.api.request import LongRequest, Moved, Step, message_of
from hybrisfs.api.status import SyncRequest
from hybrisfs.client import Client, HybrisError, Message, UsageError

__all__ = ["Jobs"]


class _Kind(Struct, frozen=True):
    """A request to the daemon, the arguments that the page may give it, what it always has, and whether it is
    about a volume that there is."""

    request: type[LongRequest[Any, Any]]
    arguments: tuple[str, ...] = ()
    always: Mapping[str, object] = field(default_factory=dict)
    of_volume: bool = True


_KINDS: Final[Mapping[str, _Kind]] = {
    "scrub": _Kind(ScrubRequest, ("sample",)),
    "repair": _Kind(RepairRequest),
    "sync": _Kind(SyncRequest, always={"wait": True}),
    "invite": _Kind(DeviceInviteRequest, ("with_credentials", "role", "folders", "valid")),
    "recover": _Kind(
        RecoverRequest, ("clouds", "passphrase", "as_name", "own_name", "incomplete"), of_volume=False
    ),
    "join": _Kind(DeviceJoinRequest, ("code", "as_name", "own_name"), of_volume=False),
}
_RUNNING_AT_ONCE: Final = 4
_REMEMBERED: Final = 20
_MAX_PROBLEMS: Final = 100


class _Job(Struct):
    number: int
    kind: str
    volume: str
    client: Client
    state: str = "running"  # then "done", "failed" or "stopped"
    stage: str = ""
    done: int = 0
    total: int = 0
    pairing: dict[str, Any] = field(default_factory=dict)
    """Where a pairing stands. With the code of an invitation, so that nothing of it is kept when it ends."""
    error: str = ""
    result: dict[str, Any] = field(default_factory=dict)


class Jobs:
    """Thread-safe. A job ends with this process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._numbers = itertools.count(1)
        self._jobs: dict[int, _Job] = {}

    def start(self, kind: str, volume: str, arguments: Message) -> int:
        """Begin a job and return its number. Raises HybrisError."""
        known = _KINDS.get(kind)
        if known is None or any(one not in known.arguments for one in arguments):
            raise UsageError(f"the page cannot begin {kind[:80]!r}")
        name = {"name": volume} if known.of_volume else {}
        request = known.request.read({**known.always, **name, **arguments})
        client = Client.connect(start=False)
        with self._lock:
            running = [one for one in self._jobs.values() if one.state == "running"]
            if len(running) >= _RUNNING_AT_ONCE or any(
                (one.kind, one.volume) == (kind, volume) for one in running
            ):
                client.close()
                raise UsageError("this, or too much else, is under way already", "", "Wait for its end.")
            job = _Job(next(self._numbers), kind, volume, client)
            self._jobs[job.number] = job
            self._forget_old()
        threading.Thread(target=self._run, args=(job, request), name=f"job {job.number}", daemon=True).start()
        return job.number

    def _forget_old(self) -> None:
        ended = [number for number, one in self._jobs.items() if one.state != "running"]
        for number in ended[: max(0, len(self._jobs) - _REMEMBERED)]:
            del self._jobs[number]

    def _run(self, job: _Job, request: LongRequest[Any, Any]) -> None:
        def progress(step: Moved | PairingNews | Doing) -> None:
            with self._lock:
                if isinstance(step, Doing):
                    job.stage = step.doing
                    return
                if isinstance(step, PairingNews):
                    job.pairing = message_of(step) if job.state == "running" else {}
                    return
                job.stage = step.stage if isinstance(step, Step) else ""
                job.done, job.total = step.done, step.total

        try:
            with job.client:
                result = message_of(job.client.call(request, progress))
        except HybrisError as error:
            with self._lock:
                job.pairing = {}
                if job.state == "running":
                    job.state, job.error = "failed", str(error)
            return
        with self._lock:
            job.pairing = {}
            if job.state == "running":
                job.state, job.result = "done", _bounded(result)

    def stop(self, number: int) -> None:
        """End a job; the daemon notices that nobody listens. Raises UsageError for an unknown one."""
        with self._lock:
            job = self._jobs.get(number)
            if job is None:
                raise UsageError("there is no such job")
            if job.state != "running":
                return
            job.state, job.pairing = "stopped", {}
        job.client.close()

    def stop_all(self) -> None:
        """End all jobs."""
        for number in list(self._jobs):
            self.stop(number)

    @property
    def any_running(self) -> bool:
        with self._lock:
            return any(one.state == "running" for one in self._jobs.values())

    def all(self) -> list[dict[str, Any]]:
        """The latest jobs, newest first."""
        with self._lock:
            return [
                {
                    "id": one.number,
                    "kind": one.kind,
                    "volume": one.volume,
                    "state": one.state,
                    "stage": one.stage,
                    "done": one.done,
                    "total": one.total,
                    "pairing": one.pairing,
                    "error": one.error,
                    "result": one.result,
                }
                for one in sorted(self._jobs.values(), key=lambda one: -one.number)
            ]


def _bounded(result: Message) -> dict[str, Any]:
    return {
        name: value[:_MAX_PROBLEMS] if isinstance(value, list) else value for name, value in result.items()
    }
