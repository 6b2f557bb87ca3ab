"""What software centres and menus read about the program: its form, and that it agrees with the program."""

from __future__ import annotations

import re
import subprocess
from configparser import ConfigParser
from xml.etree import ElementTree

import pytest

from hybrisfs import VERSION
from tests.system.device import REPOSITORY
from tests.system.shell import tool

_DESKTOP = REPOSITORY / "packaging" / "desktop"
[_METAINFO] = _DESKTOP.glob("*.metainfo.xml")


@pytest.fixture
def component() -> ElementTree.Element:
    return ElementTree.parse(_METAINFO).getroot()


@pytest.fixture
def entry() -> dict[str, str]:
    parser = ConfigParser(interpolation=None)
    parser.optionxform = str  # type: ignore[assignment,method-assign]  # as the type says of a method
    parser.read(_DESKTOP / "hybrisfs.desktop")
    return dict(parser["Desktop Entry"])


def test_the_description_is_of_the_entry_in_the_menu(
    component: ElementTree.Element, entry: dict[str, str]
) -> None:
    assert component.get("type") == "desktop-application"
    assert _METAINFO.name == f"{component.findtext('id')}.metainfo.xml"
    launched = component.findtext("launchable")
    assert launched is not None
    assert (_DESKTOP / launched).exists()
    assert component.findtext("name") == entry["Name"]
    assert component.findtext("provides/binary") == entry["Exec"].split()[0]
    categories = [one.text for one in component.findall("categories/category")]
    assert categories == entry["Categories"].strip(";").split(";")
    assert (_DESKTOP / f"{entry['Icon']}.svg").exists()


def test_it_names_the_newest_release(component: ElementTree.Element) -> None:
    dated = re.findall(r"^## (\d[\d.]*) - (\S+)$", (REPOSITORY / "CHANGELOG.md").read_text(), re.MULTILINE)
    named = [(one.get("version"), one.get("date")) for one in component.findall("releases/release")]
    assert named == dated
    assert named[0][0] == VERSION


def test_its_texts_are_as_software_centres_want_them(component: ElementTree.Element) -> None:
    summary = component.findtext("summary")
    assert summary is not None
    assert not summary.endswith(".")
    assert len(summary) <= 90
    assert {one.tag for one in component.findall("description/*")} == {"p", "ul"}
    assert component.findtext("project_license") == "GPL-3.0-or-later"


def test_appstream_accepts_it() -> None:
    done = subprocess.run(
        [tool("appstreamcli"), "validate", "--no-net", _METAINFO], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stdout
