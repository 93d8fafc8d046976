"""The columns that several tables share. Title, unit, meaning and value of a column are declared once.

The entries of a row are keyed by the `key` of their column, which is also the column's name in CSV files. Only `render`
writes titles, units and meanings, so a title is changed in one place.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from ktpfl_pipeline.analysis.comparison import Comparison
from ktpfl_pipeline.analysis.results import MethodResult
from ktpfl_pipeline.reports import words
from ktpfl_pipeline.reports.numbers import MB, Entry, Number, accuracy, duration, interval, megabytes
from ktpfl_pipeline.reports.words import marked, point_title


@dataclass(frozen=True)
class Column:
    """A column of a table."""

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


METHOD = Column("method", "Method", value=marked)
TITLE = METHOD.but(value=lambda of_method: of_method.title)
"""The column of methods without the marks of `words.SIGNS`."""
MINUS_LOCAL = Column("minus_local", "Minus local-only", "points", f"after transfer, {words.CORRECTED}")
TRAFFIC = Column(
    "traffic",
    "Traffic",
    "MB",
    f"bytes of all clients and rounds, up and down, mean over seeds; {MB}.",
    lambda result: megabytes(result.sent),
)
TIME = Column(
    "seconds",
    "Time",
    meaning="wall time of all rounds with their evaluations, mean over seeds.",
    value=lambda result: Number(result.time, duration),
)
PAPER = Column("paper", "Paper", "%")
CHOSEN = Column("chosen", "Chosen")
VALIDATION = Column("validation", "Validation", "%")
AGREES = Column("agrees", "Agrees")


def gained_at(point: str, comparison: Comparison, title: str, meaning: str = "") -> Column:
    """Return the column of the corrected difference to local-only at an evaluation point, or in a measure."""
    gains = comparison.gains(point)

    def value(result: MethodResult) -> Entry:
        return interval(gains.get(result.method))

    return MINUS_LOCAL.but(key=f"{point}_minus_local", title=title, meaning=meaning, value=value)


def accuracy_at(point: str, best: MethodResult | None = None, meaning: str = "") -> Column:
    """Return the column of the final accuracy at an evaluation point; `best` is set in bold."""
    return Column(
        point, point_title(point), "%", meaning, lambda result: accuracy(result.final.get(point), result is best)
    )
