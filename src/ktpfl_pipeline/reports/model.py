"""What a report is made of: sections of text, tables and figures. How they are written is `render`'s."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from ktpfl_pipeline.reports.numbers import Entry

if TYPE_CHECKING:
    from matplotlib.figure import Figure

ALERT = "Not like for like"
"""The note that stands out."""


@dataclass(frozen=True)
class Text:
    """A paragraph."""

    text: str


@dataclass(frozen=True)
class Notes:
    """What is explained, with its explanation: columns of a table, mostly."""

    entries: Mapping[str, str]


@dataclass(frozen=True)
class Links:
    """Titles with their addresses, relative to the report."""

    addresses: Mapping[str, str]


@dataclass(frozen=True)
class Settings:
    """Names and values by group; those of the group ``""`` have no heading."""

    groups: Mapping[str, Mapping[str, str]]


@dataclass(frozen=True)
class Tile:
    """One number that is seen first: whose it is, why that is shown, itself, and how it stands to others."""

    title: str
    role: str
    value: str
    note: str


@dataclass(frozen=True)
class Table:
    """A table of numbers and texts; the first column names the rows.

    Attributes:
        name: tells it apart in its report; ``table`` is the main one.
        columns: their titles.
        rows: one entry a column.
        latex: its caption in LaTeX; without one it is left out there.
        tinted: names of the rows that a page sets off.
    """

    name: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Entry]]
    latex: str = ""
    tinted: Sequence[str] = ()

    @classmethod
    def of(cls, name: str, rows: Sequence[Mapping[str, Entry]], latex: str = "", tinted: Sequence[str] = ()) -> "Table":
        """Return a table from one mapping a row, from column to entry; what a row does not name is left empty."""
        columns = list(dict.fromkeys(column for row in rows for column in row))
        return cls(name, columns, [[row.get(column) for column in columns] for row in rows], latex, tinted)

    def without(self, *columns: str) -> "Table":
        """Return the table without some columns."""
        kept = [place for place, column in enumerate(self.columns) if column not in columns]
        rows = [[row[place] for place in kept] for row in self.rows]
        return replace(self, columns=[self.columns[place] for place in kept], rows=rows)

    def filled(self) -> "Table":
        """Return the table without the columns in which no row has anything."""
        empty = zip(self.columns, zip(*self.rows, strict=True), strict=bool(self.rows))
        return self.without(*(column for column, entries in empty if all(each is None for each in entries)))

    def captioned(self, caption: str) -> "list[Block]":
        """Return the table with a caption below it and in LaTeX; nothing where it has no rows."""
        return [replace(self, latex=caption), Text(caption)] if self.rows else []


@dataclass(frozen=True, eq=False)
class Picture:
    """A figure with its caption.

    Attributes:
        name: of its files, without suffix.
        figure: as it is drawn.
        caption: what it shows; the first sentence is the alternative text.
        lines: by the ids of its parts that a page sets off together, ``line--0``: title, colour, and the value at each
            point of the line as text; empty where a page only shows it.
    """

    name: str
    figure: "Figure"
    caption: str
    lines: Sequence[tuple[str, str, Sequence[str]]] = ()

    @property
    def alternative(self) -> str:
        """What stands for the figure where it cannot be seen."""
        return self.caption.partition(". ")[0].rstrip(".") + "."

    @property
    def inches(self) -> float:
        """The width at which it was drawn."""
        return float(self.figure.get_figwidth())


Block = Text | Notes | Links | Settings | Table | Picture


@dataclass(frozen=True, eq=False)
class Section:
    """A part of a report.

    Attributes:
        title: its heading; the first section has none.
        blocks: its content. Tables without rows are left out.
        folded: whether only the heading is seen until it is opened.
        files: those that hold the section's numbers, each row with its run.
    """

    title: str
    blocks: Sequence[Block]
    folded: bool = False
    files: Sequence[str] = ()

    def __bool__(self) -> bool:
        """Say whether there is anything in it."""
        return any(not isinstance(block, Table) or block.rows for block in self.blocks)


@dataclass(frozen=True, eq=False)
class Content:
    """A report before it is written.

    Attributes:
        name: of the experiment, sweep or tuning.
        kind: what sort of report it is, in a few words.
        summary: what came out, in a few sentences.
        facts: the setting, in a few words each.
        sections: everything else, in order.
        brief: what the terminal shows below the summary.
        title: heading of the page; the name where it is empty.
        made: when, from what, how and where it was made, by what is told.
        tiles: what is seen first.
        variant: folder below that of the experiment's reports; empty for that folder itself.
        data: the numbers behind it, as text by file name.
    """

    name: str
    kind: str
    summary: str
    facts: Sequence[str]
    sections: Sequence[Section]
    brief: Sequence[Text | Table]
    title: str = ""
    made: Mapping[str, str] = field(default_factory=dict)
    tiles: Sequence[Tile] = ()
    variant: str = ""
    data: Mapping[str, str] = field(default_factory=dict)

    @property
    def heading(self) -> str:
        """The title of the page."""
        return self.title or self.name

    @property
    def blocks(self) -> Iterator[Block]:
        """The blocks of all sections, in order."""
        return (block for section in self.sections for block in section.blocks)

    @property
    def tables(self) -> "dict[str, Table]":
        """All tables with rows by name."""
        return {block.name: block for block in self.blocks if isinstance(block, Table) and block.rows}

    @property
    def figures(self) -> "dict[str, Figure]":
        """All figures by name."""
        return {block.name: block.figure for block in self.blocks if isinstance(block, Picture)}
