"""The parts of a report: sections of text, tables and figures. `render` writes them."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from ktpfl_pipeline.reports.numbers import Entry

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class Text:
    """A paragraph."""

    text: str


@dataclass(frozen=True)
class Notes:
    """Terms with their explanations. Most terms are columns of a table. A term without an explanation is left out."""

    entries: Mapping[str, str]

    def __post_init__(self) -> None:
        object.__setattr__(self, "entries", without_empty(self.entries))


@dataclass(frozen=True)
class Links:
    """Titles with their addresses, relative to the report."""

    addresses: Mapping[str, str]


@dataclass(frozen=True)
class Settings:
    """Names and values by group; the group ``""`` has no heading."""

    groups: Mapping[str, Mapping[str, str]]


@dataclass(frozen=True)
class Tile:
    """One of the numbers at the top of a page: a method, its role, its number, and its difference to local-only."""

    title: str
    role: str
    value: str
    note: str


@dataclass(frozen=True)
class Column:
    """A column of a table. Only `render` writes titles, units and meanings."""

    key: str  # its name in rows and in CSV files
    title: str  # the heading, without the unit
    unit: str = ""  # in brackets after the title; empty for text and for numbers that are written with their unit
    meaning: str = ""  # the note below the table; empty if the title is enough
    value: Callable[[Any], Entry] = lambda _: None  # computes the column's entry from the object of a row

    @property
    def heading(self) -> str:
        return f"{self.title} ({self.unit})" if self.unit else self.title

    def but(self, **changes: Any) -> "Column":
        return replace(self, **changes)


ID = "id"
"""The key of an entry that is not shown: the registry name of the row's method, for links and highlights."""


@dataclass(frozen=True)
class Table:
    """A table of numbers and text. The first column names the rows."""

    name: str  # unique in the report; ``table`` is the main one
    columns: Sequence[Column]
    rows: Sequence[Mapping[str, Entry]]  # entries by the key of their column
    latex: str = ""  # the caption in LaTeX; without a caption, LaTeX has no such table
    tinted: Sequence[str] = ()  # `ID` of the rows that a page highlights

    @classmethod
    def of(
        cls,
        name: str,
        columns: Sequence[Column],
        rows: Iterable[Any],
        *,
        latex: str = "",
        tinted: Sequence[str] = (),
    ) -> "Table":
        entries = [
            {ID: getattr(row, "method", None), **{column.key: column.value(row) for column in columns}} for row in rows
        ]
        return cls(name, columns, entries, latex, tinted)

    @property
    def entries(self) -> list[list[Entry]]:
        return [[row.get(column.key) for column in self.columns] for row in self.rows]

    @property
    def headings(self) -> list[str]:
        return [column.heading for column in self.columns]

    def shows(self, key: str) -> bool:
        return any(column.key == key for column in self.columns)

    def without(self, *keys: str) -> "Table":
        return replace(self, columns=[column for column in self.columns if column.key not in keys])

    def filled(self) -> "Table":
        known = {key for row in self.rows for key, entry in row.items() if entry is not None}
        return self.without(*(column.key for column in self.columns if self.rows and column.key not in known))

    @property
    def meanings(self) -> dict[str, str]:
        """The meanings of the columns by title. Columns with equal meanings share the first title."""
        by_meaning: dict[str, str] = {}
        for column in self.columns:
            by_meaning.setdefault(column.meaning, column.title)
        return {title: meaning for meaning, title in by_meaning.items() if meaning}

    def explained(self, **more: str) -> "list[Block]":
        """Return the table with the meanings of its columns and `more` notes; nothing if it only names rows."""
        if not self.rows or len(self.columns) < 2:
            return []
        return [self, Notes({**self.meanings, **more})]

    def captioned(self, caption: str) -> "list[Block]":
        """Return the table with a caption, below it and in LaTeX; nothing if the table has no rows."""
        return [replace(self, latex=caption), Text(caption)] if self.rows else []


@dataclass(frozen=True, eq=False)
class Picture:
    """A figure with its caption.

    `lines` are the lines that a page highlights, by the id of their parts, such as ``line--0``. A line has a title, a
    color, and the value of each point as text. Without `lines`, a page only shows the figure.
    """

    name: str  # the name of the figure's files, without suffix
    figure: "Figure"
    caption: str  # its first sentence is the alternative text
    lines: Sequence[tuple[str, str, Sequence[str]]] = ()

    @property
    def alternative(self) -> str:
        return self.caption.partition(". ")[0].rstrip(".") + "."

    @cached_property
    def svg(self) -> str:
        """The figure as an ``svg`` element, drawn once for the page and for its file."""
        from ktpfl_pipeline.reports.figures.base import svg  # matplotlib is imported when something is drawn

        return svg(self.figure, self.name)


Block = Text | Notes | Links | Settings | Table | Picture


@dataclass(frozen=True, eq=False)
class Section:
    """A part of a report. Blocks without content are left out."""

    title: str  # the heading; the first section has no heading
    blocks: Sequence[Block]
    folded: bool = False  # whether only the heading is visible until the section is opened
    files: Sequence[str] = ()  # names of files with the section's numbers

    def __post_init__(self) -> None:
        object.__setattr__(self, "blocks", list(filter(has_content, self.blocks)))


def has_content(block: Block) -> bool:
    match block:
        case Text(text):
            return bool(text)
        case Notes(entries):
            return bool(entries)
        case Links(addresses):
            return bool(addresses)
        case Table(rows=rows):
            return bool(rows)
    return True


def without_empty(texts: Mapping[str, str]) -> dict[str, str]:
    return {term: text for term, text in texts.items() if text}


@dataclass(frozen=True, eq=False)
class Content:
    """A report before it is written. Facts, warnings, sections and blocks without content are left out."""

    name: str  # the name of the experiment, sweep or tuning
    kind: str  # the kind of report, in a few words
    summary: str  # the outcome, in a few sentences
    facts: Sequence[str]  # the setting, in a few words each
    sections: Sequence[Section]  # everything else, in order
    brief: Sequence[Text | Table]  # what the terminal shows below the summary
    title: str = ""  # heading of the page
    made: Mapping[str, str] = field(default_factory=dict)  # time, versions, command and machine, by name
    tiles: Sequence[Tile] = ()  # the numbers at the top of the page
    folder: str = ""  # below the folder of the pipeline's reports; empty for the latter, which is replaced each time
    data: Mapping[str, str] = field(default_factory=dict)  # the numbers of the report, as text by file name
    warnings: Mapping[str, str] = field(default_factory=dict)  # the box at the top, by kind: what may make it wrong
    failed: str = ""  # runs that failed, in the command's last sentence; empty if none

    def __post_init__(self) -> None:
        object.__setattr__(self, "facts", list(filter(None, self.facts)))
        object.__setattr__(self, "sections", [section for section in self.sections if section.blocks])
        object.__setattr__(self, "brief", list(filter(has_content, self.brief)))
        object.__setattr__(self, "warnings", without_empty(self.warnings))

    @property
    def blocks(self) -> Iterator[Block]:
        """The blocks of all sections, in order."""
        return (block for section in self.sections for block in section.blocks)

    @property
    def tables(self) -> "dict[str, Table]":
        return {block.name: block for block in self.blocks if isinstance(block, Table)}

    @property
    def figures(self) -> "dict[str, Figure]":
        return {block.name: block.figure for block in self.blocks if isinstance(block, Picture)}
