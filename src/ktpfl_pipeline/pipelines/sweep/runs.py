"""All runs of a sweep, below one run of its own in the tracker."""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ktpfl_pipeline import tracking
from ktpfl_pipeline.analysis.results import summarise
from ktpfl_pipeline.config.schema import Experiment, Sweep, create_method
from ktpfl_pipeline.core.errors import InputError
from ktpfl_pipeline.core.identity import flat
from ktpfl_pipeline.data.federated import FederatedData
from ktpfl_pipeline.methods import TITLES
from ktpfl_pipeline.pipelines.download.nodes import load_private, load_public
from ktpfl_pipeline.pipelines.federated_training.progress import Progress
from ktpfl_pipeline.pipelines.federated_training.runs import code_version, run_seed
from ktpfl_pipeline.pipelines.partition.nodes import join, partition_clients
from ktpfl_pipeline.pipelines.public_set.nodes import sample_public_set


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
                    method: run_method(name, sweep, value, method, point, own, tracked.run_id)
                    for method in sweep.methods
                },
            }
            for value, point, own in zip(sweep.values, points, data, strict=True)
        ]
    return {"sweep": settings, "key": key, "points": found}


def run_method(
    name: str, sweep: Sweep, value: Any, method: str, point: Experiment, data: FederatedData, parent: str
) -> dict[str, Any]:
    """Run one method at one point with every seed, and return its `MethodResult` as plain values."""
    label = sweep.label(value) if sweep.touches(method) else ""
    title = TITLES.get(method, method)
    with Progress(f"{label}, {title}" if label else title, point) as progress:
        runs = [run_seed(name, method, point, data, seed, progress, parent, label) for seed in point.seeds]
    return summarise(runs, asdict(create_method(method, point.methods.get(method, {})))).to_dict()


def federations(name: str, sweep: Sweep, points: Sequence[Experiment], raw_folder: Path) -> list[FederatedData]:
    """Return the data of every point, made as in any experiment; equal images are loaded and kept once.

    Raises:
        InputError: naming the value whose data cannot be made.
    """
    private: dict[str, Any] = {}
    public: dict[str, Any] = {}
    found = []
    for value, point in zip(sweep.values, points, strict=True):
        try:
            found.append(_federation(point, raw_folder, private, public))
        except InputError as error:
            raise InputError(f"{name} cannot set {sweep.parameter} to {value!r}: {error}") from error
    return found


def _federation(point: Experiment, raw_folder: Path, private: dict[str, Any], public: dict[str, Any]) -> FederatedData:
    """Return the data of one point; `private` and `public` keep the images that were loaded."""
    own = repr((point.private, point.image))
    other = f"{own} {point.public.source}"
    if own not in private:
        private[own] = load_private(point, raw_folder)
    if other not in public:
        public[other] = load_public(point, raw_folder, private[own])
    public_set = sample_public_set(point, private[own], public[other])
    made: FederatedData = join(private[own], public_set, partition_clients(point, private[own], public_set))
    return made


def identity(sweep: Sweep, points: Sequence[Experiment]) -> str:
    """Return a hash of all settings and the source that a sweep depends on: an equal one is continued."""
    methods = [
        (method, create_method(method, point.methods.get(method, {})), point)
        for point in points
        for method in sweep.methods
    ]
    settings = {
        "sweep": sweep.model_dump(),
        "points": [point.shared() for point in points],
        "methods": [[method, asdict(made), code_version(type(made), at.architectures)] for method, made, at in methods],
    }
    return hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()[:16]
