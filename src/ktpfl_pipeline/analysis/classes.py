"""Accuracy per class, and the majority-class baseline."""

from collections.abc import Sequence
from typing import Any

import torch

from ktpfl_pipeline.analysis.results import FinishedRun, MethodResult
from ktpfl_pipeline.analysis.statistics import benign, mean_over_clients
from ktpfl_pipeline.core.engine import Run
from ktpfl_pipeline.core.federation import Federation
from ktpfl_pipeline.core.method import Method


def recalls(runs: Sequence[FinishedRun]) -> list[float | None]:
    """Return the recall of each class, (K,), in 0..1, over the test samples of all runs.

    The value of a class without test samples is None. The list is empty if a run has no confusion matrix.
    """
    if not all(run.confusion for run in runs):
        return []
    classes = range(len(runs[0].confusion))
    samples = [sum(sum(run.confusion[label]) for run in runs) for label in classes]
    hits = [sum(run.confusion[label][label] for run in runs) for label in classes]
    return [hit / count if count else None for hit, count in zip(hits, samples, strict=True)]


def majority(results: Sequence[MethodResult]) -> dict[int, float]:
    """Return the accuracy of the majority-class baseline by seed, mean over clients, in 0..1; empty if unknown.

    The baseline depends only on the data, so it is equal for the runs of all methods with the same seed.
    """
    runs = {run.seed: run for result in results for run in result.runs}
    if not all(run.majority for run in runs.values()):
        return {}
    return {seed: mean_over_clients(run.majority, run.adversaries) for seed, run in sorted(runs.items())}


def by_class(method: Method[Any], result: Run, fed: Federation) -> dict[str, list[Any]]:
    """Return the fields ``confusion`` and ``majority`` of a `FinishedRun`, for clients whose labels are accessible."""
    each = fed.confusion(method.personal(result.state, fed.by_id, fed), "test")  # (N, K, K)
    places = [int(place) for place in benign(range(len(each)), fed.places(fed.adversary_ids))]
    frequent = [client.train.labels.bincount().argmax() for client in fed.clients]
    shares = [(own.test.labels == label).double().mean() for own, label in zip(fed.clients, frequent, strict=True)]
    return {"confusion": each[places].sum(dim=0).tolist(), "majority": torch.stack(shares).tolist()}
