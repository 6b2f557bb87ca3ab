"""The pages of the documentation: complete, linked, and in step with the code."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from backends.registry import drivers
from docs.evidence import PAGES, evidence_page, with_tables
from docs.formats import formats_page
from docs.reference import reference_page
from tests.browser import chromium
from tests.docs.pages import command_of, hybrisfs_words, shown_on
from tests.page_checks import is_sound, no_violations, overheard
from tests.system.device import REPOSITORY

_DOCS = REPOSITORY / "docs"
_CODE = ("hybrisfs", "cli", "sync", "backends")
_STANDARD = ("wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa")  # the theme has customs of its own


def test_formats_are_those_of_the_code() -> None:
    assert (_DOCS / "formats.md").read_text() == formats_page(), "run python -m docs.formats"


def test_figures_are_those_of_the_results() -> None:
    assert (_DOCS / "evidence.md").read_text() == evidence_page(), "run python -m docs.evidence"
    pages = {path.name: path.read_text() for path in PAGES}
    assert pages == {name: with_tables(page) for name, page in pages.items()}, "run python -m docs.evidence"
    counted = {name: (page.count("<!-- table "), page.count("<!-- end -->")) for name, page in pages.items()}
    assert counted == {"performance.md": (6, 6), "scale.md": (7, 7), "key-value-metadata.md": (1, 1)}
    results = (REPOSITORY / "benchmarks" / "results" / "local.md").read_text()
    measured = {tuple(row.split(" | ")[1:5]) for row in results.splitlines()}
    section = (REPOSITORY / "README.md").read_text().partition("## How fast it is")[2].partition("\n## ")[0]
    rows = [line for line in section.splitlines() if line.startswith("| ") and not line.startswith("| |")]
    assert len(rows) == 10
    for row in rows:
        assert tuple(row.removesuffix(" |").split(" | ")[1:5]) in measured, row


def test_the_reference_is_that_of_the_commands() -> None:
    assert (_DOCS / "reference.md").read_text() == reference_page(), "run python -m docs.reference"


@pytest.mark.parametrize("page", sorted(_DOCS.glob("*.md")), ids=lambda page: page.name)
def test_commands_on_the_pages_and_their_options_exist(page: Path) -> None:
    for one in shown_on(page):
        if hybrisfs_words(one.text):
            command, context, rest = command_of(one.text)
            known = {
                name for each in command.get_params(context) for name in (*each.opts, *each.secondary_opts)
            }
            until = next(
                (at for at, word in enumerate(rest) if word in ("&&", "||", "|", ";", "--")), len(rest)
            )
            for word in rest[:until]:
                if re.match(r"--?[a-z]", word):
                    assert word.partition("=")[0] in known, f"{page.name}: {one.text} has no {word}"


def test_the_readme_lists_the_kinds_of_clouds() -> None:
    rows = [f"| `{driver.kind.form}` | {driver.kind.what} |" for driver in drivers()]
    assert "\n".join(["|---|---|", *rows, ""]) in (REPOSITORY / "README.md").read_text()


def test_every_page_is_on_the_first_one() -> None:
    first = (_DOCS / "README.md").read_text()
    for page in _DOCS.glob("*.md"):
        assert page.name == "README.md" or f"({page.name})" in first, f"{page.name} is not linked"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site; its links lead somewhere, or Sphinx would say so."""
    folder = tmp_path_factory.mktemp("site")
    quietly = ["-q", "-W", "--keep-going", "-d", str(folder / "trees")]
    done = subprocess.run(
        [sys.executable, "-m", "sphinx", *quietly, "-c", "docs", ".", folder / "site"],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return folder / "site"


def test_the_site_can_be_made(site: Path) -> None:
    assert (site / "docs" / "README.html").exists()
    assert 'href="docs/README.html"' in (site / "index.html").read_text()


def test_pages_of_the_site_are_as_every_page_must_be(site: Path) -> None:
    with chromium() as browser:
        page = browser.new_page(reduced_motion="reduce", color_scheme="light")
        complaints = overheard(page, site.as_uri())
        for name in ("docs/README", "docs/tour"):
            for width in (1280, 390):
                page.set_viewport_size({"width": width, "height": 844})
                page.emulate_media(color_scheme="light", reduced_motion="reduce")
                page.goto((site / f"{name}.html").as_uri())
                is_sound(page, _STANDARD)
                assert page.evaluate("document.documentElement.scrollWidth") <= width
                page.emulate_media(color_scheme="dark", reduced_motion="reduce")
                no_violations(page, _STANDARD)
        assert complaints == []


def test_messages_that_are_explained_exist() -> None:
    """What the page of troubleshooting quotes is said by the program, or by the system (a capital letter)."""
    sources = (path for folder in _CODE for path in (REPOSITORY / folder).rglob("*.py"))
    said = "".join(re.sub(r'"\s*\n?\s*f?"', "", path.read_text()) for path in sources)
    for title in re.findall(r"^## ([a-z].*)$", (_DOCS / "troubleshooting.md").read_text(), re.MULTILINE):
        message = re.sub(r"^a (machine|cloud) (has|is) ", "", title.split(", or ")[0])
        assert message in said, f"nothing says {message!r}"
