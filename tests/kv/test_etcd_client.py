"""The client of etcd: URLs, passwords, certificates, and servers that are away or not an etcd."""

from __future__ import annotations

import contextlib
import subprocess
from pathlib import Path

import pytest
import urllib3

from hybrisfs.environment import Environment, Limits
from hybrisfs.errors import UsageError
from hybrisfs.kv.etcd_client import EtcdClient, EtcdError, EtcdSettings
from hybrisfs.kv.etcd_requests import Found, KeyValue, Put, Range
from hybrisfs.kv.shared import ServiceLimits, connect
from tests.backends.servers import FixedCredentials
from tests.kv.etcd_servers import etcd_cluster


@pytest.mark.parametrize(
    "url",
    [
        "etcd:///x",
        "http://a",
        "etcd://u:p@h",
        "etcd://h:x",
        "etcd://h?ca=/f",
        "etcd://h:1/a#b",
        "etcd://h:99999",
    ],
)
def test_other_urls_are_refused(url: str) -> None:
    with pytest.raises(UsageError):
        EtcdSettings.parse(url)


def test_urls() -> None:
    one = EtcdSettings.parse("etcds://anna@db1,db2:1000,[::1]:2379/a/b/")
    assert one.endpoints == ("https://db1:2379", "https://db2:1000", "https://[::1]:2379")
    assert (one.prefix, one.user) == ("a/b", "anna")


def test_an_etcd_that_is_away_is_said_to_be() -> None:
    client = EtcdClient(EtcdSettings.parse("etcd://127.0.0.1:1"), None, 0.5)
    with pytest.raises(EtcdError, match="has not answered"):
        client.range(Range(b"key"))


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
        with contextlib.closing(connect(url, FixedCredentials({"password": "secret"}))) as client:
            client.change([Put(b"key", b"value")])
            client._token = "of a server that was started again"  # or that has run out
            assert client.range(Range(b"key")).keys[0].value == b"value"
        cases: list[tuple[str, dict[str, str]]] = [(url, {"password": "wrong"}), (url, {}), (cluster.url, {})]
        for wrong, secrets in cases:
            with (
                contextlib.closing(connect(wrong, FixedCredentials(secrets))) as client,
                pytest.raises(EtcdError, match="does not let this machine in"),
            ):
                client.range(Range(b"key"))


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
        with contextlib.closing(connect(url, FixedCredentials({"ca": str(ours[0])}))) as client:
            client.change([Put(b"key", b"value")])
            assert client.range(Range(b"key")).keys[0].value == b"value"
        hurried = Environment(limits=Limits(ServiceLimits(patience=0.5)))
        strange: list[dict[str, str]] = [{"ca": str(tmp_path / "another.pem")}, {}]
        for secrets in strange:
            with (
                contextlib.closing(connect(url, FixedCredentials(secrets), hurried)) as client,
                pytest.raises(EtcdError, match="certificate"),
            ):
                client.range(Range(b"key"))


@pytest.mark.parametrize("keys", [[], [b"b"], [b"d", b"c"]])
def test_a_list_without_end_is_refused(keys: list[bytes]) -> None:
    class Hostile(EtcdClient):
        def range(self, asked: Range) -> Found:
            return Found([KeyValue(key, b"", 1) for key in keys], 1, more=True)

    client = Hostile(EtcdSettings.parse("etcd://127.0.0.1:1"), None, 1.0)
    with pytest.raises(EtcdError, match="out of order"):
        for _ in client.pages(Range(b"c", b"z"), 2):
            pass
