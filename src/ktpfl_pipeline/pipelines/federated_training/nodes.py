"""Nodes that train."""

from collections.abc import Sequence
from typing import Any

from ktpfl_pipeline.config.schema import Experiment


def resolve(experiment: Experiment, hyperparameters: str, *, name: str, methods: Sequence[str]) -> Experiment:
    """Return the experiment with the hyperparameters that its methods run with: as configured, or all as tuned.

    `hyperparameters` is what a tuning of it left, as text; empty where there was none.

    Raises:
        InputError: if a method does not support a setting, or there are no tuned values that fit.
    """
    from ktpfl_pipeline.config import checks, tuned

    checks.check_methods(name, experiment, methods)
    return tuned.resolve(name, experiment, methods, f"data/05_model_input/{name}/hyperparameters.json", hyperparameters)


def settle(experiment: Experiment, federation: Any, *, name: str) -> Experiment:
    """Return the experiment with the dtype and memory format that its runs are computed in: no `auto` is left."""
    from ktpfl_pipeline.pipelines.federated_training.arithmetic import settled

    return settled(experiment, federation, name)


def train(experiment: Experiment, federation: Any, *, name: str, method: str) -> Any:
    """Run `method` once for each seed, resuming what was started, and return its `FinishedRun`s.

    Raises:
        InputError: if the data were made with other settings.
    """
    from ktpfl_pipeline.analysis.agreement import check_settings
    from ktpfl_pipeline.pipelines.federated_training.identity import Job
    from ktpfl_pipeline.pipelines.federated_training.runs import run_all

    check_settings(f"The data of {name} were", federation.settings, experiment.of_data())
    return run_all(Job(name, method, experiment, federation))
