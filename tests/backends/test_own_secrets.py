"""A service that a URL names gets the secrets that are meant for it, and no others that this user has."""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from backends.azure import AzureStore
from backends.errors import AuthError, PermanentError
from backends.gcs import GcsStore
from backends.s3 import S3Store
from backends.sftp import SftpStore
from backends.store import Store
from backends.webdav import WebDavStore
from tests.backends.faulty_server import Answer, AnsweringServer, Request
from tests.backends.servers import FixedCredentials

SECRET = "VICTIM"
AMAZON = {
    "AWS_ACCESS_KEY_ID": f"{SECRET}-ENVIRONMENT",
    "AWS_SECRET_ACCESS_KEY": f"{SECRET}-ENVIRONMENT-SECRET",
    "AWS_SESSION_TOKEN": f"{SECRET}-ENVIRONMENT-TOKEN",
}
EMPTY_LISTING = Answer(200, {"Content-Type": "application/xml"}, b"<ListBucketResult></ListBucketResult>")


@pytest.fixture
def stranger() -> Iterator[AnsweringServer]:
    """The service that a URL names."""
    with AnsweringServer(EMPTY_LISTING) as stranger:
        yield stranger


@pytest.fixture
def provider() -> Iterator[AnsweringServer]:
    """What gives a machine at Amazon its credentials."""
    role = b'{"AccessKeyId": "VICTIM-ROLE", "SecretAccessKey": "s", "Token": "t",'
    with AnsweringServer(Answer(body=role + b' "Expiration": "2099-01-01T00:00:00Z"}')) as provider:
        yield provider


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home directory of somebody who uses Amazon, and whom ~/.netrc logs in everywhere."""
    for name in [name for name in os.environ if name.startswith(("AWS_", "BOTO_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / ".aws").mkdir()
    (tmp_path / ".netrc").write_text(f"default login {SECRET} password {SECRET}\n")
    (tmp_path / ".netrc").chmod(0o600)
    return tmp_path


def keys(name: str) -> str:
    return (
        f"aws_access_key_id = {SECRET}-{name}\n"
        f"aws_secret_access_key = {SECRET}-{name}-SECRET\n"
        f"aws_session_token = {SECRET}-{name}-TOKEN\n"
    )


def tells_secrets(requests: list[Request]) -> bool:
    """Whether any was sent, in clear or as a login of HTTP."""
    login = base64.b64encode(f"{SECRET}:{SECRET}".encode()).decode()
    return any(SECRET in str(one) or login in str(one) for one in requests)


@pytest.mark.parametrize("place", ["environment", "profile", "config", "boto", "container", "instance"])
def test_an_endpoint_gets_nothing_that_is_meant_for_amazon(
    stranger: AnsweringServer,
    provider: AnsweringServer,
    home: Path,
    monkeypatch: pytest.MonkeyPatch,
    place: str,
) -> None:
    if place == "environment":
        for name, value in AMAZON.items():
            monkeypatch.setenv(name, value)
    elif place in ("profile", "config"):
        file = {"profile": "credentials", "config": "config"}[place]
        (home / ".aws" / file).write_text(f"[default]\n{keys('DEFAULT')}")
    elif place == "boto":
        (home / ".boto").write_text(f"[Credentials]\n{keys('BOTO')}")
    elif place == "container":
        monkeypatch.setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", f"http://{provider.authority}/role")
    else:
        monkeypatch.setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", f"http://{provider.authority}/")
    store = S3Store(f"s3://bucket/f?endpoint=http://{stranger.authority}")
    with pytest.raises(AuthError, match=r"no credentials.*endpoint.*hybrisfs cloud login"):
        store.list("")
    assert stranger.requests == []
    assert provider.requests == []


@pytest.mark.parametrize("given", [{"access_key_id": "own"}, {"session_token": "own"}])
def test_half_of_the_secrets_is_not_filled_up_with_others(
    stranger: AnsweringServer, home: Path, monkeypatch: pytest.MonkeyPatch, given: dict[str, str]
) -> None:
    for name, value in AMAZON.items():
        monkeypatch.setenv(name, value)
    store = S3Store(f"s3://bucket/f?endpoint=http://{stranger.authority}", FixedCredentials(given))
    with pytest.raises(AuthError):
        store.list("")
    assert stranger.requests == []


def test_an_endpoint_gets_the_secrets_that_are_meant_for_it(
    stranger: AnsweringServer, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in AMAZON.items():
        monkeypatch.setenv(name, value)
    given = FixedCredentials({"access_key_id": "own", "secret_access_key": "own"})
    assert not S3Store(f"s3://bucket/f?endpoint=http://{stranger.authority}", given).list("").names
    assert "Credential=own/" in stranger.requests[0].headers["authorization"]
    assert not tells_secrets(stranger.requests)


@pytest.mark.parametrize("profile", ["nas", "default"])
def test_a_profile_that_the_url_names_counts_for_its_own_endpoint(
    stranger: AnsweringServer, home: Path, monkeypatch: pytest.MonkeyPatch, profile: str
) -> None:
    for name, value in AMAZON.items():
        monkeypatch.setenv(name, value)
    section = profile if profile == "default" else f"profile {profile}"
    text = f"[{section}]\naws_access_key_id = own\naws_secret_access_key = own\n"
    (home / ".aws" / "config").write_text(f"{text}endpoint_url = http://{stranger.authority}/\n")
    assert not S3Store(f"s3://bucket/f?endpoint=http://{stranger.authority}&profile={profile}").list("").names
    assert "Credential=own/" in stranger.requests[0].headers["authorization"]
    assert not tells_secrets(stranger.requests)


def test_a_profile_of_its_own_counts_for_an_endpoint(stranger: AnsweringServer, home: Path) -> None:
    text = "[nas]\naws_access_key_id = own\naws_secret_access_key = own\n"
    (home / ".aws" / "credentials").write_text(text)
    assert not S3Store(f"s3://bucket/f?endpoint=http://{stranger.authority}&profile=nas").list("").names
    assert "Credential=own/" in stranger.requests[0].headers["authorization"]


@pytest.mark.parametrize(
    "config",
    [
        f"[default]\n{keys('DEFAULT')}",
        f"[default]\n{keys('DEFAULT')}endpoint_url = https://s3.example.org\n",
        f"[profile nas]\n{keys('NAS')}endpoint_url = https://s3.example.org\n",
        "[profile nas]\nregion = us-east-1\n",
        "",
    ],
)
def test_a_profile_for_another_service_does_not_count(
    stranger: AnsweringServer,
    provider: AnsweringServer,
    home: Path,
    monkeypatch: pytest.MonkeyPatch,
    config: str,
) -> None:
    monkeypatch.setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", f"http://{provider.authority}/role")
    (home / ".aws" / "config").write_text(config)
    profile = "default" if "default" in config else "nas"
    store = S3Store(f"s3://bucket/f?endpoint=http://{stranger.authority}&profile={profile}")
    with pytest.raises((AuthError, PermanentError)):
        store.list("")
    assert stranger.requests == []
    assert provider.requests == []


def test_amazon_itself_gets_what_is_meant_for_it(
    stranger: AnsweringServer, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That a URL without endpoint means another service is the user's own decision."""
    for name, value in AMAZON.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", f"http://{stranger.authority}")
    assert not S3Store("s3://bucket/f?addressing=path").list("").names
    assert AMAZON["AWS_ACCESS_KEY_ID"] in stranger.requests[0].headers["authorization"]


def gcs(authority: str) -> Store:
    return GcsStore(f"gs://bucket/f?endpoint=http://{authority}", FixedCredentials({"token": "own"}))


def gcs_without_login(authority: str) -> Store:
    return GcsStore(f"gs://bucket/f?endpoint=http://{authority}")


def azure(authority: str) -> Store:
    key = FixedCredentials({"account_key": base64.b64encode(b"own").decode()})
    return AzureStore(f"az://container/f?account=account&endpoint=http://{authority}/account", key)


def azure_by_token(authority: str) -> Store:
    token = FixedCredentials({"sas_token": "sig=own"})
    return AzureStore(f"az://container/f?account=account&endpoint=http://{authority}/account", token)


def webdav(authority: str) -> Store:
    return WebDavStore(f"webdav://{authority}/f")


@pytest.mark.parametrize("driver", [gcs, gcs_without_login, azure, azure_by_token, webdav])
def test_nobody_is_logged_in_by_netrc(
    stranger: AnsweringServer, home: Path, driver: Callable[[str], Store]
) -> None:
    stranger.answer = Answer(404)
    with pytest.raises(Exception, match=r"."):
        driver(stranger.authority).get("a", limit=10)
    assert stranger.requests
    assert not tells_secrets(stranger.requests)


def service_account(tokens: AnsweringServer) -> FixedCredentials:
    """Secrets whose tokens that server gives."""
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    account = {
        "client_email": "me@example.org",
        "private_key": key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode(),
        "token_uri": f"http://{tokens.authority}/token",
    }
    return FixedCredentials({"service_account": json.dumps(account)})


def test_nobody_is_logged_in_by_netrc_where_tokens_are_had(stranger: AnsweringServer, home: Path) -> None:
    """The account may have come from whoever let this device in."""
    store = GcsStore("gs://bucket/f", service_account(stranger))
    stranger.answer = Answer(400)
    with pytest.raises(AuthError):
        store.get("a", limit=10)
    assert [request.target for request in stranger.requests] == ["/token"]
    assert not tells_secrets(stranger.requests)


def test_a_token_may_be_longer_than_the_object_that_is_read(
    stranger: AnsweringServer, provider: AnsweringServer, home: Path
) -> None:
    token = json.dumps({"access_token": "t" * 1000, "expires_in": 3600}).encode()
    provider.answer = Answer(200, {"Content-Type": "application/json"}, token)
    stranger.answer = Answer(body=b"12345")
    store = GcsStore(f"gs://bucket/f?endpoint=http://{stranger.authority}", service_account(provider))
    assert store.get("a", limit=5) == b"12345"
    assert stranger.requests[0].headers["authorization"] == f"Bearer {'t' * 1000}"


@pytest.mark.parametrize(
    "url",
    [
        "az://container?account=evil.example%2F",
        "az://container?account=evil.example%3F",
        "az://container?account=evil.example%23",
        "az://container?account=evil.example%5C",
        "az://container?account=evil.example%3A443%2F",
        "az://container?account=me%40evil.example%2F",
        "az://container?account=evil.example",
    ],
)
def test_an_account_is_a_name_and_no_host(url: str) -> None:
    """A token for all of Azure would go there."""
    with pytest.raises(PermanentError, match="account"):
        AzureStore(url)


@pytest.mark.parametrize("region", ["evil.example%2F", "evil.example", "evil%23", "a%40b", "x%2Fy"])
def test_a_region_is_a_name_and_no_host(region: str) -> None:
    with pytest.raises(PermanentError, match="region"):
        S3Store(f"s3://bucket?region={region}")


@pytest.mark.parametrize("option", ["known_hosts", "key"])
def test_files_that_never_end_are_not_read(option: str) -> None:
    """Another device may have written the URL."""
    with pytest.raises(AuthError, match="not a file with keys"):
        SftpStore(f"sftp://me@127.0.0.1:9/f?{option}=/dev/zero").list("")
