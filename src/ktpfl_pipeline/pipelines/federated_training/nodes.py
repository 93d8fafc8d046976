"""Nodes that train."""

from typing import Any

from ktpfl_pipeline.config.schema import Experiment


def train(experiment: Experiment, federation: Any, name: str, method: str) -> list[dict[str, Any]]:
    """Run `method` once for each seed, resuming what was begun, and return the finished runs as plain values."""
    from ktpfl_pipeline.pipelines.federated_training.progress import Progress
    from ktpfl_pipeline.pipelines.federated_training.runs import run_seed

    with Progress(method, experiment) as progress:
        runs = [run_seed(name, method, experiment, federation, seed, progress) for seed in experiment.seeds]
    return [run.to_dict() for run in runs]
