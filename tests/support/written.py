"""Entries of tables as Markdown, by the keys of their columns: ``**90.0** ± 1.0`` is bold."""

from ktpfl_pipeline.analysis.comparison import Comparison
from ktpfl_pipeline.reports import notes, tables
from ktpfl_pipeline.reports.model import Table, without_empty
from ktpfl_pipeline.reports.render.markdown import entry


def keys(table: Table) -> list[str]:
    return [column.key for column in table.columns]


def rows(table: Table) -> list[list[str]]:
    return [[entry(each) for each in row] for row in table.entries]


def records(table: Table) -> list[dict[str, str]]:
    return [dict(zip(keys(table), row, strict=True)) for row in rows(table)]


def column(table: Table, key: str) -> list[str]:
    return [record[key] for record in records(table)]


def row(table: Table, name: str) -> dict[str, str]:
    """Return the other columns of the row whose first entry is `name`."""
    first = keys(table)[0]
    (found,) = [record for record in records(table) if record[first] == name]
    return {key: text for key, text in found.items() if key != first}


def notes_of(comparison: Comparison) -> dict[str, str]:
    """Return the notes on the main table of a comparison."""
    made = tables.comparison_table(comparison)
    before = {**notes.alerts(comparison), **notes.remarks(comparison)}
    return without_empty({**before, **made.meanings, **notes.general_notes(comparison)})
