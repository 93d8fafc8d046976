"""Nodes that make the data of an experiment: images, the public set, and who owns what."""

from pathlib import Path
from typing import Any

from ktpfl_pipeline.config.schema import Experiment


def load_private(experiment: Experiment, raw_folder: Path) -> Any:
    """Return the private `LabelledDataset`, (M, C, H, W) uint8 with labels, in the experiment's channels and size."""
    from ktpfl_pipeline.core.dataset import LabelledDataset
    from ktpfl_pipeline.core.errors import InputError
    from ktpfl_pipeline.data.sources import adapt, load

    samples = load(experiment.private.source, raw_folder, experiment.private.classes)
    if samples.labels.min() == samples.labels.max():
        raise InputError(f"All images of {experiment.private.source} kept have one class; name two in private.classes.")
    if experiment.private.samples is not None:
        samples = _draw(samples, experiment.private.samples)
    return LabelledDataset(adapt(samples.images, experiment.image.channels, experiment.image.size), samples.labels)


def load_public(experiment: Experiment, raw_folder: Path, private: Any) -> Any:
    """Return the images the public set is taken from, (M, C, H, W) uint8; for an open part, the private ones.

    Args:
        experiment: its settings.
        raw_folder: where images are, and where downloads go.
        private: the private `LabelledDataset`.
    """
    from ktpfl_pipeline.data.sources import adapt, load

    if experiment.public.source == "open_part":
        return private.images
    images = load(experiment.public.source, raw_folder).images
    return adapt(images, experiment.image.channels, experiment.image.size)


def sample_public_set(experiment: Experiment, private: Any, public_images: Any) -> Any:
    """Return the `PublicSet`: an open part of the private data, or the other dataset less what is private too.

    Args:
        experiment: its settings.
        private: the private `LabelledDataset`.
        public_images: (M, C, H, W) uint8, what the set is taken from.
    """
    import torch

    from ktpfl_pipeline.data import public
    from ktpfl_pipeline.data.federated import PublicSet

    if experiment.public.source == "open_part":
        indices = {s: public.open_indices(private, experiment.public.share, s) for s in experiment.seeds}
    else:
        public_images = public.without_overlap(public_images, private.images)
        indices = dict.fromkeys(experiment.seeds, torch.arange(len(public_images)))
    public.check_size(min(len(chosen) for chosen in indices.values()), experiment.public.batch)
    return PublicSet(public_images, indices)


def partition_clients(experiment: Experiment, private: Any, public_set: Any) -> Any:
    """Return who owns what for every seed, as a table with the columns seed, client, split, index, label.

    Args:
        experiment: its settings.
        private: the private `LabelledDataset`.
        public_set: the `PublicSet`.
    """
    from ktpfl_pipeline.pipelines.data.table import partition_for_seed, to_table

    partitions = {seed: partition_for_seed(experiment, private, public_set, seed) for seed in experiment.seeds}
    return to_table(partitions, private.labels)


def join(private: Any, public_set: Any, partition: Any) -> Any:
    """Return the `FederatedData` that every method is given.

    Args:
        private: the private `LabelledDataset`.
        public_set: the `PublicSet`.
        partition: the table, with the indices as they were saved.
    """
    from ktpfl_pipeline.data.federated import FederatedData
    from ktpfl_pipeline.pipelines.data.table import from_table

    return FederatedData(private, public_set, from_table(partition))


def draw_partition(federation: Any) -> Any:
    """Return the labels of each client, of the first seed, as an interactive stacked bar chart."""
    import pandas as pd

    from ktpfl_pipeline.reports.interactive import labels_per_client

    counts = next(iter(federation.seeds.values())).label_counts
    rows = [(int(client), int(label), int(counts[client, label])) for client, label in counts.nonzero()]
    return labels_per_client(pd.DataFrame(rows, columns=["client", "label", "count"]))


def _draw(samples: Any, total: int) -> Any:
    """Return `total` of the samples, stratified by class: the same for every seed, for they are the experiment's."""
    import numpy as np
    import torch

    from ktpfl_pipeline.core.errors import InputError
    from ktpfl_pipeline.core.rng import derive
    from ktpfl_pipeline.data.partition import draw_stratified

    if total > len(samples):
        raise InputError(
            f"private.samples is {total:,} and there are {len(samples):,} private images: lower it, or take all with "
            "private.samples: null."
        )
    rng = np.random.default_rng(derive(0, "private samples"))
    drawn = samples.take(torch.from_numpy(draw_stratified(samples.labels.numpy(), total, rng)).nonzero().flatten())
    lost = sorted(set(samples.labels.tolist()) - set(drawn.labels.tolist()))
    if lost:
        raise InputError(f"private.samples is {total:,}, which leaves class {lost[0]} without an image: raise it.")
    return drawn
