"""Tables in the pages of docs/results: drawing them in Markdown, and replacing those that a page has."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from ktpfl_pipeline.methods import find, title
from ktpfl_pipeline.reports.numbers import Entry
from ktpfl_pipeline.reports.render.markdown import entry

Tables = Mapping[str, str]
"""The tables of a page, each by a text that stands above it and only there."""


def named(method: str) -> str:
    """Return a method's title in tables, with a mark if its models after transfer come from local training."""
    return title(method) + " ‡" * find(method).kind.trained_last


def drawn(lines: Sequence[Sequence[Entry]]) -> str:
    """Return a Markdown table; the first line is its head."""
    head, *rest = (
        f"| {' | '.join(map(entry, line))} |".replace("|  |", "| |").replace("|  |", "| |") for line in lines
    )
    return "\n".join([head, "| " + " | ".join(["---"] * len(lines[0])) + " |", *rest])


def replaced(text: str, tables: Tables) -> str:
    """Return the text of a page with its tables replaced.

    Raises:
        SystemExit: if one of the texts is not exactly once on the page, or has no table before the next heading.
    """
    for above, table in tables.items():
        if (count := text.count(above)) != 1:
            raise SystemExit(f"The page has the text {above!r} {count} times; it needs it once.")
        below = text.partition(above)[2]
        section = re.split(r"^#", below, maxsplit=1, flags=re.MULTILINE)[0]
        place = re.search(r"^\|.*\n(?:\|.*\n)+", section, re.MULTILINE)
        if not place:
            raise SystemExit(f"The page has no table below {above!r}.")
        start = len(text) - len(below)
        text = f"{text[: start + place.start()]}{table}\n{text[start + place.end() :]}"
    return text


def write(page: Path, tables: Tables) -> None:
    """Write tables into a page."""
    page.write_text(replaced(page.read_text("utf-8"), tables), "utf-8")
