"""A real server at the far end of a slow line."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from random import Random

from backends.webdav import WebDavStore
from hybrisfs.dispersal.engine import Cloud, Engine
from hybrisfs.dispersal.ranking import Timing
from hybrisfs.environment import SYSTEM
from tests.backends.faulty_server import FaultyProxy
from tests.backends.servers import FixedCredentials, wsgidav
from tests.dispersal.fakes import SEALER, TABLES

TIMEOUT = 2.0  # seconds
RATE = 500_000  # bytes per second
DATA = Random(1).randbytes(int(2 * TIMEOUT * RATE))


def test_what_takes_longer_than_its_deadline_is_read_while_it_moves(tmp_path: Path) -> None:
    with wsgidav(tmp_path) as server, FaultyProxy(server.address) as proxy:
        store = WebDavStore(server.url(authority=proxy.authority), FixedCredentials(server.secrets))
        store.initialise()
        timing = Timing(get=TIMEOUT, stall=TIMEOUT)
        with closing(
            Engine([Cloud(0, "far", store)], 0, SEALER, TABLES, timing=timing, environment=SYSTEM)
        ) as engine:
            assert engine.put_object("object", DATA, 1) == (0,)
            proxy.answer_rate = RATE
            assert engine.get_object("object", len(DATA), bytes, (0,)) == DATA
            assert engine.health()[0].state == "ok"
