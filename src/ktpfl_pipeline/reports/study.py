"""Tables of methods (rows) by setting (columns), which the overview and the paper's report share."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ktpfl_pipeline.analysis.contrasts import clear_best
from ktpfl_pipeline.analysis.results import HEADLINE, MethodResult
from ktpfl_pipeline.reports.columns import METHOD, PAPER, Column, accuracy_at
from ktpfl_pipeline.reports.model import Table
from ktpfl_pipeline.reports.numbers import Entry, accuracy


@dataclass(frozen=True)
class Setting:
    """A column: the results of methods in one setting.

    Attributes:
        title: the column's title, unique in its table.
        results: the finished results by method.
        paper: the paper's numbers by method, as text; empty if the setting is not the paper's.
        failed: methods that cannot be finished.
    """

    title: str
    results: Mapping[str, MethodResult]
    paper: Mapping[str, str | None] = field(default_factory=dict)
    failed: Sequence[str] = ()

    def columns(self, point: str = HEADLINE) -> list[Column]:
        """Return the final accuracy at an evaluation point, and the paper's number next to the headline.

        A row is a method's registry name.
        """
        best = clear_best(list(self.results.values()), point)

        def ours(method: str) -> Entry:
            if method in self.failed:
                return "failed"
            result = self.results.get(method)
            return accuracy(result.final.get(point), result is best) if result else None

        def cited(method: str) -> Entry:
            return self.paper.get(method)

        shown = [accuracy_at(point).but(key=self.title, title=self.title, value=ours)]
        if point == HEADLINE and any(self.paper.values()):
            shown.append(PAPER.but(key=f"{self.title}: paper", title=f"{self.title}: paper", value=cited))
        return shown


def accuracy_table(
    name: str, titles: Mapping[str, str], settings: Sequence[Setting], point: str = HEADLINE, latex: str = ""
) -> Table:
    """Return the methods by setting: final accuracy in percent, and the paper's where the setting is the paper's.

    Args:
        name: of the table.
        titles: of the methods, by registry name, in the order of the rows.
        settings: the columns.
        point: the evaluation point.
        latex: the caption in LaTeX.
    """
    method = METHOD.but(value=lambda name: titles[name])
    shown = [method, *(column for setting in settings for column in setting.columns(point))]
    return Table.of(name, shown, titles, latex=latex)
