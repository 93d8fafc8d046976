"""Nodes that evaluate."""

from dataclasses import asdict
from typing import Any

from ktpfl_pipeline.config.schema import Experiment, create_method


def evaluate(experiment: Experiment, runs: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the `MethodResult` of a method's runs as plain values, with the settings that they were made with."""
    from ktpfl_pipeline.analysis.results import FinishedRun, summarise

    finished = [FinishedRun.from_dict(run) for run in runs]
    method = finished[0].method
    hyperparameters = asdict(create_method(method, experiment.methods.get(method, {})))
    return summarise(finished, hyperparameters, experiment.settings()).to_dict()
