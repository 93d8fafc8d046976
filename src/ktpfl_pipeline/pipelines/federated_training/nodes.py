"""Nodes that train."""

from typing import Any

from ktpfl_pipeline.config.schema import Experiment


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
