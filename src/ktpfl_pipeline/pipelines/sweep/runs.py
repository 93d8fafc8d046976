"""All runs of a sweep, below one run of its own in the tracker.

Arguments that the functions share: `sweep`, its settings, and `points`, the experiment at each value.
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from ktpfl_pipeline.analysis.results import summarise
from ktpfl_pipeline.config.checks import saying
from ktpfl_pipeline.config.schema import Experiment
from ktpfl_pipeline.config.studies import Sweep
from ktpfl_pipeline.core.validation import plain
from ktpfl_pipeline.data.federated import FederatedData
from ktpfl_pipeline.methods import title as title_of
from ktpfl_pipeline.pipelines.federated_training.arithmetic import settled
from ktpfl_pipeline.pipelines.federated_training.identity import Job
from ktpfl_pipeline.pipelines.federated_training.runs import run_all as run_seeds
from ktpfl_pipeline.pipelines.parent import parent_run
from ktpfl_pipeline.pipelines.prepare import prepare


def run_all(name: str, sweep: Sweep, points: Sequence[Experiment], raw_folder: Path) -> dict[str, Any]:
    """Run every method at every point with every seed, and return their results as plain values.

    Runs that are the same at two points, because the swept setting is another method's, are made once: their identity
    is equal, so the second finds the first finished.

    Returns:
        the sweep's settings, what identifies it, and for each point its value, its settings and a `MethodResult` by
        method.
    """
    data = federations(name, sweep, points, raw_folder)  # what cannot be is refused before anything is trained
    points = [settled(point, own, name) for point, own in zip(points, data, strict=True)]
    with parent_run(name, sweep, points, sweep.methods, {"kind": "sweep", "sweep": name}) as (key, tracked):
        found = [
            {
                "value": value,
                "settings": point.shared(),
                "methods": {
                    method: run_method(sweep, value, Job(name, method, point, own, tracked.run_id))
                    for method in sweep.methods
                },
            }
            for value, point, own in zip(sweep.values, points, data, strict=True)
        ]
    return {"sweep": plain(sweep), "key": key, "points": found}


def run_method(sweep: Sweep, value: Any, job: Job) -> dict[str, Any]:
    """Run one method at one value of the setting with every seed; return its `MethodResult` as plain values."""
    label = sweep.label(value) if sweep.touches(job.method) else ""
    title = ", ".join(filter(None, (label, title_of(job.method))))
    return summarise(run_seeds(replace(job, label=label), title), job.hyperparameters()).to_dict()


def federations(name: str, sweep: Sweep, points: Sequence[Experiment], raw_folder: Path) -> list[FederatedData]:
    """Return the data of every point, made as in any experiment; equal samples are loaded and kept once.

    Raises:
        InputError: naming the value whose data cannot be made.
    """
    loaded: dict[str, Any] = {}
    found = []
    for value, point in zip(sweep.values, points, strict=True):
        with saying(f"{name} cannot set {sweep.parameter} to {value!r}: "):
            found.append(prepare(point, raw_folder, loaded))
    return found
