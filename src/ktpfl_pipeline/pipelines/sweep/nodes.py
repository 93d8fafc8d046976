"""Nodes of a sweep.

Arguments that they share: `sweep`, its settings; `parameters`, all sections of the configuration by name, the swept
experiment's among them; `name`, the sweep's. Which experiment is swept is a setting and may be another for one run, so
the nodes take all parameters.
"""

from pathlib import Path
from typing import Any

from kedro.pipeline import Pipeline

from ktpfl_pipeline.config.parsing import points
from ktpfl_pipeline.config.studies import Sweep
from ktpfl_pipeline.core.validation import plain
from ktpfl_pipeline.pipelines.step import step


def run_points(sweep: Sweep, parameters: dict[str, Any], raw_folder: Path, *, name: str) -> dict[str, Any]:
    """Run every method at every value with every seed, resuming unfinished runs, and return the results.

    Raises:
        InputError: if a value cannot be.
    """
    from ktpfl_pipeline.pipelines.sweep.runs import run_all

    return run_all(name, sweep, points(name, sweep, parameters), raw_folder)


def report(sweep: Sweep, parameters: dict[str, Any], results: dict[str, Any], *, name: str) -> Any:
    """Return the `Report` on a sweep, from the `results` that `run_points` left, and log it to its own run.

    Raises:
        InputError: if the results were made with other settings.
    """
    from ktpfl_pipeline.pipelines.parent import log_report
    from ktpfl_pipeline.reports.sweep import build, comparable

    settings = [experiment.shared() for experiment in points(name, sweep, parameters)]
    made = build(name, sweep.parameter, comparable(name, results, plain(sweep), settings))
    log_report(name, name, results["key"], made)
    return made


def create_pipeline(name: str) -> Pipeline:
    """Return the pipeline of the sweep `name`: the runs of every point, then one report."""
    settings, points = [f"params:{name}", "parameters"], f"{name}/points"
    return Pipeline(
        [
            step(run_points, [*settings, "raw_folder"], points, namespace="sweep", name=name),
            step(report, [*settings, points], f"{name}/report", namespace="report", name=name),
        ]
    )
