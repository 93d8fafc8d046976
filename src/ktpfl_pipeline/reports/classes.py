"""What a comparison says class by class: accuracy per class, confusion matrices, and the majority-class baseline."""

from collections.abc import Sequence
from typing import Any

from ktpfl_pipeline.analysis.classes import recalls
from ktpfl_pipeline.analysis.results import HEADLINE, FinishedRun, MethodResult
from ktpfl_pipeline.analysis.roles import local_only
from ktpfl_pipeline.analysis.statistics import mean_over_clients, paired
from ktpfl_pipeline.reports import figures
from ktpfl_pipeline.reports.figures.accuracy import chief
from ktpfl_pipeline.reports.model import Block, Picture, Table
from ktpfl_pipeline.reports.numbers import Entry, Number, interval, mean, percent
from ktpfl_pipeline.reports.words import over_seeds, plural

MAJORITY = "Majority class"
"""Name of the baseline that predicts the most frequent class of a client's training samples."""
MOST = 50
"""Classes that the table shows; of more, those that the report's subject recognises worst."""


def known(results: Sequence[MethodResult]) -> bool:
    """Say whether all runs have a confusion matrix."""
    return all(run.confusion for result in results for run in result.runs)


def majority(results: Sequence[MethodResult]) -> dict[int, float]:
    """Return the majority-class baseline by seed, mean over clients, in 0..1; empty where it is not known.

    It depends on the data alone, so any method's run with a seed has it.
    """
    runs = {run.seed: run for result in results for run in result.runs}
    if not all(run.majority for run in runs.values()):
        return {}
    return {seed: mean_over_clients(run.majority, run.adversaries) for seed, run in sorted(runs.items())}


def majority_row(results: Sequence[MethodResult], column: str, difference: str) -> dict[str, Entry]:
    """Return the baseline's row of the main table: its accuracy and its difference to local-only; empty if unknown."""
    found, local = majority(results), local_only(results)
    if not found:
        return {}
    runs = local.runs if local else []
    theirs = {run.seed: mean_over_clients(run.final(HEADLINE), run.adversaries) for run in runs}
    return {"Method": MAJORITY, column: mean([*found.values()]), difference: interval(paired(found, theirs))}


def blocks(results: Sequence[MethodResult]) -> list[Block]:
    """Return the table of accuracies by class and the confusion matrices; nothing where labels stay with clients."""
    if not known(results):
        return []
    runs, seeds = results[0].runs, max(len(result.seeds) for result in results)
    classes = len(runs[0].classes)
    first = chief(results)[0].title
    fewer = f" Shown are the {MOST} of {classes} classes that {first} recognizes worst." if classes > MOST else ""
    caption = (
        "Accuracy on the test samples of each class, of all clients together, with the models after the last round"
        f"{over_seeds(seeds)}. A client that has no sample of a class does not count in it.{fewer}"
    )
    matrices = (
        f"Confusion matrices: of all clients' test samples of a true class (row), the share taken for each class "
        f"(column), with the models after the last round, {plural(seeds, 'seed')} together."
    )
    return [*table(results).captioned(caption), Picture("confusion", figures.confusion_matrices(results), matrices)]


def table(results: Sequence[MethodResult]) -> Table:
    """Return one row a class: its test samples, and the accuracy on them with each of the report's chief methods."""
    shown = chief(results)
    names, main = shown[0].runs[0].classes, recalls(shown[0].runs)
    order = sorted(range(len(names)), key=lambda label: (main[label] is None, main[label] or 0.0))[:MOST]
    columns = {result.title: [recalls([run]) for run in result.runs] for result in shown}

    def row(label: int) -> dict[str, Entry]:
        samples = [sum(run.confusion[label]) for run in shown[0].runs]
        found = {title: [by[label] for by in by_seed if by[label] is not None] for title, by_seed in columns.items()}
        return {
            "Class": names[label],
            "Test samples": Number(sum(samples) / len(samples), "{:,.0f}".format),
            **{f"{title} (%)": mean([value for value in each if value is not None]) for title, each in found.items()},
        }

    return Table.of("classes", [row(label) for label in sorted(order)])


def rows_by_class(run: FinishedRun, ids: dict[str, Any]) -> list[dict[str, Any]]:
    """Return one row a class: its test samples, and the share of these that is recognised (empty without samples)."""
    if not run.confusion:
        return []
    found = zip(run.classes, recalls([run]), run.confusion, strict=True)
    return [
        {**ids, "class": label, "name": name, "test_samples": sum(counts), "accuracy": share}
        for label, (name, share, counts) in enumerate(found)
    ]


def rows_of_confusion(run: FinishedRun, ids: dict[str, Any]) -> list[dict[str, Any]]:
    """Return one row a pair of classes of which samples were mistaken, or recognised: their number."""
    return [
        {**ids, "true": run.classes[true], "predicted": run.classes[said], "samples": count}
        for true, counts in enumerate(run.confusion)
        for said, count in enumerate(counts)
        if count
    ]


def beside(results: Sequence[MethodResult]) -> str:
    """Return what a tile says of the baseline: ``always predicting the most frequent class: 52.3 %``."""
    found = [*majority(results).values()]
    return f"always predicting the most frequent class: {percent(sum(found) / len(found))} %" if found else ""
