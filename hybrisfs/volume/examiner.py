"""The examiner: looks at samples of files that another device has overwritten, and that are held until then.

Of some of them it reads the beginning as it is shown here and as it is by the log, from the cache or the
clouds. What these tell, `hybrisfs.merge.samples` says. It takes `MOST_SAMPLES` files by chance, so nobody can
foresee which. While too few can be read it tries again, and after `PATIENCE` seconds leaves the matter to a
person. A member can have others look again and again, so looks become rare when they are many.
"""

from __future__ import annotations

import logging
from collections import deque
from typing import Final

from hybrisfs.dispersal.errors import ChunkUnavailable
from hybrisfs.merge.held import Compared
from hybrisfs.merge.samples import BEGINNING, MOST_SAMPLES, Finding, compare
from hybrisfs.read.fetch import Fetcher
from hybrisfs.registers.values import Value
from hybrisfs.sharing.deletions import Deletions, Suspicion
from hybrisfs.stages import Pause
from hybrisfs.tree.filesystem import FileSystem
from hybrisfs.versions.contents import VersionReader

__all__ = ["PATIENCE", "Examiner"]

log = logging.getLogger(__name__)

PATIENCE: Final = 600.0
_RETRY_SECONDS: Final = 20.0
_MOST_TRIED: Final = 3 * MOST_SAMPLES  # files, as some may be out of reach
_HOUR: Final = 3600.0
_AT_WILL: Final = 10  # looks in an hour; after each further one it rests longer
_REST_SECONDS: Final = 10.0
_MOST_REST_SECONDS: Final = 300.0


class Examiner:
    """A stage. It takes the volume's lock itself, and waits for clouds without it."""

    def __init__(self, fs: FileSystem, deletions: Deletions, fetcher: Fetcher) -> None:
        self._fs = fs
        self._deletions = deletions
        self._fetcher = fetcher
        self._monotonic = fs.environment.monotonic
        self._chance = fs.environment.chance()
        self._looks: deque[float] = deque()  # when, within the last hour
        self._since: dict[int, float] = {}  # when samples were looked for first, by number of the deletion

    def step(self) -> Pause:
        """Look at samples of all that is suspected."""
        suspicions = self._deletions.suspicions()
        if not suspicions:
            return Pause(_HOUR)
        waiting = {one.deletion.number for one in suspicions if not self._examine(one)}
        self._since = {number: since for number, since in self._since.items() if number in waiting}
        now = self._monotonic()
        self._looks.append(now)
        while self._looks[0] < now - _HOUR:
            self._looks.popleft()
        rest = min(_REST_SECONDS * max(0, len(self._looks) - _AT_WILL), _MOST_REST_SECONDS)
        return Pause(max(_RETRY_SECONDS, rest), least=rest) if waiting else Pause(rest, least=rest)

    def _examine(self, suspicion: Suspicion) -> bool:
        """Settle it; False when it is to be tried again, as samples cannot be had yet."""
        if not suspicion.files:  # what is held is not shown by itself any more
            self._deletions.settle(suspicion, None)
            return True
        number, now = suspicion.deletion.number, self._monotonic()
        files = self._chance.sample(suspicion.files, min(len(suspicion.files), _MOST_TRIED))
        findings: list[Finding] = []
        for one in files:
            if len(findings) == MOST_SAMPLES:
                break
            finding = self._compare(one)
            if finding is not None:
                findings.append(finding)
        if 2 * len(findings) >= min(len(files), MOST_SAMPLES):
            self._deletions.settle(suspicion, findings)
            return True
        if now - self._since.setdefault(number, now) < PATIENCE:
            return False
        log.warning("samples of %d overwritten files cannot be read", len(suspicion.files))
        self._deletions.settle(suspicion, None)
        return True

    def _compare(self, one: Compared) -> Finding | None:
        """What has become of a file; None when that cannot be read now."""
        if one.before is None or one.now is None:
            return None
        try:
            return compare(self._beginning(one.before), self._beginning(one.now))
        except (ChunkUnavailable, OSError) as error:
            log.debug("a sample of an overwritten file cannot be read: %s", error)
            return None

    def _beginning(self, content: Value) -> bytes:
        return VersionReader(self._fs, self._fetcher, content.value).read(0, BEGINNING)
