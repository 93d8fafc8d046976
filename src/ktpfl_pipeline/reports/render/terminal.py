"""A report's summary and its main table as plain text for a terminal."""

import io
import textwrap

from rich import box
from rich.console import Console
from rich.table import Table as Grid
from rich.text import Text as Line

from ktpfl_pipeline.reports.model import Content, Table, Text
from ktpfl_pipeline.reports.numbers import MINUS, NONE

WIDTH = 100
"""Characters in a line."""
LONG = 50
"""Characters in an entry of a table."""
RULE = box.Box("    \n    \n ── \n    \n    \n    \n    \n    \n")


def text(report: Content) -> str:
    """Return the heading, the summary and what is brief of the report."""
    parts = [report.name, *textwrap.wrap(report.summary, WIDTH), ""]
    for block in report.brief:
        parts += textwrap.wrap(block.text, WIDTH) if isinstance(block, Text) else [table(block)]
    return "\n".join(parts).replace(MINUS, "-").replace(NONE, "-").rstrip() + "\n"


def table(given: Table) -> str:
    """Return a table, the names of its rows shortened where it would be too wide."""
    cells = [
        [textwrap.shorten(NONE if each is None else str(each), LONG, placeholder="…") for each in row]
        for row in given.rows
    ]
    heads = [textwrap.wrap(column, 11, break_long_words=False, break_on_hyphens=False) for column in given.columns]
    columns = zip(*cells, strict=True)
    first, *others = [max(map(len, [*head, *column])) for head, column in zip(heads, columns, strict=True)]
    grid = Grid(box=RULE, show_edge=False, padding=(0, 1, 0, 0), pad_edge=False)
    grid.add_column(given.columns[0], width=min(first, WIDTH - sum(others) - 2 * len(others)), overflow="ellipsis")
    for column, width in zip(given.columns[1:], others, strict=True):
        grid.add_column(column, justify="right", width=width)
    for row in cells:
        grid.add_row(*(Line(cell, no_wrap=True) for cell in row))
    console = Console(file=io.StringIO(), width=WIDTH, color_system=None)
    with console.capture() as captured:
        console.print(grid)
    return "\n".join(line.rstrip() for line in captured.get().splitlines()) + "\n"
