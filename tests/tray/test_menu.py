"""What the icon shows of what the daemon says."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from hybrisfs.api.status import PanelFile, PanelVolume
from tray.menu import HIDE, Entry, Look, look, read_panels

SAFE = PanelVolume(
    name="photos",
    state="ok",
    text="everything is safe on the clouds",
    pending_files=0,
    pending_bytes=0,
    conflicts=0,
    mountpoint="/home/ada/HybrisFS",
    paused=False,
)


def shown(*volumes: PanelVolume) -> Look:
    return look(PanelFile(1, list(volumes)), has_volumes=True)


def commands(found: Look) -> dict[str, tuple[str, ...]]:
    return {one.label: one.command for one in found.entries if one.command}


def test_all_is_well() -> None:
    found = shown(SAFE)
    assert (found.icon, found.status) == ("ok", "Active")
    assert found.text == "photos: everything is safe on the clouds"
    assert found.entries[0] == Entry("photos: everything is safe on the clouds")
    assert commands(found) == {
        "Open the folder": ("xdg-open", "/home/ada/HybrisFS"),
        "Open the page": ("hybrisfs", "ui", "--volume", "photos"),
        "Pause transfers for an hour": ("hybrisfs", "pause", "photos", "--for", "1h"),
        "Pause transfers": ("hybrisfs", "pause", "photos"),
        "Hide this icon": HIDE,
    }


def test_a_paused_volume_can_be_resumed() -> None:
    look = shown(replace(SAFE, paused=True))
    assert look.text.endswith("; transfers are paused")
    found = commands(look)
    assert found["Resume transfers"] == ("hybrisfs", "resume", "photos")
    assert not any("Pause" in one for one in found)


def test_what_is_not_mounted_cannot_be_opened() -> None:
    assert "Open the folder" not in commands(shown(replace(SAFE, mountpoint=None)))


def test_conflicts_are_a_click_away() -> None:
    found = shown(replace(SAFE, state="attention", conflicts=2))
    assert commands(found)["Conflicts ..."][-2:] == ("--section", "conflicts")
    assert found.status == "NeedsAttention"


@pytest.mark.parametrize(
    ("states", "worst", "status"),
    [
        (("ok", "busy", "ok"), "busy", "Active"),
        (("attention", "busy", "ok"), "attention", "NeedsAttention"),
        (("attention", "busy", "trouble"), "trouble", "NeedsAttention"),
    ],
)
def test_the_worst_volume_is_shown_and_named_first(states: Any, worst: str, status: str) -> None:
    volumes = [replace(SAFE, name=f"v{at}", state=state) for at, state in enumerate(states)]
    found = shown(*volumes)
    assert (found.icon, found.status) == (worst, status)
    first = f"v{states.index(worst)}"
    assert found.text.startswith(f"{first}: ")
    assert found.command == ("hybrisfs", "ui", "--volume", first)


def test_without_a_daemon_nothing_is_called_safe() -> None:
    found = look(None, has_volumes=True)
    assert (found.icon, found.status) == ("stopped", "NeedsAttention")
    assert "does not run" in found.text
    assert commands(found)["Start it"] == ("hybrisfs", "status")


@pytest.mark.parametrize("panels", [None, PanelFile(1, [])])
def test_without_a_volume_there_is_no_icon(panels: PanelFile | None) -> None:
    assert look(panels, has_volumes=False).status == "Passive"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        '{"version": 2, "volumes": []}',
        '{"version": 1}',
        '{"version": 1, "volumes": [1]}',
        "[" * 10**5,
    ],
)
def test_what_is_not_understood_counts_as_no_daemon(tmp_path: Path, text: str) -> None:
    (tmp_path / "status.json").write_text(text)
    assert read_panels(tmp_path / "status.json") is None


def test_the_file_is_read(tmp_path: Path) -> None:
    assert read_panels(tmp_path / "status.json") is None
    fields = {one: getattr(SAFE, one) for one in SAFE.__struct_fields__}
    (tmp_path / "status.json").write_text(json.dumps({"version": 1, "volumes": [{**fields, "new": 1}]}))
    assert read_panels(tmp_path / "status.json") == PanelFile(1, [SAFE])
