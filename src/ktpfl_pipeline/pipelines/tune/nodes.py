"""Nodes of a tuning, and the one by which a comparison takes what it chose."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ktpfl_pipeline.config.schema import TUNE, Experiment, Tune


def run_trials(
    tune: Tune, experiment: Experiment, raw_folder: Path, name: str, methods: Sequence[str]
) -> dict[str, Any]:
    """Run every method's candidates with every seed of the tuning, resuming what was begun, and return the trials."""
    from ktpfl_pipeline.pipelines.tune.trials import run_all

    return run_all(name, tune, experiment, methods, raw_folder)


def choose(tune: Tune, experiment: Experiment, trials: dict[str, Any], name: str) -> str:
    """Return what comparisons read: each method's values of highest validation accuracy."""
    from ktpfl_pipeline.config.tuned import to_text
    from ktpfl_pipeline.reports.tuning import comparable, tuned

    return to_text(tuned(name.removeprefix(TUNE), comparable(name, trials, tune, experiment)))


def report(tune: Tune, experiment: Experiment, trials: dict[str, Any], name: str) -> Any:
    """Return the `Report` on a tuning, and log it to the tuning's own run; trials of other settings are refused."""
    from ktpfl_pipeline import tracking
    from ktpfl_pipeline.reports.tuning import build, comparable

    made = build(name, comparable(name, trials, tune, experiment))
    tracking.current().log_report(name, name, trials["key"], made.files, made.figures)
    return made


def settle(experiment: Experiment, hyperparameters: str, name: str, methods: Sequence[str]) -> Experiment:
    """Return the experiment with the hyperparameters that its methods run with: as configured, or all as tuned."""
    from ktpfl_pipeline.config import checks, tuned

    checks.refuse_unmet(name, experiment, methods)
    return tuned.settle(name, experiment, methods, f"data/05_model_input/{name}/hyperparameters.json", hyperparameters)
