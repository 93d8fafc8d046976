"""Accuracy class by class."""

from collections.abc import Sequence

from ktpfl_pipeline.analysis.results import FinishedRun


def recalls(runs: Sequence[FinishedRun]) -> list[float | None]:
    """Return the accuracy on the test samples of each class, (K,), in 0..1, over all runs together.

    None for a class without test samples. Empty where a run does not know its confusion matrix.
    """
    if not all(run.confusion for run in runs):
        return []
    classes = range(len(runs[0].confusion))
    samples = [sum(sum(run.confusion[label]) for run in runs) for label in classes]
    hits = [sum(run.confusion[label][label] for run in runs) for label in classes]
    return [hit / count if count else None for hit, count in zip(hits, samples, strict=True)]
