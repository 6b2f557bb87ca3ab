"""`python -m docs.evidence`: writes evidence.md, the papers' figures and ours; and tables of results.

The papers' figures are in `benchmarks/papers/PAPER.json`; ours are read from the tables in
`benchmarks/results`, so that no page says anything else than what was measured. A test compares.

A page has a table of results where it has

    <!-- table FILE -->, or <!-- table FILE: HEADING -->
    ...
    <!-- end -->

with the name of a file of results, and the heading in it of the table; without one, it is the first.
"""

from __future__ import annotations

import json
import re
from functools import cache
from pathlib import Path
from typing import Final

import msgspec
from msgspec import Struct

__all__ = ["PAGES", "evidence_page", "main", "with_tables"]

_DOCS: Final = Path(__file__).parent
_RESULTS: Final = _DOCS.parent / "benchmarks" / "results"
_PAPERS: Final = _DOCS.parent / "benchmarks" / "papers"
_ORDER: Final = ("hybris", "depot", "powerstore", "pasis", "pond")
_PAGE: Final = _DOCS / "evidence.md"
PAGES: Final = tuple(
    _DOCS / name for name in ("performance.md", "scale.md", "internals/key-value-metadata.md")
)
"""Pages with tables of results."""
_PARTS: Final = {"clients": "services --only clients"}
"""What makes results that have another name than their benchmark."""
_TABLE: Final = re.compile(r"(<!-- table (\w+)(?:: ([^>]*))? -->\n).*?(<!-- end -->)", re.DOTALL)
_HEAD: Final = """# Evidence

What the papers measured that HybrisFS comes from, and what its own benchmarks find. Made by
`python -m docs.evidence` from `benchmarks/papers/PAPER.json` and the results in `benchmarks/results`, each of
which says date, machine, load and rounds. Machines, years and languages differ, so a figure of ours beside
one of theirs says that a claim holds, not who is faster. [Performance](performance.md) has the comparisons
with other programs on the same machine.
"""


class Experiment(Struct, frozen=True, forbid_unknown_fields=True):
    """A figure of a paper, and ours. *ours* has a {} for each of *cells*."""

    where: str
    what: str
    theirs: str
    ours: str
    cells: list[tuple[str, str, str, str | int]]
    """Of results: the file, the heading of the table or how it begins, the first cell of the row, and the
    head of the column or its number."""
    differs: str


class Paper(Struct, frozen=True, forbid_unknown_fields=True):
    """What a paper measured. *not_measured*: what we have not, a sentence without a verb; "" for nothing."""

    paper: str
    experiments: list[Experiment]
    not_measured: str
    points: dict[str, dict[str, list[float]]] = {}
    """What `benchmarks.papers` draws beside our own figures: by the table or figure and the line in it."""


@cache
def _tables(file: str) -> dict[str, list[list[str]]]:
    """The tables of a file of results by their headings; those without one by "", "1" and so on."""
    found: dict[str, list[list[str]]] = {}
    heading, table = "", list[list[str]]()
    for line in [*(_RESULTS / f"{file}.md").read_text().splitlines(), ""]:
        if line.startswith("|"):
            table.append([cell.strip() for cell in line.strip("|").split("|")])
        elif table:
            found[heading if heading or "" not in found else str(len(found))] = table
            heading, table = "", []
        if line.startswith("**"):
            heading = line.strip("*")
    return found


def _cell(file: str, heading: str, row: str, column: str | int) -> str:
    """A figure. Raises LookupError or ValueError when it is not there."""
    for title, table in _tables(file).items():
        if not title.startswith(heading):
            continue
        at = column if isinstance(column, int) else table[0].index(column) if column in table[0] else None
        for cells in table[2:]:
            if cells[0] == row and at is not None:
                return cells[at]
    raise LookupError(f"{file}.md has no {row!r}, {column!r} under {heading!r}")


def _circumstances(file: str) -> str:
    module = f"papers.{file}" if (_PAPERS / f"{file}.py").exists() else _PARTS.get(file, file)
    machine = json.loads((_RESULTS / f"{file}.json").read_text())["machine"]
    load = f", load {machine['load_average']}" if "load_average" in machine else ""
    where = f"{machine['date']}, {machine['cpus']} cores{load}, Python {machine['python']}"
    plots = [path.name for name in (f"{file}.svg", f"{file}-*.svg") for path in sorted(_RESULTS.glob(name))]
    drawn = ", ".join(f"[{name}](../benchmarks/results/{name})" for name in plots)
    return f"`python -m benchmarks.{module}`, {where}{f': {drawn}' if drawn else ''}.\n"


def evidence_page() -> str:
    """The text of evidence.md."""
    papers = (msgspec.json.decode((_PAPERS / f"{name}.json").read_bytes(), type=Paper) for name in _ORDER)
    return _HEAD + "".join(map(_section, papers))


def _section(paper: Paper) -> str:
    files = dict.fromkeys(cell[0] for one in paper.experiments for cell in one.cells)
    lines = [f"\n## {paper.paper}\n\n", *map(_circumstances, files), "\n"]
    lines.append("| where | what | the paper | HybrisFS | what differs |\n| --- | --- | --- | --- | --- |\n")
    for one in paper.experiments:
        ours = one.ours.format(*(_cell(*cell) for cell in one.cells))
        lines.append(f"| {one.where} | {one.what} | {one.theirs} | {ours} | {one.differs} |\n")
    if paper.not_measured:
        lines.append(f"\nNot measured: {paper.not_measured}\n")
    return "".join(lines)


def with_tables(page: str) -> str:
    """The text of a page with the tables of results as they are now."""
    return _TABLE.sub(lambda found: f"{found[1]}{_as_text(found[2], found[3] or '')}{found[4]}", page)


def _as_text(file: str, heading: str) -> str:
    table = next(table for title, table in _tables(file).items() if title.startswith(heading))
    return "".join(f"| {' | '.join(cells)} |\n" for cells in table)


def main() -> None:
    """Write all pages."""
    _PAGE.write_text(evidence_page())
    for page in PAGES:
        page.write_text(with_tables(page.read_text()))


if __name__ == "__main__":
    main()
