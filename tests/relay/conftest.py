"""One relay for all tests of the session that ask for it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.backends import servers
from tests.backends.servers import Server


@pytest.fixture(scope="session")
def relay_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with servers.relay(tmp_path_factory.mktemp("relay-server")) as server:
        yield server
