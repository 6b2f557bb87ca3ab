"""The pages of the documentation: complete, linked, and in step with the code."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from backends.registry import drivers
from docs.formats import formats_page
from tests.system.device import REPOSITORY

_DOCS = REPOSITORY / "docs"
_CODE = ("hybrisfs", "cli", "sync", "backends")


def test_formats_are_those_of_the_code() -> None:
    assert (_DOCS / "formats.md").read_text() == formats_page(), "run python -m docs.formats"


def test_the_readme_lists_the_kinds_of_clouds() -> None:
    rows = [f"| `{driver.kind.form}` | {driver.kind.what} |" for driver in drivers()]
    assert "\n".join(["|---|---|", *rows, ""]) in (REPOSITORY / "README.md").read_text()


def test_every_page_is_on_the_first_one() -> None:
    first = (_DOCS / "README.md").read_text()
    for page in _DOCS.glob("*.md"):
        assert page.name == "README.md" or f"({page.name})" in first, f"{page.name} is not linked"


def test_the_site_can_be_made_and_all_links_lead_somewhere(tmp_path: Path) -> None:
    quietly = ["-q", "-W", "--keep-going", "-d", str(tmp_path / "trees")]
    done = subprocess.run(
        [sys.executable, "-m", "sphinx", *quietly, "-c", "docs", ".", tmp_path / "site"],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert (tmp_path / "site" / "docs" / "README.html").exists()


def test_messages_that_are_explained_exist() -> None:
    """What the page of troubleshooting quotes is said by the program, or by the system (a capital letter)."""
    sources = (path for folder in _CODE for path in (REPOSITORY / folder).rglob("*.py"))
    said = "".join(re.sub(r'"\s*\n?\s*f?"', "", path.read_text()) for path in sources)
    for title in re.findall(r"^## ([a-z].*)$", (_DOCS / "troubleshooting.md").read_text(), re.MULTILINE):
        message = re.sub(r"^a (device|cloud) (has|is) ", "", title.split(", or ")[0])
        assert message in said, f"nothing says {message!r}"
