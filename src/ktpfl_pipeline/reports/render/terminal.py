"""A report's summary and main table as plain text, as wide as the terminal or a given width."""

import io
import shutil
import textwrap

from rich import box
from rich.console import Console
from rich.table import Table as Grid
from rich.text import Text as Line

from ktpfl_pipeline.reports.model import Content, Table, Text
from ktpfl_pipeline.reports.numbers import MINUS, NONE
from ktpfl_pipeline.reports.words import wrapped

NARROWEST, USUAL, WIDEST = 60, 100, 120
"""The characters in a line: the minimum, the width without a terminal, and the maximum."""
LONG = 50
"""The most characters in an entry of a table."""
FEWEST, SHORTEST = 3, 8
"""To show `FEWEST` columns, names are cut to `SHORTEST` characters. If this is not enough, columns are left out."""
RULE = box.Box("    \n    \n ── \n    \n    \n    \n    \n    \n")


def text(report: Content, width: int | None = None) -> str:
    """Return the heading, the summary and the brief blocks of a report. `width` None takes the terminal's width."""
    width = width or min(max(shutil.get_terminal_size((USUAL, 0)).columns, NARROWEST), WIDEST)
    warned = [line for kind, text in report.warnings.items() for line in wrapped(f"! {kind}: {text}", width)]
    parts = [report.name, *warned, *wrapped(report.summary, width), ""]
    for block in report.brief:
        parts += wrapped(block.text, width) if isinstance(block, Text) else [table(block, width)]
    return "\n".join(parts).replace(MINUS, "-").replace(NONE, "-").rstrip() + "\n"


def table(given: Table, width: int = USUAL) -> str:
    """Return a table. If it is too wide, its last columns are left out and named below the table."""
    cells = [
        [textwrap.shorten(NONE if each is None else str(each), LONG, placeholder="…") for each in row]
        for row in given.entries
    ]
    heads = [wrapped(column, 11) for column in given.headings]
    columns = zip(*cells, strict=True)
    first, *others = [max(map(len, [*head, *column])) for head, column in zip(heads, columns, strict=True)]

    def fits(n: int) -> bool:
        return (first if n > FEWEST else min(first, SHORTEST)) + sum(others[:n]) + 2 * n <= width

    shown = next((n for n in range(len(others), 1, -1) if fits(n)), 1)
    others, left_out = others[:shown], given.headings[1 + shown :]
    grid = Grid(box=RULE, show_edge=False, padding=(0, 1, 0, 0), pad_edge=False)
    grid.add_column(
        given.headings[0], width=max(1, min(first, width - sum(others) - 2 * len(others))), overflow="ellipsis"
    )
    for column, size in zip(given.headings[1 : 1 + shown], others, strict=True):
        grid.add_column(column, justify="right", width=size)
    for row in cells:
        grid.add_row(*(Line(cell, no_wrap=True) for cell in row[: 1 + shown]))
    console = Console(file=io.StringIO(), width=width, color_system=None)
    with console.capture() as captured:
        console.print(grid)
    lines = [line.rstrip() for line in captured.get().splitlines()]
    more = wrapped(f"Further columns of the report: {', '.join(left_out)}.", width) if left_out else []
    return "\n".join([*lines, *more]) + "\n"
