"""Nodes that evaluate."""

from dataclasses import asdict
from typing import Any

from ktpfl_pipeline.config.parsing import create_method
from ktpfl_pipeline.config.schema import Experiment


def evaluate(experiment: Experiment, runs: list[Any]) -> Any:
    """Return the `MethodResult` of a method's `FinishedRun`s, with the settings that they were made with."""
    from ktpfl_pipeline.analysis.results import summarise

    method = runs[0].method
    hyperparameters = asdict(create_method(method, experiment.methods.get(method, {})))
    return summarise(runs, hyperparameters, experiment.settings())
