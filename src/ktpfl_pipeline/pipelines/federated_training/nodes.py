"""Nodes that train and evaluate."""

from dataclasses import asdict, replace
from typing import Any

from ktpfl_pipeline.config.parsing import create_method
from ktpfl_pipeline.config.schema import Experiment


def train(experiment: Experiment, federation: Any, name: str, method: str) -> Any:
    """Run `method` once for each seed, resuming what was begun, and return its `FinishedRun`s.

    Args:
        experiment: the settings.
        federation: the `FederatedData`.
        name: the experiment's.
        method: its name in the registry, or its dotted path.
    """
    from ktpfl_pipeline.pipelines.federated_training.identity import Job
    from ktpfl_pipeline.pipelines.federated_training.runs import run_all

    return run_all(Job(name, method, experiment, federation))


def evaluate(experiment: Experiment, runs: list[Any]) -> Any:
    """Return the `MethodResult` of a method's `FinishedRun`s, with the settings that they were made with."""
    from ktpfl_pipeline.analysis.results import summarise

    method = runs[0].method
    hyperparameters = asdict(create_method(method, experiment.methods.get(method, {})))
    return replace(summarise(runs, hyperparameters), settings=experiment.settings())
