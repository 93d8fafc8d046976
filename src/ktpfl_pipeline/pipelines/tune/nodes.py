"""Nodes of a tuning, and the one by which a comparison takes what it chose.

Arguments that they share:
    tune: the tuning's settings.
    experiment: the settings of what is tuned.
    trials: what `run_trials` left.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from kedro.pipeline import Pipeline

from ktpfl_pipeline.config.schema import Experiment
from ktpfl_pipeline.config.studies import TUNE, Tune
from ktpfl_pipeline.pipelines.step import step


def run_trials(
    tune: Tune, experiment: Experiment, raw_folder: Path, *, name: str, methods: Sequence[str]
) -> dict[str, Any]:
    """Run every method's candidates with every seed of the tuning, resuming unfinished runs, and return the trials."""
    from ktpfl_pipeline.pipelines.tune.trials import run_all

    return run_all(name, tune, experiment, methods, raw_folder)


def choose(tune: Tune, experiment: Experiment, trials: dict[str, Any], *, name: str) -> str:
    """Return what comparisons read: each method's values of highest validation accuracy.

    Raises:
        InputError: if the trials were made with other settings.
    """
    from ktpfl_pipeline.config.tuned import to_text
    from ktpfl_pipeline.pipelines.tune.trials import chosen, parse

    return to_text(chosen(parse(name, trials, tune, experiment), name.removeprefix(TUNE)))


def report(tune: Tune, experiment: Experiment, trials: dict[str, Any], *, name: str) -> Any:
    """Return the `Report` on a tuning, and log it to the tuning's own run; errors as of `choose`."""
    from ktpfl_pipeline.config.tuned import to_text
    from ktpfl_pipeline.pipelines.parent import log_report
    from ktpfl_pipeline.pipelines.tune.trials import chosen, parse
    from ktpfl_pipeline.reports.tuning import build

    tuning = parse(name, trials, tune, experiment)
    made = build(name, tuning, to_text(chosen(tuning, name.removeprefix(TUNE))))
    log_report(name, name, trials["key"], made)
    return made


def resolve(experiment: Experiment, hyperparameters: str, *, name: str, methods: Sequence[str]) -> Experiment:
    """Return the experiment with the hyperparameters that its methods run with: as configured, or all as tuned.

    `hyperparameters` is what a tuning of it left, as text; empty where there was none.

    Raises:
        InputError: if a method does not support a setting, or there are no tuned values that fit.
    """
    from ktpfl_pipeline.config import checks, tuned

    checks.check_methods(name, experiment, methods)
    return tuned.resolve(name, experiment, methods, f"data/05_model_input/{name}/hyperparameters.json", hyperparameters)


def create_pipeline(name: str, experiment: str, methods: Sequence[str]) -> Pipeline:
    """Return the pipeline `name` that tunes the methods that one experiment's comparison runs."""
    settings, trials = [f"params:{name}", f"params:{experiment}"], f"{name}/trials"
    made = [*settings, trials]
    return Pipeline(
        [
            step(run_trials, [*settings, "raw_folder"], trials, namespace="tune", name=name, methods=methods),
            step(choose, made, f"{experiment}/hyperparameters", namespace="report", name=name),
            step(report, made, f"{name}/report", namespace="report", name=name),
        ]
    )
