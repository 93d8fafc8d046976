"""The columns and tables that several reports share: of a comparison, of methods by variant, and of runs.

The entries of a row are keyed by the `key` of their column, which is also the column's name in CSV files. Title, unit,
meaning and value of a shared column are declared once.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from operator import attrgetter
from typing import Any

from ktpfl_pipeline.analysis.comparison import Comparison
from ktpfl_pipeline.analysis.results import ORDER, MethodResult
from ktpfl_pipeline.analysis.statistics import Difference, paired
from ktpfl_pipeline.core.metrics import AFTER_LOCAL, AFTER_TRANSFER
from ktpfl_pipeline.reports import paper, words
from ktpfl_pipeline.reports.answer import NO_LOCAL
from ktpfl_pipeline.reports.model import ID, Column, Section, Table, Text
from ktpfl_pipeline.reports.numbers import (
    MB,
    NONE,
    Entry,
    Number,
    accuracy,
    duration,
    interval,
    mean,
    megabytes,
    percent,
    signed,
)
from ktpfl_pipeline.reports.words import marked, metric_title

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
    value=lambda result: Number(result.seconds["round"], duration),
)
PAPER = Column("paper", "Paper", "%")
CHOSEN = Column("chosen", "Chosen")
VALIDATION = Column("validation", "Validation", "%")


def gained(
    key: str,
    title: str,
    found: Mapping[Any, Difference | None],
    meaning: str = "",
    of: Callable[[Any], Any] = attrgetter("method"),
) -> Column:
    """Return a column of differences to local-only, which are `found` by what `of` returns for a row."""
    return MINUS_LOCAL.but(key=key, title=title, meaning=meaning, value=lambda row: interval(found.get(of(row))))


def gained_at(metric: str, comparison: Comparison, title: str, meaning: str = "") -> Column:
    """Return the column of the corrected difference to local-only in a metric."""
    return gained(f"{metric}_minus_local", title, comparison.gains(metric), meaning)


def accuracy_at(metric: str, best: MethodResult | None = None, meaning: str = "") -> Column:
    """Return the column of the final value of a metric; `best` is set in bold."""
    return Column(
        metric, metric_title(metric), "%", meaning, lambda result: accuracy(result.final.get(metric), result is best)
    )


def comparison_table(comparison: Comparison, latex: str = "") -> Table:
    """Return one row per method, the best first, and a row for the majority-class baseline if it is known."""
    headline, settings = comparison.headline, comparison.settings
    cited = {} if paper.differences(settings) else paper.cited(settings, [result.method for result in comparison])
    minus = MINUS_LOCAL.meaning if comparison.local else NO_LOCAL
    shown = [
        METHOD,
        *(accuracy_at(key, comparison.clear_best(key), why) for key, why in meanings_of(comparison).items()),
        gained(MINUS_LOCAL.key, f"{MINUS_LOCAL.title}{words.in_measure(headline)}", comparison.gains(headline), minus),
        *(TRAFFIC, TIME),
        *([PAPER.but(meaning=words.LANDMARK, value=lambda result: cited.get(result.method))] if cited else []),
    ]
    made = Table.of("table", shown, comparison.ranked(headline), latex=latex, tinted=tinted(comparison))
    if not (guesses := comparison.majority):
        return made
    local = comparison.local
    theirs = dict(zip(local.seeds, local.final[AFTER_TRANSFER].per_seed, strict=True)) if local else {}
    found = paired(guesses, theirs) if headline == AFTER_TRANSFER else None  # not a method: shown and not tested
    gain = signed(found.mean) if found else None
    row = {"method": words.MAJORITY.title, AFTER_TRANSFER: mean([*guesses.values()]), MINUS_LOCAL.key: gain}
    return replace(made, rows=[*made.rows, row])


def meanings_of(comparison: Comparison) -> dict[str, str]:
    """Return the meanings of the main table's columns of final values, by key, the headline first."""
    alike = ", ".join(result.title for result in comparison if _one_point(result))
    headline = comparison.headline
    one = f" Both are equal for methods in which knowledge comes back only before training: {alike}." if alike else ""
    found = {} if headline == AFTER_TRANSFER else {headline: words.MEASURES[headline].meaning}
    found[AFTER_TRANSFER] = (
        f"{words.OWN_MODEL} after knowledge came back by distillation or aggregation, whether the client was in the "
        "round's cohort or not."
    )
    found[AFTER_LOCAL] = (
        "the same clients before any knowledge came back in that round. It can be far from accuracy after transfer, so "
        f"compare methods at the same point.{one}"
    )
    return {**found, headline: f"{found[headline]} This is the headline."}


def _one_point(result: MethodResult) -> bool:
    """Return whether a method transfers knowledge before local training, so both evaluation points are the same."""
    records = [record.accuracy for run in result.runs for record in run.evaluated]
    both = any(result.traffic.values()) and AFTER_LOCAL in result.final
    return both and all(record[AFTER_LOCAL] == record[AFTER_TRANSFER] for record in records)


def tinted(comparison: Comparison) -> list[str]:
    """Return the methods whose rows tables highlight: the report's subject and local-only."""
    return [result.method for result in (comparison.main, comparison.local) if result]


def variant_columns(
    title: str,
    comparison: Comparison,
    cited: Mapping[str, str | None],
    failed: Collection[str] = (),
    point: str = AFTER_TRANSFER,
) -> list[Column]:
    """Return the columns of one variant in a table of methods by variant. A row is a method's registry name.

    The first column is the final accuracy at an evaluation point. For the point after transfer, a second column has the
    paper's numbers if any are `cited`. The title must be unique in the table. `failed` methods cannot be finished.
    """
    best = comparison.clear_best(point) if len(comparison) else None

    def ours(method: str) -> Entry:
        if method in failed:
            return "failed"
        result = comparison.methods.get(method)
        return accuracy(result.final.get(point), result is best) if result else None

    shown = [accuracy_at(point).but(key=title, title=title, value=ours)]
    if point == AFTER_TRANSFER and any(cited.values()):
        shown.append(PAPER.but(key=f"{title}: paper", title=f"{title}: paper", value=cited.get))
    return shown


def methods_table(name: str, titles: Mapping[str, str], shown: Sequence[Column], latex: str) -> Table:
    return Table.of(name, [METHOD.but(value=lambda method: titles[method]), *shown], titles, latex=latex)


VARIANT = Column("variant", "Variant")
"""The column of `runs` with the name of a variant of a study, or of a comparison."""


def runs(
    results: Iterable[tuple[str, MethodResult]], first: Sequence[Column] = (TITLE,), points: Sequence[str] = ORDER
) -> Section:
    """Return the section with one row per run: its seed and accuracies, and its run and key in MLflow.

    `results` are pairs of a variant's name and a result. The `first` columns, `TITLE` or `VARIANT` or both, come before
    all other columns.
    """
    shown = [*first, Column("seed", "Seed"), *map(accuracy_at, points)]
    shown += [Column("run_id", "MLflow run"), Column("key", "Settings key")]
    rows: list[dict[str, Entry]] = [
        {
            **{ID: result.method, TITLE.key: result.title, VARIANT.key: variant, "seed": str(seed)},
            **{point: percent(result.final[point].per_seed[place]) for point in points if point in result.final},
            "run_id": result.run_ids[place] or NONE,
            "key": (result.runs[place].key or NONE) if result.runs else None,
        }
        for variant, result in results
        for place, seed in enumerate(result.seeds)
    ]
    note = "Every number above comes from these runs. In MLflow, runs with equal settings have equal keys."
    return Section("Runs", [Table("runs", shown, rows).filled(), Text(note)], folded=True)
