"""Nodes that evaluate."""

from dataclasses import asdict
from typing import Any

from ktpfl_pipeline.config.parsing import method_of
from ktpfl_pipeline.config.schema import Experiment


def evaluate(experiment: Experiment, runs: list[Any]) -> Any:
    """Return the `MethodResult` of a method's `FinishedRun`s, with the settings that they were made with."""
    from ktpfl_pipeline.analysis.results import summarise

    return summarise(runs, asdict(method_of(experiment, runs[0].method)), experiment.settings())
