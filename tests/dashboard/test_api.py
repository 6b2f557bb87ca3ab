"""What the page is told, and what it may have done."""

from __future__ import annotations

import json
import os
from pathlib import PurePath
from typing import Any

import pytest

from dashboard.actions import ACTIONS, ON_MACHINE
from dashboard.server import Dashboard
from hybrisfs.api.decisions import HeldFile
from hybrisfs.daemon.service import Daemon
from tests.daemon.fake import DRAWN, KIT, FakeVolume, FakeVolumes
from tests.dashboard.conftest import Page


@pytest.fixture
def volume(page: Page, volumes: FakeVolumes) -> FakeVolume:
    page.facts("/api/volumes")
    return volumes.opened["photos"]


def test_the_volumes_and_their_verdicts(page: Page, volume: FakeVolume) -> None:
    [facts] = page.facts("/api/volumes")["volumes"]
    assert facts["name"] == "photos"
    assert facts["verdict"]["level"] == "safe"
    volume.pending_files, volume.pending_bytes = 3, 1000
    assert page.facts("/api/volumes")["volumes"][0]["verdict"]["level"] == "pending"


def test_a_volume_that_cannot_be_used_is_shown_as_such(page: Page, volume: FakeVolume) -> None:
    volume.failure = OSError("no disk")
    [facts] = page.facts("/api/volumes")["volumes"]
    assert facts["verdict"] == {"level": "unusable"}
    assert "no disk" in facts["last_error"]


def test_clouds_are_asked_only_when_that_is_wanted(page: Page, volume: FakeVolume) -> None:
    page.facts("/api/volumes")
    assert volume.looks == 0
    page.facts("/api/volumes?look=1")
    assert volume.looks == 1


def test_what_has_not_changed_is_not_sent_again(page: Page, volume: FakeVolume) -> None:
    tag = page.get("/api/volumes").headers["etag"]
    same = page.get("/api/volumes", **{"If-None-Match": tag})
    assert (same.status_code, same.content) == (304, b"")
    volume.pending_files = 1
    assert page.get("/api/volumes", **{"If-None-Match": tag}).status_code == 200


@pytest.mark.parametrize(
    "what",
    [
        "traffic",
        "history?span=hour",
        "history?span=day",
        "cost",
        "settings",
        "pending",
        "clouds",
        "recovery",
        "deletions",
        "conflicts",
        "events",
    ],
)
def test_facts_of_a_volume(page: Page, what: str) -> None:
    assert page.facts(f"/api/volumes/photos/{what}")


@pytest.mark.parametrize(
    ("url", "status"),
    [
        ("/api/volumes/unknown/traffic", 404),
        ("/api/volumes/..%2f..%2fetc/traffic", 404),
        ("/api/volumes/photos/secrets", 400),
        ("/api/volumes/photos/history?span=year", 400),
        ("/api/volumes/photos/conflicts?first=-1", 400),
        ("/api/volumes/photos/conflicts?first=x", 400),
        ("/api/volumes/photos/conflicts?first=99999999999999999999", 400),
        ("/api/nothing", 404),
    ],
)
def test_what_is_not_known_is_refused(page: Page, url: str, status: int) -> None:
    assert page.get(url).status_code == status


def test_no_secret_is_told(page: Page, volume: FakeVolume) -> None:
    volume.recovery.make("correct horse battery")
    kits = page.facts("/api/volumes/photos/recovery")["kits"]
    assert [sorted(kit) for kit in kits] == [["clouds", "complete", "created", "kit", "used"]]
    assert kits[0]["kit"] == KIT[:8]
    assert all(sorted(one) == ["name", "state"] for one in kits[0]["clouds"])
    takes = [
        name
        for name, action in (*ACTIONS.items(), *ON_MACHINE.items())
        if {"secrets", "passphrase", "with_credentials"}.intersection(action.arguments)
    ]
    assert takes == ["make-kit", "place-try"]


def test_a_kit_is_made_and_its_passphrase_told_once(page: Page, volume: FakeVolume) -> None:
    made = page.post("/api/volumes/photos/do/make-kit", {}).json()
    assert (made["kit"], made["passphrase"], made["pages"]["text"]) == (KIT, DRAWN, "page")
    assert volume.recovery.given == [None]
    for url in ("recovery", "events", "clouds"):
        assert DRAWN not in page.get(f"/api/volumes/photos/{url}").text
    assert DRAWN not in page.get("/api/jobs").text + page.get("/api/volumes").text
    chosen = "seven quiet foxes under the bridge"
    answer = page.post("/api/volumes/photos/do/make-kit", {"passphrase": chosen})
    assert (answer.status_code, volume.recovery.given[-1]) == (200, chosen)
    assert chosen not in answer.text
    assert page.post("/api/volumes/photos/do/remove-kit", {"kit": KIT[:8]}).json()["kit"] == KIT


def test_settings_are_told_and_changed(page: Page, volume: FakeVolume) -> None:
    url = "/api/volumes/photos/settings"
    assert page.facts(url)["cache_bytes"] == volume.settings.config.cache_bytes
    answer = page.post("/api/volumes/photos/do/settings", {"cache_bytes": 10**9, "link_addresses": ["nas:1"]})
    assert answer.status_code == 200
    assert (page.facts(url)["cache_bytes"], page.facts(url)["link_addresses"]) == (10**9, ["nas:1"])
    refused: list[dict[str, Any]] = [
        {"cache_bytes": 1},
        {"cache_bytes": "x"},
        {"clouds": []},
        {"name": "other"},
    ]
    for wrong in refused:
        assert page.post("/api/volumes/photos/do/settings", wrong).status_code == 400
    assert page.facts(url)["cache_bytes"] == 10**9


def test_conflicts_come_in_pages(page: Page, volume: FakeVolume) -> None:
    volume.conflicting = [{"path": f"{number:04}", "of": "x"} for number in range(250)]
    first = page.facts("/api/volumes/photos/conflicts")
    assert (len(first["conflicts"]), first["total"]) == (100, 250)
    last = page.facts("/api/volumes/photos/conflicts?first=200")
    assert [one["path"] for one in last["conflicts"]] == [f"{number:04}" for number in range(200, 250)]


def test_folders_come_in_pages_whatever_the_names(page: Page, volume: FakeVolume) -> None:
    odd = os.fsdecode(b"\xff<script>alert(1)</script>")
    volume.browsing.names = [f"file-{number:04}" for number in range(150)] + [odd]
    url = "/api/volumes/photos/folder"
    first = page.post(url, {"path": ""}).json()
    assert (len(first["entries"]), first["more"]) == (100, True)
    answer = page.post(url, {"path": "", "after": first["entries"][-1]["name"]})
    assert answer.content.isascii()
    second = json.loads(answer.content)
    assert (len(second["entries"]), second["more"]) == (51, False)
    assert second["entries"][-1]["name"] == odd
    # Such a name comes back as it went.
    echoed = page.client.post(
        url,
        content=json.dumps({"path": odd}).encode("ascii"),
        headers={**page.headers, "Origin": "http://127.0.0.1:45678", "Content-Type": "application/json"},
    )
    assert json.loads(echoed.content)["path"] == odd


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"hello", "hello"),
        (b"", ""),
        (b"a\0b", None),
        (b"\xff\xfe", None),
        ("é" * 40_000, "é" * 32_768),
        (b"x" + "é".encode() * 40_000, "x" + "é" * 32_767),
    ],
)
def test_previews(page: Page, volume: FakeVolume, data: bytes | str, text: str | None) -> None:
    volume.browsing.data = data.encode() if isinstance(data, str) else data
    facts = page.post("/api/volumes/photos/preview", {"path": "file"}).json()
    assert facts["text"] == text
    assert facts["size"] == len(volume.browsing.data)
    assert facts["whole"] is (facts["size"] <= 65_536)


@pytest.mark.parametrize("where", ["folder", "preview", "do/pin", "do/evict"])
@pytest.mark.parametrize("path", ["../x", "a/../../x", 7, ["a"], "a\0b"])
def test_nothing_outside_the_volume_is_reached(
    page: Page, volume: FakeVolume, where: str, path: object
) -> None:
    volume.mountpoint = PurePath("/mnt/photos")  # type: ignore[assignment]
    answer = page.post(f"/api/volumes/photos/{where}", {"path": path})
    assert answer.status_code in (400, 409), answer.text
    assert volume.content.pinned == volume.content.evicted == []


def test_pausing_limiting_and_going_on(page: Page, volume: FakeVolume) -> None:
    do = "/api/volumes/photos/do"
    assert page.post(f"{do}/pause", {"seconds": 3600}).json()["held"] == "paused"
    assert page.post(f"{do}/resume", {}).json()["held"] is None
    assert page.post(f"{do}/limit", {"up": "10M", "down": "off", "on_metered": "ignore"}).status_code == 200
    assert volume.transfers.told == [("pause", 3600.0), ("10M", "off", "ignore")]
    wrong = page.post(f"{do}/limit", {"up": "nonsense"})
    assert (wrong.status_code, wrong.json()["error"]) == (400, "'nonsense' is not a rate")


def test_files_are_kept_and_let_go(page: Page, volume: FakeVolume, tmp_path: Any, served: Daemon) -> None:
    unmounted = page.post("/api/volumes/photos/do/pin", {"path": "a/b"})
    assert unmounted.status_code == 409
    assert "hybrisfs mount" in unmounted.json()["advice"]
    served.handle("mount", {"name": "photos", "directory": str(tmp_path / "mnt")}, lambda _: None)
    assert page.post("/api/volumes/photos/do/pin", {"path": "a/b"}).status_code == 200
    assert volume.content.pinned == [PurePath("a/b")]
    assert page.post("/api/volumes/photos/do/unpin", {"path": "a/b"}).status_code == 200
    assert page.post("/api/volumes/photos/do/evict", {"path": "/"}).status_code == 200
    assert (volume.content.pinned, volume.content.evicted) == ([], [PurePath()])


def test_what_is_shared_is_shown_without_links_and_revoked(page: Page, volume: FakeVolume) -> None:
    made = [volume.parcels.make(PurePath(name), 2, None, lambda done, total: None) for name in ("a", "b")]
    volume.parcels.silent = ["s3-2"]
    answer = page.get("/api/volumes/photos/shared")
    assert [(one["path"], one["whole"]) for one in answer.json()["parcels"]] == [("a", True), ("b", True)]
    assert answer.json()["silent"] == ["s3-2"]
    assert not any(one.link in answer.text for one in made)
    assert page.post("/api/volumes/photos/do/revoke", {"which": made[0].id}).status_code == 200
    assert volume.parcels.made == [made[1]]
    assert page.post("/api/volumes/photos/do/revoke", {"which": "a"}).status_code == 400


def test_machines_are_removed_and_kept(page: Page, volume: FakeVolume) -> None:
    do = "/api/volumes/photos/do"
    assert page.post(f"{do}/admitted", {"device": "laptop"}).json()["admitted"] == []
    removed = page.post(f"{do}/remove-device", {"device": "laptop", "with_admitted": True})
    assert (removed.json()["device"], removed.json()["final"]) == ("laptop", True)
    assert page.post(f"{do}/keep-device", {"device": "laptop"}).json()["kept"]
    with_kit = page.post(f"{do}/remove-device", {"device": "laptop", "passphrase": "x"})
    assert with_kit.status_code == 400


def test_conflicts_are_settled(page: Page, volume: FakeVolume) -> None:
    volume.conflicting = [{"path": "a (conflict)", "of": "a"}]
    assert page.post("/api/volumes/photos/do/keep", {"path": "nothing"}).status_code == 400
    assert page.post("/api/volumes/photos/do/keep", {"path": "a (conflict)"}).status_code == 200


def test_versions_in_conflict_are_merged_after_a_look(page: Page, volume: FakeVolume) -> None:
    url = "/api/volumes/photos/merge"
    volume.merging.versions = {"a": b"one\nTWO\nthree\nfour\n", "a (laptop)": b"one\ntwo\nthree\nFOUR\n"}
    volume.merging.base = b"one\ntwo\nthree\nfour\n"
    shown = page.post(url, {"path": "a"}).json()
    assert (shown["merged"], shown["versions"]) == (True, ["a", "a (laptop)"])
    assert [one for one in shown["difference"] if one[0] in "+-"] == ["-four", "+FOUR"]
    assert volume.merging.settled == []
    for mark in ("00", 7):
        assert page.post(url, {"path": "a", "mark": mark}).status_code == 400
    assert page.post(url, {"path": "a", "mark": shown["mark"]}).status_code == 200
    assert volume.merging.settled == [("a", b"one\nTWO\nthree\nFOUR\n")]


def test_why_versions_cannot_be_merged_is_told(page: Page, volume: FakeVolume) -> None:
    url = "/api/volumes/photos/merge"
    volume.merging.versions = {"a": b"one\n", "a (laptop)": b"two\n"}
    shown = page.post(url, {"path": "a"}).json()
    assert (shown["merged"], shown["why"]) == (False, "the version that they come from is not known")
    assert page.post(url, {"path": "a", "mark": shown["mark"]}).status_code == 400
    assert page.post(url, {"path": "nothing"}).status_code == 400
    assert page.post(url, {"path": "/etc/passwd"}).status_code == 400
    assert volume.merging.settled == []


def test_of_a_large_change_the_beginning_is_shown(page: Page, volume: FakeVolume) -> None:
    url = "/api/volumes/photos/merge"
    volume.merging.base = b"x\n"
    volume.merging.versions = {"a": b"x\n", "a (laptop)": b"x\n" + b"y\n" * 1000}
    shown = page.post(url, {"path": "a"}).json()
    assert (len(shown["difference"]), shown["more"]) == (500, True)
    volume.merging.versions["a (laptop)"] = b"x\n" + (b"y" * 5000 + b"\n") * 300
    shown = page.post(url, {"path": "a"}).json()
    assert (shown["merged"], shown["difference"], shown["more"]) == (True, None, False)


def test_the_past_is_shown_and_restored(page: Page, volume: FakeVolume) -> None:
    url = "/api/volumes/photos"
    versions = page.post(f"{url}/versions", {"path": "notes.txt"}).json()["versions"]
    assert [one["version"] for one in versions] == [0, 1]
    assert page.post(f"{url}/versions", {"path": "nothing"}).status_code == 409
    assert [one["path"] for one in page.post(f"{url}/removed", {"path": ""}).json()["removed"]] == ["old.txt"]
    for wanted in ({"since": versions[1]["since"]}, {"at": "2026-11-20"}, {}):
        assert page.post(f"{url}/restore", {"path": "notes.txt", **wanted}).json()["files"] == 1
    assert volume.versions.restored == [
        ("notes.txt", None, 1, None),
        ("notes.txt", "2026-11-20", None, None),
        ("notes.txt", None, None, None),
    ]
    gone = page.post(f"{url}/restore", {"path": "notes.txt", "since": 1.0})
    assert (gone.status_code, gone.json()["error"]) == (400, "this version is not kept any more")


def test_a_folder_is_shown_as_it_was(page: Page, volume: FakeVolume) -> None:
    [at] = page.facts("/api/volumes/photos/moments")["moments"]
    url = "/api/volumes/photos/folder"
    then = page.post(url, {"path": "", "at": at}).json()
    assert ([one["name"] for one in then["entries"]], then["more"]) == (["a.txt", "b", "d.txt"], False)
    assert [
        one["name"] for one in page.post(url, {"path": "", "at": at, "after": "b"}).json()["entries"]
    ] == ["d.txt"]
    assert page.post(url, {"path": "", "at": 7}).status_code == 400


def test_the_volume_is_restored_to_a_moment_by_its_name(page: Page, volume: FakeVolume) -> None:
    url, wanted = "/api/volumes/photos", {"path": "", "at": "2023-11-14T00:00Z"}
    preview = page.post(f"{url}/restore-preview", wanted).json()
    assert (preview["made"], preview["changed"], preview["left"], preview["same"]) == (1, 1, 1, 12)
    assert page.post(f"{url}/restore-preview", {"path": ""}).status_code == 400
    for confirm in ({}, {"confirm": "music"}, {"confirm": None}):
        for path in ("", ".", "./.", ".//"):
            answer = page.post(f"{url}/restore", {**wanted, **confirm, "path": path})
            assert answer.status_code == 400
    assert volume.versions.restored == []
    assert page.post(f"{url}/restore", {**wanted, "confirm": "photos"}).json()["files"] == 1
    assert volume.versions.restored == [("", "2023-11-14T00:00Z", None, None)]


def test_what_is_pinned_is_listed(page: Page, volume: FakeVolume) -> None:
    volume.content.pinned = [PurePath("a/b")]
    assert [one["inside"] for one in page.facts("/api/volumes/photos/pins")["pins"]] == ["a/b"]


@pytest.mark.parametrize("where", ["versions", "removed", "restore", "restore-preview"])
@pytest.mark.parametrize("path", ["/etc/passwd", 7, None])
def test_no_other_past_is_reached(page: Page, volume: FakeVolume, where: str, path: object) -> None:
    assert page.post(f"/api/volumes/photos/{where}", {"path": path}).status_code == 400
    assert volume.versions.restored == []


def test_deletions_that_wait_are_decided_on(page: Page, volume: FakeVolume) -> None:
    volume.waiting_deletions = [{"id": "abc", "device": "laptop", "time": 1.0, "names": 3, "of": 4}]
    [one] = page.facts("/api/volumes/photos/deletions")["deletions"]
    assert one == {**volume.waiting_deletions[0], "overwrites": False, "examined": True}
    volume.waiting_files = [
        HeldFile(path=f"{number}", change="deleted", before=1, now=None) for number in range(30)
    ]
    held = page.facts("/api/volumes/photos/held?id=abc")
    assert (len(held["files"]), held["count"]) == (20, 30)
    assert page.post("/api/volumes/photos/do/undo-deletion", {"id": "abc"}).status_code == 200
    assert page.post("/api/volumes/photos/do/accept-deletion", {"id": "abc"}).status_code == 200
    assert volume.decisions == [("abc", True), ("abc", False)]


@pytest.mark.parametrize(
    "action", ["recovery make", "cloud remove", "device invite", "fsck", "nothing", "volume set"]
)
def test_what_the_page_cannot_do(page: Page, action: str) -> None:
    answer = page.post(f"/api/volumes/photos/do/{action}", {})
    assert answer.status_code == 400
    assert "cannot do" in answer.json()["error"]


def test_no_further_argument_reaches_the_daemon(page: Page, volume: FakeVolume) -> None:
    for body in ({"name": "music"}, {"seconds": 1, "extra": 2}):
        assert page.post("/api/volumes/photos/do/pause", body).status_code == 400
    assert volume.transfers.told == []


@pytest.mark.parametrize(
    "content", [b"[]", b"7", b"{", b"\xff", b"[" * 60_000, b'{"a":"' + b"x" * 70_000 + b'"}', b'{"a":NaN']
)
def test_nonsense_is_refused(page: Page, content: bytes) -> None:
    headers = {**page.headers, "Origin": "http://127.0.0.1:45678", "Content-Type": "application/json"}
    answer = page.client.post("/api/volumes/photos/do/pause", content=content, headers=headers)
    assert answer.status_code == 400
    assert answer.json()["error"].startswith("the request is")


def test_a_daemon_that_is_gone_is_said_so(dashboard: Dashboard, home: object) -> None:
    page = Page(dashboard).begin()
    answer = page.get("/api/volumes/photos/traffic")
    assert answer.status_code == 503
    assert "not running" in answer.json()["error"]
