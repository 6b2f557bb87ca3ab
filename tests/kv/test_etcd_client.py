"""The client of etcd: URLs, passwords, certificates, and servers that are away or not an etcd."""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import ANY

import pytest
import urllib3

from hybrisfs.environment import SYSTEM, Environment, Limits
from hybrisfs.kv.etcd_client import EtcdClient
from hybrisfs.kv.etcd_requests import TRANSACTION, Found, Range, Transacted
from hybrisfs.kv.metadata import Change
from hybrisfs.kv.record import KeyMetadata
from hybrisfs.kv.rmds import DeviceMetadata
from hybrisfs.kv.service import Compare, KeyValue, OutcomeUnknownError, Put, ServiceError
from hybrisfs.kv.service_metadata import ServiceMetadata
from hybrisfs.kv.service_url import NO_ACCESS, ServiceUrl
from hybrisfs.kv.shared import ServiceLimits, connect
from sync.codec import DecodeError
from tests.backends.servers import FixedCredentials
from tests.kv.etcd_servers import etcd_cluster
from tests.kv.rig import new_database


def test_an_etcd_that_is_away_is_said_to_be() -> None:
    client = EtcdClient(ServiceUrl.parse("etcd://127.0.0.1:1"), NO_ACCESS, 0.5, SYSTEM)
    with pytest.raises(ServiceError, match="has not answered"):
        client.get(b"key")


def test_a_user_has_a_password(tmp_path: Path) -> None:
    with etcd_cluster(tmp_path / "etcd") as cluster:
        address = f"http://127.0.0.1:{cluster.nodes[0].port}/v3/auth"
        for path, asked in (
            ("user/add", {"name": "root", "password": "secret"}),
            ("role/add", {"name": "root"}),
            ("user/grant", {"user": "root", "role": "root"}),
            ("enable", {}),
        ):
            assert urllib3.request("POST", f"{address}/{path}", json=asked).status == 200
        url = cluster.url.replace("etcd://", "etcd://root@")
        with contextlib.closing(connect(url, FixedCredentials({"password": "secret"}), SYSTEM)) as client:
            client.change([Put(b"key", b"value")])
            assert isinstance(client, EtcdClient)
            client._token = "of a server that was started again"  # or that has run out
            assert client.get(b"key") == [KeyValue(b"key", b"value", ANY)]
        cases: list[tuple[str, dict[str, str]]] = [(url, {"password": "wrong"}), (url, {}), (cluster.url, {})]
        for wrong, secrets in cases:
            with (
                contextlib.closing(connect(wrong, FixedCredentials(secrets), SYSTEM)) as client,
                pytest.raises(ServiceError, match="does not let this machine in"),
            ):
                client.get(b"key")


def test_servers_show_a_certificate(tmp_path: Path) -> None:
    for name in ("ours", "another"):
        names = ["-subj", "/CN=etcd", "-addext", "subjectAltName=IP:127.0.0.1"]
        files = ["-keyout", str(tmp_path / f"{name}.key"), "-out", str(tmp_path / f"{name}.pem")]
        kind = [
            "req",
            "-x509",
            "-newkey",
            "ec",
            "-pkeyopt",
            "ec_paramgen_curve:P-256",
            "-nodes",
            "-days",
            "2",
        ]
        subprocess.run(["openssl", *kind, *names, *files], check=True, capture_output=True)
    ours = tmp_path / "ours.pem", tmp_path / "ours.key"
    with etcd_cluster(tmp_path / "etcd", tls=ours) as cluster:
        url = cluster.url.replace("etcd://", "etcds://")
        with contextlib.closing(connect(url, FixedCredentials({"ca": str(ours[0])}), SYSTEM)) as client:
            client.change([Put(b"key", b"value")])
            assert client.get(b"key") == [KeyValue(b"key", b"value", ANY)]
        hurried = Environment(limits=Limits(ServiceLimits(patience=0.5)))
        strange: list[dict[str, str]] = [{"ca": str(tmp_path / "another.pem")}, {}]
        for secrets in strange:
            with (
                contextlib.closing(connect(url, FixedCredentials(secrets), hurried)) as client,
                pytest.raises(ServiceError, match="certificate"),
            ):
                client.get(b"key")


class Hostile(EtcdClient):
    """A client of something that always finds the same keys, and more."""

    def __init__(self, *keys: bytes) -> None:
        super().__init__(ServiceUrl.parse("etcd://127.0.0.1:1"), NO_ACCESS, 1.0, SYSTEM)
        self._keys = keys

    def range(self, asked: Range) -> Found:
        """However often one asks."""
        return Found([KeyValue(key, b"", 1) for key in self._keys], 1, more=True)


@pytest.mark.parametrize("keys", [[], [b"b"], [b"d", b"c"], [b"z"]])
def test_a_list_without_end_is_refused(keys: list[bytes]) -> None:
    with pytest.raises(ServiceError, match="out of order"):
        for _ in Hostile(*keys).pages(Range(b"c", b"z", 2)):
            pass


@pytest.mark.parametrize("key", [b"g/a/1", b"f/z/1", b"x"])
def test_groups_without_end_are_refused(key: bytes) -> None:
    """An etcd is what any member can name."""
    with pytest.raises(ServiceError, match="out of order"):
        Hostile(key).groups(b"g")


class Curt(EtcdClient):
    """A client of something that is not an etcd: its answers lack what was asked for."""

    def _ask(self, path: str, asked: bytes, decode: Callable[[bytes], Any], deadline: float) -> Any:
        answer = super()._ask(path, asked, decode, deadline)
        return answer._replace(responses=b"") if path == TRANSACTION else answer


def test_what_became_of_a_transaction_comes_before_its_responses() -> None:
    """Those of puts are not looked at, so nothing that counts may come after them."""
    put = b"\x1a\x04\x12\x02\x0a\x00"
    assert Transacted.decode(b"\x0a\x02\x18\x07" + b"\x10\x01" + put) == (True, 7, put)
    with pytest.raises(DecodeError, match="before what became"):
        Transacted.decode(b"\x0a\x02\x18\x07" + put + b"\x10\x01").found(b"")


def test_an_answer_without_what_was_asked_for_is_an_error(tmp_path: Path) -> None:
    with (
        etcd_cluster(tmp_path / "etcd") as cluster,
        contextlib.closing(Curt(ServiceUrl.parse(cluster.url), NO_ACCESS, 10.0, SYSTEM)) as client,
        pytest.raises(OutcomeUnknownError, match="0 ranges instead of 2"),
    ):
        client.transact([Compare(b"key", 7)], [], [b"key", b"other"])


def test_a_key_of_somebody_else_is_refused(tmp_path: Path) -> None:
    """An etcd that answers with keys that were not asked for."""

    class Hostile(EtcdClient):
        def _ask(self, path: str, asked: bytes, decode: Callable[[bytes], Any], deadline: float) -> Any:
            self._root = b"other/"
            return super()._ask(path, asked, decode, deadline)

    with etcd_cluster(tmp_path / "etcd") as cluster:
        with contextlib.closing(EtcdClient(ServiceUrl.parse(cluster.url), NO_ACCESS, 10.0, SYSTEM)) as client:
            client.change([Put(b"key", b"value")])
        with (
            contextlib.closing(Hostile(ServiceUrl.parse(cluster.url), NO_ACCESS, 10.0, SYSTEM)) as client,
            pytest.raises(ServiceError, match="nobody has asked for"),
        ):
            client.get(b"key")


def test_keys_in_etcd_stay_where_earlier_versions_look_for_them(tmp_path: Path) -> None:
    with etcd_cluster(tmp_path / "etcd") as cluster:
        place = ServiceUrl.parse(f"{cluster.url}/files")
        debts = DeviceMetadata(new_database(tmp_path), SYSTEM)
        client = EtcdClient(place, NO_ACCESS, 10.0, root="hybrisfs/ab/", environment=SYSTEM)
        with contextlib.closing(ServiceMetadata(client, debts, b"\1" * 16, SYSTEM)) as store:
            store.create_container("box")
            box, entry = store.container("box"), KeyMetadata(0, store.new_write())
            store.update([Change((box, b"a/b"), entry)])
            with contextlib.closing(EtcdClient(place, NO_ACCESS, 10.0, SYSTEM)) as raw:
                found = {one.key: one.value for one in raw.scan(b"", b"\xff")}
        device = b"01" * 16
        assert found == {
            b"hybrisfs/ab/s": store.store_id,
            b"hybrisfs/ab/n": b"257",
            b"hybrisfs/ab/c/box": b"%016x" % box,
            b"hybrisfs/ab/k/%016x/a/b" % box: entry._replace(sn=1).encode(),
            b"hybrisfs/ab/l/" + device: b"",
            b"hybrisfs/ab/b/" + device + b"/0000000000000001": b"256",
            b"hybrisfs/ab/u/" + device + b"/0000000000000001": b"",
        }
