"""A comparison by class: accuracy per class, confusion matrices, and the majority-class baseline."""

from collections.abc import Sequence
from statistics import fmean

from ktpfl_pipeline.analysis.classes import recalls
from ktpfl_pipeline.analysis.results import HEADLINE, MethodResult, local_only
from ktpfl_pipeline.analysis.statistics import mean_over_clients, paired
from ktpfl_pipeline.reports import figures
from ktpfl_pipeline.reports.columns import Column
from ktpfl_pipeline.reports.figures.accuracy import chief
from ktpfl_pipeline.reports.model import Block, Picture, Table
from ktpfl_pipeline.reports.numbers import Entry, Number, interval, mean
from ktpfl_pipeline.reports.words import over_seeds, plural

MAJORITY = "Majority class"
"""Name of the baseline that predicts the most frequent class of a client's training samples."""
MOST = 50
"""Classes that the table shows at most: those that the report's subject recognizes worst."""


def majority(results: Sequence[MethodResult]) -> dict[int, float]:
    """Return the majority-class baseline by seed, mean over clients, in 0..1; empty where it is not known.

    It depends on the data only, so the runs of all methods with a seed have the same.
    """
    runs = {run.seed: run for result in results for run in result.runs}
    if not all(run.majority for run in runs.values()):
        return {}
    return {seed: mean_over_clients(run.majority, run.adversaries) for seed, run in sorted(runs.items())}


def majority_row(results: Sequence[MethodResult], accuracy: str, difference: str) -> list[dict[str, Entry]]:
    """Return the baseline's row of the main table, or no row where it is not known.

    The arguments are the keys of the columns of its accuracy and of its difference to local-only.
    """
    found, local = majority(results), local_only(results)
    if not found:
        return []
    runs = local.runs if local else []
    theirs = {run.seed: mean_over_clients(run.final(HEADLINE), run.adversaries) for run in runs}
    return [{"method": MAJORITY, accuracy: mean([*found.values()]), difference: interval(paired(found, theirs))}]


def blocks(results: Sequence[MethodResult]) -> list[Block]:
    """Return accuracies by class and the confusion matrices; nothing where only clients know their labels."""
    if not all(run.confusion for result in results for run in result.runs):
        return []
    runs, seeds = results[0].runs, max(len(result.seeds) for result in results)
    classes = len(runs[0].classes)
    first = chief(results)[0].title
    fewer = f" Shown are the {MOST} of {classes} classes that {first} recognizes worst." if classes > MOST else ""
    caption = (
        "Accuracy on the test samples of each class, of all clients together, with the models after the last round"
        f"{over_seeds(seeds)}. A client without samples of a class does not count in it.{fewer}"
    )
    matrices = (
        f"Confusion matrices: of all clients' test samples of a true class (row), the share predicted as each class "
        f"(column), with the models after the last round, {plural(seeds, 'seed')} together."
    )
    return [*table(results).captioned(caption), Picture("confusion", figures.confusion_matrices(results), matrices)]


def table(results: Sequence[MethodResult]) -> Table:
    """Return one row per class: its test samples, and the accuracy on them with each of the report's chief methods."""
    shown = chief(results)
    names, main = shown[0].runs[0].classes, recalls(shown[0].runs)
    order = sorted(range(len(names)), key=lambda label: (main[label] is None, main[label] or 0.0))[:MOST]

    def of(result: MethodResult) -> Column:
        by_seed = [recalls([run]) for run in result.runs]

        def value(label: int) -> Entry:
            return mean([share for shares in by_seed if (share := shares[label]) is not None])

        return Column(result.method, result.title, "%", value=value)

    def samples(label: int) -> Entry:
        return Number(fmean(sum(run.confusion[label]) for run in shown[0].runs), "{:,.0f}".format)

    columns = [
        Column("class", "Class", value=lambda label: names[label]),
        Column("test_samples", "Test samples", value=samples),
        *map(of, shown),
    ]
    return Table.of("classes", columns, sorted(order))
