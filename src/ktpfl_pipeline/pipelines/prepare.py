"""The data of an experiment in one call, made by the nodes of its pipeline: for sweeps, tunings and benchmarks."""

from pathlib import Path
from typing import Any

from ktpfl_pipeline.config.schema import Experiment
from ktpfl_pipeline.data.federated import FederatedData
from ktpfl_pipeline.pipelines.download.nodes import load_private, load_public
from ktpfl_pipeline.pipelines.partition.nodes import federated
from ktpfl_pipeline.pipelines.public_set.nodes import sample_public_set

ANY = 2**62
"""More samples than any source has."""


def prepare(experiment: Experiment, raw_folder: Path, loaded: dict[str, Any] | None = None) -> FederatedData:
    """Return the data of an experiment for each of its seeds.

    `loaded` keeps what was loaded, by where it comes from: give the same dict again, and equal samples are loaded and
    kept once.

    Raises:
        InputError: if the samples and the settings do not go together.
    """
    loaded = {} if loaded is None else loaded
    drawn = experiment.private_samples(ANY) if experiment.private.samples_per_client else None
    own = repr((experiment.private, experiment.image, drawn))
    other = f"{own} {experiment.public.source}"
    if own not in loaded:
        loaded[own] = load_private(experiment, raw_folder)
    if other not in loaded:
        loaded[other] = load_public(experiment, raw_folder, loaded[own])
    public_set = sample_public_set(experiment, loaded[own], loaded[other])
    data: FederatedData = federated(experiment, loaded[own], public_set, raw_folder)
    return data
