"""The Azure driver: the contract, and what is particular to Azure."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from backends.azure import AzureStore
from backends.body import Timing
from backends.store import Store
from tests.backends.conformance import Conformance
from tests.backends.faulty_server import Answer
from tests.backends.network_conformance import HttpConformance
from tests.backends.servers import FixedCredentials, Server


class TestAzureStore(HttpConformance, Conformance):
    """The contract holds."""

    many_keys = 1005  # more than a page; this server is slow
    clock_skew = Answer(
        403, {"Date": "Thu, 01 Jan 2026 00:00:00 GMT", "x-ms-error-code": "AuthenticationFailed"}
    )

    @pytest.fixture
    def server(self, azure_server: Server) -> Server:
        return azure_server

    def open(self, url: str, secrets: Mapping[str, str], timing: Timing | None = None) -> Store:
        return AzureStore(url, FixedCredentials(secrets), timing)
