"""Nodes that train."""

from typing import Any

from ktpfl_pipeline.config.schema import Experiment


def train(experiment: Experiment, federation: Any, name: str, method: str) -> Any:
    """Run `method` once for each seed, resuming what was begun, and return its `FinishedRun`s."""
    from ktpfl_pipeline.pipelines.federated_training.identity import Job
    from ktpfl_pipeline.pipelines.federated_training.runs import run_all

    return run_all(Job(name, method, experiment, federation))
