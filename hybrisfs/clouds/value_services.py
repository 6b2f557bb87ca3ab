"""The key-value services of a volume, as its log tells (`hybrisfs.merge.kv_services`)."""

from __future__ import annotations

from collections.abc import Sequence

from hybrisfs.errors import UsageError
from hybrisfs.kinds import SERVICE
from hybrisfs.merge.kv_services import MAX_SERVICE_URL, ServiceRecord, read_services, service_key
from hybrisfs.parts import Ground

__all__ = ["ValueServices"]


class ValueServices:
    """See `hybrisfs.kv.shared.Services`. Thread-safe."""

    def __init__(self, ground: Ground) -> None:
        self._ground = ground
        self._sharing = ground.sharing

    def urls(self) -> Sequence[str]:
        """The URLs of the services in use, sorted."""
        with self._ground.fs.state.transaction() as tx:
            return read_services(tx.registers.with_prefix(SERVICE.prefix))

    def add(self, url: str) -> None:
        """Have all devices use one more."""
        if len(url.encode()) > MAX_SERVICE_URL or not url.isprintable():
            raise UsageError("the URL of the service is too long", f"it has at most {MAX_SERVICE_URL} bytes")
        self._sign(ServiceRecord(url))

    def forget(self, url: str) -> None:
        """Sign for all devices that a service is not used any more. Raises UsageError."""
        if url not in self.urls():
            raise UsageError(
                f"the volume uses no service {url!r}", "", "hybrisfs kv containers lists those in use."
            )
        self._sign(ServiceRecord(url, in_use=False))

    def _sign(self, record: ServiceRecord) -> None:
        self._sharing.require_writer()
        state = self._ground.fs.state
        with state.log_transaction() as tx:
            self._sharing.signer.sign(tx, [(service_key(record.url), record.encode())], 0)
        self._ground.committer.commit_now()  # the command reports that it is done
        self._ground.signals.chunks_made()
