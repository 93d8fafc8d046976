"""All runs of a sweep, below one run of its own in the tracker."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from ktpfl_pipeline import tracking
from ktpfl_pipeline.analysis.results import summarise
from ktpfl_pipeline.config.schema import Experiment, Sweep
from ktpfl_pipeline.core.errors import InputError
from ktpfl_pipeline.core.identity import digest, flat
from ktpfl_pipeline.data.federated import FederatedData
from ktpfl_pipeline.methods import title as title_of
from ktpfl_pipeline.pipelines.federated_training.identity import Job, identity_of_method
from ktpfl_pipeline.pipelines.federated_training.runs import run_all as run_seeds
from ktpfl_pipeline.pipelines.prepare import prepare


def run_all(name: str, sweep: Sweep, points: Sequence[Experiment], raw_folder: Path) -> dict[str, Any]:
    """Run every method at every point with every seed, and return their results as plain values.

    Runs that are the same at two points, because the swept setting is another method's, are made once: their identity
    is equal, so the second finds the first finished.

    Args:
        name: the sweep's.
        sweep: its settings.
        points: the experiment at each value.
        raw_folder: where the images are.

    Returns:
        the sweep's settings, what identifies it, and for each point its value, its settings and a `MethodResult` by
        method.
    """
    data = federations(name, sweep, points, raw_folder)  # what cannot be is refused before anything is trained
    key = identity(sweep, points)
    settings = sweep.model_dump()
    with tracking.current().run(name, name, key, flat(settings), {"kind": "sweep", "sweep": name}) as tracked:
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
    return {"sweep": settings, "key": key, "points": found}


def run_method(sweep: Sweep, value: Any, job: Job) -> dict[str, Any]:
    """Run one method at one point with every seed, and return its `MethodResult` as plain values.

    Args:
        sweep: its settings.
        value: of the swept setting.
        job: the method at this point.
    """
    label = sweep.label(value) if sweep.touches(job.method) else ""
    title = ", ".join(filter(None, (label, title_of(job.method))))
    return summarise(run_seeds(replace(job, label=label), title), job.hyperparameters()).to_dict()


def federations(name: str, sweep: Sweep, points: Sequence[Experiment], raw_folder: Path) -> list[FederatedData]:
    """Return the data of every point, made as in any experiment; equal images are loaded and kept once.

    Args:
        name: the sweep's.
        sweep: its settings.
        points: the experiment at each value.
        raw_folder: where the images are.

    Raises:
        InputError: naming the value whose data cannot be made.
    """
    images: dict[str, Any] = {}
    found = []
    for value, point in zip(sweep.values, points, strict=True):
        try:
            found.append(prepare(point, raw_folder, images))
        except InputError as error:
            raise InputError(f"{name} cannot set {sweep.parameter} to {value!r}: {error}") from error
    return found


def identity(sweep: Sweep, points: Sequence[Experiment]) -> str:
    """Return a hash of all settings and the source that a sweep depends on: an equal one is continued."""
    settings = {
        "sweep": sweep.model_dump(),
        "points": [point.shared() for point in points],
        "methods": [identity_of_method(method, point) for point in points for method in sweep.methods],
    }
    return digest(settings)
