"""hybrisfs relay: spaces, codes, what it says. What it serves is tested in tests/relay."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from hybrisfs.home import Home
from hybrisfs.listening import Address
from relay.code import RelayCode
from relay.server import Endpoint
from relay.spaces import Spaces
from tests.cli.conftest import Run

pytestmark = pytest.mark.usefixtures("home")


@pytest.fixture
def folder(home: Home) -> Path:
    return home.data / "relay"


def test_a_space_and_its_code(run: Run, folder: Path) -> None:
    done = run("relay", "add", "photos", "nas.example", "--quota", "500G")
    assert done.exit_code == 0
    space = Spaces(folder).get("photos")
    assert (space.host, space.port, space.quota) == ("nas.example", 8017, 500 * 10**9)
    text = next(line for line in done.stdout.splitlines() if line.startswith("hfr1-"))
    code = RelayCode.decode(text)
    assert (code.space, code.token) == ("photos", space.token)
    assert "cloud add --code -" in done.stdout
    assert "█" in done.stdout


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [
        ("nas.example:1234", "nas.example", 1234),
        ("192.0.2.7", "192.0.2.7", 8017),
        ("2001:db8::7", "2001:db8::7", 8017),
        ("[2001:db8::7]:99", "2001:db8::7", 99),
        ("[2001:db8::7]", "2001:db8::7", 8017),
    ],
)
def test_addresses(run: Run, folder: Path, text: str, host: str, port: int) -> None:
    assert run("relay", "add", "home", text).exit_code == 0
    space = Spaces(folder).get("home")
    assert (space.host, space.port) == (host, port)


@pytest.mark.parametrize("text", ["", "nas:x", "a:70000"])
def test_what_is_no_address(run: Run, folder: Path, text: str) -> None:
    assert run("relay", "add", "home", text).exit_code == 2
    assert Spaces(folder).all() == []


def test_a_code_is_shown_again_and_renewed(run: Run) -> None:
    made = run("relay", "add", "home", "nas", "--json")
    assert made.exit_code == 0, made.output
    first = json.loads(made.stdout)
    assert json.loads(run("relay", "code", "home", "--json").stdout) == first
    new = json.loads(run("relay", "code", "home", "--new", "--json").stdout)
    assert (new["url"] == first["url"], new["token"] == first["token"]) == (True, False)
    assert run("relay", "code", "work").exit_code == 2


def test_the_list_says_how_much_they_hold(run: Run, folder: Path) -> None:
    assert "no spaces" in run("relay", "list").stdout
    run("relay", "add", "home", "nas")
    (folder / "objects/home").mkdir(parents=True)
    (folder / "objects/home/object").write_bytes(bytes(2500))
    assert "home   2.5 KB  the disk" in run("relay", "list").stdout.replace("kB", "KB")
    (facts,) = json.loads(run("relay", "list", "--json").stdout)["spaces"]
    assert (facts["space"], facts["bytes"], facts["quota"]) == ("home", 2500, None)


def test_a_space_is_removed_and_its_objects_if_wanted(run: Run, folder: Path) -> None:
    for _ in range(2):
        run("relay", "add", "home", "nas")
        (folder / "objects/home").mkdir(parents=True, exist_ok=True)
        (folder / "objects/home/object").write_bytes(b"data")
        done = run("relay", "remove", "home")
        assert (done.exit_code, Spaces(folder).all()) == (0, [])
        assert (folder / "objects/home/object").exists()
    run("relay", "add", "home", "nas")
    assert run("relay", "remove", "home", "--with-objects").exit_code != 0  # nobody says yes
    assert run("relay", "remove", "home", "--with-objects", "--yes").exit_code == 0
    assert not (folder / "objects/home").exists()


def test_another_folder(run: Run, tmp_path: Path) -> None:
    run("relay", "--folder", str(tmp_path / "there"), "add", "home", "nas")
    assert Spaces(tmp_path / "there").get("home").host == "nas"


def test_it_says_where_it_listens(run: Run, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[Path, Address]] = []

    def serve(where: Path, address: Address, show: Callable[[Endpoint], None]) -> None:
        asked.append((where, address))
        show(Endpoint(address.host, address.port, address.host == "127.0.0.1", bytes(32)))
        raise KeyboardInterrupt

    monkeypatch.setattr("relay.server.serve", serve)
    done = run("relay", "serve")
    assert (done.exit_code, asked) == (0, [(folder, Address("0.0.0.0", 8017))])
    assert done.stdout.startswith("Relay at 0.0.0.0:8017. Ctrl-C ends it.\n")
    assert "only programs of this machine" in run("relay", "serve", "--listen", "127.0.0.1:1").stderr
    facts = json.loads(run("relay", "serve", "--json").stdout)
    assert facts == {"host": "0.0.0.0", "port": 8017, "pin": 64 * "0"}
