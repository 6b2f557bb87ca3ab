"""The contract against real accounts: HYBRISFS_TEST_CLOUD_URLS="s3://bucket/folder gs://bucket/folder".

Secrets come from where HybrisFS itself takes them. Each test works in a folder of its own, which it empties.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from uuid import uuid4

import pytest

from backends.credentials import CredentialStore
from backends.registry import open_store
from backends.store import Store
from hybrisfs.home import Home
from tests.backends.conformance import Conformance, all_names

URLS = os.environ.get("HYBRISFS_TEST_CLOUD_URLS", "").split()


@pytest.mark.skipif(not URLS, reason="HYBRISFS_TEST_CLOUD_URLS names no account")
@pytest.mark.timeout(1800)
class TestAccounts(Conformance):
    """The contract holds."""

    @pytest.fixture(params=URLS)
    def store(self, request: pytest.FixtureRequest) -> Iterator[Store]:
        base, mark, options = str(request.param).partition("?")
        url = f"{base.rstrip('/')}/test-{uuid4().hex}{mark}{options}"
        store = open_store(url, CredentialStore(Home.from_environment().credentials))
        store.initialise()
        yield store
        cleaner = open_store(url, CredentialStore(Home.from_environment().credentials))
        cleaner.delete_many(all_names(cleaner))
        cleaner.close()
