"""The GCS driver: the contract, and what is particular to Google Cloud Storage."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from backends.body import Timing
from backends.gcs import GcsStore
from backends.store import Store
from tests.backends.conformance import Conformance
from tests.backends.faulty_server import Answer
from tests.backends.network_conformance import HttpConformance
from tests.backends.servers import FixedCredentials, Server


class TestGcsStore(HttpConformance, Conformance):
    """The contract holds."""

    many_keys = 1005  # more than a page; this server is slow
    guards_access = False
    clock_skew = Answer(403, {"Date": "Thu, 01 Jan 2026 00:00:00 GMT"})

    @pytest.fixture
    def server(self, gcs_server: Server) -> Server:
        return gcs_server

    def open(self, url: str, secrets: Mapping[str, str], timing: Timing | None = None) -> Store:
        return GcsStore(url, FixedCredentials(secrets), timing)
