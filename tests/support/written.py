"""Tables as they are written, to compare with: ``**90.0** ± 1.0`` is bold."""

from ktpfl_pipeline.reports.model import Table
from ktpfl_pipeline.reports.render.markdown import entry


def rows(table: Table) -> list[list[str]]:
    return [[entry(each) for each in row] for row in table.rows]


def records(table: Table) -> list[dict[str, str]]:
    return [dict(zip(table.columns, row, strict=True)) for row in rows(table)]


def column(table: Table, name: str) -> list[str]:
    return [record[name] for record in records(table)]


def row(table: Table, title: str) -> dict[str, str]:
    """Return the other columns of the row whose first entry is `title`."""
    (found,) = [record for record in records(table) if record[table.columns[0]] == title]
    return {name: text for name, text in found.items() if name != table.columns[0]}
