"""The list of settings in which the cells of the paper's tables differ from the paper, or agree with it."""

from collections.abc import Callable, Mapping, Sequence
from itertools import groupby

from ktpfl_pipeline.analysis.study import Cell
from ktpfl_pipeline.reports import paper
from ktpfl_pipeline.reports.columns import PAPER, Column
from ktpfl_pipeline.reports.model import Table
from ktpfl_pipeline.reports.paper.stated import Setting, compared

SETTINGS = (
    "Made from the configuration of every cell: each setting that the paper or its released code states, where ours is "
    "another or the paper states none. Where the code differs from the paper's text, the text counts."
)


def settings_table(cells: Sequence[Cell], differing: bool) -> Table:
    """Return one row for each stated setting and each of our values, with the cells that have this value.

    If `differing`, the rows are the settings that differ or that the paper does not state; otherwise, the settings that
    agree.
    """
    found: dict[Setting, list[Cell]] = {}
    for cell in cells:
        for setting in compared(cell):
            if (setting.differs is not False) == differing:
                found.setdefault(setting, []).append(cell)
    names = list(dict.fromkeys(setting.name for setting in found))
    shown = [
        Column("setting", "Setting", value=lambda setting: setting.name),
        Column("ours", "Ours", value=lambda setting: setting.ours),
        PAPER.but(unit="", value=lambda setting: f"{setting.paper} ({setting.source})"),
        Column("cells", "Cells", value=lambda setting: _told_cells(found[setting], cells)),
    ]
    rows = sorted(found, key=lambda setting: names.index(setting.name))
    return Table.of("differing" if differing else "agreeing", shown, rows)


CELL_IS: Mapping[str, Callable[[Cell], str]] = {
    "data": lambda cell: paper.dataset(cell.settings),
    "columns": lambda cell: cell.label,
    "methods": lambda cell: cell.title,
}


def _told_cells(own: Sequence[Cell], cells: Sequence[Cell]) -> str:
    """Return a description of cells: whole parts by name, otherwise their data, columns and methods."""
    told: dict[str, list[str]] = {}
    for part, group in groupby(own, key=lambda cell: cell.part):
        members, all_of_part = list(group), [cell for cell in cells if cell.part == part]
        which = []
        for of, each in CELL_IS.items():
            mine, every = (list(dict.fromkeys(map(each, some))) for some in (members, all_of_part))
            if (2 * len(mine) < len(every)) if of == "methods" else mine != every:
                which.append(", ".join(mine))
        told.setdefault("; ".join(which), []).append(named(part))
    return "; ".join(f"{_listed(parts)}{f' ({where})' * bool(where)}" for where, parts in told.items())


def _listed(parts: Sequence[str]) -> str:
    """Return names of parts in words: ``Tables 1, 2, Figure 2``."""
    numbers: dict[str, list[str]] = {}
    for part in parts:
        kind, _, number = part.partition(" ")
        numbers.setdefault(kind, []).append(number)
    return ", ".join(f"{kind}{'s' * (len(own) > 1)} {', '.join(own)}".strip() for kind, own in numbers.items())


def named(part: str) -> str:
    """Return a part's title: ``Table 1`` for ``table1``, ``Table 1 (rate)`` for ``table1_rate``."""
    own, _, variant = part.partition("_")
    name = own.rstrip("0123456789")
    called = f"{name.capitalize()} {own.removeprefix(name)}".strip()
    return f"{called} ({variant.replace('_', ' ')})" if variant else called
