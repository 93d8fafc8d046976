"""The tables of a comparison, and tables of methods by variant, which the overview and the paper's report share."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from ktpfl_pipeline.analysis.comparison import Comparison
from ktpfl_pipeline.analysis.results import ORDER, MethodResult
from ktpfl_pipeline.analysis.statistics import paired
from ktpfl_pipeline.core.metrics import AFTER_LOCAL, AFTER_TRANSFER
from ktpfl_pipeline.reports import columns, notes, paper, words
from ktpfl_pipeline.reports.columns import MINUS_LOCAL, Column, accuracy_at, gained_at
from ktpfl_pipeline.reports.model import Section, Table, Text
from ktpfl_pipeline.reports.numbers import NONE, Entry, accuracy, mean, percent, signed


def comparison_table(comparison: Comparison, latex: str = "") -> Table:
    """Return one row per method, the best first, and a row for the majority-class baseline if it is known."""
    lead, settings = comparison.headline, comparison.settings
    cited = {} if paper.differences(settings) else paper.cited(settings, [result.method for result in comparison])
    shown = [
        columns.METHOD,
        *(
            accuracy_at(point, comparison.clear_best(point))
            for point in dict.fromkeys((lead, AFTER_TRANSFER, AFTER_LOCAL))
        ),
        gained_at(lead, comparison, f"{MINUS_LOCAL.title}{words.leading(lead)}", MINUS_LOCAL.meaning).but(
            key=MINUS_LOCAL.key
        ),
        *(columns.TRAFFIC, columns.TIME),
        *([columns.PAPER.but(value=lambda result: cited.get(result.method))] if cited else []),
    ]
    meanings = notes.meanings(comparison)
    shown = [column.but(meaning=meanings.get(column.key, column.meaning)) for column in shown]
    made = Table.of("table", shown, comparison.ranked(lead), latex=latex, tinted=tinted(comparison))
    if not (guesses := comparison.majority):
        return made
    local = comparison.local
    theirs = dict(zip(local.seeds, local.final[AFTER_TRANSFER].per_seed, strict=True)) if local else {}
    found = paired(guesses, theirs) if lead == AFTER_TRANSFER else None  # not a method: shown and not tested
    gained = signed(found.mean) if found else None
    row = {"method": words.MAJORITY.title, AFTER_TRANSFER: mean([*guesses.values()]), MINUS_LOCAL.key: gained}
    return replace(made, rows=[*made.rows, row])


def tinted(comparison: Comparison) -> list[str]:
    """Return the methods whose rows tables highlight: the report's subject and local-only."""
    return [result.method for result in (comparison.main, comparison.local) if result]


def variant_columns(
    title: str,
    results: Mapping[str, MethodResult],
    cited: Mapping[str, str | None],
    failed: Collection[str] = (),
    point: str = AFTER_TRANSFER,
) -> list[Column]:
    """Return the columns of one variant in a table of methods by variant. A row is a method's registry name.

    The first column is the final accuracy at an evaluation point. At the headline, a second column has the paper's
    numbers if any are `cited`. The title must be unique in the table. `failed` methods cannot be finished.
    """
    best = Comparison(list(results.values())).clear_best(point) if results else None

    def ours(method: str) -> Entry:
        if method in failed:
            return "failed"
        result = results.get(method)
        return accuracy(result.final.get(point), result is best) if result else None

    shown = [accuracy_at(point).but(key=title, title=title, value=ours)]
    if point == AFTER_TRANSFER and any(cited.values()):
        shown.append(columns.PAPER.but(key=f"{title}: paper", title=f"{title}: paper", value=cited.get))
    return shown


def methods_table(name: str, titles: Mapping[str, str], shown: Sequence[Column], latex: str) -> Table:
    return Table.of(name, [columns.METHOD.but(value=lambda method: titles[method]), *shown], titles, latex=latex)


class Run(NamedTuple):
    """One run of a result."""

    variant: str  # the name of the variant of a study, or of the comparison
    result: MethodResult
    place: int  # the position of the run's seed in the result

    @property
    def method(self) -> str:
        return self.result.method

    @property
    def title(self) -> str:
        return self.result.title


VARIANT = Column("variant", "Variant", value=lambda run: run.variant)
"""The column with the name of a `Run`'s variant."""


def runs(
    results: Iterable[tuple[str, MethodResult]],
    first: Sequence[Column] = (columns.TITLE,),
    points: Sequence[str] = ORDER,
) -> Section:
    """Return the section with one row per run: its seed and accuracies, and its run and key in MLflow.

    `results` are pairs of a variant's name and a result. The `first` columns, whose rows are `Run`s, come before all
    other columns.
    """

    def at(point: str) -> Column:
        def value(run: Run) -> Entry:
            final = run.result.final.get(point)
            return percent(final.per_seed[run.place]) if final else None

        return accuracy_at(point).but(value=value)

    def key(run: Run) -> Entry:
        return (run.result.runs[run.place].key or NONE) if run.result.runs else None

    shown = [
        *first,
        Column("seed", "Seed", value=lambda run: str(run.result.seeds[run.place])),
        *map(at, points),
        Column("run_id", "MLflow run", value=lambda run: run.result.run_ids[run.place] or NONE),
        Column("key", "Settings key", value=key),
    ]
    rows = [Run(variant, result, place) for variant, result in results for place in range(len(result.seeds))]
    return Section("Runs", [Table.of("runs", shown, rows).filled(), Text(words.RUNS)], folded=True)
