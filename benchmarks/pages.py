"""The results of one benchmark: tables and targets on the terminal, as Markdown, and all figures as JSON.

What is drawn is drawn from the JSON, so that `--draw` can do it again without measuring.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

from rich.console import Console
from rich.table import Table

from benchmarks.report import RESULTS, machine, significant, terminal
from benchmarks.targets import Target

__all__ = ["Draw", "Page", "Section", "draw_again", "options_of", "publish"]

Draw: TypeAlias = Callable[[Path, Mapping[str, Any]], list[Path]]
"""Draws into a folder what the JSON has; returns the paths."""


@dataclass(frozen=True)
class Section:
    """One table; the first column is text, the others are figures."""

    title: str
    headings: Sequence[str]
    rows: Sequence[Sequence[str]]


@dataclass
class Page:
    """What `NAME.json` and `NAME.md` say. `notes` are paragraphs: how it was measured."""

    name: str
    sections: list[Section] = field(default_factory=list)
    targets: list[Target] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    figures: Mapping[str, object] = field(default_factory=dict)
    facts: Mapping[str, str | int | float] = field(default_factory=machine)

    def show(self, console: Console) -> None:
        """Print everything."""
        for section in self._all_sections():
            table = Table(title=section.title, title_justify="left")
            for number, heading in enumerate(section.headings):
                table.add_column(heading, justify="right" if number else "left")
            for row in section.rows:
                table.add_row(*row, style="red" if row[-1] == "miss" else None)
            console.print(table)
        for note in self.notes:
            console.print(note, highlight=False)

    def write(self, folder: Path) -> list[Path]:
        """Write both files; returns their paths."""
        folder.mkdir(parents=True, exist_ok=True)
        as_json, as_markdown = folder / f"{self.name}.json", folder / f"{self.name}.md"
        targets = [{**dataclasses.asdict(target), "met": target.met} for target in self.targets]
        everything = {"machine": self.facts, **self.figures, "targets": targets, "notes": self.notes}
        as_json.write_text(json.dumps(everything, indent=1) + "\n")
        as_markdown.write_text("\n".join(self._markdown()))
        return [as_json, as_markdown]

    def _all_sections(self) -> list[Section]:
        rows = [
            [
                target.label,
                f"{'>=' if target.at_least else '<='} {significant(target.limit)}",
                significant(target.measured),
                "pass" if target.met else "miss",
            ]
            for target in self.targets
        ]
        targets = Section("Targets", ["target", "limit", "measured", ""], rows)
        return [*self.sections, targets] if rows else self.sections

    def _markdown(self) -> Iterator[str]:
        for section in self._all_sections():
            yield f"**{section.title}**"
            yield ""
            yield f"| {' | '.join(section.headings)} |"
            yield f"| --- |{' ---: |' * (len(section.headings) - 1)}"
            yield from (f"| {' | '.join(row)} |" for row in section.rows)
            yield ""
        for note in self.notes:
            yield note
            yield ""
        facts = self.facts
        yield (
            f"On {facts['cpus']} cores, {facts['memory_gib']} GiB, Linux {facts['kernel']}, "
            f"Python {facts['python']}, load {facts['load_average']} at the start, {facts['date']}."
        )
        yield ""


def options_of(name: str, description: str | None, *, draws: bool = False) -> argparse.ArgumentParser:
    """The options that benchmarks share. *draws*: it can draw again what it has measured before."""
    parser = argparse.ArgumentParser(prog=f"python -m benchmarks.{name}", description=description)
    parser.add_argument(
        "--results", type=Path, default=RESULTS, metavar="DIR", help="where to write (benchmarks/results)"
    )
    if draws:
        parser.add_argument("--draw", action="store_true", help="only draw again what was measured before")
    return parser


def publish(page: Page, folder: Path, draw: Draw | None = None) -> None:
    """Print a page, write it, and draw it."""
    console = terminal()
    page.show(console)
    for path in page.write(folder):
        console.print(f"wrote {path}")
    if draw is not None:
        draw_again(page.name, folder, draw)


def draw_again(name: str, folder: Path, draw: Draw) -> None:
    """Draw what the JSON of a page has."""
    for path in draw(folder, json.loads((folder / f"{name}.json").read_bytes())):
        terminal().print(f"wrote {path}")
