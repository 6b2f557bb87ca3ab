"""`python -m docs.evidence`: writes evidence.md, the papers' figures and ours; and tables in performance.md.

The papers' figures are in `benchmarks/papers.json`; ours are read from the tables in `benchmarks/results`, so
that no page says anything else than what was measured. A test compares.

A page has a table of results where it has

    <!-- table FILE -->, or <!-- table FILE: HEADING -->
    ...
    <!-- end -->

with the name of a file of results, and the heading in it of the table; without one, it is the first.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Final

import msgspec
from msgspec import Struct

__all__ = ["evidence_page", "main", "with_tables"]

_DOCS: Final = Path(__file__).parent
_RESULTS: Final = _DOCS.parent / "benchmarks" / "results"
_PAPERS: Final = _DOCS.parent / "benchmarks" / "papers.json"
_PAGE: Final = _DOCS / "evidence.md"
_PERFORMANCE: Final = _DOCS / "performance.md"
_TABLE: Final = re.compile(r"(<!-- table (\w+)(?:: ([^>]*))? -->\n).*?(<!-- end -->)", re.DOTALL)
_HEAD: Final = """# Evidence

What the papers measured that HybrisFS comes from, and what its own benchmarks find. Made by
`python -m docs.evidence` from `benchmarks/papers.json` and the results in `benchmarks/results`, each of which
says date, machine, load and rounds. Machines, years and languages differ, so a figure of ours beside one of
theirs says that a claim holds, not who is faster. [Performance](performance.md) has the comparisons with
other programs on the same machine.
"""
_TAIL: Final = """
Of what the papers show, these are not measured yet: DepSky beside Hybris; metadata in data centers far from
each other (Hybris 5.4); traffic, storage and CPU of each of Depot's mechanisms (Fig. 4 to 9), and its
latencies (Fig. 10 to 18); Pond's update latency, its archive and the Andrew benchmark (Tables 2 to 5 and 7,
Fig. 4 to 6); PASIS's Table 1 and Fig. 5; PoWerStore beside a protocol with signatures.
"""


class Experiment(Struct, frozen=True, forbid_unknown_fields=True):
    """A figure of a paper, and ours. *ours* has a {} for each of *cells*."""

    paper: str
    where: str
    what: str
    theirs: str
    ours: str
    cells: list[tuple[str, str, str, str | int]]
    """Of results: the file, the heading of the table or how it begins, the first cell of the row, and the
    head of the column or its number."""
    differs: str


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
    machine = json.loads((_RESULTS / f"{file}.json").read_text())["machine"]
    load = f", load {machine['load_average']}" if "load_average" in machine else ""
    return f"{machine['date']}, {machine['cpus']} cores{load}, Python {machine['python']}"


def evidence_page() -> str:
    """The text of evidence.md."""
    return "".join([_HEAD, *_sections(), _TAIL])


def _sections() -> Iterator[str]:
    experiments = msgspec.convert(json.loads(_PAPERS.read_text()), list[Experiment])
    for paper in dict.fromkeys(one.paper for one in experiments):
        ours = [one for one in experiments if one.paper == paper]
        yield f"\n## {paper}\n\n"
        for file in dict.fromkeys(cell[0] for one in ours for cell in one.cells):
            yield f"`python -m benchmarks.{file}`, {_circumstances(file)}.\n"
        yield "\n"
        yield "| where | what | the paper | HybrisFS | what differs |\n| --- | --- | --- | --- | --- |\n"
        for one in ours:
            found = one.ours.format(*(_cell(*cell) for cell in one.cells))
            yield f"| {one.where} | {one.what} | {one.theirs} | {found} | {one.differs} |\n"


def with_tables(page: str) -> str:
    """The text of a page with the tables of results as they are now."""
    return _TABLE.sub(lambda found: f"{found[1]}{_as_text(found[2], found[3] or '')}{found[4]}", page)


def _as_text(file: str, heading: str) -> str:
    table = next(table for title, table in _tables(file).items() if title.startswith(heading))
    return "".join(f"| {' | '.join(cells)} |\n" for cells in table)


def main() -> None:
    """Write both pages."""
    _PAGE.write_text(evidence_page())
    _PERFORMANCE.write_text(with_tables(_PERFORMANCE.read_text()))


if __name__ == "__main__":
    main()
