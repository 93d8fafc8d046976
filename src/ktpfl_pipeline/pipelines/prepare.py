"""The data of an experiment in one call, made by the nodes of its pipeline: for sweeps, tunings and benchmarks."""

from pathlib import Path
from typing import Any

from ktpfl_pipeline.config.schema import Experiment
from ktpfl_pipeline.data.federated import FederatedData
from ktpfl_pipeline.pipelines.download.nodes import load_private, load_public
from ktpfl_pipeline.pipelines.partition.nodes import join, partition_clients
from ktpfl_pipeline.pipelines.public_set.nodes import sample_public_set


def prepare(experiment: Experiment, raw_folder: Path, images: dict[str, Any] | None = None) -> FederatedData:
    """Return the data of an experiment for each of its seeds.

    `images` keeps what was loaded, by where it comes from: give the same dict again, and equal images are loaded and
    kept once.

    Raises:
        InputError: if the images and the settings do not go together.
    """
    images = {} if images is None else images
    own = repr((experiment.private, experiment.image))
    other = f"{own} {experiment.public.source}"
    if own not in images:
        images[own] = load_private(experiment, raw_folder)
    if other not in images:
        images[other] = load_public(experiment, raw_folder, images[own])
    public_set = sample_public_set(experiment, images[own], images[other])
    table = partition_clients(experiment, images[own], public_set)
    data: FederatedData = join(experiment, images[own], public_set, table, raw_folder)
    return data
