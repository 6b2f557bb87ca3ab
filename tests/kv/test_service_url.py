"""URLs of services for metadata."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from hybrisfs.errors import UsageError
from hybrisfs.kv.service_url import Access, ServiceUrl, is_service, servers_of


@pytest.mark.parametrize(
    "url",
    [
        "etcd:///x",
        "http://a",
        "etcd://u:p@h",
        "etcd://h:x",
        "etcd://h?ca=/f",
        "etcd://h?",
        "etcd://h?names=",
        "etcd://h?names=plain",
        "etcd://h?names=sealed&names=sealed",
        "etcd://h?names=sealed?names=sealed",
        "etcd://h?names=sealed#a",
        "etcd://h:1/a#b",
        "etcd://h:99999",
        "zookeeper://",
        "zookeeper://u:p@h",
        "zookeeper://h/a/../b",
        "zookeeper://h/a//b",
        "zk://h",
    ],
)
def test_other_urls_are_refused(url: str) -> None:
    with pytest.raises(UsageError):
        ServiceUrl.parse(url)


def test_urls() -> None:
    one = ServiceUrl.parse("etcds://anna@db1,db2:1000,[::1]:2379/a/b/")
    assert one == ServiceUrl("etcd", ("db1:2379", "db2:1000", "[::1]:2379"), True, "a/b", "anna")
    two = ServiceUrl.parse("zookeeper://zk1,zk2:1000,[::1]/a")
    assert two == ServiceUrl("ZooKeeper", ("zk1:2181", "zk2:1000", "[::1]:2181"), False, "a")
    assert ServiceUrl.parse("zookeepers://zk1").hosts == ("zk1:2281",)


@pytest.mark.parametrize("url", ["etcd://db1,db2:1000", "etcds://anna@[::1]/a/b", "zookeeper://zk1/a"])
def test_names_may_be_sealed(url: str) -> None:
    plain, sealed = ServiceUrl.parse(url), ServiceUrl.parse(f"{url}?names=sealed")
    assert sealed == replace(plain, sealed=True)
    assert not plain.sealed
    assert servers_of(f"{url}?names=sealed") == servers_of(url) == url


def test_services_are_told_from_clouds() -> None:
    assert all(map(is_service, ("etcd://a", "etcds://a", "zookeeper://a", "zookeepers://a")))
    assert not any(map(is_service, ("s3://a", "/folder", "zookeeper")))


def test_a_password_is_never_shown() -> None:
    assert "secret" not in repr(Access("secret"))
