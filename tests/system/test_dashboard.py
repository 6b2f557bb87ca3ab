"""The dashboard in a real browser, before real daemons: two machines and three clouds.

HYBRISFS_SCREENSHOTS names a folder that the pictures are kept in.
"""

from __future__ import annotations

import itertools
import json
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Literal

import pytest
from playwright.sync_api import Browser, BrowserContext, Route, expect

from tests.browser import chromium
from tests.page_checks import no_violations
from tests.system.dashboard_page import (
    DESK,
    PATIENCE,
    Opened,
    Pair,
    conflicts_of,
    dashboard,
    picture,
    reloaded,
    show,
    sound_when_loaded,
    two_machines,
    watched,
)
from tests.system.deadline import until

_SECTIONS = (
    "overview",
    "clouds",
    "transfers",
    "devices",
    "files",
    "kv",
    "conflicts",
    "cost",
    "settings",
    "events",
)
_SCHEMES: tuple[Literal["light", "dark"], ...] = ("light", "dark")
_BROKEN_NAMES = """() => {
    for (const speed of document.querySelectorAll(".rows .name + span:not(.badge):not(.buttons)"))
        speed.textContent = "1000 bytes/s up, 1000 bytes/s down";
    return [...document.querySelectorAll(".name")]
        .filter(one => /^\\w{1,20}$/.test(one.textContent) && one.offsetHeight > 36)
        .map(one => one.textContent);
}"""
_VOTE = {"by": "laptop", "id": "ab" * 16, "stance": "remove", "counts": True}
_ACCUSED = {"final": False, "suspended": True, "until": 1_900_000_000.0, "votes": [_VOTE]}
_KEPT = {
    **_ACCUSED,
    "id": "cd" * 16,
    "name": "tablet",
    "this": False,
    "suspended": False,
    "until": None,
    "votes": [{**_VOTE, "counts": False}, {**_VOTE, "by": "phone", "stance": "keep", "counts": False}],
}
_CHARGES = [
    {"kind": "offence", "what": "signed what it may not: attributes", "at": 1.0},
    {"kind": "fork", "what": "signed two histories", "at": 1.0},
]
_ETCD = "etcd://db1:2379,db2:2379"


@pytest.fixture(scope="module")
def _browser() -> Iterator[Browser]:
    with chromium() as browser:
        yield browser


@pytest.fixture(scope="module")
def machines(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    """Two mounted machines, and a conflict on `notes.txt`."""
    with ExitStack() as stack:
        roots = []
        for name in ("here", "there"):
            roots.append(tmp_path_factory.mktemp(name))
            stack.callback(shutil.rmtree, roots[-1], ignore_errors=True)
        yield two_machines(stack, *roots)


@pytest.fixture(scope="module")
def _served(machines: Pair) -> Iterator[str]:
    """The link of `hybrisfs ui`; it is good for one page only."""
    with dashboard(machines.here) as link:
        yield link


@pytest.fixture(scope="module")
def _first_page(_browser: Browser, _served: str) -> Iterator[Opened]:
    with watched(_browser, _served) as opened:
        yield opened


@pytest.fixture
def opened(_first_page: Opened) -> Iterator[Opened]:
    """The page, as wide as a desk's and light, whatever the test before has made of it."""
    page = _first_page.page
    page.set_viewport_size(DESK)
    page.emulate_media(color_scheme="light", reduced_motion="reduce")
    yield _first_page
    # Were a request still being answered when nothing is intercepted any more, its answer would fail later.
    page.unroute_all(behavior="wait")


@pytest.mark.parametrize("section", _SECTIONS)
def test_each_section_is_there_and_accessible(opened: Opened, section: str) -> None:
    page = opened.page
    page.set_viewport_size({"width": 1280, "height": 900})
    sound_when_loaded(opened, section)
    picture(page, f"{section}-light")
    page.emulate_media(color_scheme="dark", reduced_motion="reduce")
    no_violations(page)
    picture(page, f"{section}-dark")
    assert opened.complaints == []


@pytest.mark.parametrize("section", _SECTIONS)
def test_it_fits_a_phone(opened: Opened, section: str) -> None:
    page = opened.page
    page.emulate_media(color_scheme="light", reduced_motion="reduce")
    show(page, section)
    page.set_viewport_size({"width": 360, "height": 740})  # as when a phone is turned
    expect(page.locator("nav a[aria-current=page]")).to_be_in_viewport(ratio=0.9)
    sound_when_loaded(opened, section)
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
    assert page.evaluate(_BROKEN_NAMES) == [], "there is room for short names"
    picture(page, f"{section}-phone")
    assert opened.complaints == []


def test_the_keyboard_can_skip_the_sections(opened: Opened) -> None:
    page = opened.page
    reloaded(opened, "overview")
    page.keyboard.press("Tab")
    expect(page.locator(":focus")).to_have_text("Skip to the content")
    page.keyboard.press("Enter")
    expect(page.locator(":focus")).to_have_id("content")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.closest('main') !== null")
    assert opened.complaints == []


def test_odd_names_are_only_text(opened: Opened) -> None:
    page = opened.page
    show(page, "files")
    shown = page.locator("table.files button", has_text="<img src=x onerror=alert(1)>")
    expect(shown).to_have_count(1)
    expect(page.locator("main img")).to_have_count(0)
    shown.click()
    expect(page.locator("pre.text")).to_have_text("harmless")
    page.get_by_role("button", name="Close the file").click()
    assert opened.complaints == []


def test_roles_proofs_and_votes_are_told(opened: Opened) -> None:
    page = opened.page

    def tell(route: Route) -> None:
        """As a daemon would that has heard of bad machines."""
        headers = {name: value for name, value in route.request.headers.items() if name != "if-none-match"}
        response = route.fetch(headers=headers)
        told = response.json()
        for volume in told.get("volumes", ()):
            this, other = sorted(volume["devices"], key=lambda one: not one["this"])
            other.update(reader=True, overstepped=True, charges=_CHARGES)
            volume["accused"] = [{**_ACCUSED, "id": this["id"], "name": this["name"], "this": True}, _KEPT]
        route.fulfill(response=response, json=told)

    page.route("**/api/volumes", tell)
    for width in (1280, 360):
        page.set_viewport_size({"width": width, "height": 900})
        show(page, "devices")
        for words in (
            "signed what it may not: attributes. It may have been taken over",
            "It has signed what it may not: that counts for nobody",
            "laptop wants it removed.",
            "That can be vetoed on another machine until ",
            "phone says that it stays.",
        ):
            expect(page.locator("main")).to_contain_text(words)
        expect(page.locator("main dd", has_text="only read")).to_have_count(1)
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        no_violations(page)
        picture(page, f"accused-{width}")
    expect(page.locator("p.reason", has_text="says that it stays")).to_have_count(0)
    page.set_viewport_size({"width": 1280, "height": 900})
    page.unroute_all(behavior="wait")
    assert opened.complaints == []


def test_folders_are_browsed_and_files_kept(opened: Opened, machines: Pair) -> None:
    page = opened.page
    machines.here.run("label", "add", "holiday", str(machines.here.mountpoint / "Photos" / "one.jpg"))
    show(page, "files")
    page.locator("table.files").get_by_role("button", name="Photos", exact=True).click()
    expect(page.locator("table.files").get_by_text("holiday", exact=True)).to_be_visible(timeout=PATIENCE)
    page.get_by_role("button", name="Pin one.jpg").click()
    expect(page.get_by_role("button", name="Unpin one.jpg")).to_be_visible(timeout=PATIENCE)
    assert [one["inside"] for one in json.loads(machines.here.run("pin", "--json"))["pins"]] == [
        "Photos/one.jpg"
    ]
    page.get_by_role("button", name="Unpin one.jpg").click()
    expect(page.get_by_role("button", name="Pin one.jpg")).to_be_visible(timeout=PATIENCE)
    page.get_by_role("button", name="vol", exact=True).click()
    expect(page.locator("table.files").get_by_role("button", name="notes.txt", exact=True)).to_be_visible()
    assert opened.complaints == []


def test_what_is_shared_by_links_is_shown_and_revoked(opened: Opened) -> None:
    page, asked = opened.page, list[object]()
    show(page, "files")
    page.set_viewport_size({"width": 1280, "height": 300})  # where the folder leaves no room below it
    page.get_by_role("button", name="Shared by links", exact=True).click()
    expect(page.get_by_text("Nothing is shared. hybrisfs share FILE")).to_be_in_viewport(timeout=PATIENCE)
    page.set_viewport_size(DESK)
    there = [
        {
            "id": "3f2a" * 8,
            "path": "Photos/one.jpg",
            "size": 1_000_000,
            "made": 1_795_000_000,
            "expires": 1_795_600_000,
            "cloud": "hetzner",
            "device": "here",
            "whole": True,
        }
    ]

    def revoke(route: Route) -> None:
        asked.append(route.request.post_data_json)
        there.clear()
        route.fulfill(json={})

    page.route(
        "**/api/volumes/*/shared", lambda route: route.fulfill(json={"parcels": there, "silent": ["s3"]})
    )
    page.route("**/api/volumes/*/do/revoke", revoke)
    page.get_by_role("button", name="Shared by links", exact=True).click()
    expect(page.get_by_text("Photos/one.jpg, 1.0 MB, by here, on hetzner")).to_be_visible(timeout=PATIENCE)
    expect(page.get_by_text("Not asked, as it does not answer: s3.")).to_be_visible()
    no_violations(page)
    page.get_by_role("button", name="Revoke the link to Photos/one.jpg").click()
    page.get_by_role("dialog").get_by_role("button", name="Revoke").click()
    expect(page.get_by_text("Nothing is shared. hybrisfs share FILE")).to_be_visible(timeout=PATIENCE)
    assert asked == [{"which": "3f2a" * 8}]
    page.get_by_role("button", name="Close: Shared by links").click()
    assert opened.complaints == []


def test_versions_and_removed_files_are_restored_by_clicks(opened: Opened, machines: Pair) -> None:
    page, here = opened.page, machines.here
    letter = here.mountpoint / "letter.txt"
    letter.write_text("first")
    here.sync()
    letter.write_text("second")
    (here.mountpoint / "gone.txt").write_text("gone")
    here.sync()
    (here.mountpoint / "gone.txt").unlink()
    here.sync()
    show(page, "files")
    page.locator("table.files").get_by_role("button", name="letter.txt", exact=True).click()
    page.get_by_role("button", name="Versions", exact=True).click()
    page.get_by_role("button", name="Restore the version of").first.click()
    page.get_by_role("dialog").get_by_role("button", name="Restore").click()
    until(lambda: letter.read_text() == "first", "the first version to be back")
    no_violations(page)
    picture(page, "versions")
    page.get_by_role("button", name="Removed files").click()
    page.get_by_role("button", name="Restore gone.txt").click()
    until(lambda: (here.mountpoint / "gone.txt").exists(), "the removed file to be back")
    assert (here.mountpoint / "gone.txt").read_text() == "gone"
    assert opened.complaints == []


def test_a_conflict_is_compared_and_settled_by_clicks(opened: Opened, machines: Pair) -> None:
    page = opened.page
    show(page, "conflicts")
    [conflict] = conflicts_of(machines.here)
    texts = {(machines.here.mountpoint / conflict[name]).read_text() for name in ("of", "path")}
    assert texts == {"milk\nbread\npears\n", "milk\nbread\nplums <script>\n"}
    page.get_by_role("button", name="Compare the versions of notes.txt").click()
    versions = page.locator(".version pre")
    expect(versions).to_have_count(2, timeout=PATIENCE)
    expect(page.locator(".version mark")).to_have_count(2)
    shown = [page.locator(".version mark").nth(number).inner_text().strip() for number in range(2)]
    assert set(shown) == {"pears", "plums <script>"}
    no_violations(page)
    picture(page, "conflict-compared")
    page.get_by_role("button", name="Keep only the other version of notes.txt").click()
    expect(page.get_by_role("dialog")).to_be_visible()
    no_violations(page)
    picture(page, "conflict-confirm")
    page.get_by_role("dialog").get_by_role("button", name="Keep only this").click()
    expect(page.locator(".sentence")).to_have_text("No conflicts.", timeout=PATIENCE)
    assert conflicts_of(machines.here) == []
    assert (machines.here.mountpoint / "notes.txt").read_text().strip().endswith(shown[1])
    assert opened.complaints == []


def test_transfers_are_paused_and_go_on(opened: Opened, machines: Pair) -> None:
    page = opened.page
    show(page, "transfers")
    page.get_by_role("button", name="Pause", exact=True).click()
    expect(page.get_by_role("button", name="Resume transfers").first).to_be_visible(timeout=PATIENCE)
    assert machines.here.status()["transfers"]["held"] == "paused"
    (machines.here.mountpoint / "late.txt").write_text("late")
    waiting = page.get_by_role("region", name="Waiting for the clouds")
    expect(waiting.get_by_text("late.txt")).to_be_visible(timeout=PATIENCE)
    picture(page, "transfers-waiting")
    no_violations(page)
    show(page, "overview")
    expect(page.locator(".hero.wary .meaning")).to_contain_text("paused", timeout=PATIENCE)
    picture(page, "overview-paused")
    page.get_by_role("button", name="Resume transfers").click()
    expect(page.locator(".hero.good .sentence")).to_have_text("All safe.", timeout=PATIENCE)
    assert opened.complaints == []


def test_settings_are_changed_by_a_form(opened: Opened, machines: Pair) -> None:
    page = opened.page
    show(page, "settings")
    room = page.get_by_role("spinbutton", name="Keep at most, in GB")
    expect(room).to_have_value("21.47")
    room.fill("5.5")
    page.get_by_label("Programs that fetch nothing").fill("find\n\n  du ")
    page.get_by_role("region", name="Room on this machine").get_by_role("button", name="Save").click()
    expect(page.get_by_text("takes effect when the daemon is restarted")).to_be_visible(timeout=PATIENCE)
    page.get_by_label("While one is silent").select_option("block")
    page.get_by_role("region", name="Other machines", exact=True).get_by_role("button", name="Save").click()

    def now() -> dict[str, Any]:
        facts = json.loads(machines.here.run("volume", "set", machines.here.volume, "--json"))
        return {name: facts[name] for name in ("cache_bytes", "no_fetch_programs", "stale_reads")}

    wanted = {"cache_bytes": 5_500_000_000, "no_fetch_programs": ["find", "du"], "stale_reads": "block"}
    until(lambda: now() == wanted, "the settings to be kept")
    expect(room).to_have_value("5.5", timeout=PATIENCE)
    picture(page, "settings")
    page.get_by_label("While one is silent").select_option("warn")
    page.get_by_role("region", name="Other machines", exact=True).get_by_role("button", name="Save").click()
    until(lambda: now() == {**wanted, "stale_reads": "warn"}, "the settings to be kept")
    assert opened.complaints == []


def test_a_cloud_that_goes_away_is_named(opened: Opened, machines: Pair) -> None:
    page = opened.page
    cloud = machines.here.clouds[1]
    away = cloud.rename(cloud.with_name("away"))
    try:
        show(page, "clouds")
        page.get_by_role("button", name="Look again").click()
        expect(page.locator(".badge.bad")).to_have_count(1, timeout=PATIENCE)
        show(page, "overview")
        expect(page.locator(".hero.wary .sentence")).to_contain_text(
            f"All safe, though {cloud.name} has not answered since", timeout=PATIENCE
        )
        no_violations(page)
        picture(page, "overview-cloud-down")
        page.set_viewport_size({"width": 360, "height": 740})
        picture(page, "overview-cloud-down-phone")
        page.set_viewport_size({"width": 1280, "height": 900})
    finally:
        away.rename(cloud)
    show(page, "clouds")
    page.get_by_role("button", name="Look again").click()
    expect(page.locator(".badge.bad")).to_have_count(0, timeout=PATIENCE)
    machines.here.run("repair")  # it may have missed heads


def test_clouds_are_verified(opened: Opened) -> None:
    page = opened.page
    show(page, "clouds")
    page.get_by_role("button", name="Verify everything").click()
    expect(page.locator(".outcome .badge")).to_have_text("all right", timeout=PATIENCE)
    assert opened.complaints == []


def test_values_that_no_key_names_are_told_of(opened: Opened, machines: Pair, tmp_path: Path) -> None:
    page, device = opened.page, machines.here
    (tmp_path / "value").write_bytes(b"value")
    device.run("kv", "create", device.volume, "box", "--metadata", "device")
    device.run("kv", "put", device.volume, "box/key", str(tmp_path / "value"))
    named = next(path for cloud in device.clouds for path in cloud.rglob("kv/*/*"))
    named.with_name("ab" * 16).write_bytes(b"of a write that kv.db does not know")
    show(page, "clouds")
    page.get_by_role("button", name="Verify everything").click()
    expect(page.locator(".outcome").first).to_contain_text(
        "all right 1 object of values that no key names", timeout=PATIENCE
    )
    device.run("kv", "clean", device.volume)
    assert not named.with_name("ab" * 16).exists()


def test_keys_are_shown_page_by_page_and_filtered(opened: Opened, machines: Pair, tmp_path: Path) -> None:
    page, device = opened.page, machines.here
    (tmp_path / "value").write_bytes(b"value")
    device.run("kv", "create", device.volume, "shelf")
    puts = [f"--put shelf/{number:03} {tmp_path / 'value'}".split() for number in range(120)]
    device.run("kv", "tput", device.volume, *itertools.chain(*puts))
    device.run("kv", "put", device.volume, "shelf/<b>odd</b>", str(tmp_path / "value"))
    page.set_viewport_size({"width": 1280, "height": 900})
    show(page, "kv")
    page.get_by_role("button", name="Keys of shelf").click(timeout=PATIENCE)
    keys = page.locator("table.files tbody th")
    expect(keys).to_have_count(100, timeout=PATIENCE)
    expect(page.locator("table.files tbody tr").first).to_contain_text("0005 bytes1")
    page.get_by_role("button", name="Next keys").click()
    expect(keys).to_have_count(21, timeout=PATIENCE)
    expect(keys.last).to_have_text("<b>odd</b>")
    expect(page.get_by_role("button", name="Next keys")).to_be_disabled()
    page.get_by_role("button", name="Previous keys").click()
    expect(keys.first).to_have_text("000", timeout=PATIENCE)
    page.get_by_label("Keys that begin with").fill("01")
    page.get_by_label("Keys that begin with").press("Enter")
    expect(keys).to_have_text([f"{number:03}" for number in range(10, 20)], timeout=PATIENCE)
    for scheme in _SCHEMES:
        page.emulate_media(color_scheme=scheme, reduced_motion="reduce")
        no_violations(page)
        picture(page, f"keys-{scheme}")
    page.set_viewport_size({"width": 360, "height": 740})
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
    no_violations(page)
    picture(page, "keys-phone")
    page.set_viewport_size({"width": 1280, "height": 900})
    page.get_by_label("Keys that begin with").fill("nothing")
    page.get_by_role("button", name="Filter").click()
    expect(page.get_by_text("No key begins with nothing.")).to_be_visible(timeout=PATIENCE)
    page.get_by_role("button", name="Close: Keys of shelf").click()
    expect(page.get_by_label("Keys that begin with")).to_have_count(0)
    assert opened.complaints == []


def _telling(name: str, more: dict[str, Any]) -> Callable[[Route], None]:
    """Answers as the daemon does, with one more in a list."""

    def tell(route: Route) -> None:
        headers = {one: value for one, value in route.request.headers.items() if one != "if-none-match"}
        response = route.fetch(headers=headers)
        told = response.json()
        told[name].append(more)
        route.fulfill(response=response, json=told)

    return tell


def test_a_container_in_the_log_is_made_for_all_machines(opened: Opened, machines: Pair) -> None:
    page, here, there = opened.page, machines.here, machines.there
    page.set_viewport_size({"width": 1280, "height": 900})
    show(page, "kv")
    page.get_by_label("Name", exact=True).fill("settings")
    page.get_by_label("Where the list of keys is").fill("log")
    page.get_by_role("button", name="Create").click()
    expect(page.get_by_role("heading", name="In the log of the volume")).to_be_visible(timeout=PATIENCE)
    expect(page.get_by_role("button", name="Forget")).to_have_count(0)
    until(
        lambda: "settings" in there.run("kv", "containers", there.volume), "the other machine to hear of it"
    )
    no_violations(page)
    picture(page, "container-in-log")

    # As a daemon would when both have written a key without knowing of each other.
    several = {"container": "settings", "key": "<b>theme</b>", "values": 2}
    page.route("**/api/volumes/*/conflicts*", _telling("keys", several))
    show(page, "conflicts")
    expect(page.get_by_text("settings/<b>theme</b>: 2 values")).to_be_visible(timeout=PATIENCE)
    for width in (1280, 360):
        page.set_viewport_size({"width": width, "height": 900})
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        no_violations(page)
        picture(page, f"keys-with-several-values-{width}")
    page.unroute_all(behavior="wait")
    assert here.run("kv", "drop", here.volume, "settings")
    assert opened.complaints == []


def test_containers_on_the_clouds_are_shown_and_need_enough_of_these(opened: Opened, machines: Pair) -> None:
    page = opened.page
    page.set_viewport_size({"width": 1280, "height": 900})
    # As a daemon would that has four clouds.
    there = {
        "metadata": "clouds:powerstore/0,1,2,3/1,1",
        "containers": ["locks"],
        "trouble": "",
        "where": "clouds (powerstore, 4 clouds, 1 may fail or lie)",
    }
    page.route("**/api/volumes/*/containers", _telling("places", there))
    show(page, "kv")
    expect(page.get_by_role("heading", name="On the clouds")).to_be_visible(timeout=PATIENCE)
    expect(page.get_by_role("button", name="Keys of locks")).to_be_visible()
    expect(page.get_by_text("without a server: clouds (powerstore, 4 clouds,")).to_be_visible()
    for width in (1280, 360):
        page.set_viewport_size({"width": width, "height": 900})
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        no_violations(page)
        picture(page, f"containers-on-clouds-{width}")
    page.set_viewport_size({"width": 1280, "height": 900})
    page.get_by_label("Name", exact=True).fill("more-locks")
    page.get_by_label("Where the list of keys is").fill("clouds")
    page.get_by_role("button", name="Create").click()
    expect(page.get_by_text("keys on the clouds need 4 clouds")).to_be_visible(timeout=PATIENCE)
    for field in ("Name", "Where the list of keys is"):
        page.get_by_label(field, exact=field == "Name").fill("")
    page.unroute_all(behavior="wait")
    [refusal] = opened.complaints
    assert "status of 400" in refusal
    opened.complaints.clear()


def test_containers_are_made_and_services_forgotten(opened: Opened, machines: Pair) -> None:
    page = opened.page
    # As a daemon would whose volume has used an etcd that does not answer now.
    silent = {
        "metadata": _ETCD,
        "where": _ETCD,
        "containers": [],
        "trouble": "the etcd does not answer: timed out",
    }
    page.route("**/api/volumes/*/containers", _telling("places", silent))
    show(page, "kv")
    name = f"drawer <i> {'x' * 200}"
    page.get_by_label("Name", exact=True).fill(name)
    page.get_by_role("button", name="Create").click()
    expect(page.get_by_role("button", name=f"Keys of {name}")).to_be_visible(timeout=PATIENCE)
    assert name in machines.here.run("kv", "containers", machines.here.volume)
    expect(page.get_by_label("Name", exact=True)).to_have_value("")
    page.get_by_role("button", name=f"Keys of {name}").click()
    expect(page.get_by_text("This container has no keys.")).to_be_visible(timeout=PATIENCE)
    expect(
        page.get_by_text("Its containers are not known: the etcd does not answer: timed out.")
    ).to_be_visible()
    for width in (1280, 360):
        page.set_viewport_size({"width": width, "height": 900})
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        no_violations(page)
        picture(page, f"silent-etcd-{width}")
    page.set_viewport_size({"width": 1280, "height": 900})
    page.get_by_role("button", name=f"Forget {_ETCD}").click()
    page.get_by_role("dialog").get_by_role("button", name="Forget").click()
    expect(page.locator(".toast.bad").last).to_contain_text(f"no service {_ETCD!r}.", timeout=PATIENCE)
    page.unroute_all(behavior="wait")
    [refusal] = opened.complaints  # the daemon knows no such service
    assert "status of 400" in refusal
    opened.complaints.clear()


def test_the_link_opens_one_page_only(opened: Opened, _browser: Browser, _served: str) -> None:
    context: BrowserContext = _browser.new_context()
    page = context.new_page()
    page.goto(_served)
    expect(page.get_by_role("alert")).to_contain_text("used already", timeout=PATIENCE)
    context.close()
    opened.page.reload()  # the first page keeps its token
    show(opened.page, "overview")
    expect(opened.page.locator(".sentence")).not_to_be_empty(timeout=PATIENCE)


def test_the_page_says_when_its_server_has_ended(_browser: Browser, machines: Pair) -> None:
    context = _browser.new_context()
    page = context.new_page()
    with dashboard(machines.here) as link:
        page.goto(link)
        expect(page.locator(".sentence")).not_to_be_empty(timeout=PATIENCE)
    expect(page.get_by_role("alert")).to_contain_text("has ended", timeout=PATIENCE)
    context.close()


def test_the_link_leads_to_a_file_and_its_versions(_browser: Browser, machines: Pair) -> None:
    context = _browser.new_context()
    page = context.new_page()
    with dashboard(machines.here, str(machines.here.mountpoint / "Photos" / "one.jpg")) as link:
        page.goto(link)
        expect(page.get_by_role("heading", name="Versions of one.jpg")).to_be_visible(timeout=PATIENCE)
        expect(page.locator(".crumbs [aria-current]")).to_have_text("Photos", timeout=PATIENCE)
        assert "code" not in page.evaluate("location.hash")
    with dashboard(machines.here, "--section", "conflicts") as link:
        page.goto(link)
        expect(page.locator("nav a[aria-current=page]")).to_have_attribute(
            "href", "#conflicts", timeout=PATIENCE
        )
    context.close()


def test_nobody_but_this_machine_is_served(machines: Pair) -> None:
    with dashboard(machines.here) as link:
        port = link.partition(":")[2].split(":")[1].split("/")[0]
        listening = subprocess.run(
            ["ss", "-Hltn", f"sport = :{port}"], capture_output=True, text=True, check=True
        ).stdout.split()
    assert listening[3] == f"127.0.0.1:{port}"
